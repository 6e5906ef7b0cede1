"""What a build with ``-flto`` is tuned by: its link where that can be searched, else its compile steps."""

import dataclasses

from mlgokit.builds.link import link_words
from mlgokit.commands.tune_builds import Recorded, link_of, programs_of
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.lto import linker_call
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.build_command import lto_of
from mlgokit.corpus.importers.database import lto_kinds
from mlgokit.corpus.importers.recorded import RecordedLink
from mlgokit.errors import OtherLinkerError, UsageError


def by_its_link(config: Tune, recorded: Recorded, toolchain: Toolchain) -> tuple[Tune, str]:
    """A call that tunes a recorded build for the bytes of its image: of a build with ``-flto`` its link makes that.

    Args:
        config: the call, with the database of the build.
        recorded: the build.
        toolchain: whose plugin the linker is to load.

    Returns:
        The call with the link that is searched; as it was, and why, if most sources have ``-flto`` and no one link is
        to be searched.

    Raises:
        CorpusError: the database is none.
        ToolError: a link cannot be started.
        OtherLinkerError: a program with ``-flto`` is linked by another linker than lld, which loads no plugin.
    """
    kinds = lto_kinds(config.compile_commands)
    if config.objective != "image" or kinds["full"] + kinds["thin"] <= kinds[""]:
        return config, ""
    for option, is_given in {
        "--sandbox on": config.compiler.sandbox == "on",
        "--artifact replay": config.artifact == "replay",
    }.items():
        if is_given:
            return config, f"{option} is for compile steps; leave it out to have the link searched"
    try:
        links = [recorded.links[path] for path in programs_of(recorded, config.built).values()]
        shipped = [link for link in links if lto_of(link_words(link.command))]
        for link in shipped:
            _check_linker(link, config, toolchain)
        link = link_of(recorded, config.built)
        if link not in shipped:
            _check_linker(link, config, toolchain)
    except OtherLinkerError:
        raise
    except UsageError as error:
        return config, str(error)
    return dataclasses.replace(config, objective="linked", link_command=link.command, link_folder=link.folder), ""


def _check_linker(link: RecordedLink, config: Tune, toolchain: Toolchain) -> None:
    """Refuse a link whose linker does not load the plugin.

    Raises:
        ToolError: it cannot be started.
        UsageError: it is another linker than the lld of that LLVM, or no link that is there.
    """
    words = [word.replace("{output}", "image") for word in link_words(link.command)]
    linker_call(
        words,
        link.folder,
        toolchain=toolchain,
        timeout_seconds=config.judge.timeout_seconds,
        option=f"--build: {link.output.name}",
    )


def link_note(config: Tune) -> str:
    """What is said of a build whose link is searched although the call does not ask for it."""
    kinds = lto_kinds(config.compile_commands)
    count = kinds["full"] + kinds["thin"]
    return (
        f"{count} of {sum(kinds.values())} sources are built with -flto, so the link of the program is searched, as by "
        "--objective linked"
    )


def without_lto(config: Tune, reason: str = "") -> dict[str, str]:
    """What it means that a build with ``-flto`` is tuned by its compile steps alone; nothing for other builds.

    Args:
        config: the call.
        reason: why the link is not searched, if it might have been.
    """
    kinds = lto_kinds(config.compile_commands)
    count = kinds["full"] + kinds["thin"]
    if not count:
        return {}
    remedy = "give --objective linked and the --link-command to search the link itself"
    if config.built.build:
        remedy = "a program that becomes larger than without the plugin is refused"
    return {
        "-flto=thin" if kinds["thin"] > kinds["full"] else "-flto": (
            f"{count} of {sum(kinds.values())} sources are built with it and tuned as if they were not, so that the "
            f"result is for a build without it, and may make one with it larger; {remedy}"
            f"{f'; the link is not searched: {reason}' if reason else ''}"
        )
    }
