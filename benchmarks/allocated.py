"""What allocations of the same functions are compared by, in several benchmarks."""

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.reuse.trials import IMAGE_BYTES, MEASURES, SPILL_COST

COLUMNS = (
    "functions",
    "of these with spills",
    "functions with spills",
    "instructions, estimated",
    "spills and reloads, estimated",
    "code",
    "code and tables",
)
NOTE = (
    "Costs of functions with spills are LLVM's, with 0.01 added, in the geometric mean over functions and then over "
    "projects; what is estimated is the mean over functions, by LLVM's block frequencies, as a part of the "
    "instructions that a call executes; code, and with it tables of unwinding and jumps, is in bytes of all functions."
)
_OFFSET = 0.01
_EXECUTED, _CODE = MEASURES.index("executed"), MEASURES.index("code")
MEMORY = [place for place, name in enumerate(MEASURES) if "spills" in name or "reloads" in name]
_BYTES = np.where(np.arange(len(MEASURES)) > _EXECUTED, IMAGE_BYTES, 0.0)
Floats = npt.NDArray[np.float64]


def compared(then: Floats, now: Floats) -> Floats:
    """[7] the numbers of :data:`COLUMNS`, changes as parts, of functions that measure [N, 9] each."""
    spills = (then[:, MEMORY].sum(axis=1) > 0) | (now[:, MEMORY].sum(axis=1) > 0)
    costs = np.log((now[spills] @ SPILL_COST + _OFFSET) / (then[spills] @ SPILL_COST + _OFFSET))
    executed = np.maximum(then[:, _EXECUTED], 1e-9)
    return np.array(
        [
            len(then), int(spills.sum()), np.expm1(costs.mean()) if spills.any() else 0.0,
            ((now - then)[:, _EXECUTED] / executed).mean(),
            ((now - then)[:, MEMORY].sum(axis=1) / executed).mean(),
            now[:, _CODE].sum() / then[:, _CODE].sum() - 1,
            (now @ _BYTES).sum() / (then @ _BYTES).sum() - 1,
        ]
    )  # fmt: skip


def fine(change: float) -> str:
    """A part in percent, with a sign."""
    return f"{100 * change:+.2f} %"
