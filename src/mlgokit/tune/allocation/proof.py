"""The end of a search over register allocations: the artifact, everything compiled with it, and what that says."""

import dataclasses
import hashlib
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.compiler.compile import CompileResult, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.errors import ToolError
from mlgokit.progress import Report
from mlgokit.tables.allocations import AllocationSummary, write_allocations
from mlgokit.tune.allocation.loop import AllocationSearch
from mlgokit.tune.allocation.state import ModuleSearch, Reached, mean_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedModule:
    """One module of the result.

    Attributes:
        name: the module.
        functions: how many have costs in the plain build.
        changed: how many the artifact allocates otherwise.
        plain_score: the sum of the functions' scores in the plain build.
        tuned_score: the same under the artifact.
        change: geometric mean of tuned by plain score over the functions with costs, minus 1.
        plain_text: bytes of code in the plain build.
        tuned_text: the same under the artifact.
        note: why functions stay plain although something better had been found; empty otherwise.
    """

    name: str
    functions: int
    changed: int
    plain_score: float
    tuned_score: float
    change: float
    plain_text: int
    tuned_text: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """What a search over register allocations gave.

    Attributes:
        plugin: the shared library.
        table: the allocation table.
        flag: what to add to clang's command line.
        functions: how many have costs in the plain build; a COMDAT function counts in each module that has it.
        changed: how many the artifact allocates otherwise.
        plain_score: the sum of their scores in the plain build.
        tuned_score: the same under the artifact, from the compilations with it.
        change: geometric mean of tuned by plain score over the functions with costs, minus 1.
        plain_text: bytes of code of all objects in the plain build.
        tuned_text: the same under the artifact.
        modules: one each.
        failures: modules that the compiler does not compile, with the reason.
        curve: where the search stood after each compilation.
        user_seconds: processor time of all compilations.
        compilations: how many there were.
        trials: how often a function was allocated.
        left_out: sources of the project that were not tuned, with the reason.
    """

    plugin: str
    table: str
    flag: str
    functions: int
    changed: int
    plain_score: float
    tuned_score: float
    change: float
    plain_text: int
    tuned_text: int
    modules: tuple[AllocatedModule, ...]
    failures: dict[str, str]
    curve: tuple[Reached, ...]
    user_seconds: float
    compilations: int
    trials: int
    left_out: dict[str, str] = dataclasses.field(default_factory=dict[str, str])

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Built:
    """One module compiled.

    Attributes:
        result: the compilation.
        digest: of the object.
    """

    result: CompileResult
    digest: bytes

    @property
    def scores(self) -> Mapping[str, float]:
        costs = self.result.regalloc
        return {} if costs is None else dict(zip(costs.functions, costs.scores.tolist(), strict=True))

    @property
    def text(self) -> int:
        return 0 if self.result.sizes is None else self.result.sizes.totals.text

    @property
    def is_there(self) -> bool:
        return self.result.status is CompileStatus.OK


def finish_allocations(
    search: AllocationSearch, output: Path, *, policy: Path | None, problem: str, workers: int, report: Report
) -> Allocated:
    """Write the artifact and compile everything with it and without.

    A function that then costs more than in the plain build is put back, and all functions of a module that does not
    compile with it.

    Args:
        search: the search.
        output: the plugin.
        policy: who decides in functions that are not in the table; LLVM without one.
        problem: that of the policy.
        workers: compilers that run at once.
        report: told after every module.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked, or nothing compiles with it.
    """
    table = search.folder / "allocations"
    chosen = {
        one.key: one.departures
        for module in search.modules
        for one in module.functions
        if one.score < one.plain and len(one.departures)
    }
    notes: dict[str, str] = {}
    before = _compile_all(search, None, workers=workers, report=report)
    while True:
        _put_table(search, table, chosen, all_functions=policy is not None)
        inside = {"allocations": table} | ({problem: policy} if policy is not None else {})
        link_policies(search.bench.toolchain, inside, output)
        after = _compile_all(search, output, workers=workers, report=report)
        if not any(one.is_there for one in after.values()):
            raise ToolError(
                f"{output}: expected {search.bench.toolchain.clang} to compile with it, found no module that does; "
                "try `mlgokit doctor`"
            )
        wrong: set[int] = set()
        for module in search.modules:
            back, why = _wrong(module, before[module.module.name], after[module.module.name], chosen)
            if back:
                notes[module.module.name] = why
            wrong |= back
        if not wrong & chosen.keys():
            break
        chosen = {key: departures for key, departures in chosen.items() if key not in wrong}
    rows = tuple(
        _row(module, before[module.module.name], after[module.module.name], chosen, notes.get(module.module.name, ""))
        for module in search.modules
    )
    pairs = [
        (score, after[module.module.name].scores.get(name, 0.0))
        for module in search.modules
        for name, score in before[module.module.name].scores.items()
    ]
    return Allocated(
        plugin=str(output),
        table=str(table),
        flag=f"-fpass-plugin={output.resolve()}",
        functions=sum(one.functions for one in rows),
        changed=sum(one.changed for one in rows),
        plain_score=sum(one.plain_score for one in rows),
        tuned_score=sum(one.tuned_score for one in rows),
        change=mean_ratio(pairs),
        plain_text=sum(one.plain_text for one in rows),
        tuned_text=sum(one.tuned_text for one in rows),
        modules=rows,
        failures=dict(search.failures),
        curve=tuple(search.curve),
        user_seconds=search.spent.user_seconds,
        compilations=search.spent.compilations,
        trials=search.spent.trials,
    )


def _put_table(search: AllocationSearch, table: Path, chosen: Mapping[int, Overrides], *, all_functions: bool) -> None:
    """Write the table; with ``all_functions`` it also has those that stay as LLVM allocates them."""
    entries = dict(chosen)
    if all_functions:
        entries = {key: Overrides() for module in search.modules for key in module.keys.values()} | entries
    write_allocations(table, entries, promise_of(search, chosen))


def promise_of(search: AllocationSearch, chosen: Mapping[int, Overrides]) -> AllocationSummary:
    """What the search says of a table with these functions."""
    functions = [one for module in search.modules for one in module.functions if math.isfinite(one.plain)]
    return AllocationSummary(
        llvm=search.bench.toolchain.major,
        functions=len(functions),
        plain_score=sum(one.plain for one in functions),
        tuned_score=sum(one.score if one.key in chosen else one.plain for one in functions),
    )


def _compile_all(search: AllocationSearch, plugin: Path | None, *, workers: int, report: Report) -> dict[str, _Built]:
    """Every module, by name."""
    use = None if plugin is None else PluginUse(plugin=plugin.resolve())

    def compile_one(one: ModuleSearch) -> _Built:
        with tempfile.TemporaryDirectory(prefix="mlgokit-proof-") as scratch:
            path = Path(scratch) / "module.o"
            result = compile_module(
                search.bench.toolchain,
                one.module.command_line,
                one.module.bitcode,
                use=use,
                keep_object=path,
                regalloc=True,
                timeout_seconds=search.bench.timeout_seconds,
                thinlto_index=one.module.thinlto_index,
            )
            code = path.read_bytes() if path.exists() else b""
            return _Built(result=result, digest=hashlib.sha256(code).digest())

    label = "compile everything plainly" if plugin is None else "compile everything with the result"
    built = parallel(compile_one, search.modules, workers=workers, report=report, label=label)
    return {one.module.name: found for one, found in zip(search.modules, built, strict=True)}


def _wrong(
    module: ModuleSearch, before: _Built, after: _Built, chosen: Mapping[int, Overrides]
) -> tuple[set[int], str]:
    """Functions of a module that are to be put back, and why."""
    mine = {key for key in module.keys.values() if key in chosen}
    if before.is_there and not after.is_there:
        return mine, f"it does not compile with the result: {after.result.reason}"
    if not mine:
        return set(), ""
    worse = {
        module.keys[name]
        for name, score in after.scores.items()
        if name in module.keys and score > before.scores.get(name, 0.0)
    }
    if worse - mine:
        return mine, "a function changed that was to stay plain"
    return worse, f"{len(worse)} of its functions cost more with the result" if worse else ""


def _row(
    module: ModuleSearch, before: _Built, after: _Built, chosen: Mapping[int, Overrides], note: str
) -> AllocatedModule:
    changed = sum(key in chosen for key in module.keys.values())
    if not changed and after.digest != before.digest:
        note = note or "its object is not the plain one"
    pairs = [(score, after.scores.get(name, 0.0)) for name, score in before.scores.items()]
    return AllocatedModule(
        name=module.module.name,
        functions=len(pairs),
        changed=changed,
        plain_score=sum(score for score, _ in pairs),
        tuned_score=sum(score for _, score in pairs),
        change=mean_ratio(pairs),
        plain_text=before.text,
        tuned_text=after.text,
        note=note,
    )
