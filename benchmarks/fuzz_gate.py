"""Mutated command lines of databases and lists of projects, against the real gate and a real clang, with canaries.

A case is a command with good options, among which a few of :data:`EVIL` were put, exchanged, doubled or joined. It is
imported as any build is; bitcode that comes of it is compiled. It may be refused, or lose options, or be taken.
A finding is a library that was loaded, a program that was started, or a file that changed where none should.
"""

import contextlib
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Setup, run_benchmark
from results import Result, Table

from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.importers.database import import_commands
from mlgokit.corpus.options.parse import option_table
from mlgokit.corpus.sources.extract import extract_projects
from mlgokit.corpus.sources.projects import load_projects
from mlgokit.errors import CorpusError, ToolError, UsageError

BATCH = 20
"""Commands of one database; who is to blame for a finding is found by importing its commands one by one."""


def _words(text: str) -> list[str]:
    return text.split()


GOOD = _words("""
    -O2 -Os -g -fPIC -Wall -DNDEBUG -D A=1 -I. -I include -isystem /usr/include -std=gnu11 -march=native -fopenmp
    -mllvm -inline-threshold=5 -Xclang -fno-pch-timestamp --param x=1 -pthread -fno-exceptions -include a.h
""")
EVIL = _words("""
    -fplugin=./evil.so -fpass-plugin=./evil.so -load ./evil.so @evil.rsp -- - -Xclang -mllvm -Wp, -Xpreprocessor
    -Xarch_host -Xopenmp-target --config=evil.cfg -specs=evil.cfg -B. --prefix=. -wrapper ./evil,x
    -gen-reproducer=always -dependency-file precious -diagnostic-log-file -stack-usage-file
    -serialize-diagnostic-file -stats-file=precious -ftime-trace=precious -MJ -MF -MD -o precious -oprecious
    -save-temps --save-temps=obj -dumpdir precious -polly -polly-export -load=./evil.so -info-output-file=precious
    -stats -print-changed=dot-cfg -view-edge-bundles --offload-arch=native -fopenmp-targets=nvptx64
    --target=amdgcn-amd-amdhsa -mcpu=native -fsycl --amdgpu-arch-tool=./amdgpu-arch -resource-dir . -fmodules
    -fmodules-cache-path=precious -fmodule-output=precious -fbogus-x -fbogus-y= -I -D -isystem -include -target -x
    cuda -xc++ -emit-llvm -S -E -emit-pch -cc1 -cc1as -### -fcrash-diagnostics=all -fproc-stat-report=precious
    -opt-record-file -split-dwarf-output -coverage-notes-file=precious --driver-mode=cl -add-plugin -plugin evil
    -ast-dump -rewrite-objc -fembed-offload-object=precious --gen-cdb-fragment-path
""")
CANARY = """
#include <fcntl.h>
__attribute__((constructor)) static void loaded(void) { open("CANARY", O_CREAT | O_WRONLY, 0600); }
"""
LISTED = """[[project]]
name = "p"
language = "c"
standard = "c17"
archive = {{ registry = "pypi", package = "p", version = "1", file = "p-1.tar.gz", sha256 = "{digest}" }}
root = "p-1"
options = {options}
sources = ["a.c"]
license = "MIT"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzGate:
    """Import mutated commands with a real clang, and look what it loaded, started or wrote."""

    llvm: int | None = None
    """LLVM major."""
    cases: int = 100_000
    """Command lines."""
    seed: int = 1
    """Of all mutations; a case is known by seed and number."""
    minutes: float = 240.0
    """No batch is begun after so long."""
    json: Path = Path("docs/results/fuzz_gate.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(FuzzGate, measure, arguments)


def mutated(rng: np.random.Generator) -> list[str]:
    """Options with what should not be among them."""
    words = [str(word) for word in rng.choice(GOOD, int(rng.integers(1, 6)))]
    options = [word for word, kind in option_table().kinds.items() if not kind.startswith("llvm")]
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(words) + 1))
        word = str(rng.choice(EVIL)) if rng.random() < 0.8 else options[int(rng.integers(len(options)))]
        how = int(rng.integers(6))
        new = {0: ["-Xclang", word], 1: ["-mllvm", word], 2: [f"-Wp,{word}"], 3: [word, word]}.get(how, [word])
        if how == 4 and words:
            words[at - 1] += word
        else:
            words[at:at] = new
    return words


def prepare(folder: Path, toolchain: Toolchain) -> Path:
    """A build folder with libraries and programs that leave a canary beside it, and something to overwrite."""
    build = folder / "build"
    build.mkdir(parents=True)
    (build / "a.c").write_text("int twice(int x) { for (int i = 0; i < 9; i++) x += i * x; return x; }\n")
    (build / "a.h").write_text("")
    (build / "evil.rsp").write_text("-fplugin=./evil.so -Xclang -load -Xclang ./evil.so")
    (build / "evil.cfg").write_text("-fplugin=./evil.so -Xclang -load -Xclang ./evil.so")
    canary = folder / "canary.c"
    canary.write_text(CANARY.replace("CANARY", str(folder / "canary")))
    argv = [toolchain.clang, "-shared", "-fPIC", canary, "-o", build / "evil.so"]
    done = process.run(argv, timeout_seconds=60)
    if done.returncode != 0:
        raise ToolError(f"canary: expected {toolchain.clang} to compile it, found: {done.stderr}; check the compiler")
    for name in ("nvptx-arch", "amdgpu-arch", "offload-arch", "evil", "ld", "as", "gcc", "cc1"):
        (build / name).write_text(f"#!/bin/sh\ntouch {shlex.quote(str(folder / 'canary'))}\n")
        (build / name).chmod(0o755)
    (build / "precious").write_text("precious\n")
    return build


def run_batch(batch: Sequence[Sequence[str]], build: Path, toolchain: Toolchain) -> tuple[int, str]:
    """Import the commands, and each as a list of projects if there is one; how many were taken, and what changed."""
    before = _state(build)
    corpus, taken = build.parent / "corpus", 0
    entries = [
        {
            "directory": str(build),
            "file": "a.c",
            "arguments": ["clang", *words, "-O2", "-c", "a.c", "-o", f"{number}.o"],
        }
        for number, words in enumerate(batch)
    ]
    database = build.parent / "compile_commands.json"
    database.write_text(json.dumps(entries).replace("\\u0000", ""))
    # The folder of the database is where response files may be.
    shutil.rmtree(corpus, ignore_errors=True)
    try:
        import_commands(database, toolchain=toolchain, corpus_folder=corpus, project="p", workers=2)
        for module in load_corpus(corpus).modules:
            ClangCompiler(toolchain=toolchain).compile(module)
            taken += 1
    except CorpusError:
        pass
    if len(batch) == 1:
        _as_projects(batch[0], build, toolchain)
    changed = {name for name, state in _state(build).items() if before.get(name) != state} | (
        set(before) - set(_state(build))
    )
    changed |= {"canary"} if (build.parent / "canary").exists() else set()
    return taken, ", ".join(sorted(changed))


def _as_projects(words: Sequence[str], build: Path, toolchain: Toolchain) -> None:
    sources = build.parent / "sources"
    (sources / "p").mkdir(parents=True, exist_ok=True)
    root = sources / "p" / "p-1"
    if not root.exists():
        root.symlink_to(build)
    path = build.parent / "list.toml"
    path.write_text(LISTED.format(digest="0" * 64, options=json.dumps(list(words))))
    shutil.rmtree(build.parent / "listed", ignore_errors=True)
    listed = build.parent / "listed"
    with contextlib.suppress(CorpusError):
        extract_projects(load_projects(path), toolchain=toolchain, sources_folder=sources, corpus_folder=listed)


def _state(build: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(build)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in build.rglob("*")
        if path.is_file()
    }


def run_cases(
    count: int, toolchain: Toolchain, *, seed: int, until: float = float("inf"), setup: Setup | None = None
) -> tuple[int, int, list[str]]:
    """How many cases were run and taken, and the findings."""
    findings: list[str] = []
    ran = taken = 0
    while ran < count and time.monotonic() < until:
        batch = [mutated(np.random.default_rng([seed, ran + number])) for number in range(min(BATCH, count - ran))]
        with tempfile.TemporaryDirectory(prefix="mlgokit-gate-") as scratch:
            good, changed = run_batch(batch, prepare(Path(scratch, "all"), toolchain), toolchain)
            lists = [(ran, batch[0])] if not changed else [(ran + place, words) for place, words in enumerate(batch)]
            for number, words in lists:
                _, changed = run_batch([words], prepare(Path(scratch, str(number)), toolchain), toolchain)
                if changed:
                    findings.append(f"case {number}: {shlex.join(words)}: {changed}")
        ran, taken = ran + len(batch), taken + good
        if setup is not None:
            setup.report(ran, count, "commands")
    return ran, taken, findings


def measure(config: FuzzGate, setup: Setup) -> Result:
    """Run all cases.

    Raises:
        UsageError: there is no case.
    """
    if config.cases < 1:
        raise UsageError(f"cases: expected at least 1, found {config.cases}; give more")
    toolchain = setup.toolchain(config.llvm)
    until = time.monotonic() + 60 * config.minutes
    ran, taken, findings = run_cases(config.cases, toolchain, seed=config.seed, until=until, setup=setup)
    return Result(
        benchmark="fuzz_gate",
        question="Does any mutated command line load, start or write something that it should not?",
        answer=f"{len(findings)} findings in {ran} cases, of which {taken} were taken and compiled",
        bar=f"no finding in {config.cases} cases",
        passed=not findings and ran >= config.cases,
        seed=config.seed,
        tables=(Table(title="Findings", columns=("finding",), rows=tuple((finding,) for finding in findings[:200])),),
    )


if __name__ == "__main__":
    sys.exit(main())
