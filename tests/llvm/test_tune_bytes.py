"""Register allocation for size, beside the inlining of a tuning: a small program, as a user tunes it."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.searching import tune_until

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands import check, tune
from mlgokit.compiler import process
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.reuse.trials import IMAGE_BYTES, TRIAL, Overrides, Series
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.module import Module
from mlgokit.progress import say_nothing
from mlgokit.tables.overrides import ALLOCATIONS, read_plugin_overrides
from mlgokit.tune.loop import run_search
from mlgokit.tune.publish import publish
from mlgokit.tune.result import Tuned
from mlgokit.tune.spaces.allocation.trials import TrialConfig, allocation_plan
from mlgokit.tune.spaces.functions.finish import finish_bytes
from mlgokit.tune.spaces.functions.opening import FunctionSearch, open_verified
from mlgokit.tune.spaces.functions.space import FunctionSpace
from mlgokit.tune.spaces.inlining.finish import finish_inlining
from mlgokit.tune.spaces.inlining.opening import open_inlining
from mlgokit.tune.spaces.inlining.space import SearchConfig
from mlgokit.tune.verify import Verifier

pytestmark = pytest.mark.llvm

SOURCE = """
static int twice(int x) { return x * 2 + 1; }
unsigned mix(const unsigned *p, int n, unsigned *out) {
  unsigned a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9,j=10,k=11,l=12,m=13,o=14,q=15;
  for (int t = 0; t < n; t++) {
    unsigned v = p[t] + twice(t);
    a=a*31+(b^v); b=(b<<3)^c; c+=d*v; d^=e+a; e=e*7+f; f+=g^v; g=g*13+h; h=(h<<7)^i; i+=j*3; j^=k+v;
    k+=l*5; l^=m+v; m=(m<<9)^o; o^=q+v; q+=a*17; out[t] = a ^ q ^ twice(v);
  }
  return a^b^c^d^e^f^g^h^i^j^k^l^m^o^q;
}
unsigned last(const unsigned *p, int n) { return n ? p[n - 1] * n : p[0]; }
"""
MAIN = """
#include <stdio.h>
unsigned mix(const unsigned *, int, unsigned *);
int main(int count, char **words) {
  static unsigned p[99], out[99];
  for (int i = 0; i < 99; i++) p[i] = i * 2654435761u;
  for (int n = 0; n < 99; n += 7) printf("%u %u\\n", mix(p, n, out), out[n / 2]);
}
"""
OPTIONS = ("-Oz", "-ffunction-sections")


def put_database(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "work.c").write_text(SOURCE)
    (folder / "main.c").write_text(MAIN)
    entries = [
        {"directory": str(folder), "file": name, "arguments": ["clang", *OPTIONS, "-c", name, "-o", f"{name}.o"]}
        for name in ("work.c", "main.c")
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return folder / "compile_commands.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    toolchain: Toolchain
    config: tune.Tune
    tuned: Tuned

    @property
    def modules(self) -> tuple[Module, ...]:
        return load_corpus(self.config.folder / "corpus").modules

    def compile(self, source: Path, output: Path, *options: str) -> int:
        words = [self.toolchain.clang, *OPTIONS, *options, "-c", source, "-o", output]
        done = process.run(words, timeout_seconds=60, cwd=source.parent)
        assert done.returncode == 0, done.stderr
        return measure_object(output).llvm_size_text

    def output(self, folder: Path, *options: str) -> bytes:
        sources = [folder / "work.c", folder / "main.c"]
        linked = process.run(
            [self.toolchain.clang, *OPTIONS, *options, *sources, "-o", folder / "a.out"], timeout_seconds=60
        )
        assert linked.returncode == 0, linked.stderr
        return process.run([folder / "a.out"], timeout_seconds=60).stdout


def is_allocated(tuned: Tuned) -> bool:
    """Whether the large function is smaller by another allocation."""
    return any("work" in one.name and one.allocated > 0 for one in tuned.modules)


@pytest.fixture(scope="module")
def project(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project, tuned; most of the budget is for register allocation."""
    folder = tmp_path_factory.mktemp(f"bytes-{toolchain.major}")
    config = tune.Tune(
        compile_commands=put_database(folder / "source"),
        budget="2s",
        allocation_share=0.8,
        output=folder / "tuned.so",
        folder=folder / "tune",
        shipped_policies="off",
        compiler=CompilerOptions(llvm=toolchain.major, workers=1),
    )
    return Project(toolchain=toolchain, config=config, tuned=tune_until(is_allocated, config))


@pytest.mark.every_major
@pytest.mark.usefixtures("measured_copies")
def test_the_build_is_as_small_as_promised_and_does_the_same(project: Project, tmp_path: Path):
    allocated = project.tuned.allocated
    assert allocated is not None
    assert 0 < allocated.changed <= allocated.functions
    assert allocated.after_bytes < allocated.before_bytes <= project.tuned.plain_bytes
    assert allocated.after_bytes == project.tuned.tuned_bytes
    work = next(one for one in project.tuned.modules if "work" in one.name)
    assert work.allocated > 0
    assert not work.plain
    source = put_database(tmp_path / "quite" / "another" / "folder").parent / "work.c"
    plain = project.compile(source, tmp_path / "plain.o")
    assert plain == work.plain_bytes
    for options in ((), ("-g",)):
        assert project.compile(source, tmp_path / "tuned.o", project.tuned.flag, *options) == work.tuned_bytes
    assert project.output(source.parent) == project.output(source.parent, project.tuned.flag)


def test_a_changed_function_is_as_llvm_allocates_it(project: Project, tmp_path: Path):
    source = put_database(tmp_path / "changed").parent / "work.c"
    source.write_text(SOURCE.replace("a*17", "a*19+v"))
    assert project.compile(source, tmp_path / "tuned.o", project.tuned.flag) <= project.compile(
        source, tmp_path / "plain.o"
    )


def test_a_check_counts_the_functions_that_are_still_allocated_otherwise(project: Project, tmp_path: Path):
    allocated = project.tuned.allocated
    assert allocated is not None
    database = put_database(tmp_path / "elsewhere")
    today = check.Check(plugin=project.config.output, compile_commands=database, compiler=CompilerOptions(workers=1))
    kept = check.run(today)
    assert kept.allocations == kept.allocations_kept == allocated.changed
    assert [one.allocated for one in kept.modules] == [one.allocated for one in project.tuned.modules]
    assert (kept.plain_bytes, kept.tuned_bytes) == (project.tuned.plain_bytes, project.tuned.tuned_bytes)
    (database.parent / "work.c").write_text(SOURCE.replace("a*17", "a*19+v"))
    changed = check.run(today)
    assert changed.allocations == kept.allocations
    assert changed.allocations_kept == kept.allocations_kept - 1
    assert not changed.larger


def test_a_trial_counts_the_bytes_that_the_object_has(project: Project, plugin: Path):
    compiler = ClangCompiler(toolchain=project.toolchain, plugin=plugin)
    space = FunctionSpace(folder=plugin.parent, compiler=compiler, config=TrialConfig(weights=IMAGE_BYTES))
    code = TrialConfig(weights=np.array([0.0] * 6 + [1.0, 0.0, 0.0]))
    text = FunctionSpace(folder=plugin.parent, compiler=compiler, config=code)
    trials = np.zeros(1, TRIAL)
    for module in project.modules:
        plain = compiler.compile(module).measured
        sizes = dict(zip(plain.function_names, plain.function_text.tolist(), strict=True))
        listed = space.compile(module).tried
        series = [Series(key=one.key, base=Overrides(), score=np.inf, trials=trials) for one in listed]
        found = {one.name: one.outcomes[0].score for one in text.compile(module, series, seconds=5).tried}
        assert found
        assert found == {name: sizes[name] for name in found}
        whole = {one.name: one.outcomes[0].score for one in space.compile(module, series, seconds=5).tried}
        assert all(whole[name] > size for name, size in found.items())


def test_going_on_keeps_what_was_found_and_without_a_share_nothing_is_allocated_otherwise(
    project: Project, tmp_path: Path
):
    again = tune.run(dataclasses.replace(project.config, go_on=True, budget="0s", output=tmp_path / "again.so"))
    assert again.allocated is not None
    assert again.tuned_bytes <= project.tuned.tuned_bytes
    assert (
        read_plugin_overrides(ALLOCATIONS, tmp_path / "again.so").keys()
        == read_plugin_overrides(ALLOCATIONS, project.config.output).keys()
    )
    corpus = project.config.folder / "corpus"
    other = dataclasses.replace(project.config, compile_commands=None, corpus=corpus, budget="0s")
    without = dataclasses.replace(other, folder=tmp_path / "w", output=tmp_path / "w.so", allocation_share=0.0)
    assert tune.run(without).allocated is None
    assert read_plugin_overrides(ALLOCATIONS, tmp_path / "w.so") == {}
    started = dataclasses.replace(other, folder=tmp_path / "s", output=tmp_path / "s.so", start=project.config.output)
    found = tune.run(dataclasses.replace(started, budget="2s", allocation_share=0.9))
    assert found.tuned_bytes <= project.tuned.tuned_bytes


def test_sources_that_are_not_tuned_are_named_before_and_after(project: Project, tmp_path: Path):
    database = put_database(tmp_path / "source")
    entries = json.loads(database.read_text())
    (database.parent / "broken.c").write_text("#error not here\n")
    for name, level in (("broken.c", "-Oz"), ("fast.c", "-O2")):
        arguments = ["clang", level, "-c", name, "-o", f"{name}.o"]
        entries.append({"directory": str(database.parent), "file": name, "arguments": arguments})
    (database.parent / "fast.c").write_text("int fast(int x) { return x + 1; }\n")
    database.write_text(json.dumps(entries))
    said: list[str] = []
    tuned = tune.run(
        dataclasses.replace(
            project.config, compile_commands=database, budget="0s", folder=tmp_path / "f", output=tmp_path / "t.so"
        ),
        report=lambda _done, _total, label: said.append(label),
    )
    reasons = {Path(name).name: reason for name, reason in tuned.left_out.items()}
    assert reasons.keys() == {"broken.c.o", "fast.c.o"}
    assert "not here" in reasons["broken.c.o"]
    assert "-Oz" in reasons["fast.c.o"]
    assert len(tuned.modules) == 2
    work = [label for label, _ in itertools.groupby(said)]
    assert work.count("compile everything plainly") == work.count("compile everything with the result") == 1
    told = next(index for index, label in enumerate(said) if "left out" in label)
    assert told < said.index("compile every module plainly")


@contextmanager
def opened(
    project: Project, folder: Path, plugin: Path
) -> Generator[tuple[Tuned, FunctionSearch, Callable[[], Tuned]]]:
    compiler = ClangCompiler(toolchain=project.toolchain, plugin=plugin)
    config, place = SearchConfig(), folder / "search"
    search = open_inlining(project.modules, compiler=compiler, config=config, folder=place, report=say_nothing)
    output = folder / "tuned.so"
    with Verifier(
        compiler=compiler, modules=project.modules, output=output, search_folder=place, report=say_nothing
    ) as verifier:
        tuned = finish_inlining(verifier, search)
        objective = search.space.objective
        found = open_verified(
            verifier,
            allocation_plan(objective),
            objective=objective,
            folder=place / "allocation",
            start={},
            seed=1,
            report=say_nothing,
        )

        def put_together() -> Tuned:
            done = finish_bytes(verifier, found, tuned, search.space.account)
            return publish(verifier, done, folder)

        yield tuned, found, put_together
    assert not verifier.folder.exists()


def test_what_the_object_does_not_bear_out_is_put_back(project: Project, plugin: Path, tmp_path: Path):
    with opened(project, tmp_path, plugin) as (tuned, found, put_together):
        work = next(one for one in found.space.units if "work" in one.module.name)
        trials = np.zeros(60, TRIAL)
        trials["seed"], trials["eviction_flips"], trials["priority_flips"] = np.arange(60), 0.9, 0.9
        function = next(one for one in work.functions if one.name == "mix")
        # Each departs from the worst before it.
        series = [Series(key=function.key, base=Overrides(), score=-1.0, trials=trials)]
        outcomes = next(
            one.outcomes for one in found.space.compile(work.module, series, seconds=5).tried if one.outcomes
        )
        worst = max((one for one in outcomes if np.isfinite(one.score)), key=lambda one: one.score)
        function.plain, function.score, function.trials = 1e6, 1.0, 1
        function.overrides = worst.overrides
        assert len(worst.overrides)
        result = put_together()
        assert result.allocated is not None
        assert (result.allocated.changed, result.allocated.put_back) == (0, 1)
        assert result.tuned_bytes == tuned.tuned_bytes
        assert read_plugin_overrides(ALLOCATIONS, tmp_path / "tuned.so") == {}


def test_a_function_whose_code_cannot_be_seen_is_left_alone(project: Project, plugin: Path, tmp_path: Path):
    with opened(project, tmp_path, plugin) as (_, found, put_together):
        # Before the first function is emitted, all are allocated.
        outlined = [
            dataclasses.replace(
                one, module=dataclasses.replace(one.module, command_line=(*one.module.command_line, "-mllvm", OUTLINE))
            )
            for one in found.space.units
        ]
        found.space.units = outlined
        run_search(found, seconds=5, workers=1, report=say_nothing)
        seen = {
            one.name: math.isfinite(one.plain) for module in found.space.units for one in module.functions if one.trials
        }
        # A function alone in its module is seen.
        assert seen == {"mix": False, "last": False, "main": True}
        assert all(one.exhausted for module in found.space.units for one in module.functions if one.name != "main")
        result = put_together()
        assert result.allocated is not None
        assert result.allocated.changed <= 1


OUTLINE = "-enable-machine-outliner=always"
