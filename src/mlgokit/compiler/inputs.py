"""Digests of the files that a compilation reads: the module's own, and all that its options name.

Options are not parsed: any part of a word that is the path of a file counts as an input, so that unknown options are
covered, too. A file too many costs a compilation; a file too few would give a stale result.
"""

import functools
import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from mlgokit.files import digest_cached
from mlgokit.module import Module

_ENDS = ",;:"
_BEGINS = f"={_ENDS}"
_HIDDEN = ("@", "-ivfsoverlay", "-vfsoverlay", "--vfsoverlay", "-working-directory")
"""Prefixes of options that name files which refer to other files."""
_LIBRARIES = ("-fpass-plugin=", "-load=", "-load-pass-plugin=")


def named_files(command_line: tuple[str, ...]) -> Mapping[str, str]:
    """Find the files that the words of a command line name, with their SHA-256.

    Raises:
        OSError: a file exists and cannot be read.
    """
    digests: dict[str, str] = {}
    for path in _candidates(command_line):
        # Not through Path, which takes ten times as long, and is asked for a hundred words before each compilation.
        if os.path.isfile(path):  # noqa: PTH113
            digests[path] = digest_cached(Path(path))
    return MappingProxyType(digests)


def has_hidden_inputs(command_line: tuple[str, ...]) -> bool:
    """Whether options read files that no word names: response files, overlays, libraries from a search path."""
    return any(
        word.startswith(_HIDDEN) or (word.startswith(_LIBRARIES) and "/" not in word) for word in command_line
    ) or any(option == "-load" and "/" not in value for option, value in itertools.pairwise(command_line))


def module_facts(module: Module) -> dict[str, object]:
    """Collect everything of a module that affects its compilation, by content; its name does not.

    Raises:
        OSError: one of its files cannot be read.
    """
    index = module.thinlto_index
    return {
        "bitcode": digest_cached(module.bitcode),
        "thinlto_index": None if index is None else digest_cached(index),
        "command_line": module.command_line,
        "files": dict(named_files(module.command_line)),
    }


@functools.lru_cache(maxsize=256)
def _candidates(command_line: tuple[str, ...]) -> tuple[str, ...]:
    """List the parts of words that may be paths. Cached, as most modules of a project have the same command line."""
    return tuple(dict.fromkeys(part for word in command_line for part in _parts(word)))


def _parts(word: str) -> set[str]:
    """List all parts of a word that may be a path, between the delimiters that options use."""
    begins = {0, *(index + 1 for index, letter in enumerate(word) if letter in _BEGINS)}
    begins |= {index for index in (word.find("/"), word.find("./"), word.find("../")) if index >= 0}
    ends = {len(word), *(index for index, letter in enumerate(word) if letter in _ENDS)}
    parts = {word[begin:end] for begin in begins for end in ends if begin < end}
    return {part for part in parts if not part.startswith("-")}
