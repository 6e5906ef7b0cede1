"""The command that compares the code of a corpus with that of the build it came from."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

import numpy as np

from mlgokit.builds.compilers import clang_for
from mlgokit.commands.options import COMPILER, NO_CHANGES, Changes, Compiling
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.front_end import Level
from mlgokit.corpus.importers.build_sources import CommandFilter
from mlgokit.corpus.importers.reference import build_reference
from mlgokit.corpus.sources.extract import OPTIONS, project_jobs, recognize_options
from mlgokit.corpus.sources.projects import load_projects
from mlgokit.corpus.verify import Reference, VerifyResult, compile_in_one_step, objects_of_build, verify_corpus
from mlgokit.errors import MlgokitError, UsageError
from mlgokit.locks import reading
from mlgokit.manifest import read_config
from mlgokit.progress import Report, say_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Compile modules of a corpus and compare their code with the build's: name one thing to compare with."""

    corpus: Path = Path("corpus")
    """Folder of the corpus."""
    objects: Path | None = None
    """Folder with the build's objects, named like the modules; for ThinLTO, the objects that the linker compiled."""
    compile_commands: Path | None = None
    """Database that the corpus was imported from. Its sources are compiled again by this clang into a temporary folder,
    each with its own options, precompiled headers included."""
    sources: Path | None = None
    """Folder where `corpus fetch` put the sources of a corpus that `corpus extract` made; they are compiled anew."""
    manifest: Path | None = None
    """With --sources: TOML file that lists the projects; the list that comes with mlgokit if not given."""
    most: int = 100
    """Maximum number of modules to compare, drawn at random."""
    seed: int = 1
    """Random seed by which the modules are drawn."""
    compiler: Compiling = COMPILER
    """The clang that compiles the modules; it must have the LLVM major version of the build."""
    changes: Changes = NO_CHANGES
    """Changes of the options of clang -cc1 in the command lines of all modules."""


def run(config: Verify, *, report: Report = say_nothing) -> VerifyResult:
    """Compare compiled modules with the build's objects; the exit code is 1 if the code of any compared one differs.

    Raises:
        BusyError: another process changes the corpus.
        UsageError: not exactly one thing to compare with is named.
    """
    named = [name for name in ("objects", "compile_commands", "sources") if getattr(config, name) is not None]
    if len(named) != 1:
        raise UsageError(
            "verify: expected one of --objects, --compile-commands and --sources, found "
            f"{' and '.join(named) or 'none'}; give exactly one"
        )
    if config.most < 1:
        raise UsageError(f"--most: expected at least 1, found {config.most}; give more")
    with reading(config.corpus):
        edits = config.changes.edits()
        toolchain = find_toolchain(config.compiler.llvm)
        corpus = load_corpus(config.corpus, edits)
        return verify_corpus(
            corpus,
            _reference(config, corpus, toolchain),
            compiler=clang_for(config.compiler, toolchain, corpus=corpus.folder, files=edits.files, report=report),
            rng=np.random.default_rng(config.seed),
            most=config.most,
            report=lambda done, total, label: report(done, total, "verify"),  # noqa: ARG005  (the protocol names it)
        )


def _reference(config: Verify, corpus: Corpus, toolchain: Toolchain) -> Reference:
    if config.objects is not None:
        return objects_of_build(config.objects)
    if config.compile_commands is not None:
        settings = read_config(config.corpus)
        recorded = {key: value for key, value in settings.items() if isinstance(value, str)}
        level = recorded.get("level")
        return build_reference(
            config.compile_commands,
            toolchain=toolchain,
            project=recorded.get("project"),
            level=cast("Level", level) if level in get_args(Level) else None,
            wanted=CommandFilter(include=recorded.get("include"), exclude=recorded.get("exclude")),
            timeout_seconds=config.compiler.deadline(),
        )
    known = {module.project for module in corpus.modules}
    projects = [project for project in load_projects(config.manifest) if project.name in known]
    jobs = project_jobs(
        projects,
        toolchain=toolchain,
        sources_folder=config.sources or Path(),
        options=_options(config.corpus),
    )
    return compile_in_one_step(jobs, timeout_seconds=config.compiler.deadline())


def _options(folder: Path) -> tuple[str, ...]:
    """What the driver was given for each module, as far as the corpus says so."""
    recorded = read_config(folder).get("options")
    words = cast("list[object]", recorded) if isinstance(recorded, list) else []
    return recognize_options([word for word in words if isinstance(word, str)]) or OPTIONS


def exit_code(config: Verify, result: VerifyResult) -> int:  # noqa: ARG001  (as of other commands)
    """1 if not all that was looked at has the build's code."""
    return 0 if result.verified else MlgokitError.exit_code
