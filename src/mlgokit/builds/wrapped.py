"""A build that is made in a copy of its folder, by its own commands, with its compilers wrapped.

Copies of all variants lie at the same place, one after the other, so that no path differs between them.
"""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.images import WeighedImage, no_image, weigh_image
from mlgokit.builds.variant import Variant, cache_key, plugin_link_option
from mlgokit.compiler.build_tree import BITCODE, copy_sources, find_unseen_objects, is_image, objects_below
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.project_calls import project_calls, shown_path
from mlgokit.compiler.regalloc_cost import RegallocCosts, read_regalloc_costs
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapping import REPEATABLE, AddedOptions, WrappedBuild, WrappedCall, run_wrapped
from mlgokit.corpus.importers.build_command import lto_of
from mlgokit.errors import InputError

TREE = "tree"
"""The copy of the build's folder, beside the wrappers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """A build.

    Attributes:
        commands: words of each, run one after the other in the copy.
        folder: what is copied.
        images: patterns of paths below the folder of images to compare; by default all that the build links.
        timeout_seconds: deadline of one whole build.
    """

    commands: tuple[tuple[str, ...], ...]
    folder: Path
    images: tuple[str, ...] = ()
    timeout_seconds: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBuild:
    """What one build made.

    Attributes:
        reason: why the build failed, else empty.
        modules: by path of the object below the folder.
        images: by path.
        languages: of the sources, counted.
        calls: how many compilations and links there were.
        passed: by path of the object below the folder, the compiler that made it without a wrapper seeing it.
        compiled: the calls that compiled.
        gone: objects that are not there at the end, by path below the folder.
    """

    reason: str
    modules: dict[str, Compilation]
    images: dict[str, WeighedImage]
    languages: Counter[str]
    calls: int
    passed: dict[str, str]
    compiled: tuple[WrappedCall, ...]
    gone: frozenset[str]


def make_variant_of(
    plan: BuildPlan, variant: Variant, folder: Path, *, toolchain: Toolchain, plugin: Path | None, costs: bool
) -> MadeBuild:
    """Make one variant of a build in a copy of its folder, by its own commands, with its compilers wrapped.

    Args:
        plan: the build.
        variant: how it is made.
        folder: which is not there yet; the copy is :data:`TREE` in it.
        toolchain: whose clang takes the place of the build's compilers.
        plugin: the generic one, for a variant that names none.
        costs: whether costs of register allocation are read.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: a command cannot be started.
    """
    tree = folder / TREE
    copy_sources(plan.folder, tree)
    loaded = (variant.use.plugin or plugin) if variant.use is not None else None
    compile_options, link_options = list(variant.options), list(variant.link_options)
    if loaded is not None and variant.compiles_with_plugin:
        compile_options.append(f"-fpass-plugin={loaded.absolute()}")
    cache = ""
    if loaded is not None and variant.links_with_plugin:
        link_options.append(plugin_link_option(loaded))
        cache = cache_key(loaded, variant.record.digests | variant.record.policies)
    before = objects_below(tree)
    build = run_wrapped(
        plan.commands,
        tree=tree,
        folder=folder / "wrappers",
        toolchain=toolchain,
        added=AddedOptions(compile=tuple(compile_options), link=tuple(link_options), record=costs, cache=cache),
        environment=REPEATABLE | (variant.use.environment(folder) if variant.use is not None else {}),
        timeout_seconds=plan.timeout_seconds,
    )
    passed = {
        one.path.relative_to(tree).as_posix(): one.compiler
        for one in find_unseen_objects(tree, build, before=before)
        if one.is_new
    }
    return dataclasses.replace(_read(plan, variant, build, tree), passed=passed)


def _read(plan: BuildPlan, variant: Variant, build: WrappedBuild, tree: Path) -> MadeBuild:
    """Rows of all objects and images that are there, and of what failed, before the tree goes."""
    modules: dict[str, Compilation] = {}
    languages: Counter[str] = Counter()
    gone: set[str] = set()
    links: dict[Path, WrappedCall] = {}
    calls = project_calls(build, tree).calls
    for call in calls:
        if call.kind == "compile":
            languages.update("c" if path.suffix in {".c", ".i"} else "c++" for path in call.inputs)
            for path in call.outputs:
                if path.is_relative_to(tree) and (call.code or path.exists()) and path.suffix != ".s":
                    modules[path.relative_to(tree).as_posix()] = _compilation(call, path)
                elif not path.exists() and path.name != "-":
                    gone.add(shown_path(path, tree))
        else:
            links.update(dict.fromkeys(call.outputs, call))
    lto = next((found for call in build.calls if call.kind == "compile" and (found := lto_of(call.words))), "")
    images: dict[str, WeighedImage] = {}
    for path in _image_paths(plan, links, tree):
        call = links.get(path)
        words = call.words if call is not None else ()
        plugin = call is not None and variant.links_with_plugin
        kind = (lto_of(words) or lto) if "-fno-lto" not in words else ""
        name = path.relative_to(tree).as_posix()
        if call is not None and call.code:
            images[name] = no_image(status="failed", reason=call.reason, plugin=plugin, lto=kind)
        else:
            seconds = call.user_seconds if call is not None else 0.0
            record = call.record if call is not None else None
            images[name] = weigh_image(path, plugin=plugin, lto=kind, user_seconds=seconds, record=record)
    failed = next((call.reason for call in build.calls if call.code and all(path.exists() for path in call.inputs)), "")
    reason = f"{build.reason}: {failed}" if build.reason and failed and failed not in build.reason else build.reason
    return MadeBuild(
        reason=reason,
        modules=modules,
        images=images,
        languages=languages,
        calls=len(build.calls),
        passed={},
        compiled=tuple(call for call in calls if call.kind == "compile"),
        gone=frozenset(gone),
    )


def _image_paths(plan: BuildPlan, links: dict[Path, WrappedCall], tree: Path) -> list[Path]:
    """The images that were asked for, or all programs and shared libraries that the build linked."""
    if plan.images:
        return sorted({path for pattern in plan.images for path in tree.glob(pattern) if path.is_file()})
    return [
        path
        for path, call in links.items()
        if path.is_relative_to(tree) and (call.code or (path.is_file() and is_image(path)))
    ]


def _compilation(call: WrappedCall, path: Path) -> Compilation:
    if call.code:
        status = CompileStatus.CRASHED if call.code < 0 or call.code > 128 else CompileStatus.FAILED
        return Compilation(status=status, reason=call.reason, user_seconds=call.user_seconds)
    done = Compilation(status=CompileStatus.OK, user_seconds=call.user_seconds, wall_seconds=call.wall_seconds)
    with path.open("rb") as file:
        if file.read(4) in BITCODE:
            return done
    try:
        costs: RegallocCosts | None = None
        if call.record is not None and call.record.exists():
            costs = read_regalloc_costs(call.record)
        return dataclasses.replace(done, sizes=measure_object(path), regalloc=costs)
    except InputError as error:
        return Compilation(status=CompileStatus.BAD_OBJECT, reason=str(error), user_seconds=call.user_seconds)
