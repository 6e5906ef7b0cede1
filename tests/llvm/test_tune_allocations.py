"""Tuning the register allocation of a small project as a user does, then building it elsewhere, and other code."""

import dataclasses
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.pressure import PRESSURE

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.cli import main
from mlgokit.commands import check, tune
from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.regalloc_cost import read_regalloc_costs, record_options
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import TRIAL, Outcome, Overrides, Series
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import CorpusError, UsageError
from mlgokit.progress import say_nothing
from mlgokit.tables.overrides import ALLOCATIONS, read_overrides, write_overrides
from mlgokit.tune.result import SearchedFunctions, SpillCosts, Tuned
from mlgokit.tune.spaces.allocation.trials import TrialConfig
from mlgokit.tune.spaces.functions.opening import open_functions
from mlgokit.tune.spaces.functions.space import FunctionSpace
from mlgokit.tune.spaces.functions.state import ModuleFunctions

pytestmark = pytest.mark.llvm

MAIN = """
#include <stdio.h>
double mix(const double *, const double *, int);
unsigned hash(const unsigned *, int);
int main(void) {
  static double a[99], b[99];
  static unsigned p[99];
  for (int i = 0; i < 99; i++) { a[i] = 1.0 / (i + 1); b[i] = 0.25 * i / 99; p[i] = i * 2654435761u; }
  for (int n = 0; n < 99; n += 7) printf("%.17g %u\\n", mix(a, b, n), hash(p, n));
}
"""
LEVEL = "-O2"


def put_sources(folder: Path, *, source: str = PRESSURE) -> Path:
    folder.mkdir(parents=True)
    (folder / "work.c").write_text(source)
    (folder / "main.c").write_text(MAIN)
    return folder


def put_database(folder: Path, level: str = LEVEL) -> Path:
    entries = [
        {"directory": str(folder), "file": name, "arguments": ["clang", level, "-c", name, "-o", f"{name}.o"]}
        for name in ("work.c", "main.c")
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return folder / "compile_commands.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    toolchain: Toolchain
    source: Path
    config: tune.Tune
    tuned: Tuned

    @property
    def flag(self) -> str:
        return self.tuned.flag

    @property
    def allocated(self) -> SearchedFunctions:
        assert self.tuned.allocated is not None
        return self.tuned.allocated

    @property
    def costs(self) -> SpillCosts:
        assert self.tuned.costs is not None
        return self.tuned.costs

    def compile(self, source: Path, output: Path, *options: str) -> bytes:
        words = [self.toolchain.clang, LEVEL, *options, "-c", source, "-o", output]
        done = process.run(words, timeout_seconds=60, cwd=source.parent)
        assert done.returncode == 0, done.stderr
        return output.read_bytes()

    def scores(self, source: Path, folder: Path, *options: str) -> dict[str, float]:
        record = folder / "record.yaml"
        front = [word for option in record_options(record) for word in ("-Xclang", option)]
        self.compile(source, folder / "recorded.o", *front, *options)
        costs = read_regalloc_costs(record)
        return dict(zip(costs.functions, costs.scores.tolist(), strict=True))

    def output(self, folder: Path, *options: str) -> bytes:
        words = [self.toolchain.clang, LEVEL, *options, self.source / "work.c", self.source / "main.c"]
        linked = process.run([*words, "-o", folder / "program"], timeout_seconds=60)
        assert linked.returncode == 0, linked.stderr
        return subprocess.run([folder / "program"], capture_output=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def project(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project, tuned."""
    folder = tmp_path_factory.mktemp(f"allocations-{toolchain.major}")
    config = tune.Tune(
        compile_commands=put_database(put_sources(folder / "source")),
        objective="spill-cost",
        budget="1s",
        output=folder / "tuned.so",
        folder=folder / "tune",
        compiler=CompilerOptions(llvm=toolchain.major, workers=1),
    )
    return Project(toolchain=toolchain, source=folder / "source", config=config, tuned=tune.run(config))


def test_the_build_with_the_plugin_costs_what_was_promised(project: Project, tmp_path: Path):
    found = project.costs
    assert found.plain > found.tuned
    assert found.change < 0
    assert project.allocated.trials > 8
    assert [one.note for one in project.tuned.modules] == ["", ""]
    work = next(one for one in project.tuned.modules if "work" in one.name)
    assert work.costs is not None
    elsewhere = put_sources(tmp_path / "quite" / "another" / "folder") / "work.c"
    plain = project.scores(elsewhere, tmp_path)
    tuned = project.scores(elsewhere, tmp_path, project.flag)
    assert sum(plain.values()) == pytest.approx(work.costs.plain)
    assert sum(tuned.values()) == pytest.approx(work.costs.tuned)
    assert all(tuned.get(name, 0) <= score for name, score in plain.items())
    assert project.output(tmp_path) == project.output(tmp_path, project.flag)


def test_debug_information_and_the_folder_change_no_decision(project: Project, tmp_path: Path):
    plain = project.compile(project.source / "work.c", tmp_path / "plain.o")
    tuned = project.compile(project.source / "work.c", tmp_path / "tuned.o", project.flag)
    assert tuned != plain
    scores = project.scores(project.source / "work.c", tmp_path, project.flag)
    assert project.scores(project.source / "work.c", tmp_path, project.flag, "-g") == scores
    elsewhere = put_sources(tmp_path / "elsewhere") / "work.c"
    assert project.compile(elsewhere, tmp_path / "again.o", project.flag) == tuned


def test_a_module_without_changed_functions_is_the_plain_one_byte_for_byte(project: Project, tmp_path: Path):
    main_module = next(one for one in project.tuned.modules if "main" in one.name)
    assert main_module.allocated == 0
    source = project.source / "main.c"
    assert project.compile(source, tmp_path / "tuned.o", project.flag) == project.compile(source, tmp_path / "plain.o")


def test_a_changed_function_is_the_plain_one_again(project: Project, tmp_path: Path):
    changed = PRESSURE.replace("a*17", "a*19+v").replace("double x = a[i], y", "double x = a[i] + 1, y")
    source = put_sources(tmp_path / "changed", source=changed) / "work.c"
    assert project.compile(source, tmp_path / "tuned.o", project.flag) == project.compile(source, tmp_path / "plain.o")


def test_a_check_says_which_functions_are_as_they_were_and_what_they_cost(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    found, costs = project.allocated, project.costs
    today = check.Check(plugin=project.config.output, compile_commands=put_database(put_sources(tmp_path / "same")))
    kept = check.run(today)
    assert kept.costs is not None
    assert (kept.allocations_kept, kept.share, kept.tune_again) == (found.changed, 1, False)
    assert kept.change == pytest.approx(costs.tuned / costs.plain - 1)
    assert kept.change == pytest.approx(kept.promised_change)
    assert (kept.costs.change, kept.failures) == (pytest.approx(costs.change), {})
    assert [one.allocated for one in kept.modules] == [one.allocated for one in project.tuned.modules]
    edited = put_sources(tmp_path / "edited", source=PRESSURE.replace("a*17", "a*19+v"))
    changed = dataclasses.replace(today, compile_commands=put_database(edited))
    words = ["check", str(changed.plugin), "--compile-commands", str(changed.compile_commands), "--least-kept", "1"]
    with pytest.raises(SystemExit, match=r"^1$"):
        main(["--json", *words])
    counted = json.loads(capsys.readouterr().out)
    assert counted["allocations_kept"] == found.changed - 1
    assert counted["costs"]["tuned"] <= counted["costs"]["plain"]
    assert [one["worse"] for one in counted["modules"]] == [[], []]
    with pytest.raises(SystemExit, match=r"^1$"):
        main(words)
    assert f"{found.changed - 1} of {found.changed} allocated functions" in capsys.readouterr().out


def test_another_name_is_another_function(project: Project, tmp_path: Path):
    renamed = re.sub(r"\b(mix|hash)\b", r"\1_2", PRESSURE)
    source = put_sources(tmp_path / "renamed", source=renamed) / "work.c"
    assert project.compile(source, tmp_path / "tuned.o", project.flag) == project.compile(source, tmp_path / "plain.o")


def test_the_table_alone_does_the_same_with_the_generic_plugin(project: Project, plugin: Path, tmp_path: Path):
    corpus = load_corpus(project.config.folder / "corpus")
    module = next(one for one in corpus.modules if "work" in one.name)
    table = read_overrides(ALLOCATIONS, project.config.output)
    assert table.summary is not None
    assert table.summary.tuned_score == pytest.approx(project.costs.tuned)
    write_overrides(ALLOCATIONS, tmp_path / "some.allocations", table.by_key)
    compiler = ClangCompiler(toolchain=project.toolchain, plugin=plugin)
    use = PluginUse(allocations=(tmp_path / "some.allocations").read_bytes())
    found = compiler.compile(module, CompileRequest(use=use, regalloc=True)).regalloc
    assert found is not None
    work = next(one for one in project.tuned.modules if "work" in one.name)
    assert work.costs is not None
    assert found.scores.sum() == pytest.approx(work.costs.tuned)
    refused = compiler.compile(module, CompileRequest(use=PluginUse(allocations=b"MLGORT1\n\x01\0\0\0")))
    assert "allocations: it is cut short" in refused.reason


def test_going_on_begins_where_the_search_stopped_and_another_start_keeps_what_applies(
    project: Project, tmp_path: Path
):
    words = ["--json", "tune", "--objective", "spill-cost", "--corpus", str(project.config.folder / "corpus")]
    words += ["--llvm", str(project.toolchain.major), "--workers", "1", "--start", str(project.config.output)]
    words += ["--folder", str(tmp_path / "again"), "--output", str(tmp_path / "again.so"), "--budget"]
    with pytest.raises(SystemExit, match=r"^0$"):
        main([*words, "1s"])
    first = json.loads((tmp_path / "again" / "tuned.json").read_text())
    assert first["allocated"]["costs"]["tuned"] <= project.costs.tuned * (1 + 1e-9)
    with pytest.raises(SystemExit, match=r"^0$"):
        main([*words, "0s", "--continue"])
    second = json.loads((tmp_path / "again" / "tuned.json").read_text())
    assert [second["allocated"][name] for name in ("costs", "trials")] == [
        first["allocated"][name] for name in ("costs", "trials")
    ]


def opened(
    project: Project, plugin: Path, folder: Path, policies: dict[str, str] | None = None
) -> tuple[FunctionSpace, ModuleFunctions]:
    """A space just opened, and the module with work."""
    compiler = ClangCompiler(toolchain=project.toolchain, plugin=plugin)
    search = open_functions(
        load_corpus(project.config.folder / "corpus").modules,
        compiler=compiler,
        config=TrialConfig(policies=policies or {}),
        folder=folder,
        start={},
        seed=1,
        report=say_nothing,
    )
    assert not search.space.failures
    return search.space, next(one for one in search.space.units if "work" in one.module.name)


def test_what_any_trial_decided_gives_the_same_costs_again(project: Project, plugin: Path, tmp_path: Path):
    rules = {"regalloc-eviction": ":first", "regalloc-priority": ":random"}
    space, work = opened(project, plugin, tmp_path, rules)
    trials = np.zeros(8, TRIAL)
    trials["seed"] = np.arange(8)
    trials["by_rule"] = [1, 1, 1, 1, 0, 0, 0, 0]
    trials["eviction_flips"] = trials["priority_flips"] = [0, 0, 0.3, 0.3] * 2
    made: list[tuple[int, Outcome]] = []
    for trial in range(8):
        asked = [
            Series(key=one.key, base=Overrides(), score=np.inf, trials=trials[trial : trial + 1])
            for one in work.functions
        ]
        made += [(found.key, found.outcomes[0]) for found in space.compile(work.module, asked).tried if found.outcomes]
    decided = [(key, one) for key, one in made if len(one.overrides) and np.isfinite(one.score)]
    assert len(decided) > 4
    assert any(len(one.overrides.evictions) for _, one in decided)
    assert any(len(one.overrides.priorities) for _, one in decided)
    for key, one in decided:
        again = Series(key=key, base=one.overrides, score=np.inf, trials=trials[4:5])
        (found,) = [found for found in space.compile(work.module, [again]).tried if found.key == key]
        assert found.outcomes[0].score == one.score
        assert found.outcomes[0].overrides.evictions.tolist() == one.overrides.evictions.tolist()
        assert found.outcomes[0].overrides.priorities.tolist() == one.overrides.priorities.tolist()


def test_a_trial_that_does_not_end_in_time_is_no_result_and_ends_nothing_else(
    project: Project, plugin: Path, tmp_path: Path
):
    space, work = opened(project, plugin, tmp_path)
    function = work.functions[0]
    trials = np.zeros(3, TRIAL)
    trials["seed"] = [1, 2, 3]
    series = [Series(key=function.key, base=Overrides(), score=np.inf, trials=trials)]
    done = space.compile(work.module, series, seconds=1e-6)
    assert done.reason == ""
    outcomes = next(one.outcomes for one in done.tried if one.key == function.key)
    assert len(outcomes) == 3
    done = space.compile(work.module, series, seconds=5)
    outcomes = next(one.outcomes for one in done.tried if one.key == function.key)
    assert {outcome.score for outcome in outcomes} == {function.plain}


def test_what_cannot_be_tuned_is_said(project: Project, tmp_path: Path):
    source = put_sources(tmp_path / "source", source="int f(void) { return 0; }")
    (source / "main.c").write_text("int g(void) { return 0; }")
    database = put_database(source)
    config = dataclasses.replace(project.config, compile_commands=database, folder=tmp_path / "tune")
    with pytest.raises(CorpusError, match="as -O0 uses LLVM's fast allocator"):
        tune.run(config)
    with pytest.raises(UsageError, match="expected --policy with --objective spill-cost"):
        tune.run(dataclasses.replace(config, fallback="policy"))
