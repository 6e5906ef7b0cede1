"""Writes src/mlgokit/compiler/options/clang_options.tsv: what each option of ``clang -cc1`` and of ``-mllvm`` takes.

Usage::

    python scripts/option_table.py /usr/lib/llvm-19 ~/.cache/mlgokit/llvm/21 /usr/lib/llvm-22 ~/.cache/mlgokit/llvm/23

For every folder of an LLVM installation it asks ``libclang-cpp`` for the options of ``-cc1`` (needs its headers and
``libclang-cpp``), and clang itself for LLVM's own. Facts only: names, kinds, aliases.
"""

import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.cxx_library import cxx_library_options
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.prebuilt import DIALECT
from mlgokit.compiler.toolchain import find_toolchain

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "src" / "mlgokit" / "compiler" / "options" / "clang_options.tsv"
KINDS = {3: "flag", 4: "joined", 6: "separate", 9: "comma", 11: "either", 12: "pair"}
"""Numbers of ``llvm::opt::Option::OptionClass``."""
STRICTNESS = (*KINDS.values(), "llvm-flag", "llvm-number", "llvm-choice", "llvm-text")
"""Of two kinds of one option, the later one decides."""
NUMBERS = {"uint", "int", "ulong", "long", "number", "N", "x", "seed"}
"""How ``-help-list-hidden`` shows the value of an option that takes a number."""

_SHOWN = re.compile(r"^  --?(?P<name>[^\s=\[]+)(?:\[?=<(?P<value>[^>]*)>\S*)?(?:\s|$)")


def clang_rows(folder: Path) -> list[tuple[str, str, str]]:
    """``(word, kind, canonical name)`` of every option of ``clang -cc1``."""
    toolchain = find_toolchain(clang=folder / "bin" / "clang", need_plugin=True)
    libraries = toolchain.library_dir or folder / "lib"
    run_paths = {libraries, *(path.parent for path in libraries.glob("*/libc++.so.1"))}
    shared = [str(min(libraries.glob(f"{name}.so.{toolchain.major}*"))) for name in ("libclang-cpp", "libLLVM")]
    flags = [*DIALECT, "-fno-rtti", "-isystem", str(toolchain.include_dir)]
    flags += cxx_library_options(toolchain.cxx_library)
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch, "option_table")
        source = ROOT / "scripts" / "option_table.cpp"
        links = [*shared, *(f"-Wl,-rpath,{path}" for path in run_paths), "-o", str(program)]
        built = process.run([toolchain.clangxx, *flags, str(source), *links], timeout_seconds=300)
        if built.returncode != 0:
            sys.exit(built.stderr)
        shown = process.run([str(program)], timeout_seconds=60)
        if shown.returncode != 0:
            sys.exit(shown.stderr)
        lines = shown.stdout.decode().splitlines()
    rows = [line.split("\t") for line in lines]
    return [(word, KINDS[int(kind)], canonical) for kind, word, canonical in rows]


def llvm_rows(folder: Path) -> list[tuple[str, str, str]]:
    """``(name without dashes, kind, name)`` of every option that ``-mllvm`` passes on."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "empty.c")
        source.write_text("")
        argv = Cc1Line(folder / "bin" / "clang", own=["-mllvm", "-help-list-hidden", str(source)])
        shown = process.run(argv, timeout_seconds=60).stdout.decode().splitlines()
    rows: list[tuple[str, str, str]] = []
    for number, line in enumerate(shown):
        if found := _SHOWN.match(line):
            name, value = found["name"], found["value"]
            has_choices = number + 1 < len(shown) and shown[number + 1].startswith("    =")
            if value is None:
                kind = "llvm-flag"
            elif value in NUMBERS:
                kind = "llvm-number"
            else:
                kind = "llvm-choice" if has_choices else "llvm-text"
            rows.append((name, kind, name))
    return rows


def main(folders: list[Path]) -> None:
    """Merge the majors: an option has the newest name, and takes a value if it does so in any major."""
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for folder in folders:
        for word, kind, name in clang_rows(folder) + llvm_rows(folder):
            rows[word].append((kind, name))
    lines = ["# word, kind, and what it is an alias of; made by scripts/option_table.py"]
    for word, found in sorted(rows.items()):
        kind, name = max(enumerate(found), key=lambda item: (STRICTNESS.index(item[1][0]), item[0]))[1]
        lines.append("\t".join((word, kind) if word == name else (word, kind, name)))
    OUTPUT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
