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
from mlgokit.compiler.objects import elf
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
PASS = (sys.executable, "-c", "pass")
REASONS = ("with padding", "in the padding before", "together", "thread-local", "at addresses of .tbss")
"""Why a symbol has other bytes in bloaty, each shown of the symbol itself."""
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
    starts, readers = time_starts(config), time_readers(config)
    files = [*config.programs, *config.firmware]
    for place, path in enumerate(files):
        setup.report(place, len(files), f"read {path.name}")
        setup.inputs[path.name] = digest_file(path)
        ours = json.loads(_text([*OURS, path, "--json"]))
        row, unlike = beside_bloaty(config, path, ours)
        rows.append(row)
        told += unlike
        if path in config.firmware:
            for reader, row, unlike in beside_readers(config, path, ours):
                others.append((path.name, reader, *row))
                told += [(path.name, reader, *one) for one in unlike]
    whole, everything, memory = (_median(rows, column) for column in (-3, -2, -1))
    of_puncover, of_membrowse = (
        _median([row for row in others if row[1] == reader], -3) for reader in ("puncover", "membrowse")
    )
    at_once = [row for row in rows if isinstance(row[-4], float) and row[-4] > 1]
    beyond = [row for row in rows if row not in at_once]
    return Result(
        benchmark="size_peers",
        question="Does `mlgokit size` say what bloaty, puncover and membrowse say, and how long does it take?",
        answer=f"Of {len(rows)} programs {len(told)} sections and symbols differ for a reason that is not named below; "
        f"the command takes {whole:.2f} times bloaty's processor time in the median, {everything:.2f} times if all "
        f"symbols are told, and {memory:.2f} times its memory; it takes {of_puncover:.2f} times the processor time of "
        f"puncover's command, and {of_membrowse:.2f} times that of membrowse's. It takes {_span(at_once)} times that "
        f"of bloaty for the {len(at_once)} programs that bloaty reads before Python has started, and {_span(beyond)} "
        "times that for the others",
        bar="nothing differs for another reason, and in the median at most the time of each",
        passed=not told and max(whole, of_puncover, of_membrowse) <= 1,
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
                    *REASONS,
                    "different",
                    "time of Python's start",
                    "time",
                    "time of all",
                    "memory",
                ),
                rows=tuple(rows),
                note="Sections by their bytes in the file and in memory, symbols by their bytes in memory, those of no "
                "bytes not counted. Padding: bloaty gives the bytes up to the next section or symbol to the one "
                "before; ours are those of llvm-size and llvm-nm. In the padding before: bytes before the symbol are "
                "its own too, which belong to symbols of size 0. Together: symbols that have a name in common, which "
                "bloaty adds up, or that overlap, whose bytes it gives to one of them; all of them together are alike, "
                "but for padding. Thread-local: it leaves them out. At addresses of .tbss: .tbss takes no memory where "
                "it is, but bloaty gives it that of what is there; each symbol lacks just the bytes at these "
                "addresses. Time and memory are ratios, ours over bloaty's, of whole processes: that of `mlgokit size "
                "FILE` over that of bloaty with sections, symbols and, where there are any, compilation units, both "
                "of which show the largest; of all, that of `--json` over that of bloaty's `--csv -n 0`. Python's "
                "start, `python -c pass` over bloaty, is what no program in Python can be below.",
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
                "count once in ours and twice in theirs. Only in ours: further names of a place. Time is that of "
                "`mlgokit size FILE` over that of `puncover --non-interactive --generate-report`, which reads and "
                "derives all and prints nothing of it, and that of `mlgokit size FILE --json` over that of `membrowse "
                "report --json --all-symbols`. That of reading is without start and output of the command lines: our "
                "`measure_file` over puncover's `Collector.parse_elf`; membrowse has none.",
            ),
            starts,
            readers,
            *(
                [
                    Table(
                        title="What is different",
                        columns=("program", "peer", "name", "ours", "theirs"),
                        rows=tuple(told[:MOST_TOLD]),
                        note=f"The first {MOST_TOLD} of {len(told)}.",
                    )
                ]
                if told
                else []
            ),
        ),
    )


def _span(rows: Sequence[Row]) -> str:
    """The least and the most time of programs beside bloaty."""
    times = [cell for row in rows if isinstance(cell := row[-3], float)]
    return f"{min(times):.2f} to {max(times):.2f}" if times else "no"


def _median(rows: Sequence[Row], column: int) -> float:
    return statistics.median([cell for row in rows if isinstance(cell := row[column], float)] or [math.nan])


def time_starts(config: SizePeers) -> Table:
    """What is needed before anything is read."""
    starts = {
        "python -c pass": PASS,
        "python -c 'import numpy'": (sys.executable, "-c", "import numpy"),
        "mlgokit --version": (*OURS[:-1], "--version"),
        "puncover --help": (str(config.python.with_name("puncover")), "--help"),
        "membrowse --help": (str(config.python.with_name("membrowse")), "--help"),
        "bloaty --version": (str(config.bloaty), "--version"),
    }
    spent = _spent(list(starts.values()), config.repetitions)
    return Table(
        title="Starts",
        columns=("program", "seconds", "MiB"),
        rows=tuple((name, one.seconds, one.peak / 2**20) for name, one in zip(starts, spent, strict=True)),
        note="Processor time and memory of processes that do nothing.",
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
    spent = _spent(list(calls.values()), config.repetitions)
    return Table(
        title="Libraries",
        columns=("reader", "seconds", "MiB"),
        rows=tuple((name, one.seconds, one.peak / 2**20) for name, one in zip(calls, spent, strict=True)),
        note=f"Processor time and memory of a process that reads {Path(program).name}.",
    )


def beside_bloaty(config: SizePeers, path: Path, ours: dict[str, Any]) -> tuple[Row, list[Row]]:
    """What bloaty says of a program: a row, and what is different."""
    groups = "compileunits,sections,symbols" if ours["sources"] else "sections,symbols"
    text = _text([config.bloaty, "--csv", "-n", "0", "-d", "sections,rawsymbols", path])
    bloaty = (str(config.bloaty), "-d", groups, str(path))
    calls = [PASS, (*OURS, str(path)), (*OURS, str(path), "--json"), bloaty, (*bloaty, "--csv", "-n", "0")]
    start, shown, all_of_it, theirs, all_of_theirs = _spent(calls, config.repetitions)
    sections: dict[str, Sizes] = {}
    symbols: dict[str, dict[str, int]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        section = row["sections"]
        file, memory = sections.get(section, (0, 0))
        sections[section] = file + int(row["filesize"]), memory + int(row["vmsize"])
        symbols.setdefault(section, {})[row["rawsymbols"]] = int(row["vmsize"])
    alike, padded, unlike = compare_sections(ours, sections)
    counts, different = compare_symbols(ours, symbols, symbol_ranges(path))
    row = (path.name, ours["file_bytes"], alike, padded, *(counts[reason] for reason in ("", *REASONS)))
    ratios = (
        start.seconds / theirs.seconds,
        shown.seconds / theirs.seconds,
        all_of_it.seconds / all_of_theirs.seconds,
        shown.peak / theirs.peak,
    )
    return (*row, len(unlike) + len(different), *ratios), [(path.name, "bloaty", *one) for one in (*unlike, *different)]


def symbol_ranges(path: Path) -> list[tuple[int, int]]:
    """Where each symbol with a size begins and ends, as the file's table has it."""
    file = elf.read_elf(path)
    table = elf.read_symbols(file).table
    if not len(table):
        table = elf.read_symbols(file, kind=elf.SHT_DYNSYM).table
    table = table[(table["size"] > 0) & (table["section"] > 0)]
    return [(value, value + size) for value, size in zip(table["value"].tolist(), table["size"].tolist(), strict=True)]


def thread_addresses(ours: dict[str, Any]) -> list[range]:
    """The addresses of .tbss, which takes no memory where it is; other sections are there as well."""
    return [range(one["address"], one["address"] + one["memory"]) for one in ours["sections"] if one["name"] == ".tbss"]


def hidden_bytes(one: dict[str, Any], addresses: Sequence[range]) -> int:
    """How many bytes of a section or symbol are at some addresses."""
    begin, end = one["address"], one["address"] + one["memory"]
    return sum(max(0, min(end, place.stop) - max(begin, place.start)) for place in addresses)


def compare_sections(ours: dict[str, Any], theirs: dict[str, Sizes]) -> tuple[int, int, list[Row]]:
    """How many sections are alike, how many longer by padding, and the others; those of one name count together."""
    sums: dict[str, Sizes] = {}
    hidden: Counter[str] = Counter()
    addresses = thread_addresses(ours)
    for one in ours["sections"]:
        name = one["name"]
        file, memory = sums.get(name, (0, 0))
        sums[name] = file + one["file"], memory + one["memory"]
        hidden[name] += 0 if name == ".tbss" else hidden_bytes(one, addresses)
    alike = padded = 0
    unlike: list[Row] = []
    for name, sizes in sums.items():
        if not any(sizes):
            continue
        others = theirs.get(name, (0, 0))
        more = [other - size for size, other in zip(sizes, others, strict=True)]
        if not any(more):
            alike += 1
        elif 0 <= more[0] <= PADDING and -hidden[name] <= more[1] <= PADDING:
            padded += 1
        else:
            unlike.append((name, f"{sizes[0]}, {sizes[1]}", f"{others[0]}, {others[1]}"))
    return alike, padded, unlike


def compare_symbols(
    ours: dict[str, Any], theirs: dict[str, dict[str, int]], ranges: Sequence[tuple[int, int]] = ()
) -> tuple[Counter[str], list[Row]]:
    """How many symbols are alike, as the reason "", and for which of REASONS others differ; and the rest.

    Args:
        ours: what we say of a program.
        theirs: bytes in memory by section and symbol.
        ranges: where each symbol begins and ends.

    Example:
        >>> def symbol(*names, address, memory):
        ...     return {"names": names, "section": ".text", "address": address, "memory": memory}
        >>> text = {"name": ".text", "address": 0, "memory": 64}
        >>> found = [symbol("f", address=0, memory=16), symbol("g", address=16, memory=9)]
        >>> compare_symbols({"symbols": found, "sections": [text]}, {".text": {"f": 16, "g": 16}})
        (Counter({'': 1, 'with padding': 1}), [])
    """
    symbols = sorted(
        (one for one in ours["symbols"] if one["memory"]), key=lambda one: (one["section"], one["address"])
    )
    ends = {one["name"]: one["address"] + one["memory"] + PADDING for one in ours["sections"]}
    before, after = _padding(symbols, ends)
    addresses = thread_addresses(ours)
    counts: Counter[str] = Counter()
    different: list[Row] = []
    for group in _groups(symbols, ranges):
        members = [symbols[place] for place in group]
        known = theirs.get(members[0]["section"], {})
        names = {name for one in members for name in one["names"]}
        found = sum(known.get(name, 0) for name in names)
        size = sum(one["memory"] for one in members)
        hidden = sum(hidden_bytes(one, addresses) for one in members)
        most = size + sum(after[place] for place in group)
        reason = None
        if members[0]["section"] in {".tdata", ".tbss"} and not found:
            reason = "thread-local"
        elif size <= found <= most:
            reason = "together" if len(members) > 1 else "with padding" if found > size else ""
        elif hidden and size - hidden <= found <= most:
            reason = "at addresses of .tbss"
        elif size <= found <= most + sum(before[place] for place in group):
            reason = "in the padding before"
        if reason is None:
            different.append((", ".join(sorted(names)), str(size), str(found) if found else "none"))
        else:
            counts[reason] += len(members)
    return counts, different


def _padding(symbols: Sequence[dict[str, Any]], ends: dict[str, int]) -> tuple[list[int], list[int]]:
    """Bytes that no symbol has, in front of each symbol and behind it, of symbols in the order of their addresses."""
    before, after = [0] * len(symbols), [0] * len(symbols)
    for place, one in enumerate(symbols):
        end = one["address"] + one["memory"]
        follower = symbols[place + 1] if place + 1 < len(symbols) else {"section": ""}
        if follower["section"] == one["section"]:
            before[place + 1] = after[place] = max(0, follower["address"] - end)
        else:
            after[place] = max(0, ends[one["section"]] - end)
    return before, after


def _groups(symbols: Sequence[dict[str, Any]], ranges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Places of symbols that have a name in common or overlap, of symbols in the order of their addresses."""
    group = list(range(len(symbols)))

    def first(place: int) -> int:
        while group[place] != place:
            group[place] = place = group[group[place]]
        return place

    named: dict[tuple[str, str], int] = {}
    by_address: dict[int, int] = {}
    for place, one in enumerate(symbols):
        if one["section"] != ".tbss":
            by_address[one["address"]] = place
        for name in one["names"]:
            group[first(place)] = first(named.setdefault((one["section"], name), place))
    order = sorted(by_address)
    for begin, end in ranges:
        inside = order[bisect.bisect_left(order, begin) : bisect.bisect_left(order, end)]
        for address in inside[1:]:
            if symbols[by_address[address]]["section"] == symbols[by_address[inside[0]]]["section"]:
                group[first(by_address[address])] = first(by_address[inside[0]])
    found: dict[int, list[int]] = {}
    for place in range(len(symbols)):
        found.setdefault(first(place), []).append(place)
    return list(found.values())


def beside_readers(config: SizePeers, path: Path, ours: dict[str, Any]) -> Iterator[tuple[str, Row, list[Row]]]:
    """What puncover and membrowse say of a firmware: the reader, a row, and what is different."""
    prefix = next((words for machine, words in PREFIXES.items() if f" {machine} " in ours["kind"]), "")
    prefix = (shutil.which(f"{prefix}objdump") or "objdump").removesuffix("objdump")
    reading = [str(config.python), "-c", PUNCOVER, prefix, str(path)]
    symbols = dict(json.loads(_text(reading).splitlines()[-1]))
    with tempfile.TemporaryDirectory() as folder:
        words = [
            str(config.python.with_name("puncover")), "--gcc-tools-base", prefix, "--non-interactive",
            "--generate-report", "--report-filename", f"{folder}/report", str(path),
        ]  # fmt: skip
        shown, theirs, read, they_read = _spent(
            [(*OURS, str(path)), words, (*READING, str(path)), reading], config.repetitions
        )
    counts, different = _compare_reader(ours, symbols)
    yield "puncover", (*counts, *_ratios(shown, theirs, read.seconds / they_read.seconds)), different
    words = [str(config.python.with_name("membrowse")), "report", "--json", "--all-symbols", str(path)]
    symbols = {one["name"]: one["size"] for one in json.loads(_text(words))["symbols"] if one["size"]}
    shown, theirs = _spent([(*OURS, str(path), "--json"), words], config.repetitions)
    counts, different = _compare_reader(ours, symbols)
    yield "membrowse", (*counts, *_ratios(shown, theirs, "")), different


def _compare_reader(ours: dict[str, Any], symbols: dict[str, int]) -> tuple[Row, list[Row]]:
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
    return (alike, overlaps, len(different), absent), different


def _ratios(ours: Spent, theirs: Spent, reading: Cell) -> Row:
    """Time, time of reading, and memory, as multiples of a peer's."""
    return ours.seconds / theirs.seconds, reading, ours.peak / theirs.peak


def _text(words: Sequence[str | Path]) -> str:
    done = process.run(list(words), timeout_seconds=SECONDS)
    if done.returncode:
        raise ToolError(f"{words[0]}: expected it to end well, found: {done.stderr}; install it")
    return done.stdout.decode("utf-8", "replace")


def _spent(calls: Sequence[Sequence[str]], repetitions: int) -> list[Spent]:
    """What programs take, run by turns, so that a load of the machine is that of all."""
    seconds: list[list[float]] = [[] for _ in calls]
    peaks: list[list[int]] = [[] for _ in calls]
    with tempfile.NamedTemporaryFile() as printed:
        for _ in range(repetitions):
            for place, words in enumerate(calls):
                # From the root, below which puncover finds all sources.
                measured = [sys.executable, "-I", "-S", "-c", MEASURED, printed.name, *words]
                done = process.run(measured, timeout_seconds=SECONDS, cwd=Path("/"))
                code, took, peak, complaint = json.loads(done.stdout)
                if code:
                    raise ToolError(
                        f"{words[0]}: expected it to end well, found {code}: {complaint}; look at the program"
                    )
                seconds[place].append(took)
                peaks[place].append(peak)
    return [Spent(seconds=statistics.median(took), peak=max(most)) for took, most in zip(seconds, peaks, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
