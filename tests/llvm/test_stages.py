"""Every stage as a user runs it, with a real clang, on small projects that the test writes itself."""

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pytest

from mlgokit import errors
from mlgokit.cli import main
from mlgokit.compiler import process
from mlgokit.compiler.plugin_build import build_plugin, default_build_folder, plugin_folder
from mlgokit.compiler.toolchain import LOCATION_VARIABLE, Toolchain, find_toolchain
from mlgokit.corpus.sources.fetch import cached_path
from mlgokit.corpus.sources.projects import load_projects
from mlgokit.errors import ToolError
from mlgokit.evaluation.records import read_evaluation
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import load_policy, policy_bytes, save_policy
from mlgokit.problems import INLINE_SIZE

pytestmark = pytest.mark.llvm

SECONDS = 120.0
"""After which a test gives up waiting for another process."""

# Every module has some hundred calls to decide about, most of them into the standard library's templates.
MODULE = Template("""
#include <string>
#include <vector>

namespace $project {
namespace {

template <class Item> Item fold(const std::vector<Item>& items, Item start) {
  for (const Item& item : items) start = start + item;
  return start;
}

std::string quoted(const std::string& text, char mark) {
  std::string result(1, mark);
  for (char letter : text) {
    if (letter == mark) result += '\\\\';
    result += letter;
  }
  return result + mark;
}

struct Table {
  std::vector<std::string> rows;
  std::vector<int> widths;
  void add(const std::string& row) {
    rows.push_back(quoted(row, '$mark'));
    widths.push_back(static_cast<int>(row.size()) + $number);
  }
  int width() const { return fold(widths, $number); }
  std::string joined(const std::string& separator) const {
    std::string result;
    for (const std::string& row : rows) {
      if (!result.empty()) result += separator;
      result += row;
    }
    return result;
  }
};

}  // namespace

int part$number(int count, const char* text) {
  Table table;
  for (int index = 0; index < count; ++index) table.add(std::string(text) + std::to_string(index * $number));
  return table.width() + static_cast<int>(table.joined(", ").size());
}

}  // namespace $project
""")
MAIN = """
#include <cstdlib>
#include <iostream>
#include <string>
namespace tool { int part1(int count, const char* text); int part2(int count, const char* text); }
int main(int count, char** words) {
  std::string line;
  while (std::getline(std::cin, line)) std::cout << tool::part1(count, line.c_str()) << '\\n';
  for (int index = 1; index < count; ++index)
    std::cout << tool::part2(std::atoi(words[index]), words[index]) << '\\n';
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


@pytest.fixture(scope="session")
def tiny_projects(tmp_path_factory: pytest.TempPathFactory) -> TinyProjects:
    folder = tmp_path_factory.mktemp("tiny")
    files = {
        f"tiny-1/{project}/part{number}.cc": MODULE.substitute(project=project, number=number, mark=project[0])
        for project, numbers in MODULES.items()
        for number in numbers
    }
    files |= {"tiny-1/alpha/broken.cc": BROKEN, "tiny-1/tool/main.cc": MAIN}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    manifest = folder / "projects.toml"
    manifest.write_text("".join(_entry(project, hashlib.sha256(buffer.getvalue()).hexdigest()) for project in MODULES))
    cache = folder / "mlgokit"
    path = cached_path(load_projects(manifest)[0].archive, cache_folder=cache)
    path.parent.mkdir(parents=True)
    path.write_bytes(buffer.getvalue())
    # Plugins are the same for all tests, and slow to build.
    default_build_folder().mkdir(parents=True, exist_ok=True)
    (cache / "plugins").symlink_to(default_build_folder())
    return TinyProjects(manifest=manifest, cache=cache, home=folder)


def _entry(project: str, sha256: str) -> str:
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


@pytest.fixture(scope="session")
def tiny_corpus(toolchain: Toolchain, tiny_projects: TinyProjects, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of alpha, beta and gamma; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp(f"corpus-{toolchain.major}")
    return extract_tiny(toolchain, tiny_projects, folder)


@pytest.fixture(scope="session")
def newest() -> Toolchain:
    """The toolchain that the command line takes by itself; for what does not depend on the major."""
    try:
        return find_toolchain(need_plugin=True)
    except ToolError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def newest_corpus(newest: Toolchain, tiny_projects: TinyProjects, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_tiny(newest, tiny_projects, tmp_path_factory.mktemp("corpus"))


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


@pytest.fixture
def mlgokit(
    tiny_projects: TinyProjects, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Mlgokit:
    """``mlgokit("corpus", "info")``: the command in this process, with the archive in its default cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tiny_projects.home))
    monkeypatch.delenv(LOCATION_VARIABLE, raising=False)

    def call(*words: object) -> Ran:
        capsys.readouterr()
        arguments = [str(word) for word in words]
        monkeypatch.setattr("sys.argv", ["mlgokit", *arguments])
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert isinstance(ended.value.code, int)
        out, err = capsys.readouterr()
        return Ran(code=ended.value.code, out=out, err=err)

    return call


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


@pytest.fixture
def gate(tmp_path: Path, newest: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Generator[Gate]:
    """:class:`Gate` in front of the newest compiler, with the plugin built."""
    root = tmp_path / "gated"
    (root / "bin").mkdir(parents=True)
    assert newest.include_dir is not None
    (root / "include").symlink_to(newest.include_dir)
    for name, real in (("clang", newest.clang), ("clang++", newest.clangxx)):
        script(
            root / "bin" / name,
            f"""
            case "$*" in *-emit-obj*|*-emit-llvm*)
              echo "$*" >> "{root}/compilations"
              if [ -e "{root}/gate" ] && [ "$(wc -l < "{root}/compilations")" -gt "$(cat "{root}/gate")" ]; then
                echo $$ > "{root}/blocked"
                while [ -e "{root}/gate" ]; do sleep 0.05; done
              fi;;
            esac
            exec "{real}" "$@"
            """,
        )
    with built_already(root, newest, monkeypatch):
        yield Gate(root=root)


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


# ---- The path from an archive to a plugin ----


def test_sources_and_corpus_are_told_as_json(
    tmp_path: Path, toolchain: Toolchain, tiny_projects: TinyProjects, mlgokit: Mlgokit
):
    projects = ("--manifest", tiny_projects.manifest, "--projects", "beta", "alpha")
    fetched = mlgokit("corpus", "fetch", *projects, "--folder", tmp_path / "sources", "--json")

    assert fetched.code == 0
    assert fetched.json == {
        "projects": {name: str(tmp_path / "sources" / name / "tiny-1" / name) for name in ("alpha", "beta")}
    }

    places = ("--sources", tmp_path / "sources", "--corpus", tmp_path / "corpus", "--llvm", toolchain.major)
    extracted = mlgokit("corpus", "extract", *projects, *places, "--json")

    assert extracted.code == 0
    assert extracted.json["modules"] == 5
    (failure,) = extracted.json["failures"]
    assert failure["name"] == "alpha/broken.cc.o"
    assert "'no/such/header.h' file not found" in failure["reason"]
    assert mlgokit("corpus", "info", "--corpus", tmp_path / "corpus", "--json").json == extracted.json
    assert "Modules: 5 in C++; " in mlgokit("corpus", "info", "--corpus", tmp_path / "corpus").out


def test_the_heuristic_is_traced_and_echoed(tmp_path: Path, toolchain: Toolchain, tiny_corpus: Path, mlgokit: Mlgokit):
    llvm = ("--llvm", toolchain.major)
    traced = mlgokit("trace", "--corpus", tiny_corpus, "--output", tmp_path / "trace", *llvm, "--json")

    assert traced.code == 0
    assert (traced.json["modules"], traced.json["failed"]) == (len(MODULE_NAMES), [])
    rows = json.loads((tmp_path / "trace" / "traces.json").read_text())["modules"]
    assert [row["module"] for row in rows] == MODULE_NAMES
    assert all(0 < row["inlined"] < row["decisions"] for row in rows)
    assert {path.name for path in files(tmp_path / "trace" / "logs", "*.log")} == {
        f"{Path(name).name}.log" for name in MODULE_NAMES
    }

    output = tmp_path / "evaluation.json"
    echoed = mlgokit("evaluate", ":default", "--corpus", tiny_corpus, "--output", output, *llvm, "--json")

    # Nothing differs, which is no reason to ship.
    assert echoed.code == 1
    assert echoed.json["verdict"]["reasons"] == ["The change is 0.00 %, which is not below 0 %."]
    assert read_evaluation(output).to_json() == json.loads(output.read_text()) == echoed.json
    (project,) = echoed.json["projects"]
    assert (project["project"], project["modules"], project["link_failure"]) == (HELD_OUT, 2, "")
    assert project["before"] == project["after"]
    assert project["before"]["image"] > 0


def test_a_policy_is_trained_evaluated_and_exported(
    tmp_path: Path, toolchain: Toolchain, tiny_corpus: Path, mlgokit: Mlgokit
):
    place = ("--corpus", tiny_corpus, "--llvm", toolchain.major)
    trained = mlgokit("train", *place, "--output", tmp_path / "train", *training(), "--json")

    assert trained.code == 0
    policy = Path(trained.json["policy"])
    assert [(one["round"], one["failures"]) for one in trained.json["rounds"]] == [(0, {}), (1, {})]
    assert trained.json["rounds"][1]["flips"] > trained.json["rounds"][0]["flips"] > 0
    assert json.loads((tmp_path / "train" / "metrics.json").read_text()) == trained.json
    assert load_policy(policy).features == load_policy(tmp_path / "train" / "best.policy").features

    evaluated = mlgokit("evaluate", policy, *place, "--projects", "alpha", "beta", "--json")
    assert evaluated.code == (0 if evaluated.json["verdict"]["ship"] else 1)
    assert [one["project"] for one in evaluated.json["projects"]] == ["alpha", "beta"]
    assert all(one["link_failure"] == "" and one["failures"] == [] for one in evaluated.json["projects"])

    exported = mlgokit("export", "plugin", policy, "--output", tmp_path / "p.so", *place[2:], "--json")
    assert exported.code == 0
    assert exported.json["flag"] == f"-fpass-plugin={tmp_path / 'p.so'}"
    source = tmp_path / "part.cc"
    source.write_text(MODULE.substitute(project="user", number=1, mark="u"))
    words = [toolchain.clangxx, "-Oz", exported.json["flag"], "-c", source, "-o", tmp_path / "part.o"]
    assert process.run(words, timeout_seconds=SECONDS).returncode == 0


def test_the_heuristic_is_imitated(tmp_path: Path, toolchain: Toolchain, tiny_corpus: Path, mlgokit: Mlgokit):
    trained = mlgokit(
        "train", "--algorithm", "behavioural-cloning", "--corpus", tiny_corpus, "--output", tmp_path / "clone",
        "--llvm", toolchain.major, "--setting", "imitation.batch=64", "--json",
    )  # fmt: skip

    assert trained.code == 0
    (only,) = trained.json["rounds"]
    assert only["agreement"] > 0.8
    assert Path(trained.json["policy"]).is_file()


def test_the_quickstart_does_everything_once(
    tmp_path: Path, toolchain: Toolchain, tiny_projects: TinyProjects, mlgokit: Mlgokit, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "quickstart"
    llvm = ("--llvm", toolchain.major)
    words = ("quickstart", "--folder", folder, "--manifest", tiny_projects.manifest, *llvm, *training("training."))
    first = mlgokit(*words, "--json")

    assert first.code == 0
    results = json.loads((folder / "results.json").read_text())
    assert first.json == results
    for program in ("shipped", "program"):
        assert (results[program]["name"], results[program]["same_behaviour"]) == ("tool", True)
    assert "builtin:Oz, tool: linked image" in first.err
    assert [project["project"] for project in results["evaluation"]["projects"]] == [HELD_OUT]
    assert not any(stage["reused"] for stage in results["stages"])
    for name in ("builtin.so", "policy.so", "report.html", "train/final.policy"):
        assert (folder / name).stat().st_size > 0

    page = (folder / "report.html").read_text()
    assert "Features by importance" in page
    assert mlgokit("report", folder / "results.json", "--output", tmp_path / "again.html").code == 0
    assert "Features by importance" not in (tmp_path / "again.html").read_text()
    named = ("--traces", folder / "trace", "--output", tmp_path / "again.html")
    assert mlgokit("report", folder / "results.json", *named).code == 0
    assert "Features by importance" in (tmp_path / "again.html").read_text()

    started: list[str] = []
    monkeypatch.setattr(process, "run", watched(process.run, started))
    again = mlgokit(*words)

    assert again.code == 0
    assert "train (reused)" in again.out
    assert "the same behaviour in" in again.out
    assert [words for words in started if "--version" not in words and "--includedir" not in words] == []

    monkeypatch.undo()
    elsewhere = tmp_path / "elsewhere"
    corpus = ("--corpus", folder / "corpus", "--output", elsewhere)
    assert mlgokit("train", *corpus, *llvm, *training(), "--workers", 1).code == 0
    assert (elsewhere / "final.policy").read_bytes() == (folder / "train" / "final.policy").read_bytes()


def watched(run: Callable[..., process.Completed], started: list[str]) -> Callable[..., process.Completed]:
    def noted(argv: Sequence[str | os.PathLike[str]], **options: Any) -> process.Completed:
        started.append(" ".join(os.fspath(word) for word in argv))
        return run(argv, **options)

    return noted


# ---- Interrupted ----

# A shell that starts tests in the background has them ignore Ctrl-C, and Python inherits that.
START = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import mlgokit.__main__"
INTERRUPTED = "interrupted; what was finished is kept, run the same command again to go on"


@pytest.fixture
def at_the_gate(tmp_path: Path, gate: Gate, tiny_projects: TinyProjects) -> Callable[..., subprocess.Popen[bytes]]:
    """Start mlgokit in a process of its own, with one worker, and wait until its compiler is stopped at the gate."""

    def start(*words: object, after: int) -> subprocess.Popen[bytes]:
        gate.close(after=after)
        argv = [sys.executable, "-c", START, *map(str, words), "--workers", "1"]
        # The child must run the code under test too, where another copy is the installed one.
        code = {"PYTHONPATH": str(Path(errors.__file__).parents[1])}
        home = {"XDG_CACHE_HOME": str(tiny_projects.home), LOCATION_VARIABLE: str(gate.root)}
        with (tmp_path / "stderr").open("wb") as said:
            surroundings = {**os.environ, **code, **home}
            started = subprocess.Popen(argv, stderr=said, stdout=subprocess.DEVNULL, env=surroundings)
        assert poll(lambda: gate.blocked() is not None or started.poll() is not None)
        assert started.poll() is None, (tmp_path / "stderr").read_text()
        return started

    return start


def lives(number: int | None) -> bool:
    """Whether there is such a process, and not only its unread status."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("stage", "after"), [("extract", 3), ("trace", 3), ("train", 9)])
def test_an_interrupt_loses_nothing(
    tmp_path: Path,
    newest_corpus: Path,
    tiny_projects: TinyProjects,
    gate: Gate,
    at_the_gate: Callable[..., subprocess.Popen[bytes]],
    mlgokit: Mlgokit,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    after: int,
):
    output = tmp_path / "output"
    words: list[object] = [stage, "--corpus", newest_corpus, "--output", output]
    pattern = "*.npz"
    if stage == "extract":
        sources = newest_corpus.with_name("sources")
        projects = ["--manifest", tiny_projects.manifest, "--projects", "beta", HELD_OUT, "alpha"]
        words = ["corpus", stage, *projects, "--sources", sources, "--corpus", output]
        pattern = "*.bc"
    elif stage == "train":
        words += training(rounds=1)
    if stage != "extract":
        words += ["--check-share", "0"]
    running = at_the_gate(*words, after=after)
    child = gate.blocked()
    finished = files(output, pattern)
    running.send_signal(signal.SIGINT)

    assert running.wait(SECONDS) == 130
    assert (tmp_path / "stderr").read_text().splitlines()[-1] == f"mlgokit: {INTERRUPTED}"
    assert not lives(child)
    # The broken source, which is the first, gives no file.
    assert len(finished) == after - (stage == "extract")
    assert files(output, pattern) == finished

    gate.open()
    monkeypatch.setenv(LOCATION_VARIABLE, str(gate.root))
    ended = mlgokit(*words)

    assert ended.code == 0, ended.err
    everything = files(output, pattern)
    assert finished.items() <= everything.items()
    # An extraction asks for the options once, and counts what is in the modules at its end.
    extra = 1 + len(everything) if stage == "extract" else 0
    assert gate.compilations() == len(everything) - len(finished) + extra
    if stage == "train":
        store = ("--store", output / "store", "--output", tmp_path / "undisturbed")
        assert mlgokit("train", "--corpus", newest_corpus, *store, *training(rounds=1)).code == 0
        assert files(output, pattern) == everything
        assert (tmp_path / "undisturbed" / "final.policy").read_bytes() == (output / "final.policy").read_bytes()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="util-linux has no setpriv here")
def test_a_killed_run_leaves_no_compiler_and_goes_on(
    tmp_path: Path,
    newest_corpus: Path,
    gate: Gate,
    at_the_gate: Callable[..., subprocess.Popen[bytes]],
    mlgokit: Mlgokit,
    monkeypatch: pytest.MonkeyPatch,
):
    words = ("trace", "--corpus", newest_corpus, "--output", tmp_path / "trace", "--check-share", "0")
    running = at_the_gate(*words, after=2)
    child = gate.blocked()
    finished = files(tmp_path / "trace", "*.npz")
    running.kill()
    running.wait(SECONDS)

    assert len(finished) == 2
    assert poll(lambda: not lives(child))

    gate.open()
    monkeypatch.setenv(LOCATION_VARIABLE, str(gate.root))
    ended = mlgokit(*words, "--json")

    assert (ended.code, ended.json["failed"]) == (0, [])
    assert gate.compilations() == len(MODULE_NAMES) - 2


# ---- Compilers that will not do ----


def imitation(root: Path, version: str, real: Toolchain | None = None) -> Path:
    """A folder with clang alone: one that prints a version, or one that hands over to a real one."""
    (root / "bin").mkdir(parents=True)
    for name in ("clang", "clang++"):
        command = f"echo 'clang version {version}'" if real is None else f"exec '{real.clang.parent / name}' \"$@\""
        script(root / "bin" / name, command)
    return root


STAGES = (
    ("trace", "--corpus", "CORPUS", "--output", "OUTPUT"),
    ("train", "--corpus", "CORPUS", "--output", "OUTPUT"),
    ("evaluate", ":default", "--corpus", "CORPUS", "--output", "OUTPUT"),
    ("quickstart", "--folder", "OUTPUT"),
)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage[0])
def test_without_a_fit_clang_nothing_begins(
    tmp_path: Path,
    newest: Toolchain,
    newest_corpus: Path,
    mlgokit: Mlgokit,
    monkeypatch: pytest.MonkeyPatch,
    stage: tuple[str, ...],
):
    places = {"CORPUS": newest_corpus, "OUTPUT": tmp_path / "output"}
    words = [places.get(word, word) for word in stage]

    monkeypatch.setenv(LOCATION_VARIABLE, str(tmp_path))
    found = mlgokit(*words)
    assert found.code == 3
    assert found.sentence == (
        f"{LOCATION_VARIABLE}={tmp_path}: expected the folder of an LLVM installation with a clang that works, "
        "found none there; correct or unset the variable, `mlgokit doctor` shows what there is"
    )

    monkeypatch.setenv(LOCATION_VARIABLE, str(imitation(tmp_path / "headless", "", newest)))
    found = mlgokit(*words)
    assert found.code == 3
    assert f"LLVM {newest.major} headers: expected llvm/Config/llvm-config.h of major {newest.major}" in found.sentence
    assert (
        f"found none; run `sudo apt-get install -y --no-install-recommends llvm-{newest.major}-dev`" in found.sentence
    )

    monkeypatch.setenv(LOCATION_VARIABLE, str(imitation(tmp_path / "old", "17.0.6")))
    found = mlgokit(*words)
    assert found.code == 3
    assert "expected LLVM major 19 or 22 for the plugin, found 17.0.6; run `sudo apt-get" in found.sentence

    monkeypatch.delenv(LOCATION_VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("mlgokit.compiler.toolchain._SYSTEM_FOLDERS", str(tmp_path / "nowhere"))
    found = mlgokit(*words)
    assert found.code == 3
    assert "clang: expected one in PATH, /usr/lib/llvm-*/bin or $MLGOKIT_LLVM, found none; run `sudo" in found.sentence

    found = mlgokit(*words, "--llvm", 21)
    assert (found.code, found.sentence.partition(",")[0]) == (
        3,
        "clang 21: expected LLVM major 19 or 22 for the plugin",
    )
    assert not (tmp_path / "output").exists()


# ---- Data that will not do ----


def test_one_corrupt_module_is_counted_and_left_out(
    tmp_path: Path, newest_corpus: Path, mlgokit: Mlgokit, monkeypatch: pytest.MonkeyPatch
):
    corpus = shutil.copytree(newest_corpus, tmp_path / "corpus")
    sound = {name: (corpus / f"{name}.bc").read_bytes() for name in ("alpha/part2.cc.o", f"{HELD_OUT}/part6.cc.o")}
    for name, data in sound.items():
        (corpus / f"{name}.bc").write_bytes(data[: len(data) // 2])
    place = ("--corpus", corpus, "--store", tmp_path / "store")

    assert {one["name"] for one in mlgokit("corpus", "info", *place[:2], "--json").json["damaged"]} == set(sound)
    traced = mlgokit("trace", *place, "--output", tmp_path / "trace", "--json")
    assert traced.code == 0
    assert {one["module"]: one["status"] for one in traced.json["failed"]} == dict.fromkeys(sound, "failed")
    assert all("error:" in one["reason"] for one in traced.json["failed"])

    trained = mlgokit("train", *place, "--output", tmp_path / "train", *training(rounds=1), "--json")
    assert trained.code == 0
    policy = trained.json["policy"]
    evaluated = mlgokit("evaluate", policy, "--corpus", corpus, "--json")
    # Of so little the gate may learn to leave all to LLVM.
    assert evaluated.code == (0 if evaluated.json["verdict"]["ship"] else 1)
    (project,) = evaluated.json["projects"]
    assert (project["modules"], {one["module"] for one in project["failures"]}) == (1, {f"{HELD_OUT}/part6.cc.o"})

    # What failed because of the damage is tried again once it is mended; a folder of the damaged code stays as it is.
    for name, data in sound.items():
        (corpus / f"{name}.bc").write_bytes(data)
    assert mlgokit("trace", *place, "--output", tmp_path / "trace").code == 5
    assert mlgokit("trace", *place, "--output", tmp_path / "again", "--json").json["failed"] == []


def test_a_project_of_which_nothing_compiles_is_not_compared(tmp_path: Path, newest_corpus: Path, mlgokit: Mlgokit):
    corpus = shutil.copytree(newest_corpus, tmp_path / "corpus")
    for path in (corpus / HELD_OUT).glob("*.bc"):
        path.write_bytes(b"no bitcode")

    evaluated = mlgokit("evaluate", ":default", "--corpus", corpus, "--json")

    # There is nothing that speaks for it.
    assert evaluated.code == 1
    (project,) = evaluated.json["projects"]
    assert (project["modules"], len(project["failures"]), evaluated.json["summary"]) == (0, 4, {})
    assert project["link_failure"]
    assert "left out" in mlgokit("evaluate", ":default", "--corpus", corpus).out


def test_a_corpus_of_which_nothing_compiles_teaches_nothing(tmp_path: Path, newest_corpus: Path, mlgokit: Mlgokit):
    corpus = shutil.copytree(newest_corpus, tmp_path / "corpus")
    for number, path in enumerate(corpus.rglob("*.bc")):
        # Each another: modules that equal held-out ones do not teach.
        path.write_bytes(b"no bitcode %d" % number)

    found = mlgokit("train", "--corpus", corpus, "--output", tmp_path / "train")

    assert found.code == 4
    assert found.sentence.startswith("training: expected at least one of 5 modules to compile and to have ")
    assert "check the corpus with `mlgokit corpus info`" in found.sentence


def test_a_truncated_log_is_a_failure_of_its_module(
    tmp_path: Path, newest: Toolchain, newest_corpus: Path, mlgokit: Mlgokit, monkeypatch: pytest.MonkeyPatch
):
    root = imitation(tmp_path / "cutting", "", newest)
    assert newest.include_dir is not None
    (root / "include").symlink_to(newest.include_dir)
    cut = 'case "$*" in *part4*) truncate -s -100 "$MLGOKIT_LOG";; esac'
    script(root / "bin" / "clang", f"'{newest.clang}' \"$@\" || exit\n{cut}")
    monkeypatch.setenv(LOCATION_VARIABLE, str(root))

    with built_already(root, newest, monkeypatch):
        traced = mlgokit("trace", "--corpus", newest_corpus, "--output", tmp_path / "trace", "--json")

    assert traced.code == 0
    (failure,) = traced.json["failed"]
    assert (failure["module"], failure["status"]) == ("beta/part4.cc.o", "bad_trace")
    assert ": expected " in failure["reason"]
    assert len(files(tmp_path / "trace" / "logs", "*.log")) == len(MODULE_NAMES) - 1


def some_policy(problem: str) -> Policy:
    return Policy(
        problem=problem,
        features=("cost_estimate",),
        normaliser=SignedLog(mean=np.zeros(1, np.float32), scale=np.ones(1, np.float32), clip=4.0),
        layers=(Layer(np.ones((1, 1, 2), np.float32), np.zeros((1, 2), np.float32)),),
        output=OutputKind.LOGITS,
    )


def test_policies_that_will_not_do_start_no_compiler(
    tmp_path: Path, newest_corpus: Path, gate: Gate, mlgokit: Mlgokit, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(LOCATION_VARIABLE, str(gate.root))
    save_policy(some_policy("register-allocation"), tmp_path / "other.policy")
    (tmp_path / "short.policy").write_bytes(policy_bytes(some_policy(INLINE_SIZE.name))[:-3])
    (tmp_path / "plugin.so").write_bytes(b"old")
    expected = {
        "other": f"expected a policy for {INLINE_SIZE.name}",
        "short": "expected a safetensors file with the metadata 'mlgokit.policy', found something else",
        "absent": "expected a readable file, found: No such file or directory; check the path",
    }

    for name, text in expected.items():
        path = tmp_path / f"{name}.policy"
        for words in (
            ("evaluate", path, "--corpus", newest_corpus),
            ("export", "plugin", path, "--output", tmp_path / "plugin.so"),
        ):
            found = mlgokit(*words)
            assert found.code == 4
            assert found.sentence.startswith(f"policy {path}: {text}")
    assert gate.compilations() == 0
    assert (tmp_path / "plugin.so").read_bytes() == b"old"


def test_a_folder_of_another_configuration_is_left_alone(
    tmp_path: Path, newest_corpus: Path, tiny_projects: TinyProjects, mlgokit: Mlgokit
):
    trace = ("trace", "--corpus", newest_corpus, "--output", tmp_path / "made")
    assert mlgokit(*trace).code == 0
    before = files(tmp_path, "*")

    found = mlgokit("train", "--corpus", newest_corpus, "--output", tmp_path / "made")
    assert found.code == 5
    assert found.sentence == (
        f'{tmp_path / "made"}: kind: expected "policy", found "trace"; choose another folder or delete this one'
    )
    copy = shutil.copytree(newest_corpus, tmp_path / "corpus")
    projects = ("--manifest", tiny_projects.manifest, "--projects", "beta")
    sources = ("--sources", newest_corpus.with_name("sources"))
    found = mlgokit("corpus", "extract", *projects, *sources, "--corpus", copy)
    assert found.code == 5
    assert found.sentence.startswith(f"{copy}: inputs.alpha: expected nothing, found ")
    shutil.rmtree(copy)
    assert files(tmp_path, "*") == before


def test_another_seed_does_not_go_into_the_same_folder(
    tmp_path: Path, newest_corpus: Path, mlgokit: Mlgokit, monkeypatch: pytest.MonkeyPatch
):
    words = ("train", "--algorithm", "behavioural-cloning", "--corpus", newest_corpus, "--output", tmp_path / "clone")
    quick = ("--setting", "imitation.steps=1", "--seed")
    assert mlgokit(*words, *quick, 1).code == 0
    before = files(tmp_path, "*")

    found = mlgokit(*words, *quick, 2)

    assert (found.code, found.sentence) == (
        5,
        f"{tmp_path / 'clone'}: config.seed: expected 2, found 1; choose another folder or delete this one",
    )
    assert files(tmp_path, "*") == before


# ---- A full disk ----


def test_a_full_disk_stops_extraction_and_loses_nothing(
    newest_corpus: Path, tiny_projects: TinyProjects, small_disk: Callable[[str], Path], mlgokit: Mlgokit
):
    corpus = small_disk("200k") / "corpus"
    projects = ("--manifest", tiny_projects.manifest, "--projects", "beta", HELD_OUT)
    words = ("corpus", "extract", *projects, "--sources", newest_corpus.with_name("sources"), "--corpus", corpus)
    found = mlgokit(*words, "--workers", 1)

    assert found.code == 6
    assert ": expected " in found.sentence
    assert "free some space" in found.sentence
    finished = files(corpus, "*.bc")
    assert 0 < len(finished) < 4
    assert files(corpus, "*.tmp") == {}

    small_disk("8m")
    assert mlgokit(*words).code == 0
    assert finished.items() <= files(corpus, "*.bc").items()
    assert len(files(corpus, "*.bc")) == 4


@pytest.mark.parametrize("full", ["store", "scratch"])
def test_a_full_disk_stops_a_trace_and_loses_nothing(
    tmp_path: Path,
    newest_corpus: Path,
    small_disk: Callable[[str], Path],
    mlgokit: Mlgokit,
    monkeypatch: pytest.MonkeyPatch,
    full: str,
):
    disk = small_disk("48k")
    store = (disk if full == "store" else tmp_path) / "store"
    if full == "scratch":
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        monkeypatch.setenv("TMPDIR", str(disk))
    words = ("trace", "--corpus", newest_corpus, "--output", tmp_path / "trace", "--store", store)
    found = mlgokit(*words, "--workers", 1)

    assert found.code == 6
    assert "free some space" in found.sentence
    finished = files(store, "*.npz")
    assert len(finished) < len(MODULE_NAMES)

    small_disk("8m")
    ended = mlgokit(*words, "--json")
    assert (ended.code, ended.json["failed"]) == (0, [])
    assert finished.items() <= files(store, "*.npz").items()
