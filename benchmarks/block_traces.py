"""What blocks of a linked program were executed, and what those of another build of it would take by llvm-mca.

The cost model of the reference (``regalloc_trace``) prices traces of a run by llvm-mca, in the code that a policy
gives. Blocks of both builds are matched by the numbers of ``-fbasic-block-address-map``, which the allocator does not
change (llvm/docs/Extensions.rst, SHT_LLVM_BB_ADDR_MAP).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llvm_tools import run_tool

from mlgokit.compiler.toolchain import Toolchain

BLOCKS = "-fbasic-block-address-map"
"""Option of clang by which a program says where its blocks are."""
PASSES = 100
"""How often llvm-mca repeats a block; what a repetition takes is the block's price."""
_LINE = re.compile(r"^\s*([0-9a-f]+):\s+([a-z].*)$")
_REMARK = re.compile(r"\s*(#.*|<[^>]*>)")
_CALL = re.compile(r"(call|lcall|syscall|int3|ud2)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A basic block in a linked program.

    Attributes:
        address: of its first instruction.
        lines: its instructions in assembly.
    """

    address: int
    lines: tuple[str, ...]


def read_blocks(program: Path, toolchain: Toolchain) -> dict[str, dict[int, Block]]:
    """By symbol and number the blocks of a program; without symbols and numbers that are there more than once.

    Raises:
        ToolError: a tool fails.
    """
    said = run_tool(toolchain, "llvm-readobj", "--bb-addr-map", "--elf-output-style=JSON", program)
    instructions = _disassembled(program, toolchain)
    found: dict[str, dict[int, Block]] = {}
    twice: set[str] = set()
    for one in json.loads(said)[0]["BBAddrMap"]:
        function = one["Function"]
        name = function["Name"]
        if name in found:
            twice.add(name)
        blocks = found.setdefault(name, {})
        for part in function["BB Ranges"]:
            for entry in part["BB Entries"]:
                first = part["Base Address"] + entry["Offset"]
                if entry["ID"] in blocks:
                    twice.add(name)
                lines = tuple(instructions[at] for at in range(first, first + entry["Size"]) if at in instructions)
                blocks[entry["ID"]] = Block(address=first, lines=lines)
    return {name: blocks for name, blocks in found.items() if name not in twice}


def executed(blocks: Mapping[int, Block], counts: Mapping[int, int]) -> dict[int, int]:
    """How often each block was executed, from how often each instruction was (by its address)."""
    return {number: counts.get(block.address, 0) for number, block in blocks.items() if block.lines}


def cycles(blocks: Mapping[str, Mapping[int, Block]], toolchain: Toolchain, cpu: str) -> dict[str, dict[int, float]]:
    """By symbol and number what a block takes on a processor, repeated, by llvm-mca.

    Calls are left out: llvm-mca takes each for a hundred cycles.

    Args:
        blocks: of the functions to price.
        toolchain: whose llvm-mca.
        cpu: the processor.

    Raises:
        ToolError: llvm-mca fails.
    """
    bodies = {
        (name, number): tuple(line for line in block.lines if not _CALL.match(line))
        for name, numbered in blocks.items()
        for number, block in numbered.items()
    }
    unique = {body: place for place, body in enumerate(dict.fromkeys(body for body in bodies.values() if body))}
    regions = "".join(
        f"# LLVM-MCA-BEGIN {place}\n" + "\n".join(body) + "\n# LLVM-MCA-END\n" for body, place in unique.items()
    )
    found: dict[str, float] = {}
    if regions:
        words = ("-mcpu=" + cpu, f"-iterations={PASSES}", "--json", "--resource-pressure=0", "--instruction-info=0")
        for region in json.loads(run_tool(toolchain, "llvm-mca", *words, "-", stdin=regions))["CodeRegions"]:
            found[region["Name"]] = region["SummaryView"]["TotalCycles"] / PASSES
    prices: dict[str, dict[int, float]] = {}
    for (name, number), body in bodies.items():
        prices.setdefault(name, {})[number] = found[str(unique[body])] if body else 0.0
    return prices


def _disassembled(program: Path, toolchain: Toolchain) -> dict[int, str]:
    """By address the instructions of a program, in words that llvm-mca reads."""
    said = run_tool(toolchain, "llvm-objdump", "--disassemble", "--no-show-raw-insn", program)
    lines = (_LINE.match(line) for line in said.splitlines())
    return {int(line[1], 16): _REMARK.sub("", line[2]) for line in lines if line}
