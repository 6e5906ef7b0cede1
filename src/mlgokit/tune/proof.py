"""Everything of a project compiled with an artifact, for what that is worth."""

import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler.compile import CompileResult, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.objects.link import LinkedImage, LinkStatus, link_image, link_roots
from mlgokit.compiler.objects.measure import ObjectSizes, project_image_estimate
from mlgokit.compiler.pool import parallel
from mlgokit.progress import Report
from mlgokit.tune.judge import Judge, prove
from mlgokit.tune.measurement import Comparison
from mlgokit.tune.project import Search
from mlgokit.tune.search import ModuleState

PLAIN, DECIDED, ALLOCATED = "plain", "decided", "allocated"
"""What everything is compiled with: nothing, the decisions alone, and these with the allocations."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VerifiedBuild:
    """All modules compiled with one artifact.

    Attributes:
        objects: by module.
        sizes: those of the modules that compile.
    """

    objects: Mapping[str, Path]
    sizes: Mapping[str, ObjectSizes]


@dataclass(slots=True, kw_only=True, eq=False)
class Verifier:
    """How the results of one search are proved, and what was compiled for it so far.

    Attributes:
        search: the search.
        folder: for objects and images.
        policy: who decides where the tables of the artifact do not; LLVM without one.
        workers: compilers that run at once.
        report: told after every module.
        judge: who says of the whole; the account and a link without one.
        proofs: all modules, by what they were compiled with last: :data:`PLAIN`, :data:`DECIDED`, :data:`ALLOCATED`.
    """

    search: Search
    folder: Path
    policy: Path | None
    workers: int
    report: Report
    judge: Judge | None = None
    proofs: dict[str, VerifiedBuild] = field(default_factory=dict[str, VerifiedBuild])

    def inside(self, decisions: Path) -> dict[str, Path]:
        """What a plugin with the decision table holds, by kind."""
        return {"decisions": decisions} | ({} if self.policy is None else {"inline-size": self.policy})


@contextmanager
def open_verifier(
    search: Search, *, policy: Path | None, workers: int, report: Report, judge: Judge | None = None
) -> Generator[Verifier]:
    """Prove in a folder beside the search's files, which goes at the end."""
    folder = search.folder.resolve() / "proof"
    try:
        yield Verifier(search=search, folder=folder, policy=policy, workers=workers, report=report, judge=judge)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compile_all(proving: Verifier, name: str, plugin: Path | None) -> VerifiedBuild:
    """Compile every module with a plugin, or plainly, and keep that under the name."""
    search, folder = proving.search, proving.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    paths = {module: folder / f"{index}.o" for index, module in enumerate(search.modules)}

    def compile_one(one: ModuleState) -> CompileResult:
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
    modules = list(search.modules.values())
    results = parallel(compile_one, modules, workers=proving.workers, report=proving.report, label=label)
    sizes = {
        module: result.sizes
        for module, result in zip(search.modules, results, strict=True)
        if result.status is CompileStatus.OK and result.sizes is not None
    }
    proving.proofs[name] = VerifiedBuild(objects=paths, sizes=sizes)
    return proving.proofs[name]


def total_bytes(search: Search, proof: VerifiedBuild) -> float:
    """The project's account: every COMDAT signature once."""
    objects = (proof.sizes[name] for name in search.modules if name in proof.sizes)
    return project_image_estimate(objects, objective=search.config.objective)


def link_proof(proving: Verifier, name: str) -> LinkedImage | None:
    """Link the objects with --gc-sections; ``None`` without a linker."""
    lld, plain, proof = proving.search.bench.toolchain.lld, proving.proofs[PLAIN], proving.proofs[name]
    if lld is None:
        return None
    roots = link_roots(plain.objects[module] for module in plain.sizes)
    objects = [proof.objects[module] for module in proving.search.modules if module in proof.sizes]
    return link_image(objects, proving.folder / f"{name}.image", roots=roots, lld=lld, timeout_seconds=120)


def judge_proof(proving: Verifier, name: str, *, any_changed: bool) -> Comparison | None:
    """The plain build and that one by the user's measure; ``None`` without a judge."""
    judge = proving.judge
    if judge is None:
        return None
    if not any_changed:
        return Comparison(before=judge.plain_value, after=judge.plain_value)
    pair = (proving.proofs[PLAIN], proving.proofs[name])
    first, second = ({module: proof.objects[module] for module in proof.sizes} for proof in pair)
    return prove(judge, first, second, proving.folder)


def grew(before: LinkedImage | None, after: LinkedImage | None) -> bool:
    """Whether both could be linked, and the second is larger."""
    linked = before is not None and after is not None and before.status is after.status is LinkStatus.LINKED
    return linked and after.image > before.image  # pyright: ignore[reportOptionalMemberAccess]
