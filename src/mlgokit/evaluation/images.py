"""What a linked file weighs, and its functions by its symbol table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.link import LinkStatus, link_image, link_roots
from mlgokit.compiler.objects.measure import section_totals
from mlgokit.compiler.regalloc_cost import RegallocCosts, read_link_costs
from mlgokit.errors import InputError
from mlgokit.evaluation.records import LINKED, BuiltImage, FunctionBytes, ImageComparison
from mlgokit.evaluation.rows import differing_functions
from mlgokit.files import digest_file

LINK_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTask:
    """One image to be linked.

    Attributes:
        project: whose it is.
        build: ``before`` or ``after``.
        objects: by module, in link order.
        baseline: the objects of the build before, which say what the link must keep.
        output: where the image goes.
    """

    project: str
    build: str
    objects: Mapping[str, Path]
    baseline: Sequence[Path]
    output: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedImage:
    """A linked image, or why there is none.

    Attributes:
        row: its bytes.
        functions: the code of its functions by name.
        costs: of register allocation in a link-time optimization, by code generator; empty if they were not read.
    """

    row: BuiltImage
    functions: Mapping[str, FunctionBytes] = field(default_factory=dict[str, FunctionBytes])
    costs: Mapping[str, RegallocCosts] = field(default_factory=dict[str, RegallocCosts])


LinkBuild = Callable[[LinkTask], WeighedImage]
"""Links one build of a project."""


def static_link(lld: Path, *, icf: bool = False) -> LinkBuild:
    """The link of a corpus, which knows no link of its own: everything that is live from the roots, see ``link.py``.

    With ``icf`` identical code is folded.
    """

    def link(task: LinkTask) -> WeighedImage:
        found = link_image(
            list(task.objects.values()),
            task.output,
            roots=link_roots(task.baseline),
            lld=lld,
            timeout_seconds=LINK_SECONDS,
            icf=icf,
        )
        if found.status is LinkStatus.LINKED:
            return weigh_image(task.output)
        first = next(iter(found.stderr.strip().splitlines()), "no message")
        return no_image(status=found.status.name.lower(), reason=first)

    return link


def no_image(
    *,
    status: str = "absent",
    reason: str = "the build made no such image",
    plugin: bool = False,
    lto: str = "",
    user_seconds: float = 0.0,
) -> WeighedImage:
    """An image that is not there."""
    return WeighedImage(row=BuiltImage(status=status, reason=reason, plugin=plugin, lto=lto, user_seconds=user_seconds))


def weigh_image(
    path: Path, *, plugin: bool = False, lto: str = "", user_seconds: float = 0.0, record: Path | None = None
) -> WeighedImage:
    """A file that the linker wrote; one that cannot be read is a failure.

    Args:
        path: the image.
        plugin: whether the linker had the plugin.
        lto: ``full`` or ``thin`` if it optimized.
        user_seconds: processor time of the link.
        record: what the link was asked to tell of register allocation.
    """
    try:
        elf = e.read_elf(path)
        costs = read_link_costs(record, thin=lto == "thin") if record is not None and lto else {}
        totals, functions = section_totals(elf), _functions(elf, costs)
    except InputError as error:
        return no_image(status="failed", reason=str(error), plugin=plugin, lto=lto, user_seconds=user_seconds)
    row = BuiltImage(
        status=LINKED,
        plugin=plugin,
        lto=lto,
        image=totals.llvm_size_text,
        text=totals.text,
        rodata=totals.rodata,
        eh_frame=totals.eh_frame,
        data=totals.data,
        sha256=digest_file(path),
        user_seconds=user_seconds,
    )
    return WeighedImage(row=row, functions=functions, costs=costs)


def compare_image(name: str, before: WeighedImage, after: WeighedImage) -> ImageComparison:
    """An image's row, with the functions that differ; a stripped image has none."""
    both = before.row.status == after.row.status == LINKED
    return ImageComparison(
        image=name,
        before=before.row,
        after=after.row,
        functions=len(before.functions.keys() | after.functions.keys()),
        differing=differing_functions(before.functions, after.functions, set()) if both else (),
    )


def link_costs(before: WeighedImage, after: WeighedImage) -> list[tuple[RegallocCosts | None, RegallocCosts | None]]:
    """Costs of a link-time optimization, pair by pair; nothing if one side's were not read, or not all of them."""
    if before.costs.keys() != after.costs.keys():
        return []
    return [(costs, after.costs[part]) for part, costs in before.costs.items()]


def _functions(elf: e.Elf, costs: Mapping[str, RegallocCosts]) -> dict[str, FunctionBytes]:
    """Code by name, as the symbol table has it; folded functions each have the size of the one that is left."""
    scores: dict[str, float] = {}
    for one in costs.values():
        for name, score in zip(one.functions, one.scores.tolist(), strict=True):
            scores[name] = scores.get(name, 0.0) + score
    symbols = e.read_symbols(elf)
    chosen = np.flatnonzero(np.isin(symbols.type, e.FUNCTIONS) & (symbols.section >= 0))
    sums: dict[str, int] = {}
    for name, size in symbols.table[["name", "size"]][chosen].tolist():
        text = e.text_at(symbols.strings, name)
        sums[text] = sums.get(text, 0) + size
    return {
        name: FunctionBytes(text=size, cost=scores.get(name, 0.0) if costs else None) for name, size in sums.items()
    }
