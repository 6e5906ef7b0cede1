"""Ids of functions, by which logs, lists and tables of the plugin name them."""

import functools
import hashlib


@functools.lru_cache(maxsize=200_000)
def function_id(name: str) -> int:
    """Compute the id under which the plugin logs a function: the low 64 bits of the MD5 of its name, signed.

    Example:
        >>> function_id("main")
        -2624081020897602054
    """
    digest = hashlib.md5(name.encode("utf-8", "surrogateescape"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "little", signed=True)
