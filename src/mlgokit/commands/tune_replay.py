"""A tuning whose decisions of inlining are also written for compilers that load no plugin."""

import dataclasses
from pathlib import Path

from mlgokit.commands.export_replay import ExportReplay, run as export_replay
from mlgokit.commands.tune_options import ALLOCATION_SHARE, PASS_SHARE, Tune
from mlgokit.errors import UsageError
from mlgokit.files import check_writable
from mlgokit.progress import Report
from mlgokit.tune.result import Tuned


def for_replay(config: Tune) -> Tune:
    """The call as it searches: where a replay is asked for, over inlining alone.

    Raises:
        StorageError: the list cannot be written.
        UsageError: what is asked for has no replay.
    """
    if config.artifact != "replay":
        if config.replay_clang is not None:
            raise UsageError("--replay-clang: expected --artifact replay with it, found plugin; add or leave out")
        return config
    for option, given in {
        f"--objective {config.objective}": config.objective == "spill-cost",
        "--corpus": config.corpus is not None,
        "--replay-clang with --cargo": config.replay_clang is not None and config.cargo is not None,
        f"--allocation-share {config.allocation_share:g}": config.allocation_share not in (ALLOCATION_SHARE, 0),
        f"--pass-share {config.pass_share:g}": config.pass_share not in (PASS_SHARE, 0),
    }.items():
        if given:
            raise UsageError(
                f"{option}: expected no --artifact replay with it, which has inlining alone, of sources that are "
                "compiled again; leave one out"
            )
    check_writable(_folder_of(config), is_folder=True)
    return dataclasses.replace(config, allocation_share=0.0, pass_share=0.0)


def _folder_of(config: Tune) -> Path:
    """Where the list goes."""
    return config.output.with_name(f"{config.output.stem}-replay")


def refuse_link(config: Tune) -> None:
    """Refuse a replay of decisions that are made in a link.

    Raises:
        UsageError: it is asked for.
    """
    if config.artifact == "replay":
        raise UsageError(
            "--artifact replay: expected a search of compile steps, found one of a link with -flto, which takes its "
            "options elsewhere; leave it out, or name another objective"
        )


def with_replay(config: Tune, plugin: Path, tuned: Tuned, *, report: Report) -> Tuned:
    """The result with what the list gives, which is written beside the plugin.

    Args:
        config: the call.
        plugin: that was verified, where it is now.
        tuned: what was measured with it.
        report: told what is done.

    Raises:
        ToolError: a compiler is missing, or a program is not made.
        UsageError: the folder of the list cannot be named.
    """
    found = export_replay(
        ExportReplay(
            plugin=plugin,
            compile_commands=None if config.cargo is not None else config.compile_commands,
            cargo=config.cargo,
            cargo_folder=config.link_folder or Path(),
            output=_folder_of(config),
            clang=config.replay_clang,
            level=config.level,
            workers=config.compiler.workers,
            timeout_seconds=config.compiler.timeout_seconds,
        ),
        report=report,
    )
    return dataclasses.replace(tuned, replay=dataclasses.replace(found, plugin=str(config.output)))
