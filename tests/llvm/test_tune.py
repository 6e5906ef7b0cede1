"""Tuning a small project as a user does: from a compilation database to a plugin, then elsewhere, on other code."""

import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import pytest
from tests.llvm.containers import CONTAINERS
from tests.llvm.searching import is_smaller, tune_until

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.builds.variant import policies_by_problem
from mlgokit.cli import main
from mlgokit.commands import tune
from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.measure import measure_object, project_image_estimate
from mlgokit.compiler.plugin_build import build_plugin, link_policies
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import ReuseError
from mlgokit.progress import say_nothing
from mlgokit.tables.decisions import read_table
from mlgokit.tune.publish import publish
from mlgokit.tune.result import Tuned
from mlgokit.tune.spaces.inlining.finish import finish_inlining
from mlgokit.tune.spaces.inlining.opening import open_inlining
from mlgokit.tune.spaces.inlining.space import SearchConfig
from mlgokit.tune.verify import Verifier

pytestmark = pytest.mark.llvm

SOURCE = Template(
    """
#include <cassert>
"""
    + CONTAINERS
    + """
namespace {
Text quoted(const Text& text, char mark) {
  assert(text.letters.count);
  Text result;
  result += mark;
  for (char letter : text.letters) {
    if (letter == mark) result += '!';
    result += letter;
  }
  return result += mark;
}
int weigh(const List<int>& values) {
  int sum = 0;
  for (int value : values) sum += value % 7 ? value * $number : -value;
  return sum;
}
struct Table {
  Rows<List<int>> rows;
  void add(const Text& row, int value) { rows[quoted(row, '$mark')].add(value); }
  Text joined() const {
    Text result;
    for (const auto& row : rows.rows) result += row.name + weigh(row.value) + ";";
    return result;
  }
};
}  // namespace

void part$number(int count, const char* text) {
  Table table;
  for (int index = 0; index < count; ++index) table.add(text + Text(index % 3), index * $number);
  show(table.joined());
}

void other$number(const char* text) { show(quoted(text, 'o') + quoted(text, 'p') + $extra); }
"""
)
MAIN = """
void part1(int, const char*); void part2(int, const char*); void other1(const char*); void other2(const char*);
int main(int count, char** words) {
  for (int index = 0; index < count + 9; ++index) {
    part1(index, "a"); part2(index, "bb"); other1("x"); other2("yy");
  }
}
"""
OPTIONS = ("-Oz", "-std=c++17", "-ffunction-sections", "-fdata-sections")
SECONDS = 1


def put_sources(folder: Path, *, extra: str = '"1"') -> list[Path]:
    folder.mkdir(parents=True)
    texts = {f"part{number}.cc": SOURCE.substitute(number=number, mark="m", extra=extra) for number in (1, 2)}
    for name, text in (texts | {"main.cc": MAIN}).items():
        (folder / name).write_text(text)
    return sorted(folder.glob("*.cc"))


def put_database(folder: Path) -> Path:
    entries = [
        {
            "directory": str(folder),
            "file": source.name,
            "arguments": ["clang++", *OPTIONS, "-c", source.name, "-o", f"{source.stem}.o"],
        }
        for source in sorted(folder.glob("*.cc"))
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return folder / "compile_commands.json"


def build(toolchain: Toolchain, sources: Sequence[Path], folder: Path, *options: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    objects: list[Path] = []
    for source in sources:
        objects.append(folder / f"{source.stem}.o")
        words = [toolchain.clangxx, *OPTIONS, *options, "-c", source, "-o", objects[-1]]
        done = process.run(words, timeout_seconds=60)
        assert done.returncode == 0, done.stderr
    return objects


def output_of(toolchain: Toolchain, objects: Sequence[Path], program: Path) -> bytes:
    linked = process.run([toolchain.clangxx, *objects, "-o", program], timeout_seconds=60)
    assert linked.returncode == 0, linked.stderr
    return subprocess.run([program], capture_output=True, check=True, timeout=60).stdout


def text_bytes(objects: Sequence[Path]) -> int:
    return sum(measure_object(path).llvm_size_text for path in objects)


def code_bytes(path: Path) -> tuple[int, int]:
    totals = measure_object(path).totals
    return totals.text, totals.eh_frame


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    folder: Path
    sources: list[Path]
    config: tune.Tune


@pytest.fixture(scope="module")
def project(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project, tuned."""
    folder = tmp_path_factory.mktemp(f"tune-{toolchain.major}")
    sources = put_sources(folder / "source")
    config = tune.Tune(
        compile_commands=put_database(folder / "source"),
        budget=f"{SECONDS}s",
        output=folder / "tuned.so",
        folder=folder / "tune",
        shipped_policies="off",
        compiler=CompilerOptions(llvm=toolchain.major),
    )
    tuned = tune_until(is_smaller, config)
    assert tuned.tuned_bytes < tuned.plain_bytes
    assert not any(one.note for one in tuned.modules)
    return Project(folder=folder, sources=sources, config=config)


@pytest.mark.every_major
def test_the_build_with_the_plugin_is_as_small_as_promised_in_any_folder_and_with_debug_information(
    toolchain: Toolchain, project: Project, tmp_path: Path
):
    promised = json.loads((project.config.folder / "tuned.json").read_text())
    flag = promised["flag"]
    assert flag == f"-fpass-plugin={project.config.output.resolve()}"
    plain = build(toolchain, project.sources, tmp_path / "plain")
    tuned = build(toolchain, project.sources, tmp_path / "tuned", flag)
    assert text_bytes(tuned) < text_bytes(plain)
    elsewhere = put_sources(tmp_path / "quite" / "another" / "folder")
    for options in ((flag,), (flag, "-g"), (flag, "-fno-discard-value-names")):
        again = build(toolchain, elsewhere, tmp_path / "again", *options)
        # Read-only data has __FILE__ in it.
        assert [code_bytes(path) for path in again] == [code_bytes(path) for path in tuned]
    assert output_of(toolchain, plain, tmp_path / "a") == output_of(toolchain, tuned, tmp_path / "b")


def test_the_shipped_policies_decide_beside_what_was_found(toolchain: Toolchain, project: Project, tmp_path: Path):
    folder = tmp_path / "tune"
    shutil.copytree(project.config.folder, folder)
    found = json.loads((folder / "tuned.json").read_text())
    given: dict[str, Any] = {"folder": folder, "output": tmp_path / "tuned.so", "go_on": True, "budget": "0s"}
    tuned = tune.run(dataclasses.replace(project.config, shipped_policies="on", **given))

    assert tuned.shipped is not None
    assert tuned.tuned_bytes <= min(found["tuned_bytes"], tuned.shipped.bytes)
    # What is free is what the policies do in a plugin of their own.
    policies = tmp_path / "policies.so"
    link_policies(toolchain, {name: Path(file) for name, file in policies_by_problem(["builtin:Oz"]).items()}, policies)
    plain = build(toolchain, project.sources, tmp_path / "plain")
    free = build(toolchain, project.sources, tmp_path / "free", f"-fpass-plugin={policies}")
    made = build(toolchain, project.sources, tmp_path / "made", tuned.flag)
    bytes_of = {
        name: project_image_estimate([measure_object(path) for path in objects])
        for name, objects in {"plain": plain, "free": free, "made": made}.items()
    }
    # Read-only data has __FILE__ in it.
    assert bytes_of["free"] - bytes_of["plain"] == tuned.shipped.bytes - tuned.plain_bytes
    assert bytes_of["made"] - bytes_of["plain"] == tuned.tuned_bytes - tuned.plain_bytes
    assert output_of(toolchain, plain, tmp_path / "a") == output_of(toolchain, made, tmp_path / "b")


def test_a_module_in_which_nothing_was_smaller_is_the_plain_one_byte_for_byte(
    toolchain: Toolchain, project: Project, tmp_path: Path
):
    folder = tmp_path / "tune"
    shutil.copytree(project.config.folder, folder)
    config = dataclasses.replace(project.config, folder=folder, output=tmp_path / "tuned.so", go_on=True, budget="0s")
    said: list[str] = []
    result = tune.run(
        dataclasses.replace(config, pass_share=0.0, allocation_share=0.0), report=lambda *told: said.append(told[2])
    ).to_json()
    assert any(
        re.fullmatch(r"about \d+ s: \d+ s so far, first policies and verifications \d+ s", label) for label in said
    )
    plain = {Path(one["name"]).name: one for one in result["modules"] if one["plain"]}
    assert plain, "main has nothing to decide"
    entries = read_table(Path(result["table"])).entries
    assert sum(entry.plain for entry in entries) == len(plain)
    sources = [source for source in project.sources if any(name.startswith(source.stem) for name in plain)]
    for one, other in zip(
        build(toolchain, sources, tmp_path / "plain"),
        build(toolchain, sources, tmp_path / "tuned", result["flag"]),
        strict=True,
    ):
        assert one.read_bytes() == other.read_bytes()


def test_the_next_version_keeps_what_did_not_change_and_falls_back_where_it_did(
    toolchain: Toolchain, project: Project, tmp_path: Path
):
    changed = put_sources(tmp_path / "source", extra="quoted(text, 'q') + \"12\"")
    flag = f"-fpass-plugin={project.config.output}"
    plain = build(toolchain, changed, tmp_path / "plain")
    tuned = build(toolchain, changed, tmp_path / "tuned", flag)
    assert text_bytes(tuned) < text_bytes(plain)
    assert output_of(toolchain, plain, tmp_path / "a") == output_of(toolchain, tuned, tmp_path / "b")


def test_an_object_that_is_smaller_counts_as_it_is_and_not_as_the_search_found_it(
    toolchain: Toolchain, project: Project, tmp_path: Path
):
    shutil.copytree(project.config.folder / "search", tmp_path / "search")
    modules = load_corpus(project.config.folder / "corpus").modules
    compiler = ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain))
    folder, output = tmp_path / "search", tmp_path / "found.so"
    search = open_inlining(modules, compiler=compiler, config=SearchConfig(), folder=folder, report=say_nothing)

    def finished() -> Tuned:
        with Verifier(
            compiler=compiler, modules=modules, output=output, search_folder=folder, report=say_nothing
        ) as verifier:
            return publish(verifier, finish_inlining(verifier, search), tmp_path)

    usual = finished()
    row = max(usual.modules, key=lambda one: one.plain_bytes - one.tuned_bytes)
    assert row.tuned_bytes < row.plain_bytes
    state = search.space.modules[row.name]
    sizes = state.build.measured
    for more in (3, -1):
        totals = dataclasses.replace(sizes.totals, text=sizes.totals.text + more)
        state.build = dataclasses.replace(state.build, sizes=dataclasses.replace(sizes, totals=totals))
        found = finished()
        assert next(one for one in found.modules if one.name == row.name) == row
        assert found.tuned_bytes == usual.tuned_bytes
        summary = read_table(output).summary
        assert summary is not None
        assert summary.tuned_bytes == found.tuned_bytes


def check_words(toolchain: Toolchain, project: Project, database: Path, *more: str) -> list[str]:
    words = ["--json", "check", str(project.config.output), "--compile-commands", str(database)]
    return [*words, "--workers", "1", "--llvm", str(toolchain.major), *more]


def checked(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    code = ended.value.code
    assert isinstance(code, int)
    return code, json.loads(capsys.readouterr().out)


def test_unchanged_code_keeps_every_decision(
    toolchain: Toolchain, project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    put_sources(tmp_path / "elsewhere")
    database = put_database(tmp_path / "elsewhere")
    code, kept = checked(check_words(toolchain, project, database, "--least-kept", "1"), capsys)
    assert (code, kept["share"], kept["larger"], kept["tune_again"], kept["gone"]) == (0, 1, [], False, [])
    assert kept["kept"] == kept["decisions"] == kept["asked"] > 0
    promised = json.loads((project.config.folder / "tuned.json").read_text())
    assert (kept["plain_bytes"], kept["tuned_bytes"]) == (promised["plain_bytes"], promised["tuned_bytes"])
    assert kept["change"] == kept["promised_change"]
    assert kept["tuned_link"]["image"] == promised["tuned_link"]["image"]


def test_changed_code_is_counted_and_the_next_tuning_starts_from_what_is_kept(
    toolchain: Toolchain, project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "next"
    put_sources(folder, extra="quoted(text, 'q') + \"12\"")
    (folder / "part2.cc").unlink()
    (folder / "main.cc").unlink()
    (folder / "fresh.cc").write_text("int zero(int); int fresh(int x) { return zero(x) + 1; }\n")
    database = put_database(folder)
    code, kept = checked(check_words(toolchain, project, database, "--least-kept", "0.999"), capsys)
    assert code == 1
    states = {Path(one["name"]).name: one["state"] for one in kept["modules"]}
    assert states["fresh.o"] == "new"
    assert len(kept["gone"]) == 2
    assert 0 < kept["kept"] < kept["asked"]
    assert kept["failures"] == {}
    tuned = tune.run(
        tune.Tune(
            compile_commands=database,
            start=project.config.output,
            budget="0s",
            output=tmp_path / "next.so",
            folder=tmp_path / "tune",
            shipped_policies="off",
            compiler=CompilerOptions(llvm=toolchain.major, workers=1),
        )
    )
    assert tuned.tuned_bytes <= kept["tuned_bytes"]
    assert tuned.tuned_bytes <= tuned.plain_bytes == kept["plain_bytes"]
    assert not any(one.note for one in tuned.modules)


def test_a_plugin_without_decisions_is_not_checked(
    toolchain: Toolchain, project: Project, capsys: pytest.CaptureFixture[str]
):
    generic = build_plugin(toolchain)
    words = ["check", str(generic), "--compile-commands", str(project.config.compile_commands)]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code not in (0, None)
    assert "expected a plugin of `mlgokit tune` with the table" in capsys.readouterr().err.replace("\n", " ")


def test_code_of_other_projects_stays_as_it_is(toolchain: Toolchain, project: Project, tmp_path: Path):
    source = tmp_path / "stranger.cc"
    source.write_text("""
        template <class T> int digits(T n) { return n < 10 ? 1 : 1 + digits(n / 10); }
        int stranger(int n, long m) { return digits(n) * digits(m) + digits(m + n); }
    """)
    (plain,) = build(toolchain, [source], tmp_path / "plain")
    (tuned,) = build(toolchain, [source], tmp_path / "tuned", f"-fpass-plugin={project.config.output}")
    assert plain.read_bytes() == tuned.read_bytes()


def test_continuing_never_loses(project: Project):
    before = json.loads((project.config.folder / "tuned.json").read_text())
    with pytest.raises(ReuseError, match="add --continue"):
        tune.run(project.config)
    after = tune.run(dataclasses.replace(project.config, go_on=True, budget="1s"))
    assert after.tuned_bytes <= before["tuned_bytes"]
    assert after.compilations > before["compilations"]
    assert after.curve[0].user_seconds == before["curve"][0]["user_seconds"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--budget", "soon"], "--budget: expected a number with s, m or h"),
        (["--allocation-share", "1.5"], "--allocation-share: expected a number from 0 to 1, found 1.5"),
        ([], "expected one of --build (a build command), --cargo, --compile-commands or --corpus, found none of them"),
    ],
)
def test_a_contradictory_call_is_refused(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["tune", *words])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err.replace("\n", " ")
