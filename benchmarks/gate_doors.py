"""Where a stranger's command lines come from, for :mod:`fuzz_gate`: each door takes lines in and compiles what came."""

import contextlib
import json
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gate_place import ODD_SOURCES, Place
from made_objects import make_elf

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
from mlgokit.errors import CorpusError, MlgokitError

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
            fill_override(corpus, found.options, build=place.build)
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
