"""Sizes of linked files, and of their functions by the symbol table."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler.objects.formats import read_object
from mlgokit.compiler.objects.link import LinkStatus, link_image, link_roots
from mlgokit.compiler.objects.object_file import ObjectFile
from mlgokit.compiler.regalloc_cost import RegallocCosts, read_link_costs
from mlgokit.errors import InputError
from mlgokit.files import digest_file

LINK_SECONDS = 120.0
LINKED = "linked"
"""Status of a link that succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionBytes:
    """The bytes of a function in an object or an image.

    Attributes:
        text: bytes of machine code.
        rodata: bytes of its jump tables and exception table; 0 in an image, where their owner is not known.
        eh_frame: bytes of its unwind information; 0 in an image, where its owner is not known.
        cost: executed cost of its spills, reloads and copies, if that was asked for; see ``docs/scores.md``.
    """

    text: int
    rodata: int = 0
    eh_frame: int = 0
    cost: float | None = None

    @property
    def total(self) -> int:
        """All bytes of the function."""
        return self.text + self.rodata + self.eh_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """A linked image in one of the two builds.

    Attributes:
        status: ``linked``, ``absent``, or how the link failed.
        reason: the linker's first error; for a linked image, why its file could not be stripped or compressed.
        plugin: whether the linker loaded the plugin.
        lto: kind of link-time optimization, ``full`` or ``thin``; empty for none.
        image: bytes of llvm-size's text: ``text`` + ``rodata`` + ``eh_frame``, its index included.
        text: bytes of executable sections.
        rodata: bytes of read-only data, exception tables included.
        eh_frame: bytes of unwind tables and their index.
        data: bytes of writable data.
        bss: bytes of writable data that is zero at the start, which the file does not have.
        relocations: bytes of the relocations that the dynamic linker applies, which are a part of ``rodata``.
        file: bytes of the file without symbols and debug information; 0 if not known.
        compressed: bytes of the stripped file compressed, if a compressor was named.
        bare: whether it runs without an operating system: linked to fixed addresses for ARM or RISC-V, no interpreter.
        sha256: SHA-256 of the whole file.
        user_seconds: processor time of the link, if known.
    """

    status: str
    reason: str = ""
    plugin: bool = False
    lto: str = ""
    image: int = 0
    text: int = 0
    rodata: int = 0
    eh_frame: int = 0
    data: int = 0
    bss: int = 0
    relocations: int = 0
    file: int = 0
    compressed: int | None = None
    bare: bool = False
    sha256: str = ""
    user_seconds: float = 0.0

    @property
    def flash(self) -> int:
        """Bytes of read-only memory that firmware takes: code, constants, and initial values of its data."""
        return self.image + self.data

    @property
    def ram(self) -> int:
        """Bytes of writable memory that firmware takes before it runs."""
        return self.data + self.bss


PART_BYTES: Mapping[str, Callable[[BuiltImage], int]] = {
    ".text": lambda image: image.text,
    ".rodata": lambda image: image.rodata - image.relocations,
    ".eh_frame": lambda image: image.eh_frame,
    "relocations": lambda image: image.relocations,
    "data": lambda image: image.data,
    "flash": lambda image: image.flash if image.bare else 0,
    "RAM": lambda image: image.ram if image.bare else 0,
    "file": lambda image: image.file,
    "compressed": lambda image: image.compressed or 0,
}
"""What the differences of a program are told by; what no program has is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTask:
    """One image to be linked, ``before`` or ``after``, from the objects by module, in link order.

    The link must keep the strong definitions of the ``baseline``'s objects.
    """

    build: str
    objects: Mapping[str, Path]
    baseline: Sequence[Path]
    output: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedImage:
    """A linked image with the bytes of its functions by name, or why there is none.

    ``costs`` are those of register allocation in a link-time optimization, by code generator, if they were read.
    """

    row: BuiltImage
    functions: Mapping[str, FunctionBytes] = field(default_factory=dict[str, FunctionBytes])
    costs: Mapping[str, RegallocCosts] = field(default_factory=dict[str, RegallocCosts])


LinkBuild = Callable[[LinkTask], WeighedImage]
"""A function that links one image of a project in one build."""


def static_link(lld: Path, *, icf: bool = False) -> LinkBuild:
    """Return a function that links an image of a corpus, which has no link command: all that is live from the roots.

    See :mod:`mlgokit.compiler.objects.link`. With ``icf`` identical code is folded.
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
    """Make the record of an image that does not exist."""
    return WeighedImage(row=BuiltImage(status=status, reason=reason, plugin=plugin, lto=lto, user_seconds=user_seconds))


def weigh_image(
    path: Path, *, plugin: bool = False, lto: str = "", user_seconds: float = 0.0, record: Path | None = None
) -> WeighedImage:
    """Measure an image that the linker wrote, for a :class:`BuiltImage`; one that cannot be read is a failure.

    ``record`` is the path of the link's optimization record, if it was asked to write one.
    """
    try:
        file = read_object(path)
        costs = read_link_costs(record, thin=lto == "thin") if record is not None and lto else {}
        totals, functions = file.totals(), _function_sizes(file, costs)
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
        bss=totals.bss,
        relocations=file.relocation_bytes(),
        bare=file.is_bare,
        sha256=digest_file(path),
        user_seconds=user_seconds,
    )
    return WeighedImage(row=row, functions=functions, costs=costs)


def holds_path(image: Path, folder: Path) -> bool:
    """Whether the loaded sections of a linked file contain the path of a folder, so that its size depends on the path.

    Build systems put it into the search path of libraries, and sources by ``__FILE__`` into read-only data.
    """
    try:
        return read_object(image).holds(os.fsencode(folder))
    except InputError:
        return False


def _function_sizes(file: ObjectFile, costs: Mapping[str, RegallocCosts]) -> dict[str, FunctionBytes]:
    """Bytes of functions by name, from the symbol table; folded functions each have the size of their one copy."""
    scores: dict[str, float] = {}
    for one in costs.values():
        for name, score in zip(one.functions, one.scores.tolist(), strict=True):
            scores[name] = scores.get(name, 0.0) + score
    return {
        name: FunctionBytes(text=size, cost=scores.get(name, 0.0) if costs else None)
        for name, size in file.function_sizes().items()
    }
