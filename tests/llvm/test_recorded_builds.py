"""Builds that compile by response files, from standard input, and what they remove or write anew."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.recorded import RecordedBuild, record_plain
from mlgokit.builds.site import BuildCommands
from mlgokit.commands.build import Build, run as build
from mlgokit.commands.corpus.record import Record, record_build, run as record
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapper_folder import open_wrappers
from mlgokit.compiler.wrapping import AddedOptions, run_wrapped
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import ReuseError
from mlgokit.progress import say_nothing

pytestmark = pytest.mark.llvm

MAKEFILE = """
CC = cc
app: f.o g.o main.o
	echo "f.o g.o main.o -o app" > link.rsp; $(CC) @link.rsp
f.o: f.c
	echo "-Oz -c @more.rsp" > f.rsp; echo '"-DNAME=\\"a b\\"" f.c -o f.o' > more.rsp; $(CC) @f.rsp; rm *.rsp
g.o: g.c
	cat g.c | $(CC) -Oz -x c -c - -o g.o
main.o: main.c
	$(CC) -Oz -c main.c -o main.o
"""
SOURCES = {
    "f.c": "const char *f(void) { return NAME; }\n",
    "g.c": '#include "g.h"\nint g(int x) { return x + G; }\n',
    "g.h": "#define G 3\n",
    "main.c": "const char *f(void);\nint g(int);\nint main(int c, char **v) { return f()[1] != ' ' || g(c) != 4; }\n",
    "Makefile": MAKEFILE,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    return folder


def recorded(script: str, folder: Path, toolchain: Toolchain) -> dict[str, object]:
    return record_build(
        ("sh", "-c", script), database=folder / "compile_commands.json", toolchain=toolchain, timeout_seconds=60
    )


def test_response_files_and_standard_input_are_recorded(project: Path, toolchain: Toolchain):
    found = record(
        Record(
            command=("make", "-j2"),
            output=project / "c.json",
            corpus=project.parent / "corpus",
            level="Oz",
            compiler=CompilerOptions(llvm=toolchain.major, workers=1),
        )
    )

    assert {name: found[name] for name in ("seen", "commands", "kept", "modules", "failures")} == {
        "seen": 3, "commands": 3, "kept": 1, "modules": 3, "failures": 0,
    }  # fmt: skip
    assert "left_out" not in found
    modules = {module.name: module for module in load_corpus(project.parent / "corpus").modules}
    assert {name: module.language for name, module in modules.items()} == {
        f"project/{name}.o": "c" for name in ("f", "g", "main")
    }
    assert process.run([project / "app"], timeout_seconds=10).returncode == 0


def test_a_build_with_a_plugin_counts_them(
    project: Path, toolchain: Toolchain, plugin: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLGOKIT_POLICY", ":always")
    found = build(Build(command=("make",), plugin=plugin, llvm=toolchain.major))

    assert (found.seen, found.compilations, found.failed, found.left_out) == (3, 3, 0, {})
    assert found.levels == {"-Oz": 3}


def test_the_plain_build_of_a_tuning_keeps_removed_sources(project: Path, toolchain: Toolchain):
    with (project / "Makefile").open("a") as rules:
        rules.write("all: app gen.o\ngen.o:\n\techo 'int gen;' > gen.c; $(CC) -Oz -c gen.c; rm gen.c\n")
    built = BuildCommands(build=("make all",), build_folder=project)
    said: list[str] = []

    def report(done: int, total: int, text: str, /) -> None:
        said.append(text)

    found = record_plain(built, project.parent / "tune", go_on=False, toolchain=toolchain, report=report)

    assert said[0] == "copy the folder of the build: 5 files, 0 MB"
    assert found.left_out == {}
    assert len(found.objects) == 4
    assert sorted(path.name for path in (project.parent / "tune/build/sources").glob("*.i")) == ["g.i", "gen.i"]
    assert not (project.parent / "tune/build/wrapping").exists()


def test_a_recorded_build_is_not_one_with_other_options_from_the_environment(
    project: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
):
    (project / "Makefile").write_text("app: main.o\n\tcc $(CFLAGS) main.o -o app\n")
    (project / "main.c").write_text("int main(void) { return 0; }\n")

    def build_again() -> RecordedBuild:
        commands = BuildCommands(build=("make",))
        return record_plain(commands, project / "tune", go_on=True, toolchain=toolchain, report=say_nothing)

    monkeypatch.delenv("CFLAGS", raising=False)
    first = build_again()
    assert build_again().seconds == first.seconds, "it is not built again"
    monkeypatch.setenv("CFLAGS", "-Oz")
    with pytest.raises(ReuseError, match="found one that differs in variables; give the same commands and variables"):
        build_again()


def test_what_a_build_writes_anew_or_removes_is_kept(project: Path, toolchain: Toolchain):
    (project / "old.c").write_text("int before;\n")
    found = recorded(
        'for n in 1 2; do echo "int gen$n;" > gen.c; cc -c gen.c -o $n.o; done; rm gen.c;'
        "echo 'int made = 1;' > made.h; echo '#include \"made.h\"' > user.c; cc -c user.c; rm made.h;"
        "cc -c old.c -o old1.o; echo 'int after;' > old.c; cc -c old.c -o old2.o;"
        "echo 'int in_archive;' > t.c; cc -c t.c -o t.o; ar rc libt.a t.o; rm t.c t.o;"
        "echo 'int x; int main(void) { return x; }' > whole.c; cc whole.c -o app; rm whole.c;"
        "echo 'int main(void) { return 0; }' > conftest.c; cc conftest.c -o conftest; rm conftest*",
        project,
        toolchain,
    )

    assert (found["seen"], found["commands"], found["kept"]) == (8, 7, 6)
    assert found["left_out"] == {
        "conftest.c": ("source and object no longer exist, as with checks of a configure script")
    }
    kept = project / "compile_commands.kept"
    last = {path.name: [line for line in path.read_text().splitlines() if line[:3] == "int"] for path in kept.iterdir()}
    assert last == {
        "manifest.json": [],
        "1.i": ["int gen1;"],
        "2.i": ["int gen2;"],
        "user.i": ["int made = 1;"],
        "old1.i": ["int before;"],
        "t.i": ["int in_archive;"],
        "app-whole.i": ["int x; int main(void) { return x; }"],
    }
    # Those of the build without them go.
    assert recorded("cc -c old.c -o old2.o", project, toolchain) == {"seen": 1, "commands": 1}
    assert not kept.exists()


def test_compilers_that_are_started_by_a_path_stay_those_of_the_build(project: Path, toolchain: Toolchain):
    (project / "tools").mkdir()
    named = project / "tools" / f"{os.uname().machine}-linux-gnu-gcc-99"
    named.symlink_to(toolchain.clang)
    found = recorded(f"{named} -c main.c; {toolchain.clang} -c main.c -o 2.o", project, toolchain)

    assert found == {"seen": 2, "commands": 2}
    entries = json.loads((project / "compile_commands.json").read_bytes())
    assert [entry["arguments"][0] for entry in entries] == [str(named), str(toolchain.clang)]


def test_interfaces_of_modules_are_compilations(project: Path, toolchain: Toolchain):
    (project / "m.cppm").write_text("export module m;\nexport int twice(int x) { return 2 * x; }\n")
    (project / "main.cpp").write_text("import m;\nint main(int c, char **) { return twice(c); }\n")
    compiler = f"{toolchain.clangxx} -std=c++20"
    make = f"{compiler} -fmodule-output=m.pcm -c m.cppm; {compiler} -fmodule-file=m=m.pcm -c main.cpp"
    done = run_wrapped(
        [["sh", "-c", make]],
        tree=project,
        folder=project / "wrapping",
        toolchain=toolchain,
        added=AddedOptions(compile=("-DADDED",)),
        timeout_seconds=60,
    )

    assert done.reason == ""
    assert [(call.kind, call.outputs[0].name) for call in done.calls] == [("compile", "m.o"), ("compile", "main.o")]
    assert recorded(make, project, toolchain) == {"seen": 2, "commands": 2}


def test_a_compiler_is_found_behind_folders_that_have_none(project: Path, toolchain: Toolchain):
    variables = f"os.environ | {{'PATH': '{project}:{os.defpath}'}}"
    search = f"import os, subprocess; subprocess.run(['cc', '-c', 'main.c'], env={variables})"
    found = recorded(f'{sys.executable} -c "{search}"', project, toolchain)

    assert found == {"seen": 1, "commands": 1}
    assert (project / "main.o").exists()


def test_a_build_that_was_configured_with_wrappers_is_recorded_once(
    project: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    wrapper = open_wrappers(toolchain) / "bin" / "clang"
    # There, no program is called clang without a version.
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{os.defpath}")
    (tmp_path / "programs").mkdir()
    found = recorded(f"{wrapper} -c main.c -o main.o", project, toolchain)

    assert found == {"seen": 1, "commands": 1}


def test_what_goes_past_a_recording_is_named(project: Path, toolchain: Toolchain):
    past = f"env -i {toolchain.clang} -c main.c -o past.o"
    found = recorded(f"cc -c main.c -o seen.o; {past}", project, toolchain)

    assert (found["seen"], found["commands"]) == (1, 1)
    assert str(found["passed_by"]).startswith(f"1 new object, such as {project}/past.o by ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_build_ends_with_a_command_that_is_terminated(project: Path, toolchain: Toolchain, number: signal.Signals):
    call = ["corpus", "record", "--llvm", str(toolchain.major), "--", "sh", "-c"]
    program = "import sys; from mlgokit.cli import main; main(sys.argv[1:])"
    words = [sys.executable, "-c", program, *call, "(echo ready; sleep 9; echo late) & wait"]
    with subprocess.Popen(words, cwd=project, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "ready\n"
        running.send_signal(number)
        # It is read to the end once nothing of the build can write any more.
        assert running.stderr.read() == "mlgokit: interrupted\n"
    assert running.returncode == 130
