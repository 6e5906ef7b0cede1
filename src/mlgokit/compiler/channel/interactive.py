"""Run compilers with LLVM's interactive channels: the compiler sends observations, advisors send decisions.

docs/formats.md, "Interactive channel", has the protocol; LLVM's side is ``llvm/Analysis/InteractiveModelRunner.h``.
:func:`drive` is for one channel, :func:`drive_channels` for several, :func:`open_session` for callers that answer
themselves.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mlgokit.advisors import Advisor
from mlgokit.compiler.channel.conversation import encode_advice
from mlgokit.compiler.channel.session import ChannelUse, InteractiveResult, InteractiveStatus, Session, open_session
from mlgokit.errors import UsageError
from mlgokit.problems import Problem

__all__ = [
    "ChannelUse",
    "InteractiveResult",
    "InteractiveStatus",
    "Session",
    "channel_use",
    "clang_words",
    "drive",
    "drive_channels",
    "encode_advice",
    "open_session",
]


def clang_words(options: Sequence[str]) -> tuple[str, ...]:
    """Spell LLVM options for clang, driver and ``-cc1`` alike.

    Example:
        >>> clang_words(["-enable-ml-inliner=release"])
        ('-mllvm', '-enable-ml-inliner=release')
    """
    return tuple(word for option in options for word in ("-mllvm", option))


def channel_use(
    problem: Problem,
    *,
    major: int,
    advisor: Advisor | None = None,
    include_default: bool = False,
    words: Callable[[Sequence[str]], tuple[str, ...]] = clang_words,
) -> ChannelUse:
    """Describe the channel of a problem for compilers of an LLVM major.

    Args:
        problem: kind of decision.
        major: LLVM major of the compiler.
        advisor: makes the decisions.
        include_default: whether the compiler shall send its own decision too, if it can.
        words: how the compiler takes LLVM's options; ``tuple`` for opt and llc.

    Example:
        >>> from mlgokit.problems import REGALLOC_PRIORITY
        >>> channel_use(REGALLOC_PRIORITY, major=22, words=tuple).options[1]
        '-regalloc-priority-interactive-channel-base={base}'
    """
    channel = problem.channel_for(major, include_default=include_default)
    return ChannelUse(options=words(channel.options), overwritten=channel.overwritten, problem=problem, advisor=advisor)


def drive(
    argv: Sequence[str | os.PathLike[str]],
    *,
    channel_options: Sequence[str],
    overwritten: tuple[str, str] | None = None,
    advisor: Advisor,
    timeout_seconds: float,
    answer_timeout_seconds: float,
    folder: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> InteractiveResult:
    """Run a compiler under one advisor, over one channel.

    Args:
        argv: the command line without the channel.
        channel_options: words to append that make the compiler ask; ``{base}`` in them becomes the channel's path.
        overwritten: two features, as in :class:`ChannelUse`.
        advisor: answers in this process, once for each observation, in the compiler's order.
        timeout_seconds: deadline of the whole run.
        answer_timeout_seconds: longest time that the compiler may send nothing on an open channel.
        folder: where the folder of the pipes is made.
        cwd: working directory of the compiler.
        env: environment of the compiler; that of this process if not given.

    Raises:
        ToolError: the compiler cannot be started.
        StorageError: the channel's folder cannot be made.
        UsageError: the advisor's answer is not legal.
    """
    return drive_channels(
        argv,
        channels={"channel": ChannelUse(options=tuple(channel_options), overwritten=overwritten, advisor=advisor)},
        timeout_seconds=timeout_seconds,
        answer_timeout_seconds=answer_timeout_seconds,
        folder=folder,
        cwd=cwd,
        env=env,
    )


def drive_channels(
    argv: Sequence[str | os.PathLike[str]],
    *,
    channels: Mapping[str, ChannelUse],
    timeout_seconds: float,
    answer_timeout_seconds: float,
    folder: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> InteractiveResult:
    """Run a compiler under an advisor for each of several channels; arguments as for :func:`open_session`.

    Raises:
        ToolError: the compiler cannot be started.
        StorageError: the pipes cannot be made.
        UsageError: a channel has no advisor, or an advisor's answer is not legal.
    """
    advisors: dict[str, Advisor] = {}
    for name, use in channels.items():
        if use.advisor is None:
            raise UsageError(f"channel {name}: expected an advisor, found none; name one, or use open_session")
        advisors[name] = use.advisor
    with open_session(
        argv,
        channels=channels,
        timeout_seconds=timeout_seconds,
        answer_timeout_seconds=answer_timeout_seconds,
        folder=folder,
        cwd=cwd,
        env=env,
    ) as session:
        while (observation := session.next()) is not None:
            session.answer(advisors[session.channel].advise(observation))
        return session.result()
