"""Commands that build take the clang of the build, and not the newest one."""

import json
from pathlib import Path

import pytest

from mlgokit.builds.compilers import CompilerOptions, toolchain_of_build
from mlgokit.builds.site import BuildCommands
from mlgokit.commands import advise, bench, check, evaluate, tune
from mlgokit.compiler.toolchain import ADVISED_MAJOR, LOCATION_VARIABLE, Toolchain, find_toolchain
from mlgokit.errors import ToolError

pytestmark = pytest.mark.llvm

OLDER = 19
MAKE = "make CC={clang}"
FILES = {
    "main.c": "int twice(int x); int main(void) { return twice(0); }\n",
    "part.c": "static int half(int x) { return x / 2; } int twice(int x) { return half(4 * x) + half(x) - half(x); }\n",
    "Makefile": "app: main.o part.o\n\t$(CC) main.o part.o -o app\n%.o: %.c\n\t$(CC) -Oz $(CFLAGS) -c $< -o $@\n",
}


@pytest.fixture
def older(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    """A clang that is installed, and is not the one that commands take by themselves."""
    for name in ("CC", "CXX", LOCATION_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    if toolchain.major != ADVISED_MAJOR:
        pytest.skip("one other major is enough")
    try:
        return find_toolchain(OLDER, need_plugin=True)
    except ToolError as error:
        pytest.skip(str(error))


@pytest.fixture
def built(older: Toolchain, tmp_path: Path) -> BuildCommands:
    """A build whose command names that clang."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return BuildCommands(build=(MAKE.format(clang=older.clang),), build_folder=folder)


def test_evaluate_takes_the_clang_of_the_build(older: Toolchain, built: BuildCommands):
    config = evaluate.Evaluate(plain=True, build=built.build, folder=built.build_folder)
    assert evaluate.run(config).toolchain["clang"] == older.describe()["clang"]


def test_advise_takes_the_clang_of_the_build(older: Toolchain, built: BuildCommands, tmp_path: Path):
    found = advise.run(advise.Advise(built=built, seconds=0.1, folder=tmp_path / "advice"))
    assert found.toolchain["clang"] == older.describe()["clang"]


def test_bench_takes_the_clang_of_the_build(older: Toolchain, built: BuildCommands, tmp_path: Path):
    command = f"make -f {{source}}/Makefile VPATH={{source}} CC={older.clang}"
    found = bench.run(
        bench.Bench(
            build=(command,),
            run="./app",
            source=built.build_folder,
            counter="none",
            time_seconds=0,
            folder=tmp_path / "bench",
        )
    )
    assert found.workloads[0].failures == ()
    assert found.toolchain["clang"] == older.describe()["clang"]


def test_a_clang_in_a_folder_of_its_own_is_taken_itself(older: Toolchain, tmp_path: Path):
    link = tmp_path / "venv/bin/clang"
    link.parent.mkdir(parents=True)
    link.symlink_to(older.clang)
    commands = (f"make CC={link}",)
    assert toolchain_of_build(CompilerOptions(), database=None, commands=commands).clang.samefile(link)
    entry = {"directory": str(tmp_path), "file": "a.c", "arguments": [str(older.clang), "-c", "a.c"]}
    database = tmp_path / "compile_commands.json"
    database.write_text(json.dumps([entry]))
    assert toolchain_of_build(CompilerOptions(), database=database, commands=()).major == older.major


@pytest.mark.slow
def test_check_says_that_the_build_has_another_clang(older: Toolchain, built: BuildCommands, tmp_path: Path):
    """The plugin loads into the clang that it was tuned for alone, so that clang checks it: a search of a second."""
    tune.run(tune.Tune(built=built, budget="0.5s", output=tmp_path / "tuned.so", folder=tmp_path / "tune"))
    said: list[str] = []
    plugin = next(tmp_path.glob("tuned*.plugin"), tmp_path / "tuned.so")
    other = BuildCommands(build=(MAKE.format(clang=f"clang-{ADVISED_MAJOR}"),), build_folder=built.build_folder)
    for commands in (built, other):
        found = check.run(
            check.Check(plugin=plugin, built=commands), report=lambda _done, _count, text: said.append(text)
        )
        assert found.built is not None
    assert [text for text in said if "own clang" in text] == [
        f"{plugin} is of LLVM {older.major}, which checks it, and the build's own clang of {ADVISED_MAJOR}"
    ]
