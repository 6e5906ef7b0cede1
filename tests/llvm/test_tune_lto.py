"""Tuning a program's link-time optimization: the link is searched, and with the plugin it is as small as promised."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.llvm.searching import INLINING_ALONE_WORDS, search_until

from mlgokit.builds import lto as lto_builds
from mlgokit.builds.compression import find_compressor
from mlgokit.cli import main
from mlgokit.compiler import process
from mlgokit.compiler.objects.formats import file_totals
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.tune.judge import Judge

pytestmark = pytest.mark.llvm

# The parts call each other's functions, so that only the link can decide about them. ThinLTO exports their strings, by
# names with a hash of the module.
PART = """
int leaf{other}(const int *, int);
int printf(const char *, ...);
int leaf{number}(const int *rows, int count) {{
  int sum = 0;
  for (int i = 0; i < count; ++i) {{ sum += rows[i] * {number}; if (sum > 1000) sum -= rows[0] ^ i; }}
  if (sum == {number}) printf("part {number} found its own number\\n");
  return sum ^ count;
}}
int part{number}(const int *rows) {{
  int sum = leaf{other}(rows, 3) + leaf{other}(rows + 1, 4);
  if (sum & 1) sum += leaf{number}(rows, 5);
  return sum + leaf{other}(rows + 2, sum & 7) + leaf{number}(rows, 6);
}}
"""
MAIN = """
int part1(const int *); int part2(const int *);
int main(int count, char **text) {
  int rows[16] = {count, 2, 3, 4};
  return (part1(rows) ^ part2(rows) ^ part1(rows + 4)) & 1;
}
"""
FULL_FIRST = pytest.mark.parametrize("lto", ["-flto", pytest.param("-flto=thin", marks=pytest.mark.slow)])
"""For what does not depend on how the link is made: such a test takes 5 s, and ThinLTO is in the slow half."""
FLAGS = ("-Oz", "-flto", "-ffunction-sections", "-fdata-sections")


def put_build(folder: Path, toolchain: Toolchain, *, lto: str = "-flto", added: Sequence[str] = ()) -> Path:
    """A build as Make leaves one: objects with bitcode, and a compilation database."""
    folder.mkdir(exist_ok=True)
    sources = {"main.c": MAIN} | {f"part{number}.c": PART.format(number=number, other=3 - number) for number in (1, 2)}
    entries: list[dict[str, object]] = []
    for name, text in sources.items():
        (folder / name).write_text(text)
        words = [str(toolchain.clang), *FLAGS, lto, *added, "-c", name, "-o", f"{name}.o"]
        done = process.run(words, timeout_seconds=60, cwd=folder)
        assert done.returncode == 0, done.stderr
        entries.append({"directory": str(folder), "file": name, "arguments": words})
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return folder


def link_words(toolchain: Toolchain, *, output: str = "tool", lto: str = "-flto") -> list[str]:
    words = [str(toolchain.clang), lto, f"--ld-path={toolchain.lld}", "-Wl,--gc-sections,--icf=all", "-Wl,-Map=map.txt"]
    return [*words, "main.c.o", "part1.c.o", "part2.c.o", "-o", output]


def tune(
    toolchain: Toolchain,
    build: Path,
    place: Path,
    *words: str,
    objective: str = "linked",
    kinds: Sequence[str] = INLINING_ALONE_WORDS,
) -> int:
    given = ["--compile-commands", str(build / "compile_commands.json"), "--llvm", str(toolchain.major)]
    given += ["--folder", str(place), "--output", str(place / "tuned.so"), "--workers", "1", "--objective", objective]
    with pytest.raises(SystemExit) as ended:
        main(["tune", *given, *kinds, *words])
    return int(ended.value.code or 0)


def result_of(place: Path) -> dict[str, Any]:
    return json.loads((place / "tuned.json").read_text())


@pytest.mark.parametrize("lto", ["-flto", "-flto=thin"])
def test_the_link_with_the_plugin_is_as_small_as_promised(
    toolchain: Toolchain, tmp_path: Path, lto: str, capsys: pytest.CaptureFixture[str]
):
    build, place = put_build(tmp_path / "build", toolchain, lto=lto), tmp_path / "t"
    before = {path: path.read_bytes() for path in build.iterdir()}
    command = ("--link-command", " ".join(link_words(toolchain, lto=lto)))

    # A third of it is the time in which the link has to become smaller than that of the build.
    def session(go_on: bool) -> dict[str, Any]:
        more = ["--continue"] if go_on else []
        assert tune(toolchain, build, place, "--budget", "4s", *command, *more, kinds=()) == 0
        return result_of(place)["judged"]

    judged = search_until(lambda found: found["after"] < found["before"], session)

    assert judged["after"] < judged["before"]
    assert {path: path.read_bytes() for path in build.iterdir()} == before, "the build's folder is not written to"
    result = result_of(place)
    plugin = (place / "tuned.so").resolve()
    link_only = [f"-Wl,--load-pass-plugin={plugin}"]
    both = [f"-fpass-plugin={plugin}", *link_only]
    assert result["flag"].split() == both
    # What else the notes say depends on what the search found in its seconds.
    assert [note for note in result["notes"] if note.startswith("the first flag is for the compile steps")]
    names = {one["name"] for one in result["modules"]}
    assert names == {"tool (link)"} if lto == "-flto" else len(names) == 3
    sizes = [
        linked_size(put_build(tmp_path / "plain", toolchain, lto=lto), toolchain, lto=lto),
        linked_size(
            put_build(tmp_path / "tuned", toolchain, lto=lto, added=result["flag"].split()[:-1]),
            toolchain,
            lto=lto,
            added=link_only,
        ),
    ]
    assert sizes == [judged["before"], judged["after"]]
    capsys.readouterr()
    with pytest.raises(SystemExit) as refused:
        main(["check", str(plugin), "--compile-commands", str(build / "compile_commands.json")])
    assert refused.value.code != 0
    assert "a plugin that was tuned for compile steps, found one for" in re.sub(r"\s+", " ", capsys.readouterr().err)


def linked_size(build: Path, toolchain: Toolchain, *, lto: str, added: Sequence[str] = ()) -> int:
    done = process.run([*link_words(toolchain, lto=lto), *added], timeout_seconds=60, cwd=build)
    assert done.returncode == 0, done.stderr
    return file_totals(build / "tool").llvm_size_text


@FULL_FIRST
def test_compile_steps_stay_as_they_are_on_request(toolchain: Toolchain, tmp_path: Path, lto: str):
    build, place = put_build(tmp_path / "build", toolchain, lto=lto), tmp_path / "t"
    command = " ".join(link_words(toolchain, lto=lto))
    assert tune(toolchain, build, place, "--budget", "0s", "--link-only", "--link-command", command) == 0
    assert result_of(place)["flag"] == f"-Wl,--load-pass-plugin={(place / 'tuned.so').resolve()}"
    assert result_of(place)["baseline"] == f"clang {toolchain.version} -Oz", "a link has no level of its own"
    assert not (place / "steps").exists()


def test_a_link_is_judged_by_its_compressed_file_if_that_is_asked_for(toolchain: Toolchain, tmp_path: Path):
    build, place = put_build(tmp_path / "build", toolchain), tmp_path / "t"
    words = ("--budget", "0s", "--link-only", "--compressor", "cat", "--link-command", " ".join(link_words(toolchain)))
    assert tune(toolchain, build, place, *words, objective="compressed") == 0
    linked_size(build, toolchain, lto="-flto")
    _, compressed = find_compressor("cat", toolchain).measure(build / "tool")
    assert result_of(place)["judged"]["before"] == compressed


def test_a_search_that_does_not_recover_starts_again_with_unchanged_compile_steps(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Small programs are soon smaller than their build, so the judge has to say that this one is not.
    monkeypatch.setattr(Judge, "is_beyond_bar", property(lambda judge: judge.measure.bar is not None))
    build, place = put_build(tmp_path / "build", toolchain), tmp_path / "t"
    command = ("--link-command", " ".join(link_words(toolchain)))
    for go_on, more in enumerate((("--budget", "1s"), ("--budget", "0.5s", "--continue"))):
        assert tune(toolchain, build, place, *more, *command) == 0
        result = result_of(place)
        assert result["flag"] == f"-Wl,--load-pass-plugin={(place / 'tuned.so').resolve()}"
        stays = [note for note in result["notes"] if note.startswith("the compile steps are unchanged: with all")]
        assert len(stays) == (go_on == 0)
        assert result["judged"]["after"] <= result["judged"]["before"]


def test_what_cannot_be_searched_is_said_before_the_search(
    toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    build = put_build(tmp_path / "build", toolchain)
    words = link_words(toolchain)
    refused = {
        "--link-command: the command failed: the link ended with 1": [*words, "missing.o"],
        "searching a -flto build needs a link by clang with lld, found ": ["/bin/true", *words[1:]],
        "found the placeholder {objects}; build the project and give that command": [
            *words[:-5],
            "{objects}",
            "-o",
            "tool",
        ],
    }
    for sentence, line in refused.items():
        if line[0] == "/bin/true":
            # It says of itself that it links, and does nothing.
            (build / "linker").write_text('#!/bin/sh\n: > "$(echo "$@" | sed \'s/.* -o //\')"\n')
            (build / "linker").chmod(0o755)
            line[0] = str(build / "linker")
        assert tune(toolchain, build, tmp_path / "t", "--budget", "0.5s", "--link-command", " ".join(line)) != 0
        assert sentence in re.sub(r"\s+", " ", capsys.readouterr().err)
        assert not (tmp_path / "t" / "search").exists()


def test_compile_steps_of_an_lto_build_are_tuned_with_a_word_about_it(
    toolchain: Toolchain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    build = put_build(tmp_path / "build", toolchain)
    assert tune(toolchain, build, tmp_path / "t", "--budget", "0s", objective="image") == 0
    said = capsys.readouterr()
    assert "3 of 3 sources are built with -flto but tuned without it" in re.sub(r"\s+", " ", said.err)
    assert "-flto" in result_of(tmp_path / "t")["left_out"]


def test_objects_in_a_library_are_tuned_where_lld_finds_them(toolchain: Toolchain, tmp_path: Path):
    build, place = put_build(tmp_path / "build", toolchain, lto="-flto=thin"), tmp_path / "t"
    archive = ["rc", "libparts.a", "part1.c.o", "part2.c.o"]
    ar = toolchain.clang.resolve().with_name("llvm-ar")
    assert process.run([str(ar), *archive], timeout_seconds=60, cwd=build).returncode == 0
    words = link_words(toolchain, lto="-flto=thin")
    words = [*words[: words.index("part1.c.o")], "libparts.a", "-Wl,--thinlto-cache-dir=cache", "-o", "tool"]
    assert tune(toolchain, build, place, "--budget", "1s", "--link-command", " ".join(words)) == 0
    result = result_of(place)
    assert len(result["modules"]) == 3
    assert result["judged"]["after"] <= result["judged"]["before"]
    # The compile steps inline nothing, and with the plugin the link has a cache of its own.
    plugin, *link = result["flag"].split()
    assert plugin.startswith("-fpass-plugin=")
    assert re.fullmatch(r"-Wl,--load-pass-plugin=\S+ -Wl,--thinlto-cache-dir=cache-[0-9a-f]{12}", " ".join(link))


@FULL_FIRST
def test_options_that_change_what_is_linked_are_named_before_the_search(
    toolchain: Toolchain, tmp_path: Path, lto: str, capsys: pytest.CaptureFixture[str]
):
    # Checks that trap need no library; the options of counters are not compiled with, so that neither do these.
    added = ["-fsanitize=signed-integer-overflow", "-fsanitize-trap=all"]
    build, place = put_build(tmp_path / "build", toolchain, lto=lto, added=added), tmp_path / "t"
    database = build / "compile_commands.json"
    database.write_text(database.read_text().replace('"-c"', '"--coverage", "-c"', 1))
    command = ("--link-command", " ".join(link_words(toolchain, lto=lto)))
    assert tune(toolchain, build, place, "--budget", "0s", *command) == 0
    said = re.sub(r"\s+", " ", capsys.readouterr().err)
    expected = [
        "-fsanitize=signed-integer-overflow (3 of 3 commands) is kept: modules contain the sanitizer's checks",
        "--coverage (1 of 3 commands) is kept: objects have counters of coverage in them",
    ]
    notes = result_of(place)["notes"]
    assert [note[: len(start)] for note, start in zip(notes, expected, strict=False)] == expected
    assert [note for note in notes[2:] if "builtin:Oz" not in note] == []
    for start in expected:
        assert start in said
    # What is compiled anew for the search would be without the counters.
    assert result_of(place)["flag"] == f"-Wl,--load-pass-plugin={(place / 'tuned.so').resolve()}"
    assert "the compile steps are unchanged, because the build has --coverage" in said


def tune_words(toolchain: Toolchain, build: Path, place: Path, *words: str) -> list[str]:
    """The call as a process of its own."""
    given = ["--compile-commands", str(build / "compile_commands.json"), "--llvm", str(toolchain.major)]
    given += ["--folder", str(place), "--output", str(place / "tuned.so"), "--objective", "linked", "--workers", "1"]
    return [sys.executable, "-m", "mlgokit", "tune", *given, *INLINING_ALONE_WORDS, *words]


@contextlib.contextmanager
def started(argv: Sequence[str]) -> Generator[subprocess.Popen[bytes]]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_for_compilations(child: subprocess.Popen[bytes], place: Path, count: int) -> Path:
    spent, end = place / "search" / "spent.json", time.monotonic() + 200
    while not (spent.exists() and json.loads(spent.read_bytes())["compilations"] > count):
        assert time.monotonic() < end
        assert child.poll() is None
        time.sleep(0.01)
    return spent


@FULL_FIRST
def test_a_killed_search_of_a_link_leaves_nothing_running_and_goes_on(toolchain: Toolchain, tmp_path: Path, lto: str):
    build, place = put_build(tmp_path / "build", toolchain, lto=lto), tmp_path / "t"
    command = ["--link-command", " ".join(link_words(toolchain, lto=lto))]
    with started(tune_words(toolchain, build, place, *command, "--budget", "10m")) as child:
        spent = wait_for_compilations(child, place, 4)
        child.send_signal(signal.SIGKILL)
    end = time.monotonic() + 20
    while (found := linkers_in(build)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not found
    before = json.loads(spent.read_bytes())["compilations"]
    assert not (place / "tuned.so").exists()
    assert tune(toolchain, build, place, "--budget", "0.5s", "--continue", *command) == 0
    result = result_of(place)
    assert result["judged"]["after"] <= result["judged"]["before"]
    assert result["compilations"] > before


def linkers_in(folder: Path) -> list[str]:
    """Linkers that run in a folder."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (place / "cwd").readlink() == folder and b"lld" in (place / "cmdline").read_bytes():
                found.append(place.name)
    return found


def test_a_full_disk_stops_the_search_of_a_link_and_it_goes_on(
    toolchain: Toolchain, tmp_path: Path, small_disk: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
):
    build = put_build(tmp_path / "build", toolchain)
    command = ["--link-command", " ".join(link_words(toolchain)), "--budget", "0.5s"]
    for size in ("32k", "128k", "320k"):
        place = small_disk(size) / "t"
        go_on = ["--continue"] if (place / "search").exists() else []
        assert tune(toolchain, build, place, *command, *go_on) == 6
        said = re.sub(r"\s+", " ", capsys.readouterr().err)
        assert "free some space" in said or "room" in said
        assert not (place / "tuned.so").exists()
    place = small_disk("64m") / "t"
    go_on = ["--continue"] if (place / "search").exists() else []
    assert tune(toolchain, build, place, *command, *go_on) == 0
    assert result_of(place)["judged"]["after"] <= result_of(place)["judged"]["before"]


@FULL_FIRST
def test_a_linker_that_fails_during_the_search_changes_nothing_and_the_search_goes_on(
    toolchain: Toolchain, tmp_path: Path, lto: str
):
    build, place, broken = put_build(tmp_path / "build", toolchain, lto=lto), tmp_path / "t", tmp_path / "broken"
    linker = tmp_path / "ld.lld"
    linker.write_text(f'#!/bin/sh\n[ -e {broken} ] && echo "error: broken" >&2 && exit 1\nexec {toolchain.lld} "$@"\n')
    linker.chmod(0o755)
    link = link_words(toolchain, lto=lto)
    words = [f"--ld-path={linker}" if word.startswith("--ld-path") else word for word in link]
    argv = tune_words(toolchain, build, place, "--link-command", " ".join(words), "--budget", "8s")
    with started(argv) as child:
        wait_for_compilations(child, place, 4)
        broken.touch()
        assert child.wait(120) != 0
    assert not (place / "tuned.so").exists()
    broken.unlink()
    assert tune(toolchain, build, place, "--budget", "0.5s", "--continue", "--link-command", " ".join(words)) == 0
    assert result_of(place)["judged"]["after"] <= result_of(place)["judged"]["before"]


def test_compile_steps_are_tuned_if_their_link_turns_out_not_to_be_searchable(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Its compile steps are imported for the link before, and stay as they are.
    monkeypatch.setattr(lto_builds, "MOST_LARGER", -1.0)
    build, place = put_build(tmp_path / "build", toolchain), tmp_path / "t"
    clang = f"{toolchain.clang} -flto=thin"
    names = {"main": "main", "part1": "part1", "part2": "apart1"}
    steps = [f"{clang} -Oz -c {source}.c -o {name}.o" for source, name in names.items()]
    link = f"{clang} --ld-path={toolchain.lld} {' '.join(f'{name}.o' for name in names.values())} -o tool"
    (build / "build.sh").write_text("\n".join(["set -e", *steps, link]))
    given = ["--build", "sh build.sh", "--build-folder", str(build), "--llvm", str(toolchain.major), "--workers", "1"]
    given += ["--folder", str(place), "--output", str(place / "tuned.so"), "--budget", "0s", *INLINING_ALONE_WORDS]
    with pytest.raises(SystemExit) as ended:
        main(["tune", *given])
    assert not ended.value.code
    reason = result_of(place)["left_out"]["-flto=thin"]
    assert "the link is not searched: --link-command: the path part1.o is part of apart1.o" in reason
