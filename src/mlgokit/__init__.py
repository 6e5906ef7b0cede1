"""Trains optimization policies against the clang that is installed, and loads them back into it.

The names below are the public ones. Each is imported when it is first asked for, so that ``import mlgokit`` is light.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlgokit.advisors import Advice as Advice, Advisor as Advisor, Observation as Observation
    from mlgokit.builds.compilers import CompilerOptions as CompilerOptions
    from mlgokit.cli import run_command as run_command
    from mlgokit.commands.check import Check as Check
    from mlgokit.commands.corpus.extract import Extract as Extract
    from mlgokit.commands.corpus.fetch import Fetch as Fetch
    from mlgokit.commands.corpus.import_build import Import as Import
    from mlgokit.commands.evaluate import Evaluate as Evaluate
    from mlgokit.commands.explain import Explain as Explain
    from mlgokit.commands.size import Size as Size
    from mlgokit.commands.trace import Trace as Trace
    from mlgokit.commands.train import Train as Train
    from mlgokit.commands.tune_options import Tune as Tune
    from mlgokit.compiler.channel.interactive import (
        channel_use as channel_use,
        clang_words as clang_words,
        drive as drive,
        drive_channels as drive_channels,
    )
    from mlgokit.compiler.compilation import Compilation as Compilation, CompileStatus as CompileStatus
    from mlgokit.compiler.compile import ClangCompiler as ClangCompiler, command as command
    from mlgokit.compiler.objects.measure import ObjectSizes as ObjectSizes, measure_object as measure_object
    from mlgokit.compiler.plugin_build import build_plugin as build_plugin
    from mlgokit.compiler.request import Compiler as Compiler, CompileRequest as CompileRequest, PluginUse as PluginUse
    from mlgokit.compiler.toolchain import Toolchain as Toolchain, find_toolchain as find_toolchain
    from mlgokit.corpus.corpus import Corpus as Corpus, load_corpus as load_corpus
    from mlgokit.corpus.identity import training_modules as training_modules
    from mlgokit.errors import (
        BusyError as BusyError,
        InputError as InputError,
        MlgokitError as MlgokitError,
        ReuseError as ReuseError,
        StorageError as StorageError,
        ToolError as ToolError,
        UsageError as UsageError,
    )
    from mlgokit.evaluation.records import Evaluation as Evaluation
    from mlgokit.export.plugin import ExportedPlugin as ExportedPlugin, export_plugin as export_plugin
    from mlgokit.learning.environment import (
        CompilerEnvironment as CompilerEnvironment,
        open_environment as open_environment,
    )
    from mlgokit.learning.settings import Learning as Learning
    from mlgokit.module import Module as Module
    from mlgokit.policy.advisor import PolicyAdvisor as PolicyAdvisor
    from mlgokit.policy.network import Policy as Policy
    from mlgokit.policy.store import load_policy as load_policy, save_policy as save_policy
    from mlgokit.problems import (
        INLINE_SIZE as INLINE_SIZE,
        PASS_SELECTION as PASS_SELECTION,
        PROBLEMS as PROBLEMS,
        REGALLOC_EVICTION as REGALLOC_EVICTION,
        REGALLOC_PRIORITY as REGALLOC_PRIORITY,
        REGALLOC_WEIGHT as REGALLOC_WEIGHT,
        Problem as Problem,
    )
    from mlgokit.tables.decisions import DecisionTable as DecisionTable, read_table as read_table
    from mlgokit.testing import FakeCompiler as FakeCompiler
    from mlgokit.traces import Log as Log, read_log as read_log

_PLACES = {
    "advisors": ("Advice", "Advisor", "Observation"),
    "cli": ("run_command",),
    "commands.check": ("Check",),
    "commands.corpus.extract": ("Extract",),
    "commands.corpus.fetch": ("Fetch",),
    "commands.corpus.import_build": ("Import",),
    "commands.evaluate": ("Evaluate",),
    "commands.explain": ("Explain",),
    "builds.compilers": ("CompilerOptions",),
    "commands.size": ("Size",),
    "commands.trace": ("Trace",),
    "commands.train": ("Train",),
    "commands.tune_options": ("Tune",),
    "compiler.channel.interactive": ("channel_use", "clang_words", "drive", "drive_channels"),
    "compiler.compilation": ("Compilation", "CompileStatus"),
    "compiler.compile": ("ClangCompiler", "command"),
    "compiler.objects.measure": ("ObjectSizes", "measure_object"),
    "compiler.plugin_build": ("build_plugin",),
    "compiler.request": ("CompileRequest", "Compiler", "PluginUse"),
    "compiler.toolchain": ("Toolchain", "find_toolchain"),
    "corpus.corpus": ("Corpus", "load_corpus"),
    "corpus.identity": ("training_modules",),
    "errors": ("BusyError", "InputError", "MlgokitError", "ReuseError", "StorageError", "ToolError", "UsageError"),
    "evaluation.records": ("Evaluation",),
    "export.plugin": ("ExportedPlugin", "export_plugin"),
    "learning.environment": ("CompilerEnvironment", "open_environment"),
    "learning.settings": ("Learning",),
    "module": ("Module",),
    "policy.advisor": ("PolicyAdvisor",),
    "policy.network": ("Policy",),
    "policy.store": ("load_policy", "save_policy"),
    "problems": (
        "INLINE_SIZE",
        "PASS_SELECTION",
        "PROBLEMS",
        "Problem",
        "REGALLOC_EVICTION",
        "REGALLOC_PRIORITY",
        "REGALLOC_WEIGHT",
    ),
    "tables.decisions": ("DecisionTable", "read_table"),
    "testing": ("FakeCompiler",),
    "traces": ("Log", "read_log"),
}
"""Which module has which public names."""
_HOMES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'mlgokit' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"mlgokit.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    """What the module has, and what it would import."""
    return sorted({*globals(), *__all__})
