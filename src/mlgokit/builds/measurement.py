"""What judges a build beside the account: the user's own link, or the user's own command that prints a number.

A command may be noisy. Then two builds are measured in pairs (:mod:`mlgokit.statistics`), until the interval of
the mean difference excludes zero or enough pairs were made.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.link import OBJECTS, OUTPUT, LinkPlan, command_words, link
from mlgokit.compiler import process
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.lto import image_beside
from mlgokit.compiler.objects.elf import read_elf
from mlgokit.compiler.objects.measure import section_totals
from mlgokit.compiler.outcome import first_error
from mlgokit.errors import InputError, UsageError
from mlgokit.files import writing
from mlgokit.statistics import measure_in_pairs

CHECKS = 3
"""Runs of a command on the plain build before the search; all alike, it is taken for exact."""
_NUMBER = re.compile(r"(?<![\w.,])[-+]?(?:\d{1,3}(?:,\d{3})++(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How a build is judged; at least one of ``plan`` and ``command``.

    Attributes:
        plan: the link, if there is one.
        command: what prints a number; without it the image's size is the number.
        modules: in link order, what ``{objects}`` stands for.
        timeout_seconds: deadline of a link, and of each run of the command.
        error: share of comparisons that may by chance call a build better or worse that is neither.
        is_lto: whether the modules are links themselves (:mod:`mlgokit.compiler.lto`), which leave images beside their
            objects: then there is nothing more to link.
        bar: what a result may not exceed, if that is another number than that of the build before the search.
    """

    plan: LinkPlan | None
    command: tuple[str, ...]
    modules: tuple[str, ...]
    timeout_seconds: float
    error: float = 0.05
    is_lto: bool = False
    bar: float | None = None

    @property
    def is_size(self) -> bool:
        """Whether the number is the bytes of the linked image."""
        return not self.command


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedBuild:
    """A build that can be measured, or why it cannot."""

    objects: Mapping[str, Path]
    image: Path
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A number, or why there is none."""

    value: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two builds, one measured against the other.

    Attributes:
        before: mean over the pairs, or ``None`` where something failed.
        after: likewise.
        low: lower end of the interval of the mean difference, after less before.
        high: its upper end.
        pairs: how many were measured.
        reason: what failed.
    """

    before: float | None = None
    after: float | None = None
    low: float = 0.0
    high: float = 0.0
    pairs: int = 0
    reason: str = ""

    @property
    def is_better(self) -> bool:
        """Whether the second is shown to be smaller."""
        return not self.reason and self.high < 0

    @property
    def is_no_worse(self) -> bool:
        """Whether the second is shown to be smaller, or measured the same every time."""
        return not self.reason and self.high <= 0


def measuring_words(text: str) -> tuple[str, ...]:
    """The words of a command that measures.

    Raises:
        UsageError: it needs a shell, or cannot know which build it measures.

    Example:
        >>> measuring_words("./measure.sh --runs 3 {output}")
        ('./measure.sh', '--runs', '3', '{output}')
    """
    words = command_words(text, option="--command", known={OBJECTS, OUTPUT})
    if not any(OBJECTS in word or OUTPUT in word for word in words):
        raise UsageError(
            f"--command: expected {OUTPUT} for the linked image or {OBJECTS} for the objects, found neither in "
            f"{text!r}; without one it cannot tell which build it measures"
        )
    return tuple(words)


def number_in(text: str) -> float | None:
    """The last number of a text.

    Example:
        >>> number_in("3 runs: 1,204.5 ms (x86_64)"), number_in("1e-3s"), number_in("none")
        (1204.5, 0.001, None)
    """
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def link_build(how: Measure, objects: Mapping[str, Path], scratch: Path) -> LinkedBuild:
    """Link a build, if it is to be linked.

    Raises:
        ToolError: the link command cannot be started.
    """
    if how.plan is None:
        return LinkedBuild(objects=objects, image=Path())
    if how.is_lto:
        return LinkedBuild(objects=objects, image=_copied(image_beside(objects[how.modules[0]]), scratch))
    linked = link(how.plan, objects, scratch, timeout_seconds=how.timeout_seconds)
    return LinkedBuild(objects=objects, image=linked.image, reason=linked.reason)


def _copied(image: Path, scratch: Path) -> Path:
    """A second name for an image, as the file beside an object goes with that."""
    copy = scratch / "image"
    with writing(copy):
        scratch.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)
        os.link(image, copy)
    return copy


def measure(how: Measure, linked: LinkedBuild) -> Measurement:
    """The number of a build.

    Raises:
        ToolError: the command cannot be started.
    """
    if linked.reason:
        return Measurement(value=None, reason=linked.reason)
    if how.is_size:
        try:
            return Measurement(value=float(section_totals(read_elf(linked.image)).llvm_size_text))
        except InputError as error:
            return Measurement(value=None, reason=str(error))
    words: list[str] = []
    for word in how.command:
        if word == OBJECTS:
            words += [str(linked.objects[name]) for name in how.modules if name in linked.objects]
        else:
            words.append(word.replace(OUTPUT, str(linked.image)))
    done = process.run(words, timeout_seconds=how.timeout_seconds, limits=USERS_LIMITS)
    if done.timed_out or done.returncode != 0:
        ending = f"did not end within {how.timeout_seconds:.0f} s"
        if not done.timed_out:
            ending = f"ended with {done.returncode}: {first_error(done.stderr)}"
        return Measurement(value=None, reason=f"the command {ending}")
    value = number_in(done.stdout.decode("utf-8", "replace"))
    return Measurement(value=value, reason="the command printed no number" if value is None else "")


def compare(
    how: Measure, before: LinkedBuild, after: LinkedBuild, *, is_over: Callable[[], bool], known: float | None = None
) -> Comparison:
    """Measure two builds against each other.

    Args:
        how: by a link, a command or both.
        before: the first.
        after: the second.
        is_over: asked between pairs whether there is no time for another.
        known: the number of the first, if measures are exact; then the second is measured once.

    Raises:
        ToolError: the command cannot be started.
    """
    if known is not None:
        found = measure(how, after)
        if found.value is None:
            return Comparison(before=known, reason=found.reason)
        change = found.value - known
        return Comparison(before=known, after=found.value, low=change, high=change, pairs=1)

    def once(side: int) -> float | str:
        found = measure(how, (before, after)[side])
        return found.reason if found.value is None else found.value

    found = measure_in_pairs(once, is_over=is_over, error=how.error)
    pairs = len(found.before)
    if found.reason:
        return Comparison(pairs=pairs, reason=found.reason)
    return Comparison(
        before=sum(found.before) / pairs, after=sum(found.after) / pairs, low=found.low, high=found.high, pairs=pairs
    )
