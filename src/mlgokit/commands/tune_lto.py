"""Tuning a link: what the linker compiles of a program are the modules of a search, judged by the user's link.

With ``-flto`` that is one module, what the linker merges; with ``-flto=thin`` each back end is one.
"""

import contextlib
import dataclasses
import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.builds.link import LinkPlan, command_words, link, link_words, loading_options, plan_link
from mlgokit.builds.measurement import Comparison, LinkedBuild, Measure, measure, measuring_words
from mlgokit.commands.tune_defer import MOST_LARGER, CompileSteps, deferred, open_steps
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler.lto import LinkerCall, back_end, linker_call, merge
from mlgokit.compiler.request import Lto, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.importers.build_command import lto_of
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
from mlgokit.corpus.importers.database import lto_by_module, lto_kinds, module_outputs
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.files import digest_file
from mlgokit.manifest import digest_value
from mlgokit.module import Module
from mlgokit.progress import Report

LINK_MODULE = " (link)"
"""How the name of a module ends that the linker compiles."""
_FOLDER = "link"
_SIZE_LEVELS = {"-Oz", "-Os"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkTuning:
    """A link that is tuned.

    Attributes:
        modules: what the linker compiles.
        plan: the command as the user gave it.
        image: what it writes without a plugin.
        measure: how what comes of the modules is judged.
        left_out: what takes part in the build and is not tuned, with the reason.
        steps: the compile steps before the link, if they leave inlining to it.
    """

    modules: tuple[Module, ...]
    plan: LinkPlan
    image: Path
    measure: Measure
    left_out: dict[str, str]
    steps: CompileSteps | None = None

    @property
    def inputs(self) -> dict[str, str]:
        """Digests of what a search depends on."""
        return {"what is linked": digest_value({one.name: digest_file(one.bitcode) for one in self.modules})}


def open_link(config: Tune, toolchain: Toolchain, *, stack: contextlib.ExitStack, report: Report) -> LinkTuning | None:
    """The link to tune, if the call names one that optimizes; it is linked as it is first.

    Args:
        config: the call.
        toolchain: whose plugin the linker loads.
        stack: holds the corpus of the compile steps.
        report: told what is done.

    Raises:
        CorpusError: nothing of it is compiled for size.
        ToolError: a program cannot be started.
        UsageError: the link fails, or is not one that can be searched.
    """
    if config.link_command is None or config.compile_commands is None:
        return None
    words = link_words(config.link_command)
    kinds = lto_kinds(config.compile_commands)
    kind = lto_of(words) or ("full" if kinds["full"] else "thin")
    if not kinds["full"] and not kinds["thin"]:
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
    asked = _Asked(
        config=config,
        database=config.compile_commands,
        toolchain=toolchain,
        words=words,
        folder=folder,
        kinds=kinds,
        image=real.image,
        linked=real.image,
    )
    # What cannot be searched is refused before anything is compiled.
    _ = asked.call
    found = None
    if kinds["full"] and kind == "full":
        found = _merged_link(_deferring(asked, "full", scratch, stack, report), scratch, report)
    if found is None and kinds["thin"]:
        found = _thin_link(_deferring(asked, "thin", scratch, stack, report))
    if found is not None:
        _check_level(config)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Asked:
    """A link that was asked for, and made once.

    Attributes:
        config: the call.
        database: of the build.
        toolchain: whose plugin the linker loads.
        words: the link that is searched, with ``{output}``.
        folder: where it runs.
        kinds: how many sources have which kind of link-time optimization.
        image: what the user's link writes.
        linked: what ``words`` write.
        steps: the compile steps, if they leave inlining to the link.
        objects: theirs, by module.
        bar: bytes of the user's image then.
    """

    config: Tune
    database: Path
    toolchain: Toolchain
    words: tuple[str, ...]
    folder: Path
    kinds: dict[Lto, int]
    image: Path
    linked: Path
    steps: CompileSteps | None = None
    objects: Mapping[str, Path] = field(default_factory=dict[str, Path])
    bar: float | None = None

    @property
    def call(self) -> LinkerCall:
        """What it asks of the linker."""
        shown = [word.replace("{output}", "image") for word in self.words]
        timeout_seconds = self.config.judge.timeout_seconds
        return linker_call(shown, self.folder, toolchain=self.toolchain, timeout_seconds=timeout_seconds)

    @property
    def project(self) -> str:
        return self.config.project or self.folder.name

    def measure(self, plan: LinkPlan, modules: tuple[str, ...], *, is_lto: bool) -> Measure:
        return Measure(
            plan=plan,
            command=() if self.config.command is None else measuring_words(self.config.command),
            modules=modules,
            timeout_seconds=self.config.judge.timeout_seconds,
            error=self.config.judge.error,
            is_lto=is_lto,
            bar=self.bar,
        )


def _deferring(asked: _Asked, lto: Lto, scratch: Path, stack: contextlib.ExitStack, report: Report) -> _Asked:
    """The link with compile steps that inline nothing, or as it was if that makes the image much larger."""
    plan = LinkPlan(words=asked.words, folder=asked.folder, modules=())
    steps = open_steps(asked.config, plan, asked.toolchain, lto=lto, stack=stack, report=report)
    if steps is None:
        return asked
    scratch = scratch / "deferred"
    how = asked.measure(steps.plan, (), is_lto=False)
    report(0, 1, "compile without inlining, and link")
    objects = deferred(steps, scratch / "objects")
    found = steps.link(objects, scratch / "real", timeout_seconds=how.timeout_seconds)
    sizes = [
        measure(dataclasses.replace(how, command=()), LinkedBuild(objects={}, image=image, reason=reason)).value
        for image, reason in ((asked.image, ""), (found.image, found.reason))
    ]
    if sizes[0] is None or sizes[1] is None or sizes[1] > (1 + MOST_LARGER) * sizes[0]:
        report(1, 1, "the compile steps stay as they are: the link alone would begin with a far larger image")
        return asked
    words = steps.words(objects, scratch / "libraries", timeout_seconds=how.timeout_seconds)
    bar = None if how.command else sizes[0]
    return dataclasses.replace(asked, words=words, linked=found.image, steps=steps, objects=objects, bar=bar)


def _merged_link(asked: _Asked, scratch: Path, report: Report) -> LinkTuning | None:
    """Full link-time optimization; nothing if nothing is merged."""
    report(1, 2, "link once more, and keep what is merged")
    call = asked.call
    merged = merge(call, scratch / "merged", timeout_seconds=asked.config.judge.timeout_seconds)
    if merged.reason:
        raise UsageError(
            f"--link-command: expected the linker alone to link as the driver does, found: {merged.reason}"
        )
    if merged.bitcode is None:
        return None
    plan = LinkPlan(words=asked.words, folder=asked.folder, modules=())
    name = f"{_output_name(asked.config.link_command or '')}{LINK_MODULE}"
    language = "c++" if "++" in Path(asked.words[0]).name else "c"
    left_out: dict[str, str] = {}
    if count := asked.kinds[""] + asked.kinds["thin"]:
        left_out["objects without -flto"] = (
            f"{count} of {sum(asked.kinds.values())} sources are compiled without it, and stay as the build has them"
        )
    if asked.linked.read_bytes() != merged.image.read_bytes():
        left_out["the linker alone"] = (
            "it writes another image than the whole link command, so that only the command's own image says what is "
            "gained"
        )
    return LinkTuning(
        modules=(_module(asked, name, merged.bitcode, call.words, language),),
        plan=plan,
        image=asked.image,
        measure=asked.measure(plan, (name,), is_lto=True),
        left_out=left_out,
        steps=asked.steps,
    )


def _thin_link(asked: _Asked) -> LinkTuning:
    """ThinLTO: each object of the build that is linked, alone or in a library, has a back end."""
    project = asked.config.build_project
    kinds = lto_by_module(asked.database, project=project)
    built = module_outputs(asked.database, project=project) | dict(asked.objects)
    found = {name: path for name, path in built.items() if kinds.get(name) == "thin"}
    outputs = {f"{name}{LINK_MODULE}": path for name, path in found.items()}
    plan = plan_link(
        asked.words, folder=asked.folder, outputs=outputs, modules=tuple(outputs), toolchain=asked.toolchain
    )
    spelled = {name: plan.words[place] for place, name in plan.objects.items()}
    for place, members in plan.libraries.items():
        # So lld calls a member of a library, with its place behind it.
        spelled |= {name: f"{plan.words[place]}({Path(one.name).name} at " for one, name in members if name}
    left_out: dict[str, str] = {}
    if asked.kinds[""] + asked.kinds["full"]:
        left_out["objects without -flto=thin"] = "they stay as the build has them"
    modules: list[Module] = []
    call = asked.call
    for name in plan.modules:
        others = [one for one, text in spelled.items() if one != name and spelled[name] in text]
        if others:
            raise UsageError(
                f"--link-command: expected paths of objects none of which is a part of another, found {spelled[name]} "
                f"in {spelled[others[0]]}, which lld cannot compile one by one; link them by absolute paths"
            )
        language = "c" if Path(name.removesuffix(LINK_MODULE)).stem.endswith(".c") else "c++"
        modules.append(_module(asked, name, outputs[name], back_end(call, spelled[name]), language))
    return LinkTuning(
        modules=tuple(modules),
        plan=LinkPlan(words=asked.words, folder=asked.folder, modules=()),
        image=asked.image,
        measure=asked.measure(plan, plan.modules, is_lto=False),
        left_out=left_out,
        steps=asked.steps,
    )


def prove_link(tuning: LinkTuning, plugin: Path, folder: Path) -> Comparison | None:
    """Run the user's own link, with the plugin added, and compare its image with the one without.

    Returns:
        Both sizes; ``None`` if the objective is another number.

    Raises:
        ToolError: it fails, or writes a larger image.
    """
    how = dataclasses.replace(tuning.measure, command=(), is_lto=False)
    added = loading_options(tuning.plan.words, plugin, cache=folder / "cache")
    scratch, steps = folder / "with-plugin", tuning.steps
    if steps is None:
        found = link(tuning.plan, {}, scratch, timeout_seconds=how.timeout_seconds, added=added)
    else:
        objects = steps.compile(scratch / "objects", PluginUse(plugin=plugin))
        found = steps.link(objects, scratch, timeout_seconds=how.timeout_seconds, added=added)
    plain = measure(how, LinkedBuild(objects={}, image=tuning.image))
    tuned = measure(how, LinkedBuild(objects={}, image=found.image, reason=found.reason))
    is_size = tuning.measure.is_size
    if plain.value is None or tuned.value is None or (is_size and tuned.value > plain.value):
        reason = tuned.reason or plain.reason or f"{tuned.value:,.0f} bytes, plain {plain.value:,.0f}"
        raise ToolError(
            f"--link-command: expected the link with {added[0]} to be no larger than the plain one, found {reason}; "
            "nothing was published"
        )
    change = tuned.value - plain.value
    return Comparison(before=plain.value, after=tuned.value, low=change, high=change, pairs=1) if is_size else None


def _check_level(config: Tune) -> None:
    commands = read_compile_commands(config.compile_commands) if config.compile_commands else ()
    if not any(isinstance(one, CompileCommand) and _SIZE_LEVELS & set(one.arguments) for one in commands):
        raise CorpusError(
            f"{config.compile_commands}: expected sources compiled with -Oz or -Os, found none; functions carry that "
            "to the link, so build for size first"
        )


def _module(asked: _Asked, name: str, bitcode: Path, words: tuple[str, ...], language: str) -> Module:
    return Module(
        name=name,
        project=asked.project,
        language=language,
        bitcode=bitcode,
        command_line=words,
        bitcode_bytes=bitcode.stat().st_size,
        bitcode_sha256=digest_file(bitcode),
        link_folder=asked.folder,
        defers=asked.steps is not None,
    )


def _output_name(text: str) -> str:
    words = command_words(text, option="--link-command", known={"{output}", "{objects}"})
    named = [Path(value).name for word, value in itertools.pairwise(words) if word == "-o"]
    return named[0] if named and "{" not in named[0] else "program"
