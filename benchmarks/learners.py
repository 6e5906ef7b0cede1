"""All learners and honest baselines on one corpus at one budget, in slices that a later call goes on with.

Each arm (a learner with a preset and a seed, or a baseline) leaves its own result in ``--folder``; a call makes the
missing ones, at most ``--slice`` of them, and writes the table of all that are there.
"""

import json
import re
import resource
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from learner_arms import Bench, Learners, every_arm
from learner_summary import summed_up
from results import Result, corpus_inputs, draw_modules, run_benchmark, tool_versions

from mlgokit.commands import training_modules
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import CorpusError, UsageError
from mlgokit.files import atomic_write, digest_file
from mlgokit.manifest import digest_value
from mlgokit.module import Module
from mlgokit.progress import Report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    return run_benchmark(Learners, measure, arguments)


def measure(config: Learners, report: Report) -> Result:
    """Make the missing arms, and put all that are there side by side."""
    corpus = load_corpus(config.corpus)
    toolchain = find_toolchain(config.llvm, need_plugin=True)
    versions = tool_versions(toolchain)
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
        report=report,
    )
    # Not the plugin's digest: it changes with every comment in it, and an arm takes minutes.
    what: dict[str, Any] = {"corpus": digest_file(corpus.folder / "corpus_description.json")}
    what |= {name: getattr(config, name) for name in ("compilations", "minutes", "modules", "largest", "setting")}
    made = 0
    found: list[dict[str, Any]] = []
    arms = every_arm(bench)
    for arm in arms:
        path = config.folder / f"{re.sub(r'[^a-z0-9]+', '-', arm.name)}-{arm.seed}.json"
        known = json.loads(path.read_bytes()) if path.exists() else None
        if known is not None and known["of"] != digest_value({**what, "minutes": str(config.minutes)}):
            raise UsageError(
                f"{path}: expected an arm of this budget and corpus, found another's; name another --folder"
            )
        if known is None and (not config.slice or made < config.slice):
            report(made, len(arms), "arms")
            before = core_seconds()
            facts = arm.run()
            known = {"of": digest_value({**what, "minutes": str(config.minutes)}), "arm": arm.name, "seed": arm.seed}
            known |= {"core_minutes": (core_seconds() - before) / 60, **facts}
            atomic_write(path, json.dumps(known, indent=1))
            made += 1
        if known is not None:
            found.append(known)
    return summed_up(config, found, missing=len(arms) - len(found), versions=versions, inputs=corpus_inputs(corpus))


def training_set(config: Learners, modules: Sequence[Module]) -> list[Module]:
    """The modules that all learners learn from."""
    small = [
        module
        for module in training_modules(modules)
        if not config.largest or module.bitcode.stat().st_size <= config.largest
    ]
    return draw_modules(small, config.modules, np.random.default_rng(1))


def core_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


if __name__ == "__main__":
    sys.exit(main())
