"""Builds with a profile, from their database to a corpus: the code stays the build's, and a stale profile is told."""

import contextlib
import dataclasses
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.llvm.searching import INLINING_ALONE

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.corpus import Database
from mlgokit.builds.opening import open_build
from mlgokit.builds.request import BuildRequest
from mlgokit.commands.tune import run as tune
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.request import ALWAYS, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import TrialRequest
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.combine import combine_corpora
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.importers.database import ImportedCommands, import_commands
from mlgokit.corpus.importers.reference import build_reference
from mlgokit.corpus.verify import Verdict, objects_of_build, verify_corpus
from mlgokit.progress import say_nothing
from mlgokit.traces.function_id import function_id
from mlgokit.tune.spaces.inlining.step import request_of

pytestmark = pytest.mark.llvm

SOURCE = """
int printf(const char *, ...);
static int odd(int x) { return x & 1 ? x * 3 + 1 : x / 2; }
int steps(int x) { int n = 0; while (x != 1 && n < 1000) { x = odd(x); n++; } return n; }
int never(int x) { for (int i = 0; i < x; i++) printf("%d", odd(i)); return x; }
int main(int count, char **words) { return steps(count + 26) > 999 ? never(count) : 0; }
"""
CHANGED = SOURCE.replace("x & 1 ?", "x & 1 ? x > 99 ? x * 3 + 1 :").replace(
    "int main", "int fresh(int x) { return x > 5 ? steps(x) : never(x); } int main"
)
SAMPLES = "steps:100000:1\n 0: 1110 odd:1110\nmain:10:1\n 0: 1 steps:1\n"
USES = {
    "ir": "-fprofile-use=ir.profdata",
    "cs": "-fprofile-use=cs.profdata",
    "fe": "-fprofile-instr-use=fe.profdata",
    "sample": "-fprofile-sample-use=s.prof -gmlt",
}


def run(*words: object, cwd: Path) -> None:
    done = process.run([str(word) for word in words], timeout_seconds=60, cwd=cwd)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def profiled(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder with a source, profiles of each kind, and the objects that are made with them."""
    profdata = toolchain.clang.resolve().with_name("llvm-profdata")
    if not profdata.exists():
        pytest.skip(f"no {profdata}")
    folder = process.run([toolchain.clang, "-print-runtime-dir"], timeout_seconds=60)
    if not list(Path(folder.stdout.decode().strip()).glob("libclang_rt.profile*")) and not list(
        profdata.parents[1].glob("lib/clang/*/lib/*/libclang_rt.profile*")
    ):
        pytest.skip(f"no runtime of profiles beside {toolchain.clang}: install libclang-rt-{toolchain.major}-dev")
    build = tmp_path_factory.mktemp(f"profiled-{toolchain.major}") / "app"
    build.mkdir()
    (build / "a.c").write_text(SOURCE)
    clang, oz = toolchain.clang, "-Oz"
    for name, options in (
        ("ir", ["-fprofile-generate=raw-ir"]),
        ("cs", ["-fprofile-use=ir.profdata", "-fcs-profile-generate=raw-cs"]),
        ("fe", ["-fprofile-instr-generate=raw-fe/a.profraw"]),
    ):
        run(clang, oz, *options, "a.c", "-o", "a.out", cwd=build)
        run(build / "a.out", cwd=build)
        inputs = [*sorted((build / f"raw-{name}").iterdir()), *([build / "ir.profdata"] if name == "cs" else [])]
        run(profdata, "merge", "-o", f"{name}.profdata", *inputs, cwd=build)
    (build / "s.prof").write_text(SAMPLES)
    entries: list[dict[str, str]] = []
    for name, use in USES.items():
        run(clang, oz, *use.split(), "-c", "a.c", "-o", f"{name}.o", cwd=build)
        command = f"clang -Oz {use} -c a.c -o {name}.o"
        entries.append({"directory": str(build), "file": "a.c", "command": command})
    (build / "compile_commands.json").write_text(json.dumps(entries))
    return build


def imported(build: Path, corpus: Path, toolchain: Toolchain) -> ImportedCommands:
    return import_commands(build / "compile_commands.json", toolchain=toolchain, corpus_folder=corpus, project="app")


def verdicts(corpus: Path, reference: Any, toolchain: Toolchain) -> dict[str, Verdict]:
    compiler, rng = ClangCompiler(toolchain=toolchain), np.random.default_rng(1)
    found = verify_corpus(load_corpus(corpus), reference, compiler=compiler, rng=rng)
    return {one.name.removeprefix("app/"): one.verdict for one in found.modules}


def test_a_corpus_has_its_profiles_and_the_code_of_its_build(profiled: Path, toolchain: Toolchain, tmp_path: Path):
    result = imported(profiled, tmp_path / "corpus", toolchain)
    assert (result.imported.failures, result.imported.modules) == (0, 4)
    assert [(fit.mismatched, fit.missing) for fit in result.fits[:3]] == [(0, 0)] * 3
    assert len(list((tmp_path / "corpus/profiles").iterdir())) == 4
    # In other folders, by other hands, and with the build's own profiles gone, the objects are those of the build.
    moved = tmp_path / "moved"
    (tmp_path / "corpus").rename(moved)
    combine_corpora(tmp_path, corpus_folder=tmp_path / "joined")
    objects = tmp_path / "objects"
    for name in USES:
        (objects / "moved/app").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(profiled / f"{name}.o", objects / f"moved/app/{name}.o")
    found = verdicts(tmp_path / "joined", objects_of_build(objects), toolchain)
    # What is asked for with lines has them in the build's object, and the code is the same.
    assert set(found.values()) <= {Verdict.SAME, Verdict.SAME_CODE}
    assert found["moved/app/ir.o"] is Verdict.SAME
    database = profiled / "compile_commands.json"
    reference = build_reference(database, toolchain=toolchain, project="app", timeout_seconds=60)
    assert set(verdicts(moved, reference, toolchain).values()) == {Verdict.SAME}


def test_a_stale_profile_is_told_by_how_many_functions(profiled: Path, toolchain: Toolchain, tmp_path: Path):
    build = tmp_path / "app"
    shutil.copytree(profiled, build)
    database = (build / "compile_commands.json").read_text()
    (build / "compile_commands.json").write_text(database.replace(str(profiled), str(build)))
    corpus = tmp_path / "corpus"
    imported(build, corpus, toolchain)
    (build / "a.c").write_text(CHANGED)
    imported(build, corpus, toolchain)
    # Anew from what is written down, as nothing was made again.
    again = imported(build, corpus, toolchain)
    fits = {module.name: module for module in load_corpus(corpus).modules}
    for name in ("ir", "cs", "fe"):
        module = fits[f"app/{name}.o"]
        assert module.profile_mismatched, name
        assert module.profile_missing == 1, name
    assert len(again.fits) == 4
    (build / "ir.profdata").write_bytes(b"no profile")
    failed = imported(build, corpus, toolchain).imported
    assert (failed.modules, failed.failures) == (3, 1)
    assert "ir.profdata" in failed.examples[0].reason or "ir.profdata" in str(failed.examples)


def test_hot_functions_are_no_questions_of_a_search(profiled: Path, toolchain: Toolchain, plugin: Path, tmp_path: Path):
    imported(profiled, tmp_path / "corpus", toolchain)
    module = next(one for one in load_corpus(tmp_path / "corpus").modules if one.name == "app/fe.o")
    asked: dict[float, set[int]] = {}
    listed: dict[float, set[str]] = {}
    for kept in (0.0, 99.0):
        compiler = ClangCompiler(toolchain=toolchain, plugin=plugin, keep_hot=kept)
        asked[kept] = set(compiler.compile(module, request_of(policy=ALWAYS)).decisions.caller.tolist())
        use = PluginUse(trials=TrialRequest(series=()))
        listed[kept] = {one.name for one in compiler.compile(module, CompileRequest(use=use)).tried}
    hot = function_id("steps")
    assert hot in asked[0.0]
    assert asked[99.0] == asked[0.0] - {hot}
    assert listed[0.0] - listed[99.0] >= {"steps"}
    assert "never" in listed[99.0]


def put_lto_build(folder: Path, profiled: Path, toolchain: Toolchain, lto: str) -> tuple[list[str], Tune]:
    """A build with a profile that is linked with link-time optimization; the words that compile it, and its tuning."""
    folder.mkdir()
    for name in ("a.c", "ir.profdata"):
        shutil.copyfile(profiled / name, folder / name)
    words = [str(toolchain.clang), "-Oz", lto, "-fprofile-use=ir.profdata", "-c", "a.c", "-o", "a.o"]
    # What others may call stays a function of its own.
    exports = "-Wl,--export-dynamic"
    link = [str(toolchain.clang), lto, f"--ld-path={toolchain.lld}", exports, "a.o", "-o", "app"]
    run(*words, cwd=folder)
    run(*link, cwd=folder)
    database = folder / "compile_commands.json"
    database.write_text(json.dumps([{"directory": str(folder), "file": "a.c", "arguments": words}]))
    return words, Tune(
        compile_commands=database,
        objective="linked",
        link_command=shlex.join(link),
        budget="2s",
        folder=folder.with_name("t"),
        output=folder.with_name("t") / "tuned.so",
        compiler=CompilerOptions(llvm=toolchain.major, workers=1),
        **INLINING_ALONE,
    )


@pytest.mark.parametrize("lto", ["-flto", "-flto=thin"])
def test_a_build_with_a_profile_is_tuned_by_its_link(profiled: Path, toolchain: Toolchain, tmp_path: Path, lto: str):
    build = tmp_path / "app"
    words, asked = put_lto_build(build, profiled, toolchain, lto)
    tuned = tune(asked)
    assert all(one.name.endswith(" (link)") for one in tuned.modules)
    assert tuned.judged is not None
    assert (tuned.judged.after or 0) <= (tuned.judged.before or 0)
    # With the plugin the program does what it did.
    flags = tuned.flag.split()
    run(*words[:-1], "tuned.o", *[flag for flag in flags if flag.startswith("-fpass-plugin")], cwd=build)
    link = [word.replace("a.o", "tuned.o") for word in shlex.split(asked.link_command or "")][:-1]
    run(*link, "tuned", *[flag for flag in flags if flag.startswith("-Wl,")], cwd=build)
    both = [process.run([str(build / name)], timeout_seconds=60, cwd=build) for name in ("app", "tuned")]
    assert both[0].stdout == both[1].stdout
    assert both[0].returncode == both[1].returncode


@pytest.mark.parametrize("lto", ["-flto", "-flto=thin"])
def test_hot_functions_of_a_link_are_no_questions_of_a_search(
    profiled: Path, toolchain: Toolchain, plugin: Path, tmp_path: Path, lto: str
):
    _, asked = put_lto_build(tmp_path / "app", profiled, toolchain, lto)
    asked = dataclasses.replace(asked, keep_hot=99.0)
    assert asked.compile_commands is not None
    request = BuildRequest(
        scratch=asked.folder,
        objective=asked.objective,
        timeout_seconds=60,
        error=0.05,
        database=Database(path=asked.compile_commands),
        link=asked.link_command,
        link_folder=asked.link_folder,
        keep_hot=asked.keep_hot,
        may_defer=False,
        compiler=asked.compiler,
    )
    with contextlib.ExitStack() as stack:
        _, found = open_build(request, toolchain, stack=stack, report=say_nothing)
    assert [note for note in found.notes if "functions in the hottest 99 %" in note]
    (module,) = found.modules
    listed: dict[float, set[str]] = {}
    for kept in (0.0, 99.0):
        compiler = ClangCompiler(toolchain=toolchain, plugin=plugin, keep_hot=kept)
        use = PluginUse(trials=TrialRequest(series=()))
        listed[kept] = {one.name for one in compiler.compile(module, CompileRequest(use=use)).tried}
    assert listed[99.0] < listed[0.0]
    assert "never" in listed[99.0]
    assert tune(dataclasses.replace(asked, budget="0s")).judged is not None
