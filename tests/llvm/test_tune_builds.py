"""Tunings of whole builds: recorded, tuned, built again with the plugin, tested, compared."""

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.llvm.searching import INLINING_ALONE, INLINING_ALONE_WORDS

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.images import weigh_image
from mlgokit.builds.outside import outside_path
from mlgokit.builds.programs import read_configured_links
from mlgokit.builds.recorded import RecordedBuild, record_plain
from mlgokit.builds.site import BuildCommands
from mlgokit.cli import main
from mlgokit.commands import check
from mlgokit.commands.check import Check
from mlgokit.commands.tune import run
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import CorpusError, RejectedError, ReuseError, UsageError
from mlgokit.progress import say_nothing
from mlgokit.tune.result import Tuned

pytestmark = pytest.mark.llvm

# LLVM's heuristic takes the calls of `say` for as large as their bodies, and they are smaller.
PART = """
int puts(const char *);
extern const char firstNUMBER[], secondNUMBER[], thirdNUMBER[];
void emitNUMBER(const char *text) { puts(text); }
void sayNUMBER_0(int unused) { (void)unused; emitNUMBER(firstNUMBER); }
void sayNUMBER_1(int unused) { (void)unused; emitNUMBER(secondNUMBER); }
void sayNUMBER_2(int unused) { (void)unused; emitNUMBER(thirdNUMBER); }
void partNUMBER(void) { CALLS }
const char firstNUMBER[] = "a", secondNUMBER[] = "b", thirdNUMBER[] = "c";
"""
FILES = {
    "main.c": "void part1(void); void part2(void);\nint main(void) { part1(); part2(); return 0; }\n",
    # A library between, as builds have it.
    "Makefile": """
CFLAGS = -Oz -ffunction-sections
AR = llvm-ar
bin/app: main.o libparts.a
\tmkdir -p bin
\t$(CC) main.o libparts.a -o bin/app
libparts.a: part1.o part2.o
\trm -f libparts.a
\t$(AR) rc libparts.a part1.o part2.o
clean:
\trm -rf bin *.a *.o
check: bin/app
\ttest `bin/app | wc -l` = 48
""",
}
Tuning = Callable[..., Tuned]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in (1, 2):
        calls = " ".join(f"sayNUMBER_{index % 3}(0);" for index in range(24))
        text = PART.replace("CALLS", calls).replace("NUMBER", str(number))
        (folder / f"part{number}.c").write_text(text)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def tuning(project: Path, toolchain: Toolchain) -> Tuning:
    def tune(
        *,
        go_on: bool = False,
        objective: Any = "image",
        compressor: str | None = None,
        search: Mapping[str, Any] = INLINING_ALONE,
        **given: Any,
    ) -> Tuned:
        built = BuildCommands(**({"build": ("make -j2",), "build_folder": project} | given))
        return run(
            Tune(
                built=built,
                budget="0.5s",
                output=project.parent / "tuned.so",
                folder=project.parent / "tune",
                go_on=go_on,
                objective=objective,
                compressor=compressor,
                compiler=CompilerOptions(llvm=toolchain.major, workers=1),
                **search,
            )
        )

    return tune


def check_in_ci(project: Path, size: int) -> None:
    """The steps of CI, run in a shell, say what `check` says, and leave their reports."""
    script = Path(__file__).parents[2] / "examples/ci/check.sh"
    mlgokit = Path(sys.executable).parent
    surroundings = {**os.environ, "PATH": f"{mlgokit}:{os.environ['PATH']}", "MLGOKIT_REPORTS": "reports"}
    for limit, code in ((size, 0), (size - 1, 1)):
        words = ["sh", script, project.parent / "tuned.so", "make -j2", "--build-folder", project]
        done = subprocess.run(
            [*words, "--max-bytes", str(limit)],
            cwd=project.parent,
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stderr
        result = json.loads((project.parent / "reports/check.json").read_text())
        said = (project.parent / "reports/check.md").read_text()
        plain = result["built"]["programs"][0]["plain"]["image"]
        assert f"| bin/app | {plain:,} | {size:,} | {100 * (size / plain - 1):+.2f} % |" in said.splitlines()
        assert [line for line in said.splitlines() if line.startswith("- ")] == [
            f"- {sentence}" for sentence in result["violations"]
        ]
        too_large = f"bin/app: {size:,} bytes, 1 more than --max-bytes {size - 1:,}"
        assert result["violations"] == [too_large] * code


def test_a_build_is_recorded_tuned_tested_and_compared(tuning: Tuning, project: Path):
    """A build is made three times, and tested: several seconds."""
    # A source that the build writes.
    (project / "main.c").rename(project / "main.in")
    with (project / "Makefile").open("a") as rules:
        rules.write("main.c: main.in\n\tcp main.in main.c\n")
    before = sorted(path.name for path in project.iterdir())
    found = tuning(test=("make check",), program=(Path("app"),), objective="linked")

    assert {one.name for one in found.modules} == {"parts/main.o", "parts/part1.o", "parts/part2.o"}
    assert found.judged is not None
    assert found.built is not None
    (program,) = found.built.programs
    assert (program.program, program.plain.image - program.tuned.image) == (
        "bin/app",
        found.judged.before - found.judged.after if found.judged.before and found.judged.after else 0,
    )
    assert program.tuned.image < program.plain.image
    assert found.plain_link is not None
    assert found.plain_link.stderr == ""
    assert found.built.tests == "the tests pass on the plain build and on the tuned one"
    assert found.built.notes == ()
    assert found.built.line.startswith("at the end of CFLAGS and CXXFLAGS of the Makefile: -fpass-plugin=")
    assert (project.parent / "tuned.so").exists()
    # In copies: nothing is written where the sources are.
    assert sorted(path.name for path in project.iterdir()) == before
    page = "".join((project.parent / "tune" / f"tuned.{kind}").read_text() for kind in ("md", "html"))
    assert re.search(r"## What differs in bin/app\n.*\n\| part1 \| shrunk \|.*Map of bin/app", page, re.DOTALL)

    logs = sorted(path.stat().st_mtime_ns for path in (project.parent / "tune" / "build").glob("plain-*.log"))
    again = tuning(test=("make check",), program=(Path("app"),), objective="linked", go_on=True)
    assert again.built is not None
    assert again.built.programs[0].tuned.image <= program.tuned.image
    # The plain build is not made again.
    assert logs == sorted(path.stat().st_mtime_ns for path in (project.parent / "tune/build").glob("plain-*.log"))

    with (project / "part1.c").open("a") as source:
        source.write("int added(int a) { return a + 1; }\n")
    changed = tuning(test=("make check",), program=(Path("app"),), objective="linked", go_on=True)
    assert any(note.startswith("1 of 3 modules, such as parts/part1.o, changed") for note in changed.notes)
    assert changed.built is not None
    (now,) = changed.built.programs
    assert now.plain.image > program.plain.image
    # Half of the gain is from the module that is as it was.
    assert now.plain.image - now.tuned.image >= (program.plain.image - program.tuned.image) // 2 > 0

    size = now.tuned.image
    config = Check(
        plugin=project.parent / "tuned.so",
        built=BuildCommands(build=("make -j2",), build_folder=project),
        max_bytes=size,
        max_growth=0.0,
        against=project.parent / "tune/tuned.json",
    )
    checked = check.run(config)
    assert checked.built is not None
    assert [one.tuned.image for one in checked.built.programs] == [size]
    assert (checked.violations, check.exit_code(config, checked)) == ((), 0)
    check_in_ci(project, size)
    failing = dataclasses.replace(
        config,
        built=dataclasses.replace(
            config.built,
            test=("sh -c 'sha256sum bin/app > now; test -e ../first || cp now ../first; cmp now ../first'",),
        ),
    )
    with pytest.raises(RejectedError, match=r"look into (\S+); tune again$") as caught:
        check.run(failing)
    log = Path(str(caught.value).rpartition("look into ")[2].removesuffix("; tune again"))
    # It stays, and the copies of the sources do not.
    assert log.is_file()
    assert not outside_path(log.parents[1]).exists()
    shutil.rmtree(log.parents[1])


def test_no_program_of_several_that_share_a_function_grows(tuning: Tuning, project: Path, toolchain: Toolchain):
    """Three builds and a search, of four programs: several seconds.

    The account has a COMDAT function once, and each program links the copy of its own objects.
    """
    names = [f"q{number}" for number in range(4)]
    for path in project.glob("*.c"):
        path.unlink()
    (project / "Makefile").write_text(
        f"all: {' '.join(names)}\nq%: m%.o sink.o\n\t$(CXX) -Wl,--gc-sections $^ -o $@\n"
        "%.o: %.cc\n\t$(CXX) -Oz -ffunction-sections -c $< -o $@\n"
        "sink.o: sink.c\n\t$(CC) -Oz -ffunction-sections -c $< -o $@\n"
    )
    (project / "h.h").write_text(
        'extern "C" int sink(int, int);\n'
        "static int h(int x, int y) { int s = sink(x, 1); s += sink(y, s); s ^= sink(s, x + y); return s; }\n"
        "inline int f(int a, int b) { if (a > b) return h(a, b); return h(b, a ^ 7) + 1; }\n"
    )
    for number in range(4):
        calls = "+".join(f"f(c+{index},{index})" for index in range(number + 2))
        (project / f"m{number}.cc").write_text(f'#include "h.h"\nint main(int c, char **) {{ return {calls}; }}\n')
    (project / "sink.c").write_text("int sink(int a, int b) { return a * 31 + b; }\n")

    found = tuning(build=("make",), search={})

    assert found.judged is not None
    assert found.built is not None
    assert found.built.notes == ()
    assert found.judged.programs.keys() == set(names)
    assert {one.program: (one.plain.image, one.tuned.image) for one in found.built.programs} == found.judged.programs
    shipped = found.shipped and found.shipped.judged
    assert shipped is not None
    assert all(
        after <= min(before, shipped.programs[name][1]) for name, (before, after) in found.judged.programs.items()
    )
    # As whoever builds with the plugin sees it.
    words = (f"{name}={tool} -fpass-plugin={found.versioned}" for name, tool in _compilers(toolchain).items())
    assert process.run(["make", "-C", str(project), *words], timeout_seconds=120).returncode == 0
    for name in names:
        sizes = process.run([f"llvm-size-{toolchain.major}", str(project / name)], timeout_seconds=60).stdout.split()
        assert int(sizes[6]) == found.judged.programs[name][1]


def test_the_compressed_size_of_a_program_is_minimised(tuning: Tuning, project: Path, toolchain: Toolchain):
    found = tuning(objective="compressed", compressor="xz -6")
    assert found.built is not None
    (program,) = found.built.programs
    assert found.judged is not None
    assert found.judged.programs == {"bin/app": (program.plain.compressed, program.tuned.compressed)}
    # As whoever ships it sees it.
    words = (f"{name}={tool} -fpass-plugin={found.versioned}" for name, tool in _compilers(toolchain).items())
    assert process.run(["make", "-C", str(project), *words], timeout_seconds=120).returncode == 0
    stripped = [f"llvm-strip-{toolchain.major}", "--strip-all", str(project / "bin/app")]
    assert process.run(stripped, timeout_seconds=60).returncode == 0
    data = (project / "bin/app").read_bytes()
    assert len(data) == program.tuned.file
    compressed = process.run(["xz", "-6"], stdin=data, timeout_seconds=60).stdout
    assert len(compressed) == program.tuned.compressed


def _compilers(toolchain: Toolchain) -> dict[str, Path]:
    return {"CC": toolchain.clang, "CXX": toolchain.clangxx}


def test_a_tuned_build_that_fails_its_tests_is_not_published(tuning: Tuning, project: Path):
    (project.parent / "tuned.so").write_text("the one before")
    # A test that wants the very same program.
    test = "sh -c 'sha256sum bin/app > now; test -e ../first || cp now ../first; cmp now ../first'"
    with pytest.raises(RejectedError, match=r"^--test: expected the tests to pass on the tuned build as on the plain"):
        tuning(test=(test,))
    assert (project.parent / "tuned.so").read_text() == "the one before"

    (project.parent / "tune/build/recorded.json").write_text(
        json.dumps(_with_tests(project.parent / "tune/build/recorded.json", "make check ended with 2"))
    )
    found = tuning(test=(test,), go_on=True)
    assert found.built is not None
    assert found.built.tests.startswith(
        "the tests already fail on the plain build (make check ended with 2), and on the tuned"
    )


def _with_tests(path: Path, reason: str) -> dict[str, Any]:
    found = json.loads(path.read_text())
    found["build"]["tests"] = reason
    return found


def test_a_library_is_named_without_its_version_and_a_wrong_name_is_refused_before_the_tests(
    project: Path, toolchain: Toolchain
):
    (project / "Makefile").write_text("""
lib/libparts.so: part1.c part2.c
\tmkdir -p lib
\t$(CC) -Oz -fPIC -shared part1.c part2.c -Wl,-soname,libparts.so.1 -o lib/libparts.so.1.2
\tln -s libparts.so.1.2 lib/libparts.so
""")

    def record(name: str) -> RecordedBuild:
        built = BuildCommands(
            build=("make",),
            build_folder=project,
            program=(Path(name),),
            test=(f"touch {project.parent / 'tested'}",),
        )
        return record_plain(built, project.parent / "tune", go_on=False, toolchain=toolchain, report=say_nothing)

    with pytest.raises(UsageError, match=r"^--program libother.so: expected a program that the build links, found tha"):
        record("libother.so")
    assert not (project.parent / "tested").exists()
    for name in ("libparts.so", "lib/libparts.so", "libparts.so.1.2"):
        recorded = record(name)
        assert set(recorded.programs()) == {"lib/libparts.so.1.2"}
        assert recorded.tests == ""


def test_a_build_is_cleaned_and_made_in_its_folder(tuning: Tuning, project: Path):
    found = tuning(clean=("make clean",))

    assert found.built is not None
    assert (project / "bin/app").stat().st_size == (project.parent / "tune/build/programs/tuned/bin/app").stat().st_size
    assert found.built.programs[0].tuned.image < found.built.programs[0].plain.image
    assert found.built.notes == ()


def test_a_build_that_has_nothing_to_do_is_refused(project: Path, toolchain: Toolchain):
    def record(*build: str) -> RecordedBuild:
        built = BuildCommands(build=build, build_folder=project)
        return record_plain(built, project.parent / "tune", go_on=False, toolchain=toolchain, report=say_nothing)

    (project / "bin").mkdir()
    done = process.run(["make", f"CC={toolchain.clang}", "AR=ar"], cwd=project, timeout_seconds=60)
    assert done.returncode == 0, done.stderr
    # What is a moment old may be of the build that is recorded: clocks of files are coarse.
    for path in project.rglob("*"):
        seconds = path.stat().st_mtime - 60
        os.utime(path, (seconds, seconds))
    with pytest.raises(
        UsageError, match="found no compilation and 3 objects that were there before; add --clean, as in"
    ):
        record("make")
    with pytest.raises(
        CorpusError, match=r"^--build: expected the plain build by clang \d.* to succeed, found: make no"
    ):
        record("make nothing")
    (project / "out").mkdir()
    (project / "out/CMakeCache.txt").write_text("")
    with pytest.raises(
        CorpusError, match=r"a copy without out, which contain absolute paths: configure in an earlier --build"
    ):
        record("make -C out")
    shutil.rmtree(project / "out")
    with pytest.raises(
        UsageError,
        match=r"^--build: 3 objects were made by a compiler that bypassed the wrappers, such as .*main.o by "
        r".*clang version",
    ):
        record(f"env -i PATH=/usr/bin:/bin make -B CC={toolchain.clang} AR=ar")
    (project / "part1.o").unlink()
    assert set(record("make").left_out) == {"main.o", "part2.o"}


LTO = ("make CFLAGS='-Oz -ffunction-sections -flto' LINK=-fuse-ld=lld",)
SECOND = "second: main.o libparts.a\n\t$(CC) main.o libparts.a $(LINK) -o second\n"


@pytest.fixture
def lto_project(project: Path) -> Path:
    """One whose Makefile knows how to link by another linker."""
    text = (project / "Makefile").read_text().replace("libparts.a -o", "libparts.a $(LINK) $(CFLAGS) -o")
    (project / "Makefile").write_text(text + SECOND)
    return project


@pytest.mark.parametrize(
    "clean",
    # `test_a_link_is_judged_in_the_folder_of_a_cleaned_build` is the short form of the other.
    [pytest.param((), id="copy"), pytest.param(("make clean",), id="in its folder", marks=pytest.mark.slow)],
)
def test_the_link_of_a_build_with_lto_is_searched_by_itself(
    tuning: Tuning, lto_project: Path, clean: tuple[str, ...], capsys: pytest.CaptureFixture[str]
):
    for go_on in (False, True):
        found = tuning(build=LTO, clean=clean, program=(Path("app"),), go_on=go_on)
        assert {one.name for one in found.modules} == {"app (link)"}
        assert any("3 of 3 sources are built with -flto, so the link" in note for note in found.notes)
        assert found.judged is not None
        assert found.built is not None
        (program,) = found.built.programs
        # The plain one is that of the recorded build, also where the folder has the one with the plugin.
        assert (program.plain.image, program.tuned.image) == (found.judged.before, found.judged.after)
        assert program.tuned.image <= program.plain.image
        assert "load-pass-plugin" in found.built.line
    assert capsys.readouterr().out == ""


def test_compile_steps_before_a_link_that_is_not_searched_make_nothing_larger(tuning: Tuning, lto_project: Path):
    # The second build is larger by itself.
    text = (lto_project / "Makefile").read_text()
    more = "ifneq ($(wildcard ../first),)\noverride CFLAGS += -DMORE\nendif\n$(shell touch ../first)\n"
    (lto_project / "Makefile").write_text(f"{more}{text}")
    main = "#ifdef MORE\nconst int more[99] = {1, 2};\n#else\nconst int more[2] = {1, 2};\n#endif\n"
    main += "void part1(void); int main(int count, char **words) { part1(); return more[count]; }\n"
    (lto_project / "main.c").write_text(main)
    with pytest.raises(RejectedError, match=r"^--build: expected a program with -flto to be no larger with the plugin"):
        tuning(build=(f"{LTO[0]} bin/app second",))
    assert not (lto_project.parent / "tuned.so").exists()

    (outside_path(lto_project.parent / "tune") / "tree/first").unlink()
    # What is not searched by its link is said, and why.
    found = tuning(build=(f"{LTO[0]} bin/app second",), go_on=True)
    assert "found bin/app, second; name one with --program" in found.left_out["-flto"]
    assert {one.name for one in found.modules} == {"parts/main.o", "parts/part1.o", "parts/part2.o"}


@pytest.mark.parametrize("program", [(Path("app"),), ()], ids=["one program", "several"])
def test_a_link_with_lto_by_a_linker_without_plugins_is_refused_before_the_search(
    tuning: Tuning, lto_project: Path, toolchain: Toolchain, program: tuple[Path, ...]
):
    # GNU's linker as clang sees it, also where none is installed that does link-time optimization.
    linker = lto_project.parent / "ld.bfd"
    linker.write_text(f'#!/bin/sh\nexec {toolchain.lld} "$@"\n')
    linker.chmod(0o755)
    build = LTO[0].replace("-fuse-ld=lld", f"--ld-path={linker}")
    sentence = (
        r"^--build: app: searching a -flto build needs a link by clang with lld, found ld.bfd in the output of `.*`; "
        "link with -fuse-ld=lld"
    )
    with pytest.raises(UsageError, match=sentence):
        tuning(build=(f"{build} bin/app second",), program=program)
    assert {path.name for path in (lto_project.parent / "tune").iterdir()} == {"build"}


def test_a_link_that_also_compiles_is_not_searched_and_no_other_linkers(tuning: Tuning, lto_project: Path):
    text = (lto_project / "Makefile").read_text()
    text = text.replace("main.o libparts.a $(LINK) $(CFLAGS) -o", "main.c main2.o libparts.a $(LINK) $(CFLAGS) -o")
    (lto_project / "Makefile").write_text(text.replace("bin/app: main.o", "bin/app: main2.o"))
    (lto_project / "main2.c").write_text("int two(void) { return 2; }\n")
    # Its compile steps are tuned, which makes this program larger.
    with pytest.raises(RejectedError, match="compile and link in separate commands"):
        tuning(build=LTO, program=(Path("app"),))


def test_a_link_is_judged_in_the_folder_of_a_cleaned_build(tuning: Tuning, project: Path):
    found = tuning(clean=("make clean",), program=(Path("app"),), objective="linked")
    assert found.judged is not None
    assert found.built is not None
    assert found.built.programs[0].tuned.image == found.judged.after
    assert project.exists()


DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "builds.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECIPES = {
    "CMake, INTERPROCEDURAL_OPTIMIZATION": ("cmake", "make"),
    "CMake, full link-time optimization": ("cmake", "make"),
    "Meson, b_lto": ("meson", "ninja"),
    "Make": ("make",),
    "Make, link-time optimization": ("make",),
    "autotools": ("make",),
    "Ninja, in a build folder that is configured": ("cmake", "ninja"),
    "A profile build": ("make", "llvm-profdata-22"),
    "cargo": ("cargo",),
}
SYSTEMS = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.13)
project(app C)
add_executable(app main.c part1.c part2.c)
""",
    "meson.build": "project('app', 'c')\nexecutable('app', 'main.c', 'part1.c', 'part2.c')\n",
    "Makefile": """
app: main.o part1.o part2.o
\t$(CC) $(LDFLAGS) $(CFLAGS) main.o part1.o part2.o -o app
check: app
\ttest `./app | wc -l` = 48
clean:
\trm -f app *.o
""",
    # In the way of autotools: it asks the compiler, and writes what make reads.
    "configure": """#!/bin/sh
for word; do case $word in CFLAGS=*) CFLAGS=${word#CFLAGS=};; esac; done
echo 'int main(void) { return 0; }' > conftest.c
${CC-cc} $CFLAGS -c conftest.c -o conftest.o || exit 1
rm -f conftest.*
{ echo "CC = ${CC-cc}"; echo "CFLAGS = $CFLAGS"; cat Makefile; } > GNUmakefile
""",
    "Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\nbuild = "build.rs"\n',
    "src/main.rs": 'extern "C" { fn part1(); fn part2(); }\nfn main() { unsafe { part1(); part2(); } }\n',
    "build.rs": """
use std::{env, process::Command};
fn run(program: &str, words: &[&str]) { assert!(Command::new(program).args(words).status().unwrap().success()); }
fn main() {
    let out = env::var("OUT_DIR").unwrap();
    let library = format!("{out}/libparts.a");
    for name in ["part1", "part2"] {
        let object = format!("{out}/{name}.o");
        run("cc", &[&env::var("CFLAGS").unwrap(), "-c", &format!("{name}.c"), "-o", &object]);
        run("ar", &["rc", &library, &object]);
    }
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=static=parts");
}
""",
}


def recipe(title: str) -> str:
    """What the document has below a heading."""
    text = DOCUMENT.read_text()
    begin = text.index(f"\n### {title}\n")
    return text[begin : text.find("\n##", begin + 5)]


@pytest.mark.parametrize("toolchain", [22], indirect=True, ids=["llvm-22"])
# Another recipe of the same build system is run in the fast half, or by test_recipes.py.
@pytest.mark.parametrize(
    "title",
    [
        pytest.param(
            one, marks=[pytest.mark.slow] if one in {"CMake, full link-time optimization", "Meson, b_lto"} else []
        )
        for one in RECIPES
    ],
)
def test_a_recipe_tunes_and_builds(
    title: str, project: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for program in RECIPES[title]:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    (project / "src").mkdir()
    for name, text in SYSTEMS.items():
        (project / name).write_text(text)
    (project / "configure").chmod(0o755)
    monkeypatch.chdir(project)
    if title.startswith("Ninja"):
        argv = ["cmake", "-G", "Ninja", "-B", "build", "-DCMAKE_BUILD_TYPE=Tuned", "-DCMAKE_C_FLAGS=-Oz"]
        assert process.run(argv, timeout_seconds=120).returncode == 0
    text = recipe(title)
    for block in BLOCK.finditer(text):
        kind, body = block.groups()
        if kind == "sh":
            words = shlex.split(body.replace("$PWD", str(project)))
            more = ["--budget", "0s", "--workers", "1", "--llvm", "22", "--json", *INLINING_ALONE_WORDS]
            with pytest.raises(SystemExit) as ended:
                main([*words[1:], *more])
            assert ended.value.code == 0
        elif kind == "bash":
            done = process.run(["sh", "-e", "-c", body], cwd=project, timeout_seconds=120)
            assert done.returncode == 0, done.stderr
        else:
            name = re.findall(r"`([\w.]+)`", text[: block.start()])[-1]
            (project / name).write_text(body)
    found = json.loads(capsys.readouterr().out)
    (program,) = found["built"]["programs"]
    is_link = any(word in title for word in ("lto", "link-time", "INTERPROCEDURAL"))
    # LLVM's own link, and the profile of a program that calls all once, leave nothing to be gained here.
    has_gain = not is_link and "profile" not in title
    assert program["plain"]["image"] - program["tuned"]["image"] >= int(has_gain)
    assert found["built"]["notes"] == []
    assert ("load-pass-plugin" in found["built"]["line"]) is is_link


@pytest.mark.parametrize("toolchain", [22], indirect=True, ids=["llvm-22"])
def test_what_cmake_links_to_know_its_compiler_is_no_program_of_the_build(
    project: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    (project / "CMakeLists.txt").write_text(SYSTEMS["CMakeLists.txt"])
    monkeypatch.chdir(project)
    # CMake tries the flags before it knows of a linker: that link is by the system's.
    configure = "cmake -B build -DCMAKE_BUILD_TYPE=Tuned -DCMAKE_C_FLAGS='-Oz -flto=thin' -DCMAKE_EXE_LINKER_FLAGS={}"
    words = ["--build", configure.format("-fuse-ld=lld"), "--build", "cmake --build build", "--program", "build/app"]
    words += ["--budget", "0s", "--workers", "1", "--llvm", str(toolchain.major), "--json", *INLINING_ALONE_WORDS]
    with pytest.raises(SystemExit) as ended:
        main(["tune", *words])

    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert found["built"]["notes"] == []
    assert "load-pass-plugin" in found["built"]["line"]


@pytest.mark.parametrize("toolchain", [22], indirect=True, ids=["llvm-22"])
@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_the_links_of_a_configured_build_prove_what_its_database_is_tuned_for(
    generator: str, project: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
):
    for program in ("cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(app C)\nadd_library(parts STATIC part1.c part2.c)\n"
        "add_executable(app main.c)\ntarget_link_libraries(app parts)\n"
        "add_executable(other main.c part1.c part2.c)\n"
        "add_executable(never EXCLUDE_FROM_ALL main.c)\n"
        # Ninja has these in the command of the link.
        "add_custom_command(TARGET app PRE_LINK COMMAND ${CMAKE_COMMAND} -E echo begins)\n"
        "add_custom_command(TARGET app POST_BUILD COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:app> copied)\n"
    )

    def build(folder: str, *flags: str) -> None:
        options = [f"-DCMAKE_C_COMPILER={toolchain.clang}", f"-DCMAKE_C_FLAGS={' '.join(('-Oz', *flags))}"]
        options += ["-DCMAKE_BUILD_TYPE=Tuned", "-DCMAKE_EXPORT_COMPILE_COMMANDS=1"]
        for words in (["cmake", "-G", generator, "-B", folder, *options], ["cmake", "--build", folder]):
            done = process.run(words, cwd=project, timeout_seconds=120)
            assert done.returncode == 0, done.stderr

    build("build")
    found = run(
        Tune(
            compile_commands=project / "build/compile_commands.json",
            links=project / "build",
            built=BuildCommands(program=(Path("!other"),)),
            budget="0.5s",
            output=project.parent / "tuned.so",
            folder=project.parent / "tune",
            compiler=CompilerOptions(llvm=toolchain.major, workers=1),
            **INLINING_ALONE,
        )
    )
    assert found.judged is not None
    ((name, (before, after)),) = found.judged.programs.items()
    assert (name, before > after > 0) == ("app", True)
    # The sources of the other program and those that were never built are neither compiled nor searched.
    assert len(found.modules) == 3
    assert "4 of 7 sources of the database are not in the programs that are compared" in found.notes
    # What was proved is what the user's own build makes.
    build("build", found.flag)
    assert weigh_image(project / "build/app").row.image == after


def test_links_of_a_build_that_is_not_there_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"^--links .*: expected a folder with build\.ninja, or one that CMake made"):
        read_configured_links(tmp_path)
    rules = tmp_path / "CMakeFiles/app.dir/link.txt"
    rules.parent.mkdir(parents=True)
    rules.write_text("cc main.o -o app\nar qc libx.a x.o\n")
    with pytest.raises(
        UsageError, match=r"expected programs that the build linked, found none of 2 commands; build it"
    ):
        read_configured_links(tmp_path)
    with pytest.raises(UsageError, match=r"^--links build: expected --compile-commands with it, and no --link-command"):
        run(Tune(links=Path("build"), built=BuildCommands(build=("make",))))


def test_every_recipe_is_tried():
    text = DOCUMENT.read_text()
    begin = text.index("\n## Recipes\n")
    assert re.findall(r"^### (.*)$", text[begin : text.index("\n## ", begin + 5)], re.MULTILINE) == [*RECIPES]


def test_nothing_that_is_left_among_the_sources_is_found_by_a_glob(
    project: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(project)
    before = {path.name for path in project.rglob("*") if path.is_file()}
    built = BuildCommands(build=("make",), build_folder=Path())
    for number in range(3):
        record_plain(built, Path(f"tune-{number}"), go_on=False, toolchain=toolchain, report=say_nothing)
        tree = outside_path(Path(f"tune-{number}")) / "tree" / project.name
        assert (tree / "bin" / "app").exists()
        assert not list(tree.rglob("tune-*"))
    left = {path.name for path in project.rglob("*") if path.is_file()}
    assert left - before == {"app", "manifest.json", "plain-build.log", "recorded.json"}
    # The copies are in the cache, which may be emptied.
    logged = (project / "tune-0/build/plain-build.log").stat().st_mtime_ns
    for is_there in (True, False):
        if not is_there:
            shutil.rmtree(outside_path(Path("tune-0")))
        record_plain(built, Path("tune-0"), go_on=True, toolchain=toolchain, report=say_nothing)
        assert ((project / "tune-0/build/plain-build.log").stat().st_mtime_ns == logged) == is_there


def test_a_folder_of_the_user_is_not_taken_for_that_of_the_builds(project: Path, toolchain: Toolchain):
    (project / "build").mkdir()
    (project / "build" / "mine").write_text("")
    built = BuildCommands(build=("make",), build_folder=project)
    with pytest.raises(
        ReuseError,
        match=r"build: expected a folder that does not exist or that mlgokit made, found one with other files",
    ):
        record_plain(built, project, go_on=False, toolchain=toolchain, report=say_nothing)
    assert (project / "build" / "mine").exists()
