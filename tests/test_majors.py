"""What the docs say of LLVM's majors is what the sources know of them."""

import re
from pathlib import Path

import pytest

from mlgokit.compiler.toolchain import SUPPORTED_MAJORS

ROOT = Path(__file__).parent.parent
PLUGIN = ROOT / "src" / "mlgokit" / "plugin"
PAGE = ROOT / "docs" / "how-to" / "new-major.md"
TABLE = ROOT / "docs" / "reference" / "support.md"


def test_every_major_has_a_row_with_its_test_or_the_reason():
    rows = re.findall(r"^\| (\d+) \| (yes|no) \| (.+) \|$", TABLE.read_text(), flags=re.MULTILINE)

    assert [int(major) for major, _, _ in rows] == list(range(14, 25))
    assert tuple(int(major) for major, works, _ in rows if works == "yes") == SUPPORTED_MAJORS
    for _, works, reason in rows:
        assert ("`tests/llvm`" in reason) == (works == "yes")


def test_the_page_names_every_file_that_knows_a_major():
    page = PAGE.read_text()
    knowing = [
        str(path.relative_to(PLUGIN))
        for path in sorted(PLUGIN.rglob("*"))
        if path.suffix in {".cpp", ".h"} and re.search(r"#if LLVM_VERSION_MAJOR", path.read_text())
    ]

    assert [name for name in knowing if f"`{name}`" not in page] == []


def test_the_files_that_the_page_names_exist():
    names = [name for name in re.findall(r"`([\w/-]+\.(?:py|sh|tsv|toml|cpp|h))`", PAGE.read_text()) if "/" in name]
    folders = (ROOT, PLUGIN, ROOT / "src" / "mlgokit")

    # LLVM's own sources are named beside ours.
    ours = [name for name in names if not name.startswith("lib/")]
    assert [name for name in ours if not any((folder / name).is_file() for folder in folders)] == []


@pytest.mark.parametrize("path", ["scripts/bootstrap.sh", "src/mlgokit/compiler/majors.py"])
def test_lists_of_majors_agree(path: str):
    text = (ROOT / path).read_text()
    (found,) = re.findall(r"^SUPPORTED_MAJORS ?= ?['(]([\d, ]+)[')]$", text, flags=re.MULTILINE)

    assert {int(major) for major in re.findall(r"\d+", found)} == set(SUPPORTED_MAJORS)
