"""The end of a tuning: the artifact, every module compiled once more with it, and what that says."""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.collect import Report, parallel
from mlgokit.compiler.compile import CompileResult, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.link import LinkedImage, LinkStatus, link_image, link_roots
from mlgokit.compiler.measure import ObjectSizes, project_image_estimate
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.deploy.decisions import Promise, entry_of, write_table
from mlgokit.errors import ToolError
from mlgokit.tune.judge import Judge, prove
from mlgokit.tune.meter import Comparison
from mlgokit.tune.project import Point, Search
from mlgokit.tune.search import Searched


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModule:
    """One module of the result.

    Attributes:
        name: the module.
        plain_bytes: what it answers for in the project's account under the plain build.
        tuned_bytes: the same under the artifact.
        plain: it stays as the plain build has it, byte for byte.
        decisions: how many the artifact holds for it.
        note: why it stays plain although something smaller had been found; empty otherwise.
    """

    name: str
    plain_bytes: float
    tuned_bytes: float
    plain: bool
    decisions: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What a tuning gave.

    Attributes:
        plugin: the shared library; empty if only the table was wanted.
        table: the decision table.
        flag: what to add to clang's command line.
        plain_bytes: the project's account under the plain build: every COMDAT signature once.
        tuned_bytes: the same under the artifact, from the objects that were compiled with it.
        plain_link: all plain objects linked with --gc-sections, or why that failed.
        tuned_link: the same with the tuned ones.
        judged: the plain build and the tuned one by the user's own link or command, if that is the objective.
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
    curve: tuple[Point, ...]
    user_seconds: float
    compilations: int

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        value = dataclasses.asdict(self)
        for key in ("plain_link", "tuned_link"):
            if value[key] is not None:
                value[key]["status"] = value[key]["status"].value
        return value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Proof:
    """All modules compiled with one artifact."""

    objects: Mapping[str, Path]
    sizes: Mapping[str, ObjectSizes]


def finish(
    search: Search, output: Path, *, policy: Path | None, workers: int, report: Report, judge: Judge | None = None
) -> Tuned:
    """Write the artifact and compile everything with it and without.

    A module whose object is not what the search found, or that is no smaller than the plain one, is put back to plain.
    If the whole is not smaller, everything is. Under a judge, what it accepted is smaller, and it says of the whole.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked.
    """
    table = search.folder / "decisions"
    notes: dict[str, str] = {}
    plain = {name for name, one in search.modules.items() if _stays_plain(search, one, judge)}
    with tempfile.TemporaryDirectory(prefix="mlgokit-proof-") as scratch:
        folder = Path(scratch)
        before = _compile_all(search, folder / "plain", None, workers=workers, report=report)
        roots = link_roots(before.objects[name] for name in before.sizes)
        plain_link = _link(before, roots, folder / "plain.image", search)
        while True:
            _write(search, table, plain)
            if output.suffix != ".decisions":
                inside = {"decisions": table} | ({"inline-size": policy} if policy is not None else {})
                link_policies(search.bench.toolchain, inside, output)
            after = _compile_all(search, folder / "tuned", output, workers=workers, report=report)
            wrong = _differences(search, before, after, plain)
            if not after.sizes:
                raise ToolError(
                    f"{output}: expected {search.bench.toolchain.clang} to compile with it, found no module that does; "
                    "try `mlgokit doctor`"
                )
            if not wrong.keys() - plain:
                notes |= wrong
                whole = _total(search, after)
                tuned_link = _link(after, roots, folder / "tuned.image", search)
                judged = _judged(judge, before, after, folder, any_changed=len(plain) < len(search.modules))
                if judged is not None:
                    larger = not judged.is_no_worse
                else:
                    larger = _grew(plain_link, tuned_link) or whole > search.plain_bytes
                if not larger or len(plain) == len(search.modules):
                    break
                why = "the whole was not smaller with it"
                if judged is not None and judged.reason:
                    why = f"the whole could not be measured with it: {judged.reason}"
                wrong = {name: why for name in search.modules if name not in plain}
            notes |= wrong
            plain |= set(wrong)
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
    promise = Promise(
        llvm=search.bench.toolchain.major,
        objective=objective.value,
        plain_bytes=search.plain_bytes,
        tuned_bytes=project_image_estimate(expected.values(), objective=objective),
        modules=tuple(expected),
    )
    write_table(table, entries, promise)


def _compile_all(search: Search, folder: Path, plugin: Path | None, *, workers: int, report: Report) -> _Proof:
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{index}.o" for index, name in enumerate(search.modules)}

    def compile_one(one: Searched) -> CompileResult:
        return compile_module(
            search.bench.toolchain,
            one.module.command_line,
            one.module.bitcode,
            use=None if plugin is None else PluginUse(plugin=plugin.resolve()),
            keep_object=paths[one.module.name],
            timeout_seconds=search.bench.timeout_seconds,
            thinlto_index=one.module.thinlto_index,
        )

    label = "compile everything plainly" if plugin is None else "compile everything with the result"
    results = parallel(compile_one, list(search.modules.values()), workers=workers, report=report, label=label)
    sizes = {
        name: result.sizes
        for name, result in zip(search.modules, results, strict=True)
        if result.status is CompileStatus.OK and result.sizes is not None
    }
    return _Proof(objects=paths, sizes=sizes)


def _differences(search: Search, before: _Proof, after: _Proof, plain: set[str]) -> dict[str, str]:
    """Modules whose object is not what was expected of the artifact, and what is wrong with it."""
    wrong: dict[str, str] = {}
    for name, one in search.modules.items():
        found = after.sizes.get(name)
        if found is None:
            wrong[name] = "it does not compile with the result"
        elif name in plain:
            if after.objects[name].read_bytes() != before.objects[name].read_bytes():
                wrong[name] = "it is to stay plain, and differs"
        elif found.totals != one.build.sizes.totals:
            wrong[name] = "its object is not the one that the search found"
    return wrong


def _total(search: Search, proof: _Proof) -> float:
    objects = (proof.sizes[name] for name in search.modules if name in proof.sizes)
    return project_image_estimate(objects, objective=search.config.objective)


def _link(proof: _Proof, roots: Sequence[str], output: Path, search: Search) -> LinkedImage | None:
    lld = search.bench.toolchain.lld
    objects = [proof.objects[name] for name in search.modules if name in proof.sizes]
    return None if lld is None else link_image(objects, output, roots=roots, lld=lld, timeout_seconds=120)


def _stays_plain(search: Search, one: Searched, judge: Judge | None) -> bool:
    name = one.module.name
    if judge is not None:
        return name not in judge.accepted
    account = search.account
    return not len(one.build.site) or account.module_bytes(name, one.build.sizes) >= account.module_bytes(
        name, one.plain
    )


def _judged(
    judge: Judge | None, before: _Proof, after: _Proof, scratch: Path, *, any_changed: bool
) -> Comparison | None:
    if judge is None:
        return None
    if not any_changed:
        return Comparison(before=judge.plain_value, after=judge.plain_value)
    first, second = ({name: proof.objects[name] for name in proof.sizes} for proof in (before, after))
    return prove(judge, first, second, scratch)


def _grew(before: LinkedImage | None, after: LinkedImage | None) -> bool:
    linked = before is not None and after is not None and before.status is after.status is LinkStatus.LINKED
    return linked and after.image > before.image  # pyright: ignore[reportOptionalMemberAccess]


def _module(search: Search, one: Searched, after: _Proof, *, plain: bool, note: str) -> TunedModule:
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
