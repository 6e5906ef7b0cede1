"""`mlgokit size` beside bloaty, puncover and membrowse: the same sections and symbols, time and memory."""

import bisect
import csv
import io
import json
import math
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, run_benchmark
from results import Cell, Result, Table

from mlgokit.compiler import process
from mlgokit.compiler.llvm_tools import find_llvm_tool
from mlgokit.errors import ToolError
from mlgokit.files import digest_file

SECONDS = 600.0
# A process of its own, which is small, as a child is never counted with less memory than the process that started it.
MEASURED = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdout=open(sys.argv[1], "wb"), stderr=subprocess.PIPE)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, done.stderr.decode()[-300:]]))
"""
PUNCOVER = """
import json, pathlib, sys
from puncover.collector import Collector
from puncover.gcc_tools import GCCTools
found = Collector(GCCTools(sys.argv[1]))
found.parse_elf(pathlib.Path(sys.argv[2]))
symbols = [(one.get("name"), one.get("size") or 0) for one in found.all_symbols()]
print(json.dumps(symbols))
"""
OURS = (sys.executable, "-m", "mlgokit", "size")
READ = """
import pathlib, sys
from mlgokit.sizes.measure import measure_file
measure_file(pathlib.Path(sys.argv[1]))
"""
READERS = {
    "our reader of ELF, symbols": """
import pathlib, sys
from mlgokit.compiler.objects import elf
elf.read_symbols(elf.read_elf(pathlib.Path(sys.argv[1])))
""",
    "lief, symbols": """
import sys, lief
# Its symbols are freed with it, so that it has to stay.
found = lief.parse(sys.argv[1])
print(sum(1 for one in found.symbols if one.size))
""",
    "pyelftools, symbols": """
import sys
from elftools.elf.elffile import ELFFile
table = ELFFile(open(sys.argv[1], "rb")).get_section_by_name(".symtab")
print(sum(1 for one in table.iter_symbols() if one["st_size"]))
""",
    "pyelftools, compilation units": """
import sys
from elftools.elf.elffile import ELFFile
dwarf = ELFFile(open(sys.argv[1], "rb")).get_dwarf_info()
ranges = dwarf.range_lists()
for unit in dwarf.iter_CUs():
    found = unit.get_top_DIE().attributes.get("DW_AT_ranges")
    if found is not None:
        ranges.get_range_list_at_offset(found.value, cu=unit)
""",
}
"""Libraries that read symbols with their sizes, or compilation units with their ranges."""
READING = (sys.executable, "-c", READ)
PADDING = 63
"""Most bytes between two symbols or sections that are padding: alignment is at most 64."""
MOST_TOLD = 40
PREFIXES = {"ARM": "arm-none-eabi-", "RISC-V": "riscv64-unknown-elf-"}
"""Of the programs of GCC that puncover calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePeers:
    """Read programs with `mlgokit size` and with its peers, and compare what they say, time and memory."""

    bloaty: Path
    """The program."""
    python: Path
    """The Python that has puncover, membrowse, lief and pyelftools."""
    programs: tuple[Path, ...] = ()
    """Programs and libraries with symbols, which bloaty reads too."""
    firmware: tuple[Path, ...] = ()
    """Firmwares for ARM or RISC-V, which all peers read."""
    repetitions: int = 3
    """Times that each reads a program; the median of processor times counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a reading took: seconds of processor time, the median, and bytes of memory, the largest."""

    seconds: float
    peak: int


Row = tuple[Cell, ...]
Sizes = tuple[int, int]
"""Bytes in the file and in memory."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(SizePeers, measure, arguments)


def measure(config: SizePeers, setup: Setup) -> Result:
    """Read, compare and time."""
    setup.tools["bloaty"] = _text([config.bloaty, "--version"]).strip()
    names = ("puncover", "membrowse", "lief", "pyelftools")
    versions = f"import importlib.metadata as m; print(*[m.version(name) for name in {names!r}])"
    setup.tools.update(zip(names, _text([config.python, "-c", versions]).split(), strict=True))
    rows: list[Row] = []
    others: list[Row] = []
    told: list[Row] = []
    readers = time_readers(config)
    files = [*config.programs, *config.firmware]
    for place, path in enumerate(files):
        setup.report(place, len(files), f"read {path.name}")
        setup.inputs[path.name] = digest_file(path)
        ours = json.loads(_text([*OURS, path, "--json"]))
        spent = _spent([*OURS, str(path)], config.repetitions), _spent([*READING, str(path)], config.repetitions)
        row, unlike = beside_bloaty(config, path, ours, spent)
        rows.append(row)
        told += unlike
        if path in config.firmware:
            for reader, row, unlike in beside_readers(config, path, ours, spent):
                others.append((path.name, reader, *row))
                told += [(path.name, reader, *one) for one in unlike]
    whole, reading, memory, whole_reader, reading_reader = (
        statistics.median([cell for row in table if isinstance(cell := row[column], float)] or [math.nan])
        for table, column in ((rows, -3), (rows, -2), (rows, -1), (others, -3), (others, -2))
    )
    return Result(
        benchmark="size_peers",
        question="Does `mlgokit size` say what bloaty, puncover and membrowse say, and how long does it take?",
        answer=f"Of {len(rows)} programs {len(told)} sections and symbols differ for another reason than padding and "
        f"overlaps; the command takes {whole:.2f} times bloaty's processor time in the median, its reading alone "
        f"{reading:.2f}, and {memory:.2f} times its memory; beside puncover and membrowse {whole_reader:.2f} and "
        f"{reading_reader:.2f} times their time",
        bar="nothing differs for another reason, and at most the time of each",
        passed=not told and max(whole, whole_reader) <= 1,
        seed=0,
        tables=(
            Table(
                title="Beside bloaty",
                columns=(
                    "program",
                    "bytes",
                    "sections alike",
                    "with padding, or threads'",
                    "symbols alike",
                    "with padding",
                    "otherwise",
                    "different",
                    "time",
                    "time of reading",
                    "memory",
                ),
                rows=tuple(rows),
                note="Sections by their bytes in the file and in memory, symbols by their bytes in memory. With "
                "padding: bloaty gives the bytes up to the next section or symbol to the one before; ours are those "
                "of llvm-size and llvm-nm. Otherwise: bloaty adds up symbols of one name, may have another name of a "
                "place, and leaves out thread-local variables, to whose section it gives the memory of those behind "
                "it. Time and memory are ratios, ours over bloaty's, of whole processes that show sections, symbols "
                "and, where there are any, compilation units; that of reading is without the start of the command "
                "line and what it prints.",
            ),
            Table(
                title="Beside readers of firmware",
                columns=(
                    "program",
                    "reader",
                    "symbols alike",
                    "overlaps",
                    "different",
                    "only in ours",
                    "time",
                    "time of reading",
                    "memory",
                ),
                rows=tuple(others),
                note="Symbols of both by name and size. Overlaps: another symbol begins inside of it, whose bytes "
                "count once in ours and twice in theirs. Only in ours: further names of a place.",
            ),
            readers,
            Table(
                title="What is different",
                columns=("program", "peer", "name", "ours", "theirs"),
                rows=tuple(told[:MOST_TOLD]),
                note=f"The first {MOST_TOLD} of {len(told)}.",
            ),
        ),
    )


def time_readers(config: SizePeers) -> Table:
    """What libraries take that read symbols or compilation units, for the first program."""
    program = str(config.programs[0])
    dwarf = [str(find_llvm_tool("llvm-dwarfdump")), "--debug-info", "--recurse-depth=0", program]
    calls = {
        name: [sys.executable if name.startswith("our") else str(config.python), "-c", text, program]
        for name, text in READERS.items()
    }
    calls["llvm-dwarfdump, compilation units"] = dwarf
    rows: list[Row] = []
    for name, words in calls.items():
        spent = _spent(words, config.repetitions)
        rows.append((name, spent.seconds, spent.peak / 2**20))
    return Table(
        title="Libraries",
        columns=("reader", "seconds", "MiB"),
        rows=tuple(rows),
        note=f"Processor time and memory of a process that reads {Path(program).name}.",
    )


def beside_bloaty(
    config: SizePeers, path: Path, ours: dict[str, Any], spent: tuple[Spent, Spent]
) -> tuple[Row, list[Row]]:
    """What bloaty says of a program: a row, and what is different."""
    groups = "compileunits,sections,symbols" if ours["sources"] else "sections,symbols"
    text = _text([config.bloaty, "--csv", "-n", "0", "-d", "sections,rawsymbols", path])
    theirs = _spent([str(config.bloaty), "-d", groups, str(path)], config.repetitions)
    sections: dict[str, Sizes] = {}
    symbols: dict[str, dict[str, int]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        section = row["sections"]
        file, memory = sections.get(section, (0, 0))
        sections[section] = file + int(row["filesize"]), memory + int(row["vmsize"])
        symbols.setdefault(section, {})[row["rawsymbols"]] = int(row["vmsize"])
    alike, padded, unlike = compare_sections(ours, sections)
    same, longer, shared, different = compare_symbols(ours, symbols)
    row = (path.name, ours["file_bytes"], alike, padded, same, longer, shared, len(unlike) + len(different))
    return (*row, *_ratios(spent, theirs)), [(path.name, "bloaty", *one) for one in (*unlike, *different)]


def behind_threads(ours: dict[str, Any]) -> set[str]:
    """Names of .tbss, which takes no memory where it is, and of the sections at its addresses."""
    places = [
        range(one["address"], one["address"] + one["memory"]) for one in ours["sections"] if one["name"] == ".tbss"
    ]
    return {one["name"] for one in ours["sections"] if any(one["address"] in place for place in places)}


def compare_sections(ours: dict[str, Any], theirs: dict[str, Sizes]) -> tuple[int, int, list[Row]]:
    """How many sections are alike, how many longer by padding, and the others; those of one name count together."""
    sums: dict[str, Sizes] = {}
    for one in ours["sections"]:
        file, memory = sums.get(one["name"], (0, 0))
        sums[one["name"]] = file + one["file"], memory + one["memory"]
    alike = padded = 0
    unlike: list[Row] = []
    overlaid = behind_threads(ours)
    for name, sizes in sums.items():
        if not any(sizes):
            continue
        others = theirs.get(name, (0, 0))
        more = [other - size for size, other in zip(sizes, others, strict=True)]
        if not any(more):
            alike += 1
        elif all(0 <= one <= PADDING for one in more) or (0 <= more[0] <= PADDING and name in overlaid):
            padded += 1
        else:
            unlike.append((name, f"{sizes[0]}, {sizes[1]}", f"{others[0]}, {others[1]}"))
    return alike, padded, unlike


def compare_symbols(ours: dict[str, Any], theirs: dict[str, dict[str, int]]) -> tuple[int, int, int, list[Row]]:
    """How many symbols are alike, longer by padding, and named or added up otherwise; and the others.

    Example:
        >>> def symbol(*names, address, memory):
        ...     return {"names": names, "section": ".text", "address": address, "memory": memory}
        >>> text = {"name": ".text", "address": 0, "memory": 64}
        >>> found = [symbol("f", address=0, memory=16), symbol("g", address=16, memory=9)]
        >>> compare_symbols({"symbols": found, "sections": [text]}, {".text": {"f": 16, "g": 16}})
        (1, 1, 0, [])
    """
    ends = {one["name"]: one["address"] + one["memory"] + PADDING for one in ours["sections"]}
    places = sorted({(one["section"], one["address"]) for one in ours["symbols"]})
    after = {
        place: follower[1] if follower[0] == place[0] else ends[place[0]]
        for place, follower in zip(places, [*places[1:], ("", 0)], strict=True)
    }
    overlaid = behind_threads(ours)
    counts = Counter((one["section"], name) for one in ours["symbols"] for name in one["names"])
    same = padded = shared = 0
    different: list[Row] = []
    for one in ours["symbols"]:
        section, size = one["section"], one["memory"]
        if not size:
            continue
        known = theirs.get(section, {})
        found = [known[name] for name in one["names"] if name in known]
        most = after[section, one["address"]] - one["address"]
        if size in found:
            same += 1
        elif any(size < other <= most for other in found):
            padded += 1
        elif (
            section in overlaid
            or section == ".tdata"
            or len(one["names"]) > 1
            or any(counts[section, name] > 1 for name in one["names"])
        ):
            shared += 1
        else:
            different.append((one["names"][0], str(size), str(found[0] if found else "none")))
    return same, padded, shared, different


def beside_readers(
    config: SizePeers, path: Path, ours: dict[str, Any], spent: tuple[Spent, Spent]
) -> Iterator[tuple[str, Row, list[Row]]]:
    """What puncover and membrowse say of a firmware: the reader, a row, and what is different."""
    prefix = next((words for machine, words in PREFIXES.items() if f" {machine} " in ours["kind"]), "")
    prefix = (shutil.which(f"{prefix}objdump") or "objdump").removesuffix("objdump")
    words = [str(config.python), "-c", PUNCOVER, prefix, str(path)]
    yield "puncover", *_compare_reader(ours, dict(json.loads(_text(words).splitlines()[-1])), words, config, spent)
    words = [str(config.python.with_name("membrowse")), "report", "--json", "--all-symbols", str(path)]
    symbols = {one["name"]: one["size"] for one in json.loads(_text(words))["symbols"] if one["size"]}
    yield "membrowse", *_compare_reader(ours, symbols, words, config, spent)


def _compare_reader(
    ours: dict[str, Any],
    symbols: dict[str, int],
    words: Sequence[str],
    config: SizePeers,
    spent: tuple[Spent, Spent],
) -> tuple[Row, list[Row]]:
    theirs = _spent(words, config.repetitions)
    places = sorted(one["address"] for one in ours["symbols"])
    names = Counter(name for one in ours["symbols"] for name in one["names"])
    alike = overlaps = absent = 0
    different: list[Row] = []
    for one in ours["symbols"]:
        for name in one["names"]:
            size = symbols.get(name)
            following = bisect.bisect_right(places, one["address"])
            if size is None:
                absent += 1
            elif size == one["memory"] or names[name] > 1:
                alike += 1
            elif following < len(places) and places[following] < one["address"] + size:
                overlaps += 1
            else:
                different.append((name, str(one["memory"]), str(size)))
    return (alike, overlaps, len(different), absent, *_ratios(spent, theirs)), different


def _ratios(ours: tuple[Spent, Spent], theirs: Spent) -> tuple[float, float, float]:
    """Time of the command, of reading alone, and memory of the command, as multiples of a peer's."""
    return ours[0].seconds / theirs.seconds, ours[1].seconds / theirs.seconds, ours[0].peak / theirs.peak


def _text(words: Sequence[str | Path]) -> str:
    done = process.run(list(words), timeout_seconds=SECONDS)
    if done.returncode:
        raise ToolError(f"{words[0]}: expected it to end well, found: {done.stderr}; install it")
    return done.stdout.decode("utf-8", "replace")


def _spent(words: Sequence[str], repetitions: int) -> Spent:
    """What a program takes."""
    seconds: list[float] = []
    peaks: list[int] = []
    with tempfile.NamedTemporaryFile() as printed:
        for _ in range(repetitions):
            measured = [sys.executable, "-I", "-S", "-c", MEASURED, printed.name, *words]
            done = process.run(measured, timeout_seconds=SECONDS)
            code, took, peak, complaint = json.loads(done.stdout)
            if code:
                raise ToolError(f"{words[0]}: expected it to end well, found {code}: {complaint}; look at the program")
            seconds.append(took)
            peaks.append(peak)
    return Spent(seconds=statistics.median(seconds), peak=max(peaks))


if __name__ == "__main__":
    sys.exit(main())
