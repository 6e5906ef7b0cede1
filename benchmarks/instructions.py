"""Instructions that a compiler executes, and in which functions: counted by callgrind, the same on any machine."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError
from mlgokit.module import Module

PARTS: Mapping[str, tuple[str, ...]] = {
    "analyses of callees": ("llvm::getInliningCostFeatures(", "llvm::getInliningCostEstimate("),
    "counts of bodies": (
        "mlgokit::CallerCounter::beforeInlining(", "mlgokit::CallerCounter::afterInlining(",
        "mlgokit::BodyCountsAnalysis::run(", "mlgokit::CostTraitsAnalysis::run(",
    ),
    "the plugin's features": ("mlgokit::CallSiteObserver::observe(",),
    "the network": ("mlgokit::Policy::normalise(", "mlgokit::Network::evaluate("),
    "reading the policy": ("mlgokit::loadPolicy(",),
    "the heuristic": ("llvm::shouldInline(",),
    "all of deciding": (
        "llvm::DefaultInlineAdvisor::getAdviceImpl(", "mlgokit::(anonymous namespace)::PolicyAdvisor::getAdviceImpl(",
        "mlgokit::(anonymous namespace)::PolicyAdvisor::onPass",
    ),
    "the inliner": ("llvm::InlinerPass::run(",),
}  # fmt: skip
"""By part, the functions that are counted with all that they call; the inliner has all the others in it."""
_LINE = re.compile(r"\s*([\d,]+) \(\s*[\d.]+%\)\s+[^:]*:(.*?)(?: \[[^\]]*\])?$")
_RECURSION = re.compile(r"'\d+$")


def count_instructions(
    toolchain: Toolchain, module: Module, plugin: Path | None, scratch: Path, *, timeout_seconds: float
) -> dict[str, int]:
    """Compile ``module`` under callgrind.

    Args:
        toolchain: whose clang.
        module: what is compiled.
        plugin: an exported plugin, or ``None``.
        scratch: a folder.
        timeout_seconds: deadline; callgrind is some fifty times slower than the compiler.

    Returns:
        Executed instructions of the whole process under ``""``, and of each of :data:`PARTS`.

    Raises:
        ToolError: the compiler or valgrind fails.
    """
    profile = scratch / "profile"
    extra = [] if plugin is None else [f"-fpass-plugin={plugin}"]
    argv = [
        "valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={profile}", toolchain.clang,
        *(word for word in module.command_line if word), *extra, "-x", "ir", module.bitcode.absolute(), "-emit-obj",
        "-o", scratch / "counted.o",
    ]  # fmt: skip
    done = process.run(argv, timeout_seconds=timeout_seconds)
    if done.returncode != 0:
        raise ToolError(
            f"{module.name}: expected callgrind to run the compiler, found exit code {done.returncode} "
            f"({done.stderr.strip().splitlines()[-1:]}); install valgrind, or give it more time"
        )
    argv = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", "--show-percs=yes", profile]
    listed = process.run(argv, timeout_seconds=timeout_seconds)
    return read_parts(listed.stdout.decode(errors="replace").splitlines())


def read_parts(lines: Sequence[str]) -> dict[str, int]:
    """The counts in what callgrind_annotate prints; a recursive call is in its first one already.

    Example:
        >>> found = read_parts(["9,000 (100.0%)  PROGRAM TOTALS", " 700 ( 7.8%)  ???:llvm::shouldInline(int) [/l/so]",
        ...                     " 100 ( 1.1%)  ???:llvm::shouldInline(int)'2 [/l/so]"])
        >>> found[""], found["the heuristic"], found["the network"]
        (9000, 700, 0)
    """
    found = dict.fromkeys(("", *PARTS), 0)
    for line in lines:
        if line.endswith("PROGRAM TOTALS"):
            found[""] = int(line.split()[0].replace(",", ""))
        match = _LINE.match(line)
        if not match or _RECURSION.search(match[2]):
            continue
        for part, names in PARTS.items():
            if match[2].startswith(names):
                found[part] += int(match[1].replace(",", ""))
    return found
