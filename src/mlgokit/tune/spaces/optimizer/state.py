"""A module in the search over passes of the optimizer, and its progress on disk."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlgokit.compiler.arrays import Arrays, column
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.reuse.trials import Overrides
from mlgokit.files import atomic_write
from mlgokit.module import Module
from mlgokit.tables.overrides import EACH_TIME, LeftOut
from mlgokit.tune.composing import Climb
from mlgokit.tune.search import read_kept

COMPOSED = 6
"""Steps with gains after which the composed build is compiled."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassBuild:
    """A build of a module with passes left out.

    Attributes:
        done: the compilation, or a composed one, with the decisions of the inliner.
        left_out: the passes that are left out, by function.
    """

    done: Compilation
    left_out: frozenset[LeftOut]


@dataclass(slots=True, kw_only=True, eq=False)
class PassVariant:
    """A module with the same functions as another one but other code, as when only one is position-independent.

    Attributes:
        module: the module that is compiled.
        copies: names of modules with the same functions and the same code.
        build: compilation without the passes that are left out of the other module's best build.
        executed: instructions that a call of a function executes with all passes, by LLVM's estimate, by function.
    """

    module: Module
    copies: tuple[str, ...] = ()
    build: Compilation
    executed: Mapping[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the module and its copies."""
        return (self.module.name, *self.copies)


@dataclass(slots=True, kw_only=True, eq=False)
class PassModule:
    """A module in the search.

    Attributes:
        module: the module that is compiled.
        copies: names of modules with the same functions and the same code, which the table changes in the same way.
        variants: modules with the same functions but other code, to which the same table entries apply.
        keys: table keys of all functions that the inliner found, by name.
        current: the build that the search continues from, compiled or composed.
        allowed: keys of the functions that no other module has, except for copies and variants.
        executed: instructions that a call of a function executes with all passes, by LLVM's estimate, by function.
        shares: share of what the project executes by the profile, by key of the function; empty if bytes count.
        confirmed: the best build that was compiled.
        tried: moves without a gain since the pass over the moves began.
        climb: the state of the search over the moves.
        waits: whether no step begins beside another one, since steps under way have claimed all moves that are left.
        moves: number of moves that were made, by key of the function.
    """

    module: Module
    copies: tuple[str, ...] = ()
    variants: tuple[PassVariant, ...] = ()
    keys: Mapping[str, int]
    current: PassBuild
    allowed: frozenset[int]
    executed: Mapping[str, float]
    shares: Mapping[int, float] = field(default_factory=dict[int, float])
    confirmed: PassBuild = field(init=False)
    tried: set[LeftOut] = field(default_factory=set[LeftOut])
    climb: Climb[LeftOut] = field(default_factory=lambda: Climb[LeftOut](most_composed=COMPOSED))
    waits: bool = False
    moves: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        self.confirmed, self.climb.pass_from = self.current, self.current.done

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the module, its copies, and its variants with their copies."""
        return (self.module.name, *self.copies, *(name for one in self.variants for name in one.names))

    def parts(
        self, build: Compilation, variants: Sequence[Compilation]
    ) -> Iterator[tuple[tuple[str, ...], Compilation]]:
        """Yield groups of modules with the same code, by their names, each with its build.

        Args:
            build: build of the module.
            variants: builds of the variants, in their order.
        """
        yield (self.module.name, *self.copies), build
        for variant, its in zip(self.variants, variants, strict=True):
            yield variant.names, its


def left_out_of(by_key: Mapping[int, Overrides]) -> frozenset[LeftOut]:
    """The passes that the entries of a table leave out, by function."""
    return frozenset(
        (key, int(number), int(nth)) for key, one in by_key.items() for number, nth, _ in one.passes.tolist()
    )


def save_left_out(path: Path, left_out: frozenset[LeftOut]) -> None:
    """Write the passes that are left out of the best build of a module to a file.

    Raises:
        StorageError: the disk is full or not writable.
    """
    rows = sorted(left_out)
    file = io.BytesIO()
    np.savez_compressed(
        file,
        key=np.array([key for key, _, _ in rows], np.uint64),
        question=np.array([(number, nth) for _, number, nth in rows], np.int64).reshape(-1, 2),
    )
    atomic_write(path, file.getvalue(), durable=True)


def load_left_out(path: Path) -> frozenset[LeftOut] | None:
    """Read the passes that an earlier session left out of a module; ``None`` if there is no file.

    Raises:
        InputError: the file is damaged.
    """
    return read_kept(path, ("key", "question"), _left_out_of, what="what the search knows of a module's passes")


def _left_out_of(arrays: Arrays) -> frozenset[LeftOut]:
    questions = column(arrays, "question", "i", width=2)
    if len(questions) and (questions.min() < 0 or questions[:, 1].max() > EACH_TIME):
        raise ValueError(f"questions: expected numbers of passes and of their runs (at most {EACH_TIME}), found others")
    rows = zip(column(arrays, "key", "u").tolist(), questions.tolist(), strict=True)
    return frozenset((key, number, nth) for key, (number, nth) in rows)
