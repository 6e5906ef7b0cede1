"""The memory of objects by what was decided, with what the plugin would write."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.request import CompileRequest, PluginUse
from mlgokit.compiler.reuse import known_decisions
from mlgokit.compiler.reuse.known_decisions import KnownDecisions
from mlgokit.compiler.reuse.known_use import Known, compile_with_reuse, select_known
from mlgokit.compiler.reuse.trials import TrialRequest
from mlgokit.errors import InputError
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.testing import toy_sizes

ONE, OTHER = "00112233445566778899aabbccddeeff", "ff" * 16
USE = PluginUse(policies={INLINE_SIZE.name: ":default"}, logs=(INLINE_SIZE.name,))
MODULE = Module(
    name="p/m", project="p", language="c", bitcode=Path("m.bc"), bitcode_bytes=1, command_line=("-cc1", "-Oz")
)


def object_of(functions: int) -> ObjectSizes:
    return toy_sizes({f"f{index}": index for index in range(functions)})


def decided(memory: KnownDecisions, folder: Path, line: str, sizes: ObjectSizes | None = None) -> ObjectSizes | None:
    """One compilation whose plugin wrote ``line``; without ``sizes`` there is no object."""
    objects = memory.of("content")
    (folder / "decided").write_text(line)

    def measure() -> ObjectSizes:
        assert sizes is not None, "the object is not read"
        return sizes

    return objects.complete(folder, measure)


def test_an_object_is_known_by_what_was_decided(tmp_path: Path):
    memory, sizes = KnownDecisions(), object_of(2)
    assert memory.of("content").settings(tmp_path).keys() == {"MLGOKIT_KNOWN_DECISIONS", "MLGOKIT_DECIDED"}
    assert (tmp_path / "known_decisions").read_bytes() == b""
    assert decided(memory, tmp_path, f"g {ONE}\n", sizes) == sizes
    memory.of("content").settings(tmp_path)
    assert (tmp_path / "known_decisions").read_bytes() == bytes.fromhex(ONE)
    again = decided(memory, tmp_path, f"e {ONE}\n")
    assert again is not None
    assert (again.function_names, again.totals) == (sizes.function_names, sizes.totals)
    assert (memory.hits, memory.misses) == (1, 1)
    assert not memory.of("another command line").sizes


def test_without_an_answer_of_the_plugin_the_object_is_read(tmp_path: Path):
    sizes = object_of(1)
    assert KnownDecisions().of("content").complete(tmp_path, lambda: sizes) is sizes


@pytest.mark.parametrize("line", ["", f"x {ONE}\n", f"g {ONE[1:]}\n", f"g {ONE}", f"g {ONE}\ng {ONE}\n"])
def test_a_malformed_answer_of_the_plugin_is_refused(tmp_path: Path, line: str):
    with pytest.raises(InputError, match="expected a letter and a digest"):
        decided(KnownDecisions(), tmp_path, line)


def test_an_end_where_nothing_is_known_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="which is new"):
        decided(KnownDecisions(), tmp_path, f"e {ONE}\n")


def test_the_module_that_was_asked_for_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(known_decisions, "MOST_FUNCTIONS", 5)
    memory = KnownDecisions()
    for content in ("first", "second"):
        memory.note(content, b"1" * 16, object_of(2), ended=False)
    memory.note("first", b"1" * 16, object_of(2), ended=True)
    memory.note("third", b"1" * 16, object_of(3), ended=False)
    assert [bool(memory.of(content).sizes) for content in ("first", "second", "third")] == [True, False, True]


@pytest.mark.parametrize(
    ("request_changes", "use_changes"),
    [
        ({"keep_object": Path("m.o")}, {}),
        ({"regalloc": True}, {}),
        ({"lto": "full"}, {}),
        ({}, {"trials": TrialRequest()}),
        ({}, {"allocations": b"1"}),
        ({}, {"passes": b"1"}),
        ({}, {"optimizer_passes": b"1"}),
        ({}, {"list_changes": True}),
        ({}, {"replay_lines": Path("lines")}),
        ({}, {"policies": {INLINE_SIZE.name: ":default", "regalloc-eviction": ":default"}}),
        ({}, {"logs": (INLINE_SIZE.name, "regalloc-eviction")}),
    ],
)
def test_requests_that_decisions_do_not_determine_are_compiled_to_the_end(
    request_changes: dict[str, Any], use_changes: dict[str, Any]
):
    memory = KnownDecisions()
    assert select_known(None, memory, MODULE, CompileRequest(use=USE), "content").objects is not None
    use = dataclasses.replace(USE, **use_changes)
    assert select_known(None, memory, MODULE, CompileRequest(use=use, **request_changes), "content").objects is None


def test_a_failure_is_compiled_once_more_without():
    asked: list[bool] = []

    def compile_part(known: Known) -> Compilation:
        asked.append(known.objects is not None)
        status = CompileStatus.FAILED if known.objects else CompileStatus.OK
        return Compilation(status=status, user_seconds=1.0)

    done = compile_with_reuse(Known(objects=KnownDecisions().of("content")), compile_part)
    assert (done.status, done.user_seconds, asked) == (CompileStatus.OK, 2.0, [True, False])
