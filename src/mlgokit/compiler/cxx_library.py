"""Which C++ library a program was built with: a plugin has to be built with the same one to be loaded into it."""

import functools
from pathlib import Path

from mlgokit.compiler.objects.elf import read_elf
from mlgokit.errors import InputError

LIBSTDCXX = "libstdc++"
LIBCXX = "libc++"

# A shared library that is needed, and the inline namespace in the names of exported or imported symbols.
_SIGNS_OF_LIBCXX = (b"libc++.so", b"NSt3__1")


def cxx_library_of(program: Path) -> str:
    """Find the C++ library of a program: :data:`LIBCXX`, or :data:`LIBSTDCXX`, also for scripts and the like."""
    try:
        status = program.stat()
    except OSError:
        return LIBSTDCXX
    return _inspect(program, status.st_mtime_ns, status.st_size)


def cxx_library_options(library: str) -> tuple[str, ...]:
    """Make the options with which clang compiles and links with a C++ library; empty for the system's own.

    Example:
        >>> cxx_library_options(LIBCXX), cxx_library_options(LIBSTDCXX)
        (('-stdlib=libc++',), ())
    """
    return (f"-stdlib={LIBCXX}",) if library == LIBCXX else ()


@functools.lru_cache(maxsize=64)
def _inspect(program: Path, _mtime_ns: int, _size_bytes: int) -> str:
    """Look for libc++ in the dynamic strings of a program; cached as long as the file is the same."""
    try:
        elf = read_elf(program)
    except InputError:
        return LIBSTDCXX
    if ".dynstr" not in elf.names:
        return LIBSTDCXX
    section = elf.sections[elf.names.index(".dynstr")]
    begin = int(section["offset"])
    names = elf.data[begin : begin + int(section["size"])]
    return LIBCXX if any(sign in names for sign in _SIGNS_OF_LIBCXX) else LIBSTDCXX
