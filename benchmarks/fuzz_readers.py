"""What reads a corpus, or what one is made of, each with good inputs; for :mod:`fuzz_corpus`."""

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from made_objects import make_coff, make_elf, make_mach_o

from mlgokit.compiler import process
from mlgokit.compiler.options.parse import parse_options, spell_options
from mlgokit.compiler.options.safety import check_command_line
from mlgokit.compiler.process import Completed
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.build_notes import OPTIONS_NAME, build_notes
from mlgokit.corpus.combine import combine_corpora
from mlgokit.corpus.content import CONTENTS_NAME
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.freshness import FileDigests, is_current
from mlgokit.corpus.identity import describe_corpus
from mlgokit.corpus.importers.bitcode_files import import_local_thinlto
from mlgokit.corpus.importers.compile_commands import read_compile_commands
from mlgokit.corpus.importers.database import import_commands
from mlgokit.corpus.importers.object_lists import (
    ObjectFile,
    objects_in_aquery,
    objects_in_parameters,
    objects_of_commands,
)
from mlgokit.corpus.importers.objects import import_objects
from mlgokit.corpus.info import corpus_info
from mlgokit.corpus.layout import DESCRIPTION_NAME, SIDECAR_NAME, decode_command_line
from mlgokit.corpus.options.command_line import options_for_ir, read_dry_run
from mlgokit.corpus.options.edits import command_line_edits, edit_command_line
from mlgokit.corpus.options.linker_words import translate_linker
from mlgokit.corpus.options.override import fill_override, link_options, split_link_command
from mlgokit.corpus.sources.projects import load_projects
from mlgokit.corpus.split import split_corpus
from mlgokit.errors import CorpusError, MlgokitError

Framed = tuple[bytes, Callable[[bytes], bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Something that reads data of others.

    Attributes:
        seeds: good inputs that are mutated.
        read: reads the bytes; gets a folder for its input and one for its output.
        is_text: whether the seeds are JSON, whose values are exchanged as well.
        inside: of an input with a frame that mutations break, such as an archive or a length: what is in the frame, and
            what puts something else in its place. Half of the mutations are made there.
    """

    seeds: Sequence[bytes]
    read: Callable[[bytes, Path, Path], None]
    is_text: bool = False
    inside: Callable[[bytes], Framed] | None = None


BITCODE = b"BC\xc0\xde1234"
COMMAND = b"-cc1\0-triple\0x86_64-pc-linux-gnu\0-Oz\0-fthinlto-index=a.thinlto.bc\0"
PLAIN_COMMAND = b"-cc1\0-triple\0x86_64-pc-linux-gnu\0-Oz\0"
"""A corpus without ThinLTO has no index that an option could name."""


def _read_object(data: bytes, source: Path, output: Path) -> None:
    path = source / "lib/a.o"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    (source / "a.thinlto.bc").write_bytes(BITCODE)
    item = ObjectFile(name="lib/a.o", path=path, base=source)
    refused: list[MlgokitError] = []
    for distributed in (True, False):
        try:
            import_objects([item], corpus_folder=output, project="p", distributed_thinlto=distributed)
            _load_whole(output)
        except MlgokitError as error:
            refused.append(error)
    if len(refused) == 2:
        raise refused[1]


def _read_made_from(data: bytes, source: Path, output: Path) -> None:
    (output / "a.o.dep").write_bytes(zlib.compress(data))
    (source / "a.c").write_bytes(b"")
    is_current(output / "a.o.dep", FileDigests(), folder=source, call="c", bitcode_sha256="b")
    (output / "a.o.dep").write_bytes(data)
    is_current(output / "a.o.dep", FileDigests(), folder=source, call="c", bitcode_sha256="b")


def _load_whole(folder: Path) -> None:
    corpus = load_corpus(folder)
    if corpus.missing:
        raise CorpusError(corpus.missing[0].reason)


def _read_parameters(data: bytes, source: Path, output: Path) -> None:
    (source / "a.params").write_bytes(data)
    objects = objects_in_parameters(source / "a.params", object_base=_with_objects(source))
    import_objects(objects, corpus_folder=output, project="p")


def _read_aquery(data: bytes, source: Path, output: Path) -> None:
    (source / "aquery.json").write_bytes(data)
    objects = objects_in_aquery(source / "aquery.json", object_base=_with_objects(source))
    import_objects(objects, corpus_folder=output, project="p")


def _read_database(data: bytes, source: Path, output: Path) -> None:
    (source / "compile_commands.json").write_bytes(data)
    _with_objects(source)
    commands = read_compile_commands(source / "compile_commands.json")
    import_objects(objects_of_commands(commands), corpus_folder=output, project="p")


def _with_objects(source: Path) -> Path:
    """A folder with the objects that the lists name."""
    for name in ("lib/a.o", "b.o"):
        path = source / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(OBJECTS[0])
    return source


def _read_options(data: bytes, source: Path, output: Path) -> None:
    (output / OPTIONS_NAME).write_bytes(data)
    del source
    build_notes(output, [])


def _read_description(data: bytes, source: Path, output: Path) -> None:
    _put_corpus(output, {DESCRIPTION_NAME: data})
    del source
    load_corpus(output)


def _read_sidecar(data: bytes, source: Path, output: Path) -> None:
    _put_corpus(output, {SIDECAR_NAME: data})
    del source
    load_corpus(output)


def _read_command_line(data: bytes, source: Path, output: Path) -> None:
    _put_corpus(output, {"lib/a.o.cmd": data})
    del source
    _load_whole(output)


def _read_parts(data: bytes, source: Path, output: Path) -> None:
    """Two corpora, one of them hostile, joined into a third; ``data`` is the description, a zero byte, the sidecar."""
    description, _, sidecar = data.partition(b"\0")
    _put_corpus(source / "good", {})
    _put_corpus(source / "bad", {DESCRIPTION_NAME: description, SIDECAR_NAME: sidecar})
    combine_corpora(source, corpus_folder=output)
    load_corpus(output)


def _put_corpus(folder: Path, changed: Mapping[str, bytes]) -> None:
    good = {
        DESCRIPTION_NAME: DESCRIPTION,
        SIDECAR_NAME: SIDECAR,
        "lib/a.o.bc": BITCODE,
        "lib/a.o.cmd": PLAIN_COMMAND,
        "b.o.bc": BITCODE,
        "b.o.cmd": PLAIN_COMMAND,
    }
    for name, data in (good | dict(changed)).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _read_thinlto(data: bytes, source: Path, output: Path) -> None:
    (source / "a.o.3.import.bc").write_bytes(data)
    (source / "a.o.thinlto.bc").write_bytes(data)
    import_local_thinlto(source, corpus_folder=output, project="p", override=["-cc1", "-Oz"])
    load_corpus(output)


def _read_imported_commands(data: bytes, source: Path, output: Path) -> None:
    """A whole import of a database, with a compiler that takes everything and that no process runs."""
    (source / "compile_commands.json").write_bytes(data)
    state = mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(source / "state")})
    with state, mock.patch.object(process, "run", _obliging_compiler):
        import_commands(source / "compile_commands.json", toolchain=TOOLCHAIN, corpus_folder=output, project="p")
        load_corpus(output)


_OF_DRIVERS = {"-###", "-c", "-march=x86-64", "-g0", "-Qunused-arguments"}


def _obliging_compiler(argv: Sequence[str], **_: object) -> Completed:
    if "-###" in argv:
        # What the driver does not refuse, it may pass on; what is the driver's own, it does not.
        words = ["-cc1", *(word for word in argv[1:] if word not in _OF_DRIVERS)]
        stderr = f"clang version 19.1.7\n {' '.join(map(_quoted, ['clang', *words]))}\n"
    else:
        stderr = ""
        if "-o" in argv:
            Path(argv[argv.index("-o") + 1]).write_bytes(BITCODE)
    # A database's cc may be asked what it is.
    return Completed(
        returncode=0,
        stdout=b"clang version 19.1.7\n",
        stderr=stderr,
        timed_out=False,
        wall_seconds=0.0,
        user_seconds=0.0,
        peak_bytes=0,
    )


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'


def _read_dry_run(data: bytes, source: Path, output: Path) -> None:
    """What a driver prints, to the options of a module, which must pass the check of a corpus."""
    del source
    _read_words(b"\0".join(_encoded(word) for word in options_for_ir(read_dry_run(_decoded(data)))), output, output)


def _read_words(data: bytes, source: Path, output: Path) -> None:
    """A command line as it stands; no word that clang would expand may pass the check."""
    del source
    words = decode_command_line(data)
    if spell_options(parse_options(words)) != words:
        raise AssertionError("parsing and spelling lost a word")
    reason = check_command_line(words, folder=output)
    if reason is not None:
        raise CorpusError(reason)
    if any(word.startswith("@") or word in {"-load", "-o", "-plugin"} for word in words):
        raise AssertionError("a word that loads or writes passed")


def _read_edits(data: bytes, source: Path, output: Path) -> None:
    """Lines that add, delete and replace options, after a command line in words."""
    del source, output
    line, *changes = _decoded(data).split("\n")
    kinds: dict[str, list[str]] = {"add": [], "delete": [], "replace": []}
    for change in changes:
        kind, _, text = change.partition(" ")
        kinds.get(kind, kinds["add"]).append(text)
    edit_command_line(tuple(line.split("\0")), command_line_edits(**kinds), where="a.o")


def _read_link_command(data: bytes, source: Path, output: Path) -> None:
    """A link's command, to the options of all modules of a corpus that waits for them."""
    (source / "r.rsp").write_bytes(data[:1000].replace(b"@r.rsp", b""))
    words = split_link_command(_decoded(data))
    translate_linker(words[1:])
    found = link_options(["ld.lld", *words[1:]], toolchain=TOOLCHAIN, folder=source)
    _put_corpus(output, {DESCRIPTION_NAME: WAITING})
    fill_override(output, found.options, build=source)
    load_corpus(output)


def _read_link_description(data: bytes, source: Path, output: Path) -> None:
    del source
    _put_corpus(output, {DESCRIPTION_NAME: data})
    fill_override(output, ["-cc1", "-O2"], build=output)
    load_corpus(output)


def _read_split(data: bytes, source: Path, output: Path) -> None:
    """A sidecar, a zero byte and remembered contents: what a corpus has, how it is split, and split again."""
    del source
    sidecar, _, contents = data.partition(b"\0")
    _put_corpus(output, {SIDECAR_NAME: sidecar, CONTENTS_NAME: contents})
    for seed in (1, 1, 2):
        corpus = load_corpus(output)
        found = describe_corpus(output, corpus.modules, toolchain=None, plugin=None)
        json.dumps(corpus_info(corpus, found).to_json())
        result, changed = split_corpus(corpus, found, seed=seed, force=seed == 2)
        json.dumps(result.to_json())
        again = load_corpus(output)
        if [one.held_out for one in again.modules] != [one.held_out for one in changed.modules]:
            raise AssertionError("the split that was written is not the one that is read")


def _read_projects(data: bytes, source: Path, output: Path) -> None:
    (source / "projects.toml").write_bytes(data)
    del output
    load_projects(source / "projects.toml")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _objects() -> list[bytes]:
    elf = {".text": b"\x90", ".llvmbc": BITCODE, ".llvmcmd": COMMAND}
    apple = {"__TEXT,__text": b"\x90", "__LLVM,__bitcode": BITCODE, "__LLVM,__cmdline": COMMAND}
    forms = [(word, order) for word in (8, 4) for order in ("little", "big")]
    plain = {**elf, ".llvmcmd": PLAIN_COMMAND}
    return [
        make_elf(plain, word=8, order="little"),
        *(make_elf(elf, word=word, order=order) for word, order in forms),
        *(make_mach_o(apple, word=word, order=order) for word, order in forms),
        *(make_coff({**elf, ".a_long_name": b"x"}, big=big) for big in (False, True)),
    ]


OBJECTS = _objects()
DESCRIPTION = json.dumps({"has_thinlto": False, "modules": ["lib/a.o", "b.o"]}, indent=2).encode()
OVERRIDE = json.dumps({"global_command_override": ["-cc1"], "has_thinlto": True, "modules": ["b.o"]}).encode()
FACTS = {
    "project": "p",
    "language": "c",
    "held_out": True,
    "source": None,
    "front_end_seconds": 0.5,
    "bitcode_bytes": 8,
}
SIDECAR = json.dumps(
    {
        "format_version": 1,
        "modules": {"lib/a.o": FACTS, "b.o": FACTS},
        "failures": [{"name": "c.o", "project": "p", "reason": "no"}],
    }
).encode()
UNSPLIT = SIDECAR.replace(b'"held_out": true', b'"held_out": false')
DATABASE = json.dumps(
    [
        {"directory": ".", "command": 'cc -DA="b c" -c a.c -o lib/a.o', "file": "a.c"},
        {"directory": ".", "arguments": ["cc", "-c", "b.c", "-ob.o", "@r"], "file": "b.c", "output": "b.o"},
    ]
).encode()
AQUERY = json.dumps(
    {
        "artifacts": [{"id": 1}],
        "actions": [
            {"mnemonic": "CppCompile", "arguments": ["cc"]},
            {
                "mnemonic": "CppLink",
                "arguments": ["cc", "@p", "-o", "x", "lib/a.o"],
                "paramFiles": [{"execPath": "p", "arguments": ["b.o"]}],
            },
        ],
    }
).encode()

WAITING = json.dumps(
    {"global_command_override": ["<UNSPECIFIED>"], "has_thinlto": False, "modules": ["lib/a.o", "b.o"]}
).encode()
TOOLCHAIN = Toolchain(
    major=19, version="19.1.7", clang=Path("/nowhere/clang"), clangxx=Path("/nowhere/clang++"), version_text="clang"
)
DRY_RUN = (
    b"clang version 19.1.7\nTarget: x86_64-pc-linux-gnu\n (in-process)\n"
    b' "/bin/clang" "-cc1" "-triple" "x86_64-pc-linux-gnu" "-emit-obj" "-target-cpu" "x86-64" "-D" "A="b c""'
    b' "-I" "include" "-Oz" "-std=c++17" "-mllvm" "-inline-threshold=5" "-o" "a.o" "-x" "c++" "a.cc"\n'
)
LINK = (
    b"python3 wrap.py -- ../bin/ld.lld -pie -m elf_x86_64 --lto-O3 -mllvm -inline-threshold=5 @r.rsp"
    b" -plugin-opt=mcpu=x86-64 --thinlto-cache-dir=cache -o prog 'a b.o' lib/a.o && touch done\n"
)
CONTENT = json.dumps(
    {
        "format_version": 1,
        "bitcode_sha256": "f" * 64,
        "identity": "19:aa",
        "functions": 2,
        "declarations": 1,
        "call_sites": 3,
        "decidable_call_sites": 2,
        "instructions": 99,
        "blocks": 4,
        "global_bytes": 0,
        "language": "",
        "own_functions": ["0123456789a0"],
    }
).encode()
PROJECTS = b"""
[[project]]
name = "zlib"
language = "c"
standard = "c99"
archive = { registry = "pypi", package = "p", version = "1.0", file = "p-1.0.tar.gz", sha256 = "%s" }
root = "p-1.0/zlib"
include = ["."]
defines = ["HAVE_UNISTD_H"]
options = ["-fno-exceptions"]
sources = ["*.c"]
exclude = ["x.c"]
license = "Zlib"

[[project.generated]]
path = "include/config.h"
text = "#define A 1"
""" % (b"0" * 64)
COUNTS = b'{"format_version": 1, "commands": 3, "left_out": {"-flto": 2}, "kept": {"-fsanitize=address": 1}}'
EDITS = (
    PLAIN_COMMAND + b"\nadd -mllvm -inline-threshold=5\ndelete -target-feature +avx\nreplace -triple x86_64-linux-gnu"
)

OPTIONS = b"\0".join(
    [
        PLAIN_COMMAND.strip(b"\0"), b"-target-feature", b"+avx", b"-O2", b"-mllvm", b"-inline-threshold=5", b"-mllvm",
        b"-enable-ml-inliner=default", b"-vectorize-loops", b"-mrelocation-model", b"pic",
    ]
)  # fmt: skip
IMPORTED = json.dumps(
    [
        {"directory": ".", "command": 'g++ -O2 -DA="b c" -march=x86-64 -MD -MF a.d -c a.cc -o lib/a.o', "file": "a.cc"},
        {"directory": ".", "arguments": ["ccache", "cc", "-Os", "-c", "b.c", "-ob.o"], "file": "b.c", "output": "b.o"},
    ]
).encode()

MADE_FROM = json.dumps(
    {"bitcode_sha256": "b", "call": "c", "files": ["a.c", "/dev/null"], "sha256": hashlib.sha256().hexdigest()}
).encode()
READERS: dict[str, Reader] = {
    "objects": Reader(seeds=OBJECTS, read=_read_object),
    "linker parameters": Reader(seeds=[b"-o\nx\nlib/a.o\nb.o\n", b'"lib/a.o"\n-o x\n'], read=_read_parameters),
    "bazel aquery": Reader(seeds=[AQUERY], read=_read_aquery, is_text=True),
    "compilation database": Reader(seeds=[DATABASE], read=_read_database, is_text=True),
    "description": Reader(seeds=[DESCRIPTION, OVERRIDE], read=_read_description, is_text=True),
    "sidecar": Reader(seeds=[SIDECAR], read=_read_sidecar, is_text=True),
    "counts of options": Reader(seeds=[COUNTS], read=_read_options, is_text=True),
    "command line": Reader(seeds=[PLAIN_COMMAND], read=_read_command_line),
    "combined corpora": Reader(seeds=[DESCRIPTION + b"\0" + SIDECAR], read=_read_parts),
    "ThinLTO files": Reader(seeds=[BITCODE, b""], read=_read_thinlto),
    "import of commands": Reader(seeds=[IMPORTED], read=_read_imported_commands, is_text=True),
    "driver's answer": Reader(seeds=[DRY_RUN], read=_read_dry_run),
    "options": Reader(seeds=[PLAIN_COMMAND, OPTIONS], read=_read_words),
    "changes of options": Reader(seeds=[EDITS], read=_read_edits),
    "link command": Reader(seeds=[LINK], read=_read_link_command),
    "waiting description": Reader(seeds=[WAITING], read=_read_link_description, is_text=True),
    "split and contents": Reader(seeds=[UNSPLIT + b"\0" + CONTENT], read=_read_split),
    "list of projects": Reader(seeds=[PROJECTS], read=_read_projects),
    "what a module was made from": Reader(seeds=[MADE_FROM], read=_read_made_from, is_text=True),
}
"""By name. ``read`` may raise any :class:`MlgokitError`, and nothing else."""
