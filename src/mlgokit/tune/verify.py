"""Verification: all modules are compiled with the plugin, and table entries that do not pay in the objects reverted."""

import shutil
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self

from mlgokit.builds.measurement import Comparison
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.link import LinkedImage, LinkStatus, link_image, link_roots
from mlgokit.compiler.objects.measure import Objective, ObjectSizes, project_image_estimate
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import Compiler, CompileRequest, PluginUse
from mlgokit.errors import ToolError
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tables.file import TABLES
from mlgokit.tune.judge import Judge, prove

PLAIN = "plain"
"""The build without a plugin; others have the name of the table that was verified with them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VerifiedBuild:
    """All modules compiled with one plugin, or without.

    Attributes:
        compilations: compilations by module.
        objects: paths of the objects by module.
        link: link of the objects with --gc-sections; ``None`` without a linker, or if not wanted.
        judged: comparison of the plain build and this one by the user's link or command, if that is the objective.
        sizes: sizes of the modules that compile, by module.
    """

    compilations: Mapping[str, Compilation]
    objects: Mapping[str, Path]
    link: LinkedImage | None = None
    judged: Comparison | None = None
    sizes: dict[str, ObjectSizes] = field(init=False, repr=False, default_factory=dict[str, ObjectSizes])

    def __post_init__(self) -> None:
        # Asked for module by module, of which there may be thousands.
        self.sizes.update({name: one.measured for name, one in self.compilations.items() if one.ok})

    def total_bytes(self, objective: Objective) -> float:
        """The project's account: every COMDAT signature once."""
        return project_image_estimate(self.sizes.values(), objective=objective)

    def with_those_of(self, other: "VerifiedBuild", names: Collection[str]) -> "VerifiedBuild":
        """This build, with the named modules taken from another build."""
        return replace(
            self,
            compilations={name: (other if name in names else self).compilations[name] for name in self.compilations},
            objects={name: (other if name in names else self).objects[name] for name in self.objects},
        )


class Candidate(Protocol):
    """A table that a search wants in the plugin, and the check of it after all modules were compiled with it."""

    @property
    def kind(self) -> str:
        """One of :data:`mlgokit.tables.file.TABLES`."""
        ...

    def entries(self) -> Collection[Hashable]:
        """The entries that can be reverted one by one."""
        ...

    def write(self, path: Path, kept: Collection[Hashable]) -> None:
        """Write the table with the ``kept`` entries alone."""
        ...

    def refuted(
        self, before: VerifiedBuild, after: VerifiedBuild, kept: Collection[Hashable]
    ) -> dict[str, tuple[Collection[Hashable], str]]:
        """Entries that do not pay by the builds without and with the table, and why, by module."""
        ...

    def objection(self, before: VerifiedBuild, after: VerifiedBuild) -> str:
        """Why the whole project is not better with the table than before; empty if it is."""
        ...

    def entries_of(self, modules: Collection[str]) -> Collection[Hashable]:
        """The entries that change one of these modules."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verified:
    """The outcome of the verification of a table.

    Attributes:
        table: path of the table.
        kept: entries that stay in the plugin.
        reverted: entries that were taken out.
        notes: why entries of a module were reverted, or what else is wrong, by module.
        objection: why entries were reverted for the sake of the whole project; empty if none were.
        before: the build without the table.
        after: the build with the kept entries.
    """

    table: Path
    kept: frozenset[Hashable]
    reverted: frozenset[Hashable]
    notes: Mapping[str, str]
    objection: str
    before: VerifiedBuild
    after: VerifiedBuild


@dataclass(slots=True, kw_only=True, eq=False)
class Verifier:
    """The verification of tables, one on top of the other, and the builds that were compiled for it so far.

    As a context manager it deletes its folder at the end.

    Attributes:
        compiler: compiler of the modules.
        modules: modules of the project, in link order.
        output: path that the plugin is published to; nothing is written there before.
        search_folder: folder of the search.
        inside: files of the policies and tables in the plugin so far, by kind.
        report: called after every module.
        judge: measures the whole project; without one, the account and a link decide.
        costs: whether builds are compared by the costs of register allocation; then nothing is linked.
        builds: builds of all modules by the last table in the plugin; :data:`PLAIN` for the one without.
        tables: paths that the verified tables are published to, by their present path.
        is_unchecked: whether the plugin was linked again after everything was compiled with it, or is due to be.
        is_stale: whether it has to be linked before it is used.
    """

    compiler: Compiler
    modules: Sequence[Module]
    output: Path
    search_folder: Path
    inside: dict[str, Path] = field(default_factory=dict[str, Path])
    report: Report
    judge: Judge | None = None
    costs: bool = False
    builds: dict[str, VerifiedBuild] = field(default_factory=dict[str, VerifiedBuild])
    tables: dict[Path, Path] = field(default_factory=dict[Path, Path])
    is_unchecked: bool = False
    is_stale: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Folder of the objects and images."""
        return self.search_folder.resolve() / "proof"

    @property
    def plugin(self) -> Path:
        """Path of the plugin until it is published; it is linked here if that is due.

        Raises:
            ToolError: the plugin cannot be linked.
        """
        if self.is_stale:
            self.link_plugin()
        return self.folder / "plugin.so"

    @property
    def plain(self) -> VerifiedBuild:
        """The build without the plugin, compiled once.

        Raises:
            ToolError: a module does not compile, as one that timed out; it did when the search began.
        """
        if PLAIN not in self.builds:
            build = self.compile_all(PLAIN, None)
            for name, done in build.compilations.items():
                if not done.ok:
                    raise ToolError(
                        f"{name}: expected {self.compiler.toolchain.clang} to compile it without the plugin, as it did "
                        f"before the search, found: {done.status.value}: {done.reason}; `--continue --budget 0s` "
                        "verifies again what was found"
                    )
            self.builds[PLAIN] = self.measure(PLAIN, build, changed=False)
        return self.builds[PLAIN]

    @property
    def latest(self) -> VerifiedBuild:
        """The build with all tables that were verified so far."""
        kinds = [kind for kind in self.inside if kind in self.builds]
        return self.builds[kinds[-1]] if kinds else self.plain

    def forget(self, kinds: Collection[str]) -> None:
        """Take tables out of the plugin that are to be verified again."""
        for kind in kinds:
            self.tables.pop(self.table(kind), None)
            self.inside.pop(kind, None)
            self.builds.pop(kind, None)

    def table(self, kind: str) -> Path:
        """Path of a table until it is published."""
        return self.folder / f"{kind}.table"

    def link_plugin(self) -> None:
        """Link the plugin with all policies and tables in :attr:`inside`.

        Raises:
            ToolError: the plugin cannot be linked.
        """
        link_policies(self.compiler.toolchain, self.inside, self.folder / "plugin.so")
        self.is_stale = False

    def mark_stale(self) -> None:
        """Note that a summary changed or a table left the plugin: it is linked when it is next used, and not before.

        :meth:`check_link` is due then.
        """
        self.is_stale = self.is_unchecked = True

    def check_link(self) -> None:
        """Compile one module if the plugin was linked again: its object must stay the same.

        Raises:
            ToolError: a module's object is not the verified one.
        """
        build = self.latest
        # A module that does not compile with the plugin has the object that it had before.
        earlier = {path for one in self.builds.values() if one is not build for path in one.objects.values()}
        done = [
            (one.user_seconds, name)
            for name, one in build.compilations.items()
            if one.ok and build.objects[name] not in earlier
        ]
        if not self.is_unchecked or not done or build is self.plain:
            return
        name = min(done)[1]
        module = next(one for one in self.modules if one.name == name)
        path = self.folder / "again.o"
        path.unlink(missing_ok=True)
        use = PluginUse(plugin=self.plugin)
        done = self.compiler.compile(module, CompileRequest(use=use, keep_object=path, regalloc=self.costs))
        if not done.ok or path.read_bytes() != build.objects[name].read_bytes():
            raise ToolError(
                f"{self.output}: expected the finished plugin to compile {name} to the object that was verified, "
                f"found {done.reason or 'another object'}; tune again with --continue"
            )
        self.is_unchecked = False

    def adopt_plain(self, sizes: Mapping[str, ObjectSizes], objects: Mapping[str, Path]) -> None:
        """Use objects that this session compiled without the plugin as the plain build, so that none is compiled again.

        Args:
            sizes: sizes of the objects by module.
            objects: paths of the objects by module.
        """
        build = VerifiedBuild(
            compilations={name: Compilation(status=CompileStatus.OK, sizes=its) for name, its in sizes.items()},
            objects={name: objects[name] for name in sizes},
        )
        self.builds[PLAIN] = self.measure(PLAIN, build, changed=False)

    def compile_all(self, name: str, plugin: Path | None) -> VerifiedBuild:
        """Compile every module without reuse, with a plugin or plainly; objects go to a folder of this name."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        paths = {module.name: folder / f"{index}.o" for index, module in enumerate(self.modules)}
        use = None if plugin is None else PluginUse(plugin=plugin.resolve())

        def compile_one(module: Module) -> Compilation:
            path = paths[module.name]
            return self.compiler.compile(module, CompileRequest(use=use, keep_object=path, regalloc=self.costs))

        label = "compile everything plainly" if plugin is None else "compile everything with the result"
        self.is_unchecked &= plugin is None
        results = parallel(
            compile_one,
            self.modules,
            workers=self.compiler,
            report=self.report,
            label=label,
            cost=lambda module: module.bitcode_bytes,
        )
        return VerifiedBuild(compilations=dict(zip(paths, results, strict=True)), objects=paths)

    def measure(self, name: str, build: VerifiedBuild, *, changed: bool) -> VerifiedBuild:
        """Link the objects, and let the judge measure the build, unless nothing ``changed`` against the plain one."""
        lld = None if self.costs else self.compiler.toolchain.lld
        first = build if name == PLAIN else self.plain
        link = None
        if lld is not None:
            # Adopted objects are elsewhere, and come before anything is compiled to this folder.
            self.folder.mkdir(parents=True, exist_ok=True)
            roots = link_roots(first.objects[module] for module in first.sizes)
            objects = [build.objects[module] for module in build.sizes]
            link = link_image(objects, self.folder / f"{name}.image", roots=roots, lld=lld, timeout_seconds=120)
        judged = None
        if self.judge is not None:
            known = self.judge.plain_value
            same = {name: (size, size) for name, size in known.programs.items()}
            judged = Comparison(before=known.value, after=known.value, programs=same)
            if changed:
                plain, tuned = ({module: one.objects[module] for module in one.sizes} for one in (first, build))
                judged = prove(self.judge, plain, tuned, self.folder)
        return replace(build, link=link, judged=judged)


def verify(verifier: Verifier, candidate: Candidate, destination: Path) -> Verified:
    """Add a table to the plugin, beside those that were verified before, and compile all modules with it and without.

    Entries that do not pay in the objects are reverted, and all of them if the whole is no better. A plugin has one
    table at least; a further one without entries is left out. A module without entries that does not compile, perhaps
    because it timed out, counts as before the table, and its note says so.

    Args:
        verifier: verifier with the tables and builds so far, which is changed here.
        candidate: the table, and its check.
        destination: path that the table is published to, with the plugin.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked, or nothing compiles with it.
    """
    table = verifier.table(candidate.kind)
    verifier.tables[table] = destination
    below = [kind for kind in verifier.inside if kind in TABLES]
    before = verifier.latest
    wanted = kept = frozenset(candidate.entries())
    notes: dict[str, str] = {}
    objection = ""
    own = {candidate.kind: table}
    verifier.inside = verifier.inside | own if below else own | verifier.inside
    while kept or not below:
        candidate.write(table, kept)
        verifier.link_plugin()
        after = verifier.compile_all(candidate.kind, verifier.plugin)
        if not after.sizes:
            raise ToolError(
                f"{verifier.output}: expected {verifier.compiler.toolchain.clang} to compile modules with this "
                "plugin, found that none compiles; try `mlgokit doctor`"
            )
        refuted = candidate.refuted(before, after, kept)
        notes |= {name: reason for name, (_, reason) in refuted.items() if reason}
        wrong = kept & {entry for entries, _ in refuted.values() for entry in entries}
        if not wrong:
            unknown = before.sizes.keys() - after.sizes.keys()
            notes |= {
                name: f"{notes.get(name, 'it does not compile with the result')}; counted as it was before"
                for name in unknown
            }
            after = verifier.measure(candidate.kind, after.with_those_of(before, unknown), changed=bool(kept))
            why = candidate.objection(before, after)
            if not why or not kept:
                break
            # Only modules of programs that grew are reverted, not those of the others.
            implicated = kept & frozenset(candidate.entries_of(_modules_of_grown(verifier, before, after)))
            objection, wrong = why, implicated or kept
        kept -= wrong
    else:
        after = before
        del verifier.inside[candidate.kind], verifier.tables[table]
        verifier.mark_stale()
    verifier.builds[candidate.kind] = after
    return Verified(
        table=table, kept=kept, reverted=wanted - kept, notes=notes, objection=objection, before=before, after=after
    )


def _modules_of_grown(verifier: Verifier, before: VerifiedBuild, after: VerifiedBuild) -> set[str]:
    """The modules of the programs that are larger than plain, or than before the table."""
    if verifier.judge is None or before.judged is None or after.judged is None:
        return set()
    first = before.judged.programs
    grown = {name for name, (_, size) in after.judged.programs.items() if name in first and size > first[name][1]}
    return verifier.judge.measure.linked_modules({*grown, *after.judged.larger})


def grew(before: LinkedImage | None, after: LinkedImage | None) -> bool:
    """Whether both images were linked, and the second is larger."""
    linked = before is not None and after is not None and before.status is after.status is LinkStatus.LINKED
    return linked and after.image > before.image  # pyright: ignore[reportOptionalMemberAccess]
