"""Asks a model of ``mlgokit export llvm`` through LLVM's own ``ReleaseModeModelRunner``, as a build of LLVM does."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.compiler import process
from mlgokit.compiler.cxx_library import cxx_library_options
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError
from mlgokit.problems import Problem
from mlgokit.spec import AdviceKind
from mlgokit.traces import Log

SOURCE = Path(__file__).with_suffix(".cpp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a model said.

    Attributes:
        decisions: [T] one for each observation.
        nanoseconds: of each pass over all observations, the mean of a decision.
    """

    decisions: npt.NDArray[Any]
    nanoseconds: tuple[float, ...]


def compile_headers(toolchain: Toolchain, output: Path) -> Path:
    """Write what the driver includes, compiled, to ``output``.

    Raises:
        ToolError: it does not compile.
    """
    words = ["-fpch-instantiate-templates", "-x", "c++-header", SOURCE.with_suffix(".h"), "-o", output]
    _compile(toolchain, [*_dialect(toolchain), *words])
    return output


def build_driver(toolchain: Toolchain, headers: Path, model: Path, problem: Problem, output: Path) -> Path:
    """Link the driver with the object beside the header ``model`` and with LLVM's library.

    ``headers`` is from :func:`compile_headers`.

    Raises:
        ToolError: it does not compile.
    """
    asked = [toolchain.clangxx, f"-print-file-name={toolchain.cxx_library}.so"]
    standard = Path(process.run(asked, timeout_seconds=60).stdout.decode().strip()).parent
    _compile(
        toolchain,
        [
            *_dialect(toolchain), f"-Wl,-rpath,{standard}", "-include-pch", headers, "-include", model,
            f"-DMODEL={model.stem}", f"-DDECISION={'float' if problem.advice_kind is AdviceKind.REAL else 'int64_t'}",
            SOURCE, model.with_suffix(".o"), f"-L{toolchain.library_dir}", f"-Wl,-rpath,{toolchain.library_dir}",
            f"-lLLVM-{toolchain.major}", f"--ld-path={toolchain.lld}", "-o", output,
        ],
    )  # fmt: skip
    return output


def _dialect(toolchain: Toolchain) -> tuple[str, ...]:
    """As LLVM's library was compiled."""
    library = cxx_library_options(toolchain.cxx_library)
    return (*library, "-std=c++17", "-fno-rtti", "-fno-exceptions", "-isystem", str(toolchain.include_dir))


def _compile(toolchain: Toolchain, words: Sequence[str | Path]) -> None:
    done = process.run([toolchain.clangxx, *words], timeout_seconds=300)
    if done.returncode != 0:
        raise ToolError(
            f"{SOURCE.name}: expected {toolchain.clangxx} to build it, found exit code {done.returncode} "
            f"({done.stderr.strip().splitlines()[:1]}); install llvm-{toolchain.major}-dev"
        )


def ask_model(
    driver: Path, problem: Problem, log: Log, folder: Path, *, selector: str = "", repetitions: int = 0
) -> Answers:
    """Give all observations of ``log`` to a driver.

    Raises:
        ToolError: it fails; the message has what it said.
    """
    specs = [spec for spec in log.header.features if spec.name in problem.feature_names]
    count = log.observation_count
    tensors = [np.ascontiguousarray(log.columns[spec.name], spec.dtype).reshape(count, -1) for spec in specs]
    (folder / "observations").write_bytes(np.hstack([tensor.view(np.uint8) for tensor in tensors]).tobytes())
    words = [f"{spec.name}:{spec.type}:{tensor.shape[1]}" for spec, tensor in zip(specs, tensors, strict=True)]
    done = process.run(
        [
            driver, problem.decision, selector, folder / "observations", str(repetitions), folder / "answers", *words,
        ],
        timeout_seconds=600,
    )  # fmt: skip
    if done.returncode != 0:
        raise ToolError(f"{driver.name}: expected it to succeed, found: {done.stderr.strip()}; report this as a bug")
    kind = np.float32 if problem.advice_kind is AdviceKind.REAL else np.int64
    return Answers(
        decisions=np.fromfile(folder / "answers", kind), nanoseconds=tuple(json.loads(done.stdout)["hot_nanoseconds"])
    )
