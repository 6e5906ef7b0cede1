"""Costs of register allocation by function, read from the compiler's optimization record.

LLVM's greedy allocator reports, if asked to, how many spills, reloads and copies it left in each function, and the sum
of their block frequencies relative to the function's entry. docs/scores.md, "Register allocation", says what that is
worth. Source: ``computeStats`` and ``reportStats`` in ``llvm/lib/CodeGen/RegAllocGreedy.cpp``.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

import numpy as np
import numpy.typing as npt
import yaml

from mlgokit.compiler.driver_call import LINKER
from mlgokit.errors import InputError

PASS = "regalloc"  # noqa: S105  (a pass of the compiler)
REMARK = "SpillReloadCopies"
"""The remark with the totals of a function; ``LoopSpillReloadCopies`` has those of each loop."""

COUNTS = {
    "spills": "NumSpills",
    "reloads": "NumReloads",
    "folded_spills": "NumFoldedSpills",
    "folded_reloads": "NumFoldedReloads",
    "zero_cost_folded_reloads": "NumZeroCostFoldedReloads",
    "copies": "NumVRCopies",
}
"""Columns of static counts: our name and the remark's argument in LLVM."""

COSTS = {
    "spills": "TotalSpillsCost",
    "reloads": "TotalReloadsCost",
    "folded_spills": "TotalFoldedSpillsCost",
    "folded_reloads": "TotalFoldedReloadsCost",
    "copies": "TotalCopiesCost",
}
"""Columns of costs weighted by block frequency: our name and the remark's argument in LLVM."""

WEIGHTS = {"spills": 1.0, "reloads": 4.0, "folded_spills": 1.0, "folded_reloads": 4.0, "copies": 0.2}
"""Weights of a store, a load and a copy in LLVM's score: ``llvm/lib/CodeGen/RegAllocScore.cpp``."""

OFFSET = 0.01
"""Added to both scores of a relative change, so that it is defined for functions without costs."""

COST_WEIGHTS = np.array([WEIGHTS[name] for name in COSTS])
"""Weights [5] of the columns of :data:`COSTS`."""
_COUNT_PLACES = {llvm: index for index, llvm in enumerate(COUNTS.values())}
_COST_PLACES = {llvm: index for index, llvm in enumerate(COSTS.values())}
_LARGEST_COUNT = 2**32

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegallocCosts:
    """Costs of the F functions in which the allocator left any spill, reload or copy; all others cost nothing.

    Attributes:
        functions: [F] names, in the order in which they were compiled.
        counts: int64 [F, 6] numbers of instructions, in the columns of :data:`COUNTS`.
        costs: float64 [F, 5] sums of the instructions' block frequencies, in the columns of :data:`COSTS`; 1 means once
            per call.
    """

    functions: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    costs: Floats

    @property
    def scores(self) -> Floats:
        """Scores [F]: costs with LLVM's weights. Smaller is better; 4 is one reload per call."""
        return self.costs @ COST_WEIGHTS

    def score_of(self, functions: Sequence[str]) -> Floats:
        """Look up the scores [F] of functions; 0 for a function without costs."""
        known = dict(zip(self.functions, self.scores.tolist(), strict=True))
        return np.array([known.get(name, 0.0) for name in functions])


def record_options(path: Path) -> list[str]:
    """Make the options of ``clang -cc1`` that write a record to ``path``; the object stays the same."""
    return ["-opt-record-file", str(path), "-opt-record-passes", PASS, "-opt-record-format", "yaml"]


def link_record_options(path: Path, *, linker: str = "clang") -> list[str]:
    """Make the options of a link with LTO that write a record to ``path``; the image stays the same.

    Example:
        >>> link_record_options(Path("r.yaml"), linker="/usr/bin/ld.lld-22")[0]
        '--plugin-opt=opt-remarks-filename=r.yaml'
        >>> link_record_options(Path("r.yaml"))[1]
        '-Wl,--plugin-opt=opt-remarks-passes=regalloc'
    """
    settings = {"filename": str(path), "passes": PASS, "format": "yaml"}
    return [link_option(f"--plugin-opt=opt-remarks-{name}={value}", linker) for name, value in settings.items()]


def link_option(option: str, linker: str) -> str:
    """Spell an option for the linker, as the linker itself or a compiler's driver takes it.

    Example:
        >>> [link_option("-s", name) for name in ("clang", "/bin/ld.lld-22", "arm-none-eabi-ld")]
        ['-Wl,-s', '-s', '-s']
    """
    is_linker = re.fullmatch(rf"{LINKER}|(lld|ld64\.lld)(-\d+)?", Path(linker).name) is not None
    return option if is_linker else f"-Wl,{option}"


def read_link_costs(path: Path, *, thin: bool) -> dict[str, RegallocCosts]:
    """Read the records of :func:`link_record_options`: one for each code generator, so one a module for ThinLTO.

    Empty if the link wrote none, because it did no link-time optimization or reused cached code.
    """
    parts = path.parent.glob(f"{path.name}.thin.*.yaml") if thin else [path]
    return {part.name.removeprefix(path.name): read_regalloc_costs(part) for part in parts if part.exists()}


def read_regalloc_costs(path: Path) -> RegallocCosts:
    """Read an optimization record in LLVM's YAML format.

    Raises:
        InputError: the record cannot be read, is malformed, or was cut short.
    """
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise InputError(
            f"optimization record {path}: expected a readable file, found {error.strerror}; compile the module again"
        ) from error
    return parse_regalloc_costs(text, name=str(path))


def parse_regalloc_costs(text: str, *, name: str) -> RegallocCosts:
    """Parse a record like :func:`read_regalloc_costs`; ``name`` is shown in errors.

    Example:
        >>> record = '''--- !Missed
        ... Pass:            regalloc
        ... Name:            SpillReloadCopies
        ... Function:        main
        ... Args:
        ...   - NumReloads:      '2'
        ...   - TotalReloadsCost: '1.500000e+00'
        ... ...
        ... '''
        >>> parse_regalloc_costs(record, name="example").scores.tolist()
        [6.0]
    """
    if text and not text.endswith("\n...\n"):
        _fail(name, "a document that ends with '...'", repr(text[-20:]))
    # A loop's remark repeats what the function's has; leaving it to the parser takes twice the time.
    documents = [part for part in text.split("\n...\n") if f"\nName:            {REMARK}\n" in part]
    by_function: dict[str, tuple[list[int], list[float]]] = {}
    try:
        # The stub knows only the name of compose_all.
        compose = cast("Callable[..., Iterable[yaml.Node | None]]", getattr(yaml, "compose_all"))  # noqa: B009
        for node in compose("".join(f"{part}\n...\n" for part in documents), Loader=yaml.CSafeLoader):
            function, counts, costs = _function_remark(node, name)
            # A target that allocates in two passes reports twice; the last report has all that is in the code.
            by_function[function] = (counts, costs)
    except yaml.YAMLError as error:
        _fail(name, "YAML", " ".join(str(error).split()))
    return RegallocCosts(
        functions=tuple(by_function),
        counts=np.array([counts for counts, _ in by_function.values()], np.int64).reshape(-1, len(COUNTS)),
        costs=np.array([costs for _, costs in by_function.values()], np.float64).reshape(-1, len(COSTS)),
    )


def _function_remark(node: yaml.Node | None, name: str) -> tuple[str, list[int], list[float]]:
    """Parse a remark: function, counts and costs. Missing arguments are 0, unknown ones are ignored."""
    fields = _mapping(node, name)
    function, arguments = fields.get("Function"), fields.get("Args")
    if not isinstance(function, yaml.ScalarNode) or not isinstance(arguments, yaml.SequenceNode):
        _fail(name, f"a remark {REMARK} with Function and Args", f"one with {', '.join(fields) or 'nothing'}")
    counts, costs = [0] * len(COUNTS), [0.0] * len(COSTS)
    for argument in arguments.value:
        for key, value in _mapping(argument, name).items():
            text = value.value if isinstance(value, yaml.ScalarNode) else ""
            if key in _COUNT_PLACES:
                counts[_COUNT_PLACES[key]] = _count(text, key, name)
            elif key in _COST_PLACES:
                costs[_COST_PLACES[key]] = _cost(text, key, name)
    return function.value, counts, costs


def _mapping(node: yaml.Node | None, name: str) -> Mapping[str, yaml.Node]:
    """Collect the fields of a remark or an argument of it."""
    if not isinstance(node, yaml.MappingNode):
        _fail(name, "a mapping for each remark and argument", type(node).__name__)
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _count(text: str, key: str, name: str) -> int:
    """Parse a number of instructions."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < _LARGEST_COUNT):
        _fail(name, f"a count as {key}", repr(text[:60]))
    return int(text)


def _cost(text: str, key: str, name: str) -> float:
    """Parse a cost, which is finite and not negative."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < np.inf:
        _fail(name, f"a number that is not negative as {key}", repr(text[:60]))
    return value


def _fail(name: str, expected: str, found: str) -> NoReturn:
    raise InputError(f"optimization record {name}: expected {expected}, found {found}; compile the module again")


def align_scores(before: RegallocCosts, after: RegallocCosts) -> tuple[tuple[str, ...], Floats, Floats]:
    """Align the scores of two compilations over the functions that have costs in either."""
    names = tuple(dict.fromkeys((*before.functions, *after.functions)))
    return names, before.score_of(names), after.score_of(names)


def mean_change(before: RegallocCosts, after: RegallocCosts) -> float:
    """Average :func:`relative_changes` over the functions that have costs in either compilation; 0 if none has."""
    names, then, now = align_scores(before, after)
    return float(relative_changes(then, now).mean()) if names else 0.0


def relative_changes(before: Floats, after: Floats) -> Floats:
    """Compute the relative reduction of each function's score; negative if it grew.

    Each function is measured against itself, as LLVM's frequencies are relative to its own entry: a sum over functions
    would be that of the functions with the deepest loops.

    Example:
        >>> relative_changes(np.array([100.0, 0.0]), np.array([50.0, 0.0])).round(3).tolist()
        [0.5, 0.0]
    """
    return 1 - (after + OFFSET) / (before + OFFSET)
