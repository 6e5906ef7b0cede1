"""Tunings that signal 9 ends at several moments: nothing runs on, the folder is sound, --continue loses nothing."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.llvm.searching import INLINING_ALONE_WORDS

from mlgokit.cli import main
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.tune.spaces.functions.state import load_functions
from mlgokit.tune.spaces.inlining.state import load_effects, load_progress

pytestmark = pytest.mark.llvm

SOURCE = """
#include <map>
#include <string>
namespace {
std::string quoted(const std::string& text, char mark) { return mark + text + mark; }
struct Rows {
  std::map<std::string, int> rows;
  void add(const std::string& row) { rows[quoted(row, 'a')] += NUMBER; }
  int sum() const { int sum = 0; for (const auto& [name, value] : rows) sum += value + int(name.size()); return sum; }
};
}
int partNUMBER(const char* text) {
  Rows all;
  for (int i = 0; i < 9; ++i) all.add(text + std::to_string(i));
  return all.sum();
}
"""


def put_project(folder: Path) -> Path:
    folder.mkdir()
    entries: list[dict[str, object]] = []
    for number in (1, 2):
        name = f"part{number}.cc"
        (folder / name).write_text(SOURCE.replace("NUMBER", str(number)))
        words = ["clang++", "-Oz", "-std=c++17", "-ffunction-sections", "-c", name, "-o", f"part{number}.o"]
        entries.append({"directory": str(folder), "file": name, "arguments": words})
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return folder / "compile_commands.json"


def left_running(folder: Path) -> list[str]:
    """Command lines of compilers that work in a folder, after some time to hear of the death of who started them."""
    end = time.monotonic() + 20
    while (found := running(folder)) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def running(folder: Path) -> list[str]:
    """Command lines of compilers that work in a folder."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in words and b"clang" in words.split(b"\0")[0]:
            found.append(words.decode(errors="replace"))
    return found


def kill_when(words: list[str], reached: Callable[[], bool]) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    child = subprocess.Popen(
        [sys.executable, "-m", "mlgokit", *words],
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 120
        while not reached():
            assert time.monotonic() < end
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert child.wait(timeout=0.005) is None, "it ended by itself"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait(timeout=30)


@pytest.mark.slow  # a search for each moment; the next test kills one
def test_kills_at_several_moments_lose_at_most_the_step_in_flight(toolchain: Toolchain, tmp_path: Path):
    """Six processes that search, one after the other: ten seconds and more."""
    database = put_project(tmp_path / "source")
    folder, output = tmp_path / "tune", tmp_path / "tuned.so"
    search = folder / "search"
    words = ["tune", "--compile-commands", str(database), "--folder", str(folder), "--output", str(output)]
    words += ["--llvm", str(toolchain.major), "--workers", "1", "--continue", "--budget"]

    def spent() -> dict[str, float]:
        try:
            return json.loads((search / "spent.json").read_bytes())
        except OSError:
            return {"compilations": 0, "score": float("inf")}

    moments: dict[str, Callable[[int], bool]] = {
        "in the front end": lambda _: (folder / "corpus").is_dir(),
        "before the first step": lambda _: search.is_dir() and any(search.glob("modules/*.npz")),
        "in the search": lambda before: spent()["compilations"] >= before + 2,
        "later in the search": lambda before: spent()["compilations"] >= before + 6,
    }
    compilations, least, effects = 0.0, float("inf"), 0
    for moment, reached in moments.items():
        known = int(compilations)
        kill_when([*words, "60s"], lambda reached=reached, known=known: reached(known))
        assert not left_running(folder), moment
        now = spent()
        assert now["compilations"] >= compilations, moment
        assert now["score"] <= least, moment
        compilations, least = now["compilations"], now["score"]
        for path in search.glob("modules/*.npz"):
            assert load_progress(path) is not None, moment
        kept = sum(len(part.change) for part in load_effects(search / "effects"))
        assert kept >= effects, moment
        effects = kept
    assert effects > 0
    registers = search / "allocation"
    kill_when([*words, "60s", "--allocation-share", "0.99"], (registers / "spent.json").exists)
    assert not left_running(folder)
    trials = json.loads((registers / "spent.json").read_bytes())["trials"]
    assert sum(len(load_functions(path)) for path in registers.glob("modules/*.npz")) > 0
    with pytest.raises(SystemExit) as ended:
        main([*words, "1s"])
    assert ended.value.code == 0
    result = json.loads((folder / "tuned.json").read_text())
    assert result["tuned_bytes"] <= min(least, result["plain_bytes"])
    assert result["compilations"] > compilations
    assert result["allocated"]["trials"] >= trials > 0
    assert not any(one["note"] for one in result["modules"])


def test_a_kill_leaves_the_plugin_that_was_proved_until_a_newer_one_is(toolchain: Toolchain, tmp_path: Path):
    """Three searches, each to its proof: several seconds."""
    database = put_project(tmp_path / "source")
    folder, output = tmp_path / "tune", tmp_path / "tuned.so"
    words = ["tune", "--compile-commands", str(database), "--folder", str(folder), "--output", str(output)]
    words += ["--llvm", str(toolchain.major), "--workers", "2", "--continue", *INLINING_ALONE_WORDS, "--budget"]
    kill_when([*words, "1s"], (folder / "search" / "proof" / "plugin.so").exists)
    assert not output.exists()
    assert not (folder / "tuned.json").exists()
    with pytest.raises(SystemExit) as ended:
        main([*words, "1s"])
    assert ended.value.code == 0
    kept = [(path, path.read_bytes()) for path in (output, folder / "tuned.json", folder / "search" / "decisions")]
    assert json.loads(kept[1][1])["plugin_sha256"] == hashlib.sha256(kept[0][1]).hexdigest()
    assert not (folder / "search" / "proof").exists()
    kill_when([*words, "2s"], (folder / "search" / "proof" / "plugin.so").exists)
    assert [(path, path.read_bytes()) for path, _ in kept] == kept
