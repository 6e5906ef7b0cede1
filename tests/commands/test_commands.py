"""What stages decide before, between and after compilations; the compilers here are not real."""

import errno
import hashlib
import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlgokit.builds import compilers
from mlgokit.builds.compilers import ClusterChoice, CompilerOptions
from mlgokit.commands import evaluate, quickstart, trace, train
from mlgokit.commands.corpus import fetch, info, split
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.content import ModuleContent, append_contents
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.identity import known_contents, training_modules
from mlgokit.corpus.sources.fetch import cached_path
from mlgokit.corpus.sources.projects import choose_projects, load_projects
from mlgokit.corpus.writer import corpus_writer, description_fields
from mlgokit.errors import CorpusError, FetchError, PolicyError, ReuseError, StorageError, ToolError, UsageError
from mlgokit.learning.settings import Learning
from mlgokit.module import Module

TOOLCHAIN = Toolchain(
    major=19, version="19.1.7", clang=Path("clang"), clangxx=Path("clang++"), version_text="clang version 19.1.7"
)


def module(name: str, folder: Path = Path(), *, held_out: bool = False, sha256: str | None = None) -> Module:
    return Module(
        name=name,
        project=name.split("/", maxsplit=1)[0],
        language="c++",
        held_out=held_out,
        bitcode=folder / f"{name}.bc",
        command_line=("-cc1",),
        bitcode_bytes=4,
        bitcode_sha256=sha256,
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    modules = [module(f"alpha/{letter}.cc.o", folder) for letter in "abc"]
    modules.append(module("gamma/d.cc.o", folder, held_out=True))
    for one in modules:
        one.bitcode.parent.mkdir(parents=True, exist_ok=True)
        one.bitcode.write_bytes(b"BC\xc0\xde" + one.name.encode())
        one.bitcode.with_suffix(".cmd").write_bytes(b"-cc1\0")
    with corpus_writer(folder, description_fields(), remedy="add modules") as writer:
        for one in modules:
            writer.add(one)
    return folder


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the modules that were compiled; no module compiles well, for there is no compiler."""
    names: list[str] = []
    plugin = tmp_path / "mlgokit.so"
    plugin.write_bytes(b"plugin")

    def compile_nothing(_: object, one: Module, __: object) -> Compilation:
        names.append(one.name)
        return Compilation(status=CompileStatus.FAILED, reason="error: no compiler", user_seconds=0.25)

    for place in ("compilers", "compiled"):
        monkeypatch.setattr(f"mlgokit.builds.{place}.find_toolchain", lambda *_, **__: TOOLCHAIN)
    for place in ("compilers", "pair"):
        monkeypatch.setattr(f"mlgokit.builds.{place}.build_plugin", lambda _: plugin)
    monkeypatch.setattr(ClangCompiler, "compile", compile_nothing)
    monkeypatch.setattr(ClangCompiler, "loaded", Loaded(version=TOOLCHAIN.version_text))
    return names


# ---- Which projects, which modules ----


def test_projects_are_chosen_by_name_in_the_order_of_the_list():
    everything = choose_projects(None, ())

    assert choose_projects(None, ("re2", "leveldb")) == tuple(
        project for project in everything if project.name in {"re2", "leveldb"}
    )


def test_what_is_held_out_is_not_trained_on_nor_are_its_copies():
    modules = [
        module("alpha/a.cc.o", sha256="1"),
        module("alpha/b.cc.o", sha256="2"),
        module("gamma/c.cc.o", sha256="2", held_out=True),
        module("beta/d.cc.o", sha256="1"),
        module("beta/e.cc.o", sha256="3"),
        module("beta/f.cc.o"),
        module("beta/g.cc.o"),
    ]

    assert [one.name for one in training_modules(modules)] == [
        "alpha/a.cc.o",
        "beta/e.cc.o",
        "beta/f.cc.o",
        "beta/g.cc.o",
    ]


def test_a_corpus_that_is_all_held_out_cannot_be_trained_on():
    with pytest.raises(
        CorpusError,
        match=r"^training: expected at least one of 1 modules not to be held out, found none; add training projects",
    ):
        training_modules([module("gamma/a.cc.o", held_out=True)])


# ---- Fetching ----


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A list of one project, whose archive is in ``cache``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("a-1/a.c")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"x;\n"))
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    manifest = tmp_path / "projects.toml"
    manifest.write_text(
        '[[project]]\nname = "a"\nlanguage = "c"\nstandard = "c11"\nroot = "a-1"\nsources = ["*.c"]\nlicense = "MIT"\n'
        'archive = { registry = "debian", package = "a", version = "1", '
        f'file = "pool/a-1.tgz", sha256 = "{digest}" }}\n'
    )
    path = cached_path(load_projects(manifest)[0].archive, cache_folder=tmp_path / "cache")
    path.parent.mkdir(parents=True)
    path.write_bytes(buffer.getvalue())
    return manifest


def test_archives_in_the_cache_are_unpacked(tmp_path: Path, listed: Path):
    said: list[tuple[int, int, str]] = []
    config = fetch.Fetch(manifest=listed, folder=tmp_path / "sources", cache=tmp_path / "cache")

    found = fetch.run(config, report=lambda *words: said.append(words))

    assert found == {"projects": {"a": str(tmp_path / "sources" / "a" / "a-1")}}
    assert (tmp_path / "sources" / "a" / "a-1" / "a.c").read_bytes() == b"x;\n"
    assert said == [(0, 1, "fetch"), (1, 1, "fetch")]


def test_an_archive_that_nobody_has_is_a_sentence(tmp_path: Path, listed: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mlgokit.corpus.sources.fetch._debian_sites", list)
    config = fetch.Fetch(manifest=listed, folder=tmp_path / "sources", cache=tmp_path / "empty")

    with pytest.raises(
        FetchError, match=r"^pool/a-1.tgz \(debian a\): expected the archive .* or put the file at .* by hand$"
    ):
        fetch.run(config)
    assert not (tmp_path / "sources").exists()


# ---- Corpora ----

STAGES: dict[str, Callable[[Path, Path], object]] = {
    "info": lambda corpus, _: info.run(info.Info(corpus=corpus)),
    "trace": lambda corpus, output: trace.run(trace.Trace(corpus=corpus, output=output)),
    "train": lambda corpus, output: train.run(train.Train(corpus=corpus, output=output)),
    "evaluate": lambda corpus, output: evaluate.run(
        evaluate.Evaluate(policy=(":never",), corpus=corpus, output=output)
    ),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"corpus_description\.json: expected a file, found: No such file or directory; extract a corpus there"),
        ('{"modules": []}', r"expected at least one module in corpus_description\.json, found none; extract"),
        (
            '{"modules": ["a"]}',
            r"expected the modules that .* names, found none of 1 usable \(a: expected bitcode in a\.bc",
        ),
        ('{"modules"', r"corpus_description\.json: expected JSON, found: "),
    ],
    ids=["absent", "empty", "without modules", "damaged"],
)
def test_a_corpus_that_will_not_do_stops_every_stage(
    tmp_path: Path, compiled: list[str], stage: str, text: str | None, message: str
):
    if text is not None:
        (tmp_path / "corpus_description.json").write_text(text)

    with pytest.raises(CorpusError, match=message):
        STAGES[stage](tmp_path, tmp_path / "output")
    assert not (tmp_path / "output").exists()


# ---- Tracing and training ----


def test_failures_are_counted_with_their_reasons(tmp_path: Path, corpus: Path, compiled: list[str]):
    found = trace.run(trace.Trace(corpus=corpus, output=tmp_path / "trace", compiler=CompilerOptions(workers=1)))

    names = [one.name for one in load_corpus(corpus).modules]
    assert sorted(compiled) == sorted(names), "another thread may have the next turn first"
    assert (found["modules"], found["decisions"], found["user_seconds"]) == (4, 0, 1.0)
    assert found["failed"] == [{"module": name, "status": "failed", "reason": "error: no compiler"} for name in names]


def test_training_on_what_does_not_compile_is_a_sentence(tmp_path: Path, corpus: Path, compiled: list[str]):
    with pytest.raises(
        CorpusError,
        match=r"^training: expected at least one of 3 modules to compile and to have decisions of inline-size, "
        r"found none \(error: no compiler\); check ",
    ):
        train.run(train.Train(corpus=corpus, output=tmp_path / "train", compiler=CompilerOptions(workers=1)))
    assert "gamma/d.cc.o" not in compiled


@pytest.mark.parametrize("work", ["effect-regression", "behavioural-cloning"])
def test_without_jax_training_says_so_before_it_compiles(
    tmp_path: Path, corpus: Path, compiled: list[str], work: Any, monkeypatch: pytest.MonkeyPatch
):
    for name in ("jax", "optax"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(
        ToolError, match=r"packages jax and optax, found no jax and no optax; run `pip install 'mlgokit\[train\]'"
    ):
        train.run(train.Train(corpus=corpus, output=tmp_path / "train", algorithm=work))
    assert compiled == []


def test_zero_iterations_and_zero_workers_are_refused(tmp_path: Path, corpus: Path, compiled: list[str]):
    with pytest.raises(UsageError, match=r"^--iterations: expected at least 1, found 0; "):
        train.run(train.Train(corpus=corpus, output=tmp_path / "train", learning=Learning(iterations=0)))
    assert not (tmp_path / "train").exists(), "or the right options were those of another training"
    with pytest.raises(UsageError, match=r"^workers: expected at least one, found 0; "):
        trace.run(trace.Trace(corpus=corpus, output=tmp_path / "trace", compiler=CompilerOptions(workers=0)))
    assert compiled == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning": Learning(seed=2)}, "config.seed: expected 2, found 1"),
        ({"learning": Learning(setting=("explorations=3",))}, 'config.setting: expected ["explorations=3"], found []'),
        ({"algorithm": "behavioural-cloning"}, 'config.algorithm: expected "behavioural-cloning", found "effect-reg'),
    ],
)
def test_a_folder_of_another_training_is_refused(
    tmp_path: Path, corpus: Path, compiled: list[str], change: dict[str, Any], message: str
):
    with pytest.raises(CorpusError):
        train.run(train.Train(corpus=corpus, output=tmp_path / "train"))
    compiled.clear()

    with pytest.raises(ReuseError) as caught:
        train.run(train.Train(corpus=corpus, output=tmp_path / "train", **change))
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'train'}: ")
    assert compiled == []


def test_a_folder_that_learned_from_other_code_is_refused(tmp_path: Path, corpus: Path, compiled: list[str]):
    with pytest.raises(CorpusError):
        train.run(train.Train(corpus=corpus, output=tmp_path / "train"))
    (corpus / "alpha" / "b.cc.o.bc").write_bytes(b"BC\xc0\xdeother code under the same name")
    compiled.clear()
    with pytest.raises(ReuseError, match=r"train: inputs\.modules: expected "):
        train.run(train.Train(corpus=corpus, output=tmp_path / "train"))
    assert compiled == []


def test_what_does_not_change_the_result_may_change(tmp_path: Path, corpus: Path, compiled: list[str]):
    changes: list[dict[str, Any]] = [
        {},
        {"compiler": CompilerOptions(workers=1, timeout_seconds=9.0)},
        {"store": tmp_path / "store"},
        {"minutes": 1.0},
    ]
    for change in changes:
        with pytest.raises(CorpusError, match="found none"):
            train.run(train.Train(corpus=corpus, output=tmp_path / "train", **change))


def test_the_development_mode_is_not_for_clusters_and_stores(tmp_path: Path, corpus: Path):
    changes: list[dict[str, Any]] = [{"cluster": ClusterChoice(scheduler="local:2")}, {"shared_store": str(tmp_path)}]
    for given in changes:
        with pytest.raises(UsageError, match=r"^--development: cannot be combined with --scheduler and --shared-store"):
            trace.run(trace.Trace(corpus=corpus, output=tmp_path / "trace", development=True, **given))


def test_a_full_disk_ends_a_trace(tmp_path: Path, corpus: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)

    with pytest.raises(StorageError, match=r"expected to be able to write there, found: No space left on device; free"):
        trace.run(trace.Trace(corpus=corpus, output=tmp_path / "trace"))
    assert compiled == []


# ---- Evaluating ----


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        (
            {"policy": (":default",), "projects": ("alpha", "delta")},
            UsageError,
            r"^projects: expected names from the corpus .*, found delta; it has alpha, gamma$",
        ),
        (
            {"policy": (":sometimes",)},
            UsageError,
            r"^policy :sometimes: expected a file or :default, :never, :always; correct the name; for reg",
        ),
        ({"policy": ("nowhere",)}, PolicyError, r"^policy nowhere: expected a readable file, found: No such file"),
    ],
)
def test_evaluations_that_make_no_sense(corpus: Path, config: dict[str, Any], kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        evaluate.run(evaluate.Evaluate(corpus=corpus, **config))


def test_nothing_is_held_out(corpus: Path):
    modules = [one for one in load_corpus(corpus).modules if not one.held_out]
    with corpus_writer(corpus, description_fields(), remedy="add modules") as writer:
        for one in modules:
            writer.add(one)

    with pytest.raises(CorpusError, match=r"expected at least one held-out project to evaluate on, found none; name "):
        evaluate.run(evaluate.Evaluate(policy=(":default",), corpus=corpus))


# ---- What is in a corpus, and its split ----


def no_compiler(*_: object, **__: object) -> Toolchain:
    raise ToolError("clang: expected one, found none; install it")


def test_without_a_compiler_equal_files_are_found_and_the_split_is_made(corpus: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compilers, "find_toolchain", no_compiler)
    for bitcode in corpus.rglob("*.bc"):
        bitcode.write_bytes(b"BC\xc0\xde")

    found = info.run(info.Info(corpus=corpus))
    assert (found.modules, found.described, found.functions) == (4, 0, 0)
    assert found.duplicates == (("alpha/a.cc.o", "alpha/b.cc.o", "alpha/c.cc.o", "gamma/d.cc.o"),)

    result = split.run(split.Split(corpus=corpus, held_out=("alpha",)))
    assert [(row.name, row.training, row.copies, row.held_out) for row in result.projects] == [
        ("alpha", 0, 0, 3),
        ("gamma", 0, 1, 0),
    ]
    assert [one.held_out for one in load_corpus(corpus).modules] == [True, True, True, False]
    with pytest.raises(ToolError, match="clang: expected one, found none"):
        info.run(info.Info(corpus=corpus, compiler=CompilerOptions(llvm=19)))


def test_training_passes_over_a_copy_under_another_name(corpus: Path):
    modules = [module("alpha/a.cc.o", sha256="1"), module("gamma/b.cc.o", sha256="2", held_out=True), module("d/e.o")]
    facts: Any = {"functions": 1, "declarations": 0, "call_sites": 1, "decidable_call_sites": 1, "instructions": 99}
    contents = [
        ModuleContent(bitcode_sha256=digest, identity="19:same", blocks=1, global_bytes=0, **facts) for digest in "12"
    ]
    append_contents(corpus, contents)

    assert [one.name for one in training_modules(modules, known_contents(corpus, modules))] == ["d/e.o"]


def test_a_quickstart_of_a_program_alone_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="quickstart: expected a project to learn from, found libsass alone, whose"):
        quickstart.run(quickstart.Quickstart(folder=tmp_path / "run", projects=("libsass",)))
    assert not (tmp_path / "run").exists()
