"""One more problem: one value in ``PROBLEMS``, and everything in Python knows it."""

import os
import subprocess
import sys
from pathlib import Path

TOY = """
import sys
from pathlib import Path

import numpy as np

from mlgokit.problems import PROBLEMS, Feature, Problem
from mlgokit.spec import AdviceKind, TensorSpec

TOY = PROBLEMS["toy"] = Problem(
    name="toy",
    summary="whether to toy with a function",
    policy_variable="MLGOKIT_TOY_POLICY",
    log_variable="MLGOKIT_TOY_LOG",
    rules=(":default", ":toy"),
    log_option="-toy-training-log",
    advice_kind=AdviceKind.BINARY,
    decision="toy_decision",
    default_decision="toy_default",
    context="function",
    channel_options=("-enable-toy=release", "-toy-channel-base={base}"),
    features=(Feature("weight"),),
    scores=("object-text",),
)

from mlgokit.cli import main
from mlgokit.compiler.caching import open_caching
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.request import PluginUse
from mlgokit.learning.baselines import compile_defaults
from mlgokit.learning.decision_batch import feature_names
from mlgokit.learning.trace import outcome, trace_modules
from mlgokit.testing import FakeCompiler, toy_sizes, toy_source
from mlgokit.traces import ContextSpan, Header, Log

names = ("weight", "toy_default", "toy_decision", "log_probability")
LOG = Log(
    header=Header(features=tuple(TensorSpec(name=name, type="int64_t", shape=(1,)) for name in names)),
    contexts=(ContextSpan(name="f", start=0, stop=2), ContextSpan(name="g", start=2, stop=3)),
    columns={name: np.arange(3).reshape(3, 1) % 2 for name in names},
)


def answer(module, request):
    logs = {} if request.use is None else dict.fromkeys(request.use.logs, LOG)
    text = 90 if request.use is not None and request.use.policies["toy"] == ":toy" else 100
    return Compilation(status=CompileStatus.OK, sizes=toy_sizes({"f": text}), logs=logs)


folder = Path(sys.argv[1])
for name in ("plugin.so", "m.bc"):
    (folder / name).write_bytes(b"x")
fake = FakeCompiler(answer=answer, plugin=folder / "plugin.so")
compiler = open_caching(fake, folder / "store")
modules = [toy_source("m", bitcode=folder / "m.bc")]

use = PluginUse(policies={"toy": ":toy"}, logs=("toy",)).environment(folder)
assert use["MLGOKIT_TOY_POLICY"] == ":toy" and use["MLGOKIT_TOY_LOG"] == str(folder / "toy.log"), use

(trace,) = trace_modules(compiler, modules, TOY, policy=":toy", folder=folder / "logs")
assert trace.scores == {"default": (100, 90)}, trace.scores
assert outcome([trace])["decisions"] == 3
assert feature_names(TOY, LOG.columns) == ("weight",)
again = trace_modules(compiler, modules, TOY, policy=":toy", folder=folder / "logs")
assert len(fake.asked) == 2

baselines = compile_defaults(open_caching(fake, folder / "store"), modules, TOY)
assert baselines.available == ("weight",)
assert baselines.score(0, baselines.defaults[0]) == 100
assert not any(request.regalloc for _, request in fake.asked)

for command in ("trace", "train"):
    try:
        main([command, "--help-all"])
    except SystemExit as ended:
        assert not ended.code
"""


def test_one_file_makes_a_problem(tmp_path: Path):
    (tmp_path / "toy.py").write_text(TOY)

    done = subprocess.run(
        [sys.executable, tmp_path / "toy.py", tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )

    assert done.returncode == 0, done.stderr
    problems = "{inline-size,regalloc-eviction,regalloc-priority,pass-selection,regalloc-weight,toy}"
    assert done.stdout.count(problems) == 2
