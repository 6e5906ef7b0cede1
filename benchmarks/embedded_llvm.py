"""Does an LLVM with a policy inside decide as the plugin does? opt and llc, linked from Debian's static archives.

Needs the sources of Debian's package that the installed LLVM was built from, of which a few files are compiled:
`apt-get source --download-only llvm-toolchain-19`, then unpack llvm/lib/Analysis, llvm/lib/CodeGen and llvm/tools.
"""

import dataclasses
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Setup, draw_modules, run_benchmark
from release_mode import HIDDEN, MEMBERS, draw_policy, recorded
from results import Cell, Result, Table

from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import HEURISTIC
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import CorpusError, ToolError
from mlgokit.export.release import CLASSES, export_release
from mlgokit.module import Module
from mlgokit.policy.store import load_policy, save_policy
from mlgokit.problems import INLINE_SIZE, PROBLEMS, REGALLOC_EVICTION
from mlgokit.traces import read_log

SHIM = Path(__file__).with_suffix(".h")
DRAWN = "of drawn weights"
_SECONDS = 900
_FITTED_MODULES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where LLVM asks a model: its source, the tool, and what turns the model on."""

    source: str
    macro: str
    tool: str
    tool_sources: tuple[str, ...]
    flag: str


PLACES = {
    INLINE_SIZE.name: _Place(
        source="lib/Analysis/MLInlineAdvisor.cpp",
        macro="LLVM_HAVE_TF_AOT_INLINERSIZEMODEL",
        tool="opt",
        tool_sources=("opt.cpp", "optdriver.cpp", "NewPMDriver.cpp"),
        flag="-enable-ml-inliner=release",
    ),
    REGALLOC_EVICTION.name: _Place(
        source="lib/CodeGen/MLRegAllocEvictAdvisor.cpp",
        macro="LLVM_HAVE_TF_AOT_REGALLOCEVICTMODEL",
        tool="llc",
        tool_sources=("llc.cpp", "NewPMDriver.cpp"),
        flag="-regalloc-enable-advisor=release",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedLlvm:
    """Build opt and llc with models inside, and compile modules with them and with the plugin."""

    source: Path = Path("build/llvm-toolchain-19_19.1.7/llvm")
    """Folder `llvm` of the package's sources."""
    corpus: Path = Path("quickstart/corpus19")
    """A corpus of that LLVM (`mlgokit corpus extract --llvm 19`)."""
    folder: Path = Path("build/embedded-llvm")
    """Where objects and programs are kept."""
    policies: tuple[Path, ...] = ()
    """Policies of inlining or eviction on LLVM's own features, beside those of drawn weights."""
    modules: int = 60
    """Modules drawn from all projects; 0 for all."""
    seed: int = 1
    """Of the draw of modules and of the networks."""
    llvm: int = 19
    """LLVM major of the archives and the sources."""
    json: Path = Path("docs/results/embedded_llvm.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One module by both: what was decided, and whether what came out is the same."""

    plugin: list[int]
    embedded: list[int]
    nanoseconds: list[int]
    same_output: bool
    same_plain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """Who compiles: the installed tools with the plugin, and the tool with the model."""

    toolchain: Toolchain
    plugin: Path
    tool: Path
    folder: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(EmbeddedLlvm, measure, arguments)


def measure(config: EmbeddedLlvm, setup: Setup) -> Result:
    """Draw policies, build the tools with each inside, and compare them with the plugin on every module.

    Raises:
        ToolError: something does not compile, or a tool is missing.
    """
    rng = np.random.default_rng(config.seed)
    toolchain = setup.toolchain(config.llvm)
    modules = draw_modules(setup.corpus(config.corpus).modules, config.modules, rng)
    setup.policies(config.policies)
    plugin = build_plugin(toolchain)
    clang = ClangCompiler(toolchain=toolchain, plugin=plugin)
    # The limits of that record are those of release_mode's, which are not reached here.
    limits: Any = dataclasses.replace(_Limits(), observations=10**9)
    seen = recorded(clang, modules[:_FITTED_MODULES], dict.fromkeys(PLACES, HEURISTIC), limits, setup.report)
    config.folder.mkdir(parents=True, exist_ok=True)
    policies: list[tuple[str, str, Path]] = []
    for name, log in seen.items():
        path = config.folder / f"{name}.policy"
        save_policy(dataclasses.replace(draw_policy(name, log, rng), doubt=0.0), path)
        policies.append((name, DRAWN, path))
    policies += [(load_policy(path).problem, path.name, path) for path in config.policies]
    rows: list[tuple[Cell, ...]] = []
    for index, (problem, title, policy) in enumerate(policies):
        tool = build_tool(config, toolchain, (problem, policy), f"{problem}-{index}")
        site = _Site(toolchain=toolchain, plugin=plugin, tool=tool, folder=config.folder)
        pairs = [compared(site, problem, policy, module) for module in _reported(modules, setup, title)]
        rows.append(summary(problem, title, [one for one in pairs if one is not None]))
    table = Table(
        title="Modules by both",
        columns=(
            "problem", "policy", "modules", "decisions", "decided otherwise", "other output",
            "of these, other output without a model too", "microseconds for a decision, median", "mean",
        ),
        rows=tuple(rows),
        note="The plugin's side is Debian's opt (-passes='default<Oz>') or llc (-O2) with the plugin; the other is the "
        "same tool, linked from Debian's static archives, with LLVM's advisor compiled again from Debian's sources "
        "with the exported model inside. Output is the module's IR as text, or the object. llc reads what opt made of "
        f"the module plainly. Drawn networks have {MEMBERS} members of {'-'.join(map(str, HIDDEN))} units. Times are "
        "of the model's Run alone, in the compilations themselves, on a machine that had other work.",
    )  # fmt: skip
    differ = sum(int(row[4] or 0) for row in rows)
    other = sum(int(row[5] or 0) - int(row[6] or 0) for row in rows)
    return Result(
        benchmark="embedded_llvm",
        question="Does an LLVM that has a policy inside, in its release mode, decide as the plugin does?",
        answer=f"{differ} of {sum(int(row[3] or 0) for row in rows)} decisions differ, and {other} of "
        f"{sum(int(row[2] or 0) for row in rows)} outputs; "
        + ", ".join(f"{row[0]} {row[1]} {row[7]:.1f} microseconds" for row in rows),
        bar="no decision and no output differs",
        passed=differ == 0 and other == 0,
        seed=config.seed,
        tables=(table,),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    observations: int = 0
    minutes: float = 60.0


def _reported(modules: Sequence[Module], setup: Setup, label: str) -> Any:
    for index, module in enumerate(modules):
        setup.report(index, len(modules), label)
        yield module


def build_tool(config: EmbeddedLlvm, toolchain: Toolchain, decides: tuple[str, Path], name: str) -> Path:
    """The tool of a problem with the policy inside.

    Raises:
        ToolError: it does not compile, or sources are missing.
    """
    problem, policy = decides
    place, model = PLACES[problem], CLASSES[problem]
    folder = (config.folder / name).resolve()
    made = export_release(toolchain, [policy], folder, name=f"Exported{model}")
    (folder / f"{model}.h").write_text(
        f'#include "Exported{model}.h"\n#define MODEL {model}\n#define EXPORTED Exported{model}\n'
        f'#include "{SHIM}"\n#undef MODEL\n#undef EXPORTED\n'
    )
    # Debian's tools have Polly among their extensions, which takes part in no pipeline unless it is asked for.
    (folder / "llvm" / "Support").mkdir(parents=True, exist_ok=True)
    (folder / "llvm" / "Support" / "Extension.def").write_text("#undef HANDLE_EXTENSION\n")
    advisor = config.source / place.source
    sources = [advisor, *(config.source / "tools" / place.tool / one for one in place.tool_sources)]
    objects: list[Path] = []
    for source in sources:
        # The tool's own sources are the same whatever is inside.
        kept = folder if source is advisor else config.folder.resolve() / f"{place.tool}-objects"
        kept.mkdir(exist_ok=True)
        objects.append(kept / f"{source.stem}.o")
        if source is not advisor and objects[-1].exists():
            continue
        words = [
            toolchain.clangxx, "-O2", "-std=c++17", "-DNDEBUG", "-fno-exceptions", "-ffunction-sections", "-w",
            f"-D{place.macro}", "-I", folder, "-isystem", str(toolchain.include_dir), "-I", advisor.parent,
            "-c", source, "-o", objects[-1],
        ]  # fmt: skip
        _checked(words)
    if toolchain.library_dir is None:
        raise ToolError(f"llvm-{toolchain.major}-dev: expected its archives, found none; install it")
    libraries = sorted(toolchain.library_dir.glob("libLLVM*.a"))
    output = folder / place.tool
    linked = [f"-l:{name}" for name in _shared_by(toolchain.library_dir, toolchain.major)]
    _checked([
        toolchain.clangxx, "-fuse-ld=lld", "-Wl,--gc-sections", *objects, made.object, "-Wl,--start-group", *libraries,
        "-Wl,--end-group", *linked, "-lrt", "-ldl", "-lm", "-o", output,
    ])  # fmt: skip
    return output


def _shared_by(folder: Path, major: int) -> list[str]:
    """Libraries that the installed LLVM loads and its archives leave to whoever links them."""
    shared = next(folder.glob(f"libLLVM*{major}*.so*"))
    text = process.run(["ldd", shared], timeout_seconds=60).stdout.decode()
    names = [line.split()[0] for line in text.splitlines() if line.split()]
    return [name for name in names if name.startswith(("libz.", "libzstd.", "libz3.", "libxml2."))]


def _checked(words: Sequence[str | os.PathLike[str]], **more: Any) -> process.Completed:
    done = process.run(words, timeout_seconds=_SECONDS, **more)
    if done.returncode != 0:
        raise ToolError(
            f"{Path(words[0]).name}: expected it to succeed, found exit code {done.returncode}: "
            f"{' '.join(done.stderr.strip().splitlines()[:2])}; check --source and llvm-dev"
        )
    return done


def compared(site: _Site, problem: str, policy: Path, module: Module) -> Pair | None:
    """One module plainly and decided, by the installed tool and by the one with the model; None if nothing was asked.

    Raises:
        CorpusError: the installed tool fails without the plugin.
        ToolError: a tool is missing, or fails where the other does not.
    """
    toolchain, plugin, tool, folder = site.toolchain, site.plugin, site.tool, site.folder
    installed = {"opt": toolchain.opt, "llc": toolchain.llc}[PLACES[problem].tool]
    if installed is None:
        raise ToolError(f"{PLACES[problem].tool}: expected it beside {toolchain.clang}, found none; install llvm-dev")
    noted, log = folder / "noted", folder / "decided.log"
    for path in (noted, log):
        path.unlink(missing_ok=True)
    words: tuple[str | Path, ...] = ("-S", "-passes=default<Oz>", module.bitcode)
    load: tuple[str, ...] = (f"-load-pass-plugin={plugin}", f"-mlgokit-policy={policy}", f"-mlgokit-log={log}")
    if problem == REGALLOC_EVICTION.name:
        optimized = folder / "optimized.bc"
        words = (toolchain.opt or installed, "-passes=default<Oz>", module.bitcode, "-o", optimized)
        if process.run(words, timeout_seconds=_SECONDS).returncode != 0:
            raise CorpusError(f"{module.name}: expected opt to read it, found an error; use a corpus of this LLVM")
        words = ("-O2", "-filetype=obj", optimized)
        load = (f"-load={plugin}", f"-mlgokit-eviction-policy={policy}", f"-mlgokit-eviction-log={log}")
    output_of = functools.partial(_output, words=words, folder=folder)
    before, before_own = output_of(installed), output_of(tool)
    # With a log the plugin marks calls in the IR, so that the output is that of a second run.
    output_of(installed, more=load)
    by_plugin = output_of(installed, more=load[:-1])
    by_model = output_of(tool, more=(PLACES[problem].flag,), settings={"MLGOKIT_EMBEDDED_LOG": str(noted)})
    rows = np.fromfile(noted, np.int64).reshape(-1, 2) if noted.exists() else np.zeros((0, 2), np.int64)
    decided = read_log(log) if log.exists() else None
    column = [] if decided is None else decided.columns[PROBLEMS[problem].decision].ravel().tolist()
    if not column and not len(rows):
        return None
    return Pair(
        plugin=[int(value) for value in column],
        embedded=rows[:, 0].tolist(),
        nanoseconds=rows[:, 1].tolist(),
        same_output=by_plugin == by_model,
        same_plain=before == before_own,
    )


def _output(
    program: Path,
    *,
    words: Sequence[str | Path],
    folder: Path,
    more: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> bytes:
    output = folder / "output"
    _checked([program, *more, *words, "-o", output], env=dict(os.environ) | dict(settings or {}))
    return output.read_bytes()


def summary(problem: str, title: str, pairs: Sequence[Pair]) -> tuple[Cell, ...]:
    """A row of the table."""
    taken = np.concatenate([np.array(one.nanoseconds, np.float64) for one in pairs]) / 1000
    differ = sum(
        sum(a != b for a, b in zip(one.plugin, one.embedded, strict=False)) + abs(len(one.plugin) - len(one.embedded))
        for one in pairs
    )
    others = [one for one in pairs if not one.same_output]
    return (
        problem, title, len(pairs), sum(len(one.embedded) for one in pairs), differ, len(others),
        sum(not one.same_plain for one in others), float(np.median(taken)), float(taken.mean()),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
