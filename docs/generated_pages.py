"""Pages of the site that are made when it is built: commands, the API, and documents of the checkout.

``write_all`` is called by ``conf.py``. What it writes is in ``docs/generated/``, which git ignores.
"""

import contextlib
import inspect
import io
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from sphinx.pycode import ModuleAnalyzer

import mlgokit
from mlgokit import cli
from mlgokit.commands.table import COMMANDS, GROUPS

DOCS = Path(__file__).parent
ROOT = DOCS.parent
GENERATED = DOCS / "generated"
DOCUMENTS = {
    "AGENTS.md": "changing-the-code",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "benchmarks/README.md": "benchmarks",
}
"""Documents outside of ``docs/`` that the site shows, and the names of their pages."""


def write_all() -> None:
    """Writes all pages; leaves those alone that would not change, so that only changed ones are built again."""
    pages = {f"{page}.md": document(name) for name, page in DOCUMENTS.items()} | command_pages() | api_pages()
    for path in GENERATED.rglob("*.md"):
        if path.relative_to(GENERATED).as_posix() not in pages:
            path.unlink()
    for name, text in pages.items():
        path = GENERATED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


# --- Documents of the checkout ----------------------------------------------------------------------------------------


def document(name: str) -> str:
    """A document's text, with its links as seen from ``docs/generated/``."""
    return with_links((ROOT / name).read_text(), name, GENERATED)


def with_links(text: str, name: str, seen_from: Path | None = None) -> str:
    """Markdown whose links to ``DOCUMENTS`` lead to their pages, as seen from a folder (or its own)."""
    folder = (ROOT / name).parent
    seen_from = seen_from or folder

    def moved(match: re.Match[str]) -> str:
        there = Path(os.path.normpath(folder / match[1]))
        page = DOCUMENTS.get(os.path.relpath(there, ROOT))
        if page:
            there = GENERATED / f"{page}.md"
        elif there.is_dir():
            there /= "index.md"
        return f"]({os.path.relpath(there, seen_from)}{match[2] or ''})"

    return re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)", moved, text)


# --- Commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One frame of a help text: its title, its lines, and what is said above them."""

    title: str
    description: str
    entries: tuple[tuple[str, str], ...]


def help_text(words: tuple[str, ...]) -> str:
    """What ``mlgokit WORDS --help-all`` prints, so wide that it has one column."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    surroundings = {"COLUMNS": "110", "NO_COLOR": "1"}
    with patch.dict(os.environ, surroundings), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        cli.main([*words, "--help-all"])
    out.seek(0)
    return out.read()


def boxes(text: str) -> Iterator[Box]:
    """The frames of a help text.

    An entry begins in the first column; its explanation follows after two spaces, or below, indented.
    """
    for title, body in re.findall(r"^╭─ (.*?) ─+╮\n(.*?)^╰", text, flags=re.DOTALL | re.MULTILINE):
        lines = [line.removeprefix("│ ").removesuffix("│").rstrip() for line in body.splitlines()]
        rule = next((number for number, line in enumerate(lines) if line.startswith("──")), -1)
        entries: list[tuple[str, str]] = []
        for line in lines[rule + 1 :]:
            if line.startswith(" ") and not line.lstrip().startswith("•"):
                invocation, explanation = entries.pop()
                entries.append((invocation, f"{explanation} {line.strip()}".strip()))
            elif line != "(required)":
                invocation, _, explanation = line.strip().removeprefix("• ").partition("  ")
                entries.append((invocation, explanation.strip()))
        yield Box(title=title, description=" ".join(lines[: max(rule, 0)]), entries=tuple(entries))


def markdown(text: str) -> str:
    """A line of a help text, with everything outside of backquotes as it stands."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else re.sub(r"([\\*_<>\[\]$])", r"\\\1", piece) for piece in pieces)


def option(invocation: str, explanation: str) -> str:
    """One option as Sphinx writes it down; defaults that say nothing are left out."""
    invocation = re.sub(r"\{None\}\|", "", invocation).replace("{None,", "{")
    match = re.fullmatch(r"(.*?) ?\((default: .*|required|repeatable)\)", explanation)
    said, remark = (match[1], match[2]) if match else (explanation, "")
    name, _, default = remark.partition(": ")
    if name != "default":
        said += f" {remark.capitalize()}." if remark else ""
    elif invocation.startswith("--workers"):
        said += " Default: one for each processor."
    elif default not in {"", "None", "False"}:
        said += f" Default: `{default}`."
    return f"````{{option}} {invocation}\n{markdown(said.strip())}\n````\n"


def command_section(words: tuple[str, ...], text: str, level: int) -> str:
    """One command without subcommands: its usage and its options."""
    name = " ".join(("mlgokit", *words))
    head, _, rest = text.partition("\n\n")
    summary = rest.split("\n\n", 1)[0]
    parts = [f"{'#' * level} {name}\n", f"{markdown(' '.join(summary.split()))}\n"]
    usage = " ".join(head.removeprefix("usage: ").split())
    parts += [f"```text\n{usage}\n```\n", f"```{{program}} {name}\n```\n"]
    for box in boxes(text):
        if box.title == "options":
            continue  # --help and --json, which all commands have
        group = re.sub(r"^(command\.)+|^command ", "", box.title).removesuffix(" options")
        if group not in {"command", "options", "positional arguments"}:
            parts.append(f"{'#' * (level + 1)} {group}\n\n{markdown(box.description)}\n")
        parts += [option(*entry) for entry in box.entries]
    return "\n".join(parts)


def command_pages() -> dict[str, str]:
    """A page for each command; one with subcommands has a section for each."""
    pages: dict[str, str] = {}
    rows = ["| command | what it does |", "|---|---|"]
    for name in dict.fromkeys(name.partition(" ")[0] for name in COMMANDS):
        inner = [tuple(words.split()) for words in COMMANDS if words.startswith(f"{name} ")]
        if inner:
            said = GROUPS[name]
            sections = [command_section(words, help_text(words), 2) for words in inner]
            pages[f"commands/{name}.md"] = "\n".join([f"# mlgokit {name}\n\n{said}\n", *sections])
        else:
            said = " ".join((COMMANDS[name].configuration.__doc__ or "").split())
            pages[f"commands/{name}.md"] = command_section((name,), help_text((name,)), 1)
        rows.append(f"| [mlgokit {name}](../generated/commands/{name}.md) | {markdown(said)} |")
    pages["command-list.md"] = "\n".join([*rows, ""])
    return pages


# --- Python -----------------------------------------------------------------------------------------------------------

PUBLIC: tuple[str, ...] = tuple(getattr(mlgokit, "__all__", ()))
KINDS = ("Functions", "Classes", "Errors", "Values")


def kind_of(value: object) -> str:
    """Under which heading a public name is listed."""
    if inspect.isclass(value):
        return "Errors" if issubclass(value, BaseException) else "Classes"
    return "Functions" if inspect.isroutine(value) else "Values"


def api_pages() -> dict[str, str]:
    """A page for each name in ``mlgokit.__all__``, and the list of all."""
    names = sorted(PUBLIC, key=str.lower)
    kinds = {name: kind_of(getattr(mlgokit, name)) for name in names}
    pages = {f"api/{name}.md": f"# {name}\n\n```{{eval-rst}}\n{directive(name, kinds[name])}\n```\n" for name in names}
    parts = [] if names else ["No name is public yet.\n"]
    for kind in KINDS:
        entries = [f"   mlgokit.{name}" for name in names if kinds[name] == kind]
        if kind == "Values":
            entries = [f"* :data:`mlgokit.{name}`: {documented(name)[0]}" for name in names if kinds[name] == kind]
        elif entries:
            entries = [".. autosummary::", "   :nosignatures:", "", *entries]
        if entries:
            parts.append("\n".join([f"## {kind}\n\n```{{eval-rst}}", *entries, "```\n"]))
    # The paths are those of docs/reference/, whose page includes this one.
    hidden = "".join(f"../generated/api/{name}\n" for name in names)
    pages["api-list.md"] = "\n".join([*parts, f"```{{toctree}}\n:hidden:\n\n{hidden}```\n"])
    return pages


def directive(name: str, kind: str) -> str:
    """What makes Sphinx document a public name."""
    if kind == "Values":
        body = "".join(f"   {line}\n" for line in documented(name))
        type_name = type(getattr(mlgokit, name)).__name__
        # A reference to the type of a type alias would lead nowhere.
        option = "" if type_name == "UnionType" else f"   :type: {type_name}\n"
        return f".. data:: mlgokit.{name}\n{option}\n{body}"
    return {
        "Functions": f".. autofunction:: mlgokit.{name}",
        "Classes": f".. autoclass:: mlgokit.{name}\n   :members:",
        "Errors": f".. autoexception:: mlgokit.{name}\n   :members:\n   :show-inheritance:",
    }[kind]


def documented(name: str) -> list[str]:
    """The lines below the definition of a value, in the module that has it; else its type."""
    for module in [word for word in sys.modules if word.startswith("mlgokit.")]:
        if getattr(sys.modules[module], name, None) is getattr(mlgokit, name):
            lines = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name))
            if lines:
                return [line for line in lines if line]
    return [f"One :class:`~mlgokit.{type(getattr(mlgokit, name)).__name__}`."]
