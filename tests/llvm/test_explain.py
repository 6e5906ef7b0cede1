"""What a policy does to a module, with real compilers: every byte that it changes belongs somewhere."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.calls import ended

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.commands import evaluate
from mlgokit.commands.evaluate import Evaluate
from mlgokit.commands.explain import Explain, exit_code, run
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.evaluation.explain import Explanation, list_call_tree
from mlgokit.evaluation.records import read_evaluation
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE

pytestmark = pytest.mark.llvm


SOURCE = """
extern "C" int get(int);
extern "C" void put(int);
struct Kept {
  int number;
  Kept(int n) : number(get(n)) {}
  ~Kept() { put(number); }
  int twice() const { return 2 * number; }
};
template <int N> struct Chain { static int sum(int x) { Kept k(x + N); return k.twice() + Chain<N - 1>::sum(x); } };
template <> struct Chain<0> { static int sum(int x) { return get(x); } };
static int middle(int x) { Kept a(x), b(x + 1); return a.twice() * b.twice(); }
static int only_once(int x) { for (int i = 0; i < x; i++) put(middle(i)); return get(x); }
extern "C" int outer(int x) { return Chain<5>::sum(x) + middle(x) + only_once(x); }
extern "C" int other(int x) { return Chain<3>::sum(x) - middle(x + 1); }
extern "C" const char *text(int x) { return x == 1 ? "one" : x == 2 ? "two" : "many"; }
extern "C" int letter(int x) { return text(x)[0] + text(x + 1)[0]; }
"""


@pytest.fixture(scope="session")
def corpus(corpus_of: Callable[[str, Mapping[str, str]], Path]) -> Path:
    return corpus_of("explain", {"m": SOURCE, "bad": ""})


@pytest.fixture
def few_users(tmp_path: Path) -> Path:
    """A policy that inlines what has fewer than about three users."""
    policy = Policy(
        problem=INLINE_SIZE.name,
        features=("callee_users",),
        normaliser=SignedLog(mean=np.array([1.3], np.float32), scale=np.ones(1, np.float32), clip=9.0),
        layers=(Layer(np.array([[[1, -1]]], np.float32), np.zeros((1, 2), np.float32)),),
        output=OutputKind.LOGITS,
    )
    save_policy(policy, tmp_path / "few.policy")
    return tmp_path / "few.policy"


@pytest.mark.parametrize("policy", [":never", ":always", "few"])
def test_components_sum_up_to_what_the_objects_differ_by(
    corpus: Path, toolchain: Toolchain, plugin: Path, policy: str, few_users: Path
):
    policy = str(few_users) if policy == "few" else policy
    config = Explain(module="m", policy=(policy,), corpus=corpus, compiler=CompilerOptions(llvm=toolchain.major))
    explained = run(config)
    found: Explanation = explained.explanation

    assert not found.failure
    assert exit_code(config, explained) == 0
    compiler = ClangCompiler(toolchain=toolchain, plugin=plugin)
    module = next(one for one in load_corpus(corpus).modules if one.name == "m")
    plain = compiler.compile(module).measured.llvm_size_text
    use = PluginUse(policies={INLINE_SIZE.name: policy})
    judged = compiler.compile(module, CompileRequest(use=use)).measured.llvm_size_text
    assert (found.before, found.after) == (plain, judged)
    assert found.change != 0
    assert sum(one.change for one in found.components) + found.unexplained + found.elsewhere == judged - plain
    assert any(one.change for one in found.components)
    assert [one for one in found.sites if one.differs] == [one for one in found.sites if one.component is not None]
    names = {name for one in found.sites for name in (one.caller, one.callee)}
    # Functions that are in neither object are known by name as well.
    assert not [name for name in names if name.startswith("function ")]
    assert "_ZL9only_oncei" in names
    asked = [one for one in found.sites if one.decided is not None]
    if policy == str(few_users):
        assert {one.decided for one in asked} == {True, False}
        assert all(one.preference is not None and (one.preference > 0) == one.decided for one in asked)
        assert all(one.agree == one.members == 1 for one in asked)
    else:
        assert {one.decided for one in asked} == {policy == ":always"}
    for function in found.functions:
        assert function.component is None or list_call_tree(found, function)


def test_a_plugin_is_explained_as_its_policy(corpus: Path, toolchain: Toolchain, few_users: Path, tmp_path: Path):
    link_policies(toolchain, {INLINE_SIZE.name: few_users}, tmp_path / "few.so")
    options = CompilerOptions(llvm=toolchain.major)
    by_policy, by_plugin = (
        run(Explain(module="m", corpus=corpus, compiler=options, policy=policy, plugin=plugin)).explanation
        for policy, plugin in (((str(few_users),), None), ((), tmp_path / "few.so"))
    )

    assert by_plugin.components == by_policy.components
    assert by_plugin.functions == by_policy.functions
    assert (by_plugin.after, by_plugin.allocation) == (by_policy.after, 0)


def test_what_does_not_compile_is_an_answer(corpus: Path, toolchain: Toolchain):
    config = Explain(module="bad", policy=(":never",), corpus=corpus, compiler=CompilerOptions(llvm=toolchain.major))
    explained = run(config)

    assert explained.explanation.failure.startswith("plain: the compiler reported an error: ")
    assert exit_code(config, explained) == 1


def test_a_module_is_explained_on_the_command_line(
    corpus: Path, toolchain: Toolchain, capsys: pytest.CaptureFixture[str]
):
    assert ended("explain", "m", "--policy", ":never", "--corpus", corpus, "--llvm", toolchain.major) == 0
    assert capsys.readouterr().out.startswith("Larger functions\n")


def test_the_report_of_an_evaluation_says_why_functions_changed(
    corpus: Path, toolchain: Toolchain, few_users: Path, tmp_path: Path
):
    config = Evaluate(
        policy=(str(few_users),),
        corpus=corpus,
        projects=("m",),
        output=tmp_path / "e.json",
        compiler=CompilerOptions(llvm=toolchain.major),
    )
    found = evaluate.run(config)

    assert {one.failure for one in found.trees} == {""}
    assert any(line.site.differs and line.site.features for one in found.trees for line in one.lines)
    rows = {one.function: one for one in found.projects[0].module_rows[0].differing}
    for one in found.trees:
        sides = (rows[one.function].before, rows[one.function].after)
        assert (one.before, one.after) == tuple(None if side is None else side.total for side in sides)
    assert read_evaluation(tmp_path / "e.json").trees == found.trees
    assert "most, and why</h2>" in (tmp_path / "e.html").read_text()

    plain = evaluate.run(dataclasses.replace(config, policy=(), plain=True))
    assert (plain.trees, plain.no_trees) == ((), "the candidate has no policy or plugin for inlining")
