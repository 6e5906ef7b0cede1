"""What a call of `mlgokit tune` is to tune: modules of a corpus, of a build or of a link."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.commands.chosen import (
    ModuleSelection,
    given_corpus,
    modules_for_size,
    modules_of_project,
)
from mlgokit.commands.tune_checks import (
    check_link_without_profile,
    measure_of,
    with_hot_functions,
)
from mlgokit.commands.tune_lto import LinkTuning, open_link, without_lto
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.project_name import default_project
from mlgokit.files import digest_file
from mlgokit.locks import reading
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tune.measurement import Measure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Material:
    """What is tuned, and where it comes from.

    Attributes:
        modules: in link order.
        left_out: what is not tuned, with the reason.
        inputs: digests of what the search depends on.
        measure: what judges, if the objective is more than the account.
        corpus: the folder of the modules, if they are a corpus.
        linking: the link, if its modules are what is tuned.
        notes: what is to be said of the build.
    """

    modules: Sequence[Module]
    left_out: dict[str, str]
    inputs: dict[str, str]
    measure: Measure | None
    corpus: Path | None = None
    linking: LinkTuning | None = None
    notes: tuple[str, ...] = ()


def find_material(config: Tune, toolchain: Toolchain, stack: contextlib.ExitStack, report: Report) -> Material:
    """Find what is to be tuned, and say what is left out."""
    if (linking := open_link(config, toolchain, stack=stack, report=report)) is not None:
        check_link_without_profile(config)
        chosen = ModuleSelection(modules=linking.modules, left_out=linking.left_out)
        chosen.tell(report)
        return Material(
            modules=chosen.modules,
            left_out=chosen.left_out,
            inputs=linking.inputs,
            measure=linking.measure,
            linking=linking,
        )
    corpus = given_corpus(
        compile_commands=config.compile_commands,
        corpus=config.corpus,
        folder=config.folder / "corpus",
        level=config.level,
        llvm=toolchain.major,
        workers=config.compiler.workers,
        report=report,
        project=default_project(config.built.build_folder) if config.built.build else None,
    )
    stack.enter_context(reading(corpus))
    chosen = (modules_of_project if config.objective == "spill-cost" else modules_for_size)(corpus, config.project)
    lto = without_lto(config)
    notes = tuple(note for note in chosen.notes if note.partition(" ")[0] not in lto)
    chosen = ModuleSelection(modules=chosen.modules, left_out=lto | chosen.left_out, notes=notes)
    chosen = with_hot_functions(config, chosen)
    chosen.tell(report)
    measure = measure_of(config, chosen.modules, toolchain)
    by_name = {module.name: module for module in chosen.modules}
    return Material(
        modules=chosen.modules if measure is None else [by_name[name] for name in measure.modules],
        left_out=chosen.left_out,
        inputs={"corpus": digest_file(corpus / "corpus_description.json")},
        measure=measure,
        corpus=corpus,
        notes=chosen.notes,
    )
