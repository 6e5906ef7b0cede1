"""Command lines of ``clang -cc1``, which are composed and checked only here.

The final argument vector is checked and cannot be changed afterwards: :func:`mlgokit.compiler.process.start` starts
``-cc1`` only for a :class:`Cc1Line`, and slicing or concatenating one gives a plain tuple.
"""

import os
from collections.abc import Collection, Sequence
from typing import Self

from mlgokit.compiler.options.parse import parse_options
from mlgokit.compiler.options.safety import LONGEST_COMMAND_LINE, option_trouble
from mlgokit.errors import InputError

_LANGUAGES = frozenset({"c", "c++", "cpp-output", "c++-cpp-output"})


class Cc1Line(tuple[str, ...]):
    """A checked command line of ``clang -cc1``, program first."""

    __slots__ = ()

    def __new__(
        cls,
        program: str | os.PathLike[str],
        *,
        options: Sequence[str] = (),
        own: Sequence[str] = (),
        source: Sequence[str] = (),
        allowed: Collection[tuple[str, ...]] = (),
    ) -> Self:
        """Compose a command line, and check it.

        Args:
            program: path of clang.
            options: untrusted options, ``-cc1`` first; empty if the whole line is our own.
            own: words of mlgokit's own that follow: plugin, input, output. They are not checked, but none of them may
                become the value of an option before it.
            source: untrusted words at the end of the line: ``-x``, a language and a source. With them, options that
                only a front end needs are allowed.
            allowed: words of the options, with their values, that the user gave and that are not checked.

        Example:
            >>> Cc1Line("clang", options=("-cc1", "-Oz"), own=("-emit-obj", "-o", "a.o"))[-3:]
            ('-emit-obj', '-o', 'a.o')
            >>> Cc1Line("clang", options=("-cc1", "-target-cpu"), own=("-o", "a.o"))  # doctest: +ELLIPSIS
            Traceback (most recent call last):
            mlgokit.errors.InputError: clang -cc1: expected options that only decide the code, found -target-cpu -o; ...
        """
        foreign = tuple(options) or ("-cc1",)
        words = (*foreign, *own, *source)
        trouble = _trouble(words, len(foreign), frozenset(allowed), from_source=bool(source)) or _source_trouble(source)
        if trouble is not None:
            raise InputError(f"clang -cc1: {trouble}")
        return super().__new__(cls, (os.fspath(program), *words))

    def append_words(self, own: Sequence[str]) -> Self:
        """Append more of our own words to the command line."""
        # All words before were checked, and the last of them ended an option.
        return super().__new__(type(self), (*self, *own))


def _source_trouble(source: Sequence[str]) -> str | None:
    """Say why a source's path must not be passed to the compiler, or ``None``."""
    if not source:
        return None
    first, language, path = (*source, "", "", "")[:3]
    if len(source) != 3 or first != "-x" or language not in _LANGUAGES:
        return f"expected -x, a language of C or C++, and a source, found {' '.join(source)[:200]}"
    if path == "" or path.startswith(("-", "@")) or "\0" in path:
        return f"expected a source by its path, found {path[:200] or 'an empty word'}; give it a folder, as in ./a.c"
    return None


def _trouble(
    words: tuple[str, ...], foreign: int, allowed: frozenset[tuple[str, ...]], *, from_source: bool
) -> str | None:
    """Say why a command line must not be started, or ``None``; its first ``foreign`` words are untrusted."""
    if words[0] != "-cc1":
        return f"expected -cc1 as the first option, found {words[0] or 'an empty word'}"
    if sum(len(word) + 1 for word in words) > LONGEST_COMMAND_LINE:
        return f"expected at most {LONGEST_COMMAND_LINE} bytes of options, found more"
    position = 1
    for option in parse_options(words[1:]):
        if position >= foreign:
            break
        position += len(option.words)
        if position > foreign:
            return (
                f"expected options that only decide the code, found {' '.join(option.words)[:200]}; give it its value"
            )
        if not (option.words in allowed and option.is_whole and all(option.words)):
            trouble = option_trouble(option, from_source=from_source)
            if trouble is not None:
                return trouble
    return None
