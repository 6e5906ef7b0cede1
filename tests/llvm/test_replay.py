"""Tuned decisions without the plugin: the files are read by the same clang, and by others that are there."""

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.calls import ended
from tests.llvm.containers import CONTAINERS
from tests.llvm.searching import is_smaller, tune_until

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands import export_replay, tune
from mlgokit.compiler import process
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.toolchain import Toolchain, find_toolchains
from mlgokit.errors import InputError, UsageError
from mlgokit.export.replay import parse_replay_lines
from mlgokit.tune.result import Tuned

pytestmark = pytest.mark.llvm

SOURCE = (
    CONTAINERS
    + """
static Text quoted(const Text& text, char mark) {
  Text result;
  result += mark;
  for (char letter : text.letters) { if (letter == mark) result += '!'; result += letter; }
  return result += mark;
}
static int weigh(const List<int>& values) {
  int sum = 0;
  for (int value : values) sum += value % 7 ? value * NUMBER : -value;
  return sum;
}
struct Table {
  Rows<List<int>> rows;
  void add(const Text& row, int value) { rows[quoted(row, 'm')].add(value); }
  Text joined() const {
    Text result;
    for (const auto& row : rows.rows) result += row.name + weigh(row.value) + ";";
    return result;
  }
};
Text CAT(part, NUMBER)(int count, const char* text) {
  Table table;
  for (int index = 0; index < count; ++index) table.add(text + Text(index % 3), index * NUMBER);
  return table.joined();
}
Text CAT(other, NUMBER)(const char* text) { return quoted(text, 'o') + quoted(text, 'p'); }
"""
)
OPTIONS = ("-Oz", "-std=c++17", "-ffunction-sections", "-fdata-sections")
READERS = (14, 15, 16, 17, 18, 19, 20, 21, 22)
"""Majors that read LLVM's inline replay as it is written."""
JOIN = "#define CAT_(A, B) A##B\n#define CAT(A, B) CAT_(A, B)\n"


@pytest.fixture(scope="module")
def project(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sources, their database, and a plugin that was tuned for them."""
    folder = tmp_path_factory.mktemp(f"replay {toolchain.major}")
    entries: list[dict[str, Any]] = []
    for number in (1, 2):
        name = f"part {number}.cc"
        (folder / name).write_text(f"#define NUMBER {number}\n{JOIN}{SOURCE}")
        words = ["clang++", *OPTIONS, "-c", name, "-o", f"part{number}.o"]
        entries.append({"directory": str(folder), "file": name, "command": shlex.join(words)})
    (folder / "bad.cc").write_text("#error no\n")
    entries.append({"directory": str(folder), "file": "bad.cc", "command": "clang++ -Oz -c bad.cc"})
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    tuned = tune_until(
        is_smaller,
        tune.Tune(
            compile_commands=folder / "compile_commands.json",
            budget="0.5s",
            artifact="replay",
            output=folder / "tuned.so",
            folder=folder / "tune",
            compiler=CompilerOptions(llvm=toolchain.major),
        ),
    )
    assert tuned.tuned_bytes < tuned.plain_bytes
    return folder


def exported(project: Path, output: Path, **more: Any) -> Any:
    return export_replay.run(
        export_replay.ExportReplay(
            plugin=project / "tuned.so", compile_commands=project / "compile_commands.json", output=output, **more
        )
    )


def test_a_tuning_writes_the_list_itself(project: Path, tmp_path: Path):
    tuned = Tuned.from_json(json.loads((project / "tune" / "tuned.json").read_text()))
    assert tuned.replay is not None
    assert tuned.allocated is tuned.passes is tuned.optimizer_passes is None
    assert tuned.replay.plugin == str(project / "tuned.so") == tuned.plugin
    assert tuned.replay.replayed_bytes <= tuned.replay.plain_bytes
    again = exported(project, tmp_path / "again")
    assert Path(tuned.replay.lines) == project / "tuned-replay" / "replay.txt"
    assert Path(tuned.replay.lines).read_text() == Path(again.lines).read_text()
    assert (tuned.replay.decisions, tuned.replay.replayed_bytes) == (again.decisions, again.replayed_bytes)


def test_a_compiler_without_the_plugin_saves_what_the_plugin_saved(toolchain: Toolchain, project: Path, tmp_path: Path):
    found = exported(project, tmp_path / "the list")
    assert [Path(name).name for name in found.failures] == ["bad.o"]
    assert found.tuned_bytes < found.plugin_plain_bytes
    assert found.replayed_bytes <= found.plain_bytes == found.plugin_plain_bytes
    assert all(one.replayed_bytes <= one.plain_bytes for one in found.modules)
    lines = parse_replay_lines(Path(found.lines).read_bytes(), "list")
    assert found.decisions == len(lines) > 0
    # By hand, as a user does: with line tables of the build's own, too.
    total = {(): 0, (found.flag,): 0, (found.flag, "-g"): 0}
    for options in total:
        for number in (1, 2):
            output = tmp_path / f"{number}.o"
            words = [toolchain.clangxx, *OPTIONS, *options, "-c", f"part {number}.cc", "-o", output]
            done = process.run(words, timeout_seconds=60, cwd=project)
            assert done.returncode == 0, done.stderr
            total[options] += measure_object(output).totals.text
    plain, replayed, with_debug = total.values()
    assert replayed == with_debug <= plain


def test_a_list_that_clang_reads_decides_alone(toolchain: Toolchain, project: Path, tmp_path: Path):
    """Each line is one that LLVM takes: another line fails the compilation."""
    found = exported(project, tmp_path)
    words = [toolchain.clangxx, *OPTIONS, found.flag, "-c", "part 1.cc", "-o", tmp_path / "a.o"]
    with Path(found.lines).open("a") as file:
        file.write("no line\n")
    done = process.run(words, timeout_seconds=60, cwd=project)
    assert done.returncode != 0
    assert "Invalid remark format: no line" in done.stderr


@pytest.mark.every_major
@pytest.mark.parametrize("major", READERS)
def test_another_major_reads_the_same_files(toolchain: Toolchain, project: Path, tmp_path: Path, major: int):
    others = [other for other in find_toolchains() if other.major == major and other.vendor != "Apple"]
    if not others or major == toolchain.major:
        pytest.skip(f"clang {major} is not here, or is the one that the plugin is for")
    other = others[-1]
    found = exported(project, tmp_path, clang=other.clang)
    assert found.compiler == other.version_text
    assert found.replayed_bytes <= found.plain_bytes
    assert len(found.modules) == 2
    assert Path(found.lines).exists() == Path(found.config).exists() == bool(found.flag)


def test_the_command_line_says_what_is_left(
    toolchain: Toolchain, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["export", "replay", str(project / "tuned.so"), "--compile-commands"]
    words += [str(project / "compile_commands.json"), "-o", str(tmp_path), "--workers", "1"]
    assert ended(*words) == 0
    out = capsys.readouterr().out
    assert "bad.o" in out
    assert "of the plugin's saving" in out
    assert f"--config={tmp_path}/replay.cfg" in out.replace("\n", "")
    assert f"clang version {toolchain.version}" in out.replace("\n", " ")


def test_a_build_in_which_nothing_is_inlined_has_a_plugin_and_no_list(toolchain: Toolchain, tmp_path: Path):
    (tmp_path / "a.c").write_text("int f(int x) { return x + 1; }\n")
    database = tmp_path / "compile_commands.json"
    entry = {"directory": str(tmp_path), "file": "a.c", "command": "clang -Oz -c a.c"}
    database.write_text(json.dumps([entry]))
    tuned = tune.run(
        tune.Tune(
            compile_commands=database,
            budget="0s",
            artifact="replay",
            output=tmp_path / "tuned.so",
            folder=tmp_path / "tune",
            compiler=CompilerOptions(llvm=toolchain.major),
        )
    )
    assert (tmp_path / "tuned.so").exists()
    assert tuned.replay is not None
    assert (tuned.replay.decisions, tuned.replay.flag) == (0, "")
    assert not (tmp_path / "tuned-replay").exists()


def test_a_build_must_be_named(project: Path, tmp_path: Path):
    config = export_replay.ExportReplay(plugin=project / "tuned.so", output=tmp_path / "no")
    with pytest.raises(UsageError, match="found none; give --compile-commands or --cargo"):
        export_replay.run(config)
    with pytest.raises(UsageError, match="--cargo: cannot be combined with --compile-commands, --clang or --level"):
        export_replay.run(dataclasses.replace(config, cargo="cargo build --release", clang=Path("clang-16")))


def test_a_plugin_without_decisions_is_refused(plugin: Path, tmp_path: Path):
    config = export_replay.ExportReplay(plugin=plugin, compile_commands=tmp_path / "none.json", output=tmp_path / "no")
    with pytest.raises((UsageError, InputError)):
        export_replay.run(config)
    assert not (tmp_path / "no").exists()
