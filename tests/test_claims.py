"""Measured numbers in README.md and docs/ are those of their results, and the check of that can fail."""

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from mlgokit.errors import InputError
from mlgokit.evaluation.run import RunReport, run_page
from mlgokit.pages.markdown import render_markdown

ROOT = Path(__file__).parent.parent
DATA, RESULTS = ROOT / "docs" / "data", ROOT / "docs" / "results"
PAGES = sorted(path.stem for path in RESULTS.glob("*.md") if path.stem != "index")
LARGEST_SHARE_UNMEASURED = 0.2
FREE_PAGES = {"docs/formats.md", "docs/security.md"}
LEFT = re.compile(r"^(The question is answered|The script has changed|The results that are joined).*\n\n", re.MULTILINE)


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look for it there.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


claims = imported(ROOT / "scripts" / "claims.py")


Check = Callable[..., list[str]]


@pytest.fixture
def checked(tmp_path: Path) -> Check:
    """What the check says of a text, with claims about it, and one small result to hold them against."""
    table = {
        "title": "Gains",
        "columns": ["search", "language", "image", "seconds", "interval"],
        "rows": [["tuned", "c++", "-10.06 %", 90.0, "-13 % to -7 %"], ["tuned", "c", "-3.99 %", 30.0, ""]],
    }
    found = {"tables": [table], "bytes": 2_520_244_224, "share": 0.0749, "ratio": 1.037}
    (tmp_path / "speed.json").write_text(json.dumps(found))

    def check(text: str, *results: str, part: str = "") -> list[str]:
        own = [claims.Claim(text=part or text, results=results)] if results else []
        return [one.fault for one in claims.check(text, own, name="page.md", data=tmp_path) if one.fault]

    return check


def test_every_number_in_the_documents_is_the_one_of_its_result() -> None:
    found = claims.check_documents(claims.documents())

    assert not [f"{one.place}: {one.number}: {one.fault}" for one in found if one.fault]
    # A mark that is easily given would make the check worthless.
    unmeasured = [one for one in found if one.source.startswith("not measured")]
    assert len(unmeasured) <= LARGEST_SHARE_UNMEASURED * len(found)


def test_only_pages_of_limits_and_formats_are_free_of_the_check() -> None:
    assert claims.read_claims().unmeasured.keys() == FREE_PAGES


def test_readers_of_documents_see_no_comments_about_results() -> None:
    assert not [path.name for path in claims.documents() if re.search("<!-- *(result|not measured)", path.read_text())]


def test_the_index_of_results_names_each_page_once() -> None:
    listed = re.findall(r"\]\((\w+)\.md\)", (RESULTS / "index.md").read_text())

    assert sorted(listed) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_results_says_what_its_json_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = DATA / f"{name}.json"
    if name == "quickstart":
        expected = render_markdown(run_page(RunReport.from_json(json.loads(path.read_bytes()))))
    else:
        monkeypatch.syspath_prepend(ROOT / "benchmarks")
        expected = imported(ROOT / "benchmarks" / "results.py").rendered(path)

    assert LEFT.sub("", (RESULTS / f"{name}.md").read_text()) == expected


def test_a_result_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a result that a benchmark wrote"):
        imported(ROOT / "benchmarks" / "results.py").rendered(tmp_path / "none.json")


GAIN = "speed.json > Gains > tuned & c++ > image"


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("The image is 10.1 % smaller.", [GAIN]),
        ("The image changes by -10.1 %.", [GAIN]),
        ("The image is at least 10 % smaller.", [GAIN]),
        ("- It is\n  10.06 % smaller.", [GAIN]),
        ("| tuned | -10.1 % |", [GAIN]),
        ("C++ is 10.1 % smaller in 90 s.", [GAIN, "speed.json > Gains > tuned & c++ > seconds"]),
        ("It took 1.5 minutes.", ["speed.json > Gains > tuned & c++ > seconds as minutes"]),
        ("Both took 2 minutes.", ["speed.json > Gains > * > seconds as sum, minutes"]),
        ("It needs 2.5 GB.", ["speed.json > bytes as GB"]),
        ("It saves 7.5 %.", ["speed.json > share as percent"]),
        ("It takes 3.7 % more time.", ["speed.json > ratio as change"]),
        (
            "13 to 7 %.",
            [
                "speed.json > Gains > tuned & c++ > interval as number 1",
                "speed.json > Gains > tuned & c++ > interval as number 2",
            ],
        ),
        ("A limit of 60 seconds.", ["not measured (an option's default)"]),
        ("60 s gave 10.1 %.", ["not measured (the budget)", GAIN]),
        ("`--budget 30s` and ```10 %```, LLVM 22, C++17, version 1.2.3, [a](b/10%25.md) and 14 projects.", []),
        ("```sh\nsleep 10 s\n```", []),
    ],
)
def test_what_is_true_passes(checked: Check, text: str, results: list[str]) -> None:
    assert checked(text, *results) == []


def test_a_text_is_found_wherever_its_lines_break(checked: Check) -> None:
    assert checked("By this the image\nis 10.1 % smaller.", GAIN, part="the image is 10.1 % smaller") == []


def test_all_numbers_of_a_text_may_be_unmeasured() -> None:
    claim = claims.Claim(text="Limits are 60 s and 10 %", unmeasured="defaults")

    found = claims.check("Limits are 60 s and 10 %.", [claim], name="page.md")

    assert [(one.number, one.fault, one.source) for one in found] == [
        ("60", "", "not measured (defaults)"),
        ("10", "", "not measured (defaults)"),
    ]


@pytest.mark.parametrize(
    ("text", "results", "fault"),
    [
        ("The image is 10.1 % smaller.", [], "expected a claim in docs/data/claims.toml, found none"),
        ("It is 2.4 times as fast.", [], "expected a claim in docs/data/claims.toml, found none"),
        ("It is three times as fast.", [], "expected a claim in docs/data/claims.toml, found none"),
        ("A decision takes 0.4 microseconds.", [], "expected a claim in docs/data/claims.toml, found none"),
        ("| tuned | -2.3 to +3.2 |", [], "expected a claim in docs/data/claims.toml, found none"),
        ("The image is 10.2 % smaller.", [GAIN], "expected -10.06 by speed.json > Gains"),
        ("The image changes by +10.1 %.", [GAIN], "expected -10.06 by speed.json > Gains"),
        ("The image is at least 11 % smaller.", [GAIN], "expected -10.06 by speed.json > Gains"),
        ("The image is at most 9 % smaller.", [GAIN], "expected -10.06 by speed.json > Gains"),
        ("10.1 % of 90 s.", [GAIN], "expected one entry for each of 2 numbers, found 1"),
        ("Nothing here.", [GAIN], "expected a number in the text 'Nothing here.', found none"),
        ("5 %.", ["gone.json > x"], "expected a JSON file docs/data/gone.json"),
        ("5 %.", ["speed.json > Losses"], "expected one of Gains, tables, bytes, share, ratio in speed.json"),
        ("5 %.", ["speed.json > Gains > tuned > image"], "found 'tuned' 2 times"),
        ("5 %.", ["speed.json > Gains > tuned & c++ > code"], "expected one of search, language"),
        ("5 %.", ["speed.json > Gains > tuned & c++ > interval"], "expected one number, found '-13 % to"),
        ("5 %.", ["speed.json > bytes as acres"], "that fits the value, found 'acres'"),
    ],
)
def test_what_is_wrong_or_without_a_result_has_a_sentence(
    checked: Check, text: str, results: list[str], fault: str
) -> None:
    found = checked(text, *results)

    assert any(fault in sentence for sentence in found), found


@pytest.mark.parametrize(
    ("text", "part", "fault"),
    [
        (
            "It is 10.1 % smaller.",
            "It was 10.1 % smaller",
            "expected the text 'It was 10.1 % smaller' once, found it 0",
        ),
        ("C: 10.1 %. C++: 10.1 %.", "10.1 %", "expected the text '10.1 %' once, found it 2 times; give more"),
    ],
)
def test_a_claim_whose_text_is_not_in_its_document_once_is_wrong(
    checked: Check, text: str, part: str, fault: str
) -> None:
    found = checked(text, GAIN, part=part)

    assert any(fault in sentence for sentence in found), found


def test_a_number_has_one_claim() -> None:
    both = [claims.Claim(text=text, unmeasured="a default") for text in ("at most 60 s", "60 s each")]

    found = claims.check("It takes at most 60 s each.", both, name="page.md")

    assert "expected one claim for each number, found two for 60; shorten a text" in [one.fault for one in found]


@pytest.mark.parametrize("claim", ['results = ["a.json"]', 'text = "5 %"', 'text = "5 %"\nunmeasured = ""'])
def test_a_claim_that_says_too_little_is_refused(tmp_path: Path, claim: str) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(f'[["README.md"]]\n{claim}\n')

    with pytest.raises(claims.ClaimError, match=r"claims\.toml: expected claims of README\.md with a text"):
        claims.read_claims(path)


def test_a_changed_number_in_the_readme_is_found() -> None:
    text = (ROOT / "README.md").read_text()
    known = claims.read_claims().by_document["README.md"]
    number = re.search(r"-\d+\.\d %(?= \| -\d)", text)
    assert number is not None
    changed = text.replace(number[0], "-99.9 %", 1)

    assert "-99.9" in [one.number for one in claims.check(changed, known, name="README.md") if one.fault]
