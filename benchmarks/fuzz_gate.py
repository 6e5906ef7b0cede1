"""Mutated command lines of databases, corpora, objects, projects and links, against the real gate and a real clang.

A case is a line of :mod:`gate_cases`, in one of the places where a stranger's command lines come from (:data:`DOORS`).
What the gate lets through is compiled, as any build or corpus is. A finding is a library that was loaded, a program
that was started, a file that changed or came to be where none should, or an exception that is none of ours.
"""

import contextlib
import functools
import json
import multiprocessing
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import gate_cases
import numpy as np
from forked_clang import forked_clang
from harness import Ledger, Setup, open_ledger, run_benchmark
from made_objects import make_elf
from results import Result, Table

from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.importers.database import import_commands
from mlgokit.corpus.importers.object_lists import ObjectFile
from mlgokit.corpus.importers.objects import import_objects
from mlgokit.corpus.layout import encode_command_line
from mlgokit.corpus.options.override import fill_override, link_options
from mlgokit.corpus.sources.extract import extract_projects
from mlgokit.corpus.sources.projects import load_projects
from mlgokit.errors import CorpusError, MlgokitError, ToolError, UsageError

BATCH = 100
"""Command lines of one batch; who is to blame for a finding is found by running its lines one by one."""
SOURCE = "int twice(int x) { for (int i = 0; i < 9; i++) x += i * x; return x; }\n"
CANARY = """
#include <fcntl.h>
__attribute__((constructor)) static void loaded(void) { open("CANARY", O_CREAT | O_WRONLY, 0600); }
"""
PROGRAMS = (
    "nvptx-arch", "amdgpu-arch", "offload-arch", "evil", "ld", "ld.lld", "lld", "as", "gcc", "cc1", "cc1plus", "cpp",
    "dot", "xdg-open", "ptxas", "fatbinary", "llvm-objcopy", "touch", "clang-offload-bundler", "x86_64-linux-gnu-as",
)  # fmt: skip
"""That a compiler may want to start; each leaves the canary."""
LISTED = """[[project]]
name = "p"
language = "{language}"
standard = "{standard}"
archive = {{ registry = "pypi", package = "p", version = "1", file = "p-1.tar.gz", sha256 = "{digest}" }}
root = "p-1"
options = {options}
sources = ["a.c"]
license = "MIT"
"""
ODD_SOURCES = ("@evil.rsp.c", "-load.c", "--.c", "-fplugin=evil.so.c", "a b;touch new.c")
ODD_OUTPUTS = (
    "../../out/new.o",
    "/../precious",
    "@x.o",
    "-o.o",
    "-fpass-plugin=evil.so",
    "",
    ".",
    "a\nb.o",
    "\x1b[31m.o",
)
Line = list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzGate:
    """Take in mutated command lines with a real clang, and look what it loaded, started or wrote."""

    llvm: int | None = None
    """LLVM major."""
    cases: int = 100_000
    """Command lines."""
    seed: int = 1
    """Of all mutations; a batch is known by seed and number."""
    workers: int = 2
    """Processes, each with compilers of its own."""
    minutes: float = 240.0
    """No batch is begun after so long; the same command goes on."""
    folder: Path = Path("build/fuzz_gate")
    """Where finished batches are noted."""
    json: Path = Path("docs/results/fuzz_gate.json")
    """Where the result goes; the Markdown goes beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Folders of one batch.

    Attributes:
        whole: all of them; what changes here but in ``scratch`` is a finding.
        build: what a stranger's build has, the source, response files, libraries and programs with canaries.
        scratch: what mlgokit may write to, corpora and temporary files.
    """

    whole: Path
    build: Path
    scratch: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(FuzzGate, measure, arguments)


def prepare(whole: Path, toolchain: Toolchain) -> Place:
    """A build folder with libraries and programs that leave a canary beside it, and something to overwrite."""
    place = Place(whole=whole, build=whole / "build", scratch=whole / "scratch")
    for folder in (place.build, place.scratch / "temporary", whole / "home", whole / "programs", whole / "out"):
        folder.mkdir(parents=True)
    build = place.build
    (build / "a.c").write_text(SOURCE)
    for name in ODD_SOURCES:
        (build / name).write_text(SOURCE)
    (build / "a.h").write_text("")
    words = f"-fplugin=./evil.so -Xclang -load -Xclang {build}/evil.so -o precious"
    for name in ("evil.rsp", "evil.cfg", "clang.cfg", "x86_64-pc-linux-gnu-clang.cfg"):
        (build / name).write_text(words)
    (build / "nested.rsp").write_text("-O2 @evil.rsp -MF precious")
    (build / "module.modulemap").write_text('module a { header "a.h" }\n')
    (build / "overlay.yaml").write_text("{'version': 0, 'roots': []}")
    canary = whole / "canary.c"
    canary.write_text(CANARY.replace("CANARY", str(whole / "canary")))
    done = process.run([toolchain.clang, "-shared", "-fPIC", canary, "-o", build / "evil.so"], timeout_seconds=60)
    if done.returncode != 0:
        raise ToolError(f"canary: expected {toolchain.clang} to compile it, found: {done.stderr}; check the compiler")
    good = [toolchain.clang, "-cc1", "-triple", toolchain.target, "-O2", "-disable-llvm-passes", "-emit-llvm-bc"]
    done = process.run([*good, "-o", build / "good.bc", build / "a.c"], timeout_seconds=60)
    if done.returncode != 0:
        raise ToolError(f"good.bc: expected {toolchain.clang} to compile it, found: {done.stderr}; check the compiler")
    for name in PROGRAMS:
        for folder in (build, whole / "programs"):
            (folder / name).write_text(f"#!/bin/sh\n: >{shlex.quote(str(whole / 'canary'))}\n")
            (folder / name).chmod(0o755)
    for folder in (build, whole, whole / "out"):
        (folder / "precious").write_text("precious\n")
    return place


@contextlib.contextmanager
def inside(place: Place) -> Generator[None]:
    """Let everything happen in the place: its folder, its programs first, a home and a folder for what is temporary."""
    programs = f"{place.whole / 'programs'}{os.pathsep}{os.environ.get('PATH', '')}"
    temporary = str(place.scratch / "temporary")
    # Which corpora were made here is noted in a state folder of mlgokit's own.
    state_home = str(place.scratch / "state")
    changed = {
        "PATH": programs, "HOME": str(place.whole / "home"), "TMPDIR": temporary, "XDG_STATE_HOME": state_home,
    }  # fmt: skip
    with (
        mock.patch.dict(os.environ, changed),
        mock.patch.object(tempfile, "tempdir", temporary),
        contextlib.chdir(place.build),
    ):
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            os.environ.pop(name, None)
        yield


def state(place: Place) -> dict[str, object]:
    """All that must stay as it is: of each file time, size and inode."""
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(place.whole):
        if Path(folder) == place.whole:
            folders.remove("scratch")
        for name in files:
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118  (thousands of them)
            found[os.path.relpath(os.path.join(folder, name), place.whole)] = (  # noqa: PTH118
                status.st_mtime_ns,
                status.st_size,
                status.st_ino,
            )
        found.update({os.path.relpath(os.path.join(folder, name), place.whole): None for name in folders})  # noqa: PTH118
    return found


def changes(place: Place, before: Mapping[str, object]) -> str:
    """What is not as it was, and what was left where temporary files are."""
    after = state(place)
    different = {name for name in before.keys() | after.keys() if before.get(name, "") != after.get(name, "")}
    different |= {f"scratch/temporary/{path.name}" for path in (place.scratch / "temporary").iterdir()}
    return ", ".join(sorted(different))


def remembering(run: Callable[..., process.Completed]) -> Callable[..., process.Completed]:
    """The same, but what succeeded is not done twice: most lines lose what is hostile in them, and are alike then."""
    known: dict[tuple[object, ...], tuple[process.Completed, bytes]] = {}

    def remembered(argv: Sequence[str | os.PathLike[str]], **options: Any) -> process.Completed:
        words = [os.fspath(word) for word in argv]
        if words[1:2] != ["-cc1"] or words.count("-o") != 1:
            return run(argv, **options)
        output = Path(words.pop(words.index("-o") + 1))
        inputs = (Path(word).read_bytes() if word.endswith(".bc") and Path(word).is_file() else word for word in words)
        key = (options.get("cwd"), *inputs)
        if key not in known:
            done = run(argv, **options)
            if done.returncode != 0 or not output.is_file():
                return done
            known[key] = done, output.read_bytes()
        done, made = known[key]
        output.write_bytes(made)
        return done

    return remembered


def _put(words: Sequence[str], place: Place) -> Line:
    """The words with the folders' real names."""
    return [word.replace("BUILD", str(place.build)).replace("OUT", str(place.whole / "out")) for word in words]


def _compile_all(corpus: Path, toolchain: Toolchain) -> int:
    modules = load_corpus(corpus).modules
    for module in modules:
        ClangCompiler(toolchain=toolchain, timeout_seconds=20).compile(module)
    return len(modules)


def by_database(lines: Sequence[Line], place: Place, toolchain: Toolchain, rng: np.random.Generator) -> int:
    """A compilation database: words or a shell's line, some of them in response files; how many modules came of it."""
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(lines):
        # One lone surrogate, and the whole database is refused.
        words = [word.encode("utf-8", "replace").decode() for word in line]
        driver = str(
            rng.choice(["clang", "clang++", "gcc", "cc", "env A=b cc", "ccache clang", "aarch64-linux-gnu-gcc"])
        )
        how = rng.random()
        words = [*driver.split(), *words]
        file = str(rng.choice(ODD_SOURCES)) if rng.random() < 0.05 else "a.c"
        output = str(rng.choice(ODD_OUTPUTS)) if rng.random() < 0.05 else f"{number}.o"
        words += ["-O2", "-c", file, "-o", output] if how < 0.9 else [file, "-c"]
        entry: dict[str, Any] = {"directory": str(place.build), "file": file}
        if how < 0.15:
            response = place.scratch / "database" / f"{number}.rsp"
            text = " ".join(map(shlex.quote, words[1:]))
            response.write_text(text, errors="surrogateescape")
            words = [words[0], f"@{response}"]
        if how < 0.7:
            entry["arguments"] = words
        else:
            entry["command"] = shlex.join(words)
        entries.append(entry)
    database = place.scratch / "database" / "compile_commands.json"
    database.write_text(json.dumps(entries))
    corpus = place.scratch / "corpus"
    import_commands(database, toolchain=toolchain, corpus_folder=corpus, project="p")
    return _compile_all(corpus, toolchain)


def by_corpus(lines: Sequence[Line], place: Place, toolchain: Toolchain, rng: np.random.Generator) -> int:
    """Command lines of a corpus, each of a module of its own, or all of them by one override."""
    corpus = place.scratch / "corpus"
    corpus.mkdir()
    names = [f"{number}.o" for number in range(len(lines))]
    overrides = [line for line in lines if rng.random() < 0.02][:2]
    for name, line in zip(names, lines, strict=True):
        shutil.copyfile(place.build / "good.bc", corpus / f"{name}.bc")
        (corpus / f"{name}.cmd").write_bytes(encode_command_line(_cc1(line, toolchain, rng)))
    description: dict[str, Any] = {"has_thinlto": False, "modules": names}
    taken = 0
    for override in (None, *overrides):
        if override is not None:
            description |= {"modules": names[:1], "global_command_override": _cc1(override, toolchain, rng)}
        (corpus / "corpus_description.json").write_text(json.dumps(description))
        with contextlib.suppress(CorpusError):
            taken += _compile_all(corpus, toolchain)
    return taken


def _cc1(line: Line, toolchain: Toolchain, rng: np.random.Generator) -> Line:
    words = [word.replace("\0", "") for word in line]
    if rng.random() < 0.97:
        return ["-cc1", "-triple", toolchain.target, *words, "-O2"] if rng.random() < 0.5 else ["-cc1", "-O2", *words]
    return words


def by_objects(lines: Sequence[Line], place: Place, toolchain: Toolchain, rng: np.random.Generator) -> int:
    """Objects with embedded bitcode and command lines."""
    bitcode = (place.build / "good.bc").read_bytes()
    objects: list[ObjectFile] = []
    for number, line in enumerate(lines):
        path = place.scratch / "database" / f"{number}.o"
        embedded = encode_command_line(_cc1(line, toolchain, rng))
        path.write_bytes(make_elf({".text": b"\x90", ".llvmbc": bitcode, ".llvmcmd": embedded}))
        objects.append(ObjectFile(name=path.name, path=path, base=place.build))
    import_objects(objects, corpus_folder=place.scratch / "corpus", project="p")
    return _compile_all(place.scratch / "corpus", toolchain)


def by_projects(lines: Sequence[Line], place: Place, toolchain: Toolchain, rng: np.random.Generator) -> int:
    """Lists of projects, of one project each."""
    sources, taken = place.scratch / "database", 0
    (sources / "p").mkdir()
    (sources / "p" / "p-1").symlink_to(place.build)
    for number, line in enumerate(lines):
        path, corpus = sources / f"{number}.toml", place.scratch / f"corpus{number}"
        language, standard = ("c", "c17") if rng.random() < 0.7 else ("c++", "c++17")
        options = json.dumps(line).encode("utf-8", "replace").decode()
        text = LISTED.format(digest="0" * 64, options=options, language=language, standard=standard)
        path.write_text(text)
        with contextlib.suppress(CorpusError):
            extract_projects(load_projects(path), toolchain=toolchain, sources_folder=sources, corpus_folder=corpus)
            taken += _compile_all(corpus, toolchain)
        shutil.rmtree(corpus, ignore_errors=True)
    return taken


def by_link(lines: Sequence[Line], place: Place, toolchain: Toolchain, rng: np.random.Generator) -> int:
    """Link commands, whose options a corpus without any takes over."""
    taken = 0
    for line in lines:
        tool = str(rng.choice(["clang", "clang++", "ld.lld", "python3 wrap.py -- ld.lld", "ccache clang"])).split()
        words = [word for word in line if "\0" not in word]
        with contextlib.suppress(MlgokitError):
            found = link_options([*tool, *words, "-flto", "-o", "prog", "a.o"], toolchain=toolchain, folder=place.build)
            corpus = place.scratch / "corpus"
            shutil.rmtree(corpus, ignore_errors=True)
            corpus.mkdir()
            shutil.copyfile(place.build / "good.bc", corpus / "a.o.bc")
            waiting = {"global_command_override": ["<UNSPECIFIED>"], "has_thinlto": False, "modules": ["a.o"]}
            (corpus / "corpus_description.json").write_text(json.dumps(waiting))
            fill_override(corpus, found.options)
            taken += _compile_all(corpus, toolchain)
    return taken


DOORS: dict[str, tuple[Callable[..., int], float, bool]] = {
    "compilation database": (by_database, 0.35, False),
    "command lines of a corpus": (by_corpus, 0.3, True),
    "objects with embedded command lines": (by_objects, 0.1, True),
    "list of projects": (by_projects, 0.15, False),
    "link command": (by_link, 0.1, False),
}
"""By name, what takes the lines in, its share of the batches, and whether its lines are those of ``-cc1``."""


def drawn(seed: int, number: int, count: int = BATCH, *, door: str | None = None) -> tuple[str, list[Line]]:
    """The door, unless one is named, and the lines of a batch."""
    rng = np.random.default_rng([seed, number])
    shares = np.array([share for _, share, _ in DOORS.values()])
    drawn_door = list(DOORS)[int(rng.choice(len(DOORS), p=shares / shares.sum()))]
    door = door or drawn_door
    return door, [gate_cases.line(rng, cc1=DOORS[door][2]) for _ in range(count)]


def run_lines(
    door: str, lines: Sequence[Line], place: Place, toolchain: Toolchain, *, seed: Sequence[int]
) -> tuple[int, str]:
    """Take the lines in by a door; how many modules were compiled, and what is to be found fault with."""
    for path in place.scratch.iterdir():
        shutil.rmtree(path)
    for name in ("temporary", "database"):
        (place.scratch / name).mkdir()
    before, taken, trouble = state(place), 0, ""
    with inside(place), mock.patch.object(process, "run", remembering(process.run)):
        try:
            placed = [_put(line, place) for line in lines]
            taken = DOORS[door][0](placed, place, toolchain, np.random.default_rng(list(seed)))
        except MlgokitError:
            pass
        except Exception as error:
            trouble = f"{type(error).__name__}: {error!s:.200}"
    return taken, "; ".join(filter(None, (changes(place, before), trouble)))


def run_batch(
    number: int, toolchain: Toolchain, *, seed: int, count: int = BATCH, door: str | None = None
) -> dict[str, Any]:
    """One batch: its door, how many lines it had and how many modules were compiled, and its findings."""
    door, lines = drawn(seed, number, count, door=door)
    begin = time.monotonic()
    findings: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mlgokit-gate-") as scratch:
        run = functools.partial(run_lines, toolchain=toolchain, seed=[seed, number, 1])
        taken, found = run(door, lines, prepare(Path(scratch, "all"), toolchain))
        if found:
            for index, line in enumerate(lines):
                _, alone = run(door, [line], prepare(Path(scratch, str(index)), toolchain))
                if alone:
                    findings.append(f"line {index}: {shlex.join(line)}: {alone}")
            findings = findings or [f"all lines together: {found}"]
    return {
        "batch": number, "door": door, "lines": len(lines), "taken": taken, "seconds": time.monotonic() - begin,
        "findings": [f"batch {number}, {door}, {finding}".encode("utf-8", "replace").decode() for finding in findings],
    }  # fmt: skip


_open = contextlib.ExitStack()


def _open_compilers(toolchain: Toolchain) -> None:
    _open.enter_context(mock.patch.object(process, "run", _open.enter_context(forked_clang(toolchain))))


def run_cases(
    count: int,
    toolchain: Toolchain,
    *,
    seed: int,
    batch: int = BATCH,
    workers: int = 1,
    until: float = float("inf"),
    ledger: Ledger | None = None,
    setup: Setup | None = None,
) -> list[dict[str, Any]]:
    """The rows of all batches that are finished; each line of a compiler's is run in a copy of one that was loaded."""
    known = {} if ledger is None else ledger.known
    numbers = range(-(-count // batch))
    todo = [number for number in numbers if str(number) not in known]
    rows = {number: known[str(number)] for number in numbers if str(number) in known}
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawned, initializer=_open_compilers, initargs=(toolchain,)) as pool:
        work = functools.partial(_run_in_time, toolchain=toolchain, seed=seed, until=until)
        sizes = [min(batch, count - number * batch) for number in todo]
        for row in pool.map(work, todo, sizes):
            if row is not None:
                rows[row["batch"]] = row
                if ledger is not None:
                    ledger.add(str(row["batch"]), row)
            if setup is not None:
                setup.report(min(count, len(rows) * batch), count, "lines")
    return [row for _, row in sorted(rows.items())]


def _run_in_time(number: int, count: int, *, toolchain: Toolchain, seed: int, until: float) -> dict[str, Any] | None:
    # The clock is the same in all processes.
    return None if time.monotonic() > until else run_batch(number, toolchain, seed=seed, count=count)


def measure(config: FuzzGate, setup: Setup) -> Result:
    """Run all cases.

    Raises:
        UsageError: there is no case.
    """
    if config.cases < 1:
        raise UsageError(f"cases: expected at least 1, found {config.cases}; give more")
    toolchain = setup.toolchain(config.llvm)
    path = config.folder / f"llvm-{toolchain.major}-seed-{config.seed}.jsonl"
    ledger = open_ledger(path, {"seed": config.seed, "llvm": toolchain.major, "batch": BATCH})
    until = time.monotonic() + 60 * config.minutes
    rows = run_cases(
        config.cases, toolchain, seed=config.seed, workers=config.workers, until=until, ledger=ledger, setup=setup
    )
    findings = [finding for row in rows for finding in row["findings"]]
    ran, taken = (sum(row[key] for row in rows) for key in ("lines", "taken"))
    doors = [(door, [row for row in rows if row["door"] == door]) for door in DOORS]
    tables = [
        Table(
            title="Lines",
            columns=("where they come from", "lines", "modules compiled", "findings", "elapsed (s)"),
            rows=tuple(
                (
                    door,
                    sum(row["lines"] for row in found),
                    sum(row["taken"] for row in found),
                    sum(len(row["findings"]) for row in found),
                    sum(row["seconds"] for row in found),
                )
                for door, found in doors
            ),
            note="A finding is a library that was loaded, a program that was started, a file that changed or came to "
            "be outside of the corpus, or an exception that is none of ours.",
        )
    ]
    if findings:
        tables.append(Table(title="Findings", columns=("finding",), rows=tuple((text,) for text in findings[:200])))
    return Result(
        benchmark="fuzz_gate",
        question="Does any mutated command line load, start or write something that it should not?",
        answer=f"{len(findings)} findings in {ran} command lines, of which {taken} modules were made and compiled",
        bar=f"no finding in {config.cases} command lines",
        passed=not findings and ran >= config.cases,
        seed=config.seed,
        tables=tuple(tables),
    )


if __name__ == "__main__":
    sys.exit(main())
