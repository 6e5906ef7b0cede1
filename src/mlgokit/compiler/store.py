"""The store of finished compilations: one small file each, so that an interrupted run repeats nothing."""

import io
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.arrays import DAMAGE, arrays_in
from mlgokit.compiler.compilation import Compilation, CompileStatus, InlineDecisions, no_decisions
from mlgokit.compiler.objects.measure import ObjectSizes, SectionTotals
from mlgokit.compiler.regalloc_cost import RegallocCosts
from mlgokit.errors import TraceError
from mlgokit.files import atomic_write
from mlgokit.traces import read_log_bytes, render_log

_DECISION_ARRAYS = ("caller", "callee", "inlined", "flipped", "rows", "values")
_SIZE_ARRAYS = tuple(
    field.name for field in fields(ObjectSizes) if field.name not in ("totals", "function_names", "signatures")
)


def save_compilation(path: Path, done: Compilation) -> None:
    """Keep all of ``done`` at ``path`` but elapsed time, trials and whether it was killed; at most one log.

    Raises:
        StorageError: the disk is full or not writable.
    """
    decisions = done.decisions
    facts: dict[str, Any] = {
        "status": done.status.name,
        "reason": done.reason,
        "user_seconds": done.user_seconds,
        "names": decisions.names,
        "decisions": None if done.decision_count == len(decisions) else done.decision_count,
    }
    arrays: dict[str, npt.NDArray[Any]] = {name: getattr(decisions, name) for name in _DECISION_ARRAYS}
    if done.sizes is not None:
        facts |= {
            "totals": [getattr(done.sizes.totals, field.name) for field in fields(SectionTotals)],
            "function_names": done.sizes.function_names,
            "signatures": done.sizes.signatures,
        }
        arrays |= {f"sizes_{name}": getattr(done.sizes, name) for name in _SIZE_ARRAYS}
    if done.regalloc is not None:
        facts["regalloc_functions"] = done.regalloc.functions
        arrays |= {"regalloc_counts": done.regalloc.counts, "regalloc_costs": done.regalloc.costs}
    if decisions.heuristic is not None:
        facts["heuristic"] = True
        arrays["heuristic"] = decisions.heuristic
    if decisions.by_table is not None:
        facts["by_table"] = True
        arrays["by_table"] = decisions.by_table
    if decisions.site is not None:
        facts["sites"] = True
        arrays["sites"] = decisions.site.view(np.int64)
    for log in done.logs.values():
        arrays["log"] = np.frombuffer(render_log(log), np.uint8)
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]  (the stub takes the names for a flag)
    atomic_write(path, file.getvalue())


def load_compilation(path: Path, *, problem: str) -> Compilation | None:
    """What was kept at ``path``; a damaged file is as good as none, for the compilation can be made again.

    Args:
        path: the file.
        problem: whose log it has, if it has one.
    """
    try:
        stored = arrays_in(path.read_bytes())
        facts = json.loads(stored["facts"].tobytes())
        status = CompileStatus[facts["status"]]
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
        logs = {problem: read_log_bytes(stored["log"].tobytes(), name=path)} if "log" in stored else {}
        site = stored["sites"].view(np.uint64) if facts.get("sites", "sites" in stored) else None
        if site is None and problem in logs and "site" in (columns := logs[problem].columns):
            site = columns["site"].reshape(-1).astype(np.int64).view(np.uint64)
        decisions = no_decisions()
        if len(stored["caller"]) or facts["names"]:
            decisions = InlineDecisions(
                names=tuple(facts["names"]),
                by_table=stored["by_table"] if facts.get("by_table") else None,
                heuristic=stored["heuristic"] if facts.get("heuristic") else None,
                site=site,
                **{name: stored[name] for name in _DECISION_ARRAYS},
            )
        count = facts.get("decisions")
        return Compilation(
            status=status,
            reason=facts["reason"],
            user_seconds=facts["user_seconds"],
            sizes=sizes,
            decisions=decisions,
            decision_count=len(decisions) if count is None else count,
            logs=logs,
            regalloc=regalloc,
        )
    except (*DAMAGE, TraceError):
        return None
