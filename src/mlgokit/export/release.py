"""Export: policies become the header and the object that LLVM's release mode takes for a model compiled ahead of time.

The contract is that of ``llvm/include/llvm/Analysis/ReleaseModeModelRunner.h``; the options of LLVM's build that take
both files are in ``llvm/cmake/modules/TensorFlowCompile.cmake``.
"""

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

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
"""The class that LLVM's advisor of a problem expects; for priorities LLVM expects none yet, and this is ours."""
_COMPILE_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """What was written.

    Attributes:
        header: the class that LLVM's advisor includes.
        source: the object's source.
        object: what LLVM links.
        size_bytes: size of the object.
        build: what to add to the command that configures a build of LLVM; empty where LLVM has no option for it.
        flag: what the compiler that has the model in it takes, to decide by it.
    """

    header: str
    source: str
    object: str
    size_bytes: int
    build: str
    flag: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


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
    """Write the header, the source and the object of a model of ``policies`` into the folder ``output``.

    Args:
        toolchain: whose clang compiles the object; of any major, since it includes nothing of LLVM.
        policies: policy files, all of one problem.
        output: the folder; other models in it stay.
        names: model selectors, one for each policy; for one policy there may be none.
        name: the class; the one that LLVM's advisor expects if not given.
        target: triple of the compiler that shall have the model in it; the host's if not given.
        doubt: number that the policies of effects have in place of their own.

    Raises:
        PolicyError: a policy is not usable, or needs features that LLVM does not supply.
        ToolError: the source does not compile.
        UsageError: policies, names or the class do not fit each other.
    """
    read = {path: _load_exportable(path, doubt) for path in policies}
    problem = _check_together(read, policies, names)
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
        build=f"-C {(output / 'release_mode.cmake').resolve()}" if overridable else "",
        flag=" ".join(["-mllvm", problem.channel_options[0], *_selector_flag(names)]),
    )


def _selector_flag(names: Sequence[str]) -> list[str]:
    return ["-mllvm", f"-ml-inliner-model-selector={names[0]}"] if names else []


def _load_exportable(path: Path, doubt: float | None) -> Policy:
    """The policy, if LLVM's release mode can have it."""
    origin = policy_name(path)
    policy = load_policy(path)
    check_exportable_to_llvm(policy, origin)
    if doubt is not None:
        check_doubt(doubt, [policy])
        policy = replace(policy, doubt=doubt)
    return policy


def _check_together(read: dict[Path, Policy], policies: Sequence[Path], names: Sequence[str]) -> Problem:
    """The problem of all policies."""
    problems = sorted({policy.problem for policy in read.values()})
    if len(problems) != 1:
        listed = " and ".join(problems) or "none"
        raise UsageError(
            f"policies: expected one or more for the same problem, found {listed}; export one model for each problem"
        )
    if len(read) != len(policies):
        raise UsageError("policies: expected each file once, found one twice; leave it out")
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
    """What a build of LLVM needs beside header and object, by path."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _build_files(entry, f"{prefix}{entry.name}/")
        elif not entry.name.endswith((".cpp", ".h")):
            yield prefix + entry.name, entry.read_bytes()


def _compile(toolchain: Toolchain, source: str, header: str, cpp_class: str, target: str | None) -> bytes:
    """The object."""
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
                f"check that libstdc++-dev beside {toolchain.clangxx} is whole"
                if target is None
                else f"install the C++ library for {target}, or compile the source of an export for the host there"
            )
            raise ToolError(
                f"{cpp_class}: expected {toolchain.clangxx} to compile it, found: {first_error(done.stderr)}; {remedy}"
            )
        return (folder / f"{cpp_class}.o").read_bytes()
