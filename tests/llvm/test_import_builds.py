"""Builds taken as they are: precompiled headers, commands without code, several targets, other compilers."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.corpus import Database, DatabaseOptions, import_database
from mlgokit.commands.corpus import import_build, verify
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.verify import Verdict
from mlgokit.errors import CorpusError, StorageError, UsageError
from mlgokit.progress import say_nothing

pytestmark = pytest.mark.llvm

HEADER = "#ifdef BIG\nstatic inline int twice(int x) { return x * 7; }\n#endif\n"
SOURCE = (
    'extern "C" int puts(const char *);\n'
    "#ifdef BIG\n"
    'int m(int x) { for (int i = 0; i < x; i++) puts("big"); return twice(x) + twice(x + 1); }\n'
    "#else\nint m(int x) { return x; }\n#endif\n"
    "#ifdef LATE\nint late(int x) { return x; }\n#endif\n"
)


class Place:
    """A build's folder, whose commands are written as a database."""

    def __init__(self, folder: Path, toolchain: Toolchain) -> None:
        self.folder, self.toolchain, self.entries = folder, toolchain, list[dict[str, str]]()
        self.write("pre.h", HEADER)
        self.write("m.cc", SOURCE)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def add(self, line: str, file: str = "m.cc", compiler: str = "clang++ -Oz") -> None:
        self.entries.append({"directory": str(self.folder), "file": file, "command": f"{compiler} {line}"})

    @property
    def database(self) -> Path:
        path = self.folder / "compile_commands.json"
        if self.entries:
            path.write_text(json.dumps(self.entries))
        return path

    def take(self, database: Path | None = None, **choice: Any) -> dict[str, Any]:
        config = import_build.Import(
            compile_commands=database or self.database,
            corpus=self.folder / "corpus",
            project="p",
            llvm=self.toolchain.major,
            workers=1,
            database=DatabaseOptions(**choice),
        )
        return import_build.run(config)

    def verdicts(self, database: Path | None = None) -> Mapping[str, Verdict]:
        config = verify.Verify(
            corpus=self.folder / "corpus",
            compile_commands=database or self.database,
            compiler=CompilerOptions(llvm=self.toolchain.major, workers=1),
        )
        return {Path(one.name).stem: one.verdict for one in verify.run(config).modules}

    def functions(self) -> dict[str, set[str]]:
        """By module, what its bitcode defines."""
        opt = str(self.toolchain.clang)
        found: dict[str, set[str]] = {}
        for module in load_corpus(self.folder / "corpus").modules:
            words = [opt, "-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-o", "-", str(module.bitcode)]
            text = process.run(words, timeout_seconds=20).stdout.decode()
            lines = [line for line in text.splitlines() if line.startswith("define ")]
            found[Path(module.name).stem] = {line.partition("@")[2].partition("(")[0] for line in lines}
        return found


@pytest.fixture
def place(toolchain: Toolchain, tmp_path: Path) -> Place:
    return Place(tmp_path, toolchain)


def test_the_limits_of_compilers_are_those_of_the_front_ends_of_a_build(place: Place):
    place.add("-c m.cc -o m.o")

    def take(**given: Any) -> None:
        import_database(
            Database(path=place.database),
            place.folder / "corpus",
            toolchain=place.toolchain,
            compiler=CompilerOptions(workers=1, **given),
            report=say_nothing,
        )

    with pytest.raises(CorpusError, match=r"the front end did not finish in 0\.001 seconds"):
        take(timeout_seconds=0.001)
    with pytest.raises(StorageError, match="give a smaller --disk-reserve-gib"):
        take(disk_reserve_gib=1 << 19)


BIG, SMALL = {"_Z1mi", "_ZL5twicei"}, {"_Z1mi"}


def test_a_precompiled_header_is_read_as_the_command_that_made_it_read_it(place: Place):
    place.write("inc/pre2.h", HEADER)
    place.write("chain.h", "static inline int more(int x) { return twice(x); }\n")
    place.add("-DBIG -x c++-header pre.h -o pre.pch", "pre.h")
    place.add("-include-pch pre.pch -x c++-header chain.h -o chain.pch", "chain.h")
    place.add("-DBIG -c inc/pre2.h", "inc/pre2.h")
    place.add("-include-pch pre.pch -Winvalid-pch -c m.cc -o direct.o")
    place.add(f"-Xclang -include-pch -Xclang {place.folder}/pre.pch -c m.cc -o passed.o")
    place.add("-include-pch chain.pch -c m.cc -o chained.o")
    place.add("-DBIG -include inc/pre2.h -fpch-instantiate-templates -c m.cc -o implied.o")
    place.add("-c m.cc -o without.o")
    told = place.take()
    assert (told["modules"], told["failures"], told["commands_without_code"]) == (5, 0, 3)
    assert place.functions() == {
        "direct": BIG, "passed": BIG, "chained": BIG, "implied": BIG, "without": SMALL,
    }  # fmt: skip
    assert set(place.verdicts().values()) == {Verdict.SAME}


def test_a_macro_of_the_source_alone_is_not_there_while_the_header_is_read(place: Place):
    place.write("pre.h", "#ifdef LATE\n#error the header saw it\n#endif\n#define BIG 1\n" + HEADER)
    place.add("-x c++-header pre.h -o pre.pch", "pre.h")
    place.add("-DLATE -include-pch pre.pch -c m.cc -o late.o")
    assert place.take()["failures"] == 0
    assert place.functions() == {"late": {*BIG, "_Z4latei"}}
    assert place.verdicts() == {"late": Verdict.SAME}


def test_a_precompiled_header_of_which_nothing_is_known_is_a_reason(place: Place):
    place.add("-DBIG -fpch-codegen -x c++-header pre.h -o code.pch", "pre.h")
    place.add("-include-pch code.pch -c m.cc -o code.o")
    place.add("-include-pch gone.pch -c m.cc -o gone.o")
    place.add("-DBIG -include-pch pre.h.pch -c m.cc -o beside.o")
    told = place.take()
    assert set(told["reasons"]) == {"p/code.o", "p/gone.o"}
    assert told["reasons"]["p/gone.o"].startswith("expected the text of the precompiled header gone.pch, found no")
    assert "-fpch-codegen, whose functions are compiled with it" in told["reasons"]["p/code.o"]
    assert place.functions() == {"beside": BIG}


def test_a_corpus_without_its_precompiled_header_is_not_verified(place: Place):
    place.add("-c m.cc -o m.o")
    place.take()
    place.entries.clear()
    place.add("-DBIG -x c++-header pre.h -o pre.pch", "pre.h")
    place.add("-include-pch pre.pch -c m.cc -o m.o")
    assert place.verdicts() == {"m": Verdict.DIFFERENT}


def test_options_that_the_corpus_is_made_without_are_not_verified(place: Place):
    place.add("-c m.cc -o m.o")
    place.add("--coverage -c m.cc -o coverage.o")
    place.take()
    assert place.verdicts() == {"m": Verdict.SAME, "coverage": Verdict.NO_REFERENCE}


@pytest.mark.parametrize("compiler", ["clang", "gcc"])
@pytest.mark.parametrize("build_system", ["meson", "cmake"])
def test_a_build_system_that_precompiles(
    build_system: str, compiler: str, place: Place, monkeypatch: pytest.MonkeyPatch
):
    if any(shutil.which(name) is None for name in (build_system, "ninja", "g++")):
        pytest.skip(f"expected {build_system}, ninja and g++, found none; install them")
    place.write("pch/pre.h", "#define BIG 1\n" + HEADER)
    place.write("main.cc", "int m(int x); int main(int c, char **) { return m(c) & 1; }\n")
    build = place.folder / "build"
    cxx = str(place.toolchain.clangxx) if compiler == "clang" else "g++"
    if build_system == "meson":
        place.write(
            "meson.build",
            "project('x', 'cpp', default_options: ['buildtype=minsize', 'b_pch=true'])\n"
            "executable('app', 'main.cc', 'm.cc', cpp_pch: 'pch/pre.h')\n",
        )
        words = ["meson", "setup", str(build)]
    else:
        place.write(
            "CMakeLists.txt",
            "cmake_minimum_required(VERSION 3.20)\nproject(x CXX)\nadd_executable(app main.cc m.cc)\n"
            "target_precompile_headers(app PRIVATE pch/pre.h)\n"
            "set_source_files_properties(m.cc PROPERTIES COMPILE_DEFINITIONS LATE)\n",
        )
        words = ["cmake", "-G", "Ninja", "-S", ".", "-B", str(build), "-DCMAKE_BUILD_TYPE=MinSizeRel"]
        words += ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    monkeypatch.setenv("CXX", cxx)
    done = process.run(words, timeout_seconds=120, cwd=place.folder)
    assert done.returncode == 0, done.stderr
    told = place.take(build / "compile_commands.json", baseline="clang")
    assert (told["modules"], told["failures"], told["commands_without_code"]) == (2, 0, 1)
    late = {"_Z4latei"} if build_system == "cmake" else set[str]()
    assert place.functions() == {"main.cc": {"main"}, "m.cc": BIG | late}
    assert set(place.verdicts(build / "compile_commands.json").values()) == {Verdict.SAME}


def test_commands_that_make_no_code_are_counted_and_named(place: Place):
    place.add("-c m.cc -o m.o")
    place.add("-S m.cc -o m.s")
    for words in ("-E m.cc -o m.i", "-MM m.cc", "-fsyntax-only m.cc", "-c m.cc -o m.o -Xclang -ast-dump"):
        place.add(words)
    told = place.take()
    assert (told["modules"], told["failures"], told["commands_without_code"]) == (2, 0, 4)
    assert told["notes"][0] == (
        "4 commands of the database without code, and so without a module: m.cc: it preprocesses (-E), m.cc: it lists "
        "what a source includes (-MM), m.cc: it checks a source and writes nothing (-fsyntax-only), m.cc: it compiles "
        "nothing (-Xclang -ast-dump)"
    )


def test_a_corpus_has_one_target(place: Place):
    place.write("plain.cc", "int plain(int x) { return x; }\n")
    for name, options in (("a", ""), ("b", "-march=haswell"), ("i386", "-m32"), ("m4", "--target=thumbv7em-none-eabi")):
        place.add(f"{options} -c plain.cc -o {name}.o", "plain.cc")
    reasons = place.take()["reasons"]
    assert set(place.functions()) == {"a", "b"}
    assert reasons["p/i386.o"].startswith(
        "it is compiled for i386-pc-linux-gnu, but a corpus has one target, here x86_64-"
    )
    assert "thumbv7em-unknown-none-eabi" in reasons["p/m4.o"]
    shutil.rmtree(place.folder / "corpus")
    place.take(target="i686-pc-linux-gnu")
    assert set(place.functions()) == {"i386"}
    shutil.rmtree(place.folder / "corpus")
    with pytest.raises(UsageError, match=r"--target mips: expected a target of the database, found x86_64-.* \(2 comm"):
        place.take(target="mips")


def test_another_compilers_database_is_taken_only_when_asked(place: Place):
    place.add("-Os -fipa-pta -c m.cc -o m.o", compiler="g++")
    place.add("-Os -c m.cc -o n.o", compiler="arm-none-eabi-g++")
    with pytest.raises(CorpusError, match=r"expected commands of clang, found 1 of g\+\+.*, 1 of arm-none-eabi-g\+\+"):
        place.take()
    place.entries.pop()
    told = place.take(baseline="clang")
    assert (told["modules"], told["baseline"]) == (1, f"clang {place.toolchain.version} -Os")
    assert told["notes"][0].startswith("1 command of the build is for g++")
    assert told["notes"][1] == "-fipa-pta (1 of 1 commands) is left out: this clang does not know it"


def test_a_build_of_two_compilers_loses_one_with_its_reason(place: Place):
    place.add("-c m.cc -o m.o")
    place.add("-Oz -c m.cc -o n.o", compiler="/opt/none/g++")
    place.add("-Oz -c m.cc -o u.o", compiler="/opt/none/c++")
    told = place.take()
    assert told["modules"] == 2
    assert told["reasons"] == {
        "p/n.o": "expected a command of clang, found one of g++; build with clang (CC=clang CXX=clang++), or give "
        "--baseline clang to compare with clang's own code"
    }
    assert told["notes"][-1].startswith("1 command of the build is for c++, which may be another compiler:")
