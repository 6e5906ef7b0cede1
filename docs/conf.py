"""How Sphinx builds the site: ``make docs``. Pages are Markdown that also reads well without Sphinx."""

import importlib
import sys
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "src")]

import generated_pages

import mlgokit

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

project = PROJECT["name"]
author = PROJECT["authors"][0]["name"]
version = release = PROJECT["version"]
project_copyright = f"{author}, {PROJECT['license']}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["generated/*-list.md"]
nitpicky = True
nitpick_ignore_regex = [
    # Of names that are not ours only the network would know the pages.
    (r"py:.*", r"(?!mlgokit\b).*"),
]

myst_heading_anchors = 4
smartquotes_action = "qe"  # no dashes: they would make one of the two before an option
autosummary_generate = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

pygments_dark_style = "github-dark"
html_theme = "furo"
html_title = "mlgokit"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False


def read(_app: Sphinx, page: str, source: list[str]) -> None:
    """Leads links to documents outside of ``docs/`` to their pages."""
    if not page.startswith("generated/"):
        source[0] = generated_pages.with_links(source[0], f"docs/{page}.md")


def resolve(_app: Sphinx, env: Any, node: Any, content: nodes.Node) -> nodes.Node | None:
    """Finds what a docstring calls by its full name: a page if the name is public, else plain text if it exists at all.

    A name that does not exist stays unresolved, which ends the build.
    """
    target: str = node["reftarget"]
    if node.get("refdomain") != "py" or not target.startswith("mlgokit."):
        return None
    if target.endswith(".Annotated"):
        # Sphinx names it after the module of what is annotated, which need not import it.
        return content
    found = look_up(target)
    if found is None:
        return None
    for name in generated_pages.PUBLIC:
        if getattr(mlgokit, name) is found[0] and target != f"mlgokit.{name}":
            inner = {**node.attributes, "reftarget": f"mlgokit.{name}", "reftype": "obj"}
            return env.domains["py"].resolve_xref(
                env, node["refdoc"], _app.builder, "obj", f"mlgokit.{name}", type(node)("", **inner), content
            )
    return content


def draw_dashes(_app: Sphinx, document: nodes.document) -> None:
    """Sphinx puts two hyphens between a field and its meaning."""
    for text in list(document.findall(nodes.Text)):
        if text == " -- " and text.parent:
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def collapse_sidebar(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _document: Any) -> None:
    """Gives the sidebar only the branch of its own page: furo lays out all pages in each page, half of the build."""
    if "toctree" in context:
        toctree = context["toctree"]
        context["toctree"] = lambda **options: toctree(**{**options, "collapse": True})


def look_up(target: str) -> tuple[object] | None:
    """The object of a dotted name, in a tuple; None if there is none."""
    words = target.split(".")
    for count in range(len(words), 0, -1):
        try:
            value: object = importlib.import_module(".".join(words[:count]))
        except ModuleNotFoundError:
            continue
        try:
            for word in words[count:]:
                value = getattr(value, word)
        except AttributeError:
            return None
        return (value,)
    return None


def setup(app: Sphinx) -> None:
    """Called by Sphinx: writes the generated pages before it reads any."""
    generated_pages.write_all()
    directive: Any = PythonDomain.directives["class"]
    for field in directive.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.add_lexer("ninja", TextLexer)  # Pygments has none
    app.connect("source-read", read)
    app.connect("html-page-context", collapse_sidebar, priority=400)  # before furo
    app.connect("doctree-read", draw_dashes)
    app.connect("missing-reference", resolve)
