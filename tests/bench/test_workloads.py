"""The list of workloads: what comes with mlgokit, what a user may write, and the inputs that are made."""

import hashlib
from pathlib import Path

import pytest

from mlgokit.bench.inputs import INPUT_KINDS, Input, make_input
from mlgokit.bench.workloads import Workload, choose_workloads, load_workloads, packaged_workloads
from mlgokit.corpus.sources.projects import load_projects
from mlgokit.errors import CorpusError, UsageError

KINDS = {
    "compression", "JSON", "XML", "regular expressions", "SQL", "interpreter", "images", "compiler",
    "number formatting", "key-value store",
}  # fmt: skip
LEAST = """
[[workload]]
name = "mine"
build = [["make"]]
run = ["./a"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "workloads.toml"
    path.write_text(text)
    return path


def test_the_packaged_list_has_work_of_every_kind():
    workloads = load_workloads()
    assert len(workloads) >= 10
    assert {one.kind for one in workloads} >= KINDS
    for one in workloads:
        assert one.projects
        assert one.run[0] == "{build}/program"
        assert not one.driver or (one.drivers / one.driver).is_file()
        assert all(
            Path(word.replace("{drivers}", str(one.drivers))).is_file() for word in one.run if "drivers}" in word
        )


def test_drivers_and_projects_are_all_used():
    workloads = load_workloads()
    drivers = {path.name for path in (packaged_workloads().parent / "drivers").iterdir()}
    words = {word.removeprefix("{drivers}/") for one in workloads for word in (*one.run, one.driver)}
    assert drivers - words == {"input.h"}


def test_no_workload_but_one_is_of_a_project_that_is_trained_on():
    trained = {project.name for project in load_projects() if not project.held_out}
    used = {project.name for one in load_workloads() for project in one.projects}
    assert used & trained == {"zlib"}


def test_a_workload_of_ones_own_needs_little(tmp_path: Path):
    (found,) = load_workloads(written(tmp_path, LEAST))
    assert found == Workload(name="mine", build=(("make",),), run=("./a",), drivers=(tmp_path / "drivers").absolute())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('sort = "x"', "workload 'mine': sort: expected one of the keys .*, found this unknown key"),
        ('projects = ["re2"]', "workload 'mine': build: expected commands, or projects, and not both"),
        ('format = "xml"', "workload 'mine': format: expected one of command, google-benchmark, lit, found 'xml'"),
        ('driver = "../a.c"', "workload 'mine': driver: expected a .c or .cpp file"),
        ('outputs = ["/x"]', "workload 'mine': outputs: expected a list of globs below"),
        ("exit_code = -1", "workload 'mine': exit_code: expected an exit code, found -1"),
        ('input = [{ name = "a", kind = "prose", size = 1 }]', "kind: expected one of text, json.*found 'prose'"),
        ('input = [{ name = "a/b", kind = "text", size = 1 }]', "name: expected the name of a file"),
        ('input = [{ name = "a", kind = "text", size = 0 }]', "size: expected a number of bytes, found 0"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, line: str, sentence: str):
    with pytest.raises(CorpusError, match=sentence):
        load_workloads(written(tmp_path, f"{LEAST}{line}\n"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected at least one \\[\\[workload\\]\\], found none"),
        (LEAST + LEAST, "expected different names of workloads, found 'mine' twice"),
        ('[[workload]]\nname = "a"\nbuild = [[]]\nrun = ["b"]', "build: expected a list of commands"),
        ('[[workload]]\nname = "a"\nbuild = [["b"]]', "run: expected the program and its arguments, found nothing"),
        ('[[workload]]\nname = "a"\nprojects = ["nobody"]', "projects: expected projects of this list .*'nobody'"),
        ("[[workload]", "expected TOML"),
    ],
)
def test_an_invalid_list_of_workloads_is_one_sentence(tmp_path: Path, text: str, sentence: str):
    with pytest.raises(CorpusError, match=sentence):
        load_workloads(written(tmp_path, text))


def test_a_name_that_is_not_in_the_list_is_a_sentence(tmp_path: Path):
    with pytest.raises(UsageError, match="expected names of listed workloads, found other; name some of mine"):
        choose_workloads(written(tmp_path, LEAST), ["mine", "other"])


DIGESTS = {
    "text": "c3108013f995e0c4",
    "json": "aa3aee357633a4cf",
    "xml": "03e8556ac9780bb1",
    "markdown": "57cec6ad314a1863",
    "yaml": "672110366c23e960",
    "scss": "2c05c58f9b092d6c",
}


@pytest.mark.parametrize("kind", INPUT_KINDS)
def test_inputs_are_the_same_everywhere(kind: str):
    text = make_input(Input(name="a", kind=kind, size=5000))  # pyright: ignore[reportArgumentType]
    assert len(text) >= 5000
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGESTS[kind]
    assert make_input(Input(name="a", kind=kind, size=5000, seed=2)) != text  # pyright: ignore[reportArgumentType]
