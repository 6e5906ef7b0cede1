"""The end of a search over inlining decisions: its table, the plugin verified with it, and the result."""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.live import without_liveness
from mlgokit.compiler.lto import is_back_end
from mlgokit.compiler.objects.measure import Objective, project_image_estimate
from mlgokit.tables.decisions import TuningSummary, make_entry, renew_summary, write_table
from mlgokit.tune.result import Tuned, TunedModule
from mlgokit.tune.spaces.inlining.opening import InliningSearch
from mlgokit.tune.spaces.inlining.space import InliningSpace
from mlgokit.tune.spaces.inlining.state import ModuleState
from mlgokit.tune.verify import VerifiedBuild, Verifier, grew, verify


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InliningTable:
    """The decision table of a search, as a candidate for the plugin; its entries are modules.

    Attributes:
        space: the space that was searched.
    """

    space: InliningSpace

    @property
    def kind(self) -> str:
        """Kind of the table: decisions."""
        return "decisions"

    def entries(self) -> Collection[str]:
        """Modules with a build that is better than the plain one."""
        space = self.space
        if space.accepted is not None:
            return space.accepted
        return {name for name, one in space.modules.items() if space.best_build(one) is not None}

    def write(self, path: Path, kept: Collection[Hashable]) -> None:
        """Write the decisions of all modules; a module that is not kept is left to LLVM."""
        space = self.space
        entries = [
            make_entry(
                one.names,
                one.build.decisions.sites,
                one.build.decisions.inlined,
                plain=name not in kept,
                # A back end of ThinLTO is found by its functions; a compile step that inlines nothing looks for none.
                at_link=one.module.language == "rust" or (one.module.defers and not is_back_end(one.module)),
                # A module that is left to LLVM is left to it in the compile steps too.
                defers=one.module.defers and name in kept,
                any_level=space.objective is Objective.EXECUTED and not one.module.is_for_size,
            )
            for name, one in space.modules.items()
        ]
        expected = {name: one.build.measured if name in kept else one.plain for name, one in space.modules.items()}
        objective = space.objective
        plain = {name: one.plain for name, one in space.modules.items()}
        # Who looks at the table later has the objects, and not this link.
        before, after = (
            project_image_estimate(map(without_liveness, sizes.values()), objective=objective)
            for sizes in (plain, expected)
        )
        summary = TuningSummary(
            llvm=space.compiler.toolchain.major,
            objective=objective.value,
            plain_bytes=before,
            tuned_bytes=after,
            modules=tuple(expected),
            linked=any(one.live is not None for one in plain.values()),
        )
        write_table(path, entries, summary)

    def refuted(
        self, before: VerifiedBuild, after: VerifiedBuild, kept: Collection[Hashable]
    ) -> dict[str, tuple[Collection[Hashable], str]]:
        """Modules whose object with the plugin is not the expected one, and what is wrong with it."""
        wrong: dict[str, str] = {}
        for name, one in self.space.modules.items():
            done = after.compilations[name]
            if not done.ok:
                wrong[name] = "it does not compile with the result"
            elif name not in kept:
                if after.objects[name].read_bytes() != before.objects[name].read_bytes():
                    wrong[name] = "its object with the plugin differs from the plain one, although it has no decisions"
            elif done.measured.totals != one.build.measured.totals and self.space.saved_bytes(one, done) <= 0:
                wrong[name] = "its object is not the one that the search found, and no smaller than the plain one"
        return {name: ((name,), reason) for name, reason in wrong.items()}

    def objection(self, before: VerifiedBuild, after: VerifiedBuild) -> str:
        """Why the whole project is not smaller, by the judge's measure, or else by the link and the account."""
        judged, space = after.judged, self.space
        if judged is None:
            objective = space.objective
            larger = after.total_bytes(objective) > space.plain_bytes
            # Fewer instructions may take more bytes; the user's own programs are weighed at the end.
            larger |= objective is not Objective.EXECUTED and grew(before.link, after.link)
        else:
            larger = not judged.is_no_worse
        if larger and judged is not None and judged.reason:
            return f"the whole could not be measured with it: {judged.reason}"
        return "the whole was not smaller with it" if larger else ""

    def entries_of(self, modules: Collection[str]) -> Collection[str]:
        """The modules themselves."""
        return modules


def finish_inlining(verifier: Verifier, search: InliningSearch) -> Tuned:
    """Verify the decision table of a search, and make the result; :func:`~mlgokit.tune.publish.publish` writes both.

    A module that is no smaller than the plain one reverts to plain; an object that is smaller, but not the one that the
    search found, stays. If the project did not shrink, every module reverts. With a judge, its measure decides both.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: the plugin cannot be linked, or nothing compiles with it.
    """
    space, candidate = search.space, InliningTable(space=search.space)
    table = search.folder / candidate.kind
    done = verify(verifier, candidate, table)
    whole, sizes = done.after.total_bytes(space.objective), done.after.sizes
    if renew_summary(
        done.table, project_image_estimate(map(without_liveness, sizes.values()), objective=space.objective)
    ):
        verifier.mark_stale()

    def row(name: str, one: ModuleState) -> TunedModule:
        plain = name not in done.kept
        return TunedModule(
            name=name,
            plain_bytes=space.account.module_bytes(name, one.plain),
            tuned_bytes=space.account.module_bytes(name, sizes.get(name, one.plain)),
            plain=plain,
            decisions=0 if plain else len(one.build.decisions),
            note=done.notes.get(name, "") or (done.objection if name in done.reverted else ""),
        )

    return Tuned(
        plugin=str(verifier.output),
        table=str(table),
        plain_bytes=space.plain_bytes,
        tuned_bytes=whole,
        plain_link=done.before.link,
        tuned_link=done.after.link,
        judged=done.after.judged,
        taken_back=0 if verifier.judge is None else verifier.judge.taken_back,
        ended=search.ended,
        modules=tuple(row(name, one) for name, one in space.modules.items()),
        failures=dict(space.failures),
        curve=tuple(search.curve),
        user_seconds=search.user_seconds,
        compilations=search.compilations,
    )
