"""A program of more than a thousand modules, such as LLVM's own opt: plain, with builtin:Oz, and tuned."""

import dataclasses
import functools
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness import Setup, check_names, clean_environment, export_shipped, kept_row, run_benchmark, tune_words
from results import Cell, Result, Table, percent

from mlgokit.compiler import process
from mlgokit.compiler.llvm_tools import find_llvm_tool
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.sources.fetch import default_cache_folder, fetch_archive
from mlgokit.corpus.sources.projects import Archive
from mlgokit.errors import ToolError, UsageError
from mlgokit.files import atomic_write
from mlgokit.policy.pretrained import SHIPPED

SIDES: tuple[str, ...] = ("plain", SHIPPED, "tuned")
FOLDERS: dict[str, str] = dict(zip(SIDES, ("build-0", "build-1", "build-2"), strict=True))
"""Folder of each side; programs may have its path inside, so all are as long."""
LEVEL = "-Oz"
SECONDS = 600.0
"""Deadline of what is quick."""
_SHOWN = 2000
_STAGE = re.compile(r"^(.*): (\d+) of \2 after (\d+) s$", re.MULTILINE)
"""What ``tune`` says of a stage that has ended."""
_COUNTED = re.compile(
    r"^\s*(Passed|Expectedly Failed|Unsupported|Failed|Timed Out|Unresolved)\s*:\s*(\d+)", re.MULTILINE
)
"""What lit says at its end."""
PASS_TESTS = (
    "ADCE", "BDCE", "ConstraintElimination", "CorrelatedValuePropagation", "DCE", "DeadStoreElimination", "EarlyCSE",
    "GVN", "GVNHoist", "Inline", "JumpThreading", "LICM", "LoopUnroll", "MemCpyOpt", "MergeFunc", "Reassociate", "SCCP",
    "SROA", "SimplifyCFG", "TailCallElim",
)  # fmt: skip
"""Folders of LLVM's tests of passes that are run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeProject:
    """A project, built in a folder beside its sources.

    Attributes:
        archive: where it comes from.
        folders: what of the archive is unpacked, below its top; all if empty.
        configure: words that configure it in the current folder; ``{flag}`` is the flag of a side, or nothing,
            ``{source}`` the folder of the sources, ``{bin}`` that of the compiler, and ``{build}`` the current one.
        build: words that build it.
        program: what is compared.
        tune: words of ``mlgokit tune`` for the plain build in ``{plain}``.
        tools: programs that its tests need, which are not built but taken from the folder of an LLVM of this major.
        test: words that test it.
    """

    archive: Archive
    folders: tuple[str, ...] = ()
    configure: tuple[str, ...]
    build: tuple[str, ...]
    program: str
    tune: tuple[str, ...]
    tools: Mapping[int, tuple[str, ...]] = dataclasses.field(default_factory=dict[int, tuple[str, ...]])
    test: tuple[str, ...] = ()


PROJECTS = {
    "opt": LargeProject(
        archive=Archive(
            registry="debian",
            package="llvm-toolchain-19",
            version="19.1.7",
            file="pool/main/l/llvm-toolchain-19/llvm-toolchain-19_19.1.7.orig.tar.xz",
            sha256="ae498f3bc58ae2d9f64ef5f0c035c4240152bf015a5b7738b15c22e93bdc97ce",
        ),
        folders=("llvm", "cmake", "third-party"),
        configure=(
            "cmake", "-G", "Ninja", "-S", "{source}/llvm", "-B", ".", "-DCMAKE_BUILD_TYPE=MinSizeRel",
            "-DCMAKE_C_COMPILER={bin}/clang", "-DCMAKE_CXX_COMPILER={bin}/clang++", "-DLLVM_USE_LINKER={bin}/ld.lld",
            f"-DCMAKE_C_FLAGS_MINSIZEREL={LEVEL} -DNDEBUG {{flag}}",
            f"-DCMAKE_CXX_FLAGS_MINSIZEREL={LEVEL} -DNDEBUG {{flag}}",
            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DLLVM_TARGETS_TO_BUILD=X86", "-DLLVM_ENABLE_ASSERTIONS=OFF",
            "-DLLVM_TABLEGEN=/usr/lib/llvm-19/bin/llvm-tblgen", "-DLLVM_ENABLE_PLUGINS=OFF",
            "-DLLVM_INCLUDE_EXAMPLES=OFF", "-DLLVM_INCLUDE_BENCHMARKS=OFF", "-DLLVM_INCLUDE_DOCS=OFF",
            "-DLLVM_ENABLE_BINDINGS=OFF", "-DLLVM_ENABLE_ZLIB=OFF", "-DLLVM_ENABLE_ZSTD=OFF",
            "-DLLVM_ENABLE_LIBXML2=OFF", "-DLLVM_ENABLE_LIBEDIT=OFF", "-DLLVM_ENABLE_TERMINFO=OFF",
            "-DLLVM_APPEND_VC_REV=OFF",
        ),
        build=("ninja", "opt", "llvm-config"),
        program="bin/opt",
        tune=("--compile-commands", "{plain}/compile_commands.json", "--links", "{plain}", "--program", "bin/opt"),
        tools={
            19: ("FileCheck", "count", "not", "llvm-as", "llvm-dis", "llvm-extract", "llvm-link", "llvm-profdata",
                 "llvm-readobj", "llvm-symbolizer", "lli", "split-file")
        },
        test=(
            "{build}/bin/llvm-lit", "-s", "--no-progress-bar",
            *(f"{{source}}/llvm/test/Transforms/{one}" for one in PASS_TESTS)
        ),
    ),
    "musl": LargeProject(
        archive=Archive(
            registry="debian",
            package="musl",
            version="1.2.3",
            file="pool/main/m/musl/musl_1.2.3.orig.tar.gz",
            sha256="7d5b0b6062521e4627e099e4c9dc8248d32a30285e959b7eecaa780cf8cfd4a4",
        ),
        configure=(
            "{source}/configure", "--disable-static", "CC={bin}/clang",
            f"CFLAGS={LEVEL} -ffunction-sections -fdata-sections {{flag}}", "LDFLAGS=-fuse-ld=lld -Wl,--gc-sections",
        ),
        build=("make", "lib/libc.so"),
        program="lib/libc.so",
        tune=("--build", "make -j{jobs} lib/libc.so", "--clean", "make clean", "--build-folder", "{plain}",
              "--program", "lib/libc.so"),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """Build a large program plainly, with builtin:Oz and tuned; compare, test, and tell time and memory of each step.

    What was finished is kept in the folder, and a build that did not end in time goes on when it is called again.
    """

    project: Literal["opt", "musl"] = "opt"
    """What is built: LLVM's opt of Debian's sources for X86, some 1,330 modules in C++; or the library of musl, 1,313
    small ones in C."""
    folder: Path | None = None
    """Folder for sources and builds, in no checkout; by default one in the cache. opt takes 3 GB."""
    budget: str = "15m"
    """Time for the search."""
    sides: tuple[str, ...] = SIDES
    """Builds to make and to compare: plain, builtin:Oz, tuned."""
    jobs: int = 2
    """Compilers that run at once."""
    hours: float = 6.0
    """Deadline of a build and of the tuning."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Large, measure, arguments)


def measure(config: Large, setup: Setup) -> Result:
    """Build all sides, test them, and compare."""
    check_names("--sides", config.sides, SIDES)
    if SIDES[0] not in config.sides:
        raise UsageError(f"--sides: expected plain among them, found {', '.join(config.sides)}; add it")
    project, toolchain = PROJECTS[config.project], setup.toolchain(config.llvm)
    place = (config.folder or default_cache_folder() / "large").resolve() / config.project
    source = unpack(project, place)
    setup.inputs[Path(project.archive.file).name] = project.archive.sha256
    steps: dict[str, dict[str, Any]] = {}
    weights: dict[str, dict[str, int]] = {}
    flags, tuned = {"plain": ""}, dict[str, Any]()
    for number, side in enumerate(side for side in SIDES if side in config.sides):
        setup.report(number, len(config.sides), f"make {config.project} {side}")
        if side == SHIPPED:
            flags[side] = export_shipped(place / "policies.so", toolchain=toolchain, timeout_seconds=SECONDS)
        if side == "tuned":
            tuned = tune(config, project, place, toolchain=toolchain, steps=steps)
            flags[side] = str(tuned["flag"])
        build = functools.partial(build_side, config, project, place, source, toolchain=toolchain, steps=steps)
        weights[side] = build(side, flag=flags[side])
    return result_of(config, weights, steps, tuned, modules=count_modules(place))


def unpack(project: LargeProject, place: Path) -> Path:
    """The folder of the sources, with the permissions of the archive, which tests and scripts need."""
    source = place / "source"
    if source.exists():
        return source
    archive = fetch_archive(project.archive, cache_folder=default_cache_folder())
    listed = process.run(["tar", "-tf", str(archive)], timeout_seconds=SECONDS)
    top = listed.stdout.decode().partition("/")[0]
    fresh = place / "unpacking"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    words = ["tar", "-xf", str(archive), "-C", str(fresh), "--strip-components=1"]
    words += [f"{top}/{name}" for name in project.folders]
    done = process.run(words, timeout_seconds=SECONDS)
    if done.returncode:
        raise ToolError(
            f"{archive.name}: expected tar to unpack it, found: {done.stderr[-_SHOWN:].strip()}; try it by hand"
        )
    fresh.rename(source)
    return source


def build_side(
    config: Large,
    project: LargeProject,
    place: Path,
    source: Path,
    side: str,
    *,
    flag: str,
    toolchain: Toolchain,
    steps: dict[str, dict[str, Any]],
) -> dict[str, int]:
    """Configure, build and test one side by the project's own tools; return what its program weighs, in bytes."""
    name = FOLDERS[side]
    folder = place / name
    folder.mkdir(exist_ok=True)
    marks = {"{source}": str(source), "{build}": str(folder), "{bin}": str(toolchain.clang.parent), "{flag}": flag}
    run = functools.partial(run_step, place, folder=folder, hours=config.hours)
    steps[f"configure, {side}"] = run(f"{name}-configure", filled(project.configure, marks))
    steps[f"build, {side}"] = run(f"{name}-build", [*project.build, f"-j{config.jobs}"])
    # A tuning that makes the build again cleans its folder.
    weighed = kept_row(place / f"{name}-weight.json", functools.partial(weigh, folder / project.program, toolchain))
    if project.test:
        put_tools(project, folder)
        tested = run(f"{name}-test", [*filled(project.test, marks), f"-j{config.jobs}"], codes=(0, 1))
        steps[f"test, {side}"] = tested
    return weighed


def tune(
    config: Large, project: LargeProject, place: Path, *, toolchain: Toolchain, steps: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Tune the plain build as its user would; return the result."""
    marks = {"{plain}": str(place / FOLDERS[SIDES[0]]), "{jobs}": str(config.jobs)}
    folder, result = place / "tune", place / "tuned.json"
    words = tune_words(place, toolchain=toolchain, budget=config.budget, workers=config.jobs)
    words = [sys.executable, "-m", "mlgokit", *words, "--json"]
    words += [*filled(project.tune, marks), *(["--continue"] if (folder / "search").exists() else [])]
    step = run_step(place, "tune", words, folder=place, hours=config.hours)
    if not result.exists():
        atomic_write(result, step["printed"])
    pages = sum(path.stat().st_size for path in folder.glob("*.html"))
    whole = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    steps["tune"] = {**step, "page_bytes": pages, "folder_bytes": whole}
    return json.loads(result.read_bytes())


def filled(words: Sequence[str], marks: Mapping[str, str]) -> list[str]:
    """Words with what stands for the marks in them.

    Example:
        >>> filled(["{bin}/clang", "-Oz {flag}"], {"{bin}": "/b", "{flag}": "-fpass-plugin=/p.so"})
        ['/b/clang', '-Oz -fpass-plugin=/p.so']
    """
    return [functools.reduce(lambda text, mark: text.replace(mark, marks[mark]), marks, word).strip() for word in words]


def run_step(
    place: Path, name: str, words: Sequence[str], *, folder: Path, hours: float, codes: Sequence[int] = (0,)
) -> dict[str, Any]:
    """Run a step unless it was finished before; time is that of all calls, as builds go on where they were ended.

    Returns:
        Seconds, processor seconds and bytes of the largest process, and what it printed.

    Raises:
        ToolError: it fails, or does not end in time.
    """
    path = place / f"{name}.json"
    row: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    if row.get("is_done"):
        return row
    done = process.run(words, timeout_seconds=3600 * hours, cwd=folder, env=clean_environment())
    ended = not done.timed_out and done.returncode in codes
    row = {
        "seconds": row.get("seconds", 0.0) + done.wall_seconds,
        "processor_seconds": row.get("processor_seconds", 0.0) + done.user_seconds + done.system_seconds,
        "peak_bytes": max(row.get("peak_bytes", 0), done.peak_bytes),
        "printed": done.stdout.decode("utf-8", "replace"),
        "said": done.stderr,
        "is_done": ended,
    }
    atomic_write(path, json.dumps(row, indent=1))
    if not ended:
        how = f"did not end in {hours:g} hours" if done.timed_out else f"ended with {done.returncode}"
        said = (row["printed"][-_SHOWN:] + done.stderr[-_SHOWN:]).strip()
        raise ToolError(f"{name}: expected it to succeed, found that it {how}; call again to go on with it:\n{said}")
    return row


def put_tools(project: LargeProject, folder: Path) -> None:
    """Link the programs that the tests need beside the built ones."""
    for major, names in project.tools.items():
        for name in names:
            tool = Path(f"/usr/lib/llvm-{major}/bin/{name}")
            if not tool.exists():
                raise ToolError(
                    f"{tool}: expected a tool that the tests need; install llvm-{major} and llvm-{major}-tools"
                )
            if not (folder / "bin" / name).exists():
                (folder / "bin" / name).symlink_to(tool)


def weigh(program: Path, toolchain: Toolchain) -> dict[str, int]:
    """Bytes of a program: what llvm-size calls text, and its stripped file."""
    sized = process.run([str(toolchain.clang.parent / "llvm-size"), str(program)], timeout_seconds=SECONDS)
    stripped = program.with_name(f"{program.name}.stripped")
    strip = [str(find_llvm_tool("llvm-strip")), str(program), "-o", str(stripped)]
    if sized.returncode or process.run(strip, timeout_seconds=SECONDS).returncode:
        raise ToolError(f"{program}: expected a program that llvm-size and llvm-strip read, found none; build it again")
    file = stripped.stat().st_size
    stripped.unlink()
    return {"text": int(sized.stdout.split(b"\n")[1].split()[0]), "file": file}


def count_modules(place: Path) -> int:
    """How many modules the tuning compiled; 0 without one."""
    return sum(1 for _ in (place / "tune").rglob("*.bc"))


def tests_of(printed: str) -> dict[str, int]:
    r"""How many tests ended how, by lit's own words.

    Example:
        >>> tests_of("Total: 12\n  Unsupported: 2\n  Passed     : 9\n  Failed: 1")
        {'Unsupported': 2, 'Passed': 9, 'Failed': 1}
    """
    return {how: int(count) for how, count in _COUNTED.findall(printed)}


def result_of(
    config: Large,
    weights: Mapping[str, Mapping[str, int]],
    steps: Mapping[str, Mapping[str, Any]],
    tuned: Mapping[str, Any],
    *,
    modules: int,
) -> Result:
    """The result of what was built."""
    plain = weights[SIDES[0]]

    def row(side: str) -> tuple[Cell, ...]:
        own = weights[side]
        change = "" if side == SIDES[0] else percent(own["text"] / plain["text"] - 1)
        return (
            side,
            own["text"],
            change,
            own["file"],
            "" if side == SIDES[0] else percent(own["file"] / plain["file"] - 1),
        )

    tests = {side: tests_of(steps[f"test, {side}"]["printed"]) for side in weights if f"test, {side}" in steps}
    failed = {
        side: sum(found.get(how, 0) for how in ("Failed", "Timed Out", "Unresolved")) for side, found in tests.items()
    }
    changes = ", ".join(f"{side} {row(side)[2]}" for side in weights if side != SIDES[0])
    passed = all(own["text"] <= plain["text"] for own in weights.values()) and len(set(failed.values())) <= 1
    stages = _STAGE.findall(steps["tune"]["said"]) if tuned else []
    return Result(
        benchmark="large",
        question=f"What do builtin:Oz and `mlgokit tune` make of {config.project}, and in what time and memory?",
        answer=f"text of {config.project}: {changes or 'plain alone was built'}",
        bar=f"no side larger than plain{', and the tests end as on the plain build' if tests else ''}",
        passed=passed,
        seed=1,
        tables=(
            Table(
                title="Program",
                columns=("side", "text (bytes)", "change", "stripped file (bytes)", "change of the file"),
                rows=tuple(row(side) for side in weights),
                note=f"{config.project}, {LEVEL}, lld with --gc-sections, each side built by its own build system.",
            ),
            *(
                [
                    Table(
                        title="Tests",
                        columns=("side", "passed", "failed", "unsupported"),
                        rows=tuple(
                            (side, found.get("Passed", 0) + found.get("Expectedly Failed", 0), failed[side],
                             found.get("Unsupported", 0))
                            for side, found in tests.items()
                        ),
                        note="LLVM's own tests of passes, run by lit with the opt of each side.",
                    )
                ]
                if tests
                else []
            ),
            Table(
                title="Steps",
                columns=("step", "minutes", "processor minutes", "largest process (MiB)"),
                rows=tuple(
                    (name, one["seconds"] / 60, one["processor_seconds"] / 60, one["peak_bytes"] >> 20)
                    for name, one in steps.items()
                ),
                note=f"With {config.jobs} compilers at once.",
            ),
            *(
                [
                    Table(
                        title="The tuning",
                        columns=("stage", "items", "seconds"),
                        rows=tuple((name, int(count), int(seconds)) for name, count, seconds in stages if int(seconds)),
                        note=f"{modules:,} modules, a search of {config.budget}; the folder takes "
                        f"{steps['tune']['folder_bytes'] >> 20} MiB, the page {steps['tune']['page_bytes'] >> 10} KiB.",
                    )
                ]
                if tuned
                else []
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
