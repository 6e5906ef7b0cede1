"""Train for one round on a handful of modules from Python, and export the policy as a plugin.

``python examples/train_and_export.py CORPUS OUTPUT`` takes a folder that ``mlgokit corpus extract`` made and writes
``OUTPUT/policy.so``. One round on so few modules gives a poor policy; ``mlgokit train`` is the real thing.
"""

import argparse
from pathlib import Path

from mlgokit.algorithms.config import EffectConfig
from mlgokit.collect import open_workshop
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.corpus.identity import training_modules
from mlgokit.export.plugin import export_plugin
from mlgokit.train import EffectTraining, train_effects

MODULES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()

    toolchain = find_toolchain(need_plugin=True)
    modules = training_modules(load_corpus(arguments.corpus).modules)[:MODULES]
    workshop = open_workshop(toolchain, build_plugin(toolchain), arguments.output / "store", workers=2)
    training = EffectTraining(rounds=1, explorations=4, fit=EffectConfig(members=2, epochs=10))
    policy, rounds = train_effects(workshop, modules, training, folder=arguments.output)
    for result in rounds:
        print(
            f"round {result.round}: {result.compilations} compilations, {result.flips} flipped decisions, "
            f"{result.components} labels, correlation {result.correlation:.2f}"
        )
    exported = export_plugin(toolchain, [policy], arguments.output / "policy.so")
    print(f"{exported.size_bytes} bytes; use it with: clang++ -Oz {exported.flag}")


if __name__ == "__main__":
    main()
