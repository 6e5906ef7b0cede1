from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mlgokit.compiler.driver_call import split_response
from mlgokit.corpus.response_files import expand_response_files


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('-Wl,-rpath,"\\$ORIGIN" a.o', ["-Wl,-rpath,$ORIGIN", "a.o"]),
        ("'it\\'s' \"a\\\"b\"", ["it's", 'a"b']),
        ("a\\\nb\r\n\tc", ["a\nb", "c"]),
        ("'' \"\" a\\", ["", "", "a\\"]),
        ("   ", []),
    ],
)
def test_words_are_those_that_llvm_reads(text: str, words: list[str]):
    assert split_response(text) == words


@pytest.mark.parametrize("text", ["'a", 'a "b', "a'b\"c"])
def test_a_quotation_that_does_not_end_is_refused(text: str):
    with pytest.raises(ValueError, match="expected every quotation mark to be closed, found"):
        split_response(text)


@given(st.lists(st.text(min_size=1)))
def test_escaped_words_come_back(words: list[str]):
    text = " ".join("".join(f"\\{letter}" for letter in word) for word in words)
    assert split_response(text) == words


def test_a_file_that_is_not_there_is_refused_kept_or_dropped(tmp_path: Path):
    (tmp_path / "b.rsp").write_text("-b @c.rsp")
    words = ["-a", "@b.rsp", "-d"]
    assert expand_response_files(words, tmp_path, missing="keep") == ["-a", "-b", "@c.rsp", "-d"]
    assert expand_response_files(words, tmp_path, missing="drop") == ["-a", "-b", "-d"]
    with pytest.raises(ValueError, match=r"@c\.rsp: expected a response file, found: No such file or directory"):
        expand_response_files(words, tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path: Path):
    (tmp_path / "a.rsp").write_text("-O2 b.c", encoding="utf-8-sig")
    assert expand_response_files(["@a.rsp"], tmp_path) == ["-O2", "b.c"]


def test_a_file_that_leads_to_itself_is_one_that_cannot_be_read(tmp_path: Path):
    (tmp_path / "loop").symlink_to("loop")
    assert expand_response_files(["@loop"], tmp_path, missing="keep") == ["@loop"]
    with pytest.raises(ValueError, match="@loop: cannot be read: Too many levels of symbolic links"):
        expand_response_files(["@loop"], tmp_path, inside=tmp_path)


def test_what_response_files_take_is_bounded(tmp_path: Path):
    (tmp_path / "a.rsp").write_text("x " * 100)
    with pytest.raises(ValueError, match=r"@a\.rsp: expected at most 150 bytes of response files, found more"):
        expand_response_files(["@a.rsp"], tmp_path, most_bytes=150)
    with pytest.raises(ValueError, match="expected a file, found a folder"):
        expand_response_files(["@."], tmp_path)
