"""The store of finished compilations: one small file each, so that an interrupted run repeats no compilation."""

import io
import json
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.arrays import DAMAGE, MOST_BYTES, Arrays, TooLargeError, column, read_arrays, unpacked_bytes
from mlgokit.compiler.compilation import Compilation, CompileStatus, InlineDecisions, no_decisions
from mlgokit.compiler.limits import format_bytes
from mlgokit.compiler.objects.measure import COLUMNS, ObjectSizes
from mlgokit.compiler.objects.object_file import SectionTotals
from mlgokit.compiler.regalloc_cost import COSTS, COUNTS, RegallocCosts
from mlgokit.errors import InputError, TraceError
from mlgokit.files import atomic_write, read_bounded
from mlgokit.traces import Log, read_log_bytes, render_log

_MOST_FACT_BYTES = 32 << 20
"""Limit on the JSON part, which takes up to 24 times as much memory when it is parsed."""
_DECISION_ARRAYS = ("caller", "callee", "inlined", "flipped", "rows", "values")
_SIZE_ARRAYS = tuple(
    field.name
    for field in fields(ObjectSizes)
    if field.name not in ("totals", "function_names", "signatures", "references", "live", "run_cost")
)
"""Who counts what functions execute adds that to compilations that are read as well (``compiler/executed.py``)."""
_NAMES = frozenset(
    {
        *_DECISION_ARRAYS, "heuristic", "by_table", "sites", "regalloc_counts", "regalloc_costs", "log",
        *(f"sizes_{name}" for name in _SIZE_ARRAYS),
    }
)  # fmt: skip


def save_compilation(path: Path, done: Compilation) -> bool:
    """Write a compilation to ``path``, without elapsed time and trials, and with at most one log.

    Returns:
        Whether it was written; a compilation that is too large for :func:`load_compilation` is not.
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
    sites = None if decisions.site is None else decisions.site.view(np.int64)
    for name, array in (("heuristic", decisions.heuristic), ("by_table", decisions.by_table), ("sites", sites)):
        if array is not None:
            facts[name], arrays[name] = True, array
    for log in done.logs.values():
        arrays["log"] = np.frombuffer(render_log(log), np.uint8)
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    if unpacked_bytes(arrays) > MOST_BYTES or arrays["facts"].nbytes > _MOST_FACT_BYTES:
        path.unlink(missing_ok=True)
        return False
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]  (the stub takes the names for a flag)
    atomic_write(path, file.getvalue())
    return True


def load_compilation(path: Path, *, problem: str) -> Compilation | None:
    """Read the compilation at ``path``; see :func:`decode_compilation`."""
    try:
        data = read_bounded(path, MOST_BYTES)
    except OSError:
        return None
    return decode_compilation(data, problem=problem, where=str(path))


def decode_compilation(data: bytes, *, problem: str, where: str) -> Compilation | None:
    """Decode a compilation; a damaged file counts as missing, since the compilation can be repeated.

    Args:
        data: content of the file.
        problem: the problem whose log it contains, if any.
        where: path of the file, for messages.

    Raises:
        InputError: the compilation would take too much memory; none of it was unpacked.
    """
    try:
        facts = json.loads(read_arrays(data, ("facts",), most_bytes=_MOST_FACT_BYTES)["facts"].tobytes())
        stored = read_arrays(data, _NAMES)
        logs = {problem: read_log_bytes(stored["log"].tobytes(), name=where)} if "log" in stored else {}
        decisions = _decisions_in(stored, facts, logs.get(problem))
        count = facts.get("decisions")
        return Compilation(
            status=CompileStatus[facts["status"]],
            reason=str(facts["reason"]),
            user_seconds=float(facts["user_seconds"]),
            sizes=_sizes_in(stored, facts) if "totals" in facts else None,
            decisions=decisions,
            decision_count=len(decisions) if count is None else int(count),
            logs=logs,
            regalloc=_costs_in(stored, facts) if "regalloc_functions" in facts else None,
        )
    except TooLargeError as error:
        raise InputError(
            f"{where}: expected a compilation of at most {format_bytes(MOST_BYTES)}, found {error}; delete this "
            "file, and the module is compiled again"
        ) from error
    except (*DAMAGE, TraceError):
        return None


def _decisions_in(stored: Arrays, facts: dict[str, Any], log: Log | None) -> InlineDecisions:
    """Decode the decisions of a record; raises one of :data:`DAMAGE` if its arrays do not fit together."""
    names = _texts(facts["names"])
    if not len(stored["caller"]) and not names:
        return no_decisions()
    site = stored["sites"].view(np.uint64) if facts.get("sites", "sites" in stored) else None
    if site is None and log is not None and "site" in log.columns:
        site = log.columns["site"].reshape(-1).astype(np.int64).view(np.uint64)
    decisions = InlineDecisions(
        caller=column(stored, "caller", "i"),
        callee=column(stored, "callee", "i"),
        inlined=column(stored, "inlined", "b"),
        flipped=column(stored, "flipped", "b"),
        by_table=column(stored, "by_table", "b") if facts.get("by_table") else None,
        heuristic=column(stored, "heuristic", "b") if facts.get("heuristic") else None,
        site=site,
        names=names,
        rows=column(stored, "rows", "i"),
        values=stored["values"],
    )
    count, rows = len(decisions), decisions.rows
    parts = (decisions.callee, decisions.inlined, decisions.flipped, decisions.by_table, decisions.heuristic, site)
    if any(part is not None and part.shape != (count,) for part in parts):
        raise ValueError(f"decisions: expected arrays of {count} decisions, found another length")
    if decisions.values.dtype != np.int64 or decisions.values.shape != (len(rows), len(names)):
        expected = f"int64 ({len(rows)}, {len(names)})"
        raise ValueError(f"values: expected {expected}, found {decisions.values.dtype} {decisions.values.shape}")
    if len(rows) and not (rows[0] >= 0 and rows[-1] < count and (np.diff(rows) > 0).all()):
        raise ValueError(f"rows: expected ascending positions among {count} decisions, found others")
    return decisions


def _sizes_in(stored: Arrays, facts: dict[str, Any]) -> ObjectSizes:
    """Decode the sizes of a record; raises one of :data:`DAMAGE` if its arrays do not fit together."""
    totals = (field.name for field in fields(SectionTotals))
    widths = {"signature_rest": COLUMNS}
    arrays: dict[str, Any] = {
        name: column(stored, f"sizes_{name}", "i", width=widths.get(name, 0)) for name in _SIZE_ARRAYS
    }
    sizes = ObjectSizes(
        totals=SectionTotals(**dict(zip(totals, map(int, facts["totals"]), strict=True))),
        function_names=_texts(facts["function_names"]),
        signatures=_texts(facts["signatures"]),
        **arrays,
    )
    counts = {"function": len(sizes.function_names), "signature": len(sizes.signatures), "rest": COLUMNS}
    if any(len(getattr(sizes, name)) != counts[name.partition("_")[0]] for name in _SIZE_ARRAYS):
        raise ValueError("sizes: expected arrays with an entry for each function or signature, found another length")
    signature = sizes.function_signature
    if len(signature) and not -1 <= signature.min() <= signature.max() < len(sizes.signatures):
        raise ValueError(f"sizes: expected indices among {len(sizes.signatures)} signatures, found another index")
    return sizes


def _costs_in(stored: Arrays, facts: dict[str, Any]) -> RegallocCosts:
    """Decode the costs of a record; raises one of :data:`DAMAGE` if its arrays do not fit together."""
    costs = RegallocCosts(
        functions=_texts(facts["regalloc_functions"]),
        counts=column(stored, "regalloc_counts", "i", width=len(COUNTS)),
        costs=column(stored, "regalloc_costs", "f", width=len(COSTS)),
    )
    if not len(costs.functions) == len(costs.counts) == len(costs.costs):
        raise ValueError(f"costs: expected arrays of {len(costs.functions)} functions, found another length")
    return costs


def _texts(value: object) -> tuple[str, ...]:
    """Check that a value is a list of strings; raises :class:`TypeError` otherwise."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in cast("list[object]", value)):
        raise TypeError(f"expected a list of strings, found {value!r:.100}")
    return tuple(cast("list[str]", value))
