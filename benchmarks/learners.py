"""All learners and honest baselines on one corpus at one budget, in slices that a later call goes on with.

Each arm (a learner with a preset and a seed, or a baseline) leaves its own result in ``--folder``; a call makes the
missing ones, at most ``--slice`` of them, and writes the table of all that are there.
"""

import sys
from collections.abc import Sequence

import numpy as np
from arms import finished_arms
from harness import Setup, draw_modules, run_benchmark
from learner_arms import Bench, Learners, every_arm
from learner_summary import summed_up
from results import Result

from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.corpus.identity import training_modules
from mlgokit.errors import CorpusError
from mlgokit.module import Module


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    return run_benchmark(Learners, measure, arguments)


def measure(config: Learners, setup: Setup) -> Result:
    """Make the missing arms, and put all that are there side by side."""
    corpus = setup.corpus(config.corpus)
    toolchain = setup.toolchain(config.llvm)
    held_out = [module for module in corpus.modules if module.held_out]
    if not held_out:
        raise CorpusError(
            f"{config.corpus}: expected held-out projects to judge, found none; run `mlgokit corpus split`"
        )
    bench = Bench(
        config=config,
        toolchain=toolchain,
        plugin=build_plugin(toolchain),
        training=training_set(config, corpus.modules),
        held_out=held_out,
        report=setup.report,
    )
    # Not the plugin's digest: it changes with every comment in it, and an arm takes minutes.
    of = {name: getattr(config, name) for name in ("compilations", "modules", "largest", "setting")}
    of |= {"corpus": setup.inputs["corpus"], "minutes": str(config.minutes)}
    arms = every_arm(bench)
    found = finished_arms(config.folder, arms, of=of, most=config.slice, report=setup.report)
    return summed_up(config, found, missing=len(arms) - len(found))


def training_set(config: Learners, modules: Sequence[Module]) -> list[Module]:
    """The modules that all learners learn from."""
    small = [
        module
        for module in training_modules(modules)
        if not config.largest or module.bitcode.stat().st_size <= config.largest
    ]
    return draw_modules(small, config.modules, np.random.default_rng(1))


if __name__ == "__main__":
    sys.exit(main())
