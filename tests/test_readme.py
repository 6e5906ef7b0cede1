"""What the documents say can be typed, followed and found."""

import dataclasses
import itertools
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgokit import cli, errors
from mlgokit.commands.train import Train
from mlgokit.compiler.request import PluginUse
from mlgokit.corpus.sources.projects import load_projects
from mlgokit.errors import MlgokitError
from mlgokit.problems import PROBLEMS

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md")),
    *(
        path
        for pattern in ("*.md", "how-to/*.md", "internals/*.md", "reference/*.md")
        for path in sorted((ROOT / "docs").glob(pattern))
    ),
]
COMPILERS = re.compile(
    r"(clang|clang\+\+|opt|llvm-profdata)(-\d+)?|cmake|ninja|mlgokit|make|cargo|dask|helm|kubectl|openssl|python|cat"
    r"|umask|export"
)


def commands(path: Path) -> Iterator[list[str]]:
    """The words of each line of the ``sh`` blocks, without variables set in front.

    Recipes below a heading of the third order in how-to/tune.md are for other projects; tests/llvm/test_recipes.py runs
    them.
    """
    text = path.read_text()
    if path.match("how-to/tune.md"):
        text = re.sub(r"^### .*?(?=^## )", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
            if words:
                yield words


ALL_COMMANDS = [
    pytest.param(shlex.split(line), id=f"{path.stem}-{line}")
    for path in DOCUMENTS
    for line in dict.fromkeys(shlex.join(words) for words in commands(path))
]


def test_the_documents_have_commands() -> None:
    assert {tuple(words) for words in commands(ROOT / "README.md")} >= {("make", "quickstart"), ("make", "test")}


@pytest.mark.parametrize("words", ALL_COMMANDS)
def test_a_command_is_one_that_exists(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert COMPILERS.fullmatch(words[0]), f"{words[0]} is no command that this test knows"
    if words[0] == "make":
        done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr.decode()
        arguments = [word.removeprefix("ARGS=") for word in words if word.startswith("ARGS=")]
        words = ["mlgokit", "quickstart", *shlex.split(arguments[0])] if "quickstart" in words and arguments else []
    if words[:1] == ["mlgokit"]:
        parsed: list[object] = []
        monkeypatch.setattr(cli, "run", lambda configuration, **_: parsed.append(configuration) or 0)
        with pytest.raises(SystemExit) as ended:
            cli.main(words[1:])
        assert ended.value.code == 0
        assert len(parsed) == 1


@pytest.mark.parametrize("words", [param for param in ALL_COMMANDS if "--projects" in str(param.id)])
def test_projects_that_are_named_are_in_the_list(words: list[str]) -> None:
    text = shlex.join(words).replace("'", "")
    named = re.findall(r"--projects((?: [a-z0-9.-]+)+?)(?= --|$)", text)
    assert named
    assert {name for group in named for name in group.split()} <= {project.name for project in load_projects()}


def anchors(path: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(path: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)
    wrong: list[str] = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = path.parent / name if name else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            wrong.append(target)
    assert not wrong


def test_the_plugins_features_are_documented_in_their_order() -> None:
    header = (ROOT / "src/mlgokit/plugin/inliner/Features.h").read_text()
    text = (ROOT / "docs/formats.md").read_text().split("<!-- features -->", 1)[1].split("\n\n", 1)[0]
    documented = re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)
    assert documented == re.findall(r"^  M\((\w+)\)", header, flags=re.MULTILINE)


def test_the_plugins_features_of_live_ranges_are_documented_in_their_order() -> None:
    source = (ROOT / "src/mlgokit/plugin/regalloc/RangeFeatures.cpp").read_text()
    text = (ROOT / "docs/formats.md").read_text().split("own features of a live range", 1)[1].split("\n\n", 2)[1]
    documented = re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)
    assert documented == re.findall(r"^  X\((\w+)\)", source, flags=re.MULTILINE)


def test_the_plugins_settings_are_documented() -> None:
    settings = re.findall(
        r'^    \{"([\w-]+)", "(\w+)", "', (ROOT / "src/mlgokit/plugin/shared/Settings.cpp").read_text(), re.MULTILINE
    )
    text = (ROOT / "docs/formats.md").read_text()
    assert settings
    assert [pair for pair in settings if f"| `-{pair[0]}=` | `{pair[1]}` |" not in text] == []
    assert set(
        PluginUse(plugin=Path("p"), policies=dict.fromkeys(PROBLEMS, ":default"), logs=tuple(PROBLEMS)).environment(
            Path("f")
        )
    ) <= {variable for _, variable in settings}


def test_the_layers_in_the_architecture_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "ladder")
    expected = [re.sub(r"[()]", "", layer) for layer in layers if "__main__" not in layer]
    text = (ROOT / "docs/architecture.md").read_text().split("## Layers and allowed imports", 1)[1]
    assert text.split("```text\n", 1)[1].split("\n```", 1)[0].splitlines() == expected


def test_every_package_and_module_is_in_the_architecture() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    package = ROOT / "src/mlgokit"
    names = {f"{path.name}/" for path in package.glob("[a-z]*") if any(path.glob("[A-Za-z]*.*"))}
    names |= {path.name for path in package.glob("[a-z]*.py")}
    assert {name for name in names if f"`{name}`" not in text} == set()


def rows_of(document: str, heading: str) -> list[list[str]]:
    """The cells of the rows of the first table below a heading, without the table's own heading."""
    lines = f"\n{(ROOT / document).read_text()}".split(f"\n{heading}\n", 1)[1].splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("|---"))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[begin + 1 :])
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def missing_files(text: str) -> list[str]:
    """Files that a text names, from the top of the repository or of the package, and that do not exist."""
    names = re.findall(r"`([\w./-]+\.\w+)`", text)
    assert names
    return [name for name in names if not any((ROOT / folder / name).is_file() for folder in ("", "src/mlgokit"))]


def test_names_of_each_package_in_the_architecture_are_defined_there() -> None:
    package = ROOT / "src/mlgokit"
    wrong: list[str] = []
    for place, _, names in rows_of("docs/architecture.md", "## Packages"):
        paths = [package / name for name in re.findall(r"`([\w./]+)`", place)]
        sources = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
        text = "\n".join(source.read_text() for source in sources)
        wrong += [
            f"{place}: {name}"
            for name in re.findall(r"`(\w+)`", names)
            if not re.search(rf"^(?:(?:def|class) {name}\b|{name}(?::| =))", text, flags=re.MULTILINE)
        ]
    assert not wrong


def test_every_command_is_in_the_table_of_commands_with_its_file() -> None:
    rows = rows_of("docs/internals/commands.md", "# Commands")
    assert sorted(row[0] for row in rows) == sorted(cli.COMMANDS)
    assert {row[0]: row[1].strip("`") for row in rows} == {
        name: f"{command.module.replace('.', '/')}.py" for name, command in cli.COMMANDS.items()
    }


def test_the_table_of_exit_codes_is_that_of_the_errors() -> None:
    rows = {int(row[0]): row[1] for row in rows_of("docs/reference/commands.md", "## Exit codes")}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MlgokitError)]
    assert sorted(rows) == sorted({0, *(kind.exit_code for kind in kinds), cli.INTERRUPTED, cli.NOBODY_READS})
    drawn = re.findall(r"(\w+) +.*; exit code (\d)", errors.__doc__ or "")
    assert {name: int(code) for name, code in drawn} == {
        kind.__name__: kind.exit_code for kind in kinds if "exit_code" in vars(kind)
    }


def test_each_of_the_ten_changes_names_files_that_exist() -> None:
    rows = rows_of("docs/architecture.md", "## Where do I change X")
    assert len(rows) == 10
    for change, files, tests in rows:
        assert missing_files(files) == [], change
        assert missing_files(tests) == [], change
        assert all(name.startswith("tests/") for name in re.findall(r"`([\w./-]+/[\w.-]+)`", tests)), change


def test_files_that_the_internals_name_exist() -> None:
    plugin = ROOT / "src/mlgokit/plugin"
    wrong: dict[str, list[str]] = {}
    for page in sorted((ROOT / "docs/internals").glob("*.md")):
        names = re.findall(r"`([\w.-]+/[\w./-]+\.(?:py|cpp|h|c|toml|md))`", page.read_text())
        folders = (ROOT, ROOT / "src/mlgokit", ROOT / "src/mlgokit/commands", plugin)
        missing = [name for name in names if not any((folder / name).is_file() for folder in folders)]
        if missing:
            wrong[page.name] = missing
    assert not wrong


def test_files_that_agents_are_sent_to_exist() -> None:
    rows = rows_of("AGENTS.md", "## Key files")
    assert len(rows) <= 25
    assert missing_files("\n".join(cell for row in rows for cell in row)) == []


def test_glossary_entries_are_one_sentence_each_and_unique() -> None:
    text = (ROOT / "docs/glossary.md").read_text()
    entries = re.findall(r"^- (.*)$", text, flags=re.MULTILINE)
    heads = [re.match(r"\*\*(.+?)\*\*: ", entry) for entry in entries]
    assert all(heads), entries
    names = [head[1].lower() for head in heads if head]
    assert len(set(names)) == len(names)
    assert [entry for entry in entries if not entry.endswith(".") or re.search(r"\. [A-Z]", entry)] == []


def test_every_option_of_the_quickstart_that_the_documents_name_exists() -> None:
    texts = [path.read_text() for path in DOCUMENTS if path.name != "CHANGELOG.md"]
    named = {name for text in texts for name in re.findall(r"--(?:effects|training|cloning)\.([\w.-]+)", text)}
    fields = {field.name for field in dataclasses.fields(Train().learning)}
    assert named
    assert {name for name in named if name.replace("-", "_") not in fields} == set()
