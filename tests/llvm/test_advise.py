"""What advise says of small builds is what building them by hand with its lines gives, to the byte.

They take more than 5 s, as each flag is a build of its own, alone and on top of others.
"""

import dataclasses
import json
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mlgokit.builds.images import weigh_image
from mlgokit.builds.site import BuildCommands
from mlgokit.commands.advise import Advise, run as advise
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ReuseError, UsageError
from mlgokit.flags.record import FlagAdvice
from mlgokit.flags.reviewed import FLAGS, RUST_FLAGS

pytestmark = pytest.mark.llvm

CPP = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.20)
project(small CXX)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
add_library(parts STATIC parts/parts.cpp)
add_executable(app main.cpp)
target_link_libraries(app parts)
""",
    "main.cpp": """
#include <cstdio>
#include <stdexcept>
int sum(const int *, int);
int total(const int *, int);
int checked(int (*)(const int *, int), const int *, int);
int main(int count, char **) {
  int values[] = {count, 2, 3};
  try {
    checked(sum, values, -count);
  } catch (const std::out_of_range &error) {
    std::printf("%s %d\\n", error.what(), total(values, 3));
    return 0;
  }
  return 1;
}
""",
    "parts/parts.cpp": """
#include <stdexcept>
#include <string>
int sum(const int *values, int count) { int s = 0; for (int i = 0; i < count; ++i) s += values[i] * 3; return s; }
int total(const int *values, int count) { int s = 0; for (int i = 0; i < count; ++i) s += values[i] * 3; return s; }
int unused(const int *values, int count) { return sum(values, count) * total(values, count); }
int checked(int (*f)(const int *, int), const int *values, int count) {
  if (count < 0) throw std::out_of_range("below " + std::to_string(count));
  return f(values, count);
}
""",
}
C = {
    "configure": """#!/bin/sh
for word; do
  case $word in
    CC=*) CC=${word#CC=} ;;
    CFLAGS=*) CFLAGS=${word#CFLAGS=} ;;
    LDFLAGS=*) LDFLAGS=${word#LDFLAGS=} ;;
  esac
done
echo 'int main(void) { return 0; }' > conftest.c
$CC $CFLAGS conftest.c -o conftest $LDFLAGS || exit 1
rm -f conftest conftest.c
echo '#define ROUNDS 7' > config.h
sed -e "s|@CC@|$CC|" -e "s|@CFLAGS@|$CFLAGS|" -e "s|@LDFLAGS@|$LDFLAGS|" Makefile.in > Makefile
echo run >> configured
""",
    "Makefile.in": """
CC = @CC@
CFLAGS = @CFLAGS@
LDFLAGS = @LDFLAGS@
app: main.o libwork.a
	$(CC) $(CFLAGS) main.o libwork.a -o app $(LDFLAGS)
libwork.a: work.o more.o
	ar rcs libwork.a work.o more.o
main.o work.o more.o: config.h
""",
    "main.c": """
#include <stdio.h>
#include "config.h"
int work(int);
int main(int count, char **words) { (void)words; printf("%d\\n", work(count + ROUNDS)); return 0; }
""",
    "work.c": """
#include "config.h"
static int step(int x, int y) { for (int i = 0; i < x; ++i) y = y * 31 + (y >> 3) + i; return y; }
int work(int x) { return step(x, ROUNDS) + step(x + 1, 2) + step(x + 2, 3); }
int idle(int x) { return step(x, 4) * step(x, 5); }
""",
    "more.c": 'const char *more(int x) { return x ? "more of this text" : "of this text"; }\n',
}  # fmt: skip


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        if text.startswith("#!"):
            (folder / name).chmod(0o755)
    return folder


def all_but(*names: str) -> tuple[str, ...]:
    assert {flag.name for flag in FLAGS} >= set(names)
    return tuple(flag.name for flag in FLAGS if flag.name not in names)


def by_hand(folder: Path, *commands: Sequence[str]) -> tuple[int, int]:
    """Run commands; bytes that are loaded of the program ``app``, or ``b/app``, and of its file."""
    for words in commands:
        argv = [str(folder / words[0]) if "/" in words[0] else words[0], *words[1:]]
        done = process.run(argv, timeout_seconds=120, cwd=folder, env=dict(os.environ))
        assert done.returncode == 0, done.stderr
    path = next(path for path in (folder / "b" / "app", folder / "app") if path.exists())
    return weigh_image(path).row.flash, path.stat().st_size


def promised(advice: FlagAdvice) -> tuple[int, int]:
    assert advice.advised_build is not None
    return advice.advised_build.count("loaded"), advice.advised_build.count("file")


@pytest.mark.slow  # the same as by configure and make, with CMake
def test_cmake_with_the_lines_gives_what_was_said(toolchain: Toolchain, tmp_path: Path):
    project = written(tmp_path / "user", CPP)
    configure = (
        "cmake",
        "-S",
        ".",
        "-B",
        "b",
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_CXX_COMPILER={toolchain.clangxx}",
    )
    build = ("cmake", "--build", "b")
    config = Advise(
        built=BuildCommands(build=(shlex.join(configure), shlex.join(build)), test=("b/app",), build_folder=project),
        folder=tmp_path / "advice",
        without=all_but("gc-sections", "icf-safe", "Oz", "no-unwind-tables", "no-exceptions"),
        llvm=toolchain.major,
    )
    advice = advise(config)

    rows = {row.name: row for row in advice.flags}
    assert rows["no-exceptions"].state == "does not build"
    assert {"Oz", "gc-sections", "no-unwind-tables"} <= set(advice.advised)
    trial = rows["Oz"].trial
    assert trial is not None
    assert set(trial.folders) == {".", "parts"}
    hand = written(tmp_path / "hand", CPP)
    (lines,) = [one.line for one in advice.lines if one.system == "CMake"]
    (hand / "CMakeLists.txt").write_text(CPP["CMakeLists.txt"].replace("CXX)\n", f"CXX)\n{lines}\n"))
    assert by_hand(hand, configure, build, ("b/app",)) == promised(advice)
    plain = by_hand(written(tmp_path / "user2", CPP), configure, build)
    assert plain == (advice.plain.count("loaded"), advice.plain.count("file"))
    assert sorted(path.name for path in project.iterdir()) == ["CMakeLists.txt", "main.cpp", "parts"]


def test_configure_and_make_with_the_flags_give_what_was_said(toolchain: Toolchain, tmp_path: Path):
    project = written(tmp_path / "user", C)

    def configure(cflags: str, ldflags: str) -> tuple[str, ...]:
        return ("./configure", f"CC={toolchain.clang}", f"CFLAGS={cflags}", f"LDFLAGS={ldflags}")

    commands = (shlex.join(configure("-O2 -g", "")), "make")
    config = Advise(
        built=BuildCommands(build=commands, test=("./app",), build_folder=project),
        folder=tmp_path / "advice",
        without=all_but("lld-O2", "gc-sections", "Oz", "lto", "no-unwind-tables", "no-rtti", "strip"),
        llvm=toolchain.major,
    )
    advice = advise(config)

    rows = {row.name: row for row in advice.flags}
    assert (rows["no-rtti"].state, rows["no-rtti"].reason) == ("not tried", "the build has no C++")
    assert {"no-unwind-tables", "strip"} <= set(advice.advised)
    hand = written(tmp_path / "hand", C)
    words = configure(" ".join(("-O2", "-g", *advice.compile)), " ".join(advice.link))
    assert by_hand(hand, words, ("make",), ("./app",)) == promised(advice)
    assert f'CFLAGS="-O2 -g {" ".join(advice.compile)}"' in advice.line
    assert f'LDFLAGS=" {" ".join(advice.link)}"' in advice.line

    again = advise(config)
    assert [(row.state, row.saved) for row in again.flags] == [(row.state, row.saved) for row in advice.flags]
    assert again.plain == advice.plain
    (project / "work.c").write_text(f"{C['work.c']}int more(int a) {{ return a; }}\n")
    # Flags that were tried on other sources say nothing of these.
    changed = advise(dataclasses.replace(config, seconds=0.0))
    assert changed.plain.count("loaded") > advice.plain.count("loaded")
    assert not changed.advised
    with pytest.raises(ReuseError, match=r"config.build: expected"):
        advise(Advise(built=BuildCommands(build=("make all",), build_folder=project), folder=tmp_path / "advice"))
    value = json.loads((tmp_path / "advice" / "advice.json").read_text())
    assert FlagAdvice.from_json(value).plain == changed.plain
    assert (tmp_path / "advice" / "advice.md").read_text().startswith("# Free flags for ./configure")


def test_flags_that_a_build_has_are_seen(toolchain: Toolchain, tmp_path: Path):
    project = written(tmp_path / "user", C)
    cflags = "-Oz -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables -fno-unwind-tables"
    ldflags = "-fuse-ld=lld -Wl,--gc-sections,--icf=all"
    words = ("./configure", f"CC={toolchain.clang}", f"CFLAGS={cflags}", f"LDFLAGS={ldflags}")
    config = Advise(
        built=BuildCommands(build=(shlex.join(words), "make"), build_folder=project),
        folder=tmp_path / "advice",
        without=("lto", "lto-thin", "hidden", "no-plt", "no-jump-tables", "merge-functions"),
        llvm=toolchain.major,
    )
    found = {row.name: row for row in advise(config).flags}
    assert {name for name, row in found.items() if row.state == "already there"} == {
        "lld", "gc-sections", "icf-all", "Oz", "no-unwind-tables",
    }  # fmt: skip
    assert found["Os"].reason == "the build has -Oz"
    assert "--icf=all" in found["icf-safe"].reason
    assert found["compressed-debug"].reason == "the build has none"


def test_a_test_that_fails_with_a_flag_refuses_it(toolchain: Toolchain, tmp_path: Path):
    project = written(tmp_path / "user", C)
    words = ("./configure", f"CC={toolchain.clang}", "CFLAGS=-O2", "LDFLAGS=")
    # Passes as long as the program has symbols.
    (project / "named").write_text("#!/bin/sh\ngrep -q idle app\n")
    (project / "named").chmod(0o755)
    config = Advise(
        built=BuildCommands(build=(shlex.join(words), "make"), test=("./named",), build_folder=project),
        folder=tmp_path / "advice",
        without=all_but("gc-sections", "Oz", "strip"),
        llvm=toolchain.major,
    )
    advice = advise(config)
    found = {row.name: row.state for row in advice.flags}
    assert (found["gc-sections"], found["strip"], found["Oz"]) == ("fails the tests", "fails the tests", "smaller")
    assert advice.advised == ("Oz",)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("opt-z", "strip"), id="short"),
        # Each build optimizes the whole standard library.
        pytest.param(("opt-z", "lto-fat", "panic-abort", "strip"), id="lto", marks=pytest.mark.slow),
    ],
)
def test_cargo_with_the_lines_gives_what_was_said(toolchain: Toolchain, tmp_path: Path, names: tuple[str, ...]):
    if shutil.which("cargo") is None:
        pytest.skip("no cargo to test with")
    manifest = '[package]\nname = "toy"\nversion = "0.1.0"\nedition = "2021"\n'
    source = 'fn main() { let n: Vec<u64> = (1..9).collect(); println!("{} {:?}", n.iter().sum::<u64>(), n); }\n'
    project = written(tmp_path / "user", {"Cargo.toml": manifest, "src/main.rs": source})
    known = [flag.name for flag in RUST_FLAGS]
    config = Advise(
        built=BuildCommands(test=("toy",)),
        cargo="cargo build --release --offline",
        cargo_folder=project,
        folder=tmp_path / "advice",
        without=tuple(set(known) - set(names)),
        llvm=toolchain.major,
    )
    advice = advise(config)

    assert advice.advised
    assert {row.name: row.state for row in advise(config).flags if row.trial} == {
        row.name: row.state for row in advice.flags if row.trial
    }
    (lines,) = [one.line for one in advice.lines if one.system == "Cargo.toml"]
    (project / "Cargo.toml").write_text(f"{manifest}{lines}\n")
    done = process.run(
        ["cargo", "build", "--release", "--offline"],
        timeout_seconds=120,
        cwd=project,
        env=os.environ | {"CARGO_TARGET_DIR": str(tmp_path / "o")},
    )
    assert done.returncode == 0, done.stderr
    program = tmp_path / "o" / "release" / "toy"
    assert (weigh_image(program).row.flash, program.stat().st_size) == promised(advice)
    again = advise(dataclasses.replace(config, folder=tmp_path / "second"))
    assert {row.name for row in again.flags if row.state == "already there"} >= set(advice.advised)
    with (project / "Cargo.lock").open("a") as lock:
        lock.write("# as after cargo update\n")
    with pytest.raises(ReuseError, match="lock"):
        advise(dataclasses.replace(config, folder=tmp_path / "second"))


def test_a_script_that_cannot_run_twice_in_a_folder_is_run_from_the_sources(toolchain: Toolchain, tmp_path: Path):
    script = "set -e\nmkdir out\ncc -Oz -g -c main.c -o out/main.o\ncc out/main.o -o app\n"
    project = written(tmp_path / "user", {"build.sh": script, "main.c": "int main(void) { return 0; }\n"})
    advice = advise(
        Advise(
            built=BuildCommands(build=("sh build.sh",), build_folder=project, program=(Path("a*"),)),
            folder=tmp_path / "advice",
            without=tuple(flag.name for flag in FLAGS if flag.name != "strip"),
            llvm=toolchain.major,
        )
    )
    assert {row.name: row.state for row in advice.flags if row.trial} == {"strip": "smaller"}
    assert advice.tune == f"mlgokit tune --build 'sh build.sh' --program 'a*' --build-folder {project}"


_CARGO = """#!/bin/sh
[ "$1" = --version ] && exec cat "$0.version"
mkdir -p "$CARGO_TARGET_DIR/release/deps" && cp /proc/self/exe "$CARGO_TARGET_DIR/release/app" || exit 1
exec "$RUSTC_WRAPPER" true --crate-name app --crate-type bin --out-dir "$CARGO_TARGET_DIR/release/deps"
"""


def test_builds_by_another_cargo_are_not_compared_with(toolchain: Toolchain, tmp_path: Path):
    cargo = tmp_path / "cargo"
    cargo.write_text(_CARGO)
    cargo.chmod(0o755)
    (tmp_path / "cargo.version").write_text("cargo 1.94.0")
    config = Advise(
        cargo=f"{cargo} build --release",
        cargo_folder=tmp_path,
        folder=tmp_path / "advice",
        without=tuple(flag.name for flag in RUST_FLAGS),
        llvm=toolchain.major,
    )
    assert advise(config).plain == (again := advise(config)).plain
    assert again.tune == f"mlgokit tune --cargo '{cargo} build --release' --link-folder {tmp_path}"
    (tmp_path / "cargo.version").write_text("cargo 1.95.0")
    with pytest.raises(ReuseError, match=r"advice: toolchain.cargo: expected .*1\.95\.0.*, found .*1\.94\.0"):
        advise(config)


def test_a_build_in_the_users_own_folder_is_refused(tmp_path: Path):
    built = BuildCommands(build=("make",), clean=("make clean",), build_folder=tmp_path)
    with pytest.raises(UsageError, match=r"^--clean: advise builds in copies of the folder alone"):
        advise(Advise(built=built, folder=tmp_path / "advice"))
