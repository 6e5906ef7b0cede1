"""The stages that hold a corpus against its build, as far as they need no compiler."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlgokit.commands import evaluate, trace, train
from mlgokit.commands.corpus import override, verify
from mlgokit.commands.options import OptionChanges
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import UsageError

TOOLCHAIN = Toolchain(major=19, version="19.1.7", clang=Path("clang"), clangxx=Path("clang++"))


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus with one module that waits for its options; nothing can be compiled."""
    monkeypatch.setattr(override, "find_toolchain", lambda *_, **__: TOOLCHAIN)
    (tmp_path / "a.o.bc").write_bytes(b"BC")
    description = {"global_command_override": ["<UNSPECIFIED>"], "has_thinlto": False, "modules": ["a.o"]}
    (tmp_path / "corpus_description.json").write_text(json.dumps(description))
    return tmp_path


@pytest.mark.parametrize(
    ("named", "found"),
    [({}, "none"), ({"objects": Path("a"), "sources": Path("b")}, "objects and sources")],
)
def test_verifying_needs_one_thing_to_compare_with(named: dict[str, Any], found: str):
    with pytest.raises(UsageError, match=rf"expected one of --objects, .*, found {found}; give exactly one"):
        verify.run(verify.Verify(**named))


def test_at_least_one_module_is_compared():
    with pytest.raises(UsageError, match="--most: expected at least 1, found -1; give more"):
        verify.run(verify.Verify(objects=Path("objects"), most=-1))


def test_changes_are_refused_before_anything_is_read():
    changes = OptionChanges(add_options=("-O2",), replace_options=("-O3",))
    configs: list[tuple[Callable[..., object], object]] = [
        (verify.run, verify.Verify(objects=Path("nowhere"), changes=changes)),
        (trace.run, trace.Trace(corpus=Path("nowhere"), changes=changes)),
        (train.run, train.Train(corpus=Path("nowhere"), changes=changes)),
        (evaluate.run, evaluate.Evaluate(policy=(":never",), corpus=Path("nowhere"), changes=changes)),
    ]
    for stage, config in configs:
        with pytest.raises(UsageError, match="add and replace options: expected each option in one of them"):
            stage(config)


def test_a_link_command_fills_a_corpus_in(corpus: Path):
    command = corpus / "link.txt"
    command.write_text("ninja: entering\nld.lld -m elf_x86_64 -pie --lto-O3 --gc-sections a.o -o a\n")
    found = override.run(override.Override(link_command=command, corpus=corpus))
    written = json.loads((corpus / "corpus_description.json").read_text())
    assert written["global_command_override"] == list(found.options)
    assert found.options[:4] == ("-cc1", "-triple", "x86_64-unknown-linux-gnu", "-O3")
    assert dict(found.dropped)["--gc-sections"].startswith("it concerns the image")
