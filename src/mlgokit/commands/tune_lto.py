"""Tuning a link: a program's full link-time optimization as the one module of a search, judged by the user's link."""

import dataclasses
import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlgokit.compiler.lto import LinkerCall, linker_call, merge
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.build_command import lto_of
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.evaluation.linked import LinkPlan, command_words, link, link_words
from mlgokit.evaluation.sides import plugin_link_option
from mlgokit.files import digest_file
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tune.measurement import LinkedBuild, Measure, link_build, measure, measuring_words

if TYPE_CHECKING:
    from mlgokit.commands.tune import Tune

LINK_MODULE = " (link)"
"""How the name of a module ends that is a link."""
_FOLDER = "link"
_SIZE_LEVELS = {"-Oz", "-Os"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkTuning:
    """A link that is tuned.

    Attributes:
        module: the link.
        plan: the command as the user gave it.
        measure: how the images of the module's compilations are judged.
        left_out: what takes part in the build and is not tuned, with the reason.
    """

    module: Module
    plan: LinkPlan
    measure: Measure
    left_out: dict[str, str]

    @property
    def inputs(self) -> dict[str, str]:
        """Digests of what a search depends on."""
        return {"merged module": digest_file(self.module.bitcode)}


def asked_lto(config: "Tune") -> dict[str, int]:
    """Kinds of link-time optimization that the compilation database asks for, each with the number of sources.

    Raises:
        CorpusError: the database is none.
    """
    found = {"": 0, "full": 0, "thin": 0}
    if config.compile_commands is not None:
        for command in read_compile_commands(config.compile_commands):
            if isinstance(command, CompileCommand):
                found[lto_of(command.arguments)] += 1
    return found


def without_lto(config: "Tune") -> dict[str, str]:
    """What it means that a build with ``-flto`` is tuned by its compile steps alone; nothing for other builds."""
    kinds = asked_lto(config)
    count = kinds["full"] + kinds["thin"]
    if not count:
        return {}
    thin = kinds["thin"] > kinds["full"]
    word = "-flto=thin" if thin else "-flto"
    remedy = (
        "build with -flto and --objective linked to search that link"
        if thin
        else "give --objective linked and the --link-command to search the link itself"
    )
    return {
        word: f"{count} of {sum(kinds.values())} sources are built with it and tuned as if they were not, so that the "
        f"result is for a build without it; {remedy}"
    }


def open_link(config: "Tune", toolchain: Toolchain, *, report: Report) -> LinkTuning | None:
    """The link to tune, if the call names one that optimizes; it is linked as it is first, and without that sound.

    Raises:
        CorpusError: nothing of it is compiled for size.
        ToolError: a program cannot be started.
        UsageError: the link fails, or is not one that can be searched.
    """
    if config.link_command is None or config.compile_commands is None:
        return None
    words = link_words(config.link_command)
    kinds = asked_lto(config)
    if lto_of(words) != "full" and not kinds["full"]:
        return None
    if "{objects}" in words:
        raise UsageError(
            "--link-command: expected the link of a build with -flto as the build has it, found {objects} in it; "
            "build the project, and give the command with the paths of its objects"
        )
    if config.compiler.sandbox == "on":
        raise UsageError("--sandbox on: expected no -flto with it, as a link reads the whole build; leave one out")
    if config.level is not None:
        raise UsageError(
            f"--level {config.level}: expected no -flto with it, as the link takes the build's own objects; "
            f"build with -{config.level}"
        )
    folder = (config.link_folder or config.compile_commands.resolve().parent).resolve()
    plan = LinkPlan(words=words, folder=folder, modules=())
    scratch = config.folder.resolve() / _FOLDER
    shutil.rmtree(scratch, ignore_errors=True)
    report(0, 2, "link as the build does")
    real = link(plan, {}, scratch / "real", timeout_seconds=config.judge.timeout_seconds)
    if real.reason:
        raise UsageError(
            f"--link-command: expected the link of a build that is there, found: {real.reason}; build the project "
            "first, and name the command's folder with --link-folder"
        )
    shown = [word.replace("{output}", str(scratch / "asked")) for word in words]
    call = linker_call(shown, folder, toolchain=toolchain, timeout_seconds=config.judge.timeout_seconds)
    report(1, 2, "link once more, and keep what is merged")
    merged = merge(call, scratch / "merged", timeout_seconds=config.judge.timeout_seconds)
    if merged.reason:
        raise UsageError(
            f"--link-command: expected the linker alone to link as the driver does, found: {merged.reason}"
        )
    if merged.bitcode is None:
        return None
    _check_level(config)
    name = f"{_output_name(config.link_command)}{LINK_MODULE}"
    how = Measure(
        plan=plan,
        command=() if config.command is None else measuring_words(config.command),
        modules=(name,),
        timeout_seconds=config.judge.timeout_seconds,
        error=config.judge.error,
        is_lto=True,
    )
    is_same = real.image.read_bytes() == merged.image.read_bytes()
    return LinkTuning(
        module=_module(config.project or folder.name, name, call, merged.bitcode, driver=words[0]),
        plan=plan,
        measure=how,
        left_out=_left_out(kinds, is_same=is_same),
    )


def link_option(tuning: LinkTuning, plugin: Path) -> str:
    """What is to be added to the user's link."""
    return plugin_link_option(plugin.resolve(), linker=tuning.plan.words[0])


def prove_link(tuning: LinkTuning, plugin: Path, objects: Mapping[str, Path], folder: Path) -> None:
    """Hold the user's own link, with the plugin added, against the image that was verified.

    Raises:
        ToolError: it fails, or writes an image of another size.
    """
    option = link_option(tuning, plugin)
    how = dataclasses.replace(tuning.measure, command=())
    found = link(tuning.plan, {}, folder / "with-plugin", timeout_seconds=how.timeout_seconds, added=[option])
    real = measure(how, LinkedBuild(objects={}, image=found.image, reason=found.reason))
    verified = measure(how, link_build(how, objects, folder / "verified"))
    if real.value is None or real.value != verified.value:
        shown = f"{real.value:,.0f} in place of {verified.value:,.0f} bytes" if real.value and verified.value else ""
        raise ToolError(
            f"--link-command: expected the link with {option} to be the one that was verified, found "
            f"{shown or real.reason or verified.reason}; nothing was published"
        )


def _check_level(config: "Tune") -> None:
    commands = read_compile_commands(config.compile_commands) if config.compile_commands else ()
    if not any(isinstance(one, CompileCommand) and _SIZE_LEVELS & set(one.arguments) for one in commands):
        raise CorpusError(
            f"{config.compile_commands}: expected sources compiled with -Oz or -Os, found none; functions carry that "
            "to the link, so build for size first"
        )


def _module(project: str, name: str, call: LinkerCall, bitcode: Path, *, driver: str) -> Module:
    return Module(
        name=name,
        project=project,
        language="c++" if "++" in Path(driver).name else "c",
        bitcode=bitcode,
        command_line=call.words,
        bitcode_bytes=bitcode.stat().st_size,
        bitcode_sha256=digest_file(bitcode),
        link_folder=call.folder,
    )


def _output_name(text: str) -> str:
    words = command_words(text, option="--link-command", known={"{output}", "{objects}"})
    named = [Path(value).name for word, value in itertools.pairwise(words) if word == "-o"]
    return named[0] if named and "{" not in named[0] else "program"


def _left_out(kinds: dict[str, int], *, is_same: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    if kinds[""]:
        found["objects without -flto"] = (
            f"{kinds['']} of {sum(kinds.values())} sources are compiled without it, and stay as the build has them"
        )
    if not is_same:
        found["the linker alone"] = (
            "it writes another image than the whole link command, so that only the command's own image says what is "
            "gained"
        )
    return found
