"""The plugin's C++ sources as they are in the package, and how they are compiled."""

import hashlib
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

# No fused multiply-add: a policy must give the same number in numpy and on every machine.
COMPILE_OPTIONS = ("-c", "-fPIC", "-O2", "-fno-rtti", "-fvisibility-inlines-hidden", "-ffp-contract=off")
"""How each source is compiled, beside :data:`DIALECT` and the folders of headers."""
DIALECT = (
    "-std=c++17", "-fno-exceptions",
    "-D_GNU_SOURCE", "-D__STDC_CONSTANT_MACROS", "-D__STDC_FORMAT_MACROS", "-D__STDC_LIMIT_MACROS",
)  # fmt: skip
"""What LLVM's headers ask for."""


def plugin_sources() -> dict[str, bytes]:
    """The bytes of all sources, by path in the plugin's folder."""

    def below(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
        for entry in folder.iterdir():
            if entry.is_dir():
                yield from below(entry, f"{prefix}{entry.name}/")
            elif entry.name.endswith((".cpp", ".h")):
                yield prefix + entry.name, entry.read_bytes()

    return dict(sorted(below(resources.files("mlgokit") / "plugin", "")))


def plugin_units(sources: Mapping[str, bytes]) -> list[str]:
    """The sources that become objects, without their ending.

    Example:
        >>> plugin_units({"Plugin.cpp": b"", "shared/Policy.cpp": b"", "shared/Policy.h": b""})
        ['Plugin', 'shared/Policy']
    """
    return [name.removesuffix(".cpp") for name in sources if name.endswith(".cpp")]


def sources_digest(sources: Mapping[str, bytes]) -> str:
    """SHA-256 of the sources and of how they are compiled, in hexadecimal: objects of another one are stale."""
    return hashlib.sha256(repr((sorted(sources.items()), COMPILE_OPTIONS, DIALECT)).encode()).hexdigest()
