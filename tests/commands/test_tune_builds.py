"""What is refused and said of a tuning of a whole build, before and after compilers run."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.bench.callgrind import Callgrind
from mlgokit.builds.images import LINKED, BuiltImage
from mlgokit.builds.lines import format_plugin_lines
from mlgokit.builds.recorded import RecordedBuild, TunedBuild, TunedProgram, record_plain
from mlgokit.builds.site import BuildCommands, BuildSite
from mlgokit.commands import check
from mlgokit.commands.tune import run
from mlgokit.commands.tune_options import Tune
from mlgokit.commands.tune_runs import count_command
from mlgokit.corpus.importers.recorded import RecordedLink
from mlgokit.errors import InputError, ReuseError, UsageError
from mlgokit.pages.terminal import print_page
from mlgokit.progress import say_nothing
from mlgokit.tables.decisions import make_entry, table_bytes
from mlgokit.terminal import open_console
from mlgokit.testing import FAKE_TOOLCHAIN
from mlgokit.tune.page import tuned_page
from mlgokit.tune.result import Tuned


@pytest.mark.parametrize(
    ("built", "given", "message"),
    [
        ({"test": ("make check",)}, {}, "--test: needs --build; add that, or remove --test"),
        ({"program": (Path("app"),)}, {}, "--program: needs --build; add that"),
        ({"clean": ("make clean",)}, {}, "--clean: needs --build; add that"),
        (
            {"build": ("true",)},
            {"corpus": Path("c")},
            "tune: expected exactly one of --build, --compile-commands and --corpus",
        ),
        (
            {"build": ("true",)},
            {"level": "Oz"},
            "--level: only for --compile-commands; a build by --build has its own level",
        ),
        ({}, {"corpus": Path("c"), "level": "Oz"}, "--level: needs --compile-commands; add that, or remove --level"),
        ({"build": ("true",), "build_folder": Path("none")}, {}, "--build-folder none: expected a folder with sources"),
        ({"build": ("true && true",)}, {}, "--build: expected one command without a shell's operators, found '&&'"),
        ({"build": ("true",), "test": ("no-such x",)}, {}, "--test: expected a program in no-such x, found no no-such"),
    ],
)
def test_calls_that_make_no_sense(built: dict[str, Any], given: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(UsageError) as caught:
        run(Tune(built=BuildCommands(**built), folder=tmp_path / "tune", **given))
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "tune").exists()


@pytest.mark.parametrize("option", ["folder", "output"])
def test_a_path_from_which_rustc_loads_no_plugin_is_refused_before_the_search(option: str, tmp_path: Path):
    paths: dict[str, Any] = {"folder": tmp_path / "tune", "output": tmp_path / "tuned.so"} | {
        option: tmp_path / "my own"
    }
    with pytest.raises(UsageError, match=f"--{option}: expected a path without spaces for a cargo build"):
        run(Tune(cargo="cargo build --release", **paths))


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A tuned plugin, as far as it is read."""
    path = tmp_path / "tuned.so"
    path.write_bytes(table_bytes([make_entry([1], np.zeros(0, np.uint64), np.zeros(0, bool))]))
    return path


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"program_bytes": ("app=nan",)}, "--program-bytes"),
        ({"program_bytes": ("app",)}, "--program-bytes"),
        ({"program_growth": ("app=inf",)}, "--program-growth"),
    ],
)
def test_a_limit_that_nothing_can_exceed_is_refused_by_check(given: dict[str, Any], option: str, plugin: Path):
    with pytest.raises(UsageError, match=f"^{option}: expected "):
        check.run(check.Check(plugin=plugin, built=BuildCommands(build=("true",)), **given))


def test_a_plugin_that_rustc_cannot_load_is_refused_by_check(plugin: Path):
    with pytest.raises(UsageError, match=r"own\.so: expected a path without spaces for a cargo build"):
        check.run(check.Check(plugin=plugin.rename(plugin.with_name("my own.so")), cargo="cargo build --release"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"built": BuildCommands(program=(Path("app"),))}, "--program: cannot be combined with --cargo"),
        ({"built": BuildCommands(clean=("cargo clean",))}, "--clean: cannot be combined with --cargo"),
        ({"built": BuildCommands(test=("app && app",))}, "--test: expected one command without a shell's operators"),
    ],
)
def test_check_takes_the_tests_of_a_cargo_build_alone(given: dict[str, Any], message: str, plugin: Path):
    with pytest.raises(UsageError, match=f"^{message}"):
        check.run(check.Check(plugin=plugin, cargo="cargo build --release", **given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"corpus": Path("c")}, "--level: needs --compile-commands; add that, or remove --level"),
        (
            {"built": BuildCommands(build=("true",))},
            "check: expected either --build or --level, found both; remove one",
        ),
    ],
)
def test_a_level_without_a_database_is_refused_by_check(given: dict[str, Any], message: str, plugin: Path):
    with pytest.raises(UsageError) as caught:
        check.run(check.Check(plugin=plugin, level="Oz", **given))
    assert str(caught.value) == message


def test_a_folder_with_a_search_is_refused_before_anything_is_built(tmp_path: Path):
    (tmp_path / "tune" / "search").mkdir(parents=True)
    with pytest.raises(ReuseError, match=r"search: expected a new folder, found a search; add --continue to go on"):
        run(Tune(built=BuildCommands(build=("touch built",), build_folder=tmp_path), folder=tmp_path / "tune"))
    assert not (tmp_path / "built").exists()


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]", '{"settings": {}}', '{"settings": 3, "build": {}}'])
def test_a_damaged_record_of_a_build_is_named(tmp_path: Path, text: str):
    (tmp_path / "tune" / "build").mkdir(parents=True)
    (tmp_path / "tune" / "build" / "recorded.json").write_text(text)
    built = BuildCommands(build=("true",), build_folder=tmp_path)
    with pytest.raises(InputError, match=r"recorded\.json: expected the record of the plain build, found.* again$"):
        record_plain(built, tmp_path / "tune", go_on=True, toolchain=FAKE_TOOLCHAIN, report=say_nothing)


def recorded(*links: str, program: tuple[str, ...] = ()) -> RecordedBuild:
    commands = BuildCommands(program=tuple(map(Path, program)))
    return RecordedBuild(
        site=BuildSite(commands=commands, place=Path("/p"), tree=Path("/b"), toolchain=FAKE_TOOLCHAIN),
        links={
            Path("/b", name): RecordedLink(command=name, folder=Path("/b"), output=Path("/b", name)) for name in links
        },
        sources={},
        objects=frozenset(),
        tests=None,
        left_out={},
    )


def test_programs_are_named_by_path_or_name():
    links = ("bin/app", "lib/.libs/libx.so", "app")
    assert list(recorded(*links).programs()) == ["bin/app", "lib/.libs/libx.so", "app"]
    assert list(recorded(*links, program=("app",)).programs()) == ["app"]
    assert list(recorded(*links, program=("!bin/*",)).programs()) == ["lib/.libs/libx.so", "app"]
    assert list(recorded(*links, program=("*app", "!app")).programs()) == ["bin/app"]
    assert list(recorded(*links, program=("lib/libx.so", "./bin/app")).programs()) == ["lib/.libs/libx.so", "bin/app"]
    expected = "^--program tool: expected a program that the build links, found that it links app, bin/app, lib"
    with pytest.raises(UsageError, match=expected):
        recorded(*links, program=("tool",)).programs()


def test_one_program_is_judged():
    assert recorded("app").link().command == "app"
    assert recorded("app", "b", program=("b",)).link().command == "b"
    with pytest.raises(
        UsageError, match=r"^--objective: expected one program to judge by, found app, b; name one with"
    ):
        recorded("app", "b").link()


def test_the_line_for_good_is_one_word_where_the_path_has_spaces(tmp_path: Path):
    def line(build: str) -> str:
        return format_plugin_lines(BuildCommands(build=(build,)), tmp_path, Path("/my p.so"), "compile")

    assert line("make CFLAGS=-Oz").endswith("""CFLAGS="-Oz '-fpass-plugin=/my p.so'\"""")
    assert line("cmake --build b").endswith('add_compile_options("-fpass-plugin=/my p.so")')
    assert line("meson compile -C b").startswith(
        "in meson.build: add_project_arguments('-fpass-plugin=/my p.so', language"
    )


CMAKE = "in CMakeLists.txt, behind project() and before the targets:"


@pytest.mark.parametrize(
    ("build", "files", "line"),
    [
        ("make -j2", "Makefile", "at the end of CFLAGS and CXXFLAGS of the Makefile: -fpass-plugin=/p.so"),
        ("make -f arm.mk CC=clang", "arm.mk CMakeLists.txt", "at the end of CFLAGS and CXXFLAGS of arm.mk: -f"),
        ("make -C b", "CMakeLists.txt", f"{CMAKE} add_compile_options(-fpass-plugin=/p.so)"),
        ("make", "Makefile CMakeLists.txt configure", "at the end of CFLAGS and CXXFLAGS of configure: -f"),
        (
            "make 'CXXFLAGS=-Oz -g' LDFLAGS=-s",
            "Makefile",
            'in the build command, replacing what is there: CXXFLAGS="-Oz -g -fpass-plugin=/p.so"',
        ),
        (
            """make 'CFLAGS=-I$(TOP) -DNAME="a b"'""",
            "Makefile",
            """in the build command, replacing what is there: CFLAGS='-I$(TOP) -DNAME="a b" -fpass-plugin=/p.so'""",
        ),
        ("ninja -C b", "CMakeLists.txt", f"{CMAKE} add_compile_options(-fpass-plugin=/p.so)"),
        ("cmake --build b", "CMakeLists.txt Makefile", f"{CMAKE} add_compile_options(-fpass-plugin=/p.so)"),
        ("ninja", "build.ninja", "to the flags of the compilers in build.ninja: -fpass-plugin=/p.so"),
        ("ninja -C b", "meson.build", "in meson.build: add_project_arguments('-fpass-plugin=/p.so', language"),
        ("cargo build --release", "Cargo.toml", "in the environment: CFLAGS=-fpass-plugin=/p.so CXXFLAGS="),
    ],
)
def test_the_line_for_good_is_in_the_words_of_the_build_system(build: str, files: str, line: str, tmp_path: Path):
    for name in files.split():
        (tmp_path / name).touch()
    assert format_plugin_lines(BuildCommands(build=(build,)), tmp_path, Path("/p.so"), "compile").startswith(line)
    assert "-Wl,--load-pass-plugin=/p.so" in format_plugin_lines(
        BuildCommands(build=(build,)), tmp_path, Path("/p.so"), "link"
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("app: main.o\n\t$(CC) main.o -o app\n", "to the link command in the Makefile: "),
        ("app: main.o\n\t$(CC) -oapp main.o\n", "to the link command in the Makefile: "),
        ("app: main.o\n\t$(CC) $(LDFLAGS) main.o -o app\n", "at the end of LDFLAGS of the Makefile: "),
        ("app: main.o\n%.o: %.c\n\t$(CC) -c $< -o $@\n", "at the end of LDFLAGS of the Makefile: "),
    ],
)
def test_a_makefile_whose_link_has_no_ldflags_gets_the_option_in_its_command(text: str, place: str, tmp_path: Path):
    (tmp_path / "Makefile").write_text(text)
    line = format_plugin_lines(BuildCommands(build=("make",)), tmp_path, Path("/p.so"), "link")
    assert line == f"{place}-Wl,--load-pass-plugin=/p.so"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("main.o: main.c\n\t$(CC) -Oz -c main.c\n", "to the commands in the Makefile that compile: "),
        ("app: main.c\n\tcc -Oz main.c -o app\n", "to the commands in the Makefile that compile: "),
        ("app: main.o\n\tcc main.o -o app\n", "at the end of CFLAGS and CXXFLAGS of the Makefile: "),
        ("main.o: main.c\n\t$(CC) $(CFLAGS) -c main.c\n", "at the end of CFLAGS and CXXFLAGS of the Makefile: "),
    ],
)
def test_a_makefile_whose_commands_read_no_variables_gets_the_option_there(text: str, place: str, tmp_path: Path):
    (tmp_path / "Makefile").write_text(text)
    line = format_plugin_lines(BuildCommands(build=("make",)), tmp_path, Path("/p.so"), "compile")
    assert line == f"{place}-fpass-plugin=/p.so"


def test_a_tuned_build_is_shown_with_its_programs_and_tests():
    def image(text: int, data: int = 0) -> BuiltImage:
        return BuiltImage(status=LINKED, image=text + 50, text=text, eh_frame=50, data=data)

    programs = (
        TunedProgram(program="bin/app", plain=image(1950), tuned=image(1850)),
        TunedProgram(program="bin/odd", plain=BuiltImage(status="failed", reason="no ELF"), tuned=image(1)),
    )
    built = TunedBuild(programs=programs, tests="the tests pass", notes=("one source changed",), line="to make: X")
    tuned = Tuned(
        plugin="tuned.so", table="t", flag="-f", plain_bytes=2, tuned_bytes=1, plain_link=None, tuned_link=None,
        judged=None, taken_back=0, ended="", modules=(), failures={}, curve=(), user_seconds=0, compilations=1,
        built=built,
    )  # fmt: skip
    out = io.StringIO()
    print_page(tuned_page(tuned), open_console(out, soft_wrap=True))

    lines = out.getvalue().splitlines()
    index = next(index for index, line in enumerate(lines) if "bin/app" in line)
    assert lines[index].split() == ["bin/app", "2,000", "1,900", "-5.00", "%"]
    assert lines[index + 1].split() == ["-100", ".text,", "0", ".eh_frame"]
    for sentence in ("bin/odd: cannot be compared: no ELF", "the tests pass", "one source changed"):
        assert sentence in out.getvalue()
    assert out.getvalue().endswith("Add to the build: to make: X\n")
    assert tuned.to_json()["built"]["programs"][0]["tuned"]["image"] == 1900


def test_a_run_that_fails_may_be_one_that_is_held_out(tmp_path: Path):
    callgrind = Callgrind(valgrind="false", version="valgrind")
    with pytest.raises(UsageError, match=r"^--run or --held-out: expected `\./gone` to run a program of the build"):
        count_command("./gone", callgrind=callgrind, tree=tmp_path, scratch=tmp_path, seconds=9.0)
