"""Evaluations of a real build: by its own command, or by its compile and link commands."""

import contextlib
import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlgokit.builds.compilers import clang_for, spread
from mlgokit.builds.corpus import Database, import_database, modules_of_project
from mlgokit.builds.images import LinkBuild
from mlgokit.builds.link import command_words, image_names, link_words, plan_link, user_link
from mlgokit.builds.variant import Variant
from mlgokit.commands.evaluate_trees import why_no_trees, with_trees, without_trees
from mlgokit.compiler.options.parse import parse_options
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import Lto
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.compiler.wrapping import WrappedCall
from mlgokit.corpus.build_notes import baseline_of
from mlgokit.corpus.corpus import ModuleFailure
from mlgokit.corpus.importers.database import lto_by_module, module_outputs
from mlgokit.corpus.importers.recorded import write_database
from mlgokit.corpus.options.edits import CommandLineEdits
from mlgokit.errors import MlgokitError, UsageError
from mlgokit.evaluation.build import BuildPlan, compare_build
from mlgokit.evaluation.compare import Intervals, compare_projects
from mlgokit.evaluation.explain import MOST_TREES, differing_functions
from mlgokit.evaluation.records import Evaluation
from mlgokit.progress import Report

if TYPE_CHECKING:
    from mlgokit.commands.evaluate import Evaluate

LINK_SECONDS = 600.0


def check_source(config: "Evaluate") -> None:
    """Refuse a call that names two things to build, or options that belong to another.

    Raises:
        UsageError: such a call.
    """
    if config.build and config.compile_commands is not None:
        raise UsageError("evaluate: expected --build or --compile-commands, found both; name one")
    others = {
        "--link-command": bool(config.link_command) and config.compile_commands is None,
        "--link-folder": bool(config.link_folder) and not config.link_command,
        "--level": config.level is not None and config.compile_commands is None,
        **{name: given and config.compile_commands is None for name, given in config.database.given.items()},
        "--images": bool(config.images) and not config.build,
        "--link-options": bool(config.link_options or config.against_link_options)
        and not (config.build or config.link_command),
        "--plugin-in": config.plugin_in != "compile" and not (config.build or config.link_command),
    }
    for option, is_lost in others.items():
        if is_lost:
            needed = "--build" if option == "--images" else "--compile-commands"
            needed = "--build or --link-command" if option in {"--link-options", "--plugin-in"} else needed
            needed = "--link-command" if option == "--link-folder" else needed
            raise UsageError(f"{option}: needs {needed}; add that, or remove {option}")
    if config.projects and (config.build or config.compile_commands is not None):
        raise UsageError("--projects: only for a corpus; a build is one project; remove it")


def evaluate_build(
    config: "Evaluate", before: Variant, after: Variant, *, costs: bool, report: Report
) -> tuple[Evaluation, Toolchain]:
    """Run the build's own command both ways.

    Raises:
        UsageError: the command is none, or calls no compiler that is wrapped.
        ToolError: a compiler is missing, or the command cannot be started.
    """
    plan = BuildPlan(
        commands=tuple(tuple(command_words(text, option="--build", known=())) for text in config.build),
        folder=config.folder,
        images=config.images,
        timeout_seconds=60 * config.build_minutes,
    )
    if not config.folder.is_dir():
        raise UsageError(f"--folder {config.folder}: expected a folder with sources to build, found none; correct it")
    for words in plan.commands:
        if "/" not in words[0] and shutil.which(words[0]) is None:
            raise UsageError(f"--build: expected a program in {' '.join(words)}, found no {words[0]}; check the name")
    generic = any(side.use is not None and side.use.plugin is None for side in (before, after))
    toolchain = find_toolchain(config.compiler.llvm, need_plugin=generic)
    plugin = build_plugin(toolchain) if generic else None
    why = why_no_trees(config, before, after)
    found = compare_build(
        plan,
        toolchain=toolchain,
        plugin=plugin,
        before=before,
        after=after,
        intervals=Intervals(seed=config.seed, level=config.confidence),
        costs=costs,
        inspect=None
        if why
        else functools.partial(
            _with_trees, config, toolchain=toolchain, plugin=plugin, before=before, after=after, report=report
        ),
        report=report,
    )
    return without_trees(config, found, why) if why else found, toolchain


def _with_trees(
    config: "Evaluate",
    found: Evaluation,
    calls: Sequence[WrappedCall],
    tree: Path,
    *,
    toolchain: Toolchain,
    plugin: Path | None,
    before: Variant,
    after: Variant,
    report: Report,
) -> Evaluation:
    """The evaluation with call trees: of the sources that hold what differs most, bitcode is made where they lie."""
    functions = differing_functions(found.projects)
    names = {name for one in (*functions[:MOST_TREES], *functions[-MOST_TREES:]) for name in one.where[:1]}
    wanted = [call for call in calls if names & {path.as_posix().removeprefix(f"{tree}/") for path in call.outputs}]
    with tempfile.TemporaryDirectory(prefix="mlgokit-evaluate-") as scratch:
        # Its folder says how modules are named.
        database = tree / "mlgokit_commands.json"
        if not write_database(wanted, database).entries:
            return without_trees(config, found, "no object of the build holds a function that differs")
        try:
            folder = import_database(
                Database(path=database),
                Path(scratch) / "corpus",
                toolchain=toolchain,
                compiler=config.compiler,
                report=report,
            )
            chosen = modules_of_project(folder, None)
        except MlgokitError as error:
            return without_trees(config, found, f"no module could be made of what differs: {error}")
        outputs = module_outputs(database)
        modules = [
            dataclasses.replace(module, name=outputs[module.name].relative_to(tree).as_posix())
            for module in chosen.modules
            if module.name in outputs
        ]
        compiler = clang_for(config.compiler, toolchain, plugin, corpus=folder, report=report)
        return with_trees(config, found, modules, compiler=compiler, before=before, after=after, report=report)


def evaluate_commands(
    config: "Evaluate", before: Variant, after: Variant, *, costs: bool, report: Report
) -> tuple[Evaluation, Toolchain]:
    """Compile the sources of a compilation database both ways, and link with the build's own link.

    Raises:
        CorpusError: there is nothing to compile.
        ToolError: a compiler is missing.
        UsageError: the link command does not fit the database.
    """
    named = CommandLineEdits(add=parse_options((*before.options, *after.options)))
    commands = [link_words(text) for text in config.link_command]
    folders = _link_folders(config)
    generic = any(side.use is not None and side.use.plugin is None for side in (before, after))
    toolchain = find_toolchain(config.compiler.llvm, need_plugin=generic)
    plugin = build_plugin(toolchain) if generic else None
    database = config.compile_commands or Path()
    with tempfile.TemporaryDirectory(prefix="mlgokit-evaluate-") as scratch:
        corpus = import_database(
            Database(path=database, level=config.level, choice=config.database),
            Path(scratch) / "corpus",
            toolchain=toolchain,
            compiler=config.compiler,
            for_link=bool(commands),
            report=report,
        )
        chosen = modules_of_project(corpus, None)
        chosen.tell(report)
        modules = list(chosen.modules)
        project = modules[0].project
        lto: Mapping[str, Lto] = {}
        links: dict[str, LinkBuild] | None = None
        if commands:
            outputs = module_outputs(database, level=config.level)
            plans = [
                plan_link(
                    words,
                    folder=folder,
                    outputs=outputs,
                    modules=[module.name for module in modules],
                    toolchain=toolchain,
                )
                for words, folder in zip(commands, folders, strict=True)
            ]
            by_name = {module.name: module for module in modules}
            modules = [by_name[name] for name in dict.fromkeys(name for plan in plans for name in plan.modules)]
            # Without its link, an object of bitcode could not be compared at all.
            lto = lto_by_module(database, level=config.level)
            sides = {"before": before, "after": after}
            names = image_names(config.link_command) if len(plans) > 1 else [""]
            links = {
                name: user_link(plan, sides, plugin, lto=lto, costs=costs, timeout_seconds=LINK_SECONDS)
                for name, plan in zip(names, plans, strict=True)
            }
        compiler = clang_for(config.compiler, toolchain, plugin, corpus=corpus, files=named.files, report=report)
        with contextlib.closing(spread(config.cluster, compiler, report=report)) as all_workers:
            found = compare_projects(
                modules,
                compiler=all_workers,
                before=before,
                after=after,
                intervals=Intervals(seed=config.seed, level=config.confidence),
                costs=costs,
                links=links,
                lto=lto,
                left_out=[
                    ModuleFailure(name=name, project=project, reason=why) for name, why in chosen.left_out.items()
                ],
                report=report,
            )
        found = dataclasses.replace(found, baseline=baseline_of(toolchain.version, modules))
        of_objects = [module for module in modules if not lto.get(module.name)]
        found = with_trees(config, found, of_objects, compiler=compiler, before=before, after=after, report=report)
    return found, toolchain


def _link_folders(config: "Evaluate") -> list[Path]:
    """Where each link command runs."""
    database = config.compile_commands or Path()
    given = config.link_folder or (database.resolve().parent,)
    if len(given) not in {1, len(config.link_command) or 1}:
        raise UsageError(
            f"--link-folder: expected one folder, or one for each of {len(config.link_command)} --link-command, found "
            f"{len(given)}; correct it"
        )
    return list(given) * len(config.link_command) if len(given) == 1 else list(given)
