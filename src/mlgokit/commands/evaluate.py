"""The command that compares two ways of building: sizes, costs of register allocation, and whether to ship."""

import dataclasses
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mlgokit.basic import Basic
from mlgokit.builds.compiled import CorpusProjects, DatabaseProject
from mlgokit.builds.corpus import ANY_COMMANDS, Database
from mlgokit.builds.link import command_words
from mlgokit.builds.pair import PairSource, VariantPair
from mlgokit.builds.variant import PLAIN_VARIANT, PluginPlace, Variant, changes_allocation, make_variant
from mlgokit.builds.wrapped import WrappedProject
from mlgokit.commands.options import (
    COMPILER,
    NO_CHANGES,
    NO_CLUSTER,
    Changes,
    Clustering,
    Compiling,
    Databases,
    OptionChanges,
    Paths,
    Texts,
    option_words,
)
from mlgokit.compiler.llvm_tools import find_demangler, readable_names
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.front_end import Level
from mlgokit.errors import MlgokitError, UsageError
from mlgokit.evaluation.compare import compare_builds
from mlgokit.evaluation.explain import explain_differences
from mlgokit.evaluation.page import evaluation_page, symbols_of
from mlgokit.evaluation.records import Evaluation
from mlgokit.evaluation.verdict import VerdictRules, choose_measure, judge
from mlgokit.files import atomic_write
from mlgokit.manifest import package_version
from mlgokit.pages.html import check_json_name, write_page
from mlgokit.progress import Report, say_nothing

_CORPUS = Path("quickstart/corpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Compare a candidate (policies, plugin, options) with a baseline, and say whether to ship: exit code 0, or 1."""

    policies: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Candidate policies, as with --policy."""
    policy: Annotated[Texts, Basic.INPUT] = ()
    """Candidate policy, at most one for each problem: a file, builtin:Oz (the pretrained policies), an inlining rule
    (:default is LLVM's heuristic, :never, :always), or PROBLEM=RULE."""
    plugin: Annotated[Path | None, Basic.INPUT] = None
    """Plugin of the candidate, as `mlgokit tune` or `mlgokit export plugin` writes it."""
    options: Annotated[str, Basic.INPUT] = ""
    """Options of clang for the candidate, as in --options='-mllvm -inline-threshold=5' (with the equals sign). A corpus
    is bitcode, so options of the front end have no effect there."""
    link_options: str = ""
    """Options that are added to the candidate's link, with --build or --link-command."""
    plain: bool = False
    """Plain build as the candidate too, to check that nothing differs from the baseline."""
    against_policy: Annotated[Texts, Basic.INPUT] = ()
    """Policy of the baseline, as with --policy."""
    against_plugin: Annotated[Path | None, Basic.INPUT] = None
    """Plugin of the baseline, in place of a build without one."""
    against_options: str = ""
    """Options of clang for the baseline."""
    against_link_options: str = ""
    """Options that are added to the baseline's link."""
    plugin_in: PluginPlace = "compile"
    """Steps of a build that load the plugin; in the link it acts only with link-time optimization."""
    build: Annotated[Texts, Basic.WORK] = ()
    """Build command, as in --build "make -j2". It runs in a copy of the folder, once for the baseline
    and once for the candidate, with compilers wrapped (cc, c++, clang and the like in PATH, CC and CXX)."""
    folder: Path = Path()
    """Project folder; --build runs in a copy of it."""
    images: tuple[str, ...] = ()
    """Linked files (programs and libraries) to compare after --build, as patterns of paths such as 'build/tool*'; all
    that is linked by default."""
    build_minutes: float = 60.0
    """Deadline in minutes of --build, for all its commands together."""
    compile_commands: Annotated[Path | None, Basic.WORK] = None
    """Compilation database (compile_commands.json) of a real build whose sources are compiled, in place of a corpus."""
    link_command: Texts = ()
    """Link command of one program of the build in --compile-commands, which names paths of objects, or has the
    placeholders {objects} and {output}, see docs/how-to/tune.md."""
    link_folder: Paths = ()
    """Folder where the link command runs: one for all, or one for each --link-command in the same order; by default
    that of compile_commands.json."""
    level: Level | None = None
    """Optimization level in place of the build's own; needs --compile-commands."""
    database: Databases = ANY_COMMANDS
    """Which commands of the database are taken."""
    corpus: Annotated[Path, Basic.WORK] = _CORPUS
    """Folder of the corpus."""
    projects: Annotated[tuple[str, ...], Basic.WORK] = ()
    """Names of the projects to compile; all that are held out of training if none is given."""
    costs: Literal["auto", "yes", "no"] = "auto"
    """Compare register-allocation costs function by function; by default if the candidate or baseline changes
    allocation."""
    output: Annotated[Path | None, Basic.RESULT] = None
    """JSON file for the result: every project, module and function that differs, see docs/formats.md; the report is
    beside it, as HTML and Markdown."""
    explain_seconds: float = 60.0
    """Time limit in seconds for compiling modules again, to draw call trees of the ten functions that grew most and the
    ten that shrank most; 0 for no call trees."""
    seed: int = 1
    """Random seed of the bootstrap intervals."""
    confidence: float = 0.95
    """Confidence level of the bootstrap intervals, between 0 and 1."""
    rules: VerdictRules = dataclasses.field(default_factory=VerdictRules)
    """Rules of the verdict, whether to ship the candidate."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules."""
    cluster: Clustering = NO_CLUSTER
    """Cluster that compiles in place of this machine."""
    changes: Changes = NO_CHANGES
    """With --corpus: changes of the options of clang -cc1 in all command lines, for both candidate and baseline."""


def run(config: Evaluate, *, report: Report = say_nothing) -> Evaluation:
    """Build both ways and compare.

    Raises:
        BusyError: another process changes the corpus.
        UsageError: the call contradicts itself.
        CorpusError: there is nothing to build.
        ToolError: a compiler or linker is missing.
    """
    variants = _check(config)
    with _source(config).make(variants, report=report) as pair:
        found = compare_builds(pair, seed=config.seed, level=config.confidence)
        if config.output is not None:
            found = explain_differences(found, pair, seconds=config.explain_seconds, report=report)
    return _conclude(config, found, allocates_only=variants.after.allocates_only, toolchain=pair.toolchain)


page = evaluation_page


def exit_code(config: Evaluate, evaluation: Evaluation) -> int:  # noqa: ARG001  (as of other commands)
    """0 if the verdict is to ship, else 1."""
    return 0 if evaluation.verdict is not None and evaluation.verdict.ship else MlgokitError.exit_code


# --- Options become values --------------------------------------------------------------------------------------------


def _check(config: Evaluate) -> VariantPair:
    """The two variants, once nothing in the call contradicts itself."""
    if config.output is not None:
        check_json_name(config.output)
    if not config.explain_seconds >= 0:
        raise UsageError(f"--explain-seconds: expected 0 or more, found {config.explain_seconds:g}; correct it")
    config.rules.check()
    if not 0 < config.confidence < 1:
        raise UsageError(f"--confidence: expected a number between 0 and 1, found {config.confidence:g}; 0.95 is usual")
    before, after = _variants(config)
    _check_source(config)
    costs = config.costs == "yes" or (config.costs == "auto" and any(map(changes_allocation, (before, after))))
    if config.build and config.cluster.scheduler is not None:
        raise UsageError(
            "--scheduler: cannot be combined with --build, whose tools run on this machine; remove one, or give "
            "--compile-commands instead of --build"
        )
    return VariantPair(before=before, after=after, costs=costs)


def _variants(config: Evaluate) -> tuple[Variant, Variant]:
    """The baseline and the candidate."""
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


def _check_source(config: Evaluate) -> None:
    """Refuse a call that names two things to build, or options that belong to another."""
    no_database = config.compile_commands is None
    sources = {"--build": config.build, "--compile-commands": not no_database, "--corpus": config.corpus != _CORPUS}
    named = [option for option, is_given in sources.items() if is_given]
    if len(named) > 1:
        raise UsageError(
            f"evaluate: expected one of --build, --compile-commands and --corpus, found {' and '.join(named)}; name one"
        )
    is_linked = bool(config.build or config.link_command)
    changed = [field.name for field in dataclasses.fields(OptionChanges) if getattr(config.changes, field.name)]
    lost = {
        "--link-command": ("--compile-commands", bool(config.link_command) and no_database),
        "--link-folder": ("--link-command", bool(config.link_folder) and not config.link_command),
        "--level": ("--compile-commands", config.level is not None and no_database),
        **{option: ("--compile-commands", given and no_database) for option, given in config.database.given.items()},
        "--images": ("--build", bool(config.images) and not config.build),
        "--folder": ("--build", config.folder != Path() and not config.build),
        "--link-options": (
            "--build or --link-command",
            bool(config.link_options or config.against_link_options) and not is_linked,
        ),
        "--plugin-in": ("--build or --link-command", config.plugin_in != "compile" and not is_linked),
        **{f"--{name.replace('_', '-')}": ("--corpus", bool(config.build) or not no_database) for name in changed},
    }
    for option, (needed, is_lost) in lost.items():
        if is_lost:
            raise UsageError(f"{option}: needs {needed}; add that, or remove {option}")
    if config.projects and (config.build or not no_database):
        raise UsageError("--projects: only for a corpus; a build is one project; remove it")


def _source(config: Evaluate) -> PairSource:
    """What is built: by the build's own commands, by a compilation database, or from a corpus."""
    if config.build:
        return WrappedProject(
            commands=tuple(tuple(command_words(text, option="--build", known=())) for text in config.build),
            folder=config.folder,
            images=config.images,
            timeout_seconds=60 * config.build_minutes,
            compiler=config.compiler,
        )
    if config.compile_commands is not None:
        return DatabaseProject(
            database=Database(path=config.compile_commands, level=config.level, choice=config.database),
            links=_links(config, config.compile_commands),
            compiler=config.compiler,
            cluster=config.cluster,
        )
    return CorpusProjects(
        folder=config.corpus,
        projects=config.projects,
        edits=config.changes.edits(),
        compiler=config.compiler,
        cluster=config.cluster,
    )


def _links(config: Evaluate, database: Path) -> list[tuple[str, Path]]:
    """Each link command, and the folder where it runs."""
    folders = config.link_folder or (database.resolve().parent,)
    if len(folders) not in {1, len(config.link_command) or 1}:
        raise UsageError(
            f"--link-folder: expected one folder, or one for each of {len(config.link_command)} --link-command, found "
            f"{len(folders)}; correct it"
        )
    if len(folders) == 1:
        folders *= len(config.link_command)
    return list(zip(config.link_command, folders, strict=True))


# --- The result -------------------------------------------------------------------------------------------------------


def _conclude(config: Evaluate, found: Evaluation, *, allocates_only: bool, toolchain: Toolchain) -> Evaluation:
    """The evaluation with its verdict and what made it, written to ``--output``."""
    measure = choose_measure(config.rules, allocates_only=allocates_only and not found.before.options)
    source = config.compile_commands or config.corpus
    found = dataclasses.replace(
        found,
        verdict=judge(found, config.rules, measure),
        source=" && ".join(config.build) or str(source),
        command=shlex.join(["mlgokit", *sys.argv[1:]]),
        mlgokit_version=package_version(),
        toolchain=toolchain.describe(),
    )
    if config.output is not None:
        atomic_write(config.output, json.dumps(found.to_json(), indent=1))
        names = readable_names(symbols_of(found), find_demangler(toolchain))
        write_page(evaluation_page(found, names), config.output)
    return found
