"""Holds the measured numbers of README.md and docs/ against the results that they name.

A number that looks measured (a percentage, a factor, a time, bytes, a signed decimal) is followed, in its paragraph,
list item or table row, by a comment that readers do not see. It has one entry for each such number before it, in order:

    The image is 10.1 % smaller, its code 8.4 %.
    <!-- result: tuning.json > Geometric means > tune from policy & c++ & 15 > objects linked; > of that .text -->

An entry is a file below docs/results and the way to one value: keys of objects, titles of tables, cells of a row
joined by `&`, a column. An entry that begins with `>` takes the file and the way of the one before, but for as many
last steps as it has. `*` takes all of a list, and `as` ends an entry with what is done with the value:

    quickstart.json > stages > * > seconds as sum, minutes

What is not measured is marked with the reason: `not measured (an option's default)` as an entry, or
`<!-- not measured: an option's default -->` for all numbers before it. `<!-- not measured on this page: why -->` frees
a whole page.

Run `python scripts/claims.py` for all that is wrong, `--show` also for all that holds.
"""

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"

_NUMBER = r"(?<![\w.,:/#=])[-+\u2212]?\d(?:[\d,]*\d)?(?:\.\d+)?"
_UNIT = (
    r"%|per cent\b|percent\b|times\b|x\b|(?:core-)?(?:micro|milli|nano)?(?:seconds?|minutes?|hours?)\b"
    r"|\u00b5s\b|[mnu]?s\b|h\b|min\b|bytes?\b|(?:[kKMG]i?)?B\b"
)
_QUANTITY = re.compile(
    rf"(?P<row>(?:{_NUMBER}(?:\s*%)?(?:\s+to\s+|\s+and\s+|,\s+|\s+or\s+|\s+against\s+|\s*/\s*))*){_NUMBER}(?:\s|-)?(?:{_UNIT})"
    r"|(?<![\w.,])[-+\u2212]\d+\.\d+(?![\w.])"
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten)(?: to (?:three|four|five|six|seven|eight|nine|ten))? times"
    r"(?= (?:as|the|more|faster|smaller|larger)\b)"
)
_WORDS = {
    word: number
    for number, word in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 2)
}
_COMMENT = re.compile(r"<!--\s*(result|not measured|not measured on this page):\s*(.*?)\s*-->", re.DOTALL)
_AT_MOST = re.compile(r"\b(?:at most|up to|less than|fewer than|under|below|within)\s*$")
_AT_LEAST = re.compile(r"\b(?:at least|more than|over|above)\s*$")
_ABOUT = re.compile(r"\b(?:about|nearly|some|around)\s*$")
_ABOUT_TOLERANCE = 0.05
_ENDING = re.compile(r" as ([a-zA-Z]+(?: \d+)?(?:, [a-zA-Z]+(?: \d+)?)*)$")

_LISTS: dict[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "count": len,
}
_FACTORS = {"percent": 100.0, "minutes": 1 / 60, "kB": 1e-3, "MB": 1e-6, "GB": 1e-9, "negative": -1.0}


class ClaimError(Exception):
    """An annotation that leads to no value; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number in a document that looks measured.

    Attributes:
        text: as it stands there, with its sign.
        end: offset behind it.
        line: in which it stands, from 1.
        before: the words before it, which may say `about` or `at most`.
    """

    text: str
    end: int
    line: int
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the check says about one number.

    Attributes:
        place: document and line.
        number: as it stands there.
        fault: what is wrong, one sentence, or empty.
        source: the entry that it was held against.
    """

    place: str
    number: str
    fault: str = ""
    source: str = ""


def documents() -> list[Path]:
    """README.md, the pages of docs/ that people write, and the cards of policies; a test compares tables of results."""
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")]
    kept = [page for page in pages if not {"results", "generated"}.intersection(page.relative_to(ROOT).parts)]
    return [ROOT / "README.md", *sorted(kept)]


def check(text: str, *, name: str, results: Path = RESULTS) -> list[Verdict]:
    """What is to be said about each number of ``text``, in order."""
    if re.search(r"<!--\s*not measured on this page:\s*\S", text):
        return []
    found: list[Verdict] = []
    for start, block in _blocks(text):
        open_numbers = list(_numbers(block, first_line=text.count("\n", 0, start) + 1))
        for comment in _COMMENT.finditer(block):
            here = [number for number in open_numbers if number.end <= comment.start()]
            open_numbers = open_numbers[len(here) :]
            line = text.count("\n", 0, start + comment.start()) + 1
            found += _judged(comment, here, name=name, line=line, results=results)
        found += [
            Verdict(
                place=f"{name}:{number.line}",
                number=number.text,
                fault="expected the result that it is from, found none; add <!-- result: FILE.json > WAY --> behind "
                "it, or <!-- not measured: WHY -->",
            )
            for number in open_numbers
        ]
    return found


def _judged(
    comment: re.Match[str], numbers: Sequence[Number], *, name: str, line: int, results: Path
) -> Iterator[Verdict]:
    kind, content = comment[1], re.sub(r"\s+", " ", comment[2])
    if reason := _shows(comment):
        yield Verdict(place=f"{name}:{line}", number="", fault=f"expected a comment that readers do not see, {reason}")
    shown = ", ".join(number.text for number in numbers)
    if not numbers:
        yield Verdict(
            place=f"{name}:{line}",
            number="",
            fault=f"expected a number before the comment {content!r}, found none; put it behind the number",
        )
        return
    if not content:
        yield Verdict(place=f"{name}:{line}", number=shown, fault="expected a reason or a result, found none; add it")
        return
    entries = [f"not measured ({content})"] * len(numbers) if kind == "not measured" else _entries(content)
    if len(entries) != len(numbers):
        yield Verdict(
            place=f"{name}:{line}",
            number=shown,
            fault=f"expected one entry for each of {len(numbers)} numbers, found {len(entries)}; "
            "give one for each, in their order, with ; between them",
        )
        return
    for number, entry in zip(numbers, entries, strict=True):
        place = f"{name}:{number.line}"
        if re.fullmatch(r"not measured \(.+\)", entry):
            yield Verdict(place=place, number=number.text, source=entry)
            continue
        try:
            value = value_of(entry, results)
        except ClaimError as error:
            yield Verdict(place=place, number=number.text, fault=str(error), source=entry)
            continue
        fault = (
            "" if agrees(number, value) else f"expected {value:.6g} by {entry}, found {number.text}; mend the number"
        )
        yield Verdict(place=place, number=number.text, fault=fault, source=entry)


def _shows(comment: re.Match[str]) -> str:
    """Why a comment would be seen on some page, or end its paragraph early; nothing if it would not."""
    begin, end = comment.string.rfind("\n", 0, comment.start()) + 1, comment.end()
    if "--" in comment[2]:
        return "found -- in it, which some readers of Markdown do not take; use other words"
    if not comment.string[begin : comment.start()].strip() and comment.string[end:].strip():
        return "found one at the beginning of a line with text behind it; put it behind a word or at the end"
    return ""


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, list items and table rows with their offsets; code is blanked out."""
    text = re.sub(r"^ *(```|~~~).*?^ *\1", _blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", _blank, text)
    text = re.sub(r"(?<=\])\([^)\s]*\)", _blank, text)
    begin = 0
    for line in re.finditer(r"^.*$\n?", text, flags=re.MULTILINE):
        starts = re.match(r"\s*$|\s*\|| *[-*] | *\d+\. |#", line[0])
        ends = re.match(r"\s*$|\s*\||#", line[0])
        if starts and text[begin : line.start()].strip():
            yield begin, text[begin : line.start()]
        if starts:
            begin = line.start()
        if ends:
            yield line.start(), line[0]
            begin = line.end()
    if text[begin:].strip():
        yield begin, text[begin:]


def _blank(match: re.Match[str]) -> str:
    """As many blanks, so that offsets and lines stay; letters where words were, which no unit may follow."""
    return re.sub(r"[^\n]", "_", match[0])


def _numbers(block: str, *, first_line: int) -> Iterator[Number]:
    plain = re.sub(r"<!--.*?-->", lambda match: re.sub(r"[^\n]", " ", match[0]), block, flags=re.DOTALL)
    for quantity in _QUANTITY.finditer(plain):
        words = "|".join(_WORDS)
        for match in re.finditer(rf"{_NUMBER}|[-+\u2212]\d+\.\d+|\b(?:{words})\b", quantity[0]):
            start = quantity.start() + match.start()
            yield Number(
                text=match[0],
                end=quantity.start() + match.end(),
                line=first_line + plain.count("\n", 0, start),
                before=re.sub(r"\s+", " ", plain[:start])[-30:],
            )


def _entries(content: str) -> list[str]:
    """The entries of a comment, with what they leave out filled in."""
    whole: list[str] = []
    for entry in (part.strip() for part in content.split(";")):
        if entry.startswith(">") and whole:
            steps = [step.strip() for step in entry.split(">")[1:]]
            known = _ENDING.sub("", whole[-1]).split(" > ")
            whole.append(" > ".join([*known[: max(1, len(known) - len(steps))], *steps]))
        else:
            whole.append(entry)
    return whole


def value_of(entry: str, results: Path = RESULTS) -> float:
    """The value that an entry leads to.

    Raises:
        ClaimError: it leads nowhere, or to no number.
    """
    ending = _ENDING.search(entry)
    name, *steps = [step.strip() for step in _ENDING.sub("", entry).split(" > ")]
    path = results / name
    try:
        value: object = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ClaimError(f"expected a JSON file docs/results/{name}, found: {error}; correct the comment") from error
    for number, step in enumerate(steps):
        value = _followed(value, step, shown=" > ".join([name, *steps[:number]]))
    for part in ending[1].split(", ") if ending else ():
        value = _changed(value, part, entry)
    return _number(value, entry)


def _followed(value: object, step: str, *, shown: str) -> object:
    """What ``step`` selects of ``value``; of all of a list if it was opened by ``*``."""
    if isinstance(value, _All):
        return _All([_followed(part, step, shown=shown) for part in value.parts])
    if step == "*":
        return _All(_parts(value))
    found, known = _selected(value, step)
    if len(found) != 1:
        ways = f"one of {', '.join(known)}" if known else "nothing more"
        raise ClaimError(f"expected {ways} in {shown}, found {step!r} {len(found)} times; correct the way")
    return found[0]


def _parts(value: object) -> list[Any]:
    if isinstance(value, dict) and "rows" in value:
        return [_Row(cast("Any", value), row) for row in cast("Any", value)["rows"]]
    return list(cast("Any", value).values()) if isinstance(value, dict) else cast("Any", value)


def _selected(value: object, step: str) -> tuple[list[Any], Sequence[str]]:
    """What ``step`` may mean in ``value``, and what could have been said."""
    if isinstance(value, _Row):
        columns: list[str] = list(value.table["columns"])
        return list(value.cells[columns.index(step) :][:1] if step in columns else ()), columns
    if isinstance(value, dict):
        values = cast("dict[str, Any]", value)
        if "rows" in values:
            return [_Row(values, row) for row in values["rows"] if _has(row, step.split(" & "))], ["its rows"]
        tables = {table["title"]: table for table in values.get("tables", ())}
        everything = tables | values
        return [everything[step]] if step in everything else [], list(everything)
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        if step.isdigit():
            return parts[int(step) :][:1], [f"0 to {len(parts) - 1}"]
        return [part for part in parts if isinstance(part, dict) and step in cast("Any", part).values()], ["its parts"]
    return [], []


def _has(row: Sequence[object], wanted: Sequence[str]) -> bool:
    """Whether the row has all these cells, in this order."""
    cells = iter([str(cell) for cell in row])
    return all(any(cell == text.strip() for cell in cells) for text in wanted)


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a result's table."""

    table: Mapping[str, Any]
    cells: Sequence[Any]


@dataclass(frozen=True, slots=True)
class _All:
    """The parts of a list, each of which goes the same way."""

    parts: list[Any]


def _changed(value: object, part: str, entry: str) -> object:
    if part in _LISTS and isinstance(value, _All):
        return float(_LISTS[part]([_number(one, entry) for one in value.parts]))
    if part in _FACTORS:
        return _number(value, entry) * _FACTORS[part]
    if part == "change":
        return 100 * (_number(value, entry) - 1)
    if re.fullmatch(r"number \d+", part) and isinstance(value, str):
        numbers = _numbers_in(value)
        place = int(part.split()[1])
        if 1 <= place <= len(numbers):
            return numbers[place - 1]
    ways = [*_LISTS, *_FACTORS, "change", "number N"]
    raise ClaimError(f"{entry}: expected one of {', '.join(ways)} that fits the value, found {part!r}; correct it")


def _numbers_in(text: str) -> list[float]:
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text.replace("\u2212", "-"))
    return [float(match) for match in re.findall(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", plain)]


def _number(value: object, entry: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    numbers = _numbers_in(value) if isinstance(value, str) else []
    if len(numbers) == 1:
        return numbers[0]
    raise ClaimError(f"{entry}: expected one number, found {str(value)[:60]!r}; go on to a single value")


def agrees(number: Number, value: float) -> bool:
    """Whether a number says what was measured, to the digits that it has; without a sign it says how much, not where.

    Example:
        >>> agrees(Number(text="10.1", end=0, line=1, before="by "), -10.06)
        True
        >>> agrees(Number(text="+10.1", end=0, line=1, before="by "), -10.06)
        False
    """
    text = number.text.replace("\u2212", "-").replace(",", "")
    said = float(_WORDS.get(text, text))
    if text[0] not in "+-":
        value = abs(value)
    digits = len(text.partition(".")[2])
    half = 0.5 * 10**-digits + 1e-9
    if _AT_MOST.search(number.before):
        return value <= said + half
    if _AT_LEAST.search(number.before):
        return value >= said - half
    if _ABOUT.search(number.before):
        half = max(half, _ABOUT_TOLERANCE * abs(value))
    return abs(said - value) <= half


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--show", action="store_true", help="also print what holds")
    parser.add_argument("documents", nargs="*", type=Path, help="only these")
    options = parser.parse_args()
    verdicts: list[Verdict] = []
    for path in options.documents or documents():
        name = path.resolve().relative_to(ROOT).as_posix()
        verdicts += check(path.read_text(encoding="utf-8"), name=name)
    for verdict in verdicts:
        if verdict.fault or options.show:
            sys.stdout.write(f"{verdict.place}: {verdict.number}: {verdict.fault or verdict.source}\n")
    wrong = sum(bool(verdict.fault) for verdict in verdicts)
    sys.stdout.write(f"{len(verdicts)} numbers, {wrong} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
