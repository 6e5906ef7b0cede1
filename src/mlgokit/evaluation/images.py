"""What a linked file weighs, and its functions by its symbol table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.link import LinkStatus, link_image, link_roots
from mlgokit.compiler.objects.measure import section_totals
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


LinkBuild = Callable[[LinkTask], tuple[BuiltImage, Path]]
"""Links one build of a project; gives the row, and where the image is, if it is."""


def static_link(lld: Path) -> LinkBuild:
    """The link of a corpus, which knows no link of its own: everything that is live from the roots, see ``link.py``."""

    def link(task: LinkTask) -> tuple[BuiltImage, Path]:
        found = link_image(
            list(task.objects.values()),
            task.output,
            roots=link_roots(task.baseline),
            lld=lld,
            timeout_seconds=LINK_SECONDS,
        )
        if found.status is LinkStatus.LINKED:
            return weigh_image(task.output), task.output
        first = next(iter(found.stderr.strip().splitlines()), "no message")
        return BuiltImage(status=found.status.name.lower(), reason=first), task.output

    return link


def weigh_image(path: Path, *, plugin: bool = False, lto: str = "", user_seconds: float = 0.0) -> BuiltImage:
    """The row of a file that the linker wrote; one that cannot be read is a failure."""
    try:
        totals = section_totals(e.read_elf(path))
    except InputError as error:
        return BuiltImage(status="failed", reason=str(error), plugin=plugin, lto=lto, user_seconds=user_seconds)
    return BuiltImage(
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


def compare_image(name: str, before: tuple[BuiltImage, Path], after: tuple[BuiltImage, Path]) -> ImageComparison:
    """An image's row, with the functions that differ; a stripped image has none."""
    first, second = (_functions(path) if row.status == LINKED else {} for row, path in (before, after))
    both = before[0].status == after[0].status == LINKED
    return ImageComparison(
        image=name,
        before=before[0],
        after=after[0],
        functions=len(first.keys() | second.keys()),
        differing=differing_functions(first, second, set()) if both else (),
    )


def _functions(path: Path) -> dict[str, FunctionBytes]:
    """Code by name, as the symbol table has it; folded functions each have the size of the one that is left."""
    try:
        elf = e.read_elf(path)
        symbols = e.read_symbols(elf)
    except InputError:
        return {}
    chosen = np.flatnonzero(np.isin(symbols.type, e.FUNCTIONS) & (symbols.section >= 0))
    sums: dict[str, int] = {}
    for name, size in symbols.table[["name", "size"]][chosen].tolist():
        text = e.text_at(symbols.strings, name)
        sums[text] = sums.get(text, 0) + size
    return {name: FunctionBytes(text=size) for name, size in sums.items()}
