"""The command that counts what a corpus has."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.compilers import CompilerOptions, open_sandbox_for, open_tools
from mlgokit.commands.options import COMPILER, Compiling
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.identity import Contents, Kinship, describe_corpus
from mlgokit.corpus.info import CorpusInfo, ProjectInfo, corpus_info
from mlgokit.errors import ToolError
from mlgokit.locks import reading
from mlgokit.pages.model import Page, Row, Table, count_columns, drop_empty, text_columns
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import counted

MOST_PROJECTS = 60
"""Rows of a table; what is beyond is summed up in one."""
_MOST_GROUPS = 5
_LANGUAGES = {"c": "C", "c++": "C++", "unknown": "unknown language"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """Count a corpus: modules, functions, call sites, languages, copies, the split, what was skipped and why."""

    corpus: Path = Path("quickstart/corpus")
    """Folder of the corpus."""
    counts: bool = True
    """Count functions, calls and instructions, for which clang reads each module; with --no-counts, only file sizes and
    identical files are reported."""
    compiler: Compiling = COMPILER
    """The clang that reads the modules."""


def run(config: Info, *, report: Report = say_nothing) -> CorpusInfo:
    """Count the corpus.

    Raises:
        BusyError: another process changes the corpus.
    """
    with reading(config.corpus):
        corpus = load_corpus(config.corpus)
        contents = contents_of(corpus, config.compiler, use_compiler=config.counts, report=report)
        return corpus_info(corpus, contents)


def page(info: CorpusInfo) -> Page:
    """The projects of a corpus, its copies, and what of it is not counted or was skipped."""
    rest = info.projects[MOST_PROJECTS:]
    rows = [_row(project) for project in info.projects[:MOST_PROJECTS]]
    if rest:
        rows.append((f"{len(rest)} more", "", "", sum(project.modules for project in rest), *[""] * 3))
    totals = (info.modules, info.functions, info.decidable_call_sites, info.bitcode_bytes / 1000)
    table = Table(
        title=f"Corpus {info.folder}",
        columns=(
            *text_columns("project", "", "training"),
            *count_columns("modules", "functions", "decidable calls", "bitcode KB"),
        ),
        rows=tuple(rows),
        total=(counted(len(info.projects), "project"), "", "", *totals),
    )
    by_language = ", ".join(f"{count:,} in {_LANGUAGES.get(name, name)}" for name, count in info.languages.items())
    held_out = sum(project.held_out_modules for project in info.projects)
    copies = sum(project.copies for project in info.projects)
    uncounted = info.modules - info.described
    return Page(
        title=f"Corpus {info.folder}",
        headline=f"Modules: {by_language}; {held_out:,} held out, {info.modules - held_out - copies:,} to train on.",
        sentences=tuple(_sentences(info)),
        warnings=(
            *([f"Functions, calls and instructions are not counted for {uncounted:,} modules."] if uncounted else []),
            *kinship_warnings(info.kinships),
        ),
        parts=drop_empty(
            [
                table,
                _groups("with the same bitcode", info.duplicates),
                _groups("the same but for names, paths and debug information", info.same_content),
                *(
                    Table(
                        title=f"Skipped {skipped.count:,}: {skipped.reason}",
                        columns=text_columns("module", "reason"),
                        rows=tuple((example.name, example.reason) for example in skipped.examples),
                    )
                    for skipped in info.skipped
                ),
            ]
        ),
    )


def _sentences(info: CorpusInfo) -> Iterable[str]:
    if info.described:
        yield (
            f"Before optimization: {info.instructions:,} instructions, {info.call_sites:,} call sites, "
            f"{info.decidable_call_sites:,} of them with a callee defined in the same module."
        )
    if text_bytes := sum(project.text_bytes for project in info.projects):
        yield f"Code size at plain -Oz (modules where it is known): {text_bytes:,} bytes."
    if info.has_thinlto:
        yield "The modules are of a ThinLTO build; each has its part of the index."
    if info.has_override:
        yield "One command line serves all modules (global_command_override)."
    if info.translated:
        yield f"It is a compiler driver's, and compiled as: {' '.join(info.translated)}"
    yield from leak_sentences(info.leaks)


def contents_of(
    corpus: Corpus, options: CompilerOptions, *, use_compiler: bool = True, report: Report = say_nothing
) -> Contents:
    """What is in the modules; only their digests if there is no compiler that a plugin can be built for.

    Raises:
        ToolError: there is none of the major that was asked for.
    """
    toolchain, plugin, sandbox = None, None, None
    if use_compiler:
        try:
            toolchain, plugin = open_tools(options)
            sandbox = open_sandbox_for(options, toolchain, corpus=corpus.folder, report=report)
        except ToolError:
            if options.llvm is not None:
                raise
            # Equal files are found all the same, and the table says that nothing was counted.
    return describe_corpus(
        corpus.folder,
        corpus.modules,
        toolchain=toolchain,
        plugin=plugin,
        workers=options.workers,
        timeout_seconds=options.deadline(),
        sandbox=sandbox,
        report=report,
    )


def leak_sentences(leaks: Sequence[str]) -> Iterable[str]:
    """Which training modules have copies among the held-out ones."""
    if leaks:
        yield (
            f"{len(leaks):,} training modules are skipped because a held-out module is a copy of them: "
            f"{_first_four(leaks)}."
        )


def kinship_warnings(kinships: Sequence[Kinship]) -> Iterable[str]:
    """Which projects of training have functions in common with held-out ones."""
    for kinship in kinships[:_MOST_GROUPS]:
        yield (
            f"{kinship.held_out} (held out) and {kinship.training} (training) share about {kinship.shared:.0%} of "
            "the functions of the smaller one; put both on the same side with `corpus split --held-out`."
        )


def _row(project: ProjectInfo) -> Row:
    if not project.held_out_modules:
        side = "yes" if project.modules else ""
    else:
        side = "held out" if project.held_out_modules == project.modules else f"{project.held_out_modules} held out"
    if project.copies:
        side += f", {project.copies} cop{'y' if project.copies == 1 else 'ies'}"
    languages = ", ".join(_LANGUAGES.get(one, one) for one in project.languages)
    counts = (project.modules, project.functions, project.decidable_call_sites, project.bitcode_bytes / 1000)
    return (project.name, languages, side, *counts)


def _groups(what: str, groups: Sequence[Sequence[str]]) -> Table:
    copies = sum(len(group) - 1 for group in groups)
    return Table(
        title=f"Modules {what}: {len(groups):,} groups, {copies:,} copies",
        columns=text_columns("modules"),
        rows=tuple((_first_four(group),) for group in groups),
        terminal_rows=_MOST_GROUPS,
    )


def _first_four(names: Sequence[str]) -> str:
    return f"{', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"
