"""The plugin as the package contains it: C++ sources, and in a wheel also objects for some releases of LLVM.

For a compiler that the objects fit, they are only linked, without LLVM headers. ``make wheel`` adds them; a checkout
has none. ``docs/formats.md`` has the index.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from mlgokit.decode import decode
from mlgokit.errors import InputError, ToolError

# No fused multiply-add: a policy must give the same number in numpy and on every machine.
COMPILE_OPTIONS = ("-c", "-fPIC", "-O2", "-fno-rtti", "-fvisibility-inlines-hidden", "-ffp-contract=off")
"""How each source is compiled, beside :data:`DIALECT` and the folders of headers."""
DIALECT = (
    "-std=c++17", "-fno-exceptions",
    "-D_GNU_SOURCE", "-D__STDC_CONSTANT_MACROS", "-D__STDC_FORMAT_MACROS", "-D__STDC_LIMIT_MACROS",
)  # fmt: skip
"""What LLVM's headers ask for."""

FORMAT_VERSION = 2
INDEX = "index.json"
_FOLDER: Traversable = resources.files("mlgokit") / "prebuilt"
_PROCESSORS = {"amd64": "x86_64", "arm64": "aarch64"}
# Their C library or pointers are others than those that the objects were compiled for.
_OTHER_SYSTEMS = ("android", "musl", "gnux32")


def plugin_sources() -> dict[str, bytes]:
    """Read all sources of the plugin, by path in its folder."""

    def read_below(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Read the sources in a folder and below it; ``prefix`` is its path."""
        for entry in folder.iterdir():
            if entry.is_dir():
                yield from read_below(entry, f"{prefix}{entry.name}/")
            elif entry.name.endswith((".cpp", ".h")):
                yield prefix + entry.name, entry.read_bytes()

    return dict(sorted(read_below(resources.files("mlgokit") / "plugin", "")))


def plugin_units(sources: Mapping[str, bytes]) -> list[str]:
    """List the sources that become objects, without their ending.

    Example:
        >>> plugin_units({"Plugin.cpp": b"", "shared/Policy.cpp": b"", "shared/Policy.h": b""})
        ['Plugin', 'shared/Policy']
    """
    return [name.removesuffix(".cpp") for name in sources if name.endswith(".cpp")]


def sources_digest(sources: Mapping[str, bytes]) -> str:
    """Digest the sources and compile options by SHA-256, in hexadecimal; objects with another digest are stale."""
    return hashlib.sha256(repr((sorted(sources.items()), COMPILE_OPTIONS, DIALECT)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prebuilt:
    """The objects for one series of LLVM releases on one kind of processor.

    Attributes:
        series: series of LLVM's releases, for example ``22.1``, whose headers have the same layouts.
        processor: processor, for example ``x86_64``, with Linux and the GNU C library.
        cxx_library: C++ library that the compilers were built with, ``libstdc++`` or ``libc++``.
        compiler: version of the compiler that made the objects.
        sources: digest of the sources, by :func:`sources_digest`.
        objects: SHA-256 of each object, by source without its ending.
    """

    series: str
    processor: str
    cxx_library: str
    compiler: str
    sources: str
    objects: dict[str, str]

    @property
    def folder(self) -> str:
        """Name of the objects' folder, beside the index."""
        return f"llvm-{self.series}-{self.processor}-{self.cxx_library}"

    @property
    def name(self) -> str:
        """A description of these objects, for messages."""
        return f"LLVM {self.series} on {self.processor} with {self.cxx_library}"

    def read(self) -> Iterator[tuple[str, bytes]]:
        """Read the objects one by one, each with the name of its source without the ending.

        Raises:
            ToolError: an object is missing, or is not the one that was built.
        """
        for unit, digest in self.objects.items():
            path = _FOLDER / self.folder / f"{unit}.o"
            try:
                data = path.read_bytes()
            except OSError as error:
                raise ToolError(_damage_sentence(path, f"found none ({error.strerror})")) from error
            if hashlib.sha256(data).hexdigest() != digest:
                raise ToolError(_damage_sentence(path, "found other bytes"))
            yield unit, data


def series_of(version: str) -> str:
    """Cut a release to its series, in which LLVM keeps the layouts of its classes the same.

    Example:
        >>> series_of("22.1.8")
        '22.1'
    """
    return ".".join(version.split(".")[:2])


def processor_of(target: str) -> str:
    """Find the processor of a target with Linux and the GNU C library; empty for other targets.

    Example:
        >>> processor_of("x86_64-pc-linux-gnu"), processor_of("arm64-apple-darwin24")
        ('x86_64', '')
    """
    processor, _, system = target.partition("-")
    if "linux" not in system or any(other in system for other in _OTHER_SYSTEMS):
        return ""
    return _PROCESSORS.get(processor, processor)


def all_prebuilt() -> tuple[Prebuilt, ...]:
    """Read the index of prebuilt objects; empty in a checkout.

    Raises:
        ToolError: the index is malformed.
    """
    try:
        text = (_FOLDER / INDEX).read_bytes()
    except OSError:
        return ()
    try:
        value = json.loads(text)
        if value["format_version"] != FORMAT_VERSION:
            raise ToolError(_damage_sentence(_FOLDER / INDEX, f"found format version {value['format_version']!r}"))
        known: tuple[Prebuilt, ...] = decode(tuple[Prebuilt, ...], value["prebuilt"], "prebuilt")
    except (InputError, ValueError, KeyError, TypeError) as error:
        raise ToolError(_damage_sentence(_FOLDER / INDEX, f"found {type(error).__name__}: {error}")) from error
    if any(".." in unit for prebuilt in known for unit in prebuilt.objects):
        raise ToolError(_damage_sentence(_FOLDER / INDEX, "found a path with .."))
    return known


def find_prebuilt(version: str, target: str, cxx_library: str) -> Prebuilt | str:
    """Find the objects that fit a compiler, or say why none does; the reason is empty if the package has no objects.

    Args:
        version: version of the compiler, for example ``22.1.8``.
        target: its default target triple.
        cxx_library: C++ library that it was built with.
    """
    known = all_prebuilt()
    if not known:
        return ""
    wanted = (series_of(version), processor_of(target), cxx_library)
    fitting = next((one for one in known if (one.series, one.processor, one.cxx_library) == wanted), None)
    if fitting is None:
        return f"the prebuilt plugins in this installation are for {', '.join(prebuilt.name for prebuilt in known)}"
    if fitting.sources != sources_digest(plugin_sources()):
        return f"the prebuilt plugin for {fitting.name} in this installation was built from other sources"
    return fitting


def index_text(known: tuple[Prebuilt, ...]) -> str:
    """Encode the index of prebuilt objects."""
    entries = [dataclasses.asdict(prebuilt) for prebuilt in known]
    return json.dumps({"format_version": FORMAT_VERSION, "prebuilt": entries}, indent=1, sort_keys=True) + "\n"


def _damage_sentence(path: Traversable, found: str) -> str:
    """Write the error for a prebuilt file, or its index, that is missing or damaged."""
    return f"{path}: expected what `make wheel` put there, {found}; install the package again"
