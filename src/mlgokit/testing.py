"""Fake compilers for tests, which start no process: a compilation is computed from the request by a function.

:func:`toy_compiler` makes a fake compiler of small modules whose functions shrink and grow with the calls that are
inlined; it follows policies, decision tables and exploration, and makes logs. For everything else, give
:class:`FakeCompiler` a function.
"""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.compilation import Compilation, CompileStatus, add_logs
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.objects.object_file import References, SectionTotals
from mlgokit.compiler.request import ALWAYS, PLAIN, CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.files import atomic_write
from mlgokit.module import Module
from mlgokit.policy.network import Layer, Policy
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.spec import TensorSpec
from mlgokit.tables.decisions import parse_table
from mlgokit.traces import ContextSpan, Header, Log, render_log
from mlgokit.traces.function_id import function_id

FAKE_TOOLCHAIN = Toolchain(major=22, version="22.0.0", clang=Path("clang"), clangxx=Path("clang++"))

Answer = Callable[[Module, CompileRequest], Compilation]


@dataclass(slots=True, kw_only=True)
class FakeCompiler:
    """A compiler whose compilations are computed by a function.

    Attributes:
        answer: function that computes a compilation, with all logs; the compiler then drops what the request does not
            keep.
        toolchain: toolchain that the compiler claims to be.
        plugin: plugin of requests that name none.
        workers: number of compilations to make at once.
        asked: all modules and requests, in the order of the calls.
        closed: number of calls of :meth:`close`.
    """

    answer: Answer
    toolchain: Toolchain = FAKE_TOOLCHAIN
    plugin: Path | None = None
    workers: int = 1
    asked: list[tuple[Module, CompileRequest]] = field(default_factory=list[tuple[Module, CompileRequest]])
    closed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def loaded(self) -> Loaded:
        """The version of the compiler; there is no program."""
        return Loaded(version=self.toolchain.version_text or self.toolchain.version, target=self.toolchain.target)

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Compute a compilation, and write the files that the request wants to keep."""
        with self._lock:
            self.asked.append((module, request))
        done = self.answer(module, request)
        if done.sizes is not None and request.keep_object is not None and not request.keep_object.exists():
            atomic_write(request.keep_object, repr(done.sizes).encode())
        for problem, path in request.keep_logs.items():
            if problem in done.logs:
                atomic_write(path, render_log(done.logs[problem]))
        known = request.use is None or request.use.log_default
        return add_logs(done, done.logs, keep=request.keep, flips=request.flips, defaults_known=known)

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyCall:
    """A call that the inliner is asked about.

    Attributes:
        caller: name of the function with the call site.
        callee: name of the function that is called.
        site: key of the call site, an even number.
        features: features of the call site, with the same names in all calls of a module.
        default: decision of LLVM's heuristic.
    """

    caller: str
    callee: str
    site: int
    features: Mapping[str, int] = field(default_factory=dict[str, int])
    default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyModule:
    """A module of a toy compiler, which consists of calls.

    Attributes:
        calls: [T] calls, in the order in which the inliner asks about them.
        weigh: function that computes the bytes of each function from the decisions [T].
        signatures: COMDAT group of each function that is in one.
        rules: decisions [T] of rules by name; of others ``:always`` inlines all calls, and the rest inlines none.
        fails: function that computes why a compilation fails from the request; empty if it succeeds.
        user_seconds: processor time of a compilation.
    """

    calls: tuple[ToyCall, ...]
    weigh: Callable[[tuple[bool, ...]], Mapping[str, int]]
    signatures: Mapping[str, str] = field(default_factory=dict[str, str])
    rules: Mapping[str, tuple[bool, ...]] = field(default_factory=dict[str, tuple[bool, ...]])
    fails: Callable[[CompileRequest], str] = lambda _: ""
    user_seconds: float = 1.0


def toy_compiler(modules: Mapping[str, ToyModule]) -> FakeCompiler:
    """Make a fake compiler of toy modules, by name.

    Example:
        >>> calls = (ToyCall(caller="f", callee="g", site=2),)
        >>> toy = ToyModule(calls=calls, weigh=lambda inlined: {"f": 10 - 4 * inlined[0]})
        >>> compiler = toy_compiler({"m": toy})
        >>> compiler.compile(toy_source("m")).measured.llvm_size_text
        10
    """
    return FakeCompiler(answer=lambda module, request: _answer(modules[module.name], request))


def toy_source(
    name: str,
    *,
    project: str = "p",
    language: str = "c++",
    bitcode: Path | None = None,
    command_line: tuple[str, ...] = ("-cc1", "-Oz"),
) -> Module:
    """Make a module for a toy compiler, which needs no file, or for bitcode that a test made."""
    return Module(
        name=name,
        project=project,
        language=language,
        bitcode=Path(f"{name}.bc") if bitcode is None else bitcode,
        command_line=command_line,
        bitcode_bytes=1,
    )


def toy_sizes(
    functions: Mapping[str, int],
    *,
    signatures: Mapping[str, str] | None = None,
    rest: int = 0,
    references: Mapping[str, Sequence[str]] | None = None,
) -> ObjectSizes:
    """Make the sizes of an object from the bytes of its functions.

    Args:
        functions: bytes of code of each function.
        signatures: COMDAT group of each function that is in one.
        rest: bytes of code that belong to no function.
        references: what functions refer to; without it nobody asked.
    """
    owners = [(signatures or {}).get(name, "") for name in functions]
    groups = tuple(dict.fromkeys(owner for owner in owners if owner))
    text, none = np.array(list(functions.values()), np.int64), np.zeros(len(functions), np.int64)
    return ObjectSizes(
        totals=SectionTotals(text=int(text.sum()) + rest, rodata=0, eh_frame=0, data=0, bss=0, except_table=0),
        function_names=tuple(functions),
        function_text=text,
        function_rodata=none,
        function_except_table=none,
        function_eh_frame=none,
        function_signature=np.array([groups.index(owner) if owner else -1 for owner in owners], np.int64),
        signatures=groups,
        signature_rest=np.zeros((len(groups), 3), np.int64),
        signature_data=np.zeros(len(groups), np.int64),
        rest=np.array([rest, 0, 0]),
        references=None
        if references is None
        else References(
            by_function=tuple(tuple(references.get(name, ())) for name in functions), always_live=frozenset()
        ),
    )


def toy_layers(rng: np.random.Generator, widths: Sequence[int], *, members: int = 2) -> tuple[Layer, ...]:
    """Draw the layers of a policy's networks, from the first width to the last."""
    return tuple(
        Layer(
            (rng.normal(size=(members, inputs, outputs)) / np.sqrt(inputs)).astype(np.float32),
            rng.normal(size=(members, outputs)).astype(np.float32) * np.float32(0.1),
        )
        for inputs, outputs in itertools.pairwise(widths)
    )


def toy_log(
    calls: Sequence[ToyCall],
    inlined: Sequence[bool],
    *,
    log_probability: Sequence[float] | None = None,
    by_table: Sequence[bool] | None = None,
    defaults: Sequence[int] | None = None,
) -> Log:
    """Make the inlining log of a compilation from its calls [T] and decisions [T].

    Args:
        calls: [T] calls.
        inlined: [T] decisions.
        log_probability: [T] log-probability of each decision; 0 if not given.
        by_table: [T] whether a decision table made the decision; no table if not given.
        defaults: [T] decisions of LLVM's heuristic; those of the calls if not given.
    """
    count = len(calls)
    columns = {
        **{name: [call.features[name] for call in calls] for name in (calls[0].features if calls else ())},
        "caller_id": [function_id(call.caller) for call in calls],
        "callee_id": [function_id(call.callee) for call in calls],
        "site": [call.site for call in calls],
        "decided_by_table": [0] * count if by_table is None else by_table,
        "inlining_default": [call.default for call in calls] if defaults is None else defaults,
        "inlining_decision": inlined,
    }
    arrays: dict[str, npt.NDArray[Any]] = {
        name: np.array(column, np.int64).reshape(count, 1) for name, column in columns.items()
    }
    chances = np.zeros(count) if log_probability is None else np.array(log_probability)
    arrays["log_probability"] = chances.astype(np.float32).reshape(count, 1)
    types = {"log_probability": "float"}
    return Log(
        header=Header(
            features=tuple(TensorSpec(name=name, type=types.get(name, "int64_t"), shape=(1,)) for name in arrays)
        ),
        contexts=(ContextSpan(name="module", start=0, stop=count),),
        columns=arrays,
    )


def _answer(toy: ToyModule, request: CompileRequest) -> Compilation:
    """Compute the compilation of a toy module."""
    reason = toy.fails(request)
    if reason:
        return Compilation(status=CompileStatus.FAILED, reason=reason, user_seconds=toy.user_seconds)
    defaults, use = tuple(call.default for call in toy.calls), request.use
    inlined, logs = defaults, dict[str, Log]()
    if use is not None:
        own = np.array(_decide(toy, use.policies.get(INLINE_SIZE.name, ":default"), defaults), bool)
        drawn = np.random.default_rng(use.seed).random(len(own)) < use.flip_probability
        given = _read_decisions(use.decisions)
        by_table = [call.site in given for call in toy.calls]
        inlined = tuple(
            given.get(call.site, bool(one)) for call, one in zip(toy.calls, own ^ drawn, strict=True)
        )  # fmt: skip
        if INLINE_SIZE.name in use.logs and toy.calls:
            logs[INLINE_SIZE.name] = toy_log(
                toy.calls,
                inlined,
                log_probability=np.where(drawn & ~np.array(by_table), -3.0, -0.1).tolist(),
                by_table=by_table,
                defaults=[
                    -1 if table and not use.log_default else default
                    for table, default in zip(by_table, defaults, strict=True)
                ],
            )
    return Compilation(
        status=CompileStatus.OK,
        sizes=toy_sizes(toy.weigh(inlined), signatures=toy.signatures),
        logs=logs,
        user_seconds=toy.user_seconds,
        wall_seconds=toy.user_seconds,
    )


def _decide(toy: ToyModule, policy: str, defaults: tuple[bool, ...]) -> Sequence[bool]:
    """Compute the decisions [T] of a policy or rule without exploration."""
    if policy == ":default":
        return defaults
    if policy.startswith(":"):
        return toy.rules.get(policy, (policy == ALWAYS,) * len(toy.calls))
    loaded: Policy = load_policy(Path(policy))
    values = np.array([[call.features[name] for name in loaded.features] for call in toy.calls], np.int64)
    return (loaded.preferences(values, np.array(defaults, bool)) > 0).tolist()


def _read_decisions(table: bytes) -> dict[int, bool]:
    """Read the decisions of a table with one module, by the key of the call site."""
    entries = parse_table(table, name="table").entries if table else ()
    return {int(key) & ~1: bool(int(key) & 1) for entry in entries for key in entry.keys}
