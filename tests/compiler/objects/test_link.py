"""What needs no linker: a shell script stands for it, and shows what it was given."""

from pathlib import Path

import pytest
from tests.scripts import script

from mlgokit.compiler.objects.link import LinkedImage, LinkStatus, link_image, link_roots
from mlgokit.errors import InputError, ToolError, UsageError


def link(tmp_path: Path, line: str, *, timeout_seconds: float = 20, icf: bool = False) -> LinkedImage:
    lld = script(tmp_path / "ld.lld", line)
    objects = [tmp_path / "a b.o", tmp_path / "c.o"]
    return link_image(
        objects,
        tmp_path / "image",
        roots=("main", 'odd "name"\\'),
        lld=lld,
        timeout_seconds=timeout_seconds,
        icf=icf,
    )


def test_the_linker_gets_objects_roots_and_flags_in_a_response_file(tmp_path: Path):
    image = link(tmp_path, 'cat "${1#@}" >&2; exit 1')
    lines = image.stderr.splitlines()
    assert '"--gc-sections"' in lines
    assert '"--undefined=main"' in lines
    assert r'"--undefined=odd \"name\"\\"' in lines
    assert lines[-2:] == [f'"{tmp_path}/a b.o"', f'"{tmp_path}/c.o"']
    assert '"--icf=all"' not in lines


def test_folding_is_asked_for(tmp_path: Path):
    assert '"--icf=all"' in link(tmp_path, 'cat "${1#@}" >&2; exit 1', icf=True).stderr


def test_a_failing_linker_is_a_result(tmp_path: Path):
    image = link(tmp_path, "echo out of luck >&2; exit 3")
    assert (image.status, image.image, image.stderr) == (LinkStatus.FAILED, 0, "out of luck\n")


def test_a_hanging_linker_is_killed(tmp_path: Path):
    image = link(tmp_path, "exec sleep 600", timeout_seconds=0.2)
    assert (image.status, image.image) == (LinkStatus.TIMED_OUT, 0)


def test_a_linker_that_writes_no_image_has_failed(tmp_path: Path):
    image = link(tmp_path, "exit 0")
    assert image.status is LinkStatus.FAILED
    assert "image: expected a readable object file, found No such file" in image.stderr


def test_no_objects_is_a_usage_error(tmp_path: Path):
    with pytest.raises(UsageError, match="image: expected at least one object to link, found none"):
        link_image([], tmp_path / "image", roots=(), lld=tmp_path / "ld.lld", timeout_seconds=1)


def test_no_linker_is_a_tool_error(tmp_path: Path):
    with pytest.raises(ToolError, match=r"ld\.lld: expected an executable program, found none"):
        link_image([tmp_path / "a.o"], tmp_path / "image", roots=(), lld=tmp_path / "ld.lld", timeout_seconds=1)


def test_roots_need_sound_objects():
    with pytest.raises(InputError, match="expected an ELF file"):
        link_roots([b"int main();"])
