"""The tables of a plugin whose programs are run, and how parts of them are taken back where that executed more."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.run_costs import symbol_of
from mlgokit.tables.overrides import OverrideKind
from mlgokit.terminal import counted
from mlgokit.traces.function_id import function_id
from mlgokit.tune.result import Tuned
from mlgokit.tune.spaces.functions.finish import INLINING_TABLE, TableSearch, finish_bytes
from mlgokit.tune.spaces.inlining.finish import finish_inlining
from mlgokit.tune.spaces.inlining.opening import InliningSearch
from mlgokit.tune.verify import Verifier


@dataclass(slots=True, kw_only=True, eq=False)
class SearchedTables:
    """The tables of a plugin with the searches that found them, and the result without each.

    Attributes:
        verifier: has verified them.
        inlining: the search for the decision table.
        on_top: searches for the tables on top of it, by kind of table, in their order.
        before: the result before each of these tables.
        blamed: how often functions were taken back, by the ids of their names.
    """

    verifier: Verifier
    inlining: InliningSearch
    on_top: dict[OverrideKind, TableSearch] = field(default_factory=dict[OverrideKind, TableSearch])
    before: dict[OverrideKind, Tuned] = field(default_factory=dict[OverrideKind, Tuned])
    blamed: Counter[int] = field(default_factory=Counter[int])

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of functions that were taken back."""
        if not self.blamed:
            return ()
        return (f"{counted(len(self.blamed), 'function')} executed more, and LLVM decides about them again",)

    def verify(self, kind: OverrideKind, search: TableSearch, tuned: Tuned) -> Tuned:
        """Verify the table of a search on top of those of ``tuned``.

        Raises:
            StorageError: the disk is full or not writable.
            ToolError: the plugin cannot be linked.
        """
        self.on_top[kind], self.before[kind] = search, tuned
        return finish_bytes(self.verifier, search, tuned, self.inlining.space.account)

    def growth(self) -> dict[str, int]:
        """Bytes by which functions are larger than plainly, of all whose code the tables change."""
        grown = Counter[str]()
        after, before = self.verifier.latest.sizes, self.verifier.plain.sizes
        for name, sizes in after.items():
            first, second = (_bytes_by_function(one) for one in (before[name], sizes))
            grown.update({one: second[one] - first[one] for one in first | second if first[one] != second[one]})
        decided = {symbol_of(name) for search in self.on_top.values() for name in search.space.decided_functions()}
        return dict.fromkeys(decided, 0) | grown

    def take_back(self, functions: Collection[str]) -> Tuned | None:
        """Leave functions to LLVM, and verify what is left; ``None`` if the tables decide nothing about them.

        Of a function that was taken back before, those that are inlined into it or that it is inlined into are left to
        LLVM as well.

        Raises:
            StorageError: the disk is full or not writable.
            ToolError: the plugin cannot be linked, nothing compiles with it, or a module compiles to another object.
        """
        ids = {function_id(name) for name in functions}
        known = {one for one in ids if self.blamed[one]}
        self.blamed.update(ids)
        neighbours = self.inlining.space.inlined_with(known)
        spaces = (self.inlining.space, *(search.space for search in self.on_top.values()))
        changed = [space.take_back(ids | neighbours) for space in spaces]
        if not any(changed):
            return None
        # Tables below the first that changed are as they were verified.
        again = dict(list(self.on_top.items())[max(0, changed.index(True) - 1) :])
        self.verifier.forget([kind.table for kind in again])
        if changed[0]:
            self.verifier.forget([INLINING_TABLE])
            tuned = finish_inlining(self.verifier, self.inlining)
        else:
            tuned = self.before[next(iter(again))]
        for kind, search in again.items():
            tuned = self.verify(kind, search, tuned)
        self.verifier.check_link()
        return tuned

    def drop_last(self) -> tuple[OverrideKind, Tuned] | None:
        """Take the last table on top of inlining out of the plugin; its kind and the result without it, if any is left.

        Raises:
            ToolError: the plugin cannot be linked, or the module that is compiled again differs.
        """
        verifier = self.verifier
        kind = next((kind for kind in reversed(self.on_top) if kind.table in verifier.inside), None)
        if kind is None:
            return None
        del self.on_top[kind], verifier.tables[verifier.inside.pop(kind.table)]
        verifier.mark_stale()
        verifier.check_link()
        return kind, self.before[kind]


def _bytes_by_function(sizes: ObjectSizes) -> Counter[str]:
    found = Counter[str]()
    for name, size in zip(sizes.function_names, sizes.function_bytes.sum(axis=1).tolist(), strict=True):
        found[symbol_of(name)] += size
    return found
