"""How a compilation comes to leave out functions that are known, and what is done where that fails."""

import dataclasses
from collections.abc import Callable

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.request import CompileRequest
from mlgokit.compiler.reuse.known import KnownFunctions
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE

_LIMITED = {CompileStatus.TIMED_OUT, CompileStatus.LIMITED}


def known_of(
    memory: dict[str, KnownFunctions] | None, module: Module, request: CompileRequest, content: str
) -> KnownFunctions | None:
    """The memory of a module's functions that a request may use; ``None`` for none.

    Args:
        memory: by module; ``None`` remembers nothing.
        module: what is compiled.
        request: what is asked.
        content: digest of all that the functions go by; empty if the request reuses nothing.
    """
    use = request.use
    if memory is None or not content or use is None or request.keep_object is not None:
        return None
    # Known functions go by their IR, which says nothing of other allocations, and of passes that do not run.
    if use.trials is not None or use.allocations or use.passes or use.policies.keys() - {INLINE_SIZE.name}:
        return None
    known = memory.setdefault(module.name, KnownFunctions(content=content))
    if (known.content or content) != content:
        known = memory[module.name] = KnownFunctions(content=content)
    known.content = content
    return known


def without_known(
    known: KnownFunctions | None, compile_part: Callable[[KnownFunctions | None], Compilation]
) -> Compilation:
    """Compile without the functions that are known, and once more with them if that fails or is not what it should be.

    Args:
        known: what is known; ``None`` for nothing.
        compile_part: compiles without them.
    """
    if known is None or known.refused:
        return compile_part(None)
    part = compile_part(known)
    if part.status in _LIMITED or (part.status is CompileStatus.OK and not known.refused):
        return part
    known.refused = known.refused or part.reason
    again = compile_part(None)
    return dataclasses.replace(again, user_seconds=part.user_seconds + again.user_seconds)
