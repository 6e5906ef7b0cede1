"""The judge of a search: gains by the account are kept only if the user's own measure confirms them.

The search follows the account, which costs no more than the compilation. At intervals it pauses, and all modules that
changed since are put into the measured build at once. If that is no smaller, or by much less than the account says, the
modules are halved until those are found that it is due to; these are reverted.
"""

import dataclasses
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.builds.measurement import (
    CHECKS,
    Comparison,
    LinkedBuild,
    Measure,
    Measurement,
    compare,
    link_build,
    measure,
)
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.lto import image_beside
from mlgokit.compiler.pool import parallel
from mlgokit.errors import UsageError
from mlgokit.progress import Report
from mlgokit.tune.search import progress_path
from mlgokit.tune.spaces.inlining.opening import InliningSearch
from mlgokit.tune.spaces.inlining.space import InliningSpace
from mlgokit.tune.spaces.inlining.state import ModuleState

_ACCEPTED, _PLAIN, _OBJECTS, _LINKS = "judged", "plain", "objects", "links"
_LAST_SECONDS = 60.0
"""Least time of the last confirmation, if the whole is larger: without a budget, one module would cost all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeConfig:
    """Settings of the confirmation of gains, with the objectives `linked` and `command`."""

    timeout_seconds: float = 300.0
    """Deadline of one link, and of one run of the command, in seconds."""
    share: float = 0.1
    """Interval between confirmations, as a share of the budget; a confirmation takes at most twice that, or the last
    one a minute."""
    kept: float = 0.8
    """With --objective linked: if the link shows less than this share of the predicted gain, the modules are
    bisected to find and revert those that do not gain."""
    error: float = 0.05
    """With --objective command and a noisy command: error probability of each comparison of two builds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Change:
    """A module whose best build in the search is not the accepted one.

    Attributes:
        name: name of the module.
        build: the best build; ``None`` for the plain one.
        path: path of its object.
        expected: bytes by which it is smaller than the accepted build in the account.
    """

    name: str
    build: Compilation | None
    path: Path
    expected: float


@dataclass(slots=True, kw_only=True)
class Judge:
    """Confirms the gains of a search by the user's link or command, and keeps the accepted builds.

    Attributes:
        search: the search that is judged.
        folder: folder for objects and images while the search lasts.
        measure: how a build is measured.
        config: settings.
        report: called with the steps that are done.
        plain: the build with all modules plain.
        linked: the build with all modules as they were accepted.
        accepted: accepted builds by module; other modules are plain.
        value: measurement of ``linked``, if measurements are exact.
        plain_value: measurement of the plain build before the search; the mean of several.
        scale: bytes by which the measured number changes for a byte of the account.
        next_due: time of the next confirmation in seconds of the search; 0 before the first.
        confirmed: number of modules confirmed so far; a module counts each time.
        taken_back: number of modules reverted so far; a module counts each time.
    """

    search: InliningSearch
    folder: Path
    measure: Measure
    config: JudgeConfig
    report: Report
    plain: LinkedBuild
    linked: LinkedBuild
    plain_value: Measurement
    value: Measurement | None
    scale: float = 1.0
    accepted: dict[str, Compilation] = field(default_factory=dict[str, Compilation])
    next_due: float = 0.0
    confirmed: int = 0
    taken_back: int = 0
    _links: int = 0
    _objects: dict[str, tuple[Compilation, Path]] = field(default_factory=dict[str, tuple[Compilation, Path]])

    @property
    def space(self) -> InliningSpace:
        """The space of the search."""
        return self.search.space

    @property
    def is_beyond_bar(self) -> bool:
        """Whether the accepted builds exceed the number that a result may not exceed."""
        return self.excess > 0

    @property
    def excess(self) -> float:
        """Share by which the accepted builds exceed the measure's bar; 0 without a bar or an exact measure."""
        bar = self.measure.bar
        return 0.0 if not bar or self.value is None or self.value.value is None else self.value.value / bar - 1

    def scratch(self) -> Path:
        """An empty folder for a link."""
        self._links += 1
        return self.folder / _LINKS / str(self._links)

    def new_object(self, unit: ModuleState) -> Path:
        """A new path for an object of a module, beside that of the accepted one."""
        folder = self.folder / _OBJECTS / str([one.module.name for one in self.space.units].index(unit.module.name))
        folder.mkdir(parents=True, exist_ok=True)
        # A compiler that was killed leaves 1-8fdf8745.o.tmp.
        return folder / f"{max((int(old.stem) for old in folder.glob('*.o')), default=0) + 1}.o"

    def object_of(self, unit: ModuleState, build: Compilation) -> Path | None:
        """Path of a build's object, compiled once; ``None`` if its sizes are not those that the search measured."""
        known = self._objects.get(unit.module.name)
        if known is not None and known[0] is build:
            return known[1]
        path = self.new_object(unit)
        done = self.space.compile_again(unit, build, path)
        self.search.count(done.user_seconds)
        if not done.ok or done.measured.totals != build.measured.totals:
            return None
        self._objects[unit.module.name] = (build, path)
        return path

    def tidy(self) -> None:
        """Delete objects and images that are no longer needed."""
        used = set(self.linked.objects.values()) | {path for _, path in self._objects.values()}
        for path in (self.folder / _OBJECTS).glob("*/*.o"):
            if path not in used:
                path.unlink()
                image_beside(path).unlink(missing_ok=True)


def plain_object(folder: Path, index: int) -> Path:
    """Path of a module's plain object for the judge, which each session compiles again."""
    path = folder / _PLAIN / f"{index}.o"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def open_judge(
    search: InliningSearch,
    measured_by: Measure,
    config: JudgeConfig,
    plain: Mapping[str, Path],
    *,
    folder: Path,
    report: Report,
) -> Judge:
    """Measure the plain build, and the builds that an earlier session accepted.

    Args:
        search: the search, just opened.
        measured_by: how builds are measured.
        config: settings.
        plain: paths of the plain objects by module.
        folder: folder for objects and images; files of an earlier session are deleted.
        report: called with the steps that are done.

    Raises:
        ToolError: a command cannot be started.
        UsageError: the link or the command fails on the plain build.
    """
    for name in (_OBJECTS, _LINKS):
        shutil.rmtree(folder / name, ignore_errors=True)
    report(0, CHECKS, "measure the plain build")
    names = [unit.module.name for unit in search.space.units]
    before = link_build(measured_by, {name: plain[name] for name in names}, folder / _LINKS / _PLAIN)
    measured: list[Measurement] = []
    for index in range(1 if measured_by.is_size else CHECKS):
        measured.append(measure(measured_by, before))
        if measured[-1].value is None:
            raise UsageError(
                f"tune: expected the plain build to be measured, found: {measured[-1].reason}; "
                "correct --link-command or --command, and try it by hand"
            )
        report(index + 1, CHECKS, "measure the plain build")
    values = [one.value for one in measured if one.value is not None]
    account = search.space.plain_bytes
    mean = sum(values) / len(values)
    judge = Judge(
        search=search,
        folder=folder,
        measure=measured_by,
        config=config,
        report=report,
        plain=before,
        linked=before,
        plain_value=dataclasses.replace(measured[0], value=mean),
        scale=min(1.0, mean / account) if measured_by.compressor is not None and account else 1.0,
        value=measured[0] if len(set(values)) == 1 else None,
    )
    _restore_accepted(judge)
    return judge


def is_due(judge: Judge, *, spent: float, seconds: float) -> bool:
    """Whether it is time to confirm gains, ``spent`` seconds after the search began, of ``seconds`` in all."""
    return (judge.next_due or judge.config.share * seconds) <= spent < seconds


def confirm(judge: Judge, *, seconds: float, is_last: bool = False) -> int:
    """Measure the modules that the search changed since the last confirmation, and revert those that do not pay.

    A change for which neither could be shown stays in the search, and is measured again with later ones.

    Args:
        judge: the judge, which is changed here, with its search.
        seconds: the whole budget; a confirmation may take twice ``config.share`` of it, then comparisons are cut short.
        is_last: whether to complete one comparison in any case, and to bisect groups that show no change as well.

    Returns:
        Number of modules that were reverted.
    """
    begin, most = time.monotonic(), 2 * judge.config.share * seconds
    longest = max(most, _LAST_SECONDS) if is_last and judge.measure.is_size else most

    def is_over() -> bool:
        return time.monotonic() - begin > most

    def gives_up() -> bool:
        return time.monotonic() - begin > longest

    changes = _accept_unlinked(judge, _changes(judge))
    rejected = _bisect(judge, changes, is_over=is_over, gives_up=gives_up, is_last=is_last, is_whole=is_last)
    by_name = {change.name: change for change in changes}
    for name in rejected:
        _revert(judge, by_name[name])
    judge.taken_back += len(rejected)
    judge.tidy()
    cost = time.monotonic() - begin
    interval = judge.config.share * seconds
    judge.next_due = (judge.next_due or interval) + max(interval, 3 * cost)
    return len(rejected)


def conclude(judge: Judge, *, seconds: float) -> None:
    """Confirm for the last time, and use the accepted builds for the result; the search's folder is not changed.

    If the accepted builds still exceed the measure's bar, none is accepted.
    """
    confirm(judge, seconds=seconds, is_last=True)
    if judge.is_beyond_bar:
        judge.accepted.clear()
        judge.linked, judge.value = judge.plain, judge.plain_value
    judge.space.adopt_accepted(judge.accepted)


def prove(judge: Judge, before: Mapping[str, Path], after: Mapping[str, Path], scratch: Path) -> Comparison:
    """Measure the objects of all modules with the plugin against the plain objects, without earlier measurements.

    Raises:
        ToolError: a command cannot be started.
    """
    first = link_build(judge.measure, before, scratch / "first")
    second = link_build(judge.measure, after, scratch / "second")
    known = measure(judge.measure, first) if judge.measure.is_size else None
    return compare(judge.measure, first, second, is_over=lambda: False, known=known)


def _changes(judge: Judge) -> list[_Change]:
    """The modules whose best build is not the accepted one, in link order, with their compiled objects."""
    space = judge.space

    def change_of(unit: ModuleState) -> _Change | None:
        name = unit.module.name
        accepted, build = judge.accepted.get(name), space.best_build(unit)
        # In a large project this holds for most modules.
        if build is accepted:
            return None
        gain = space.saved_bytes(unit, build) - space.saved_bytes(unit, accepted)
        if build is None:
            return _Change(name=name, build=None, path=judge.plain.objects[name], expected=gain)
        if accepted is not None and accepted.decisions.by_site == build.decisions.by_site:
            return None
        path = judge.object_of(unit, build)
        return None if path is None else _Change(name=name, build=build, path=path, expected=gain)

    by_name = {unit.module.name: unit for unit in space.units}
    units = [by_name[name] for name in judge.measure.modules if name in by_name]
    label = "compile what changed, to be measured"
    changes = parallel(change_of, units, workers=judge.space.compiler, report=judge.report, label=label)
    return [change for change in changes if change is not None]


def _accept_unlinked(judge: Judge, changes: Sequence[_Change]) -> list[_Change]:
    """Accept the changes of modules that no linked program contains; return the other changes."""
    linked = judge.measure.linked_modules() if judge.measure.plans else {change.name for change in changes}
    rest = [change for change in changes if change.name not in linked]
    if rest:
        for change in rest:
            _record_accepted(judge, change)
        objects = {**judge.linked.objects, **{change.name: change.path for change in rest}}
        judge.linked = dataclasses.replace(judge.linked, objects=objects)
    return [change for change in changes if change.name in linked]


def _bisect(
    judge: Judge,
    group: Sequence[_Change],
    *,
    is_over: Callable[[], bool],
    gives_up: Callable[[], bool],
    is_last: bool,
    is_whole: bool = False,
) -> set[str]:
    """Accept a group of changes, or halves of it; return the names of modules whose change alone does not pay.

    When ``is_over``, a group that fits is accepted without a look at its halves; halves of others are until it
    ``gives_up``.
    """
    if not group:
        return set()
    judge.report(0, len(group), "measure what changed")
    linked = _link_with(judge, group)
    is_cut = (lambda: False) if is_whole else is_over
    compared = compare(
        judge.measure,
        judge.linked,
        linked,
        is_over=is_cut,
        known=judge.value,
        limits=judge.plain_value.programs,
    )
    fits = compared.is_no_worse if judge.measure.is_size else compared.is_better
    as_expected = -compared.high >= judge.config.kept * judge.scale * sum(change.expected for change in group)
    if fits and (len(group) == 1 or not judge.measure.is_size or as_expected or is_over()):
        _accept(judge, group, linked, compared)
        return set()
    _delete_images(linked)
    is_worse = bool(compared.reason or compared.larger) or compared.low > 0
    if len(group) == 1:
        return {group[0].name} if is_worse else set()
    if gives_up() or not (fits or is_worse or is_last):
        return set()
    middle = len(group) // 2
    rejected = _bisect(judge, group[:middle], is_over=is_over, gives_up=gives_up, is_last=is_last)
    rejected |= _bisect(judge, group[middle:], is_over=is_over, gives_up=gives_up, is_last=is_last)
    now = None if judge.value is None else judge.value.value
    if fits and compared.after is not None and now is not None and compared.after < now:
        # Together they were better than what is left of them.
        _accept(judge, group, _link_with(judge, group), compared)
        return set()
    return rejected


def _link_with(judge: Judge, group: Sequence[_Change]) -> LinkedBuild:
    """Link the accepted build with a group of changes."""
    changed = {change.name: change.path for change in group}
    return link_build(judge.measure, {**judge.linked.objects, **changed}, judge.scratch(), earlier=judge.linked)


def _accept(judge: Judge, group: Sequence[_Change], linked: LinkedBuild, compared: Comparison) -> None:
    """Accept a group of changes, whose build was linked and compared."""
    # What is accepted without a link leaves the images as they are.
    if judge.linked.images is not judge.plain.images:
        _delete_images(judge.linked)
    judge.linked = linked
    judge.confirmed += len(group)
    if judge.value is not None:
        sizes = {name: after for name, (_, after) in compared.programs.items()}
        judge.value = Measurement(value=compared.after, programs=sizes)
    for change in group:
        _record_accepted(judge, change)


def _record_accepted(judge: Judge, change: _Change) -> None:
    """Note the accepted build of a module, also on disk."""
    path = _accepted_path(judge, change.name)
    if change.build is None:
        judge.accepted.pop(change.name, None)
        path.unlink(missing_ok=True)
    else:
        judge.accepted[change.name] = change.build
        judge.space.save_build(change.build, path)


def _revert(judge: Judge, change: _Change) -> None:
    """Let the search go on from the accepted build of a module."""
    if change.build is not None:
        unit = next(one for one in judge.space.units if one.module.name == change.name)
        seconds = judge.space.revert(unit, judge.accepted.get(change.name), change.build)
        judge.search.count(seconds, compilations=int(seconds > 0))


def _restore_accepted(judge: Judge) -> None:
    """Restore the builds that an earlier session accepted, if together they are still no larger than plain."""

    def recall(unit: ModuleState) -> _Change | None:
        path, name = judge.new_object(unit), unit.module.name
        build = judge.space.load_build(unit, _accepted_path(judge, name), path)
        if build is None:
            return None
        judge.search.count(build.user_seconds)
        return _Change(name=name, build=build, path=path, expected=0.0) if build.ok else None

    label = "compile what was accepted"
    recalled = parallel(recall, judge.space.units, workers=judge.space.compiler, report=judge.report, label=label)
    group = [change for change in recalled if change is not None]
    if not group:
        return
    linked = _link_with(judge, group)
    known = judge.value
    if known is None:
        # A noisy measure accepted these builds before; they are compared again at the end.
        compared = Comparison(reason=linked.reason)
    else:
        compared = compare(judge.measure, judge.plain, linked, is_over=lambda: False, known=known)
    if compared.is_no_worse:
        _accept(judge, group, linked, compared)
    else:
        _delete_images(linked)


def _accepted_path(judge: Judge, name: str) -> Path:
    """Path of the file with a module's accepted decisions."""
    return progress_path(judge.search.folder / _ACCEPTED, name)


def _delete_images(linked: LinkedBuild) -> None:
    """Delete the images of a build that is not needed any more."""
    for image in linked.images.values():
        shutil.rmtree(image.parent, ignore_errors=True)
