"""Compilers whose memory is in large pages, so that copies of them are made sooner.

Each trial, and each compilation by a compiler that stays, is a fork of it, for which Linux copies a table of all its
pages, and takes it down again. With pages of 2 MiB in place of 4 KiB that table is short
(linux/Documentation/admin-guide/mm/transhuge.rst). Allocators ask for them if their variables say so; where the kernel
has none, or the allocator is another, nothing changes.
"""

from collections.abc import Mapping

_WANTED = (("GLIBC_TUNABLES", ":", "glibc.malloc.hugetlb", "=1"), ("MALLOC_CONF", ",", "thp", ":always"))
"""Variable, what stands between its settings, the one of large pages, and its value: of glibc, and of the jemalloc that
rustc has."""


def with_large_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a compiler, with large pages unless it says which.

    Example:
        >>> with_large_pages({"LANG": "C", "MALLOC_CONF": "narenas:1"})
        {'LANG': 'C', 'MALLOC_CONF': 'narenas:1,thp:always', 'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}
        >>> with_large_pages({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0", "MALLOC_CONF": "thp:never"})
        {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=0', 'MALLOC_CONF': 'thp:never'}
    """
    found = dict(environment)
    for variable, between, name, value in _WANTED:
        settings = [one for one in found.get(variable, "").split(between) if one]
        if not any(one.startswith(name + value[0]) for one in settings):
            found[variable] = between.join([*settings, name + value])
    return found
