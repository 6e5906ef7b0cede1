"""The command that builds with a plugin: what it refuses, and what it says, with a compiler that is a script."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgokit.commands import build
from mlgokit.commands.build import Build, BuildResult, exit_code, render, tuned_for
from mlgokit.compiler.build_tree import UnseenObject
from mlgokit.compiler.objects.measure import Objective
from mlgokit.errors import InputError, UsageError
from mlgokit.tables.decisions import TuningSummary, make_entry, write_table
from mlgokit.terminal import open_console

RESULT: dict[str, Any] = {
    "command": ("make",), "plugin": "tuned.so", "plugin_in": "both", "compiler": "clang 22", "reason": "", "code": 0,
    "seen": 3, "compilations": 3, "failed": 0, "left_out": {},
    "levels": {"-Oz": 3}, "links": 1, "links_with_plugin": 0, "links_without": 0,
    "links_by_another": 0, "programs": (),
    "programs_without": {}, "foreign": (), "passed_by": (), "up_to_date": 0, "wall_seconds": 1.0,
}  # fmt: skip
PASSED = UnseenObject(path=Path("b/x.o"), compiler="GCC: 12", is_new=True)


def test_calls_that_make_no_sense(tmp_path: Path):
    plugin = tmp_path / "tuned.so"
    with pytest.raises(UsageError, match=r"^build: expected a build after --, found nothing; give one, as in"):
        build.run(Build(command=(), plugin=plugin))
    with pytest.raises(UsageError, match=r"^build: expected a program in no-such-make -j2, found no no-such-make; "):
        build.run(Build(command=("no-such-make", "-j2"), plugin=plugin))
    with pytest.raises(InputError, match="expected a plugin, found no such file; correct the path"):
        build.run(Build(command=("true",), plugin=plugin))


@pytest.mark.parametrize(
    ("names", "defers", "place"),
    [
        (("a/b.o", "a/c.o"), False, "compile"),
        (("tool (link)",), False, "link"),
        (("tool (link)",), True, "both"),
        (("a/b.o (link)", "a/c.o (link)"), True, "both"),
    ],
)
def test_a_tuned_plugin_says_what_it_is_for(tmp_path: Path, names: tuple[str, ...], defers: bool, place: str):
    decided = np.array([True])
    keys = np.array([8], np.uint64)
    # Modules that are left to LLVM have nothing to say.
    entries = [make_entry([1], keys, decided), make_entry([2], keys, decided, defers=defers)][-len(names) :]
    summary = TuningSummary(
        llvm=22, objective=Objective.LINK_AWARE.value, plain_bytes=2.0, tuned_bytes=1.0, modules=names
    )
    write_table(tmp_path / "decisions", entries, summary)
    assert tuned_for(tmp_path / "decisions") == (22, place)
    (tmp_path / "policy.so").write_text("a plugin with something else inside")
    assert tuned_for(tmp_path / "policy.so") == (None, "all")


@pytest.mark.parametrize(
    ("facts", "code", "sentences"),
    [
        ({}, 0, ["3 compilations with tuned.so, by clang 22, which replaces the build's compiler; 0 failed"]),
        (
            {"seen": 5, "left_out": {"a.c, b.c": "they are gone"}},
            0,
            ["5 compilations seen; not counted are\n  a.c, b.c: they are gone\n"],
        ),
        (
            {"levels": {"-Oz": 1, "-O2": 2}},
            0,
            ["2 of them without -Oz or -Os, where policies and inlining for size have no effect"],
        ),
        ({"links_with_plugin": 1}, 0, ["loaded in 1 link with link-time optimization"]),
        ({"links_without": 1, "plugin_in": "compile"}, 0, ["not loaded in 1 link with link-time optimization, as it"]),
        ({"plugin_in": "link"}, 0, ["3 compilations without tuned.so", "the build made none by lld"]),
        ({"links_by_another": 2}, 0, ["not loaded in 2 links with link-time optimization by another linker than lld"]),
        ({"foreign": ("arm-gcc",)}, 0, ["without the plugin, as they compile for another machine: arm-gcc"]),
        ({"passed_by": (PASSED,)}, 0, ["without the plugin: 1 new object, such as b/x.o by GCC: 12, which bypassed"]),
        (
            {"passed_by": (PASSED,), "compilations": 0},
            1,
            ["start compilers by name or by CC and CXX, and do not clear"],
        ),
        ({"compilations": 0, "up_to_date": 7}, 0, ["not rebuilt, below this folder: 7 other objects; clean"]),
        ({"compilations": 0}, 0, ["the build compiled no C or C++"]),
        (
            {"compilations": 0, "plugin_in": "rustc", "programs": ("tool (bin)",)},
            0,
            ["1 call of rustc with tuned.so, each for the full link-time optimization of a program: tool (bin)"],
        ),
        ({"programs_without": {"tool (bin)": "it is fast"}}, 0, ["without the plugin, for tool (bin): it is fast"]),
        (
            {"plugin_in": "rustc"},
            0,
            ["3 compilations without tuned.so", "which linked no program in this build; cargo"],
        ),
        ({"code": 2, "reason": "make ended with 2"}, 2, ["make ended with 2"]),
        ({"code": -9, "reason": "make did not end within 60 s"}, 137, ["make did not end within 60 s"]),
    ],
)
def test_a_build_is_reported_in_sentences_and_its_exit_code(facts: dict[str, Any], code: int, sentences: list[str]):
    found, out = BuildResult(**(RESULT | facts)), io.StringIO()
    render(found, open_console(out, soft_wrap=True))

    assert exit_code(Build(command=("make",), plugin=Path("tuned.so")), found) == code
    for sentence in sentences:
        assert sentence in out.getvalue()
    assert found.to_json()["passed_by"] == [{"object": "b/x.o", "compiler": "GCC: 12"} for _ in found.passed_by]
