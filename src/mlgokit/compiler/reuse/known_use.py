"""Reuse of what is known of a module in one compilation, and the fallback where that fails."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler.compilation import Compilation, CompileStatus, PassChanges
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.reuse.known import Code, Codes, KnownFunctions, read_functions
from mlgokit.compiler.reuse.known_decisions import KnownDecisions, KnownObjects
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE

_LIMITED = {CompileStatus.TIMED_OUT, CompileStatus.LIMITED}
_FUNCTIONS = "functions"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """What is known of a module when its compilation begins, and is not made again.

    Attributes:
        functions: the memory of its functions; ``None`` for no such memory.
        codes: what of them is known.
        objects: its objects by what was decided; ``None`` for no such memory.
    """

    functions: KnownFunctions | None = None
    codes: Codes = field(default_factory=dict[bytes, Code])
    objects: KnownObjects | None = None

    def settings(self, folder: Path) -> dict[str, str]:
        """The variables that tell the plugin; files are in ``folder``."""
        variables: dict[str, str] = {}
        if self.functions is not None:
            variables |= self.functions.settings(folder, folder / _FUNCTIONS, self.codes)
        if self.objects is not None:
            variables |= self.objects.settings(folder)
        return variables

    def complete(
        self, folder: Path, output: Path, *, measure: Callable[[Path], ObjectSizes | None]
    ) -> ObjectSizes | None:
        """The sizes of the whole object, of which there may be a part, or nothing.

        Args:
            folder: where the plugin wrote.
            output: where the object is, if there is one.
            measure: reads an object of which nothing is missing.

        Returns:
            ``None`` if that cannot be said.
        """
        if self.functions is None:
            part = functools.partial(measure, output)
        else:
            part = functools.partial(self.functions.complete, output, folder / _FUNCTIONS, known=self.codes)
        return part() if self.objects is None else self.objects.complete(folder, part)

    def with_executed(self, changes: PassChanges, folder: Path) -> PassChanges:
        """A list of passes with what the functions execute that were not generated again."""
        if not self.codes:
            return changes
        dropped = (listed for listed in read_functions(folder / _FUNCTIONS) if listed.dropped)
        known = {listed.name: self.codes[listed.digest].executed for listed in dropped if listed.digest in self.codes}
        return dataclasses.replace(changes, executed={**known, **changes.executed})


NOTHING = Known()


def select_known(
    functions: dict[str, KnownFunctions] | None,
    decided: KnownDecisions | None,
    module: Module,
    request: CompileRequest,
    content: str,
) -> Known:
    """What is known of a module, as far as a request may use it.

    Args:
        functions: by module; ``None`` remembers none.
        decided: objects of all modules; ``None`` remembers none.
        module: what is compiled.
        request: what is asked.
        content: digest of all that is reused goes by; empty if the request reuses nothing.
    """
    use = request.use
    if not content or use is None or request.keep_object is not None:
        return NOTHING
    # Known functions go by their IR, which says nothing of other allocations, and of passes that do not run.
    if use.trials is not None or use.allocations or use.passes or use.policies.keys() - {INLINE_SIZE.name}:
        return NOTHING
    known = None if functions is None else _functions_of(functions, module, content)
    return Known(
        functions=known,
        codes={} if known is None else known.snapshot(),
        objects=decided.of(content) if decided is not None and _only_decides(module, request) else None,
    )


def _functions_of(memory: dict[str, KnownFunctions], module: Module, content: str) -> KnownFunctions:
    known = memory.setdefault(module.name, KnownFunctions(content=content))
    if (known.content or content) != content:
        known = memory[module.name] = KnownFunctions(content=content)
    known.content = content
    return known


def _only_decides(module: Module, request: CompileRequest) -> bool:
    """Whether the answers of the inliner's advisor are all that decides what is wanted of a compilation.

    What is wanted besides is made behind the inliner, or changes what the optimizer does from there on.
    """
    use = request.use
    if use is None or module.link_folder is not None or module.thinlto_index is not None:
        return False
    if request.regalloc or request.lto or use.optimizer_passes or use.list_changes or use.replay_lines is not None:
        return False
    return {*use.policies, *use.logs} == {INLINE_SIZE.name}


def compile_with_reuse(known: Known, compile_part: Callable[[Known], Compilation]) -> Compilation:
    """Compile without what is known, and once more with it if that fails or is not what it should be.

    Args:
        known: what is known.
        compile_part: compiles without that.
    """
    functions = known.functions
    if functions is not None and functions.refused:
        functions, known = None, dataclasses.replace(known, functions=None)
    if functions is None and known.objects is None:
        return compile_part(NOTHING)
    part = compile_part(known)
    is_refused = functions is not None and functions.refused != ""
    if part.status in _LIMITED or (part.status is CompileStatus.OK and not is_refused):
        return part
    if functions is not None:
        functions.refused = functions.refused or part.reason
    again = compile_part(NOTHING)
    return dataclasses.replace(again, user_seconds=part.user_seconds + again.user_seconds)
