"""Does what the compiler declares fit what a problem or a policy needs? The compiler's header is the truth."""

import math
from collections.abc import Iterable, Sequence

from mlgokit.problems.problem import Problem
from mlgokit.spec import AdviceKind, TensorSpec


def header_defect(
    problem: Problem, features: Sequence[TensorSpec], *, advice: TensorSpec | None = None, needed: Iterable[str] = ()
) -> str | None:
    """Why declared tensors do not fit, in one sentence; ``None`` if they do. Features that nobody needs are welcome.

    Args:
        problem: what is decided.
        features: what the compiler declares.
        advice: the tensor that it waits for, if it is known.
        needed: names that somebody, such as a policy, reads.

    Example:
        >>> from mlgokit.problems import REGALLOC_PRIORITY
        >>> told = [TensorSpec(name="stage", type="int64_t", shape=(1,))]
        >>> header_defect(REGALLOC_PRIORITY, told, needed=["weight"])
        "regalloc-priority: expected a feature 'weight' from the compiler, found stage; ask for what it has"
        >>> header_defect(REGALLOC_PRIORITY, told, needed=["stage"]) is None
        True
    """
    sizes = {spec.name: math.prod(spec.shape) for spec in features}
    names = list(needed) if problem.mask is None else [problem.mask, *needed]
    for name in names:
        if name not in sizes:
            return (
                f"{problem.name}: expected a feature {name!r} from the compiler, found {', '.join(sizes)}; "
                "ask for what it has"
            )
    columns = column_count(problem, features)
    for name in names:
        if sizes[name] not in (1, columns):
            expected = "1 element" if columns == 1 else f"1 or {columns} elements"
            return f"{problem.name}: feature {name!r}: expected {expected}, found {sizes[name]}; ask for what it has"
    if advice is not None:
        real = problem.advice_kind is AdviceKind.REAL
        if advice.name != problem.decision or math.prod(advice.shape) != 1 or (advice.dtype.kind == "f") != real:
            expected = f"{problem.decision!r} of one {'floating-point number' if real else 'integer'}"
            return (
                f"{problem.name}: expected the compiler to wait for {expected}, found {advice.name!r} of type "
                f"{advice.type} and shape {list(advice.shape)}; give the channel to its own problem"
            )
    return None


def column_count(problem: Problem, features: Sequence[TensorSpec]) -> int:
    """How many columns there are to choose from: the elements of the mask; 1 for a problem without columns."""
    return next((math.prod(spec.shape) for spec in features if spec.name == problem.mask), 1)
