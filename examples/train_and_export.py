"""Train for one round from Python, and export the policy as a plugin.

``python examples/train_and_export.py CORPUS OUTPUT`` takes a folder that ``mlgokit corpus extract`` made and writes
``OUTPUT/policy.so``. One round gives a poor policy; ``mlgokit train`` is the real thing.
"""

import argparse
from pathlib import Path

from mlgokit import CompilerOptions, Learning, Train, export_plugin, find_toolchain, run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()

    training = Train(
        corpus=arguments.corpus,
        output=arguments.output,
        compiler=CompilerOptions(workers=2),
        learning=Learning(iterations=1, setting=("explorations=4", "fit.members=2", "fit.epochs=10")),
    )
    trained = run_command(training)
    for one in trained.to_json()["rounds"]:
        print(
            f"round {one['round']}: {one['compilations']} compilations, {one['flips']} flipped decisions, "
            f"{one['components']} labels, correlation {one['correlation']:.2f}"
        )
    exported = export_plugin(find_toolchain(need_plugin=True), [trained.policy], arguments.output / "policy.so")
    print(f"{exported.size_bytes} bytes; use it with: clang++ -Oz {exported.flag}")


if __name__ == "__main__":
    main()
