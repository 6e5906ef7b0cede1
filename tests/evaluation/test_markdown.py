"""The Markdown of a run says what it is, and shows growth as growth."""

import dataclasses

from mlgokit.evaluation.markdown import render_markdown
from mlgokit.evaluation.program import ProgramComparison
from mlgokit.evaluation.records import MEASURES, Change, Evaluation, ProjectComparison, Sizes
from mlgokit.evaluation.report import RoundReport, RunReport, StageTime


def sizes(image: int) -> Sizes:
    return Sizes(objects=image + 10, link_aware=image + 5.5, text=image // 2, rodata=7, eh_frame=3, image=image)


def run() -> RunReport:
    projects = (
        ProjectComparison(
            project="alpha", language="c++", modules=3, before=sizes(1000), after=sizes(900), larger_modules=1,
            user_seconds_before=1.0, user_seconds_after=1.1,
        ),
        ProjectComparison(
            project="beta", language="c++", modules=2, before=sizes(500), after=sizes(510), larger_modules=2,
            user_seconds_before=1.0, user_seconds_after=1.1,
        ),
    )  # fmt: skip
    change = Change(mean=-0.042, low=-0.1, high=0.02, projects=2)
    measures: dict[str, Change] = dict.fromkeys(MEASURES, change)
    return RunReport(
        command="mlgokit quickstart",
        mlgokit_version="0.1.0",
        toolchain={"clang": "clang version 22.1.8"},
        seed=1,
        corpus={"projects": 2, "modules": 5},
        stages=(StageTime(stage="train", seconds=61.2, compilations=40, reused=False),),
        rounds=(
            RoundReport(
                round=0, compilations=40, user_seconds=9.5, flips=100, components=60, correlation=0.91,
                unattributed_share=0.004, failures=0,
            ),
        ),
        evaluation=Evaluation(policy="p", projects=projects, summary={"c++": measures}, compilations=10),
        control=None,
        program=ProgramComparison(
            name="sass", before=sizes(2000), after=sizes(1900), runs=4, same_behaviour=False, differences=("a.scss",)
        ),
        policy="p",
        plugin="p.so",
        peak_bytes=2_000_000_000,
    )  # fmt: skip


def test_it_shows_gain_growth_and_behaviour() -> None:
    text = render_markdown(run())
    assert "| alpha | 3 | 1,010 -> 910 | -9.90 % | 500 -> 450 | -10.00 % | 1,000 -> 900 | -10.00 % |" in text
    assert "| beta | 2 | 510 -> 520 | +1.96 % | 250 -> 255 | +2.00 % | 500 -> 510 | +2.00 % |" in text
    assert "| linked image | -4.20 % | -10.00 % | +2.00 % |" in text
    assert "4 runs of each build: DIFFERENT behaviour." in text
    assert "| 1 | 40 | 10 | 100 | 60 | 0.910 | 0.40 % |" in text
    assert "clang version 22.1.8" in text


def test_names_of_others_are_no_markup() -> None:
    found = run()
    evil = dataclasses.replace(found.evaluation.projects[0], project="a|b <img src=x> [c](javascript:d) `e`\n# f")
    text = render_markdown(
        dataclasses.replace(found, evaluation=dataclasses.replace(found.evaluation, projects=(evil,)))
    )
    assert "| a\\|b &lt;img src=x> \\[c\\](javascript:d) \\`e\\` # f | 3 |" in text
