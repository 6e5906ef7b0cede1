"""Everything of a project compiled with an artifact, for what that is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.collect import Report, parallel
from mlgokit.compiler.compile import CompileResult, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.link import LinkedImage, LinkStatus, link_image
from mlgokit.compiler.measure import ObjectSizes, project_image_estimate
from mlgokit.tune.judge import Judge, prove
from mlgokit.tune.meter import Comparison
from mlgokit.tune.project import Search
from mlgokit.tune.search import Searched


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proof:
    """All modules compiled with one artifact.

    Attributes:
        objects: by module.
        sizes: those of the modules that compile.
    """

    objects: Mapping[str, Path]
    sizes: Mapping[str, ObjectSizes]


def compile_all(search: Search, folder: Path, plugin: Path | None, *, workers: int, report: Report) -> Proof:
    """Compile every module with a plugin, or plainly; the objects are put into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{index}.o" for index, name in enumerate(search.modules)}

    def compile_one(one: Searched) -> CompileResult:
        return compile_module(
            search.bench.toolchain,
            one.module.command_line,
            one.module.bitcode,
            use=None if plugin is None else PluginUse(plugin=plugin.resolve()),
            keep_object=paths[one.module.name],
            timeout_seconds=search.bench.timeout_seconds,
            thinlto_index=one.module.thinlto_index,
        )

    label = "compile everything plainly" if plugin is None else "compile everything with the result"
    results = parallel(compile_one, list(search.modules.values()), workers=workers, report=report, label=label)
    sizes = {
        name: result.sizes
        for name, result in zip(search.modules, results, strict=True)
        if result.status is CompileStatus.OK and result.sizes is not None
    }
    return Proof(objects=paths, sizes=sizes)


def total_bytes(search: Search, proof: Proof) -> float:
    """The project's account: every COMDAT signature once."""
    objects = (proof.sizes[name] for name in search.modules if name in proof.sizes)
    return project_image_estimate(objects, objective=search.config.objective)


def link_proof(proof: Proof, roots: Sequence[str], output: Path, search: Search) -> LinkedImage | None:
    """Link the objects with --gc-sections; ``None`` without a linker."""
    lld = search.bench.toolchain.lld
    objects = [proof.objects[name] for name in search.modules if name in proof.sizes]
    return None if lld is None else link_image(objects, output, roots=roots, lld=lld, timeout_seconds=120)


def judge_proof(
    judge: Judge | None, before: Proof, after: Proof, scratch: Path, *, any_changed: bool
) -> Comparison | None:
    """The plain build and the tuned one by the user's measure; ``None`` without a judge."""
    if judge is None:
        return None
    if not any_changed:
        return Comparison(before=judge.plain_value, after=judge.plain_value)
    first, second = ({name: proof.objects[name] for name in proof.sizes} for proof in (before, after))
    return prove(judge, first, second, scratch)


def grew(before: LinkedImage | None, after: LinkedImage | None) -> bool:
    """Whether both could be linked, and the second is larger."""
    linked = before is not None and after is not None and before.status is after.status is LinkStatus.LINKED
    return linked and after.image > before.image  # pyright: ignore[reportOptionalMemberAccess]
