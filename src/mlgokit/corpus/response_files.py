"""Response files: ``@file`` in a command stands for the words in that file (``llvm/lib/Support/CommandLine.cpp``)."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from mlgokit.compiler.driver_call import split_response
from mlgokit.corpus.files import open_untrusted
from mlgokit.errors import InputError

COMPILE_BYTES = 4 << 20
"""Limit on the bytes of all response files of one compile command together."""
LINK_BYTES = 64 << 20
"""Limit on the bytes of all response files of one link command together."""
MOST_LEVELS = 8
"""How deep response files may name response files."""


def expand_response_files(
    words: Sequence[str],
    folder: Path,
    *,
    inside: Path | None = None,
    most_bytes: int = COMPILE_BYTES,
    missing: Literal["refuse", "keep", "drop"] = "refuse",
) -> list[str]:
    """Replace each ``@file`` among words by the words in that file.

    Args:
        words: words of a command, without the program.
        folder: working directory of the command.
        inside: folder that response files must be below, since a stranger's command could name any file.
        most_bytes: limit on the bytes of all files together.
        missing: whether a word whose file is missing is refused, kept as it is, or dropped.

    Raises:
        ValueError: a file cannot be read or split into words, is outside of ``inside``, is too long, or is nested too
            deeply.
    """
    expanded: list[str] = []
    left = most_bytes
    todo = [(word, 0) for word in reversed(words)]
    while todo:
        word, level = todo.pop()
        if not word.startswith("@"):
            expanded.append(word)
            continue
        # Path.resolve fails where a link leads to itself.
        path = Path(os.path.realpath(folder / word[1:]))
        if level >= MOST_LEVELS:
            raise ValueError(f"{word}: expected response files nested at most {MOST_LEVELS} deep, found more")
        if inside is not None and not path.is_relative_to(inside):
            raise ValueError(f"{word}: expected a response file inside the build folder {inside}, found {path}")
        try:
            with open_untrusted(path, "expected a response file, found: No such file or directory") as descriptor:
                data = os.pread(descriptor, left + 1, 0)
        except InputError as error:
            if missing == "refuse":
                raise ValueError(
                    f"{word}: {error}; Ninja deletes response files, and `ninja -t compdb -x` writes a database "
                    "that needs none"
                ) from error
            if missing == "keep":
                expanded.append(word)
            continue
        left -= len(data)
        if left < 0:
            raise ValueError(f"{word}: expected at most {most_bytes} bytes of response files, found more")
        try:
            inner = split_response(data.decode("utf-8", "surrogateescape").removeprefix("\ufeff"))
        except ValueError as error:
            raise ValueError(f"{word}: {error}") from error
        todo += [(part, level + 1) for part in reversed(inner)]
    return expanded
