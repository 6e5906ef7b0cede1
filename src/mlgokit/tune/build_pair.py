"""Today's code compiled plainly and with a plugin that was tuned on an earlier state of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import Compiler, CompileRequest, PluginUse
from mlgokit.compiler.reuse.trials import Stage
from mlgokit.module import Module
from mlgokit.progress import Report


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BuildPair:
    """A module compiled without and with the plugin.

    Attributes:
        plain: the compilation without the plugin.
        tuned: the compilation with the plugin.
        objects: paths of the object without and of the one with the plugin.
        listed: a compilation with the plugin that only lists functions, if there was one.
    """

    plain: Compilation
    tuned: Compilation
    objects: tuple[Path, Path]
    listed: Compilation | None = None

    @property
    def functions(self) -> Mapping[str, int]:
        """Keys of all functions that came to the register allocator, by name, if they were asked for."""
        return self.keys(Stage.REGISTERS)

    def keys(self, stage: Stage) -> Mapping[str, int]:
        """Keys of all functions that came to a stage, by name, if they were asked for."""
        tried = (*self.tuned.tried, *(() if self.listed is None else self.listed.tried))
        return {one.name: one.key for one in tried if one.stage is stage}


def compile_pairs(
    modules: Sequence[Module],
    compiler: Compiler,
    use: PluginUse,
    folder: Path,
    *,
    listing: PluginUse | None = None,
    costs: bool,
    report: Report,
) -> tuple[dict[str, BuildPair], dict[str, str]]:
    """Compile modules without and with the plugin; return the pairs by module, and the reasons for modules that fail.

    Args:
        modules: modules of today's code.
        compiler: compiler of the modules.
        use: the plugin, and what it shall do.
        folder: folder for the objects.
        listing: how the plugin is used once more where functions are listed whose objects must not be measured.
        costs: whether costs of register allocation are read.
        report: called after every module.
    """
    failures: dict[str, str] = {}

    def compile_one(place: tuple[int, Module]) -> BuildPair | None:
        index, module = place
        found: list[Compilation] = []
        objects = folder / f"{index}.plain", folder / f"{index}.tuned"
        for one, path in zip((None, use), objects, strict=True):
            done = compiler.compile(module, CompileRequest(use=one, keep_object=path, regalloc=costs))
            if not done.ok:
                how = "plainly" if one is None else "with the plugin"
                failures[module.name] = f"{how}: {done.status.value}: {done.reason}"
                return None
            found.append(done)
        listed = None if listing is None else compiler.compile(module, CompileRequest(use=listing))
        if listed is not None and not listed.ok:
            failures[module.name] = f"with the plugin, listing functions: {listed.status.value}: {listed.reason}"
            return None
        return BuildPair(plain=found[0], tuned=found[1], objects=objects, listed=listed)

    pairs = parallel(
        compile_one, list(enumerate(modules)), workers=compiler, report=report,
        label="compile plainly and tuned",
    )  # fmt: skip
    return {module.name: one for module, one in zip(modules, pairs, strict=True) if one is not None}, failures
