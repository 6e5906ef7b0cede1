"""Compilers, data, policies and folders that will not do."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.llvm.stages.tiny import (
    HELD_OUT,
    MODULE_NAMES,
    Gate,
    Mlgokit,
    TinyProjects,
    built_already,
    files,
    script,
    training,
)

from mlgokit.compiler.toolchain import ADVISED_MAJOR, LOCATION_VARIABLE, Toolchain
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog
from mlgokit.policy.store import policy_bytes, save_policy
from mlgokit.problems import INLINE_SIZE

pytestmark = pytest.mark.llvm


def imitation(root: Path, version: str, real: Toolchain | None = None) -> Path:
    """A folder with clang alone: one that prints a version, or one that hands over to a real one."""
    (root / "bin").mkdir(parents=True)
    for name in ("clang", "clang++"):
        command = f"echo 'clang version {version}'" if real is None else f"exec '{real.clang.parent / name}' \"$@\""
        script(root / "bin" / name, command)
    return root


STAGES = (
    ("trace", "--corpus", "CORPUS", "--output", "OUTPUT"),
    ("train", "--corpus", "CORPUS", "--output", "OUTPUT"),
    ("evaluate", ":default", "--corpus", "CORPUS", "--output", "OUTPUT"),
    ("quickstart", "--folder", "OUTPUT"),
)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage[0])
def test_without_a_fit_clang_nothing_begins(
    tmp_path: Path,
    newest: Toolchain,
    newest_corpus: Path,
    mlgokit: Mlgokit,
    monkeypatch: pytest.MonkeyPatch,
    stage: tuple[str, ...],
):
    places = {"CORPUS": newest_corpus, "OUTPUT": tmp_path / "output"}
    words = [places.get(word, word) for word in stage]

    monkeypatch.setenv(LOCATION_VARIABLE, str(tmp_path))
    found = mlgokit(*words)
    assert found.code == 3
    assert found.sentence == (
        f"{LOCATION_VARIABLE}={tmp_path}: expected the folder of an LLVM installation with a clang that works, "
        "found none there; correct or unset the variable, `mlgokit doctor` shows what there is"
    )

    monkeypatch.setenv(LOCATION_VARIABLE, str(imitation(tmp_path / "headless", "", newest)))
    found = mlgokit(*words)
    assert found.code == 3
    assert f"LLVM {newest.major} headers: expected llvm/Config/llvm-config.h of major {newest.major}" in found.sentence
    assert (
        f"found none; run `sudo apt-get install -y --no-install-recommends llvm-{newest.major}-dev`" in found.sentence
    )

    monkeypatch.setenv(LOCATION_VARIABLE, str(imitation(tmp_path / "old", "17.0.6")))
    found = mlgokit(*words)
    assert found.code == 3
    assert "expected LLVM major 19, 21, 22 or 23 for the plugin, found 17.0.6; run `sudo apt-get" in found.sentence

    monkeypatch.delenv(LOCATION_VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("mlgokit.compiler.toolchain._SYSTEM_FOLDERS", str(tmp_path / "nowhere"))
    found = mlgokit(*words)
    assert found.code == 3
    assert "clang: expected one in PATH, /usr/lib/llvm-*/bin or $MLGOKIT_LLVM, found none; run `sudo" in found.sentence

    found = mlgokit(*words, "--llvm", 20)
    assert (found.code, found.sentence.partition(";")[0]) == (
        3,
        "clang 20: expected LLVM major 19, 21, 22 or 23 for the plugin",
    )
    assert not (tmp_path / "output").exists()


def test_one_corrupt_module_is_counted_and_left_out(
    tmp_path: Path, newest_corpus: Path, mlgokit: Mlgokit, monkeypatch: pytest.MonkeyPatch
):
    corpus = shutil.copytree(newest_corpus, tmp_path / "corpus")
    sound = {name: (corpus / f"{name}.bc").read_bytes() for name in ("alpha/part2.cc.o", f"{HELD_OUT}/part6.cc.o")}
    for name, data in sound.items():
        (corpus / f"{name}.bc").write_bytes(data[: len(data) // 2])
    place = ("--corpus", corpus, "--store", tmp_path / "store")

    assert {one["name"] for one in mlgokit("corpus", "info", *place[:2], "--json").json["damaged"]} == set(sound)
    traced = mlgokit("trace", *place, "--output", tmp_path / "trace", "--json")
    assert traced.code == 0
    assert {one["module"]: one["status"] for one in traced.json["failed"]} == dict.fromkeys(sound, "failed")
    assert all("error:" in one["reason"] for one in traced.json["failed"])

    trained = mlgokit("train", *place, "--output", tmp_path / "train", *training(rounds=1), "--json")
    assert trained.code == 0
    policy = trained.json["policy"]
    evaluated = mlgokit("evaluate", policy, "--corpus", corpus, "--json")
    # Of so little the gate may learn to leave all to LLVM.
    assert evaluated.code == (0 if evaluated.json["verdict"]["ship"] else 1)
    (project,) = evaluated.json["projects"]
    assert (project["modules"], {one["module"] for one in project["failures"]}) == (1, {f"{HELD_OUT}/part6.cc.o"})

    # What failed because of the damage is tried again once it is mended; a folder of the damaged code stays as it is.
    for name, data in sound.items():
        (corpus / f"{name}.bc").write_bytes(data)
    assert mlgokit("trace", *place, "--output", tmp_path / "trace").code == 5
    assert mlgokit("trace", *place, "--output", tmp_path / "again", "--json").json["failed"] == []


def test_a_project_of_which_nothing_compiles_is_not_compared(tmp_path: Path, newest_corpus: Path, mlgokit: Mlgokit):
    corpus = shutil.copytree(newest_corpus, tmp_path / "corpus")
    for path in (corpus / HELD_OUT).glob("*.bc"):
        path.write_bytes(b"no bitcode")

    evaluated = mlgokit("evaluate", ":default", "--corpus", corpus, "--json")

    # There is nothing that speaks for it.
    assert evaluated.code == 1
    (project,) = evaluated.json["projects"]
    assert (project["modules"], len(project["failures"]), evaluated.json["summary"]) == (0, 4, {})
    assert project["link_failure"]
    shown = mlgokit("evaluate", ":default", "--corpus", corpus).out
    assert shown.count(": compile, ") == 4


def test_a_corpus_of_which_nothing_compiles_teaches_nothing(tmp_path: Path, newest_corpus: Path, mlgokit: Mlgokit):
    corpus = shutil.copytree(newest_corpus, tmp_path / "corpus")
    for number, path in enumerate(corpus.rglob("*.bc")):
        # Each another: modules that equal held-out ones do not teach.
        path.write_bytes(b"no bitcode %d" % number)

    found = mlgokit("train", "--corpus", corpus, "--output", tmp_path / "train")

    assert found.code == 4
    assert found.sentence.startswith("training: expected at least one of 5 modules to compile and to have ")
    assert "check the corpus with `mlgokit corpus info`" in found.sentence


def test_a_truncated_log_is_a_failure_of_its_module(
    tmp_path: Path, newest: Toolchain, newest_corpus: Path, mlgokit: Mlgokit, monkeypatch: pytest.MonkeyPatch
):
    root = imitation(tmp_path / "cutting", "", newest)
    assert newest.include_dir is not None
    (root / "include").symlink_to(newest.include_dir)
    cut = 'case "$*" in *part4*) truncate -s -100 "$MLGOKIT_LOG";; esac'
    script(root / "bin" / "clang", f"'{newest.clang}' \"$@\" || exit\n{cut}")
    monkeypatch.setenv(LOCATION_VARIABLE, str(root))

    with built_already(root, newest, monkeypatch):
        traced = mlgokit("trace", "--corpus", newest_corpus, "--output", tmp_path / "trace", "--json")

    assert traced.code == 0
    (failure,) = traced.json["failed"]
    assert (failure["module"], failure["status"]) == ("beta/part4.cc.o", "bad_trace")
    assert ": expected " in failure["reason"]
    assert len(files(tmp_path / "trace" / "logs", "*.log")) == len(MODULE_NAMES) - 1


def some_policy(problem: str) -> Policy:
    return Policy(
        problem=problem,
        features=("cost_estimate",),
        normaliser=SignedLog(mean=np.zeros(1, np.float32), scale=np.ones(1, np.float32), clip=4.0),
        layers=(Layer(np.ones((1, 1, 2), np.float32), np.zeros((1, 2), np.float32)),),
        output=OutputKind.LOGITS,
    )


def test_policies_that_will_not_do_start_no_compiler(
    tmp_path: Path, newest_corpus: Path, gate: Gate, mlgokit: Mlgokit, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(LOCATION_VARIABLE, str(gate.root))
    save_policy(some_policy("register-allocation"), tmp_path / "other.policy")
    (tmp_path / "short.policy").write_bytes(policy_bytes(some_policy(INLINE_SIZE.name))[:-3])
    expected = {
        "other": f"expected a policy for {INLINE_SIZE.name}",
        "short": "expected a safetensors file with the metadata 'mlgokit.policy', found something else",
        "absent": "expected a readable file, found: No such file or directory; check the path",
    }

    for name, text in expected.items():
        path = tmp_path / f"{name}.policy"
        for words in (
            ("evaluate", path, "--corpus", newest_corpus),
            ("export", "plugin", path, "--output", tmp_path / "plugin.so"),
        ):
            found = mlgokit(*words)
            assert found.code == 4
            assert found.sentence.startswith(f"policy {path}: {text}")
    assert gate.compilations() == 0
    assert not (tmp_path / "plugin.so").exists()


def test_a_folder_of_another_configuration_is_left_alone(
    tmp_path: Path, newest_corpus: Path, tiny_projects: TinyProjects, mlgokit: Mlgokit
):
    trace = ("trace", "--corpus", newest_corpus, "--output", tmp_path / "made")
    assert mlgokit(*trace).code == 0
    before = files(tmp_path, "*")

    found = mlgokit("train", "--corpus", newest_corpus, "--output", tmp_path / "made")
    assert found.code == 5
    assert found.sentence == (
        f'{tmp_path / "made"}: kind: expected "policy", found "trace"; choose another folder or delete this one'
    )
    copy = shutil.copytree(newest_corpus, tmp_path / "corpus")
    projects = ("--manifest", tiny_projects.manifest, "--projects", "beta")
    sources = ("--sources", newest_corpus.with_name("sources"))
    found = mlgokit("corpus", "extract", *projects, *sources, "--corpus", copy, "--llvm", ADVISED_MAJOR)
    assert found.code == 5
    assert found.sentence.startswith(f"{copy}: inputs.alpha: expected nothing, found ")
    shutil.rmtree(copy)
    assert files(tmp_path, "*") == before


def test_another_seed_does_not_go_into_the_same_folder(
    tmp_path: Path, newest_corpus: Path, mlgokit: Mlgokit, monkeypatch: pytest.MonkeyPatch
):
    words = ("train", "--algorithm", "behavioural-cloning", "--corpus", newest_corpus, "--output", tmp_path / "clone")
    quick = ("--setting", "imitation.steps=1", "--seed")
    assert mlgokit(*words, *quick, 1).code == 0
    before = files(tmp_path, "*")

    found = mlgokit(*words, *quick, 2)

    assert (found.code, found.sentence) == (
        5,
        f"{tmp_path / 'clone'}: config.seed: expected 2, found 1; choose another folder or delete this one",
    )
    assert files(tmp_path, "*") == before
