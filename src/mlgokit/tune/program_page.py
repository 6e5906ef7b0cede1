"""What a tuning made of one program, as parts of its page: where its bytes are, and which functions differ."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.errors import InputError, ToolError
from mlgokit.pages.model import Part
from mlgokit.sizes.compare import compare_sizes
from mlgokit.sizes.measure import measure_file
from mlgokit.sizes.page import NOT_LOADED, size_treemap, symbol_changes

MOST_TILES, MOST_ROWS = 400, 200
_LARGEST = 64 << 20
"""Bytes of a file that is looked at: debug information of a larger one takes minutes to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramParts:
    """Parts of a page, and the readable names of the symbols in them."""

    parts: tuple[Part, ...] = ()
    names: dict[str, str]


def program_parts(folder: Path, programs: Sequence[str]) -> ProgramParts:
    """The parts about the first of these programs whose plain and tuned files a search has kept.

    Args:
        folder: of the search.
        programs: by their paths below the folder of the build, or names of a cargo build.
    """
    for program in programs:
        for kept in ("build", "cargo"):
            plain, tuned = (folder / kept / "programs" / side / program for side in ("plain", "tuned"))
            if all(one.is_file() and one.stat().st_size <= _LARGEST for one in (plain, tuned)):
                return _compare(program, plain, tuned)
    return ProgramParts(names={})


def _compare(program: str, plain: Path, tuned: Path) -> ProgramParts:
    try:
        before, after = measure_file(plain), measure_file(tuned)
    except (InputError, ToolError):
        # The page is whole without; the program has been weighed by its sections.
        return ProgramParts(names={})
    found = compare_sizes(before, after)
    maps = size_treemap(after, title=f"Map of {program}, tuned", most=MOST_TILES)
    loaded = (
        dataclasses.replace(one, tiles=tuple(tile for tile in one.tiles if tile.name != NOT_LOADED)) for one in maps
    )
    return ProgramParts(
        parts=(
            symbol_changes(found, title=f"What differs in {program}", most=MOST_ROWS),
            *(one for one in loaded if one.tiles),
        ),
        names={one.name: one.readable for one in found.symbols[:MOST_ROWS]},
    )
