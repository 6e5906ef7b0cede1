"""The end of a tuning: the artifact, every module compiled once more with it, and what that says."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.compiler.objects.link import LinkedImage
from mlgokit.compiler.objects.measure import ObjectSizes, project_image_estimate
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.errors import ToolError
from mlgokit.tables.decisions import TuningSummary, entry_of, renew_summary, write_table
from mlgokit.tune.judge import Judge
from mlgokit.tune.measurement import Comparison
from mlgokit.tune.project import CurvePoint, Search
from mlgokit.tune.proof import (
    DECIDED,
    PLAIN,
    VerifiedBuild,
    Verifier,
    compile_all,
    grew,
    judge_proof,
    link_proof,
    total_bytes,
)
from mlgokit.tune.search import ModuleState


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModule:
    """One module of the result.

    Attributes:
        name: the module.
        plain_bytes: what it answers for in the project's account under the plain build.
        tuned_bytes: the same under the artifact.
        plain: it stays as the plain build has it, byte for byte.
        decisions: how many the artifact holds for it.
        allocated: how many of its functions are allocated otherwise; a COMDAT function counts in each module.
        note: why it stays plain although something smaller had been found; empty otherwise.
    """

    name: str
    plain_bytes: float
    tuned_bytes: float
    plain: bool
    decisions: int
    note: str
    allocated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedBytes:
    """What register allocation saves beside inlining.

    Attributes:
        functions: how many were measured.
        changed: how many the artifact allocates otherwise.
        before_bytes: the project's account with the inlining decisions alone.
        after_bytes: the same with both.
        put_back: functions, and all of a module, whose bytes in the object did not bear out what was found.
        user_seconds: processor time of this search.
        compilations: how many there were.
        trials: how often a function was allocated.
    """

    functions: int
    changed: int
    before_bytes: float
    after_bytes: float
    put_back: int
    user_seconds: float
    compilations: int
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What a tuning gave.

    Attributes:
        plugin: the shared library.
        table: the decision table.
        flag: what to add to clang's command line.
        plain_bytes: the project's account under the plain build: every COMDAT signature once.
        tuned_bytes: the same under the artifact, from the objects that were compiled with it.
        plain_link: all plain objects linked with --gc-sections, or why that failed.
        tuned_link: the same with the tuned ones.
        judged: the plain build and the tuned one by the user's own link or command, if that is the objective.
        allocated: what register allocation saves beside inlining, if it was searched.
        left_out: sources of the project that were not tuned, with the reason.
        taken_back: how often it showed that a module's gain was none.
        ended: why the search stopped.
        modules: one each.
        failures: modules that the compiler does not compile, with the reason.
        curve: bytes over effort.
        user_seconds: processor time of all compilations.
        compilations: how many there were.
    """

    plugin: str
    table: str
    flag: str
    plain_bytes: float
    tuned_bytes: float
    plain_link: LinkedImage | None
    tuned_link: LinkedImage | None
    judged: Comparison | None
    taken_back: int
    ended: str
    modules: tuple[TunedModule, ...]
    failures: dict[str, str]
    curve: tuple[CurvePoint, ...]
    user_seconds: float
    compilations: int
    allocated: AllocatedBytes | None = None
    left_out: dict[str, str] = dataclasses.field(default_factory=dict[str, str])

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        value = dataclasses.asdict(self)
        for key in ("plain_link", "tuned_link"):
            if value[key] is not None:
                value[key]["status"] = value[key]["status"].value
        return value


def finish(proving: Verifier, output: Path) -> Tuned:
    """Write the artifact and compile everything with it and without.

    A module that is no smaller than the plain one is put back to plain. If an object is smaller, but not as the search
    found it, what counts is the object.
    If the whole is not smaller, everything is. Under a judge, what it accepted is smaller, and it says of the whole.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked.
    """
    search, judge = proving.search, proving.judge
    table = search.folder / "decisions"
    inside = proving.inside(table)
    notes: dict[str, str] = {}
    plain = {name for name, one in search.modules.items() if _stays_plain(search, one, judge)}
    before = compile_all(proving, PLAIN, None)
    plain_link = link_proof(proving, PLAIN)
    while True:
        _write(search, table, plain)
        link_policies(search.bench.toolchain, inside, output)
        after = compile_all(proving, DECIDED, output)
        wrong = _differences(search, before, after, plain)
        if not after.sizes:
            raise ToolError(
                f"{output}: expected {search.bench.toolchain.clang} to compile with it, found no module that does; "
                "try `mlgokit doctor`"
            )
        if not wrong.keys() - plain:
            notes |= wrong
            whole = total_bytes(search, after)
            tuned_link = link_proof(proving, DECIDED)
            judged = judge_proof(proving, DECIDED, any_changed=len(plain) < len(search.modules))
            if judged is not None:
                larger = not judged.is_no_worse
            else:
                larger = grew(plain_link, tuned_link) or whole > search.plain_bytes
            if not larger or len(plain) == len(search.modules):
                break
            why = "the whole was not smaller with it"
            if judged is not None and judged.reason:
                why = f"the whole could not be measured with it: {judged.reason}"
            wrong = {name: why for name in search.modules if name not in plain}
        notes |= wrong
        plain |= set(wrong)
    if renew_summary(table, whole):
        link_policies(search.bench.toolchain, inside, output)
    return Tuned(
        plugin=str(output),
        table=str(table),
        flag=f"-fpass-plugin={output.resolve()}",
        plain_bytes=search.plain_bytes,
        tuned_bytes=whole,
        plain_link=plain_link,
        tuned_link=tuned_link,
        judged=judged,
        taken_back=0 if judge is None else judge.back,
        ended=search.ended,
        modules=tuple(
            _module(search, one, after, plain=name in plain, note=notes.get(name, ""))
            for name, one in search.modules.items()
        ),
        failures=dict(search.failures),
        curve=tuple(search.curve),
        user_seconds=search.user_seconds,
        compilations=search.compilations,
    )


def _write(search: Search, table: Path, plain: set[str]) -> None:
    entries = [
        entry_of(one.names, one.build.site, one.build.inlined, plain=name in plain)
        for name, one in search.modules.items()
    ]
    expected = {name: one.plain if name in plain else one.build.sizes for name, one in search.modules.items()}
    objective = search.config.objective
    promise = TuningSummary(
        llvm=search.bench.toolchain.major,
        objective=objective.value,
        plain_bytes=search.plain_bytes,
        tuned_bytes=project_image_estimate(expected.values(), objective=objective),
        modules=tuple(expected),
    )
    write_table(table, entries, promise)


def _differences(search: Search, before: VerifiedBuild, after: VerifiedBuild, plain: set[str]) -> dict[str, str]:
    """Modules whose object is not what was expected of the artifact, and what is wrong with it."""
    wrong: dict[str, str] = {}
    for name, one in search.modules.items():
        found = after.sizes.get(name)
        if found is None:
            wrong[name] = "it does not compile with the result"
        elif name in plain:
            if after.objects[name].read_bytes() != before.objects[name].read_bytes():
                wrong[name] = "it is to stay plain, and differs"
        elif found.totals != one.build.sizes.totals and not _is_smaller(search, one, found):
            wrong[name] = "its object is not the one that the search found, and no smaller than the plain one"
    return wrong


def _stays_plain(search: Search, one: ModuleState, judge: Judge | None) -> bool:
    name = one.module.name
    if judge is not None:
        return name not in judge.accepted
    return not len(one.build.site) or not _is_smaller(search, one, one.build.sizes)


def _is_smaller(search: Search, one: ModuleState, found: ObjectSizes) -> bool:
    name, account = one.module.name, search.account
    return account.module_bytes(name, found) < account.module_bytes(name, one.plain)


def _module(search: Search, one: ModuleState, after: VerifiedBuild, *, plain: bool, note: str) -> TunedModule:
    name = one.module.name
    sizes = after.sizes.get(name, one.plain)
    return TunedModule(
        name=name,
        plain_bytes=search.account.module_bytes(name, one.plain),
        tuned_bytes=search.account.module_bytes(name, sizes),
        plain=plain,
        decisions=0 if plain else len(one.build.site),
        note=note,
    )
