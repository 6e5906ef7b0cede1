"""An advisor of your own for every module of a corpus: any object with a method ``advise`` decides.

``python examples/own_advisor.py CORPUS`` prints what each module's object measures plainly and under the advisor.
"""

import sys
import tempfile
from pathlib import Path

from mlgokit import (
    INLINE_SIZE,
    Advice,
    Module,
    Observation,
    channel_use,
    command,
    drive_channels,
    find_toolchain,
    load_corpus,
    measure_object,
)


class Threshold:
    """Inlines what LLVM estimates to cost little."""

    limit = 20

    def advise(self, observation: Observation) -> Advice:
        """1 to inline, 0 to call."""
        cost = int(observation.values["cost_estimate"][0])
        return int(cost <= self.limit)


def main() -> None:
    toolchain = find_toolchain()
    use = channel_use(INLINE_SIZE, major=toolchain.major, advisor=Threshold())

    def text_bytes(module: Module, output: Path, *, advised: bool) -> int:
        argv = command(toolchain, module, output, None)
        channels = {"inline": use} if advised else {}
        drive_channels(argv, channels=channels, timeout_seconds=60, answer_timeout_seconds=20)
        return measure_object(output).llvm_size_text

    with tempfile.TemporaryDirectory() as folder:
        for module in load_corpus(Path(sys.argv[1])).modules:
            plain, mine = (text_bytes(module, Path(folder, "out.o"), advised=advised) for advised in (False, True))
            print(f"{module.name}: {plain} bytes plainly, {mine} with the advisor")


if __name__ == "__main__":
    main()
