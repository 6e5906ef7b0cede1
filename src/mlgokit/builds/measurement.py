"""Measurement of a build by the user's own link, or by the user's own command that prints a number.

A command may be noisy. Then two builds are measured in pairs (:mod:`mlgokit.statistics`), until the interval of
the mean difference excludes zero or enough pairs were made.
"""

import dataclasses
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.builds.compression import Compressor
from mlgokit.builds.link import OBJECTS, OUTPUT, Linked, LinkPlan, command_words, link
from mlgokit.compiler import process
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.lto import image_beside
from mlgokit.compiler.objects.formats import file_totals
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.pool import map_in_order
from mlgokit.errors import InputError, UsageError
from mlgokit.files import writing
from mlgokit.statistics import measure_in_pairs

CHECKS = 3
"""Runs of a command on the plain build before the search; if all give the same number, the command counts as exact."""
_NUMBER = re.compile(r"(?<![\w.,])[-+]?(?:\d{1,3}(?:,\d{3})++(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How a build is judged; at least one of ``plans`` and ``command``.

    Attributes:
        plans: links by program; a command with ``{output}`` measures the only program.
        command: words of the command that prints a number; empty to measure the size of all images together.
        modules: modules that ``{objects}`` stands for, in link order.
        timeout_seconds: deadline of a link, and of each run of the command.
        error: accepted share of comparisons that call a build better or worse by chance.
        is_lto: whether the modules are links themselves (:mod:`mlgokit.compiler.lto`), which write images beside their
            objects, so that nothing more is linked.
        bar: number that a result may not exceed, if it is not that of the build before the search.
        workers: number of programs that are linked at once.
        compressor: compressor or stripper whose output is measured; without it, the image's sections are.
        expected: bytes of each program as the build made it, by program, if the links were recorded and have not been
            checked yet.
    """

    plans: Mapping[str, LinkPlan]
    command: tuple[str, ...]
    modules: tuple[str, ...]
    timeout_seconds: float
    error: float = 0.05
    is_lto: bool = False
    bar: float | None = None
    workers: int = 1
    compressor: Compressor | None = None
    expected: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def is_size(self) -> bool:
        """Whether the number is the bytes of the linked images."""
        return not self.command

    def linked_modules(self, programs: Collection[str] | None = None) -> set[str]:
        """List the modules of all programs, or of the named ones, and of the shared libraries that these link."""
        wanted = self.plans if programs is None else programs
        return {
            name
            for program in wanted
            for one in self._add_shared_libraries(program)
            for name in self.plans[one].modules
        }

    def _add_shared_libraries(self, program: str) -> set[str]:
        """List a program and the shared libraries of the build that it links, directly or through others."""
        found, left = set[str](), [program]
        while left:
            one = left.pop()
            if one in self.plans and one not in found:
                found.add(one)
                left += self.plans[one].shared.values()
        return found

    def waves(self) -> list[list[str]]:
        """Group programs that can be linked at once, each after the groups of the shared libraries that it links."""
        found: list[list[str]] = []
        left = set(self.plans)
        while left:
            # Links that need each other, which a build cannot make either, are left to fail together.
            ready = [name for name in self.plans if name in left and self._add_shared_libraries(name) & left == {name}]
            found.append(ready or [name for name in self.plans if name in left])
            left.difference_update(found[-1])
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedBuild:
    """A build that can be measured: its objects by module and images by program; or why programs have no image."""

    objects: Mapping[str, Path]
    images: Mapping[str, Path] = field(default_factory=dict[str, Path])
    failures: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def reason(self) -> str:
        """Why the build cannot be measured; empty if it can."""
        program, reason = next(iter(self.failures.items()), ("", ""))
        return f"{program}: {reason}" if len(self.images) > 1 and reason else reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The measured number of a build, or the reason why there is none; for a size, also the bytes of each program."""

    value: float | None
    reason: str = ""
    programs: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The measured difference between two builds.

    Attributes:
        before: mean number of the first build over the pairs; ``None`` if a measurement failed.
        after: mean number of the second build over the pairs; ``None`` if a measurement failed.
        low: lower end of the confidence interval of the mean difference, after minus before.
        high: upper end of this interval.
        pairs: number of pairs that were measured.
        reason: why a measurement failed; empty if none did.
        programs: bytes of each program in both builds, by name, if sizes are measured.
        larger: programs that are larger than their limit.
    """

    before: float | None = None
    after: float | None = None
    low: float = 0.0
    high: float = 0.0
    pairs: int = 0
    reason: str = ""
    programs: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    larger: tuple[str, ...] = ()

    @property
    def is_better(self) -> bool:
        """Whether the second build is shown to be smaller, and none of its programs exceeds its limit."""
        return not self.reason and not self.larger and self.high < 0

    @property
    def is_no_worse(self) -> bool:
        """Whether the second build is shown to be no larger, and none of its programs exceeds its limit."""
        return not self.reason and not self.larger and self.high <= 0


def measuring_words(text: str) -> tuple[str, ...]:
    """Split a measuring command into words, and check them.

    Raises:
        UsageError: the command needs a shell, or has no placeholder for the build that it measures.

    Example:
        >>> measuring_words("./measure.sh --runs 3 {output}")
        ('./measure.sh', '--runs', '3', '{output}')
    """
    words = command_words(text, option="--command", known={OBJECTS, OUTPUT})
    if not any(OBJECTS in word or OUTPUT in word for word in words):
        raise UsageError(
            f"--command: expected {OUTPUT} for the linked image or {OBJECTS} for the objects, found neither in "
            f"{text!r}; add one, by which the command gets the build to measure"
        )
    return tuple(words)


def number_in(text: str) -> float | None:
    """Find the last number of a text.

    Example:
        >>> number_in("3 runs: 1,204.5 ms (x86_64)"), number_in("1e-3s"), number_in("none")
        (1204.5, 0.001, None)
    """
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def link_build(
    how: Measure, objects: Mapping[str, Path], scratch: Path, *, earlier: LinkedBuild | None = None
) -> LinkedBuild:
    """Link the programs of a build; if its modules are links, use the images that they wrote.

    Images go to a folder of ``scratch``. Programs with the same objects as in an ``earlier`` build have its images.

    Raises:
        ToolError: the link command cannot be started.
    """
    if how.is_lto:
        (program,) = how.plans
        return LinkedBuild(
            objects=objects, images={program: _link_copy(image_beside(objects[how.modules[0]]), scratch)}
        )

    places = {program: scratch / str(index) for index, program in enumerate(how.plans)}
    links: dict[str, Linked] = {}

    def link_program(program: str) -> Linked:
        plan, folder = how.plans[program], places[program]
        needed = how.linked_modules({program})
        if earlier is not None and all(earlier.objects.get(name) == objects.get(name) for name in needed):
            return Linked(image=_link_copy(earlier.images[program], folder))
        shared = {name: one.image for name, one in links.items() if not one.reason}
        return link(plan, objects, folder, timeout_seconds=how.timeout_seconds, shared=shared)

    for wave in how.waves():
        links |= dict(zip(wave, map_in_order(link_program, wave, workers=how.workers), strict=True))
    return LinkedBuild(
        objects=objects,
        images={program: links[program].image for program in how.plans},
        failures={program: links[program].reason for program in how.plans if links[program].reason},
    )


def repeatable_links(how: Measure, objects: Mapping[str, Path], scratch: Path) -> tuple[Measure | None, dict[str, str]]:
    """Select the links that give an image of the build's own size, from objects that were compiled without the plugin.

    Args:
        how: the measurement with the links, and the sizes of the build's own programs.
        objects: paths of the objects by module.
        scratch: a folder for the images, which is deleted.

    Returns:
        The measurement with these links, or ``None`` without any; and reasons by program for the others.

    Raises:
        ToolError: a link command cannot be started.
    """
    built = link_build(how, objects, scratch)
    failures = dict(built.failures)
    for program, image in built.images.items():
        if program in failures:
            continue
        try:
            size = file_totals(image).llvm_size_text
        except InputError as error:
            failures[program] = str(error)
            continue
        if size != how.expected[program]:
            failures[program] = f"linked again it has {size:,} bytes, and {how.expected[program]:,} in the build"
    with writing(scratch):
        shutil.rmtree(scratch, ignore_errors=True)
    plans = {program: plan for program, plan in how.plans.items() if program not in failures}
    return (dataclasses.replace(how, plans=plans) if plans else None), failures


def link_failures(failures: Mapping[str, str]) -> Iterable[str]:
    """Write a sentence for each program whose link cannot judge a search.

    Example:
        >>> list(link_failures({"tool": "the link ended with 1: no space"}))
        ['tool: its link does not judge the search (the link ended with 1: no space); the finished build is compared']
    """
    for program, reason in failures.items():
        yield f"{program}: its link does not judge the search ({reason}); the finished build is compared"


def _link_copy(image: Path, scratch: Path) -> Path:
    """Hard-link an image into a folder, since an image beside an object is deleted with it; return the new path."""
    copy = scratch / "image"
    with writing(copy):
        scratch.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)
        os.link(image, copy)
    return copy


def measure(how: Measure, linked: LinkedBuild) -> Measurement:
    """Measure a build: the bytes of its images, or the number that the command prints.

    Raises:
        ToolError: the command cannot be started.
    """
    if linked.reason:
        return Measurement(value=None, reason=linked.reason)
    if how.is_size:
        try:
            programs = {program: _bytes_of(how, image) for program, image in linked.images.items()}
        except InputError as error:
            return Measurement(value=None, reason=str(error))
        return Measurement(value=float(sum(programs.values())), programs=programs)
    words: list[str] = []
    for word in how.command:
        if word == OBJECTS:
            words += [str(linked.objects[name]) for name in how.modules if name in linked.objects]
        else:
            image = next(iter(linked.images.values()), None)
            words.append(word if image is None else word.replace(OUTPUT, str(image)))
    done = process.run(words, timeout_seconds=how.timeout_seconds, limits=USERS_LIMITS)
    if done.timed_out or done.returncode != 0:
        ending = f"did not end within {how.timeout_seconds:.0f} s"
        if not done.timed_out:
            ending = f"ended with {done.returncode}: {first_error(done.stderr)}"
        return Measurement(value=None, reason=f"the command {ending}")
    value = number_in(done.stdout.decode("utf-8", "replace"))
    return Measurement(value=value, reason="the command printed no number" if value is None else "")


def _bytes_of(how: Measure, image: Path) -> int:
    """Measure the bytes of an image that count: of its sections, or of its stripped or compressed file."""
    if how.compressor is None:
        return file_totals(image).llvm_size_text
    stripped, compressed = how.compressor.measure(image)
    return stripped if compressed is None else compressed


def compare(
    how: Measure,
    before: LinkedBuild,
    after: LinkedBuild,
    *,
    is_over: Callable[[], bool],
    known: Measurement | None = None,
    limits: Mapping[str, int] | None = None,
) -> Comparison:
    """Measure two builds against each other.

    Args:
        how: the measurement.
        before: the first build.
        after: the second build.
        is_over: whether there is no time for another pair; called between pairs.
        known: measurement of the first build, if measurements are exact; then the second is measured once.
        limits: bytes that a program may have even if it has fewer in the first build, by program.

    Raises:
        ToolError: the command cannot be started.
    """
    if known is not None and known.value is not None:
        found = measure(how, after)
        if found.value is None:
            return Comparison(before=known.value, reason=found.reason)
        change = found.value - known.value
        programs = {name: (known.programs[name], found.programs[name]) for name in found.programs}
        return Comparison(
            before=known.value,
            after=found.value,
            low=change,
            high=change,
            pairs=1,
            programs=programs,
            larger=tuple(
                name for name, (first, second) in programs.items() if second > max(first, (limits or {}).get(name, 0))
            ),
        )

    def measure_build(side: int) -> float | str:
        found = measure(how, (before, after)[side])
        return found.reason if found.value is None else found.value

    found = measure_in_pairs(measure_build, is_over=is_over, error=how.error)
    pairs = len(found.before)
    if found.reason:
        return Comparison(pairs=pairs, reason=found.reason)
    return Comparison(
        before=sum(found.before) / pairs, after=sum(found.after) / pairs, low=found.low, high=found.high, pairs=pairs
    )
