"""Call trees of an evaluation: why the functions that changed most are larger or smaller."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlgokit.builds.variant import Variant, modules_of_variant
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.describe import function_names
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.errors import ToolError
from mlgokit.evaluation.explain import differing_functions, function_trees
from mlgokit.evaluation.records import Evaluation
from mlgokit.module import Module
from mlgokit.policy.store import load_policy
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report

if TYPE_CHECKING:
    from mlgokit.commands.evaluate import Evaluate


def with_trees(
    config: "Evaluate",
    found: Evaluation,
    modules: Sequence[Module],
    *,
    compiler: ClangCompiler,
    before: Variant,
    after: Variant,
    report: Report,
) -> Evaluation:
    """The evaluation with call trees, or with the reason why it has none; without a report nobody would see them."""
    if why := why_no_trees(config, before, after):
        return without_trees(config, found, why)
    if compiler.plugin is None:
        # A finished plugin is all that the comparison needs; the plain side of a tree logs decisions, too.
        try:
            compiler = dataclasses.replace(compiler, plugin=build_plugin(compiler.toolchain))
        except ToolError as error:
            return without_trees(config, found, f"they need a plugin of their own: {error}")
    chosen = after.record.policies.get(INLINE_SIZE.name, ":")
    trees = function_trees(
        differing_functions(found.projects),
        {module.name: module for module in modules_of_variant(modules, after)},
        compiler=compiler,
        side=after,
        policy=None if chosen.startswith(":") else load_policy(Path(chosen), problem=INLINE_SIZE.name),
        names=lambda module: function_names(compiler, module),
        seconds=config.explain_seconds,
        report=report,
    )
    return dataclasses.replace(found, trees=trees)


def without_trees(config: "Evaluate", found: Evaluation, why: str) -> Evaluation:
    """The evaluation with the reason why it has no call trees, if it has a report."""
    return found if config.output is None else dataclasses.replace(found, no_trees=why)


def why_no_trees(config: "Evaluate", before: Variant, after: Variant) -> str:
    """Why call trees are not made; empty if they are."""
    if config.output is None:
        return "there is no report"
    if not config.explain_seconds:
        return "--explain-seconds 0 was given"
    if before.use is not None:
        return "call trees compare inlining with LLVM's own, and the baseline is not LLVM's own"
    if before.options != after.options:
        return "the compiler options differ, not only the inlining decisions"
    if after.use is None or (after.use.plugin is None and INLINE_SIZE.name not in after.use.policies):
        return "the candidate has no policy or plugin for inlining"
    return "" if after.compiles_with_plugin else "the plugin is loaded in the link alone"
