"""The store of finished compilations: one small file each, so that an interrupted run repeats nothing."""

import io
import json
import zipfile
import zlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.compile import CompileStatus
from mlgokit.compiler.objects.measure import ObjectSizes, SectionTotals
from mlgokit.compiler.regalloc_cost import RegallocCosts
from mlgokit.errors import TraceError
from mlgokit.files import atomic_write
from mlgokit.traces import Log, read_log_bytes, render_log

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRun:
    """What is kept of one compilation; T decisions of the inliner, V rows of values.

    Attributes:
        status: how it ended.
        reason: why it failed, else empty.
        user_seconds: processor time of the compiler.
        sizes: of the object, if there is one.
        caller: [T] ids of the functions with the call sites.
        callee: [T] ids of the functions called.
        inlined: [T] decisions.
        flipped: [T] whether the decision was the less likely one.
        names: the log's features.
        rows: [V] positions of the decisions whose values are kept.
        values: int64 [V, F].
        regalloc: what register allocation cost each function, when that was asked for.
        heuristic: [T] what LLVM itself would have decided; nothing in what older versions kept.
        sites: [T] keys of the call sites, of compilations that did not explore; nothing in what older versions kept.
        decisions: how many decisions the log has, of whichever problem; ``None`` stands for T.
        log: the whole log, when that was asked for and the compiler had something to decide.
    """

    status: CompileStatus
    reason: str
    user_seconds: float
    sizes: ObjectSizes | None
    caller: Ints
    callee: Ints
    inlined: npt.NDArray[np.bool_]
    flipped: npt.NDArray[np.bool_]
    names: tuple[str, ...]
    rows: Ints
    values: Ints
    regalloc: RegallocCosts | None = None
    heuristic: npt.NDArray[np.bool_] | None = None
    sites: Ints | None = None
    decisions: int | None = None
    log: Log | None = None

    @property
    def decision_count(self) -> int:
        """Decisions in the log."""
        return len(self.caller) if self.decisions is None else self.decisions

    @property
    def ok(self) -> bool:
        """Whether there is something to learn from."""
        return self.status is CompileStatus.OK and self.sizes is not None


_RUN_ARRAYS = ("caller", "callee", "inlined", "flipped", "rows", "values")
_SIZE_ARRAYS = tuple(
    field.name for field in fields(ObjectSizes) if field.name not in ("totals", "function_names", "signatures")
)


def remember(path: Path, run: ModuleRun) -> None:
    """Keep ``run`` at ``path``.

    Raises:
        StorageError: the disk is full or not writable.
    """
    facts: dict[str, Any] = {
        "status": run.status.name,
        "reason": run.reason,
        "user_seconds": run.user_seconds,
        "names": run.names,
        "decisions": run.decisions,
    }
    arrays: dict[str, npt.NDArray[Any]] = {name: getattr(run, name) for name in _RUN_ARRAYS}
    if run.sizes is not None:
        facts |= {
            "totals": [getattr(run.sizes.totals, field.name) for field in fields(SectionTotals)],
            "function_names": run.sizes.function_names,
            "signatures": run.sizes.signatures,
        }
        arrays |= {f"sizes_{name}": getattr(run.sizes, name) for name in _SIZE_ARRAYS}
    if run.regalloc is not None:
        facts["regalloc_functions"] = run.regalloc.functions
        arrays |= {"regalloc_counts": run.regalloc.counts, "regalloc_costs": run.regalloc.costs}
    if run.heuristic is not None:
        facts["heuristic"] = True
        arrays["heuristic"] = run.heuristic
    if run.sites is not None:
        arrays["sites"] = run.sites
    if run.log is not None:
        arrays["log"] = np.frombuffer(render_log(run.log), np.uint8)
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]  (the stub takes the names for a flag)
    atomic_write(path, file.getvalue())


def recall(path: Path) -> ModuleRun | None:
    """What was kept at ``path``; a damaged file is as good as none, for the compilation can be made again."""
    try:
        # Opened here, because numpy leaves a file open that turns out to be no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            facts = json.loads(stored["facts"].tobytes())
            sizes = None
            if "totals" in facts:
                names = (field.name for field in fields(SectionTotals))
                sizes = ObjectSizes(
                    totals=SectionTotals(**dict(zip(names, facts["totals"], strict=True))),
                    function_names=tuple(facts["function_names"]),
                    signatures=tuple(facts["signatures"]),
                    **{name: stored[f"sizes_{name}"] for name in _SIZE_ARRAYS},
                )
            regalloc = None
            if "regalloc_functions" in facts:
                regalloc = RegallocCosts(
                    functions=tuple(facts["regalloc_functions"]),
                    counts=stored["regalloc_counts"],
                    costs=stored["regalloc_costs"],
                )
            return ModuleRun(
                status=CompileStatus[facts["status"]],
                reason=facts["reason"],
                user_seconds=facts["user_seconds"],
                names=tuple(facts["names"]),
                sizes=sizes,
                regalloc=regalloc,
                heuristic=stored["heuristic"] if facts.get("heuristic") else None,
                sites=stored.get("sites"),
                decisions=facts.get("decisions"),
                log=read_log_bytes(stored["log"].tobytes(), name=path) if "log" in stored else None,
                **{name: stored[name] for name in _RUN_ARRAYS},
            )
    # RuntimeError: a flag or a method that zipfile does not know, which is how damaged headers look.
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        TypeError,
        RuntimeError,
        TraceError,
        zipfile.BadZipFile,
        zlib.error,
    ):
        return None
