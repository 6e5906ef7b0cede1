"""Measured numbers in README.md and docs/ are those of the results that they name, and the check of that can fail."""

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
RESULTS = ROOT / "docs" / "results"
PAGES = sorted(path.stem for path in RESULTS.glob("*.md") if path.stem != "index")
LARGEST_SHARE_UNMEASURED = 0.2
FREE_PAGES = {"docs/formats.md", "docs/security.md"}
LEFT = re.compile(r"^The question is answered, and the script has left the repository; .*\n\n", re.MULTILINE)


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


@pytest.fixture
def checked(tmp_path: Path) -> Callable[[str], list[str]]:
    """What the check says of a text, with one small result to hold it against."""
    table = {
        "title": "Gains",
        "columns": ["search", "language", "image", "seconds", "interval"],
        "rows": [["tuned", "c++", "-10.06 %", 90.0, "-13 % to -7 %"], ["tuned", "c", "-3.99 %", 30.0, ""]],
    }
    found = {"tables": [table], "bytes": 2_520_244_224, "share": 0.0749, "ratio": 1.037}
    (tmp_path / "speed.json").write_text(json.dumps(found))
    return lambda text: [one.fault for one in claims.check(text, name="page.md", results=tmp_path) if one.fault]


def test_every_number_in_the_documents_is_the_one_of_its_result() -> None:
    found = [
        verdict
        for path in claims.documents()
        for verdict in claims.check(path.read_text(), name=path.relative_to(ROOT).as_posix())
    ]

    assert not [f"{one.place}: {one.number}: {one.fault}" for one in found if one.fault]
    # A mark that is easily given would make the check worthless.
    unmeasured = [one for one in found if one.source.startswith("not measured")]
    assert len(unmeasured) <= LARGEST_SHARE_UNMEASURED * len(found)


def test_only_pages_of_limits_and_formats_are_free_of_the_check() -> None:
    free = {
        path.relative_to(ROOT).as_posix()
        for path in claims.documents()
        if "<!-- not measured on this page:" in path.read_text()
    }

    assert free <= FREE_PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_results_says_what_its_json_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = RESULTS / f"{name}.json"
    if name == "quickstart":
        expected = render_markdown(run_page(RunReport.from_json(json.loads(path.read_bytes()))))
    else:
        monkeypatch.syspath_prepend(ROOT / "benchmarks")
        expected = imported(ROOT / "benchmarks" / "results.py").rendered(path)

    assert LEFT.sub("", path.with_suffix(".md").read_text()) == expected


def test_a_result_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a result that a benchmark wrote"):
        imported(ROOT / "benchmarks" / "results.py").rendered(tmp_path / "none.json")


GAIN = "<!-- result: speed.json > Gains > tuned & c++ > image -->"


@pytest.mark.parametrize(
    "text",
    [
        f"The image is 10.1 % smaller. {GAIN}",
        f"The image changes by -10.1 %. {GAIN}",
        f"The image is at least 10 % smaller. {GAIN}",
        f"- It is\n  10.06 % smaller.\n  {GAIN}",
        f"| tuned | -10.1 % {GAIN} |",
        "C++ is 10.1 % smaller in 90 s. <!-- result: speed.json > Gains > tuned & c++ > image; > seconds -->",
        "It took 1.5 minutes. <!-- result: speed.json > Gains > tuned & c++ > seconds as minutes -->",
        "Both took 2 minutes. <!-- result: speed.json > Gains > * > seconds as sum, minutes -->",
        "It needs 2.5 GB. <!-- result: speed.json > bytes as GB -->",
        "It saves 7.5 %. <!-- result: speed.json > share as percent -->",
        "It takes 3.7 % more time. <!-- result: speed.json > ratio as change -->",
        "13 to 7 %. <!-- result: speed.json > Gains > tuned & c++ > interval as number 1; > interval as number 2 -->",
        "A limit of 60 seconds. <!-- not measured: an option's default -->",
        "60 s gave 10.1 %. <!-- result: not measured (the budget); speed.json > Gains > tuned & c++ > image -->",
        "`--budget 30s` and ```10 %```, LLVM 22, C++17, version 1.2.3, [a](b/10%25.md) and 14 projects.",
        "```sh\nsleep 10 s\n```",
    ],
)
def test_what_is_true_passes(checked: Callable[[str], list[str]], text: str) -> None:
    assert checked(text) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The image is 10.1 % smaller.", "expected the result that it is from, found none"),
        ("It is 2.4 times as fast.", "expected the result that it is from, found none"),
        ("It is three times as fast.", "expected the result that it is from, found none"),
        ("A decision takes 0.4 microseconds.", "expected the result that it is from, found none"),
        ("| tuned | -2.3 to +3.2 |", "expected the result that it is from, found none"),
        (f"The image is 10.2 % smaller. {GAIN}", "expected -10.06 by speed.json > Gains"),
        (f"The image changes by +10.1 %. {GAIN}", "expected -10.06 by speed.json > Gains"),
        (f"The image is at least 11 % smaller. {GAIN}", "expected -10.06 by speed.json > Gains"),
        (f"The image is at most 9 % smaller. {GAIN}", "expected -10.06 by speed.json > Gains"),
        (f"10.1 % of 90 s. {GAIN}", "expected one entry for each of 2 numbers, found 1"),
        (f"Nothing here. {GAIN}", "expected a number before the comment"),
        (f"One paragraph with 10.1 %.\n\nAnother. {GAIN}", "expected a number before the comment"),
        ("5 %. <!-- result: gone.json > x -->", "expected a JSON file docs/results/gone.json"),
        (
            "5 %. <!-- result: speed.json > Losses -->",
            "expected one of Gains, tables, bytes, share, ratio in speed.json",
        ),
        ("5 %. <!-- result: speed.json > Gains > tuned > image -->", "found 'tuned' 2 times"),
        ("5 %. <!-- result: speed.json > Gains > tuned & c++ > code -->", "expected one of search, language"),
        ("5 %. <!-- result: speed.json > Gains > tuned & c++ > interval -->", "expected one number, found '-13 % to"),
        ("5 %. <!-- result: speed.json > bytes as acres -->", "that fits the value, found 'acres'"),
        ("5 %. <!-- not measured: an -- odd one -->", "found -- in it"),
        ("5 %.\n<!-- not measured: a default --> More.", "expected a comment that readers do not see, found one at"),
        ("5 %. <!-- not measured: -->", "expected a reason or a result, found none"),
    ],
)
def test_what_is_wrong_or_without_a_result_has_a_sentence(
    checked: Callable[[str], list[str]], text: str, fault: str
) -> None:
    found = checked(text)

    assert any(fault in sentence for sentence in found), found


def test_a_changed_number_in_the_readme_is_found() -> None:
    text = (ROOT / "README.md").read_text()
    number = re.search(r"-\d+\.\d %(?= \| -\d)", text)
    assert number is not None
    changed = text.replace(number[0], "-99.9 %", 1)

    assert "-99.9" in [one.number for one in claims.check(changed, name="README.md") if one.fault]
