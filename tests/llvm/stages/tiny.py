"""Projects that the tests of stages write themselves, and how they call the command line."""

import contextlib
import json
import stat
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import pytest
from tests.llvm.containers import CONTAINERS

from mlgokit.cli import main
from mlgokit.compiler.plugin_build import build_plugin, plugin_folder
from mlgokit.compiler.toolchain import LOCATION_VARIABLE, Toolchain, find_toolchain

SECONDS = 120.0
"""After which a test gives up waiting for another process."""

# Every module has some hundred calls to decide about, most of them into the templates of containers.
MODULE = Template(
    CONTAINERS
    + """
namespace $project {
namespace {

template <class Item> Item fold(const List<Item>& items, Item start) {
  for (const Item& item : items) start = start + item;
  return start;
}

Text quoted(const Text& text, char mark) {
  Text result;
  result += mark;
  for (char letter : text.letters) {
    if (letter == mark) result += '\\\\';
    result += letter;
  }
  return result += mark;
}

struct Table {
  List<Text> rows;
  List<int> widths;
  void add(const Text& row) {
    rows.add(quoted(row, '$mark'));
    widths.add(row.letters.count + $number);
  }
  int width() const { return fold(widths, $number); }
  Text joined(const Text& separator) const {
    Text result;
    for (const Text& row : rows) {
      if (result.letters.count) result += separator;
      result += row;
    }
    return result;
  }
};

}  // namespace

int part$number(int count, const char* text) {
  Table table;
  for (int index = 0; index < count; ++index) table.add(text + Text(index * $number));
  return table.width() + table.joined(", ").letters.count + fold(table.rows, quoted(text, '+')).letters.count;
}

}  // namespace $project
"""
)
MAIN = """
#include <cstdio>
#include <cstdlib>
namespace tool { int part1(int count, const char* text); int part2(int count, const char* text); }
int main(int count, char** words) {
  char line[80];
  while (std::fgets(line, sizeof line, stdin)) std::printf("%d\\n", tool::part1(count, line));
  for (int index = 1; index < count; ++index) std::printf("%d\\n", tool::part2(std::atoi(words[index]), words[index]));
  return count;
}
"""
MODULES = {"alpha": (1, 2, 3), "beta": (4, 5), "gamma": (6, 7), "tool": (1, 2)}
HELD_OUT = "gamma"
BROKEN = "#include <no/such/header.h>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyProjects:
    """Two projects to train on (one source of theirs is broken), one held out, one program; archived and listed.

    Attributes:
        manifest: the list.
        cache: the cache folder with the archive.
        home: what ``XDG_CACHE_HOME`` has to be for that to be the default.
    """

    manifest: Path
    cache: Path
    home: Path


def entry(project: str, sha256: str) -> str:
    program = '{ name = "tool", runs = [{ arguments = ["3", "4"], stdin = "a line\\nanother\\n" }] }'
    return f"""
[[project]]
name = "{project}"
language = "c++"
standard = "c++17"
held_out = {"true" if project == HELD_OUT else "false"}
archive = {{ registry = "pypi", package = "tiny", version = "1", file = "tiny-1.tar.gz", sha256 = "{sha256}" }}
root = "tiny-1/{project}"
sources = ["*.cc"]
license = "MIT"
{f"program = {program}" if project == "tool" else ""}
"""


def extract_tiny(toolchain: Toolchain, tiny_projects: TinyProjects, folder: Path) -> Path:
    projects = ["--manifest", str(tiny_projects.manifest), "--projects", "alpha", "beta", HELD_OUT]
    sources, corpus = str(folder / "sources"), str(folder / "corpus")
    for words in (
        ["fetch", *projects, "--folder", sources, "--cache", str(tiny_projects.cache)],
        ["extract", *projects, "--sources", sources, "--corpus", corpus, "--llvm", str(toolchain.major)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(["corpus", *words])
        assert ended.value.code == 0
    return folder / "corpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One call of the command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """The only line that is not progress."""
        assert "Traceback" not in self.err
        (found,) = (line for line in self.err.splitlines() if line.startswith("mlgokit: "))
        return found.removeprefix("mlgokit: ")


Mlgokit = Callable[..., Ran]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """An LLVM installation whose compilers note every compilation, and can be made to stop at one.

    Attributes:
        root: for MLGOKIT_LLVM.
    """

    root: Path

    def compilations(self) -> int:
        path = self.root / "compilations"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def close(self, *, after: int) -> None:
        """Let so many compilations pass from now on, and none after them."""
        (self.root / "compilations").unlink(missing_ok=True)
        (self.root / "gate").write_text(str(after))

    def open(self) -> None:
        (self.root / "compilations").unlink(missing_ok=True)
        (self.root / "blocked").unlink(missing_ok=True)
        (self.root / "gate").unlink(missing_ok=True)

    def blocked(self) -> int | None:
        """The process that waits at the gate."""
        path = self.root / "blocked"
        text = path.read_text() if path.exists() else ""
        return int(text) if text.endswith("\n") else None


@contextlib.contextmanager
def built_already(root: Path, newest: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Give the installation in ``root`` the plugin of the newest compiler: the same one, which is slow to build."""
    built = build_plugin(newest).parent
    with monkeypatch.context() as surroundings:
        surroundings.setenv(LOCATION_VARIABLE, str(root))
        same = plugin_folder(find_toolchain(need_plugin=True))
    same.symlink_to(built)
    try:
        yield
    finally:
        same.unlink()


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def poll(condition: Callable[[], object]) -> bool:
    """Wait until ``condition``; ``False`` if it does not come."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


MODULE_NAMES = [f"{name}/part{number}.cc.o" for name in ("alpha", "beta", HELD_OUT) for number in MODULES[name]]


def training(prefix: str = "", *, rounds: int = 2) -> list[object]:
    """Options for a short training whose result does not depend on the machine's speed."""
    settings = ("most_decisions=0", "fit.members=2", "fit.epochs=3", "fit.doubt=0")
    words = [word for setting in settings for word in (f"--{prefix}setting", setting)]
    return [f"--{prefix}iterations", rounds, *words]


def files(folder: Path, pattern: str) -> dict[Path, int]:
    """The files that match, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob(pattern) if path.is_file()}
