"""How much smaller do the shipped policies and a search make real programs for wasm and for Windows, once linked?"""

import functools
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import Setup, call_mlgokit, check_names, export_shipped, kept_row, run_benchmark, tune_words
from promise_projects import BOARDS, MANIFEST, promised_projects
from results import Cell, Result, Table, mean_change, percent
from tuning_builds import unpacked

from mlgokit.compiler import process
from mlgokit.compiler.objects.formats import file_totals
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError, UsageError
from mlgokit.files import digest_file

BAR = "every program does the same, none is larger, and in the mean at least 3 % smaller on each target"
DRIVERS = Path(__file__).with_name("drivers")
SIDES = ("plain", "shipped", "tuned")
_COMMAND_SECONDS, _RUN_SECONDS = 1800.0, 120.0
_RULES = """
OBJECTS = $(addsuffix .o,$(basename $(SOURCES)))
app.bin: $(OBJECTS)
\t$({compiler}) $(TARGET) -Oz $(OBJECTS) $(LINK) -o app.bin
%.o: %.c
\t$(CC) $(TARGET) -Oz -ffunction-sections -fdata-sections $(FLAGS) $(PLUGIN) -c $< -o $@
%.o: %.cpp
\t$(CXX) $(TARGET) -Oz -ffunction-sections -fdata-sections $(FLAGS) $(PLUGIN) -c $< -o $@
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target whose objects are not ELF.

    Attributes:
        triple: its name.
        link: options of links.
        run: what runs a program, in front of its path.
    """

    triple: str
    link: str
    run: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ported:
    """A program that both targets can have.

    Attributes:
        project: the one of promise.toml that has its sources.
        language: of the sources.
        sources: of the program, one of which is the driver.
        driver: our own file with ``main``.
        flags: options of compilations.
        headers: our own headers in ``boards``, beside the driver.
    """

    project: str
    language: str
    sources: tuple[str, ...]
    driver: Path
    flags: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


RUN_WASM = """
import { WASI } from 'node:wasi'; import { readFileSync } from 'node:fs';
const wasi = new WASI({ version: 'preview1', args: ['app'], env: {} });
const module = new WebAssembly.Module(readFileSync(process.argv[2]));
process.exit(wasi.start(new WebAssembly.Instance(module, wasi.getImportObject())));
"""
TARGETS = {
    "wasm": Target(
        triple="wasm32-unknown-wasi", link="-Wl,--strip-all", run=("node", "--no-warnings", "{folder}/run.mjs")
    ),
    "mingw": Target(
        triple="x86_64-w64-mingw32",
        link="-fuse-ld=lld -static -s -Wl,--gc-sections -Wl,--icf=all -lpthread",
        run=("wine",),
    ),
}
PROGRAMS = {
    "cjson": Ported(
        project="cjson-cortex-m3",
        language="c",
        sources=("main.c", "cJSON.c", "cJSON_Utils.c"),
        driver=BOARDS / "cjson.c",
    ),
    "bzip2": Ported(
        project="bzip2",
        language="c",
        sources=(
            "main.c", "blocksort.c", "huffman.c", "crctable.c", "randtable.c", "compress.c", "decompress.c", "bzlib.c",
        ),
        driver=BOARDS / "bzip2.c",
        flags="-DBZ_NO_STDIO",
    ),
    "pugixml": Ported(
        project="pugixml",
        language="c++",
        sources=("main.cpp", "src/pugixml.cpp"),
        driver=DRIVERS / "pugixml.cpp",
        flags="-DPUGIXML_NO_EXCEPTIONS -DPUGIXML_NO_STL -fno-exceptions",
    ),
    "tinyxml2": Ported(
        project="tinyxml2",
        language="c++",
        sources=("main.cpp", "tinyxml2.cpp"),
        driver=DRIVERS / "tinyxml2.cpp",
        flags="-fno-exceptions",
    ),
    "expat": Ported(
        project="expat",
        language="c",
        sources=("main.c", "lib/xmlparse.c", "lib/xmlrole.c", "lib/xmltok.c"),
        driver=BOARDS / "expat.c",
        flags="-Ilib",
        headers={"expat_config.h": "expat_config.h"},
    ),
    "cmark": Ported(
        project="cmark",
        language="c",
        sources=(
            "main.c", "src/blocks.c", "src/buffer.c", "src/cmark.c", "src/cmark_ctype.c", "src/commonmark.c",
            "src/houdini_href_e.c", "src/houdini_html_e.c", "src/houdini_html_u.c", "src/html.c", "src/inlines.c",
            "src/iterator.c", "src/node.c", "src/references.c", "src/render.c", "src/scanners.c", "src/utf8.c",
            "src/xml.c",
        ),
        driver=BOARDS / "cmark.c",
        flags="-Isrc -DCMARK_STATIC_DEFINE",
        headers={
            "config.h": "cmark_config.h", "cmark_export.h": "cmark_export.h", "cmark_version.h": "cmark_version.h",
        },
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFormats:
    """Build real programs for wasm and for Windows plainly, with the shipped policies and tuned; weigh and run all."""

    folder: Path = Path("build/formats")
    """Folder of the sources, searches and builds; a run goes on where the last one stopped."""
    programs: tuple[str, ...] = ()
    """Targets and programs such as wasm/cjson; all by default."""
    budget: str = "5m"
    """Time for the search of a program."""
    workers: int = 2
    """Compilers at once."""
    llvm: int | None = None
    """LLVM major."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(OtherFormats, measure, arguments)


def measure(config: OtherFormats, setup: Setup) -> Result:
    """Tune, build, weigh and run each program for each target.

    Raises:
        FetchError: sources are not to be had.
        UsageError: a program is not known.
    """
    known = [f"{target}/{program}" for target in TARGETS for program in PROGRAMS]
    check_names("--programs", config.programs, known)
    toolchain = setup.toolchain(config.llvm)
    setup.inputs[MANIFEST.name] = digest_file(MANIFEST)
    names = config.programs or known
    rows: dict[str, dict[str, Any]] = {}
    for done, name in enumerate(names):
        setup.report(done, len(names), "tune and build")
        rows[name] = measure_program(*name.split("/"), config=config, toolchain=toolchain)
    return result_of(rows, budget=config.budget)


def measure_program(target: str, name: str, *, config: OtherFormats, toolchain: Toolchain) -> dict[str, Any]:
    """Tune one program, and build it in three ways.

    Returns:
        ``bytes`` and ``file`` by side, and whether all print the same.

    Raises:
        FetchError: the sources are not to be had.
        ToolError: a command fails, or nothing runs the programs here.
    """
    program, place = PROGRAMS[name], config.folder.resolve() / target / name
    runner = TARGETS[target].run[0]
    if shutil.which(runner) is None:
        raise ToolError(f"{target}: expected {runner} to run programs, found none; install it")
    of = {"program": name, "llvm": toolchain.version, "budget": config.budget, "flags": program.flags}
    ask = functools.partial(_measure, program, TARGETS[target], place, config=config, toolchain=toolchain)
    return kept_row(place / "row.json", ask, of=of)


def _measure(
    program: Ported, target: Target, place: Path, *, config: OtherFormats, toolchain: Toolchain
) -> dict[str, Any]:
    source = _sources(program, place)
    make = _command(program, target, toolchain)
    words = tune_words(place, toolchain=toolchain, budget=config.budget, workers=config.workers)
    words += ["--objective", "linked", "--build", make, "--build-folder", str(source)]
    tuned, _ = call_mlgokit(words, timeout_seconds=_COMMAND_SECONDS)
    shipped = export_shipped(place / "shipped.so", toolchain=toolchain, timeout_seconds=_COMMAND_SECONDS)
    flags = {"plain": "", "shipped": shipped, "tuned": tuned["flag"]}
    row: dict[str, Any] = {"bytes": {}, "file": {}, "promised": tuned["built"]["programs"][0]["tuned"]["image"]}
    said: set[bytes] = set()
    for side in SIDES:
        folder = place / side
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        _run(["sh", "-c", f"{make} PLUGIN='{flags[side]}'"], folder)
        made = folder / "app.bin"
        row["bytes"][side], row["file"][side] = file_totals(made).llvm_size_text, made.stat().st_size
        (folder / "run.mjs").write_text(RUN_WASM)
        said.add(_run([*(word.replace("{folder}", str(folder)) for word in target.run), str(made)], folder))
    return row | {"same": len(said) == 1 and said != {b""}}


def _sources(program: Ported, place: Path) -> Path:
    """The program's sources with our driver and our rules."""
    project = promised_projects()[program.project]
    if project.archive is None:
        raise UsageError(f"{program.project}: expected a project with an archive; name another one")
    source = unpacked(project.archive, place / "archive") / project.root
    shutil.copyfile(program.driver, source / program.sources[0])
    for header, name in program.headers.items():
        shutil.copyfile(BOARDS / name, source / header)
    compiler = "CXX" if program.language == "c++" else "CC"
    (source / "formats.mk").write_text(_RULES.replace("{compiler}", compiler))
    return source


def _command(program: Ported, target: Target, toolchain: Toolchain) -> str:
    given = {
        "CC": str(toolchain.clang),
        "CXX": str(toolchain.clangxx),
        "TARGET": f"--target={target.triple}",
        "LINK": target.link,
        "SOURCES": " ".join(program.sources),
        "FLAGS": f"{program.flags} -I.",
    }
    return "make -f formats.mk -j2 " + " ".join(f"{name}='{value}'" for name, value in given.items())


def _run(words: Sequence[str], folder: Path) -> bytes:
    done = process.run(words, timeout_seconds=_RUN_SECONDS, cwd=folder)
    if done.timed_out or done.returncode != 0:
        raise ToolError(f"{' '.join(words)}: expected success, found {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def result_of(rows: dict[str, dict[str, Any]], *, budget: str) -> Result:
    """The changes of all programs."""
    cells: list[tuple[Cell, ...]] = []
    changes: dict[str, dict[str, list[float]]] = {}
    for name, row in rows.items():
        target, program = name.split("/")
        found = {side: row["bytes"][side] / row["bytes"]["plain"] - 1 for side in SIDES[1:]}
        for side, change in found.items():
            changes.setdefault(target, {}).setdefault(side, []).append(change)
        cells.append(
            (
                target, program, PROGRAMS[program].language,
                *(row["bytes"][side] for side in SIDES), *(percent(found[side]) for side in SIDES[1:]),
                percent(row["file"]["tuned"] / row["file"]["plain"] - 1),
                "yes" if row["same"] else "no", "yes" if row["promised"] == row["bytes"]["tuned"] else "no",
            )
        )  # fmt: skip
    means = {target: {side: mean_change(values) for side, values in one.items()} for target, one in changes.items()}
    larger = sum(change > 0 for one in changes.values() for change in one["tuned"])
    same = all(row["same"] for row in rows.values())
    said = ", ".join(f"{target} {percent(one['tuned'])}" for target, one in means.items())
    return Result(
        benchmark="formats",
        question=f"How much smaller does a search of {budget} make real programs for wasm and for Windows, by the "
        "user's own link?",
        answer=f"{len(rows)} programs: {said}; {larger} larger; the same output of all: {'yes' if same else 'no'}",
        bar=BAR,
        passed=same and not larger and all(one["tuned"] <= -0.03 for one in means.values()),
        seed=0,
        tables=(
            Table(
                title="Programs",
                columns=(
                    "target", "program", "language", "plain", "builtin:Oz", "tuned", "builtin:Oz, change",
                    "tuned, change", "file, tuned", "same output", "as promised",
                ),
                rows=tuple(cells),
                note="Bytes of code, constants and unwind tables of the linked program, with the C library inside, "
                "which is the same on all sides; of wasm of all its sections but custom ones, after wasm-opt, which "
                "clang runs behind the link. `builtin:Oz`: the plugin of the shipped policies, which leave wasm to "
                "LLVM. As promised: the build by hand has the size that `tune` promised.",
            ),
            Table(
                title="Geometric means",
                columns=("target", "builtin:Oz", "tuned"),
                rows=tuple((target, percent(one["shipped"]), percent(one["tuned"])) for target, one in means.items()),
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
