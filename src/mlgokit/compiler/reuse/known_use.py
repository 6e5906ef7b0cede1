"""Compilation with cached function and object sizes, and the fallback without them."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler.compilation import Compilation, CompileStatus, PassChanges
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.reuse.known import MOST_KNOWN_OF_ALL, Code, Codes, KnownFunctions, read_functions
from mlgokit.compiler.reuse.known_decisions import KnownDecisions, KnownObjects
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE

_LIMITED = {CompileStatus.TIMED_OUT, CompileStatus.LIMITED}
_FUNCTIONS = "functions"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """The cached sizes that one compilation may use.

    Attributes:
        functions: the module's cache of function sizes; ``None`` for none.
        codes: snapshot of that cache, by digest of a function's IR.
        objects: the module's cached object sizes by decisions; ``None`` for none.
    """

    functions: KnownFunctions | None = None
    codes: Codes = field(default_factory=dict[bytes, Code])
    objects: KnownObjects | None = None

    def settings(self, folder: Path) -> dict[str, str]:
        """Write the known digests into ``folder``, and return the plugin's environment variables."""
        variables: dict[str, str] = {}
        if self.functions is not None:
            variables |= self.functions.settings(folder, folder / _FUNCTIONS, self.codes)
        if self.objects is not None:
            variables |= self.objects.settings(folder)
        return variables

    def complete(
        self, folder: Path, output: Path, *, measure: Callable[[Path], ObjectSizes | None]
    ) -> ObjectSizes | None:
        """Compute the sizes of the whole object from the part that was written, if any.

        Args:
            folder: folder of the plugin's output.
            output: path of the object.
            measure: measures an object from which nothing is missing.

        Returns:
            ``None`` if they cannot be computed.
        """
        if self.functions is None:
            part = functools.partial(measure, output)
        else:
            part = functools.partial(self.functions.complete, output, folder / _FUNCTIONS, known=self.codes)
        return part() if self.objects is None else self.objects.complete(folder, part)

    def add_executed(self, changes: PassChanges, folder: Path) -> PassChanges:
        """Add the executed instructions of skipped functions to a list of passes."""
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
    """Select the cached sizes of a module that a request may use.

    Args:
        functions: caches of function sizes by module; ``None`` for no cache.
        decided: cache of the objects of all modules; ``None`` for no cache.
        module: the module that is compiled.
        request: the request to compile it.
        content: digest under which results are reused; empty if the request allows no reuse.
    """
    use = request.use
    if not content or use is None or request.keep_object is not None:
        return NOTHING
    # Known functions are recognized by their IR, in which other allocations and skipped passes do not show.
    if use.trials is not None or use.allocations or use.passes or use.policies.keys() - {INLINE_SIZE.name}:
        return NOTHING
    known = None if functions is None else _functions_of(functions, module, content)
    return Known(
        functions=known,
        codes={} if known is None else known.snapshot(),
        objects=decided.of(content) if decided is not None and _only_decides(module, request) else None,
    )


def _functions_of(memory: dict[str, KnownFunctions], module: Module, content: str) -> KnownFunctions:
    """Return the cache of a module for this content; one for other content is replaced, and the oldest are evicted."""
    known = memory.pop(module.name, None) or KnownFunctions(content=content)
    if (known.content or content) != content:
        known = KnownFunctions(content=content)
    known.content = content
    # The modules used least recently come first; other threads may change the cache meanwhile.
    memory[module.name] = known
    count = sum(len(one.codes) for one in list(memory.values()))
    for name in list(memory)[:-1]:
        if count <= MOST_KNOWN_OF_ALL:
            break
        evicted = memory.pop(name, None)
        count -= 0 if evicted is None else len(evicted.codes)
    return known


def _only_decides(module: Module, request: CompileRequest) -> bool:
    """Whether the result of a request depends only on the decisions of the inliner's advisor.

    Other results are produced after the inliner, or need changes to the optimizer after it.
    """
    use = request.use
    if use is None or module.link_folder is not None or module.thinlto_index is not None:
        return False
    if request.regalloc or request.lto or use.optimizer_passes or use.list_changes or use.replay_lines is not None:
        return False
    return {*use.policies, *use.logs} == {INLINE_SIZE.name}


def compile_with_reuse(known: Known, compile_part: Callable[[Known], Compilation]) -> Compilation:
    """Compile with cached sizes, and again without them if that fails or does not fit.

    Args:
        known: the cached sizes.
        compile_part: compiles the module without the functions whose sizes it is given.
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
