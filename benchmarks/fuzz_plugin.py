"""Mutated inputs against the plugin's own readers, under AddressSanitizer and UBSan, by libFuzzer.

Policies, decision tables, allocation tables, trials of allocations and their answers, lists of known functions, and the
settings in the environment: what the plugin reads, ``fuzz_plugin.cpp`` gives to its own code in one process, and uses
what was taken as the plugin uses it. Needs libclang-rt-N-dev. Inputs that reach new code are kept in ``folder``, from
which the next call goes on; a slice is known by reader, seed and number.
"""

import functools
import hashlib
import os
import re
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from harness import Ledger, Setup, check_names, open_ledger, run_benchmark
from results import Cell, Result, Table

from mlgokit.compiler import process
from mlgokit.compiler.plugin_build import compile_objects
from mlgokit.compiler.prebuilt import COMPILE_OPTIONS, plugin_sources, plugin_units
from mlgokit.compiler.reuse.trials import OVERRIDE, TRIAL, Overrides, Series, TrialRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError, UsageError
from mlgokit.policy.network import Gate, Layer, OutputKind, Policy
from mlgokit.policy.normaliser import Quantile, SignedLog
from mlgokit.policy.store import policy_bytes
from mlgokit.tables.decisions import make_entry, table_bytes
from mlgokit.tables.overrides import ALLOCATIONS, PASSES, override_bytes

SOURCE = Path(__file__).with_suffix(".cpp")
SLICE = 250_000
"""Inputs of one process."""
UNITS = (
    "shared/Policy", "shared/Evaluator", "shared/Network", "shared/FirstLayer", "shared/Settings", "shared/Files",
    "shared/Exploration", "shared/Choice",
    "inliner/DecisionTable", "inliner/SiteKeys", "inliner/Features", "identity/BodyHash", "identity/FinalCode",
    "identity/Identity", "trials/OverrideTable", "trials/OverridePlan", "trials/TrialCopy", "trials/CodeSize",
    "shared/Executed", "regalloc/FunctionShape", "shared/HotFunctions", "reuse/Digests",
)  # fmt: skip
"""Of the plugin, what its readers need; others are included by :data:`SOURCE`."""
_OPTIONS = (
    "-O1", "-g1", "-fsanitize=fuzzer-no-link,address,undefined", "-fno-sanitize=vptr,function",
    "-fno-sanitize-recover=undefined",
)  # fmt: skip
"""In place of the plugin's own optimization, and beside its other options."""
# LLVM's library is not built with a sanitizer, and changes vectors that ours marks.
_ENVIRONMENT = {"ASAN_OPTIONS": "detect_container_overflow=0:allocator_may_return_null=0:detect_leaks=1"}
_DONE = re.compile(r"stat::number_of_executed_units: (\d+)")
_KEPT = re.compile(r"stat::new_units_added: *(\d+)")
_WHAT = re.compile(r"SUMMARY: .*|broken promise: .*|ERROR: libFuzzer: .*")


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzPlugin:
    """Give mutated inputs to the plugin's readers under sanitizers, until all were given or a time is over."""

    llvm: int | None = None
    """LLVM major."""
    cases: int = 10_000_000
    """All inputs, shared out among the readers."""
    readers: tuple[str, ...] = ()
    """Names of readers; all if none is named."""
    seed: int = 1
    """Of all mutations."""
    minutes: float = 60.0
    """No slice is begun after so long; the same command goes on."""
    folder: Path = Path("build/fuzz_plugin")
    """Where the program is built, and inputs and finished slices are kept."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(FuzzPlugin, measure, arguments)


def _policies() -> list[bytes]:
    rng = np.random.default_rng(1)
    made: list[bytes] = []
    for output, problem in (
        (OutputKind.EFFECT_BYTES, "inline-size"),
        (OutputKind.LOGITS, "inline-size"),
        (OutputKind.COLUMN_LOGIT, "regalloc-eviction"),
        (OutputKind.PRIORITY, "regalloc-priority"),
    ):
        for quantile in (False, True):
            normaliser: Any = SignedLog(mean=np.ones(2, np.float32), scale=np.full(2, 0.5, np.float32), clip=4.0)
            if quantile:
                normaliser = Quantile(boundaries=np.arange(6, dtype=np.float32).reshape(2, 3))
            widths = (normaliser.width, 3, output.width)
            layers = tuple(
                Layer(
                    rng.normal(size=(2, widths[index], widths[index + 1])).astype(np.float32),
                    rng.normal(size=(2, widths[index + 1])).astype(np.float32),
                )
                for index in range(2)
            )
            gate = Gate(feature="a", margins=(1.0, np.inf)) if output is OutputKind.EFFECT_BYTES and quantile else None
            policy = Policy(
                problem=problem, features=("a", "b"), normaliser=normaliser, layers=layers, output=output, gate=gate,
                bytes_per_unit=5.0, caution=0.5, doubt=0.5 if output is OutputKind.EFFECT_BYTES else 0.0,
                mask="b" if problem == "regalloc-eviction" else "",
            )  # fmt: skip
            made.append(policy_bytes(policy))
    return made


def _decisions() -> list[bytes]:
    # The program's module has functions of these names; the low 64 bits of a name's MD5 are what tables have.
    names = [int.from_bytes(hashlib.md5(name, usedforsecurity=False).digest()[:8], "little", signed=True)
             for name in (b"first", b"second", b"local")]  # fmt: skip
    sites = np.array([4, 8, 1 << 40], np.uint64)
    entry = make_entry(names, sites, np.array([True, False, True]))
    return [
        table_bytes([]),
        table_bytes([entry]),
        table_bytes([entry, make_entry(names[2:], sites[:1], sites[:1] > 0)]),
    ]


def _overrides() -> Overrides:
    return Overrides(
        evictions=np.array([(1, 0, 3), (7, 1, 0)], OVERRIDE), priorities=np.array([(2, 0, 0x8001)], OVERRIDE)
    )


def _allocations() -> list[bytes]:
    return [override_bytes(ALLOCATIONS, {}), override_bytes(ALLOCATIONS, {7: _overrides(), 9: Overrides()})]


def _passes() -> list[bytes]:
    left_out = Overrides(passes=np.array([(7, 0, 0), (7, 1, 0)], OVERRIDE))
    return [override_bytes(PASSES, {}), override_bytes(PASSES, {7: left_out, 9: Overrides()})]


def _trials() -> list[bytes]:
    trials = np.array([(0.1, 0.0, 5, 0, 0), (0.5, 0.5, 6, 1, 0)], TRIAL)
    series = Series(key=7, base=_overrides(), score=1.0, trials=trials)
    return [
        TrialRequest(seconds=1.0).to_bytes(),
        TrialRequest(series=(series, series), seconds=2.5, penalty=1.0).to_bytes(),
    ]


SEEDS = {
    "policy": _policies,
    "decision table": _decisions,
    "allocation table": _allocations,
    "pass table": _passes,
    "trials": _trials,
    "answer of a trial": lambda: [struct.pack("<9d6I", *range(9), 9, 9, 9, 1, 1, 1) + bytes(range(24))],
    "known functions": lambda: [b"", bytes(range(32))],
    "environment": lambda: [
        b"MLGOKIT_SEED=7\0MLGOKIT_TEMPERATURE=0.5\0MLGOKIT_FLIP_PROBABILITY=1e-3\0MLGOKIT_ANY_LEVEL=1",
        b"MLGOKIT_POLICY=:default\0MLGOKIT_LOG_DEFAULT=0\0MLGOKIT_DECISIONS=a\0MLGOKIT_ALLOCATIONS=b\0MLGOKIT_PASSES=c",
    ],
}
"""By the reader's name, inputs to begin with."""


def build(toolchain: Toolchain, folder: Path) -> Path:
    """The program that reads inputs, in a folder of its own for each state of the sources.

    Raises:
        ToolError: it cannot be compiled.
    """
    sources = plugin_sources()
    key = (toolchain.version_text, COMPILE_OPTIONS, _OPTIONS, sorted(sources.items()), SOURCE.read_bytes())
    place = folder / f"llvm-{toolchain.major}-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}"
    program = place / "fuzz_plugin"
    if program.exists():
        return program
    place.mkdir(parents=True, exist_ok=True)
    compiled = {
        name: text for name, text in sources.items() if name.endswith(".h") or name.removesuffix(".cpp") in UNITS
    }
    compiled[SOURCE.name] = SOURCE.read_bytes()
    # What SOURCE includes is no unit of its own.
    options = (*_OPTIONS, "-iquote", str(resources.files("mlgokit") / "plugin"))
    compile_objects(toolchain, place, compiled, options=options)
    # Beside the headers: the version's own library, which another of the machine must not replace.
    library = Path(str(toolchain.include_dir)).parent / "lib"
    links = [f"-L{library}", f"-lLLVM-{toolchain.major}", f"-Wl,-rpath,{library}", "-o", place / "building"]
    objects = [place / f"{unit}.o" for unit in plugin_units(compiled)]
    done = process.run(
        [toolchain.clangxx, "-fsanitize=fuzzer,address,undefined", *objects, *links], timeout_seconds=600
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no message"]
        raise ToolError(
            f"fuzz_plugin: expected {toolchain.clangxx} to link the plugin's readers with sanitizers, found "
            f"{lines[0]}; install its runtime: apt-get install libclang-rt-{toolchain.major}-dev"
        )
    return (place / "building").rename(program)


def run_slice(program: Path, reader: str, runs: int, *, seed: int) -> dict[str, Any]:
    """Give ``runs`` inputs to a reader; how many were given, how many were new, and the finding, if there is one.

    Raises:
        ToolError: the program does not even begin.
    """
    kept = program.parent / reader.replace(" ", "_")
    if not kept.is_dir():
        kept.mkdir()
        for number, data in enumerate(SEEDS[reader]()):
            (kept / f"seed-{number}").write_bytes(data)
    begin = time.monotonic()
    argv = [
        program, kept, f"-runs={runs}", f"-seed={seed}", "-max_len=6000", "-timeout=20", "-rss_limit_mb=3000",
        "-print_final_stats=1", "-reload=0", f"-artifact_prefix={program.parent}/{kept.name}-",
    ]  # fmt: skip
    # Most of an LLVM's own start is outside; a slice of any reader takes a minute or two.
    done = process.run(argv, timeout_seconds=3600, env={**os.environ, **_ENVIRONMENT, "MLGOKIT_FUZZ_READER": reader})
    found = _DONE.search(done.stderr)
    what = _WHAT.search(done.stderr)
    if found is None:
        raise ToolError(f"{program}: expected its count of inputs, found {done.stderr[-300:]!r}; build it again")
    new = _KEPT.search(done.stderr)
    finding = "" if done.returncode == 0 else (what[0] if what else f"exit code {done.returncode}")
    return {
        "runs": int(found[1]),
        "new": int(new[1]) if new else 0,
        "finding": finding,
        "seconds": time.monotonic() - begin,
    }


def run_reader(
    program: Path, reader: str, count: int, *, seed: int, until: float, ledger: Ledger, report: Any
) -> list[dict[str, Any]]:
    """All slices of a reader that are finished, after those that time allows."""
    rows: list[dict[str, Any]] = []
    done = number = 0
    while done < count:
        key = f"{reader} {number}"
        if key not in ledger.known:
            if time.monotonic() > until:
                break
            ledger.add(key, run_slice(program, reader, min(SLICE, count - done), seed=seed * 1_000_003 + number))
        rows.append(ledger.known[key])
        done += rows[-1]["runs"]
        number += 1
        report(min(done, count), count, reader)
    return rows


def measure(config: FuzzPlugin, setup: Setup) -> Result:
    """Give all inputs to all readers.

    Raises:
        UsageError: there is no such reader, or no input.
    """
    names = config.readers or tuple(SEEDS)
    check_names("readers", names, tuple(SEEDS))
    if config.cases < len(names):
        raise UsageError(f"cases: expected an input for each of {len(names)} readers, found {config.cases}; give more")
    toolchain = setup.toolchain(config.llvm)
    program = build(toolchain, config.folder.absolute())
    ledger = open_ledger(program.parent / "slices.jsonl", {"seed": config.seed, "cases": config.cases})
    until = time.monotonic() + 60 * config.minutes
    count = -(-config.cases // len(names))
    run = functools.partial(run_reader, program, seed=config.seed, until=until, ledger=ledger, report=setup.report)
    rows = {name: run(name, count) for name in names}
    total = sum(row["runs"] for found in rows.values() for row in found)
    findings = [
        (f"{name}, slice {number}: {row['finding']}",)
        for name, found in rows.items()
        for number, row in enumerate(found)
        if row["finding"]
    ]
    table: list[tuple[Cell, ...]] = [
        (
            name,
            sum(row["runs"] for row in found),
            sum(row["new"] for row in found),
            sum(bool(row["finding"]) for row in found),
            sum(row["seconds"] for row in found),
        )
        for name, found in rows.items()
    ]
    tables = [
        Table(
            title="Readers",
            columns=("reader", "inputs", "that reached new code", "findings", "elapsed (s)"),
            rows=tuple(table),
            note="A finding is a report of AddressSanitizer or UBSan, 20 seconds for one input, 3 GB of memory, a "
            "broken promise of benchmarks/fuzz_plugin.cpp, or a message with what a terminal obeys.",
        )
    ]
    if findings:
        tables.append(Table(title="Findings", columns=("finding",), rows=tuple(findings[:200])))
    return Result(
        benchmark="fuzz_plugin",
        question="Does any mutated input make a reader of the plugin do what it must not?",
        answer=f"{len(findings)} findings in {total} inputs",
        bar=f"no finding in {config.cases} inputs",
        passed=not findings and total >= config.cases,
        seed=config.seed,
        tables=tuple(tables),
    )


if __name__ == "__main__":
    sys.exit(main())
