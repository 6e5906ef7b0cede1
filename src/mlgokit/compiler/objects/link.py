"""The size of the linked image of a project, after COMDAT merging and ``--gc-sections``.

A library has no ``main``, so what is live must be said: every strong definition outside of COMDAT groups in the
baseline objects is a root, in the baseline's link and in the other's. What inlining leaves without callers is dropped,
the library's interface is not. Nothing is linked against: references to other libraries become address zero.
"""

import enum
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.limits import link_limits
from mlgokit.compiler.objects.formats import file_totals, format_of, read_object
from mlgokit.compiler.objects.macho_object import read_macho
from mlgokit.errors import InputError, UsageError

IMAGE_BASE = 0x200000
"""Address of the image: low enough that a 26-bit AArch64 branch and a signed 32-bit displacement reach address 0 from
an image under 120 MB, and high enough that no section begins below the headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Linker:
    """How lld links one object format.

    Attributes:
        flavor: words before all others, which lld needs to be another linker than its name says.
        flags: words that are always given.
        output: word in front of the image's path; begin of that word if it ends with a colon.
        root: begin of the word that keeps a symbol; the word before it if it ends with a letter.
        icf: what folds identical functions; none if this linker does not.
    """

    flavor: tuple[str, ...] = ()
    flags: tuple[str, ...]
    output: str = "-o"
    root: str = "--undefined="
    icf: tuple[str, ...] = ()

    def keeping(self, symbol: str) -> tuple[str, ...]:
        """The words that keep a symbol."""
        return (f"{self.root}{symbol}",) if self.root[-1] in ":=" else (self.root, symbol)

    def written(self, image: Path) -> tuple[str, ...]:
        """The words that say where the image goes."""
        return (f"{self.output}{image}",) if self.output.endswith(":") else (self.output, str(image))


_LINKERS = {
    "ELF": _Linker(
        flags=(
            "-static",
            "--gc-sections",
            "--unresolved-symbols=ignore-all",
            "--allow-multiple-definition",
            "--no-demangle",
            "--build-id=none",
            "--entry=0",
            "-znognustack",
            "-znorelro",
            f"--image-base={IMAGE_BASE:#x}",
            "--threads=1",
        ),
        icf=("--icf=all",),
    ),
    "wasm": _Linker(
        flavor=("-flavor", "wasm"),
        flags=("--no-entry", "--gc-sections", "--allow-undefined", "--no-demangle", "--strip-all", "--threads=1"),
        root="--export-if-defined=",
    ),
    "COFF": _Linker(
        flavor=("-flavor", "link"),
        flags=(
            "/nologo",
            "/dll",
            "/lldmingw",
            "/exclude-all-symbols",
            "/noentry",
            "/noimplib",
            "/force",
            "/nodefaultlib",
            "/opt:ref",
            "/ignore:longsections",
            "/threads:1",
        ),
        output="/out:",
        root="/include:",
        icf=("/opt:icf",),
    ),
    "Mach-O": _Linker(
        flavor=("-flavor", "darwin"),
        flags=(
            "-dylib",
            "-platform_version",
            "macos",
            "13.0",
            "13.0",
            "-dead_strip",
            "-undefined",
            "dynamic_lookup",
            "--threads=1",
        ),
        root="-exported_symbol",
        icf=("--icf=all",),
    ),
}
"""How lld links each object format; what is not named is linked as ELF, so that the linker says what it expects."""


class LinkStatus(enum.Enum):
    """How a link ended."""

    LINKED = "the linker wrote an image"
    FAILED = "the linker failed"
    TIMED_OUT = "the linker was killed at its deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedImage:
    """Bytes of a linked image; all zero unless ``status`` is ``LINKED``.

    Attributes:
        status: how the link ended.
        text: bytes of executable sections.
        rodata: bytes of read-only data, exception tables included.
        eh_frame: bytes of unwind tables (the link makes no ``.eh_frame_hdr``, which has 8 bytes more per function).
        except_table: bytes of exception tables, which are a part of ``rodata``.
        image: text + rodata + eh_frame, what llvm-size calls text.
        stderr: the end of the linker's standard error.
    """

    status: LinkStatus
    text: int = 0
    rodata: int = 0
    eh_frame: int = 0
    except_table: int = 0
    image: int = 0
    stderr: str


def link_roots(objects: Iterable[Path | bytes]) -> tuple[str, ...]:
    """Sorted names of all strong definitions outside of COMDAT groups: the interface of a library."""
    roots: set[str] = set()
    for source in objects:
        roots |= read_object(source).strong_definitions()
    return tuple(sorted(roots))


def link_image(
    objects: Sequence[Path],
    output: Path,
    *,
    roots: Sequence[str],
    lld: Path,
    timeout_seconds: float,
    icf: bool = False,
) -> LinkedImage:
    """Link objects into a static image that is measured and never run.

    Of a COMDAT signature, and of a strong symbol that several objects define, the linker keeps the copy in the first
    object. Give the objects of both builds in the same order.

    Args:
        objects: relocatable objects, compiled with ``-ffunction-sections -fdata-sections``.
        output: where the image goes.
        roots: symbols to keep, by :func:`link_roots` of the baseline.
        lld: path of ``ld.lld``.
        timeout_seconds: deadline of the linker.
        icf: fold identical functions (``--icf=all``), if the linker of the format can.

    Raises:
        UsageError: there is nothing to link.
        ToolError: the linker cannot be started.
    """
    if not objects:
        raise UsageError(f"{output}: expected at least one object to link, found none; give the objects of a project")
    found = format_of(objects[0])
    linker = _LINKERS.get(found, _LINKERS["ELF"])
    words = [*linker.flags, *(linker.icf if icf else ()), *linker.written(output)]
    if found == "Mach-O":
        words += ["-arch", read_macho(objects[0].read_bytes(), str(objects[0])).architecture]
    words += [word for root in roots for word in linker.keeping(root)]
    words += [str(path) for path in objects]
    with tempfile.TemporaryDirectory(prefix="mlgokit-link-") as folder:
        response = Path(folder, "arguments.rsp")
        response.write_text("\n".join(map(_quote, words)), encoding="utf-8")
        completed = process.run(
            [lld, *linker.flavor, f"@{response}"],
            timeout_seconds=timeout_seconds,
            limits=link_limits(sum(path.stat().st_size for path in objects if path.exists())),
        )
    if completed.timed_out:
        return LinkedImage(status=LinkStatus.TIMED_OUT, stderr=completed.stderr)
    if completed.returncode != 0:
        return LinkedImage(status=LinkStatus.FAILED, stderr=completed.stderr)
    try:
        totals = file_totals(output)
    except InputError as error:
        return LinkedImage(status=LinkStatus.FAILED, stderr=f"{completed.stderr}{error}")
    return LinkedImage(
        status=LinkStatus.LINKED,
        text=totals.text,
        rodata=totals.rodata,
        eh_frame=totals.eh_frame,
        except_table=totals.except_table,
        image=totals.llvm_size_text,
        stderr=completed.stderr,
    )


def _quote(word: str) -> str:
    """Quote a word for a response file in GNU syntax, since symbols and paths may contain any character."""
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
