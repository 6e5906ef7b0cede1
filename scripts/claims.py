"""Holds the measured numbers of README.md and docs/ against the results that docs/data/claims.toml names for them.

A number that looks measured (a percentage, a factor, a time, bytes, a signed decimal) is in the text of one claim:

    [["README.md"]]
    text = "The image is 10.1 % smaller, its code 8.4 %"
    results = [
        "tuning.json > Geometric means > tune from policy & c++ & 15 > objects linked",
        "tuning.json > Geometric means > tune from policy & c++ & 15 > of that .text",
    ]

The text is found once in the document, wherever its lines break; a claim whose text is no longer there is wrong. It
has one entry for each such number in it, in order.

An entry is a file of docs/data and the way to one value: keys of objects, titles of tables, cells of a row joined by
`&`, a column. `*` takes all of a list, and `as` ends an entry with what is done with the value:

    quickstart.json > stages > * > seconds as sum, minutes

What is not measured has the reason in place of a result, `not measured (an option's default)`; or all numbers of a
text have it, as `unmeasured = "an option's default"`. A document in the table `unmeasured` needs no claims at all.

Run `python scripts/claims.py` for all that is wrong, `--show` also for all that holds.
"""

import argparse
import json
import math
import re
import statistics
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs" / "data"
CLAIMS = DATA / "claims.toml"

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
    """An entry that leads to no value; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Numbers of a document and where they are from.

    Attributes:
        text: that has the numbers, a part of a sentence or of a table's row.
        results: an entry for each number, in order.
        unmeasured: why none of the numbers is measured; empty if there are results.
    """

    text: str
    results: tuple[str, ...] = ()
    unmeasured: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What claims.toml says.

    Attributes:
        by_document: claims by the path of their document below the root.
        unmeasured: documents that need no claims, with the reason.
    """

    by_document: Mapping[str, Sequence[Claim]]
    unmeasured: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number in a document that looks measured.

    Attributes:
        text: as it stands there, with its sign.
        start: offset of its first character in the document.
        end: offset behind it.
        line: in which it stands, from 1.
        before: the words before it, which may say `about` or `at most`.
    """

    text: str
    start: int
    end: int
    line: int
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the check says about one number, or about a claim as a whole.

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


def read_claims(path: Path = CLAIMS) -> Claims:
    """The claims of all documents.

    Raises:
        ClaimError: a claim has other keys than it may have.
    """
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    unmeasured = values.pop("unmeasured", {})
    by_document: dict[str, list[Claim]] = {}
    for document, claims in values.items():
        for claim in claims:
            keys = set(claim)
            if keys not in ({"text", "results"}, {"text", "unmeasured"}) or not all(claim.values()):
                raise ClaimError(
                    f"{path.name}: expected claims of {document} with a text, and results or a reason why they are "
                    f"unmeasured, found {claim}; correct it"
                )
            given = Claim(**claim | {"results": tuple(claim.get("results", ()))})
            by_document.setdefault(document, []).append(given)
    return Claims(by_document=by_document, unmeasured=unmeasured)


def check_documents(paths: Sequence[Path]) -> list[Verdict]:
    """What is to be said about each number of these documents, and about claims of documents that are not there."""
    claims = read_claims()
    named = [*claims.by_document, *claims.unmeasured]
    verdicts = [
        Verdict(place=name, number="", fault="expected a document of this name, found none; take its claims out")
        for name in named
        if not (ROOT / name).is_file()
    ]
    for path in paths:
        name = path.resolve().relative_to(ROOT).as_posix()
        if name not in claims.unmeasured:
            verdicts += check(path.read_text(encoding="utf-8"), claims.by_document.get(name, ()), name=name)
    return verdicts


def check(text: str, claims: Sequence[Claim], *, name: str, data: Path = DATA) -> list[Verdict]:
    """What is to be said about each number of ``text``, a document called ``name``, and about claims without one."""
    numbers = list(_numbers(text))
    verdicts: list[Verdict] = []
    claimed: set[Number] = set()
    for claim in claims:
        pattern = r"\s+".join(re.escape(word) for word in claim.text.split())
        places = list(re.finditer(pattern, text))
        if len(places) != 1:
            remedy = "give more of the sentence" if places else "correct the claim, or take it out"
            fault = f"expected the text {claim.text!r} once, found it {len(places)} times; {remedy}"
            verdicts.append(Verdict(place=name, number="", fault=fault))
            continue
        here = [one for one in numbers if places[0].start() <= one.start and one.end <= places[0].end()]
        line = text.count("\n", 0, places[0].start()) + 1
        if twice := [one.text for one in here if one in claimed]:
            fault = f"expected one claim for each number, found two for {', '.join(twice)}; shorten a text"
            verdicts.append(Verdict(place=f"{name}:{line}", number=", ".join(twice), fault=fault))
        claimed.update(here)
        verdicts += _judge(claim, here, place=f"{name}:{line}", name=name, data=data)
    verdicts += [
        Verdict(
            place=f"{name}:{number.line}",
            number=number.text,
            fault="expected a claim in docs/data/claims.toml, found none; add its result, or why it is unmeasured",
        )
        for number in numbers
        if number not in claimed
    ]
    return verdicts


def _judge(claim: Claim, numbers: Sequence[Number], *, place: str, name: str, data: Path) -> Iterator[Verdict]:
    shown = ", ".join(number.text for number in numbers)
    if not numbers:
        fault = f"expected a number in the text {claim.text!r}, found none; take the claim out"
        yield Verdict(place=place, number="", fault=fault)
        return
    entries = [f"not measured ({claim.unmeasured})"] * len(numbers) if claim.unmeasured else claim.results
    if len(entries) != len(numbers):
        fault = f"expected one entry for each of {len(numbers)} numbers, found {len(entries)}; give them in order"
        yield Verdict(place=place, number=shown, fault=fault)
        return
    for number, entry in zip(numbers, entries, strict=True):
        where = f"{name}:{number.line}"
        if re.fullmatch(r"not measured \(.+\)", entry):
            yield Verdict(place=where, number=number.text, source=entry)
            continue
        try:
            value = value_of(entry, data)
        except ClaimError as error:
            yield Verdict(place=where, number=number.text, fault=str(error), source=entry)
            continue
        fault = (
            "" if agrees(number, value) else f"expected {value:.6g} by {entry}, found {number.text}; mend the number"
        )
        yield Verdict(place=where, number=number.text, fault=fault, source=entry)


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


def _numbers(text: str) -> Iterator[Number]:
    """Numbers that look measured, in order; a quantity does not go on in the next paragraph, list item or row."""
    words = "|".join(_WORDS)
    for offset, block in _blocks(text):
        for quantity in _QUANTITY.finditer(block):
            for match in re.finditer(rf"{_NUMBER}|[-+\u2212]\d+\.\d+|\b(?:{words})\b", quantity[0]):
                start = quantity.start() + match.start()
                yield Number(
                    text=match[0],
                    start=offset + start,
                    end=offset + quantity.start() + match.end(),
                    line=text.count("\n", 0, offset + start) + 1,
                    before=re.sub(r"\s+", " ", block[:start])[-30:],
                )


def value_of(entry: str, data: Path = DATA) -> float:
    """The value that an entry leads to.

    Raises:
        ClaimError: it leads nowhere, or to no number.
    """
    ending = _ENDING.search(entry)
    name, *steps = [step.strip() for step in _ENDING.sub("", entry).split(" > ")]
    path = data / name
    try:
        value: object = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ClaimError(f"expected a JSON file docs/data/{name}, found: {error}; correct the claim") from error
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
        >>> agrees(Number(text="10.1", start=0, end=0, line=1, before="by "), -10.06)
        True
        >>> agrees(Number(text="+10.1", start=0, end=0, line=1, before="by "), -10.06)
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
    verdicts = check_documents(options.documents or documents())
    for verdict in verdicts:
        if verdict.fault or options.show:
            sys.stdout.write(f"{verdict.place}: {verdict.number}: {verdict.fault or verdict.source}\n")
    wrong = sum(bool(verdict.fault) for verdict in verdicts)
    sys.stdout.write(f"{len(verdicts)} numbers, {wrong} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
