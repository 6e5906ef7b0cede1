"""Functions with many targets of a jump: what policies do to their bytes, and to what they compute."""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dispatchers import HEADER, SHAPES, Dispatcher, draw_dispatcher, driver
from harness import Setup, run_benchmark
from results import Cell, Result, Table, percent

from mlgokit.compiler import process
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.toolchain import SUPPORTED_MAJORS, Toolchain
from mlgokit.errors import ToolError
from mlgokit.policy.pretrained import policy_files
from mlgokit.policy.store import load_policy

TARGETS = (4, 6, 10, 20, 60, 200)
"""Of each shape."""
LARGE = {"switch": (1000, 6000), "states": (1000,), "goto": (500,)}
"""Of the shapes that LLVM compiles in seconds with so many."""
FEW = 20
"""Most targets where policies for size hardly act: at the other levels."""
SECONDS = 600.0
"""Most that a compilation may take, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Compile drawn functions with many targets of a jump plainly and with builtin:Oz, and run both."""

    policy: str = "builtin:Oz"
    """The policies, as `mlgokit export plugin` takes them."""
    majors: tuple[int, ...] = SUPPORTED_MAJORS
    """LLVM majors."""
    levels: tuple[str, ...] = ("Oz", "Os", "O2")
    """Optimization levels; those beside `Oz` have no function with more than 20 targets."""
    seeds: int = 3
    """Functions of each shape and number of targets."""
    most: int = 6000
    """Most targets of a function; those with thousands take minutes."""
    seed: int = 1
    """Of all draws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Functions of one shape and number of targets, which share an object, compiled in both ways.

    Attributes:
        functions: the functions.
        text: bytes of machine code of the object, plain and with the policies.
        whole: its bytes in llvm-size's text column, likewise.
        grown: names of functions that are larger: machine code, jump tables and unwind tables.
        other: names of functions that printed something else when they were run.
    """

    functions: tuple[Dispatcher, ...]
    text: tuple[int, int]
    whole: tuple[int, int]
    grown: tuple[str, ...]
    other: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Dispatch, measure, arguments)


def measure(config: Dispatch, setup: Setup) -> Result:
    """Draw, compile, run and compare."""
    groups = draw_groups(config.seeds, config.seed, most=config.most)
    files = policy_files([config.policy])
    setup.policies(files)
    found: list[tuple[int, str, Compared]] = []
    for major in config.majors:
        toolchain = setup.toolchain(major, suffix=f" {major}")
        with tempfile.TemporaryDirectory(prefix="dispatch-") as scratch:
            folder = Path(scratch)
            plugin = link_policies(toolchain, {load_policy(one).problem: one for one in files}, folder / "policy.so")
            for level in config.levels:
                kept = [one for one in groups if level == "Oz" or one[0].targets <= FEW]
                for done, group in enumerate(kept, 1):
                    found.append((major, level, compare(toolchain, group, plugin, level, folder)))
                    setup.report(done, len(kept), f"groups at -{level}, LLVM {major}")
    return summarise(found, config)


def draw_groups(seeds: int, seed: int, *, most: int = 6000) -> list[tuple[Dispatcher, ...]]:
    """The functions, by shape and number of targets."""
    return [
        tuple(
            draw_dispatcher(
                f"f{place}_{targets}_{one}", shape, targets, np.random.default_rng([seed, place, targets, one])
            )
            for one in range(seeds)
        )
        for place, shape in enumerate(SHAPES)
        for targets in (*TARGETS, *LARGE.get(shape, ()))
        if targets <= most
    ]


def compare(toolchain: Toolchain, functions: Sequence[Dispatcher], plugin: Path, level: str, folder: Path) -> Compared:
    """Compile ``functions``, which share a language, plainly and with ``plugin``, and run both programs.

    Raises:
        ToolError: something does not compile or run.
    """
    cpp = functions[0].cpp
    source, main_file = folder / ("all.cpp" if cpp else "all.c"), folder / "main.c"
    source.write_text(HEADER + "".join(one.text for one in functions))
    main_file.write_text(driver([one.name for one in functions]))
    compiler = toolchain.clangxx if cpp else toolchain.clang
    _run([toolchain.clang, "-O1", "-w", "-c", main_file, "-o", folder / "main.o"])
    sizes, printed = [], []
    for name, options in (("plain", ()), ("policies", (f"-fpass-plugin={plugin}",))):
        built = folder / f"{name}.o"
        _run([compiler, f"-{level}", "-w", "-ffunction-sections", *options, "-c", source, "-o", built])
        _run([toolchain.clangxx, built, folder / "main.o", "-o", folder / name])
        sizes.append(measure_object(built))
        printed.append(_run([folder / name]).splitlines())
    owned = [dict(zip(one.function_names, one.function_bytes.sum(1).tolist(), strict=True)) for one in sizes]
    names = [one.name for one in functions]
    return Compared(
        functions=tuple(functions),
        text=(sizes[0].totals.text, sizes[1].totals.text),
        whole=(sizes[0].llvm_size_text, sizes[1].llvm_size_text),
        grown=tuple(name for name in names if owned[1][name] > owned[0][name]),
        other=tuple(name for name, *lines in zip(names, *printed, strict=True) if lines[0] != lines[1]),
    )


def _run(argv: Sequence[str | Path]) -> str:
    done = process.run([str(word) for word in argv], timeout_seconds=SECONDS)
    if done.returncode != 0:
        raise ToolError(
            f"dispatch: expected {' '.join(map(str, argv))} to succeed, found exit code {done.returncode}; "
            f"read what it says: {done.stderr.strip()[:300]}"
        )
    return done.stdout.decode()


def summarise(found: Sequence[tuple[int, str, Compared]], config: Dispatch) -> Result:
    """The tables."""
    rows: list[tuple[Cell, ...]] = []
    for key in dict.fromkeys((major, level, one.functions[0].shape) for major, level, one in found):
        group = [one for major, level, one in found if (major, level, one.functions[0].shape) == key]
        text, whole = (_change(group, which) for which in ("text", "whole"))
        functions = sum(len(one.functions) for one in group)
        grown, other = sum(len(one.grown) for one in group), sum(len(one.other) for one in group)
        rows.append((key[0], f"-{key[1]}", key[2], functions, grown, _larger(group), other, text, whole))
    functions, grown, objects, other = (sum(int(row[place] or 0) for row in rows) for place in (3, 4, 5, 6))
    worst = [
        (
            f"-{level}",
            major,
            name,
            one.functions[0].shape,
            one.functions[0].targets,
            one.text[1] - one.text[0],
            one.whole[1] - one.whole[0],
        )
        for major, level, one in found
        for name in one.grown
    ]
    return Result(
        benchmark="dispatch",
        question=f"What does {config.policy} do to functions with many targets of a jump?",
        answer=f"Of {functions:,} functions {grown} are larger, of their objects {objects}, and {other} compute "
        "something else",
        bar="none is larger, no object is, and all compute the same",
        passed=not (grown or objects or other),
        seed=config.seed,
        tables=(
            Table(
                title="Shapes",
                columns=(
                    "LLVM",
                    "level",
                    "shape",
                    "functions",
                    "larger",
                    "larger objects",
                    "other output",
                    "text",
                    "whole",
                ),
                rows=tuple(rows),
                note="An object has the functions of one shape and number of targets. Larger: machine code, jump "
                "tables and unwind tables of a function; of an object, all that llvm-size calls text. Text, machine "
                "code alone, and whole: their change over all objects.",
            ),
            Table(
                title="Larger functions",
                columns=("level", "LLVM", "function", "shape", "targets", "text of its object", "whole"),
                rows=tuple(worst[:100]),
            ),
        ),
    )


def _larger(group: Sequence[Compared]) -> int:
    return sum(one.whole[1] > one.whole[0] for one in group)


def _change(group: Sequence[Compared], which: str) -> str:
    sizes = [getattr(one, which) for one in group]
    return percent(sum(after for _, after in sizes) / sum(before for before, _ in sizes) - 1)


if __name__ == "__main__":
    sys.exit(main())
