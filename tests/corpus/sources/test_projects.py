import tomllib
from pathlib import Path

import pytest

from mlgokit.corpus.options.driver import driver_units, may_be_run
from mlgokit.corpus.sources.projects import Archive, GeneratedFile, Program, ProgramRun, Project, load_projects
from mlgokit.errors import CorpusError

SHA = "0" * 64
ARCHIVE = f'archive = {{registry="pypi", package="p", version="1", file="p-1.tar.gz", sha256="{SHA}"}}'
LEAST = f"""
[[project]]
name = "p"
language = "c++"
standard = "c++17"
{ARCHIVE}
root = "p-1"
sources = ["src/*.cc"]
license = "MIT"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "projects.toml"
    path.write_text(text)
    return path


def test_the_least_project(tmp_path: Path):
    assert load_projects(written(tmp_path, LEAST)) == (
        Project(
            name="p",
            language="c++",
            standard="c++17",
            archive=Archive(registry="pypi", package="p", version="1", file="p-1.tar.gz", sha256=SHA),
            root="p-1",
            sources=("src/*.cc",),
            license="MIT",
        ),
    )


def test_every_field_of_a_project_is_read(tmp_path: Path):
    text = LEAST + (
        'held_out = true\ninclude = [".", "../other/include"]\ndefines = ["A", "B=1"]\n'
        'options = ["-fno-rtti", "-include", "config.h", "-mllvm", "-inline-threshold=3"]\nexclude = ["**/*_test.cc"]\n'
        'generated = [{path = "config.h", text = "#define X\\n"}]\n'
        'program = {name = "tool", libraries = ["pthread"], '
        'runs = [{arguments = ["-v"]}, {stdin = "x", files = ["*"]}]}\n'
    )
    (project,) = load_projects(written(tmp_path, text))
    assert project.held_out
    assert project.include == (".", "../other/include")
    assert project.options == ("-fno-rtti", "-include", "config.h", "-mllvm", "-inline-threshold=3")
    assert project.generated == (GeneratedFile(path="config.h", text="#define X\n"),)
    assert project.program == Program(
        name="tool", libraries=("pthread",), runs=(ProgramRun(arguments=("-v",)), ProgramRun(stdin="x", files=("*",)))
    )


def with_line(line: str) -> str:
    """The least project with one key set or added."""
    key = line.split(" = ", maxsplit=1)[0]
    kept = [old for old in LEAST.splitlines() if not old.startswith(f"{key} = ")]
    return "\n".join([*kept, line]) + "\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'colour = "red"',
            "project 'p': colour: expected one of the keys archive, .* found this unknown key; remove it",
        ),
        ('name = "P/../x"', "project 1: name: expected a name of lower-case"),
        ("name = 3", "name: expected a name of lower-case letters, digits and ._[+]-, found 3"),
        ('language = "rust"', "project 'p': language: expected 'c[+][+]' or 'c', found 'rust'"),
        ('standard = "17"', "standard: expected a language standard like"),
        ('held_out = "no"', "held_out: expected true or false, found 'no'"),
        ('root = "../p"', "root: expected a folder inside the archive, found '../p'"),
        ('root = "/etc"', "root: expected a folder inside the archive"),
        ('include = ["../../x"]', "include: expected a list of folders inside the archive, found in it '../../x'"),
        ('include = "src"', "include: expected a list of folders inside the archive, found 'src'"),
        ("sources = []", "sources: expected at least one glob"),
        ('sources = ["../*.cc"]', "sources: expected a list of globs below the root"),
        ("sources = [1]", "sources: expected a list of globs below the root, found in it 1"),
        ('exclude = ["/x"]', "exclude: expected a list of globs"),
        ('defines = [""]', "defines: expected a list of macros"),
        (
            'options = ["-O2"]',
            "options: expected a list of compiler options that choose no input, .* found in it '-O2'",
        ),
        ('options = ["-o"]', "options:"),
        ('options = ["-g"]', "options:"),
        ('options = ["-flto=thin"]', "options:"),
        ('generated = [{path = "../x", text = ""}]', "generated 1: path: expected a file below the root"),
        ('generated = [{path = "x"}]', "generated 1: text: expected text, found nothing"),
        ('generated = {path = "x"}', "generated: expected a list of tables"),
        ('archive = "p.tar.gz"', "archive: expected a table, found 'p.tar.gz'"),
        ('license = ""', "license: expected an SPDX expression"),
        ('program = {name = "a b"}', "program: name: expected the name of a program"),
        ('program = {name = "a", runs = [{argument = []}]}', "runs 1: argument: expected one of the keys arguments"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, line: str, message: str):
    with pytest.raises(CorpusError, match=message):
        load_projects(written(tmp_path, with_line(line)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"pypi"', '"npm"', "archive: registry: expected 'pypi' or 'debian', found 'npm'"),
        (SHA, SHA[1:], "archive: sha256: expected 64 lower-case hexadecimal digits"),
        (SHA, "A" * 64, "archive: sha256"),
        ('"p-1.tar.gz"', '"../p"', "archive: file: expected the name of a file"),
        ('"pypi"', '"debian"', "archive: file: expected a path below pool/, found 'p-1.tar.gz'"),
        ('version="1"', "version=1", "archive: version: expected a version, found 1"),
        ('version="1"', 'version="1", url="x"', "archive: url: expected one of the keys"),
    ],
)
def test_a_wrong_archive_is_named(tmp_path: Path, old: str, new: str, message: str):
    with pytest.raises(CorpusError, match=f"project 'p': {message}"):
        load_projects(written(tmp_path, LEAST.replace(old, new)))


@pytest.mark.parametrize("key", sorted({*tomllib.loads(LEAST)["project"][0]}))
def test_a_key_that_must_be_there_is_missed(tmp_path: Path, key: str):
    text = "\n".join(line for line in LEAST.splitlines() if not line.startswith(f"{key} = "))
    with pytest.raises(CorpusError, match=rf"{key}: expected .*(found nothing|at least one)"):
        load_projects(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected at least one \[\[project\]\], found none"),
        ("[project]\n", "project: expected a list of tables"),
        ("[[projects]]\n", "projects: expected one of the keys project"),
        ("[[project]\n", "expected TOML, found"),
        (LEAST + LEAST, "expected different names of projects, found 'p' twice"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str):
    with pytest.raises(CorpusError, match=message) as caught:
        load_projects(written(tmp_path, text))
    assert "projects.toml" in str(caught.value)


def test_levels_without_end_are_a_sentence(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"projects\.toml: expected TOML, found: maximum recursion depth exceeded"):
        load_projects(written(tmp_path, "a = " + "[" * 100_000))


def test_an_absent_file_is_named(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"absent.toml: expected a list of projects in TOML, found: No such file"):
        load_projects(tmp_path / "absent.toml")


def test_the_packaged_list_is_well_formed():
    projects = load_projects()
    assert {"c++", "c"} == {project.language for project in projects}
    assert any(project.held_out for project in projects)
    assert any(not project.held_out for project in projects)


def test_the_list_of_llvms_own_sources_is_one():
    (project,) = load_projects(Path(__file__).parents[3] / "examples/llvm-19.toml")
    assert project.name == "llvm"
    assert project.archive.registry == "debian"
    assert [unit.words for unit in driver_units(project.options) if not may_be_run(unit)] == []
