"""The command that shows what a policy does to one module, and why."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mlgokit.builds.compilers import clang_for, open_tools
from mlgokit.builds.variant import make_variant
from mlgokit.commands.options import COMPILER, NO_CHANGES, Changes, Compiling, Texts
from mlgokit.compiler.describe import function_names
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import MlgokitError, UsageError
from mlgokit.evaluation.explain import Explanation, explain_module, inlining_policy
from mlgokit.evaluation.page import explanation_page
from mlgokit.locks import reading
from mlgokit.manifest import package_version
from mlgokit.module import Module
from mlgokit.pages.model import Page
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report, say_nothing

_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """Show where a policy or tuned plugin departs from LLVM in one module, by how many bytes, and why."""

    module: Annotated[str, tyro.conf.Positional]
    """Module of the corpus, by its name or any unambiguous suffix."""
    policy: Texts = ()
    """Policy to explain, as with `mlgokit evaluate --policy`: a file, or an inlining rule such as :never."""
    plugin: Path | None = None
    """Plugin to explain, as `mlgokit tune` or `mlgokit export plugin` writes it; the features of its decisions are not
    shown."""
    corpus: Path = Path("quickstart/corpus")
    """Folder of the corpus."""
    functions: int = 10
    """Number of functions to show, both of those that grew and of those that shrank."""
    compiler: Compiling = COMPILER
    """The clang that compiles the module."""
    changes: Changes = NO_CHANGES
    """Changes of the options of clang -cc1 in the command line of the module, for both candidate and baseline; each may
    be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What was found, and how much of it is to be shown."""

    explanation: Explanation
    functions: int

    def to_json(self) -> dict[str, object]:
        """All that was found."""
        return self.explanation.to_json()


def run(config: Explain, *, report: Report = say_nothing) -> Explained:
    """Compile the module both ways.

    Raises:
        BusyError: another process changes the corpus.
        UsageError: the call contradicts itself, or names no module or several.
        PolicyError: a file is no usable policy.
        ToolError: a compiler is missing.
    """
    if config.functions < 1:
        raise UsageError(f"--functions: expected at least 1, found {config.functions}; give more")
    side = make_variant(config.policy, plugin=config.plugin)
    if config.plugin is None and INLINE_SIZE.name not in side.record.policies:
        raise UsageError(
            "explain: expected a policy for inlining with --policy, or a plugin with --plugin, found "
            f"{side.record.label}; name one"
        )
    policy = inlining_policy(side)
    with reading(config.corpus):
        edits = config.changes.edits()
        module = find_module(load_corpus(config.corpus, edits).modules, config.module, corpus=config.corpus)
        compiler = clang_for(
            config.compiler, *open_tools(config.compiler), corpus=config.corpus, files=edits.files, report=report
        )
        found = explain_module(
            module,
            compiler=compiler,
            side=side,
            policy=policy,
            names=function_names(compiler, module),
            report=report,
        )
    found = dataclasses.replace(
        found,
        source=str(config.corpus),
        mlgokit_version=package_version(),
        toolchain=compiler.toolchain.describe(),
    )
    return Explained(explanation=found, functions=config.functions)


def find_module(modules: tuple[Module, ...], name: str, *, corpus: Path) -> Module:
    """Find a module by its name, or by an unambiguous suffix of it.

    Raises:
        UsageError: there is none, or several.
    """
    whole = [module for module in modules if module.name == name]
    found = whole or [module for module in modules if f"/{module.name}".endswith(f"/{name}")]
    if len(found) == 1:
        return found[0]
    some = [module.name for module in (found or modules)]
    more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
    raise UsageError(
        f"module {name}: expected the name or an unambiguous suffix of a module in {corpus}, found "
        f"{f'{len(found)} matches' if found else 'no match'}; the corpus has {', '.join(some[:_NAMED])}{more}"
    )


def page(explained: Explained) -> Page:
    """The sums, and the trees of the functions that changed most."""
    return explanation_page(explained.explanation, functions=explained.functions)


def exit_code(config: Explain, explained: Explained) -> int:  # noqa: ARG001  (as of other commands)
    """0, or 1 if a compilation failed."""
    return MlgokitError.exit_code if explained.explanation.failure else 0
