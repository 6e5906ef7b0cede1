"""Today's code compiled plainly and with a plugin that was tuned on an earlier state of it."""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.compile import CompileResult, CompileStatus, PluginUse, compile_module
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.reuse.trials import read_tried, request_bytes
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.module import Module
from mlgokit.progress import Report

WORTH_KEEPING = 0.8
"""Share of the promised saving below which it is time to tune again."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BuildPair:
    """A module compiled both ways.

    Attributes:
        plain: without the plugin.
        tuned: with it.
        sizes: of the plain object and of the other.
        functions: keys of all functions that came to the register allocator, by name, if they were asked for.
        objects: the plain object and the other, if they were to be kept.
    """

    plain: CompileResult
    tuned: CompileResult
    sizes: tuple[ObjectSizes, ObjectSizes]
    functions: Mapping[str, int]
    objects: tuple[Path, Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPairConfig:
    """How everything is compiled twice.

    Attributes:
        toolchain: with which compiler.
        use: the plugin.
        lists: whether the functions are asked for.
        regalloc: whether costs of register allocation are read.
        objects: where objects are kept, if they are.
        workers: compilers that run at once.
        timeout_seconds: deadline of one compilation.
    """

    toolchain: Toolchain
    use: PluginUse
    lists: bool = True
    regalloc: bool = False
    objects: Path | None = None
    workers: int
    timeout_seconds: float


def compile_pairs(
    modules: Sequence[Module], config: BuildPairConfig, *, report: Report
) -> tuple[dict[str, BuildPair], dict[str, str]]:
    """The modules that compile both ways, by name; of the others the reason."""
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="mlgokit-check-") as scratch:
        # Without trials, what comes of it is the list of all functions.
        trials = Path(scratch) / "trials"
        trials.write_bytes(request_bytes((), seconds=0.0))

        def compile_one(place: tuple[int, Module]) -> BuildPair | None:
            index, module = place
            listed = Path(scratch) / f"{index}.tried"
            lists = dataclasses.replace(config.use, trials=trials, tried=listed) if config.lists else config.use
            folder = config.objects or Path(scratch)
            objects = (folder / f"{index}.plain", folder / f"{index}.tuned")
            results: list[CompileResult] = []
            sizes: list[ObjectSizes] = []
            for use, path in zip((None, lists), objects, strict=True):
                result = compile_module(
                    config.toolchain,
                    module.command_line,
                    module.bitcode,
                    use=use,
                    keep_object=None if config.objects is None else path,
                    regalloc=config.regalloc,
                    timeout_seconds=config.timeout_seconds,
                    thinlto_index=module.thinlto_index,
                )
                if result.status is not CompileStatus.OK or result.sizes is None:
                    how = "plainly" if use is None else "with the plugin"
                    failures[module.name] = f"{how}: {result.status.value}: {result.reason}"
                    return None
                results.append(result)
                sizes.append(result.sizes)
            functions = {one.name: one.key for one in read_tried(listed)} if listed.exists() else dict[str, int]()
            return BuildPair(
                plain=results[0],
                tuned=results[1],
                sizes=(sizes[0], sizes[1]),
                functions=functions,
                objects=objects,
            )

        found = parallel(
            compile_one, list(enumerate(modules)), workers=config.workers, report=report,
            label="compile plainly and tuned",
        )  # fmt: skip
    return {module.name: one for module, one in zip(modules, found, strict=True) if one is not None}, failures
