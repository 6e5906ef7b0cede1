"""A link with link-time optimization as a build: what the linker compiles of a program are the modules of a search.

With ``-flto`` that is one module, what the linker merges; with ``-flto=thin`` each back end is one.

The link can only search calls that are left to it, and what is inlined early stays so. So the compile steps inline
nothing, where that alone leaves the image about as large, and the link decides about every call. The plugin does that
in the compile steps, so it is added there as well.
"""

import contextlib
import dataclasses
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.builds.build import CandidatePlugin, Proof
from mlgokit.builds.compilers import clang_for
from mlgokit.builds.corpus import Database, import_database, modules_for_size
from mlgokit.builds.link import (
    Linked,
    LinkPlan,
    link,
    link_words,
    loading_options,
    output_name,
    place_objects,
    plan_link,
)
from mlgokit.builds.measurement import Comparison, LinkedBuild, Measure, Measurement, measure
from mlgokit.builds.recorded import RecordedBuild
from mlgokit.builds.request import BuildRequest
from mlgokit.builds.variant import PluginPlace, cache_key
from mlgokit.compiler.compilation import CompileStatus
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.lto import LinkerCall, compose_back_end, find_linker_call, merge_bitcode
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import NEVER, CompileRequest, Lto, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.build_notes import level_of, profile_sentences
from mlgokit.corpus.importers.build_command import lto_of
from mlgokit.corpus.importers.compile_commands import CompileCommand, read_compile_commands
from mlgokit.corpus.importers.database import lto_by_module, option_counts
from mlgokit.corpus.importers.recorded import RecordedLink
from mlgokit.corpus.staleness import fit_of
from mlgokit.errors import CorpusError, OtherLinkerError, ToolError, UsageError
from mlgokit.files import digest_file, writing
from mlgokit.locks import reading
from mlgokit.manifest import digest_value
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE
from mlgokit.progress import Report
from mlgokit.tables.decisions import DecisionTable

LINK_MODULE = " (link)"
"""Suffix of the names of modules that the linker compiles."""
_FOLDER, _STEPS = "link", "steps"
"""Folders of what is linked, and of the modules of its compile steps, which are others than without the link."""
_IMAGE = "image"
"""The name of the one program that such a link makes."""
_SIZE_LEVELS = {"-Oz", "-Os"}
_BOTH_PLACES = (
    "the first flag is for the compile steps, which defer inlining to the link; the others are for the link; add "
    "all of them"
)
MOST_LARGER = 0.01
"""Largest relative growth of the image, before the search, with which inlining is deferred to the link; a search seldom
recovers more."""
GIVES_UP = 1 / 3
"""Share of the search's time by which an image that deferred inlining made larger must be no larger than the plain one;
otherwise the search starts again without deferring."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompileSteps:
    """The compile steps before a link that is tuned, of modules for size and for one kind of link-time optimization.

    ``plan`` is the user's link, with the positions of their objects in it, which are bitcode.
    """

    compiler: ClangCompiler
    modules: tuple[Module, ...]
    plan: LinkPlan
    lto: Lto
    report: Report

    def compile(self, folder: Path, use: PluginUse) -> dict[str, Path]:
        """Run all compile steps; their objects go to a folder, by module.

        Raises:
            ToolError: a compile step fails.
        """
        # Objects keep their names, by which libraries know them.
        paths = {one.name: folder / str(index) / Path(one.name).name for index, one in enumerate(self.modules)}

        def compile_step(module: Module) -> str:
            path = paths[module.name]
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            done = self.compiler.compile(module, CompileRequest(use=use, lto=self.lto, keep_object=path))
            return "" if done.status is CompileStatus.OK else f"{module.name}: {done.reason}"

        label = "compile steps of the link"
        failed = parallel(compile_step, self.modules, workers=self.compiler, report=self.report, label=label)
        if reason := next((one for one in failed if one), ""):
            raise ToolError(
                f"tune: expected the compile steps before the link to succeed with this clang, found: {reason}; "
                "choose the build's LLVM with --llvm"
            )
        return paths


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LtoBuild:
    """A link that is tuned; a :class:`~mlgokit.builds.build.Build`.

    Attributes:
        modules: the modules that the linker compiles.
        plan: the link command as the user gave it.
        image: path of the image that the link writes without a plugin.
        steps: the compile steps before the link, if they leave inlining to it.
        levels: number of sources by the optimization level of their compile step; a link has none of its own.
    """

    modules: tuple[Module, ...]
    plan: LinkPlan
    image: Path
    measure: Measure
    left_out: dict[str, str]
    steps: CompileSteps | None = None
    notes: tuple[str, ...] = ()
    levels: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def inputs(self) -> dict[str, str]:
        """Digests of the files that a search depends on."""
        return {"what is linked": digest_value({one.name: digest_file(one.bitcode) for one in self.modules})}

    @property
    def plugin_place(self) -> PluginPlace:
        """The link, and the compile steps as well if they leave inlining to it."""
        return "link" if self.steps is None else "both"

    def prove(self, candidate: CandidatePlugin, folder: Path) -> Proof:
        """Run the user's own link with the plugin, and compare its image with the one without.

        Raises:
            ToolError: the link fails, or writes a larger image.
        """
        added = loading_options(self.plan.words, candidate.file, cache=folder / "cache")
        scratch, seconds = folder / "with-plugin", self.measure.timeout_seconds
        if self.steps is None:
            linked = link(self.plan, {}, scratch, timeout_seconds=seconds, added=added)
        else:
            objects = self.steps.compile(scratch / "objects", PluginUse(plugin=candidate.file))
            linked = link(self.steps.plan, objects, scratch, timeout_seconds=seconds, added=added)
        plain, tuned = (_weigh(self.measure, one) for one in (Linked(image=self.image), linked))
        is_size = self.measure.is_size
        if plain.value is None or tuned.value is None or (is_size and tuned.value > plain.value):
            reason = tuned.reason or plain.reason or f"{tuned.value:,.0f} bytes, plain {plain.value:,.0f}"
            raise ToolError(
                f"--link-command: expected the image with {added[0]} to be no larger than the plain one, found "
                f"{reason}; nothing was published"
            )
        change = tuned.value - plain.value
        judged = Comparison(before=plain.value, after=tuned.value, low=change, high=change, pairs=1)
        options = loading_options(self.plan.words, candidate.published, cache=cache_key(candidate.file))
        if self.steps is not None:
            options = [f"-fpass-plugin={candidate.published}", *options]
        return Proof(
            judged=judged if is_size else None,
            flag=" ".join(options),
            notes=() if self.steps is None else (_BOTH_PLACES,),
        )


def _weigh(how: Measure, linked: Linked) -> Measurement:
    """Measure the size of an image that was linked here, whatever judges the builds of a search."""
    failures = {_IMAGE: linked.reason} if linked.reason else {}
    by_size = dataclasses.replace(how, command=())
    return measure(by_size, LinkedBuild(objects={}, images={_IMAGE: linked.image}, failures=failures))


def open_link(
    asked: BuildRequest,
    kinds: Mapping[Lto, int],
    toolchain: Toolchain,
    *,
    stack: contextlib.ExitStack,
    report: Report,
) -> LtoBuild | None:
    """Open the link to tune, after running it once as it is; ``None`` if none with link-time optimization is asked for.

    ``kinds`` is the number of its sources by kind of link-time optimization; ``stack`` holds the lock on the corpus of
    the compile steps.

    Raises:
        CorpusError: no source of the link is compiled for size.
        ToolError: a program cannot be started.
        UsageError: the link fails, or cannot be searched.
    """
    database = asked.database
    if asked.link is None or database is None or not (kinds["full"] or kinds["thin"]):
        return None
    words = link_words(asked.link)
    kind = lto_of(words) or ("full" if kinds["full"] else "thin")
    if "{objects}" in words:
        raise UsageError(
            "--link-command: with -flto, expected the build's own command with paths of objects, found the "
            "placeholder {objects}; build the project and give that command"
        )
    if asked.steps_only:
        raise UsageError(
            f"{asked.steps_only}: works for compile steps only, and this search is of a link with -flto; remove it, or "
            "choose another --objective"
        )
    if (level := database.level) is not None:
        raise UsageError(
            f"--level {level}: not possible with -flto, as the link uses the build's own objects; build with -{level}"
        )
    plan = LinkPlan(words=words, folder=(asked.link_folder or database.folder).resolve(), modules=())
    scratch = asked.scratch.resolve() / _FOLDER
    shutil.rmtree(scratch, ignore_errors=True)
    report(0, 2, "link as the build does")
    real = link(plan, {}, scratch / "real", timeout_seconds=asked.timeout_seconds)
    if real.reason:
        raise UsageError(
            f"--link-command: the command failed: {real.reason}; build the project first, and name the folder of "
            "the command with --link-folder"
        )
    made = _OriginalLink(
        asked=asked,
        database=database,
        name=output_name(asked.link) or "program",
        toolchain=toolchain,
        plan=plan,
        kinds=kinds,
        image=real.image,
        linked=real.image,
    )
    # What cannot be searched is refused before anything is compiled.
    _ = made.call
    found = None
    if kinds["full"] and kind == "full":
        found = _merged_link(_defer_inlining(made, "full", scratch, stack, report), scratch, report)
    if found is None and kinds["thin"]:
        found = _thin_link(_defer_inlining(made, "thin", scratch, stack, report))
    if found is None:
        return None
    levels = _count_levels(database.path)
    # Options are those of objects that are linked as they are, profiles those of compile steps that are repeated.
    counts = option_counts(database.path, project=database.project).of_objects
    steps = () if found.steps is None else found.steps.modules
    profiles = profile_sentences([fit for one in steps if (fit := fit_of(one)) is not None])
    return dataclasses.replace(found, notes=(*counts.sentences(), *profiles), levels=levels)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OriginalLink:
    """The user's link, which was run once before the search.

    Attributes:
        name: name of the file that the link writes.
        plan: the link that is searched.
        kinds: number of sources by kind of link-time optimization.
        image: path of the image that the user's own link wrote.
        linked: path of the image that ``plan`` wrote.
        steps: the compile steps, if they leave inlining to the link.
        objects: paths of the objects that these steps made, by module.
        bar: bytes of the user's own image, which a result may not exceed, if ``steps`` are given.
    """

    asked: BuildRequest
    database: Database
    name: str
    toolchain: Toolchain
    plan: LinkPlan
    kinds: Mapping[Lto, int]
    image: Path
    linked: Path
    steps: CompileSteps | None = None
    objects: Mapping[str, Path] = field(default_factory=dict[str, Path])
    bar: float | None = None

    @property
    def call(self) -> LinkerCall:
        return _linker_call(self.plan.words, self.plan.folder, self.toolchain, self.asked.timeout_seconds)

    def measure(self, plan: LinkPlan, modules: tuple[str, ...], *, is_lto: bool) -> Measure:
        return Measure(
            plans={_IMAGE: plan},
            command=self.asked.measuring,
            modules=modules,
            timeout_seconds=self.asked.timeout_seconds,
            error=self.asked.error,
            is_lto=is_lto,
            bar=self.bar,
            compressor=self.asked.compressor,
        )


def _defer_inlining(
    made: _OriginalLink, lto: Lto, scratch: Path, stack: contextlib.ExitStack, report: Report
) -> _OriginalLink:
    """Replace the link's compile steps by ones that inline nothing, unless that makes the image much larger."""
    steps = _open_steps(made, lto, stack, report)
    if steps is None:
        return made
    scratch = scratch / "deferred"
    how = made.measure(steps.plan, (), is_lto=False)
    report(0, 1, "compile without inlining, and link")
    objects = steps.compile(scratch / "objects", PluginUse(policies={INLINE_SIZE.name: NEVER}))
    found = link(steps.plan, objects, scratch / "real", timeout_seconds=how.timeout_seconds)
    plain, deferred = (_weigh(how, one).value for one in (Linked(image=made.image), found))
    if plain is None or deferred is None or deferred > (1 + MOST_LARGER) * plain:
        note = "the compile steps are unchanged: deferring inlining to the link would start from a much larger image"
        report(1, 1, note)
        return made
    words = place_objects(steps.plan, objects, scratch / "libraries", timeout_seconds=how.timeout_seconds)
    if isinstance(words, str):
        raise ToolError(
            f"tune: expected llvm-ar to archive the compiled objects into the link's static libraries, found: "
            f"{words}; choose another LLVM with --llvm"
        )
    bar = None if how.command else plain
    plan = dataclasses.replace(made.plan, words=tuple(words))
    return dataclasses.replace(made, plan=plan, linked=found.image, steps=steps, objects=objects, bar=bar)


def _open_steps(made: _OriginalLink, lto: Lto, stack: contextlib.ExitStack, report: Report) -> CompileSteps | None:
    """Open the compile steps of a link; ``None`` if the link has none of their objects, or they must not be changed.

    ``stack`` holds the lock on the corpus; only steps with the kind ``lto`` of optimization may be changed.
    """
    request, database, toolchain = made.asked, made.database, made.toolchain
    if not request.may_defer:
        return None
    if lost := option_counts(database.path, project=database.project).lost_by_links:
        note = (
            f"the compile steps are unchanged, because the build has {next(iter(lost))}, which modules are "
            "compiled without"
        )
        report(1, 1, note)
        return None
    corpus = import_database(
        dataclasses.replace(database, level=None),
        request.scratch / _STEPS,
        toolchain=toolchain,
        compiler=request.compiler,
        for_link=True,
        go_on=request.go_on,
        report=report,
    )
    stack.enter_context(reading(corpus))
    kinds = lto_by_module(database.path, project=database.project)
    outputs = database.outputs()
    modules = {
        module.name: module
        for module in modules_for_size(corpus, None).modules
        if kinds.get(module.name) == lto and module.name in outputs
    }
    try:
        plan = plan_link(
            made.plan.words, folder=made.plan.folder, outputs=outputs, modules=tuple(modules), toolchain=toolchain
        )
    except UsageError:
        # The link is of other objects than those that the database knows.
        return None
    return CompileSteps(
        compiler=clang_for(request.compiler, toolchain, build_plugin(toolchain), corpus=None, folder=request.scratch),
        modules=tuple(modules[name] for name in plan.modules),
        plan=plan,
        lto=lto,
        report=report,
    )


def _merged_link(made: _OriginalLink, scratch: Path, report: Report) -> LtoBuild | None:
    """Make the build of a link with full LTO, whose merged bitcode is its one module; ``None`` if nothing is merged."""
    report(1, 2, "link once more, and keep what is merged")
    call = made.call
    merged = merge_bitcode(call, scratch / "merged", timeout_seconds=made.asked.timeout_seconds)
    if merged.reason:
        raise UsageError(
            "--link-command: expected the linker to succeed when it is called without the driver, found: "
            f"{merged.reason}; give the call of ld.lld itself"
        )
    if merged.bitcode is None:
        return None
    name = f"{made.name}{LINK_MODULE}"
    language = "c++" if "++" in Path(made.plan.words[0]).name else "c"
    left_out: dict[str, str] = {}
    if count := made.kinds[""] + made.kinds["thin"]:
        left_out["objects without -flto"] = (
            f"{count} of {sum(made.kinds.values())} sources are compiled without it, and stay as the build has them"
        )
    if made.linked.read_bytes() != merged.image.read_bytes():
        left_out["the linker alone"] = (
            "its image differs from that of the whole link command, so only the command's own image shows the gain"
        )
    return LtoBuild(
        modules=(_module(made, name, merged.bitcode, call.words, language),),
        plan=made.plan,
        image=made.image,
        measure=made.measure(made.plan, (name,), is_lto=True),
        left_out=left_out,
        steps=made.steps,
    )


def _thin_link(made: _OriginalLink) -> LtoBuild:
    """Make the build of a ThinLTO link, with one module for the back end of each object of the build that is linked."""
    database = made.database
    kinds = lto_by_module(database.path, project=database.project)
    built = database.outputs() | dict(made.objects)
    found = {name: path for name, path in built.items() if kinds.get(name) == "thin"}
    outputs = {f"{name}{LINK_MODULE}": path for name, path in found.items()}
    plan = plan_link(
        made.plan.words, folder=made.plan.folder, outputs=outputs, modules=tuple(outputs), toolchain=made.toolchain
    )
    spelled = {name: plan.words[place] for place, name in plan.objects.items()}
    for place, members in plan.libraries.items():
        # lld's name of a library's member, which its offset follows.
        spelled |= {name: f"{plan.words[place]}({Path(one.name).name} at " for one, name in members if name}
    left_out: dict[str, str] = {}
    if made.kinds[""] + made.kinds["full"]:
        left_out["objects without -flto=thin"] = "they stay as the build has them"
    modules: list[Module] = []
    call = made.call
    for name in plan.modules:
        others = [one for one, text in spelled.items() if one != name and spelled[name] in text]
        if others:
            raise UsageError(
                f"--link-command: the path {spelled[name]} is part of {spelled[others[0]]}, so that lld cannot "
                "compile only one of them; link objects by absolute paths"
            )
        language = "c" if Path(name.removesuffix(LINK_MODULE)).stem.endswith(".c") else "c++"
        modules.append(_module(made, name, outputs[name], compose_back_end(call, spelled[name]), language))
    return LtoBuild(
        modules=tuple(modules),
        plan=made.plan,
        image=made.image,
        measure=made.measure(plan, plan.modules, is_lto=False),
        left_out=left_out,
        steps=made.steps,
    )


def _count_levels(database: Path) -> Counter[str]:
    """Count the sources of a build by optimization level; refuse one none of whose sources is compiled for size."""
    commands = read_compile_commands(database)
    levels = Counter(level_of(one.arguments) for one in commands if isinstance(one, CompileCommand))
    if _SIZE_LEVELS.isdisjoint(levels):
        raise CorpusError(
            f"{database}: expected sources compiled with -Oz or -Os, found none; only then do functions have the "
            "attributes minsize or optsize in the link, so compile for size first"
        )
    return levels


def _module(made: _OriginalLink, name: str, bitcode: Path, words: tuple[str, ...], language: str) -> Module:
    """Make a module of a link, or of one of its ThinLTO back ends; ``words`` are the linker's."""
    return Module(
        name=name,
        project=made.asked.project or made.plan.folder.name,
        language=language,
        bitcode=bitcode,
        command_line=words,
        bitcode_bytes=bitcode.stat().st_size,
        bitcode_sha256=digest_file(bitcode),
        link_folder=made.plan.folder,
        defers=made.steps is not None,
    )


def check_steps(plugin: Path, decisions: DecisionTable | None) -> None:
    """Refuse a plugin that was tuned for a link, since none of its decisions applies to compile steps.

    Raises:
        UsageError: the plugin was tuned for a link.
    """
    names = () if decisions is None or decisions.summary is None else decisions.summary.modules
    links = [name for name in names if name.endswith(LINK_MODULE)]
    if links or (decisions is not None and any(entry.at_link for entry in decisions.entries)):
        raise UsageError(
            f"{plugin}: expected a plugin that was tuned for compile steps, found one for {(*links, 'a link')[0]}; "
            f"`mlgokit tune --start {plugin.name} --budget 0s` with that link says what it saves in today's code"
        )


# --- Whether a recorded build is tuned by its link --------------------------------------------------------------------


def searchable_link(recorded: RecordedBuild, toolchain: Toolchain, *, timeout_seconds: float) -> RecordedLink | str:
    """Find the one link that makes the image of a recorded build with link-time optimization.

    Returns:
        The link, or the reason why none can be searched.

    Raises:
        CorpusError: the compilation database is malformed.
        ToolError: a link cannot be started.
        OtherLinkerError: a program with ``-flto`` is linked by another linker than lld, which loads no plugin.
    """
    try:
        links = [recorded.links[path] for path in recorded.programs().values()]
        for link in links:
            words = link_words(link.command)
            if len(links) == 1 or lto_of(words):
                # Only lld of this LLVM loads the plugin.
                _linker_call(words, link.folder, toolchain, timeout_seconds, f"--build: {link.output.name}")
        return recorded.link()
    except OtherLinkerError:
        raise
    except UsageError as error:
        return str(error)


def _linker_call(
    words: Sequence[str], folder: Path, toolchain: Toolchain, timeout_seconds: float, option: str = "--link-command"
) -> LinkerCall:
    shown = [word.replace("{output}", "image") for word in words]
    return find_linker_call(shown, folder, toolchain=toolchain, timeout_seconds=timeout_seconds, option=option)


def link_note(kinds: Mapping[Lto, int]) -> str:
    """Write a sentence on a build whose link is searched although the user did not ask for it."""
    count = kinds["full"] + kinds["thin"]
    return (
        f"{count} of {sum(kinds.values())} sources are built with -flto, so the link of the program is searched, as by "
        "--objective linked"
    )


def describe_ignored_lto(kinds: Mapping[Lto, int], *, is_recorded: bool, reason: str = "") -> dict[str, str]:
    """Describe what tuning a build with ``-flto`` by its compile steps alone means, by option; empty for other builds.

    ``reason`` says why the link is not searched, if it might have been.
    """
    count = kinds["full"] + kinds["thin"]
    if not count:
        return {}
    remedy = "give --objective linked and the --link-command to search the link itself"
    if is_recorded:
        remedy = "a program that becomes larger than without the plugin is refused"
    return {
        "-flto=thin" if kinds["thin"] > kinds["full"] else "-flto": (
            f"{count} of {sum(kinds.values())} sources are built with -flto but tuned without it, so the "
            f"plugin fits a build without -flto and may make this one larger; {remedy}"
            f"{f'; the link is not searched: {reason}' if reason else ''}"
        )
    }
