"""The command that counts what a corpus has."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from mlgokit.builds.compilers import CompilerOptions, open_sandbox_for, open_tools
from mlgokit.commands.options import COMPILER, Compiling
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.identity import Contents, Kinship, describe_corpus
from mlgokit.corpus.info import CorpusInfo, ProjectInfo, corpus_info
from mlgokit.errors import ToolError
from mlgokit.locks import reading
from mlgokit.progress import Report, say_nothing
from mlgokit.terminal import numbers, plain_table, say, words

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
    """Read the modules with the compiler; --no-counts gives sizes and equal files only."""
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


def render(info: CorpusInfo, console: Console) -> None:
    """Projects with their counts, copies, the split, and what was skipped and why."""
    table = plain_table(
        Text(f"Corpus {info.folder}"),
        [*words("project", "", "training"), *numbers("modules", "functions", "decidable\ncalls", "bitcode\nKB")],
    )
    for project in info.projects[:MOST_PROJECTS]:
        languages = ", ".join(_LANGUAGES.get(one, one) for one in project.languages)
        table.add_row(Text(project.name), languages, *_row(project))
    rest = info.projects[MOST_PROJECTS:]
    if rest:
        table.add_row(f"{len(rest)} more", "", "", f"{sum(project.modules for project in rest):,}", *[""] * 3)
    table.add_section()
    totals = (info.modules, info.functions, info.decidable_call_sites)
    count = f"{len(info.projects)} project{'s' * (len(info.projects) != 1)}"
    table.add_row(count, "", "", *(f"{n:,}" for n in totals), _kilobytes(info.bitcode_bytes))
    console.print(table)
    by_language = ", ".join(f"{count:,} in {_LANGUAGES.get(name, name)}" for name, count in info.languages.items())
    held_out = sum(project.held_out_modules for project in info.projects)
    copies = sum(project.copies for project in info.projects)
    say(console, f"Modules: {by_language}; {held_out:,} held out, {info.modules - held_out - copies:,} to train on.")
    if info.described:
        say(
            console,
            f"Before any pass: {info.instructions:,} instructions, {info.call_sites:,} call sites; "
            f"{info.decidable_call_sites:,} of them call what their module defines.",
        )
    if text_bytes := sum(project.text_bytes for project in info.projects):
        say(console, f"Code under plain -Oz, of the modules for which it is known: {text_bytes:,} bytes.")
    if info.described < info.modules:
        missing = info.modules - info.described
        say(console, f"Functions, calls and instructions are not counted for {missing:,} modules.", style="yellow")
    _print_command_line(console, info)
    _print_groups(console, "with the same bitcode", info.duplicates)
    _print_groups(console, "the same but for names, paths and debug information", info.same_content)
    print_leaks(console, info.leaks, info.kinships)
    for skipped in info.skipped:
        say(console, f"Skipped {skipped.count:,}: {skipped.reason}", style="yellow")
        for example in skipped.examples:
            say(console, f"  {example.name}: {example.reason}", style="dim")


def _print_command_line(console: Console, info: CorpusInfo) -> None:
    if info.has_thinlto:
        say(console, "The modules are of a ThinLTO build; each has its part of the index.")
    if info.has_override:
        say(console, "One command line serves all modules (global_command_override).")
    if info.translated:
        say(console, f"It is a compiler driver's, and compiled as: {' '.join(info.translated)}")


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


def print_leaks(console: Console, leaks: Sequence[str], kinships: Sequence[Kinship]) -> None:
    """Say which training modules have copies or kin among the held-out ones."""
    if leaks:
        more = f" and {len(leaks) - 4} more" if len(leaks) > 4 else ""
        say(
            console,
            f"{len(leaks):,} training modules have a held-out copy and are passed over: {', '.join(leaks[:4])}{more}.",
        )
    for kinship in kinships[:_MOST_GROUPS]:
        say(
            console,
            f"{kinship.held_out} (held out) and {kinship.training} (training) have about {kinship.shared:.0%} of the "
            "smaller one's own functions in common; put both on one side with `corpus split --held-out`.",
            style="yellow",
        )


def _row(project: ProjectInfo) -> list[str]:
    if not project.held_out_modules:
        side = "yes" if project.modules else ""
    else:
        side = "held out" if project.held_out_modules == project.modules else f"{project.held_out_modules} held out"
    if project.copies:
        side += f", {project.copies} cop{'y' if project.copies == 1 else 'ies'}"
    counts = (project.functions, project.decidable_call_sites)
    return [side, f"{project.modules:,}", *(f"{n:,}" for n in counts), _kilobytes(project.bitcode_bytes)]


def _print_groups(console: Console, what: str, groups: Sequence[Sequence[str]]) -> None:
    if not groups:
        return
    extra = sum(len(group) - 1 for group in groups)
    say(console, f"Modules {what}: {len(groups):,} groups, {extra:,} copies.")
    for group in groups[:_MOST_GROUPS]:
        more = f" and {len(group) - 4} more" if len(group) > 4 else ""
        say(console, f"  {', '.join(group[:4])}{more}", style="dim")
    if len(groups) > _MOST_GROUPS:
        say(console, f"  and {len(groups) - _MOST_GROUPS} groups more (--json has all)", style="dim")


def _kilobytes(count: int) -> str:
    return f"{count / 1000:,.0f}"
