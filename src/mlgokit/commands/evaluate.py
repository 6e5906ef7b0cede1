"""The command that compares two ways of building: sizes, costs of register allocation, and whether to ship."""

import contextlib
import dataclasses
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from mlgokit.builds.compilers import open_compiler, spread
from mlgokit.builds.corpus import ANY_COMMANDS
from mlgokit.builds.variant import PLAIN_VARIANT, PluginPlace, Variant, make_variant
from mlgokit.commands.evaluate_builds import check_source, evaluate_build, evaluate_commands
from mlgokit.commands.evaluate_trees import with_trees
from mlgokit.commands.options import (
    COMPILER,
    NO_CHANGES,
    NO_CLUSTER,
    Changes,
    Clustering,
    Compiling,
    Databases,
    Paths,
    Texts,
    option_words,
)
from mlgokit.compiler.demangle import find_demangler, readable_names
from mlgokit.compiler.options.parse import parse_options
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.build_notes import baseline_of, warn_about_levels
from mlgokit.corpus.corpus import ModuleFailure, load_measurable
from mlgokit.corpus.front_end import Level
from mlgokit.corpus.options.edits import CommandLineEdits
from mlgokit.errors import CorpusError, MlgokitError, UsageError
from mlgokit.evaluation.compare import Intervals, compare_projects
from mlgokit.evaluation.page import evaluation_page, symbols_of
from mlgokit.evaluation.records import Evaluation
from mlgokit.evaluation.verdict import VerdictRules, chosen_measure, judge
from mlgokit.files import atomic_write
from mlgokit.locks import reading
from mlgokit.manifest import package_version
from mlgokit.module import Module
from mlgokit.pages.html import check_json_name, write_page
from mlgokit.pages.terminal import print_page
from mlgokit.problems import PROBLEMS
from mlgokit.progress import Report, say_nothing
from mlgokit.tables.file import list_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Compare a candidate (policies, plugin, options) with a baseline, and say whether to ship: exit code 0, or 1."""

    policies: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Candidate policies, as with --policy."""
    policy: Texts = ()
    """Candidate policy, at most one for each problem: a file, builtin:Oz (the pretrained policies), an inlining rule
    (:default is LLVM's heuristic, :never, :always), or PROBLEM=RULE; may be repeated."""
    plugin: Path | None = None
    """Plugin to judge, as `mlgokit tune` or `mlgokit export plugin` writes it."""
    options: str = ""
    """Options of clang for the candidate, as in --options='-mllvm -inline-threshold=5' (with the equals sign). A corpus
    is bitcode, so options of the front end have no effect there."""
    link_options: str = ""
    """Options of the link to judge, with --build or --link-command."""
    plain: bool = False
    """Plain build as the candidate, to check that nothing differs."""
    against_policy: Texts = ()
    """Policy of the other side, as with --policy."""
    against_plugin: Path | None = None
    """Plugin of the other side."""
    against_options: str = ""
    """Options of clang for the baseline."""
    against_link_options: str = ""
    """Options of the other side's link."""
    plugin_in: PluginPlace = "compile"
    """Steps of a build that load the plugin; in the link it acts only with link-time optimization."""
    build: Texts = ()
    """Build command, as in --build "make -j2"; may be repeated. It runs in a copy of the folder, once for the baseline
    and once for the candidate, with compilers wrapped (cc, c++, clang and the like in PATH, CC and CXX)."""
    folder: Path = Path()
    """Project folder; --build runs in a copy of it."""
    images: tuple[str, ...] = ()
    """Patterns of paths of the images to compare after --build, as in 'build/tool*'; all that is linked by default."""
    build_minutes: float = 60.0
    """Deadline of one whole --build."""
    compile_commands: Path | None = None
    """Compilation database (compile_commands.json) of a real build whose sources are compiled, in place of a corpus."""
    link_command: Texts = ()
    """Link command of that build, with paths of objects, or {objects} and {output}, see docs/how-to/tune.md; may be
    repeated, once for each program."""
    link_folder: Paths = ()
    """Folder where the link command runs; by default that of compile_commands.json; may be repeated, once for each link
    command."""
    level: Level | None = None
    """Optimization level in place of the build's own; needs --compile-commands."""
    database: Databases = ANY_COMMANDS
    """Which commands of the database are taken."""
    corpus: Path = Path("quickstart/corpus")
    """Folder of the corpus."""
    projects: tuple[str, ...] = ()
    """Names of the projects to build; all that are held out of training if none is given."""
    costs: Literal["auto", "yes", "no"] = "auto"
    """Compare register-allocation costs function by function; by default if the candidate or baseline changes
    allocation."""
    output: Path | None = None
    """JSON file for the result: every project, module and function that differs, see docs/formats.md; the report is
    beside it, as HTML and Markdown."""
    explain_seconds: float = 60.0
    """Seconds for the report's call trees, of the ten functions that grew most and the ten that shrank most; their
    modules are compiled again. 0 leaves the trees out."""
    seed: int = 1
    """Random seed of the bootstrap intervals."""
    confidence: float = 0.95
    """Confidence level of the intervals."""
    rules: VerdictRules = dataclasses.field(default_factory=VerdictRules)
    """Rules of the verdict."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules."""
    cluster: Clustering = NO_CLUSTER
    """Cluster that compiles in place of this machine."""
    changes: Changes = NO_CHANGES
    """Changes of the options of clang -cc1 in all command lines, on both sides; each may be repeated."""


def run(config: Evaluate, *, report: Report = say_nothing) -> Evaluation:
    """Build both ways and compare.

    Raises:
        BusyError: another process changes the corpus.
        UsageError: the call contradicts itself.
        CorpusError: there is nothing to build.
        ToolError: a compiler or linker is missing.
    """
    if config.output is not None:
        check_json_name(config.output)
    if not config.explain_seconds >= 0:
        raise UsageError(f"--explain-seconds: expected 0 or more, found {config.explain_seconds:g}; correct it")
    before, after = sides_of(config)
    check_source(config)
    costs = wants_costs(config.costs, before, after)
    if config.build and config.cluster.scheduler is not None:
        raise UsageError(
            "--scheduler: cannot be combined with --build, whose tools run on this machine; remove one, or give "
            "--compile-commands instead of --build"
        )
    if config.build:
        source = " && ".join(config.build)
        found, toolchain = evaluate_build(config, before, after, costs=costs, report=report)
    elif config.compile_commands is not None:
        source = str(config.compile_commands)
        found, toolchain = evaluate_commands(config, before, after, costs=costs, report=report)
    else:
        source = str(config.corpus)
        with reading(config.corpus):
            found, toolchain = _evaluate_corpus(config, before, after, costs=costs, report=report)
    return finished(config, found, source=source, toolchain=toolchain)


def _evaluate_corpus(
    config: Evaluate, before: Variant, after: Variant, *, costs: bool, report: Report
) -> tuple[Evaluation, Toolchain]:
    modules, left_out = chosen_modules(config)
    if any(side.use is not None and side.use.any_level for side in (before, after)):
        warn_about_levels(modules, report)
    named = CommandLineEdits(add=parse_options((*before.options, *after.options)))
    files = (*config.changes.edits().files, *named.files)
    compiler = open_compiler(config.compiler, corpus=config.corpus, files=files, report=report)
    with contextlib.closing(spread(config.cluster, compiler, report=report)) as all_workers:
        found = compare_projects(
            modules,
            compiler=all_workers,
            before=before,
            after=after,
            intervals=Intervals(seed=config.seed, level=config.confidence),
            costs=costs,
            left_out=left_out,
            report=report,
        )
    found = dataclasses.replace(found, baseline=baseline_of(compiler.toolchain.version, modules))
    return with_trees(config, found, modules, compiler=compiler, before=before, after=after, report=report), (
        compiler.toolchain
    )


def render(evaluation: Evaluation, console: Console) -> None:
    """Each project's sizes by language, the summary with its intervals, what failed, and the verdict."""
    print_page(evaluation_page(evaluation), console)


def exit_code(config: Evaluate, evaluation: Evaluation) -> int:  # noqa: ARG001  (as of other commands)
    """0 if the verdict is to ship, else 1."""
    return 0 if evaluation.verdict is not None and evaluation.verdict.ship else MlgokitError.exit_code


def sides_of(config: Evaluate) -> tuple[Variant, Variant]:
    """The side that is compared with, and the one that is judged.

    Raises:
        UsageError: nothing is to be judged, or a side contradicts itself.
    """
    config.rules.check()
    if not 0 < config.confidence < 1:
        raise UsageError(f"--confidence: expected a number between 0 and 1, found {config.confidence:g}; 0.95 is usual")
    policies = (*config.policies, *config.policy)
    asked = bool(policies or config.plugin or config.options or config.link_options)
    if asked == config.plain:
        raise UsageError(
            "evaluate: expected a candidate (a policy, --plugin, --options or --plain), found "
            f"{'one beside --plain' if asked else 'none'}; see `mlgokit evaluate --help`"
        )
    before = make_variant(
        config.against_policy,
        plugin=config.against_plugin,
        options=option_words(config.against_options, "--against-options"),
        link_options=option_words(config.against_link_options, "--against-link-options"),
        plugin_in=config.plugin_in,
    )
    after = make_variant(
        policies,
        plugin=config.plugin,
        options=option_words(config.options, "--options"),
        link_options=option_words(config.link_options, "--link-options"),
        plugin_in=config.plugin_in,
    )
    return before if before.record != PLAIN_VARIANT.record else PLAIN_VARIANT, after


def chosen_modules(config: Evaluate) -> tuple[list[Module], list[ModuleFailure]]:
    """The modules of the projects that were named, or of those that are held out, and what of them is no module.

    Raises:
        CorpusError: there are none.
        UsageError: a project is not in the corpus.
    """
    corpus = load_measurable(config.corpus, config.changes.edits())
    known = {module.project for module in corpus.modules}
    unknown = sorted(set(config.projects) - known)
    if unknown:
        raise UsageError(
            f"projects: expected names from the corpus {config.corpus}, found {', '.join(unknown)}; it has "
            f"{', '.join(sorted(known))}"
        )
    modules = [
        module
        for module in corpus.modules
        if (module.project in config.projects if config.projects else module.held_out)
    ]
    if not modules:
        raise CorpusError(
            f"{config.corpus}: expected at least one held-out project to evaluate on, found none; "
            "name projects with --projects"
        )
    chosen = {module.project for module in modules}
    return modules, [one for one in (*corpus.failures, *corpus.missing) if one.project in chosen]


def wants_costs(costs: Literal["auto", "yes", "no"], before: Variant, after: Variant) -> bool:
    """Whether costs of register allocation are read."""
    if costs != "auto":
        return costs == "yes"
    return any(
        any(PROBLEMS[problem].by_regalloc_cost for problem in side.record.policies)
        or (bool(side.record.plugin) and "allocations" in list_tables(Path(side.record.plugin)))
        for side in (before, after)
    )


def finished(config: Evaluate, found: Evaluation, *, source: str, toolchain: Toolchain) -> Evaluation:
    """The evaluation with its verdict and what made it, written to ``--output``."""
    _, after = sides_of(config)
    measure = chosen_measure(config.rules, allocates_only=after.allocates_only and not found.before.options)
    found = dataclasses.replace(
        found,
        verdict=judge(found, config.rules, measure),
        source=source,
        command=shlex.join(["mlgokit", *sys.argv[1:]]),
        mlgokit_version=package_version(),
        toolchain=toolchain.describe(),
    )
    if config.output is not None:
        atomic_write(config.output, json.dumps(found.to_json(), indent=1))
        names = readable_names(symbols_of(found), find_demangler(toolchain))
        write_page(evaluation_page(found, names), config.output)
    return found
