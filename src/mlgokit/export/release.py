"""Export policies as a header and an object file that LLVM's release mode links as an ahead-of-time compiled model.

The interface of the class is that of ``llvm/include/llvm/Analysis/ReleaseModeModelRunner.h``. The CMake options that
take both files are in ``llvm/cmake/modules/TensorFlowCompile.cmake``.
"""

import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.cxx_library import cxx_library_options
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError, UsageError
from mlgokit.export.model_source import OPTIONS, model_header, model_source
from mlgokit.export.plugin import check_doubt
from mlgokit.files import atomic_write
from mlgokit.policy.network import Policy
from mlgokit.policy.pretrained import policy_name
from mlgokit.policy.store import load_policy
from mlgokit.policy.targets import check_exportable_to_llvm
from mlgokit.problems import INLINE_SIZE, PROBLEMS, REGALLOC_EVICTION, REGALLOC_PRIORITY, Problem

CLASSES = {
    INLINE_SIZE.name: "InlinerSizeModel",
    REGALLOC_EVICTION.name: "RegAllocEvictModel",
    REGALLOC_PRIORITY.name: "RegAllocPriorityModel",
}
"""The class name that LLVM's advisor expects, by problem. LLVM expects none for priorities yet; that name is ours."""
_COMPILE_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """An exported model; all but ``size_bytes`` are paths or command-line options.

    Attributes:
        header: C++ header with the class that LLVM's advisor includes.
        source: C++ source from which the object file was compiled.
        object: object file that LLVM links.
        size_bytes: size of the object file.
        build: CMake option that configures a build of LLVM with the model; empty if LLVM has none for this problem.
        flag: clang options with which that build of LLVM lets the model decide.
    """

    header: str
    source: str
    object: str
    size_bytes: int
    build: str
    flag: str


def export_release(
    toolchain: Toolchain,
    policies: Sequence[Path],
    output: Path,
    *,
    names: Sequence[str] = (),
    name: str | None = None,
    target: str | None = None,
    doubt: float | None = None,
) -> ExportedModel:
    """Compile ``policies`` into one model; write its header, source and object file into the folder ``output``.

    Args:
        toolchain: toolchain whose clang compiles the source; it includes no LLVM header, so any major will do.
        policies: policy files, all of one problem.
        output: output folder; other models in it are kept.
        names: model selectors, one for each policy; optional if there is one policy.
        name: class name; by default the one that LLVM's advisor expects.
        target: triple of the host that the compiler with the model runs on; by default this machine's.
        doubt: standard deviations by which an effect must exceed zero before the model overrides LLVM's decision, in
            place of the policies' own; all policies must predict effects in bytes.

    Raises:
        PolicyError: a policy is not usable, or needs features that LLVM does not supply.
        ToolError: the source does not compile.
        UsageError: the policies are for different problems, a selector or the class name is missing or invalid, or
            ``doubt`` is invalid.
    """
    read = {path: _load_exportable(path, doubt) for path in policies}
    problem = _common_problem(read, policies, names)
    cpp_class = CLASSES[problem.name] if name is None else name
    if not re.fullmatch(r"[A-Za-z_]\w*", cpp_class):
        raise UsageError(f"name: expected a C++ class name of letters and digits, found {cpp_class!r}; correct it")
    source = "".join(model_source(problem, list(read.values()), names, cpp_class))
    header = model_header(problem, cpp_class)
    built = _compile(toolchain, source, header, cpp_class, target)
    for suffix, data in ((".h", header), (".cpp", source), (".o", built)):
        atomic_write(output / f"{cpp_class}{suffix}", data)
    for path, data in _build_files(resources.files("mlgokit.export") / "release"):
        atomic_write(output / path, data)
    overridable = cpp_class == CLASSES[problem.name] and problem is not REGALLOC_PRIORITY
    return ExportedModel(
        header=str(output / f"{cpp_class}.h"),
        source=str(output / f"{cpp_class}.cpp"),
        object=str(output / f"{cpp_class}.o"),
        size_bytes=len(built),
        build=shlex.join(["-C", str((output / "release_mode.cmake").resolve())]) if overridable else "",
        # One of several policies is selected, the first one as an example.
        flag=" ".join(
            f"-mllvm {option}"
            for option in (problem.channel_options[0], *(f"-ml-inliner-model-selector={name}" for name in names[:1]))
        ),
    )


def _load_exportable(path: Path, doubt: float | None) -> Policy:
    """Load a policy, and check that LLVM's release mode supplies all that it needs."""
    origin = policy_name(path)
    policy = load_policy(path)
    check_exportable_to_llvm(policy, origin)
    if doubt is not None:
        check_doubt(doubt, [policy])
        policy = replace(policy, doubt=doubt)
    return policy


def _common_problem(read: dict[Path, Policy], policies: Sequence[Path], names: Sequence[str]) -> Problem:
    """Check that policies and selector names fit together; return the policies' common problem."""
    problems = sorted({policy.problem for policy in read.values()})
    if len(problems) != 1:
        listed = " and ".join(problems) or "none"
        raise UsageError(
            f"policies: expected policies for the same problem, found {listed}; export one model for each problem"
        )
    if len(read) != len(policies):
        twice = next(path for path in policies if policies.count(path) > 1)
        raise UsageError(f"policies: expected each file once, found {twice} twice; leave one out")
    if len(policies) > 1 and not names:
        raise UsageError(
            f"names: expected a model selector for each of {len(policies)} policies, found none; give --names A B"
        )
    if names and (
        len(names) != len(policies) or len(set(names)) != len(names) or not all(map(str.isidentifier, names))
    ):
        raise UsageError(
            f"names: expected {len(policies)} different words of letters and digits, one for each policy, "
            f"found {', '.join(map(repr, names))}; give one for each"
        )
    problem = PROBLEMS[problems[0]]
    if names and problem is not INLINE_SIZE:
        raise UsageError(
            f"names: expected none for {problem.name}, since LLVM selects models of the inliner only, found "
            f"{', '.join(names)}; export one policy without --names"
        )
    return problem


def _build_files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """List the CMake files that a build of LLVM needs besides header and object file, as pairs of path and content."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _build_files(entry, f"{prefix}{entry.name}/")
        elif not entry.name.endswith((".cpp", ".h")):
            yield prefix + entry.name, entry.read_bytes()


def _compile(toolchain: Toolchain, source: str, header: str, cpp_class: str, target: str | None) -> bytes:
    """Compile the source; return the bytes of the object file."""
    with tempfile.TemporaryDirectory(prefix="mlgokit-export-") as scratch:
        folder = Path(scratch)
        (folder / f"{cpp_class}.cpp").write_text(source)
        (folder / f"{cpp_class}.h").write_text(header)
        done = process.run(
            [
                toolchain.clangxx, *OPTIONS, *cxx_library_options(toolchain.cxx_library),
                *([] if target is None else [f"--target={target}"]),
                "-include", f"{cpp_class}.h", "-c", f"{cpp_class}.cpp", "-o", f"{cpp_class}.o",
            ],
            timeout_seconds=_COMPILE_SECONDS,
            cwd=folder,
        )  # fmt: skip
        if done.returncode != 0:
            remedy = (
                f"check that the development files of the C++ library of {toolchain.clangxx} are installed"
                if target is None
                else f"install the C++ library for {target}, or compile the source of an export for the host there"
            )
            raise ToolError(
                f"{cpp_class}.cpp: expected {toolchain.clangxx} to compile the model, found: "
                f"{first_error(done.stderr)}; {remedy}"
            )
        return (folder / f"{cpp_class}.o").read_bytes()
