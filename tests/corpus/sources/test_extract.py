import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.front_end import ExtractionLimits
from mlgokit.corpus.layout import DESCRIPTION_NAME, SIDECAR_NAME
from mlgokit.corpus.sources.extract import extract_projects
from mlgokit.corpus.sources.projects import Archive, Project
from mlgokit.errors import CorpusError, ReuseError, StorageError, ToolError

COMPILER = r"""#!/bin/sh
# Stands in for clang: copies the source to the output unless the source tells it to behave in another way.
case " $* " in
*" -### "*)
    case " $* " in *" -march=bad "*) echo "clang: error: unknown argument: '-march=bad'" >&2; exit 1 ;; esac
    echo ' "clang" "-cc1" "-Oz" "-o" "module.o" "-x" "c++" "a.cc"' >&2
    exit 0 ;;
esac
for source; do :; done
while [ $# -gt 1 ]; do
    if [ "$1" = -o ]; then out=$2; fi
    if [ "$1" = -dependency-file ]; then echo "module: $source" > "$2"; fi
    shift
done
echo "$1" >> "@LOG@"
. "./$1"
"""
FINE = 'cat "$1" > "$out"\n'
PROJECT = Project(
    name="p",
    language="c++",
    standard="c++17",
    archive=Archive(registry="pypi", package="p", version="1", file="p-1.tar.gz", sha256="0" * 64),
    root="p-1",
    sources=("*.cc",),
    license="MIT",
)


@dataclasses.dataclass(kw_only=True)
class Place:
    """A folder with sources that are scripts for the compiler, and where their corpus goes."""

    folder: Path
    toolchain: Toolchain

    def add(self, name: str, script: str = FINE) -> None:
        path = self.folder / "sources" / "p" / "p-1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n{script}")

    def extract(self, *projects: Project, **options: Any) -> Corpus:
        return extract_projects(
            projects or (PROJECT,),
            toolchain=self.toolchain,
            sources_folder=self.folder / "sources",
            corpus_folder=self.folder / "corpus",
            **options,
        )

    def compiled(self) -> list[str]:
        """The sources that were compiled since the last call."""
        names = (self.folder / "log").read_text().split() if (self.folder / "log").exists() else []
        (self.folder / "log").unlink(missing_ok=True)
        return sorted(names)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    compiler = tmp_path / "clang"
    compiler.write_text(COMPILER.replace("@LOG@", str(tmp_path / "log")))
    compiler.chmod(0o755)
    toolchain = Toolchain(major=19, version="19", clang=compiler, clangxx=compiler, version_text="clang 19", target="t")
    return Place(folder=tmp_path, toolchain=toolchain)


def test_each_source_gives_a_module(place: Place):
    for name in ("b.cc", "a.cc", "sub/c.cc", "sub/c_test.cc", "readme.txt"):
        place.add(name)
    seen: list[tuple[int, int, str]] = []
    project = dataclasses.replace(PROJECT, sources=("*.cc", "**/*.cc"), exclude=("**/*_test.cc",), held_out=True)
    corpus = place.extract(project, workers=2, report=lambda *progress: seen.append(progress))
    assert [module.name for module in corpus.modules] == ["p/a.cc.o", "p/b.cc.o", "p/sub/c.cc.o"]
    module = corpus.modules[2]
    assert (module.project, module.language, module.held_out, module.source) == ("p", "c++", True, "sub/c.cc")
    assert module.command_line == ("-cc1", "-Oz")
    assert module.bitcode.read_text() == f"# sub/c.cc\n{FINE}"
    assert module.bitcode_bytes == module.bitcode.stat().st_size
    assert module.front_end_seconds is not None
    assert [(done, total) for done, total, _ in seen] == [(1, 3), (2, 3), (3, 3)]
    assert {label for *_, label in seen} == {module.name for module in corpus.modules}
    assert load_corpus(place.folder / "corpus") == corpus


def test_finished_modules_are_reused(place: Place):
    place.add("a.cc")
    place.add("b.cc")
    first = place.extract()
    assert place.compiled() == ["a.cc", "b.cc"]
    assert place.extract() == first
    assert not place.compiled()


def test_without_our_notes_they_are_reused_as_well(place: Place):
    place.add("a.cc")
    place.extract()
    (place.folder / "corpus" / SIDECAR_NAME).write_text("{")
    place.compiled()
    assert place.extract().modules[0].front_end_seconds is None
    assert not place.compiled()


@pytest.mark.parametrize(("suffix", "content"), [("bc", b"changed"), ("cmd", b"-cc1\0-O3\0"), ("cmd", None)])
def test_a_changed_module_is_made_again(place: Place, suffix: str, content: bytes | None):
    place.add("a.cc")
    place.add("b.cc")
    first = place.extract()
    place.compiled()
    changed = place.folder / "corpus" / f"p/a.cc.o.{suffix}"
    if content is None:
        changed.unlink()
    else:
        changed.write_bytes(content)
    again = place.extract()
    assert place.compiled() == ["a.cc"]
    assert [module.bitcode_sha256 for module in again.modules] == [module.bitcode_sha256 for module in first.modules]
    assert load_corpus(place.folder / "corpus") == again


def test_another_division_into_training_and_evaluation_compiles_nothing(place: Place):
    place.add("a.cc")
    place.extract()
    place.compiled()
    assert place.extract(dataclasses.replace(PROJECT, held_out=True)).modules[0].held_out
    assert not place.compiled()


def test_other_options_need_another_folder(place: Place):
    place.add("a.cc")
    place.extract()
    with pytest.raises(ReuseError, match=r'corpus: inputs.p: expected "\w+", found'):
        place.extract(dataclasses.replace(PROJECT, defines=("A",)))
    place.toolchain = dataclasses.replace(place.toolchain, version_text="clang 20")
    with pytest.raises(
        ReuseError, match=r'toolchain.clang: expected "clang 20", found "clang 19"; choose another folder'
    ):
        place.extract()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo 'a.cc:3:1: error: no such thing' >&2; echo '1 error generated.' >&2; exit 1",
            "a.cc:3:1: error: no such thing",
        ),
        ("kill -SEGV $$", "the front end was ended by signal 11"),
        ("while :; do sleep 1; done", "the front end did not finish in 0.5 seconds"),
        ('head -c 100 /dev/zero > "$out"', "expected at most 64 bytes of bitcode, found 100"),
    ],
)
def test_a_source_that_fails_is_listed_and_stops_nothing(place: Place, script: str, reason: str):
    place.add("a.cc", script)
    place.add("b.cc", 'echo > "$out"')
    corpus = place.extract(limits=ExtractionLimits(module_seconds=0.5, bitcode_bytes=64))
    assert [(failure.name, failure.project, failure.reason) for failure in corpus.failures] == [
        ("p/a.cc.o", "p", reason)
    ]
    assert [module.name for module in corpus.modules] == ["p/b.cc.o"]
    assert load_corpus(place.folder / "corpus").failures == corpus.failures
    left = {path.name for path in (place.folder / "corpus").rglob("*") if path.is_file()}
    assert left == {"manifest.json", DESCRIPTION_NAME, SIDECAR_NAME, "b.cc.o.bc", "b.cc.o.cmd", "b.cc.o.dep"}


def test_no_module_at_all_is_an_error(place: Place):
    place.add("a.cc", "echo 'error: no' >&2; exit 1")
    with pytest.raises(CorpusError, match=r"found none among 1 entries \(p/a.cc.o: error: no\); .*: correct the list"):
        place.extract()
    assert not (place.folder / "corpus" / DESCRIPTION_NAME).exists()


def test_a_full_disk_stops_at_once(place: Place):
    place.add("a.cc")
    place.add("b.cc", "echo 'error: unable to write: No space left on device' >&2; exit 1")
    with pytest.raises(
        StorageError,
        match=r"expected room for what the compiler writes, found the disk full; .* what was finished is kept",
    ):
        place.extract()
    place.compiled()
    place.add("b.cc")
    place.extract()
    assert place.compiled() == ["b.cc"]


def test_an_interrupt_kills_compilers_and_keeps_what_is_finished(place: Place):
    pid_file = place.folder / "pid"
    place.add("a.cc", f'while ! test -s "{pid_file}"; do sleep 0.01; done\n{FINE}')
    place.add("b.cc", f'echo $$ > "{pid_file}.new"; mv "{pid_file}.new" "{pid_file}"; while :; do sleep 1; done')
    place.add("c.cc")

    def interrupt(done: int, total: int, label: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.extract(workers=2, report=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    corpus = place.folder / "corpus"
    assert (corpus / "p/a.cc.o.bc").exists()
    assert not (corpus / "p/b.cc.o.bc").exists()
    assert not list(corpus.glob(".*"))
    with pytest.raises(CorpusError, match=r"extract a corpus there"):
        load_corpus(corpus)
    compiled = place.compiled()
    assert {"a.cc", "b.cc"} <= set(compiled)

    place.add("b.cc")
    assert len(place.extract().modules) == 3
    assert "a.cc" not in place.compiled()
    facts = json.loads((corpus / SIDECAR_NAME).read_text())["modules"]
    assert facts["p/a.cc.o"]["front_end_seconds"] is not None


def test_a_wrong_project_is_named_before_anything_is_compiled(place: Place):
    with pytest.raises(CorpusError, match=r"project 'p': expected its sources in .*; run `mlgokit corpus fetch` first"):
        place.extract()
    place.add("a.cc")
    with pytest.raises(CorpusError, match=r"project 'p': sources: expected files that match 'no/[*].cc' in"):
        place.extract(dataclasses.replace(PROJECT, sources=("*.cc", "no/*.cc")))
    with pytest.raises(CorpusError, match=r"project 'p': expected sources, found all of them excluded"):
        place.extract(dataclasses.replace(PROJECT, exclude=("**/*",)))
    with pytest.raises(CorpusError, match=r"project 'p': expected a glob, found 'x[*][*]'"):
        place.extract(dataclasses.replace(PROJECT, sources=("x**",)))
    with pytest.raises(CorpusError, match=r"expected options that .* takes, found: .* unknown argument: '-march=bad'"):
        place.extract(dataclasses.replace(PROJECT, options=("-march=bad",)))
    assert not place.compiled()
    assert not (place.folder / "corpus").exists()


def test_a_source_named_like_an_option_is_still_a_source(place: Place):
    place.add("-o.cc")
    place.add("@x.cc")
    assert [module.source for module in place.extract().modules] == ["-o.cc", "@x.cc"]
    assert place.compiled() == ["./-o.cc", "./@x.cc"]


def test_a_compiler_that_is_gone_is_named(place: Place):
    place.add("a.cc")
    place.toolchain.clangxx.unlink()
    with contextlib.chdir(place.folder), pytest.raises(ToolError, match=r"clang: expected an executable program"):
        place.extract()


def test_folders_may_be_relative(place: Place):
    place.add("a.cc")
    with contextlib.chdir(place.folder):
        corpus = extract_projects(
            [PROJECT], toolchain=place.toolchain, sources_folder=Path("sources"), corpus_folder=Path("corpus")
        )
        assert corpus.modules[0].bitcode == place.folder / "corpus/p/a.cc.o.bc"
        assert corpus.modules[0].bitcode.exists()


def test_options_of_a_list_that_do_more_than_decide_the_code_are_refused(place: Place):
    place.add("a.cc")
    compiler = place.toolchain.clang
    compiler.write_text(compiler.read_text().replace('"-cc1" "-Oz"', '"-cc1" "-Oz" "-mllvm" "-info-output-file=x"'))
    message = (
        r"project 'p': options: expected options that only decide the code, found -mllvm -info-output-file=x; correct "
        "the list of projects"
    )
    with pytest.raises(CorpusError, match=message):
        place.extract()
