"""Answer clang's inlining questions from Python: an advisor in ten lines, over LLVM's interactive pipes.

``python examples/decide_by_hand.py [source.cpp]`` compiles the file plainly and under the advisor, and prints both.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mlgokit import INLINE_SIZE, Advice, Observation, clang_words, drive, find_toolchain, measure_object

SOURCE = """
extern int sink(int);
static int add(int x) { return sink(x) + sink(x + 1); }
static int one(int x) { return x + 1; }
int first(int x) { return add(x) * add(one(x)) + add(3); }
int second(int x) { return first(one(x)) + first(x) + add(one(2)); }
"""


@dataclass(frozen=True, slots=True)
class CheapCallees:
    """Inlines what LLVM estimates to cost at most ``limit``, which is more generous than -Oz; prints each answer."""

    limit: int = 60

    def advise(self, observation: Observation) -> Advice:
        """1 to inline, 0 to call."""
        cost = int(observation.values["cost_estimate"][0])
        decision = int(cost <= self.limit)
        print(f"call {observation.index}: cost {cost}: {'inline' if decision else 'call'}")
        return decision


def main() -> None:
    toolchain = find_toolchain()
    channel = INLINE_SIZE.channel_for(toolchain.major, include_default=False)
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "source.cpp"), Path(folder, "out.o")
        source.write_text(Path(sys.argv[1]).read_text() if sys.argv[1:] else SOURCE)
        for options in ((), clang_words(channel.options)):
            result = drive(
                [toolchain.clangxx, "-Oz", "-c", source, "-o", output],
                channel_options=options,
                advisor=CheapCallees(),
                timeout_seconds=60,
                answer_timeout_seconds=20,
            )
            print(f"{result.status.value}: {measure_object(output).llvm_size_text} bytes of text")


if __name__ == "__main__":
    main()
