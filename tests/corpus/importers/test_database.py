import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import tracemalloc
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mlgokit.compiler import process
from mlgokit.compiler.process import Completed
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus, read_sidecar
from mlgokit.corpus.front_end import ExtractionLimits
from mlgokit.corpus.importers import database
from mlgokit.corpus.importers.database import CommandFilter, import_commands, module_outputs
from mlgokit.corpus.layout import SIDECAR_NAME
from mlgokit.corpus.options.dry_run import BuildOptions, DryRun, dry_runs
from mlgokit.errors import CorpusError, ReuseError, UsageError

COMPILER = r"""#!/bin/sh
# Stands in for clang: knows no -fgcc-..., tells -cc1 options for -###, and copies the source to the output.
for word; do
    case $word in -fgcc-*) echo "clang: error: unknown argument: '$word'" >&2; unknown=1 ;; esac
done
test -z "$unknown" || exit 1
case " $* " in
*" -### "*)
    echo "dry $*" >> "@LOG@"
    case " $* " in
    *" -mtune=odd "*) echo "clang: error: unsupported argument 'odd' to option '-mtune='" >&2; exit 1 ;;
    *" -fbad "*) echo "clang: error: '-fbad' needs '-fgood'" >&2; exit 1 ;;
    *" -Oz "*) level=-Oz ;;
    *" -O2 "*) level=-O2 ;;
    *) level=-O0 ;;
    esac
    case " $* " in *" -fwrites "*) extra='"-stats-file=x"' ;; esac
    case " $* " in *" -fprofiled "*) extra="\"-fprofile-instrument-use-path=$PWD/p\"" ;; esac
    echo " \"clang\" \"-cc1\" \"$level\" $extra \"-o\" \"module.o\" \"-x\" \"c++\" \"-\"" >&2
    exit 0 ;;
esac
echo "run $*" >> "@LOG@"
while [ $# -gt 1 ]; do
    if [ "$1" = -o ]; then out=$2; fi
    if [ "$1" = -dependency-file ]; then dependencies=$2; fi
    shift
done
grep -q broken "$1" && { echo "$1:1:1: error: it is broken" >&2; exit 1; }
cp "$1" "$out"
echo "module: $1 $(sed -n 's/^#include "\(.*\)"/\1/p' "$1")" > "$dependencies"
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """What was made, and what was told about it."""

    corpus: Corpus
    repeated: int
    unwanted: int
    dropped: Mapping[str, int]


@dataclasses.dataclass(kw_only=True)
class Place:
    """A build folder with a database, and the corpus that is made of it."""

    folder: Path
    toolchain: Toolchain
    entries: list[dict[str, str]] = dataclasses.field(default_factory=list)

    @property
    def build(self) -> Path:
        return self.folder / "app" / "build"

    def add(self, name: str, options: str = "-O2", *, text: str = "", output: str = "", compiler: str = "g++") -> None:
        path = self.folder / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or f"// {name}\n")
        output = output or f"CMakeFiles/app.dir/{name}.o"
        command = f"{compiler} {options} -o {output} -c ../{name}"
        self.entries.append({"directory": str(self.build), "file": f"../{name}", "command": command})

    def make(self, **options: Any) -> Made:
        self.build.mkdir(parents=True, exist_ok=True)
        database = self.build / "compile_commands.json"
        database.write_text(json.dumps(self.entries))
        result = import_commands(database, toolchain=self.toolchain, corpus_folder=self.folder / "corpus", **options)
        corpus = load_corpus(self.folder / "corpus")
        assert (result.imported.modules, result.imported.failures) == (len(corpus.modules), len(corpus.failures))
        return Made(corpus=corpus, repeated=result.repeated, unwanted=result.unwanted, dropped=result.options.left_out)

    def calls(self) -> list[str]:
        """What the compiler was asked since the last call: ``dry`` or the source."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return sorted("dry" if line.startswith("dry") else line.split()[-1] for line in lines)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    compiler = tmp_path / "clang"
    compiler.write_text(COMPILER.replace("@LOG@", str(tmp_path / "log")))
    compiler.chmod(0o755)
    toolchain = Toolchain(major=19, version="19", clang=compiler, clangxx=compiler, version_text="clang 19", target="t")
    return Place(folder=tmp_path, toolchain=toolchain)


def failures(result: Made) -> dict[str, str]:
    return {failure.name: failure.reason for failure in result.corpus.failures}


def test_each_command_gives_a_module_named_after_its_output(place: Place):
    place.add("src/a.cc")
    place.add("src/b.cc", "-O2 -DX")
    result = place.make(workers=2)
    assert [module.name for module in result.corpus.modules] == [
        "app/CMakeFiles/app.dir/src/a.cc.o",
        "app/CMakeFiles/app.dir/src/b.cc.o",
    ]
    module = result.corpus.modules[0]
    assert (module.project, module.language, module.source, module.held_out) == ("app", "c++", "src/a.cc", False)
    assert module.command_line == ("-cc1", "-O2")
    assert module.bitcode.read_text() == "// src/a.cc\n"


def test_one_dry_run_serves_all_that_differ_in_sources_and_macros(place: Place):
    for index in range(5):
        place.add(f"{index}.cc", f"-O2 -DX={index} -Iinclude{index}")
    place.add("other.cc", "-O2 -fPIC")
    place.make()
    assert place.calls() == ["../0.cc", "../1.cc", "../2.cc", "../3.cc", "../4.cc", "../other.cc", "dry", "dry"]


def test_options_that_clang_does_not_know_are_dropped_and_counted(place: Place):
    place.add("a.cc", "-O2 -fgcc-one -fgcc-two")
    place.add("b.cc", "-O2 -fgcc-one -mtune=odd --coverage")
    result = place.make()
    assert len(result.corpus.modules) == 2
    assert result.dropped == {"-fgcc-one": 2, "-fgcc-two": 1, "-mtune=odd": 1, "--coverage": 1}


def test_options_that_are_at_odds_are_a_failure(place: Place):
    place.add("a.cc", "-O2 -fbad")
    place.add("b.cc")
    result = place.make()
    assert failures(result) == {"app/CMakeFiles/app.dir/a.cc.o": "clang: error: '-fbad' needs '-fgood'"}
    assert len(result.corpus.modules) == 1


def test_options_that_write_elsewhere_are_a_failure(place: Place):
    place.add("a.cc", "-O2 -fwrites")
    place.add("b.cc")
    assert failures(place.make()) == {
        "app/CMakeFiles/app.dir/a.cc.o": "expected options that decide the code, found -stats-file=x, which extraction "
        "does not do; take it out of the build's command"
    }


def test_an_option_that_clang_does_not_know_takes_no_word_of_another_with_it(place: Place):
    """Without its first ``-fgcc-x`` this would ask for the plugin."""
    place.add("a.cc", "-O2 -fgcc-x -I -fgcc-x -I -fplugin=./evil.so")
    place.add("b.cc", "-O2 -fgcc-x")
    result = place.make()
    assert failures(result) == {
        "app/CMakeFiles/app.dir/a.cc.o": "expected a value of -I that does not begin with - or @, found -I -fgcc-x"
    }
    calls = (place.folder / "log").read_text()
    assert "evil" not in calls
    assert "run -cc1 -O2 -disable-llvm-passes -emit-llvm-bc" in calls


def test_a_build_without_optimization_needs_a_level(place: Place):
    place.add("a.cc", "-g")
    with pytest.raises(
        CorpusError, match=r"expected an optimization level, found -O0, at which clang .* give one \(--level Oz\)"
    ):
        place.make()
    assert "../a.cc" not in place.calls()
    (place.folder / "corpus/manifest.json").unlink()
    assert place.make(level="Oz").corpus.modules[0].command_line == ("-cc1", "-Oz")


def test_one_source_compiled_twice_gives_two_modules(place: Place):
    place.add("a.cc", output="one/a.o")
    place.add("a.cc", output="two/a.o")
    place.add("a.cc", "-O2 -DX", output="two/a.o")
    place.add("a.cc", output="one/a.o")
    result = place.make(project="p")
    assert [module.name for module in result.corpus.modules] == ["p/one/a.o", "p/two/a.o", "p/two/a.o-2"]
    assert result.repeated == 1


def test_the_outputs_of_modules_are_those_of_the_build(place: Place):
    place.add("a.cc", output="one/a.o")
    place.add("a.cc", output="two/a.o")
    place.add("b.cc", "-O2 -DX", output="../../lib/b.o")
    place.entries.append({"directory": "/", "file": "c.cc", "command": "g++ -E c.cc"})
    result = place.make(project="p")
    found = module_outputs(place.build / "compile_commands.json", project="p")
    assert found == {
        "p/one/a.o": place.build / "one/a.o",
        "p/two/a.o": place.build / "two/a.o",
        "p/lib/b.o": place.folder / "lib/b.o",
    }
    assert set(found) == {module.name for module in result.corpus.modules}
    assert not failures(result)


def test_without_an_output_a_module_is_named_after_what_clang_makes(place: Place):
    place.add("src/a.cc")
    place.entries[0]["command"] = "g++ -O2 -c ../src/a.cc"
    assert [module.name for module in place.make().corpus.modules] == ["app/a.o"]
    assert module_outputs(place.build / "compile_commands.json", project="app") == {"app/a.o": place.build / "a.o"}


def test_a_command_that_makes_no_object_is_named_after_its_source(place: Place):
    place.add("src/a.cc")
    place.entries[0]["command"] = "g++ -O2 ../src/a.cc"
    assert [module.name for module in place.make().corpus.modules] == ["app/src/a.cc.o"]


def test_names_stay_inside_the_corpus(place: Place):
    place.add("a.cc", output="../../../../../etc/a.o")
    place.add("b.cc", output="/etc/b\\\\c.o")
    result = place.make()
    assert [module.name for module in result.corpus.modules] == ["app/etc/a.o", "app/etc/b_c.o"]
    assert all(module.bitcode.is_relative_to(place.folder / "corpus") for module in result.corpus.modules)


def test_an_object_in_the_folder_that_names_the_project_does_not_say_so_twice(place: Place):
    place.add("a.cc", output="../../lib/a.o")
    result = place.make(project="lib")
    assert [module.name for module in result.corpus.modules] == ["lib/a.o"]


def test_only_wanted_sources_are_taken(place: Place):
    for name in ("src/a.cc", "src/a_test.cc", "other/b.cc"):
        place.add(name)
    result = place.make(wanted=CommandFilter(include="/src/", exclude="_test"))
    assert [module.source for module in result.corpus.modules] == ["src/a.cc"]
    assert result.unwanted == 2
    with pytest.raises(ReuseError, match=r"config\.exclude: expected null, found"):
        place.make(wanted=CommandFilter(include="/src/"))


def test_names_that_no_file_can_have_are_failures(place: Place):
    place.add("a.cc", output=f"{'x' * 300}.o")
    place.add("b.cc")
    place.entries.append({"directory": f"/{'y' * 300}", "file": "f.cc", "command": "cc -O2 -c f.cc -o f.o"})
    assert sorted(failures(place.make()).values()) == [
        "expected a name that a file can have, found: File name too long",
        f"expected the folder /{'y' * 199} of the command, found none",
    ]


def test_failures_stop_nothing(place: Place):
    place.add("a.cc", text="broken")
    place.add("b.S")
    place.add("c.cc", compiler="nvcc")
    place.add("d.cc")
    place.entries.append({"directory": str(place.build), "file": "e.cc"})
    place.entries.append({"directory": "/no/such", "file": "f.cc", "command": "cc -O2 -c f.cc -o f.o"})
    prefix = "app/CMakeFiles/app.dir"
    result = place.make(limits=ExtractionLimits(module_seconds=20))
    assert failures(result) == {
        f"{prefix}/b.S.o": "expected C or C++, found b.S",
        f"{prefix}/c.cc.o": "expected clang or a compiler with GCC's options, found nvcc",
        "app/entry-4": "command: expected text, found nothing",
        "app/no/such/f.o": "expected the folder /no/such of the command, found none",
        f"{prefix}/a.cc.o": "../a.cc:1:1: error: it is broken",
    }
    assert [module.source for module in result.corpus.modules] == ["d.cc"]


def test_finished_modules_are_reused_until_their_source_changes(place: Place):
    place.add("a.cc")
    place.add("b.cc")
    first = place.make()
    place.calls()
    assert place.make().corpus == first.corpus
    assert place.calls() == ["dry"]
    source = place.folder / "app/a.cc"
    source.write_text("// changed\n")
    os.utime(source, (0, 0))
    assert place.make().corpus.modules[0].bitcode.read_text() == "// changed\n"
    assert place.calls() == ["../a.cc", "dry"]


def test_a_newer_stamp_alone_makes_nothing_again(place: Place):
    place.add("a.cc")
    first = place.make()
    place.calls()
    stamp = first.corpus.modules[0].bitcode.stat().st_mtime + 3600
    os.utime(place.folder / "app/a.cc", (stamp, stamp))
    assert place.make().corpus == first.corpus
    assert place.calls() == ["dry"]


def test_an_edited_header_makes_the_modules_again_that_include_it(place: Place):
    header, other = place.folder / "app" / "a.h", place.folder / "app" / "b.h"
    place.add("a.cc", text='#include "../a.h"\n')
    place.add("b.cc", text='#include "../a.h"\n#include "../b.h"\n')
    place.add("c.cc")
    header.write_text("1\n")
    other.write_text("1\n")
    place.make()
    place.calls()
    for path, again in ((header, ["../a.cc", "../b.cc"]), (other, ["../b.cc"])):
        path.write_text("2\n")
        os.utime(path, (0, 0))
        place.make()
        assert place.calls() == [*again, "dry"]
        place.make()
        assert place.calls() == ["dry"]
    other.unlink()
    place.make()
    assert place.calls() == ["../b.cc", "dry"]


def test_modules_for_a_link_say_of_classes_what_the_link_reads(place: Place):
    place.add("src/a.cc", "-O2 -flto=thin")
    place.add("src/b.cc", "-O2")
    place.make()
    place.calls()
    shutil.rmtree(place.folder / "corpus")
    place.make(for_link=True)
    lines = (place.folder / "log").read_text().splitlines()
    assert [("-flto-unit" in line) for line in lines if not line.startswith("dry")] == [True, False]


def test_other_options_of_the_front_end_make_a_module_again(place: Place):
    place.add("a.cc", "-O2 @flags.rsp")
    place.build.mkdir(parents=True)
    (place.build / "flags.rsp").write_text("-I one")
    place.make()
    place.calls()
    (place.build / "flags.rsp").write_text("-I two")
    place.make()
    assert place.calls() == ["../a.cc", "dry"]


@pytest.mark.parametrize("kind", ["absent", "damaged", "no JSON", "a list", "a link", "a pipe", "large", "of no files"])
def test_a_record_that_cannot_be_used_makes_the_module_again(kind: str, place: Place):
    place.add("a.cc")
    (module,) = place.make().corpus.modules
    place.calls()
    record = place.folder / "corpus" / f"{module.name}.dep"
    fields = json.loads(zlib.decompress(record.read_bytes()))
    assert fields["files"] == ["../a.cc"]
    content = {
        "damaged": record.read_bytes()[:-9],
        "no JSON": zlib.compress(b"[" * 99999),
        "a list": zlib.compress(b"[1]"),
        "large": zlib.compress(json.dumps({"a": " " * (65 << 20), **fields}).encode()),
        "of no files": zlib.compress(
            json.dumps({**fields, "files": [], "sha256": hashlib.sha256().hexdigest()}).encode()
        ),
    }
    record.unlink()
    if kind == "a pipe":
        os.mkfifo(record)
    elif kind == "a link":
        record.symlink_to(place.folder / "app" / "a.cc")
    elif kind != "absent":
        record.write_bytes(content[kind])
    place.make()
    assert place.calls() == ["../a.cc", "dry"]
    assert (place.folder / "app" / "a.cc").read_text() == "// a.cc\n"
    place.make()
    assert place.calls() == ["dry"]


def test_a_header_that_changes_while_it_is_read_is_read_again_next_time(place: Place):
    header = place.folder / "app" / "a.h"
    place.add("a.cc", text='#include "../a.h"\n')
    header.write_text("1\n")
    compiler = place.toolchain.clang
    script = compiler.read_text()
    # The compiler has read the header, and somebody edits it before the compiler ends.
    compiler.write_text(script + f"echo 2 > {header}\n")
    place.make()
    compiler.write_text(script)
    place.calls()
    place.make()
    assert place.calls() == ["../a.cc", "dry"]
    place.make()
    assert place.calls() == ["dry"]


def test_nothing_to_compile_is_an_error(place: Place):
    with pytest.raises(CorpusError, match=r"expected at least one command that compiles C or C\+\+, found 0 entries"):
        place.make()
    place.add("a.S")
    place.add("b.cc")
    message = r"found 1 entries that do not \(app/.*a.S.o: expected C or C.., found a.S\), and 1 that the filter leaves"
    with pytest.raises(CorpusError, match=message):
        place.make(wanted=CommandFilter(exclude="b.cc"))
    assert not (place.folder / "corpus").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wanted": CommandFilter(include="(")}, r"include: expected a regular expression, found '\('"),
        ({"project": "../x"}, "project: expected a name of letters, digits and ._.-, found '../x'; choose another"),
    ],
)
def test_misuse_is_told_before_anything_runs(place: Place, options: dict[str, Any], message: str):
    place.add("a.cc")
    with pytest.raises(UsageError, match=message):
        place.make(**options)
    assert not place.calls()


def test_an_interrupted_import_keeps_what_it_measured_and_what_was_known_before(place: Place):
    for name in ("a.cc", "b.cc", "c.cc"):
        place.add(name)
    place.make()
    facts, _ = read_sidecar(place.folder / "corpus")

    def stop(done: int, total: int, label: str) -> None:
        assert (total, label.rsplit("/", 1)[1]) == (3, ["a.cc.o", "b.cc.o"][done - 1])
        if done == 2:
            raise KeyboardInterrupt

    for has_sidecar in (True, False):
        if not has_sidecar:
            (place.folder / "corpus" / SIDECAR_NAME).unlink()
        with pytest.raises(KeyboardInterrupt):
            place.make(report=stop)
        kept, _ = read_sidecar(place.folder / "corpus")
        assert list(kept) == list(facts)[: None if has_sidecar else 2]
        if has_sidecar:
            assert kept == facts
    assert not list((place.folder / "corpus").glob(".*.tmp"))


def test_memory_does_not_grow_with_the_number_of_commands(place: Place, monkeypatch: pytest.MonkeyPatch):
    """A kilobyte for each; a real process is not needed to see it."""

    def run(argv: Sequence[str], **_: object) -> Completed:
        stderr = ' "clang" "-cc1" "-O2" "-o" "a.o" "-x" "c++" "a.cc"' if "-###" in argv else "error: no source"
        if argv[-1] == "0.cc":
            Path(argv[argv.index("-o") + 1]).write_bytes(b"BC\xc0\xde")
        ended: Any = {"timed_out": False, "wall_seconds": 0.0, "user_seconds": 0.0, "peak_bytes": 0}
        return Completed(returncode=int(argv[-1] not in {"-", "0.cc"}), stdout=b"", stderr=stderr, **ended)

    monkeypatch.setattr(process, "run", run)
    place.add("good.cc")
    peaks: list[int] = []
    for count in (100, 300, 500):
        folder = place.folder / str(count)
        folder.mkdir()
        entries = [
            {
                "directory": str(folder),
                "file": f"{index}.cc",
                "command": f"c++ -O2 -DFILE={index} -c {index}.cc -o {index}.o",
            }
            for index in range(count)
        ]
        (folder / "db.json").write_text(json.dumps(entries))
        tracemalloc.start()
        result = import_commands(
            folder / "db.json", toolchain=place.toolchain, corpus_folder=folder / "corpus", project="p"
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (result.imported.modules, result.imported.failures) == (1, count - 1)
    # Jobs and modules that are kept take 8 KB each; a table of the interpreter's that doubles takes 2 to 8 MB, once.
    assert min(after - before for before, after in itertools.pairwise(peaks)) < 200 * (4 << 10)


def test_copies_left_by_an_earlier_version_are_not_imported(place: Place):
    place.add("a.cc")
    place.add("tune/build/source/a.cc")
    place.add("mine/build/source/a.cc")
    for name in ("tree", "plain-build.log"):
        (place.folder / "app/tune/build" / name).mkdir()
    result = place.make()
    assert [module.source for module in result.corpus.modules] == ["a.cc", "mine/build/source/a.cc"]
    ((name, reason),) = failures(result).items()
    assert name == "app/CMakeFiles/app.dir/tune/build/source/a.cc.o"
    assert reason == (
        f"mlgokit copied it into {place.folder}/app/tune/build in an earlier run; delete that folder, and configure "
        "the build again"
    )


def test_a_command_that_comes_into_the_database_meanwhile_is_a_failure(place: Place, monkeypatch: pytest.MonkeyPatch):
    place.add("a.cc")

    def ask(*args: Any, **options: Any) -> dict[BuildOptions, DryRun]:
        answers = dry_runs(*args, **options)
        place.add("b.cc", "-O2 -fnew")
        (place.build / "compile_commands.json").write_text(json.dumps(place.entries))
        return answers

    monkeypatch.setattr(database, "dry_runs", ask)
    made = place.make()
    assert [module.name for module in made.corpus.modules] == ["app/CMakeFiles/app.dir/a.cc.o"]
    assert [failure.reason for failure in made.corpus.failures] == [
        "the database changed while it was read; import it again"
    ]


def test_what_matches_a_profile_runs_in_the_sandbox_too(place: Place):
    place.add("a.cc", "-O2 -fprofiled")
    place.build.mkdir(parents=True)
    # Counters of IR, which the optimizer matches and not the front end.
    (place.build / "p").write_bytes(b"\xfflprofi\x81\x0d\0\0\0\0\0\0\x01")
    words = ("/bin/sh", "-c", f'echo inside >> {place.folder}/log; exec "$@"', "sh")
    sandbox: Any = lambda *_, **__: words  # noqa: E731  (as a value)
    place.make(limits=ExtractionLimits(sandbox=sandbox))
    log = (place.folder / "log").read_text().splitlines()
    assert [line.split()[0] for line in log] == ["dry", "inside", "run", "inside", "run"]
