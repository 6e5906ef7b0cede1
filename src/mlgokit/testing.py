"""A compiler that starts no process, for tests of whatever compiles: what it gives is a function of what it is asked.

:func:`toy_compiler` makes one of small modules whose functions shrink and grow with the calls that are inlined, and
honours policies, decision tables and exploration, logs included. For everything else, give :class:`FakeCompiler` a
function.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.compiler.compilation import Compilation, CompileStatus, add_logs
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.objects.measure import ObjectSizes, SectionTotals
from mlgokit.compiler.request import ALWAYS, PLAIN, CompileRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.files import atomic_write
from mlgokit.module import Module
from mlgokit.policy.network import Policy
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.spec import TensorSpec
from mlgokit.tables.decisions import parse_table
from mlgokit.traces import ContextSpan, Header, Log, render_log
from mlgokit.traces.log import function_id

FAKE_TOOLCHAIN = Toolchain(major=22, version="22.0.0", clang=Path("clang"), clangxx=Path("clang++"))

Answer = Callable[[Module, CompileRequest], Compilation]


@dataclass(slots=True, kw_only=True)
class FakeCompiler:
    """A compiler that answers what it is told to.

    Attributes:
        answer: gives the compilation, with all logs that were asked for; what the request does not keep is left out
            here, as a compiler would.
        toolchain: whose clang it says it is.
        plugin: the plugin of a use that names none.
        workers: how many compilations are best made at once.
        asked: all that was compiled, in the order of the calls.
        closed: how often it was closed.
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
        """Its version; it has no program."""
        return Loaded(version=self.toolchain.version_text or self.toolchain.version, target=self.toolchain.target)

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """The answer, and the files that the request wants kept."""
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
        """Count it."""
        self.closed += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyCall:
    """A call that the inliner is asked about.

    Attributes:
        caller: the function with the call site.
        callee: the function called.
        site: the key of the call site, an even number.
        features: what the policy sees; the same names in all calls of a module.
        default: what LLVM's heuristic decides.
    """

    caller: str
    callee: str
    site: int
    features: Mapping[str, int] = field(default_factory=dict[str, int])
    default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyModule:
    """A module of which nothing counts but its calls.

    Attributes:
        calls: [T] in the order of the questions.
        weigh: bytes of code by function, from the decisions [T].
        signatures: the COMDAT group of a function, where it is in one.
        rules: decisions [T] of rules; ``:always`` inlines all, every other one inlines nothing.
        fails: why the compiler fails, from what is asked; empty if it succeeds.
        user_seconds: processor time of a compilation.
    """

    calls: tuple[ToyCall, ...]
    weigh: Callable[[tuple[bool, ...]], Mapping[str, int]]
    signatures: Mapping[str, str] = field(default_factory=dict[str, str])
    rules: Mapping[str, tuple[bool, ...]] = field(default_factory=dict[str, tuple[bool, ...]])
    fails: Callable[[CompileRequest], str] = lambda _: ""
    user_seconds: float = 1.0


def toy_compiler(modules: Mapping[str, ToyModule]) -> FakeCompiler:
    """A compiler of toy modules, by name; further settings are its attributes.

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
    """A module of which little is known: a toy, that needs no file, or bitcode that a test made."""
    return Module(
        name=name,
        project=project,
        language=language,
        bitcode=Path(f"{name}.bc") if bitcode is None else bitcode,
        command_line=command_line,
        bitcode_bytes=1,
    )


def toy_sizes(
    functions: Mapping[str, int], *, signatures: Mapping[str, str] | None = None, rest: int = 0
) -> ObjectSizes:
    """An object with so many bytes of code by function.

    Args:
        functions: bytes by function.
        signatures: the COMDAT group of a function, where it is in one.
        rest: bytes of code that no function owns.
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
    )


def toy_log(
    calls: Sequence[ToyCall],
    inlined: Sequence[bool],
    *,
    log_probability: Sequence[float] | None = None,
    by_table: Sequence[bool] | None = None,
    defaults: Sequence[int] | None = None,
) -> Log:
    """The inlining log of a compilation; a decision without a probability was certain."""
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
    reason = toy.fails(request)
    if reason:
        return Compilation(status=CompileStatus.FAILED, reason=reason, user_seconds=toy.user_seconds)
    defaults, use = tuple(call.default for call in toy.calls), request.use
    inlined, logs = defaults, dict[str, Log]()
    if use is not None:
        own = np.array(_followed(toy, use.policies.get(INLINE_SIZE.name, ":default"), defaults), bool)
        drawn = np.random.default_rng(use.seed).random(len(own)) < use.flip_probability
        given = _given(use.decisions)
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


def _followed(toy: ToyModule, policy: str, defaults: tuple[bool, ...]) -> Sequence[bool]:
    """[T] what a policy decides where it does not explore."""
    if policy == ":default":
        return defaults
    if policy.startswith(":"):
        return toy.rules.get(policy, (policy == ALWAYS,) * len(toy.calls))
    loaded: Policy = load_policy(Path(policy))
    values = np.array([[call.features[name] for name in loaded.features] for call in toy.calls], np.int64)
    return (loaded.preferences(values, np.array(defaults, bool)) > 0).tolist()


def _given(table: bytes) -> dict[int, bool]:
    """The decisions of a table with one module, by the key of the call site."""
    entries = parse_table(table, name="table").entries if table else ()
    return {int(key) & ~1: bool(int(key) & 1) for entry in entries for key in entry.keys}
