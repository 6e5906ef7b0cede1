"""Every stage as a user runs it, with a real clang, from an archive to a plugin."""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.llvm.stages.tiny import HELD_OUT, MODULE, MODULE_NAMES, SECONDS, Mlgokit, TinyProjects, files, training

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.evaluation.records import read_evaluation
from mlgokit.policy.store import load_policy

pytestmark = pytest.mark.llvm


def test_sources_and_corpus_are_told_as_json(
    tmp_path: Path, toolchain: Toolchain, tiny_projects: TinyProjects, mlgokit: Mlgokit
):
    projects = ("--manifest", tiny_projects.manifest, "--projects", "beta", "alpha")
    fetched = mlgokit("corpus", "fetch", *projects, "--folder", tmp_path / "sources", "--json")

    assert fetched.code == 0
    assert fetched.json == {
        "projects": {name: str(tmp_path / "sources" / name / "tiny-1" / name) for name in ("alpha", "beta")}
    }

    places = ("--sources", tmp_path / "sources", "--corpus", tmp_path / "corpus", "--llvm", toolchain.major)
    extracted = mlgokit("corpus", "extract", *projects, *places, "--json")

    assert extracted.code == 0
    assert extracted.json["modules"] == 5
    (failure,) = extracted.json["failures"]
    assert failure["name"] == "alpha/broken.cc.o"
    assert "'no/such/header.h' file not found" in failure["reason"]
    assert mlgokit("corpus", "info", "--corpus", tmp_path / "corpus", "--json").json == extracted.json
    assert "Modules: 5 in C++; " in mlgokit("corpus", "info", "--corpus", tmp_path / "corpus").out


def test_the_heuristic_is_traced_and_echoed(tmp_path: Path, toolchain: Toolchain, tiny_corpus: Path, mlgokit: Mlgokit):
    llvm = ("--llvm", toolchain.major)
    traced = mlgokit("trace", "--corpus", tiny_corpus, "--output", tmp_path / "trace", *llvm, "--json")

    assert traced.code == 0
    assert (traced.json["modules"], traced.json["failed"]) == (len(MODULE_NAMES), [])
    rows = json.loads((tmp_path / "trace" / "traces.json").read_text())["modules"]
    assert [row["module"] for row in rows] == MODULE_NAMES
    assert all(0 < row["inlined"] < row["decisions"] for row in rows)
    assert {path.name for path in files(tmp_path / "trace" / "logs", "*.log")} == {
        f"{Path(name).name}.log" for name in MODULE_NAMES
    }

    output = tmp_path / "evaluation.json"
    echoed = mlgokit("evaluate", ":default", "--corpus", tiny_corpus, "--output", output, *llvm, "--json")

    # Nothing differs, which is no reason to ship.
    assert echoed.code == 1
    assert echoed.json["verdict"]["reasons"] == ["The change is 0.00 %, which is not below 0 %."]
    assert read_evaluation(output).to_json() == json.loads(output.read_text()) == echoed.json
    (project,) = echoed.json["projects"]
    assert (project["project"], project["modules"], project["link_failure"]) == (HELD_OUT, 2, "")
    assert project["before"] == project["after"]
    assert project["before"]["image"] > 0


def test_a_policy_is_trained_evaluated_and_exported(
    tmp_path: Path, toolchain: Toolchain, tiny_corpus: Path, mlgokit: Mlgokit
):
    """What the README promises of every major: five seconds for each."""
    place = ("--corpus", tiny_corpus, "--llvm", toolchain.major)
    trained = mlgokit("train", *place, "--output", tmp_path / "train", *training(), "--json")

    assert trained.code == 0
    policy = Path(trained.json["policy"])
    assert [(one["round"], one["failures"]) for one in trained.json["rounds"]] == [(0, {}), (1, {})]
    assert trained.json["rounds"][1]["flips"] > trained.json["rounds"][0]["flips"] > 0
    assert json.loads((tmp_path / "train" / "metrics.json").read_text()) == trained.json
    assert load_policy(policy).features == load_policy(tmp_path / "train" / "best.policy").features

    evaluated = mlgokit("evaluate", policy, *place, "--projects", "alpha", "beta", "--json")
    assert evaluated.code == (0 if evaluated.json["verdict"]["ship"] else 1)
    assert [one["project"] for one in evaluated.json["projects"]] == ["alpha", "beta"]
    assert all(one["link_failure"] == "" and one["failures"] == [] for one in evaluated.json["projects"])

    exported = mlgokit("export", "plugin", policy, "--output", tmp_path / "p.so", *place[2:], "--json")
    assert exported.code == 0
    assert exported.json["flag"] == f"-fpass-plugin={(tmp_path / 'p.so').resolve()}"
    source = tmp_path / "part.cc"
    source.write_text(MODULE.substitute(project="user", number=1, mark="u"))
    words = [toolchain.clangxx, "-Oz", exported.json["flag"], "-c", source, "-o", tmp_path / "part.o"]
    assert process.run(words, timeout_seconds=SECONDS).returncode == 0


def test_the_heuristic_is_imitated(tmp_path: Path, toolchain: Toolchain, tiny_corpus: Path, mlgokit: Mlgokit):
    trained = mlgokit(
        "train", "--algorithm", "behavioural-cloning", "--corpus", tiny_corpus, "--output", tmp_path / "clone",
        "--llvm", toolchain.major, "--setting", "imitation.batch=64", "--json",
    )  # fmt: skip

    assert trained.code == 0
    (only,) = trained.json["rounds"]
    assert only["agreement"] > 0.8
    assert Path(trained.json["policy"]).is_file()


def test_the_quickstart_does_everything_once(
    tmp_path: Path, toolchain: Toolchain, tiny_projects: TinyProjects, mlgokit: Mlgokit, monkeypatch: pytest.MonkeyPatch
):
    """All stages of it, and its training once more: more than ten seconds."""
    folder = tmp_path / "quickstart"
    llvm = ("--llvm", toolchain.major)
    words = (
        "quickstart",
        "--folder",
        folder,
        "--manifest",
        tiny_projects.manifest,
        *llvm,
        *training("training.", rounds=1),
    )
    first = mlgokit(*words, "--json")

    assert first.code == 0
    results = json.loads((folder / "results.json").read_text())
    assert first.json == results
    for program in ("shipped", "program"):
        assert (results[program]["name"], results[program]["same_behaviour"]) == ("tool", True)
    assert "builtin:Oz, tool: linked image" in first.err
    assert [project["project"] for project in results["evaluation"]["projects"]] == [HELD_OUT]
    assert not any(stage["reused"] for stage in results["stages"])
    for name in ("builtin.so", "policy.so", "report.html", "train/final.policy"):
        assert (folder / name).stat().st_size > 0

    # So few modules leave the gate of the policy closed, and then none of its features has any importance.
    undecided = "observations of inline-size that the policy decides, found none"
    assert undecided in first.err
    assert "Features by importance" not in (folder / "report.html").read_text()
    named = ("--traces", folder / "trace", "--output", tmp_path / "again.html")
    again = mlgokit("report", folder / "results.json", *named)
    assert again.code == 2
    assert undecided in again.err
    assert mlgokit("report", folder / "results.json", "--output", tmp_path / "again.html").code == 0

    started: list[str] = []
    monkeypatch.setattr(process, "run", watched(process.run, started))
    again = mlgokit(*words)

    assert again.code == 0
    assert re.search(r"^ *train .* yes *$", again.out, re.MULTILINE)
    assert "the same behaviour in" in again.out
    assert [words for words in started if "--version" not in words and "--includedir" not in words] == []

    monkeypatch.undo()
    elsewhere = tmp_path / "elsewhere"
    corpus = ("--corpus", folder / "corpus", "--output", elsewhere)
    assert mlgokit("train", *corpus, *llvm, *training(rounds=1), "--workers", 1).code == 0
    assert (elsewhere / "final.policy").read_bytes() == (folder / "train" / "final.policy").read_bytes()


def watched(run: Callable[..., process.Completed], started: list[str]) -> Callable[..., process.Completed]:
    def noted(argv: Sequence[str | os.PathLike[str]], **options: Any) -> process.Completed:
        started.append(" ".join(os.fspath(word) for word in argv))
        return run(argv, **options)

    return noted
