"""The files for CI, step by step as GitHub's and GitLab's runners take them, on a small project with a real clang."""

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.calls import ended
from tests.llvm.small_calls import source_of_calls

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain

pytestmark = pytest.mark.llvm

CI = Path(__file__).parents[2] / "examples" / "ci"
MAKEFILE = "app: main.o\n\t$(CC) main.o -o app\nmain.o: main.c\n\t$(CC) -Oz $(CFLAGS) -c main.c\n"
GITHUB = {
    "github.token": "secret", "github.event.pull_request.number": "7", "github.event.pull_request.base.sha": "before",
    "github.repository": "mine/app",
}  # fmt: skip
NOT_OURS: tuple[str, ...] = ("sudo", "pip", "gh", "curl")
"""What the steps start that is not for tests: stand-ins write down their words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """One job on a machine.

    Attributes:
        workspace: the folder of the job.
        sides: the projects that a checkout gives, by the commit; that of the change has none.
        environment: variables of all steps.
        log: what the stand-ins were started with.
        kept: paths of the artifacts.
    """

    workspace: Path
    sides: Mapping[str, Path]
    environment: dict[str, str]
    log: Path
    kept: list[str] = field(default_factory=list[str])

    def job(self, steps: list[dict[str, Any]], *, values: Mapping[str, str], variables: Mapping[str, Any]) -> bool:
        """Run the steps as GitHub does; whether all of them succeeded."""
        succeeded = True
        for step in steps:
            assert step.get("if", "success()").partition(" && ")[0] in {"always()", "success()"}
            if succeeded or "if" in step:
                variables_of_step = {**variables, **step.get("env", {})}
                succeeded &= self.step(step, values=values, variables=variables_of_step)
        return succeeded

    def step(self, step: dict[str, Any], *, values: Mapping[str, str], variables: Mapping[str, Any]) -> bool:
        given = {name: filled(text, values) for name, text in step.get("with", {}).items()}
        if "run" in step:
            shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail"] if step.get("shell") else ["bash", "-e"]
            place = self.workspace / step.get("working-directory", ".")
            return self.start([*shell, "-c", filled(step["run"], values)], place, values, variables)
        if step["uses"] == "actions/checkout@v4":
            side = self.sides[given.get("ref", "")]
            shutil.copytree(side, self.workspace / given.get("path", "."), dirs_exist_ok=True)
        elif step["uses"] == "actions/upload-artifact@v4":
            assert (self.workspace / given["path"]).is_dir()
            self.kept.append(given["path"])
        else:
            folder = self.workspace / step["uses"]
            action = yaml.safe_load((folder / "action.yml").read_text())
            assert {name for name, about in action["inputs"].items() if about.get("required")} <= {*given}
            assert {*given} <= {*action["inputs"]}
            inputs = {
                f"inputs.{name}": str(given.get(name, about.get("default", "")))
                for name, about in action["inputs"].items()
            }
            more = {**variables, "GITHUB_ACTION_PATH": str(folder)}
            return self.job(action["runs"]["steps"], values={**values, **inputs}, variables=more)
        return True

    def start(self, argv: list[str], place: Path, values: Mapping[str, str], variables: Mapping[str, Any]) -> bool:
        environment = self.environment | {name: filled(str(text), values) for name, text in variables.items()}
        done = process.run(argv, cwd=place, env=environment, timeout_seconds=300)
        sys.stdout.write(f"{done.stdout.decode()}{done.stderr}")
        return done.returncode == 0

    def started(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda found: values[found[1]], str(text))


def put_project(folder: Path, *, calls: int) -> None:
    (folder / "main.c").write_text(source_of_calls("int main(void)", calls, end="return 0; "))
    (folder / "Makefile").write_text(MAKEFILE)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    programs = tmp_path / "bin"
    programs.mkdir()
    log = tmp_path / "started"
    scripts: dict[str, str] = dict.fromkeys(NOT_OURS, f'echo "$(basename "$0") $*" >> {log}')
    scripts["mlgokit"] = f'exec {sys.executable} -m mlgokit "$@"'
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    sides = {"": tmp_path / "now", "before": tmp_path / "before"}
    for side, calls in zip(sides.values(), (24, 12), strict=True):
        side.mkdir()
        put_project(side, calls=calls)
    workspace = tmp_path / "work"
    workspace.mkdir()
    environment = {
        **os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }  # fmt: skip
    return Runner(workspace=workspace, sides=sides, environment=environment, log=log)


@pytest.fixture(scope="module")
def plugin(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the project was tuned to."""
    folder = tmp_path_factory.mktemp("tuned")
    put_project(folder, calls=24)
    words = ["tune", "--build", "make", "--build-folder", str(folder), "--budget", "1s", "--workers", "1"]
    places = ["--folder", str(folder / "tune"), "--output", str(folder / "tuned.so")]
    assert ended(*words, *places, "--llvm", toolchain.major) == 0
    return folder / "tuned.so"


@pytest.fixture
def tuned(runner: Runner, plugin: Path) -> Path:
    """The project with its plugin."""
    for path in (plugin, plugin.resolve()):
        shutil.copy(path, runner.sides[""] / path.name, follow_symlinks=False)
    return runner.sides[""]


def put(project: Path, folder: str, *names: str) -> None:
    (project / folder).mkdir(parents=True)
    for name in names:
        shutil.copy(CI / name, project / folder)


# A search and two builds with the plugin: several seconds.
def test_github_checks_a_tuned_plugin(runner: Runner, tuned: Path):
    put(tuned, ".github/actions/mlgokit", "action.yml", "check.sh")
    (job,) = yaml.safe_load((CI / "workflow.yml").read_text())["jobs"].values()
    assert runner.job(job["steps"], values=GITHUB, variables={})
    report = (runner.workspace / "mlgokit-reports/check.md").read_text()
    assert "| app | " in report
    assert Path(runner.environment["GITHUB_STEP_SUMMARY"]).read_text() == report
    assert runner.kept == ["mlgokit-reports"]
    assert [line.split()[0] for line in runner.started()] == ["sudo", "pip", "gh"]
    assert runner.started()[-1] == ("gh pr comment 7 --edit-last --create-if-none --body-file mlgokit-reports/check.md")
    # A program that is too large fails the job, and is told all the same.
    (action,) = (step for step in job["steps"] if "mlgokit" in step.get("uses", ""))
    action["with"]["options"] = "--max-bytes 10"
    assert not runner.job(job["steps"], values=GITHUB, variables={})
    assert [line.split()[0] for line in runner.started()] == ["sudo", "pip", "gh"] * 2
    assert "more than --max-bytes 10" in (runner.workspace / "mlgokit-reports/check.md").read_text()


@pytest.mark.slow  # the same script as on GitHub, whose test is above
def test_gitlab_checks_a_tuned_plugin(runner: Runner, tuned: Path):
    put(tuned, "ci", "gitlab.yml", "check.sh")
    (job,) = yaml.safe_load((CI / "gitlab.yml").read_text()).values()
    given = {"CI_API_V4_URL": "https://gitlab.example/api/v4", "CI_PROJECT_ID": "3", "MLGOKIT_TOKEN": "secret"}
    variables = {**job["variables"], **given, "CI_MERGE_REQUEST_IID": "7"}
    shutil.copytree(tuned, runner.workspace, dirs_exist_ok=True)
    # GitLab's runner joins the lines of a script, and starts those after it whether it failed or not.
    assert runner.start(["sh", "-ec", "\n".join(job["script"])], runner.workspace, {}, variables)
    assert runner.start(["sh", "-ec", "\n".join(job["after_script"])], runner.workspace, {}, variables)
    assert "| app | " in (runner.workspace / job["artifacts"]["paths"][0] / "check.md").read_text()
    (comment,) = runner.started()
    assert comment.startswith("curl --fail ")
    assert comment.endswith("https://gitlab.example/api/v4/projects/3/merge_requests/7/notes")
    assert "--data-urlencode body@mlgokit-reports/check.md" in comment
    # Without a token nothing is sent.
    del variables["MLGOKIT_TOKEN"]
    assert runner.start(["sh", "-ec", "\n".join(job["after_script"])], runner.workspace, {}, variables)
    assert runner.started() == [comment]
    variables["OPTIONS"] = "--max-bytes 10"
    assert not runner.start(["sh", "-ec", "\n".join(job["script"])], runner.workspace, {}, variables)


def test_github_tells_the_difference_of_sizes(runner: Runner, toolchain: Toolchain):
    for side in runner.sides.values():
        put(side, "ci", "size.sh")
    runner.environment["CC"] = str(toolchain.clang)
    (job,) = yaml.safe_load((CI / "size.yml").read_text())["jobs"].values()
    variables = {**job["env"], "PROGRAMS": "app=250000", "MLGOKIT_MAX_GROWTH": "50"}
    assert runner.job(job["steps"], values=GITHUB, variables=variables)
    report = (runner.workspace / "mlgokit-reports/size.md").read_text()
    assert "main" in report
    assert Path(runner.environment["GITHUB_STEP_SUMMARY"]).read_text() == report
    before, now = (
        json.loads((runner.workspace / folder / "app.json").read_text())
        for folder in ("old-reports", "mlgokit-reports")
    )
    assert before != now
    assert runner.started()[-1].endswith("--body-file mlgokit-reports/size.md")
    variables["MLGOKIT_MAX_GROWTH"] = "0"
    assert not runner.job(job["steps"], values=GITHUB, variables=variables)
    assert runner.started()[-1].startswith("gh pr comment 7 ")
    assert "--max-growth is 0 %" in (runner.workspace / "mlgokit-reports/size.md").read_text()


def test_gitlab_tells_the_difference_of_sizes(runner: Runner, toolchain: Toolchain):
    (job,) = yaml.safe_load((CI / "gitlab-size.yml").read_text()).values()
    project = runner.workspace / "project"
    shutil.copytree(runner.sides["before"], project)
    git = "git -c user.name=me -c user.email=me@example.com"
    commit = f"{git} add . && {git} commit -q -m one"
    assert runner.start(["sh", "-ec", f"git init -q && {commit} && git rev-parse HEAD > ../base"], project, {}, {})
    shutil.copytree(runner.sides[""], project, dirs_exist_ok=True)
    put(project, "ci", "size.sh")
    assert runner.start(["sh", "-ec", commit], project, {}, {})
    variables = {
        **job["variables"], "CI_PROJECT_DIR": project, "CI_API_V4_URL": "https://gitlab.example/api/v4",
        "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7", "MLGOKIT_TOKEN": "secret", "PROGRAMS": "app=250000",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": (runner.workspace / "base").read_text().strip(), "CC": toolchain.clang,
    }  # fmt: skip
    for growth, succeeds in (("50", True), ("0", False)):
        variables["MLGOKIT_MAX_GROWTH"] = growth
        said = runner.start(["sh", "-ec", "\n".join(job["script"])], project, {}, variables)
        assert said is succeeds
        assert runner.start(["sh", "-ec", "\n".join(job["after_script"])], project, {}, variables)
    assert "--max-growth is 0 %" in (project / "mlgokit-reports/size.md").read_text()
    comments = runner.started()
    assert len(comments) == 2
    assert "--data-urlencode body@mlgokit-reports/size.md" in comments[0]
