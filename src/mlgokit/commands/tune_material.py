"""What a call of `mlgokit tune` is to tune: modules of a corpus, of a build or of a link."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.measurement import Measure
from mlgokit.commands.chosen import (
    ModuleSelection,
    given_corpus,
    modules_for_size,
    modules_of_project,
)
from mlgokit.commands.tune_builds import Recorded
from mlgokit.commands.tune_checks import (
    measure_of,
    with_hot_functions,
)
from mlgokit.commands.tune_lto import LinkTuning, open_link
from mlgokit.commands.tune_lto_choice import by_its_link, link_note, without_lto
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.build_notes import profile_sentences
from mlgokit.corpus.importers.database import option_counts
from mlgokit.corpus.staleness import fit_of
from mlgokit.errors import UsageError
from mlgokit.files import digest_file
from mlgokit.locks import reading
from mlgokit.module import Module
from mlgokit.progress import Report


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Material:
    """What is tuned, and where it comes from.

    Attributes:
        config: the call, with what was found.
        modules: in link order.
        left_out: what is not tuned, with the reason.
        inputs: digests of what the search depends on.
        measure: what judges, if the objective is more than the account.
        corpus: the folder of the modules, if they are a corpus.
        linking: the link, if its modules are what is tuned.
        notes: what is to be said of the build.
    """

    config: Tune
    modules: Sequence[Module]
    left_out: dict[str, str]
    inputs: dict[str, str]
    measure: Measure | None
    corpus: Path | None = None
    linking: LinkTuning | None = None
    notes: tuple[str, ...] = ()


def find_material(
    config: Tune,
    toolchain: Toolchain,
    stack: contextlib.ExitStack,
    report: Report,
    *,
    recorded: Recorded | None = None,
) -> Material:
    """Find what is to be tuned, and say what is left out.

    Args:
        config: the call.
        toolchain: whose clang.
        stack: holds the corpus.
        report: told what is left out, and why.
        recorded: the build of the call; if its link is searched for, that need not be possible.
    """
    by_link, reason = (config, "") if recorded is None else by_its_link(config, recorded, toolchain)
    linking = None
    try:
        linking = open_link(by_link, toolchain, stack=stack, report=report)
    except UsageError as error:
        if by_link is config:
            raise
        reason = str(error)
    if linking is not None:
        notes = (*(() if by_link is config else (link_note(config),)), *_notes_of_link(config, linking))
        chosen = ModuleSelection(modules=linking.modules, left_out=linking.left_out, notes=notes)
        chosen = with_hot_functions(config, chosen)
        chosen.tell(report)
        return Material(
            config=by_link,
            modules=chosen.modules,
            left_out=chosen.left_out,
            inputs=linking.inputs,
            measure=linking.measure,
            linking=linking,
            notes=chosen.notes,
        )
    corpus = given_corpus(
        compile_commands=config.compile_commands,
        corpus=config.corpus,
        folder=config.folder / "corpus",
        level=config.level,
        llvm=toolchain.major,
        workers=config.compiler.workers,
        sandbox=config.compiler.sandbox,
        report=report,
        project=config.build_project,
        database=config.database,
    )
    stack.enter_context(reading(corpus))
    chosen = (modules_of_project if config.objective == "spill-cost" else modules_for_size)(corpus, config.project)
    lto = without_lto(config, reason)
    notes = tuple(note for note in chosen.notes if note.partition(" ")[0] not in lto)
    chosen = ModuleSelection(modules=chosen.modules, left_out=lto | chosen.left_out, notes=notes)
    chosen = with_hot_functions(config, chosen)
    chosen.tell(report)
    measure = measure_of(config, chosen.modules, toolchain)
    by_name = {module.name: module for module in chosen.modules}
    return Material(
        config=config,
        modules=chosen.modules if measure is None else [by_name[name] for name in measure.modules],
        left_out=chosen.left_out,
        inputs={"corpus": digest_file(corpus / "corpus_description.json")},
        measure=measure,
        corpus=corpus,
        notes=chosen.notes,
    )


def _notes_of_link(config: Tune, linking: LinkTuning) -> tuple[str, ...]:
    """What is to be said of a build whose objects are linked as they are, and of the profiles of its compile steps."""
    if config.compile_commands is None:
        return ()
    counts = option_counts(config.compile_commands, project=config.build_project).of_objects
    steps = () if linking.steps is None else linking.steps.modules
    return (*counts.sentences(), *profile_sentences([fit for one in steps if (fit := fit_of(one)) is not None]))
