"""The memory of functions, on objects that are put together here."""

from pathlib import Path

import pytest

from mlgokit.compiler.objects.frames import _used_bytes
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.reuse.known import Code, KnownFunctions, may_drop, read_functions
from mlgokit.compiler.reuse.known_use import select_known
from mlgokit.errors import InputError
from mlgokit.problems import INLINE_SIZE
from mlgokit.testing import toy_source

DIGEST = "00112233445566778899aabbccddeeff"
CODE = Code(text=1, rodata=0, except_table=0, frame=0, personality="", signature="", constants=0, executed=0.0)


def test_the_list_of_functions(tmp_path: Path):
    path = tmp_path / "functions"
    counted = "c 00000018" + "0" * 24 + " a b\nc 0000000800000001" + "0" * 16 + " two\n"
    path.write_text(f"d {DIGEST} one\nn {DIGEST} a b\nn {DIGEST} two\nk {'0' * 32} three\n{counted}")
    one, other, two, three = read_functions(path)
    assert (one.name, one.dropped, one.droppable, one.constants) == ("one", True, True, None)
    assert (other.name, other.dropped, other.droppable, other.constants) == ("a b", False, True, 24)
    assert (two.droppable, two.constants) == (True, None), "not all of them are in sections that all share"
    assert (three.droppable, three.digest) == (False, bytes(16))
    assert read_functions(tmp_path / "none") == []


@pytest.mark.parametrize(
    "line", ["x " + DIGEST + " f", "d 0011 f", f"d {DIGEST} ", "d " + "zz" * 16 + " f", f"c {DIGEST} f"]
)
def test_a_malformed_list_of_functions_is_refused(tmp_path: Path, line: str):
    (tmp_path / "functions").write_text(line + "\n")
    with pytest.raises(InputError, match="expected lines of a letter, a digest and a name"):
        read_functions(tmp_path / "functions")


def test_the_module_used_least_recently_is_evicted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mlgokit.compiler.reuse.known_use.MOST_KNOWN_OF_ALL", 3)
    memory: dict[str, KnownFunctions] = {}
    use = PluginUse(policies={INLINE_SIZE.name: HEURISTIC})

    def select(name: str) -> None:
        known = select_known(memory, None, toy_source(name), CompileRequest(use=use), f"content of {name}").functions
        assert known is not None
        assert known is memory[name]
        if not known.codes:
            known.codes |= dict.fromkeys((b"1", b"2"), CODE)

    for name in ("a", "b", "a", "c"):
        select(name)
    assert list(memory) == ["a", "c"]
    # That of the module itself stays, however much it is.
    memory["c"].codes |= {bytes([number]): CODE for number in range(9)}
    select("c")
    assert list(memory) == ["c"]


def test_an_empty_memory_is_an_empty_file():
    assert b"".join(KnownFunctions().snapshot()) == b""


@pytest.mark.parametrize("option", ["-mllvm", "-pg", "-fsanitize=address", "-fbasic-block-sections=all", "-plugin"])
def test_options_that_lay_code_out_in_another_way(option: str):
    assert not may_drop(("-cc1", "-Oz", option))


def entry(*instructions: int, augmentation: int = 0, filled: int = 0) -> bytes:
    """An FDE; its addresses are not looked at."""
    body = bytes(8) + bytes([augmentation]) + bytes(augmentation) + bytes(instructions)
    body += bytes(-(4 + 4 + len(body)) % 4 + filled)
    return (4 + len(body)).to_bytes(4, "little") + b"\1\0\0\0" + body


@pytest.mark.parametrize(
    ("instructions", "augmentation"),
    [
        ((), 0),
        ((), 4),
        ((0x41, 0x0E, 0x10), 0),
        ((0x41, 0x0E, 0x10, 0x83, 0x02, 0x0A, 0x0B, 0xC3), 4),
        ((0x2E, 0x00), 4),
        ((0x2E, 0x80, 0x00), 0),
        ((0x04, 0, 0, 1, 0, 0x0C, 0x07, 0x08), 0),
        ((0x03, 0, 1, 0x0F, 0x03, 0x77, 0x08, 0x06), 0),
        ((0x10, 0x03, 0x02, 0x00, 0x00), 0),
    ],
)
def test_where_the_last_instruction_of_an_entry_ends(instructions: tuple[int, ...], augmentation: int):
    whole = entry(*instructions, augmentation=augmentation)
    assert _used_bytes(whole) == len(whole)
    assert _used_bytes(entry(*instructions, augmentation=augmentation, filled=4)) == len(whole)


def test_an_unknown_instruction_is_not_guessed():
    assert _used_bytes(entry(0x3F)) is None
    assert _used_bytes(entry(0x41, 0x0E, 0x80)) is None
