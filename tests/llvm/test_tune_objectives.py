"""Tuning by the user's own link and by commands: a small program whose objects, library and linker are real."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.llvm.searching import search_until

from mlgokit.cli import main
from mlgokit.commands.corpus import import_build
from mlgokit.compiler import process
from mlgokit.compiler.objects.formats import file_totals
from mlgokit.compiler.toolchain import Toolchain

pytestmark = pytest.mark.llvm

OPTIONS = ("-Oz", "-std=c++17", "-ffunction-sections", "-fdata-sections")
QUOTED = """
#include <string>
namespace {
std::string quoted(const std::string& text, char mark) {
  std::string result(1, mark);
  for (char letter : text) { if (letter == mark) result += '!'; result += letter; }
  return result + mark;
}
}
"""
PART1 = """
#include <map>
#include <vector>
namespace {
struct Table {
  std::map<std::string, std::vector<int>> rows;
  void add(const std::string& row, int value) { rows[quoted(row, 'm')].push_back(value); }
  std::string joined() const {
    std::string result;
    for (const auto& [name, values] : rows) result += name + std::to_string(values.size()) + ";";
    return result;
  }
};
}
std::string part1(int count, const char* text) {
  Table table;
  for (int index = 0; index < count; ++index) table.add(text + std::to_string(index % 3), index);
  return table.joined();
}
"""
PART2 = "std::string part2(const char* text) { return quoted(text, 'o') + quoted(text, 'p'); }"
MAIN = """
#include <cstdio>
#include <string>
std::string part1(int, const char*); std::string part2(const char*);
int main() { std::puts((part1(7, "x") + part2("b")).c_str()); }
"""
SOURCES = {"main.cc": MAIN, "part1.cc": QUOTED + PART1, "part2.cc": QUOTED + PART2}


@pytest.fixture(scope="module")
def folder(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build as CMake leaves one: objects, a library of two of them, and a compilation database."""
    root = tmp_path_factory.mktemp(f"objectives-{toolchain.major}")
    entries = []
    for name, text in SOURCES.items():
        (root / name).write_text(text)
        words = [str(toolchain.clangxx), *OPTIONS, "-c", name, "-o", f"{name}.o"]
        done = process.run(words, timeout_seconds=60, cwd=root)
        assert done.returncode == 0, done.stderr
        entries.append({"directory": str(root), "file": name, "arguments": words})
    (root / "compile_commands.json").write_text(json.dumps(entries))
    import_build.run(
        import_build.Import(
            compile_commands=root / "compile_commands.json", corpus=root / "corpus", llvm=toolchain.major
        )
    )
    done = process.run(["ar", "qc", "libparts.a", "part1.cc.o", "part2.cc.o"], timeout_seconds=60, cwd=root)
    assert done.returncode == 0, done.stderr
    return root


def link_line(toolchain: Toolchain, objects: str = "main.cc.o libparts.a", output: str = "tool") -> str:
    flags = f"--ld-path={toolchain.lld} -Wl,--gc-sections -Wl,--icf=all"
    return f": && {toolchain.clangxx} {flags} {objects} -o {output} && :"


def tune(toolchain: Toolchain, folder: Path, place: Path, *words: str, budget: str = "1s") -> int:
    if not (place / "corpus").exists():
        # What the front end makes is the same for all tests.
        shutil.copytree(folder / "corpus", place / "corpus")
    given = ["--compile-commands", str(folder / "compile_commands.json"), "--llvm", str(toolchain.major)]
    given += ["--budget", budget, "--folder", str(place), "--output", str(place / "tuned.so"), "--workers", "1"]
    with pytest.raises(SystemExit) as ended:
        main(["tune", *given, *words])
    return int(ended.value.code or 0)


def is_smaller(result: dict[str, Any]) -> bool:
    return result["judged"]["after"] < result["judged"]["before"]


def tune_until(
    reached: Callable[[dict[str, Any]], bool], toolchain: Toolchain, folder: Path, place: Path, *words: str
) -> dict[str, Any]:
    """The result of sessions of a second, once it is ``reached``."""

    def session(go_on: bool) -> dict[str, Any]:
        assert tune(toolchain, folder, place, *words, *(["--continue"] if go_on else [])) == 0
        return result_of(place)

    return search_until(reached, session)


def result_of(place: Path) -> dict[str, Any]:
    return json.loads((place / "tuned.json").read_text())


def test_the_link_of_the_build_with_the_plugin_is_as_small_as_promised(
    toolchain: Toolchain, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    files = [path for path in folder.iterdir() if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    words = ("--objective", "linked", "--link-command", link_line(toolchain))
    result = tune_until(is_smaller, toolchain, folder, tmp_path / "t", *words)
    assert {path: path.read_bytes() for path in files} == before, "the build's folder is not written to"
    assert "By the objective" in capsys.readouterr().out
    judged = result["judged"]
    assert judged["after"] < judged["before"]
    place = tmp_path / "build"
    place.mkdir()
    for name in SOURCES:
        line = [toolchain.clangxx, *OPTIONS, result["flag"], "-c", folder / name, "-o", place / f"{name}.o"]
        assert process.run(line, timeout_seconds=60).returncode == 0
    images = [tmp_path / "plain", tmp_path / "tuned"]
    for image, objects in zip(images, (folder, place), strict=True):
        line = link_line(toolchain, "main.cc.o part1.cc.o part2.cc.o", str(image)).split()[2:-2]
        assert process.run(line, timeout_seconds=60, cwd=objects).returncode == 0
    assert [file_totals(path).llvm_size_text for path in images] == [judged["before"], judged["after"]]
    outputs = [subprocess.run([path], capture_output=True, check=True, timeout=60).stdout for path in images]
    assert outputs[0] == outputs[1]
    assert tune(toolchain, folder, tmp_path / "t", *words, "--continue", budget="1s") == 0
    again = result_of(tmp_path / "t")["judged"]
    assert again["before"] == judged["before"]
    assert again["after"] <= judged["after"]


def put_script(place: Path, text: str) -> str:
    place.mkdir(parents=True, exist_ok=True)
    (place / "measure.py").write_text(text)
    return f"{sys.executable} {place / 'measure.py'}"


NOISY = """
import os, random, sys
sizes = [os.path.getsize(path) for path in sys.argv[1:]]
print("warming up 1 2 3")
print("mean:", 1000 + sum(sizes) + random.Random(os.urandom(8)).gauss(0, 2), "ms")
"""


def test_a_noisy_command_decides_by_repeating_itself(toolchain: Toolchain, folder: Path, tmp_path: Path):
    command = put_script(tmp_path, NOISY)
    words = ("--objective", "command", "--command", f"{command} {{objects}}")
    result = tune_until(is_smaller, toolchain, folder, tmp_path / "t", *words)
    assert not all(one["plain"] for one in result["modules"])
    judged = result["judged"]
    assert judged["pairs"] >= 4
    assert judged["low"] < judged["high"] < 0


LYING = """
import hashlib, pathlib, sys
known = pathlib.Path(__file__).with_suffix(".known")
seen = hashlib.sha256(b"".join(pathlib.Path(path).read_bytes() for path in sys.argv[1:])).hexdigest()
is_first = not known.exists()
known.write_text(seen) if is_first else None
count = pathlib.Path(__file__).with_suffix(".count")
if known.read_text() == seen:
    print(5)
else:
    count.write_text("x" + (count.read_text() if count.exists() else ""))
    print({answer})
"""


def test_a_command_that_fails_on_all_but_the_plain_build_changes_nothing(
    toolchain: Toolchain, folder: Path, tmp_path: Path
):
    command = put_script(tmp_path, LYING.replace("{answer}", "'no idea'"))
    words = ("--objective", "command", "--command", f"{command} {{objects}}")
    result = tune_until(lambda _: (tmp_path / "measure.count").exists(), toolchain, folder, tmp_path / "t", *words)
    assert all(one["plain"] for one in result["modules"])
    assert result["judged"]["before"] == result["judged"]["after"] == 5


def test_a_command_that_says_another_thing_in_the_proof_is_not_believed(
    toolchain: Toolchain, folder: Path, tmp_path: Path
):
    command = put_script(tmp_path, LYING.replace("{answer}", "4 if len(count.read_text()) == 1 else 9"))
    line = link_line(toolchain, "{objects}", "{output}")
    words = ("--objective", "command", "--command", f"{command} {{output}}", "--link-command", line)
    result = tune_until(lambda _: (tmp_path / "measure.count").exists(), toolchain, folder, tmp_path / "t", *words)
    assert all(one["plain"] for one in result["modules"])
    assert {one["note"] for one in result["modules"]} == {"", "the whole was not smaller with it"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--objective", "linked"], "--objective linked: expected --link-command"),
        (["--problem", "regalloc-priority"], "--problem regalloc-priority: expected --objective spill-cost"),
        (["--objective", "command"], "--objective command: expected --command"),
        (["--objective", "command", "--command", "wc {output}"], "--command: expected --link-command to make {output}"),
        (["--objective", "command", "--command", "wc {image}"], "found {image}"),
        (["--command", "wc {objects}"], "--command: only for --objective command, found --objective image"),
        (
            ["--link-command", "ld {objects} -o x"],
            "expected --objective linked, compressed or command with it, found --objective image",
        ),
        (
            ["--objective", "linked", "--link-command", "ld other.o -o x"],
            "none of the tuned modules' objects is in the command",
        ),
    ],
)
def test_a_call_that_cannot_be_judged_is_refused(
    toolchain: Toolchain,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    sentence: str,
):
    assert tune(toolchain, folder, tmp_path / "t", *words) == 2
    assert sentence in re.sub(r"\s+", " ", capsys.readouterr().err)


def test_a_command_that_fails_on_the_plain_build_is_refused_and_may_be_corrected(
    toolchain: Toolchain, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = ("--objective", "linked", "--link-command")
    assert tune(toolchain, folder, tmp_path / "t", *words, link_line(toolchain, "main.cc.o part1.cc.o")) == 2
    told = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert "expected the plain build to be measured, found: the link ended with 1" in told
    assert tune(toolchain, folder, tmp_path / "t", *words, link_line(toolchain), budget="0.1s") == 0
