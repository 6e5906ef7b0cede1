"""How fast objects with embedded bitcode become a corpus, against LLVM's own extraction, and in how much memory."""

import hashlib
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from results import Cell, Result, Table, corpus_inputs, draw_modules, run_benchmark, tool_versions

import mlgokit
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.corpus import DESCRIPTION_NAME, SIDECAR_NAME, load_corpus
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.progress import Report

BAR = 5.0
BAR_BYTES = 300_000_000
DEADLINE = 3600.0

# Prints the largest resident set of its own program: getrusage also counts what a parent had before the exec.
_IMPORT = """
import sys
from pathlib import Path
from mlgokit.corpus.importers.object_lists import objects_in_folder
from mlgokit.corpus.importers.objects import import_objects
found = import_objects(
    objects_in_folder(Path(sys.argv[1])), corpus_folder=Path(sys.argv[2]), project="benchmark", workers=int(sys.argv[3])
)
status = Path("/proc/self/status").read_text()
print(found.modules, status.partition("VmHWM:")[2].split()[0])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusExtraction:
    """Import the same objects with mlgokit and with extract_ir of mlgo-utils, in turns; compare time and results."""

    reference_python: Path = Path("python3")
    """A Python interpreter that has mlgo-utils (pip install mlgo-utils); it is no dependency of ours."""
    corpus: Path = Path("quickstart/corpus")
    """A corpus; some of its modules are compiled to the objects."""
    modules: int = 40
    """Modules drawn from it."""
    objects: int = 500
    """Objects of the comparison: copies of the compiled ones, each with contents of its own."""
    many: int = 20_000
    """Objects of a further import by mlgokit alone, whose memory is compared with that of the first."""
    repetitions: int = 5
    """How often each imports."""
    workers: int = 2
    """Threads of mlgokit, and processes of extract_ir."""
    seed: int = 1
    """Of the draw."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/corpus_extraction.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """One import.

    Attributes:
        seconds: elapsed time, start of the process included.
        modules: how many came.
        peak_bytes: largest resident set, where it is known.
    """

    seconds: float
    modules: int
    peak_bytes: int | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(CorpusExtraction, measure, arguments)


def measure(config: CorpusExtraction, report: Report) -> Result:
    """Make the objects, import them in turns, compare what came, and import many.

    Raises:
        CorpusError: no module of the corpus gives an object, or the two corpora differ.
        ToolError: a tool is missing or fails.
        UsageError: a number makes no sense.
    """
    for name, value in (("objects", config.objects), ("repetitions", config.repetitions), ("many", config.many)):
        if value < 1:
            raise UsageError(f"{name}: expected at least one, found {value}; correct it")
    toolchain = find_toolchain(config.llvm)
    corpus = load_corpus(config.corpus)
    objcopy = toolchain.clang.resolve().parent / "llvm-objcopy"
    if not objcopy.exists():
        raise ToolError(f"benchmark: expected {objcopy.name} beside {toolchain.clang}, found none; install llvm")
    versions = tool_versions(toolchain) | {"mlgo-utils": _reference_version(config.reference_python)}
    drawn = draw_modules(corpus.modules, config.modules, np.random.default_rng(config.seed))
    with tempfile.TemporaryDirectory(prefix="mlgokit-extraction-") as scratch:
        folder = Path(scratch)
        compiled: list[Path] = []
        for index, module in enumerate(drawn):
            report(index, len(drawn), "compile")
            output = folder / f"{index}.o"
            if _compile(toolchain, module.command_line, module.bitcode, output):
                compiled.append(output)
        report(len(drawn), len(drawn), "compile")
        if not compiled:
            raise CorpusError(f"{config.corpus}: expected modules that compile, found none; give another --corpus")
        few, many = folder / "few", folder / "many"
        _copies(compiled, few, config.objects)
        _links(few, many, config.many)
        ours, theirs = _in_turns(config, few, folder, objcopy, report)
        _compare(folder / "ours", folder / "theirs")
        size = sum(path.stat().st_size for path in few.iterdir())
        report(0, 1, "import many")
        large = _ours(many, folder / "large", config.workers)
        report(1, 1, "import many")
    return _summarise(config, ours, theirs, large, size=size, versions=versions, inputs=corpus_inputs(corpus))


def _compile(toolchain: Toolchain, command_line: Sequence[str], bitcode: Path, output: Path) -> bool:
    argv = [toolchain.clang, *command_line, "-fembed-bitcode=all", "-x", "ir", bitcode, "-emit-obj", "-o", output]
    return process.run(argv, timeout_seconds=120).returncode == 0


def _copies(compiled: Sequence[Path], folder: Path, count: int) -> None:
    """Copies; a number at the end, where no section is, makes each one's contents its own."""
    folder.mkdir()
    for index in range(count):
        path = folder / f"{index}.o"
        path.write_bytes(compiled[index % len(compiled)].read_bytes() + index.to_bytes(8, "little"))


def _links(few: Path, folder: Path, count: int) -> None:
    sources = sorted(few.iterdir())
    for index in range(count):
        path = folder / str(index % 100) / f"{index}.o"
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(sources[index % len(sources)], path)


def _in_turns(
    config: CorpusExtraction, objects: Path, folder: Path, objcopy: Path, report: Report
) -> tuple[list[Once], list[Once]]:
    """Both imports, every other time in reverse; what they wrote last stays."""
    ours: list[Once] = []
    theirs: list[Once] = []

    def import_ours() -> None:
        shutil.rmtree(folder / "ours", ignore_errors=True)
        ours.append(_ours(objects, folder / "ours", config.workers))

    def import_theirs() -> None:
        shutil.rmtree(folder / "theirs", ignore_errors=True)
        theirs.append(_theirs(config, objects, folder / "theirs", objcopy))

    for repetition in range(config.repetitions):
        report(repetition, config.repetitions, "import")
        for turn in (import_ours, import_theirs) if repetition % 2 == 0 else (import_theirs, import_ours):
            turn()
    report(config.repetitions, config.repetitions, "import")
    return ours, theirs


def _ours(objects: Path, corpus_folder: Path, workers: int) -> Once:
    source = Path(mlgokit.__file__).parent.parent
    argv = [sys.executable, "-c", _IMPORT, objects, corpus_folder, str(workers)]
    done = process.run(argv, timeout_seconds=DEADLINE, env=os.environ | {"PYTHONPATH": str(source)})
    if done.returncode != 0:
        raise ToolError(f"import of {objects}: expected success, found: {done.stderr.strip()[-300:]}; look there")
    modules, kilobytes = done.stdout.split()
    return Once(seconds=done.wall_seconds, modules=int(modules), peak_bytes=int(kilobytes) * 1024)


def _theirs(config: CorpusExtraction, objects: Path, corpus_folder: Path, objcopy: Path) -> Once:
    corpus_folder.mkdir()
    options = ["--input", objects, "--input_type", "directory", "--output_dir", corpus_folder]
    options += ["--num_workers", str(config.workers), "--llvm_objcopy_path", objcopy]
    argv = [config.reference_python, "-m", "mlgo.corpus.extract_ir", *options]
    done = process.run(argv, timeout_seconds=DEADLINE)
    if done.returncode != 0:
        raise ToolError(f"extract_ir: expected success, found: {done.stderr.strip()[-300:]}; check --reference-python")
    found = json.loads((corpus_folder / DESCRIPTION_NAME).read_bytes())
    return Once(seconds=done.wall_seconds, modules=len(found["modules"]))


def _reference_version(python: Path) -> str:
    code = "import importlib.metadata as m; print(m.version('mlgo-utils'))"
    done = process.run([python, "-c", code], timeout_seconds=60)
    if done.returncode != 0:
        raise ToolError(
            f"{python}: expected a Python that has mlgo-utils, found none; run pip install mlgo-utils there"
        )
    return done.stdout.decode().strip()


def _digests(folder: Path) -> dict[str, str]:
    """Digests of LLVM's part of a corpus, with the modules of the description in one order."""
    found: dict[str, str] = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != SIDECAR_NAME:
            data = path.read_bytes()
            if path.name == DESCRIPTION_NAME:
                value = json.loads(data)
                data = json.dumps(value | {"modules": sorted(value["modules"])}).encode()
            found[path.relative_to(folder).as_posix()] = hashlib.sha256(data).hexdigest()
    return found


def _compare(ours: Path, theirs: Path) -> None:
    here, there = _digests(ours), _digests(theirs)
    different = sorted(name for name in here | there if here.get(name) != there.get(name))
    if different:
        raise CorpusError(
            f"extraction: expected the same files from both, found {len(different)} that differ, as {different[0]}; "
            "look into it before timing anything"
        )


def _summarise(
    config: CorpusExtraction,
    ours: Sequence[Once],
    theirs: Sequence[Once],
    large: Once,
    *,
    size: int,
    versions: dict[str, str],
    inputs: dict[str, str],
) -> Result:
    rows: list[tuple[Cell, ...]] = []
    for name, runs in (("mlgokit", ours), ("extract_ir of mlgo-utils", theirs)):
        seconds = sorted(once.seconds for once in runs)
        middle = statistics.median(seconds)
        rows.append((name, runs[0].modules, seconds[0], middle, seconds[-1], runs[0].modules / middle))
    ratio = statistics.median(once.seconds for once in theirs) / statistics.median(once.seconds for once in ours)
    few_peak = max(once.peak_bytes or 0 for once in ours)
    peak = max(few_peak, large.peak_bytes or 0)
    memory: list[tuple[Cell, ...]] = [
        (ours[0].modules, few_peak / 1e6, statistics.median(once.seconds for once in ours)),
        (large.modules, (large.peak_bytes or 0) / 1e6, large.seconds),
    ]
    return Result(
        benchmark="corpus_extraction",
        question=(
            f"How fast do {config.objects} objects with embedded bitcode ({size / 1e6:.0f} MB) become a corpus, "
            f"with {config.workers} workers each, whole processes, in turns?"
        ),
        answer=(
            f"mlgokit takes 1/{ratio:.1f} of the time of extract_ir (medians of {config.repetitions}), writes the same "
            f"files, and has at most {peak / 1e6:.0f} MB resident, with {large.modules} objects as well"
        ),
        bar=f"at least {BAR:g} times as fast, and at most {BAR_BYTES / 1e6:.0f} MB resident at any size",
        passed=ratio >= BAR and peak <= BAR_BYTES,
        seed=config.seed,
        versions=versions,
        inputs=inputs,
        tables=(
            Table(
                title="Time",
                columns=("importer", "modules", "least (s)", "median (s)", "most (s)", "modules per second"),
                rows=tuple(rows),
                note=(
                    "Both give the same bitcode, command lines and descriptions, byte for byte but for the order of "
                    "modules; mlgokit also digests the bitcode and writes its sidecar."
                ),
            ),
            Table(
                title="Memory of mlgokit",
                columns=("modules", "largest resident set (MB)", "seconds"),
                rows=tuple(memory),
                note="The interpreter with numpy is nearly all of it.",
            ),
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
