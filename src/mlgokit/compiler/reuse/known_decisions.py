"""A cache of object sizes by the inliner's decisions, so that a compiler can exit after repeating known decisions.

Behind the inliner the plugin digests all answers of the advisor and, if the digest is known, ends the compiler
(``plugin/reuse/KnownDecisions.cpp``; ``docs/formats.md``, "Known decisions"). A compiler has no clock and no random
number in it, so each question follows from the module, the command line, the plugin and the answers before; two
compilations with the same answers are one.
"""

import dataclasses
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.errors import InputError

MOST_FUNCTIONS = 2_000_000
"""Maximum functions whose sizes are cached, at some 60 bytes each; the least recently used module is evicted."""
_LINE = re.compile(rb"([eg]) ([0-9a-f]{32})\n")


@dataclass(slots=True, kw_only=True, eq=False)
class KnownDecisions:
    """The size cache of all modules. Thread-safe.

    Attributes:
        hits: number of compilations that exited after the inliner.
        misses: number of compilations that went on.
    """

    hits: int = 0
    misses: int = 0
    _sizes: dict[str, dict[bytes, ObjectSizes]] = field(default_factory=dict[str, dict[bytes, ObjectSizes]])
    _functions: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, content: str) -> "KnownObjects":
        """Copy what is cached for a module.

        Args:
            content: digest of the module's files, its command line and the plugin.
        """
        with self._lock:
            sizes = dict(self._sizes.get(content, {}))
        return KnownObjects(memory=self, content=content, sizes=sizes)

    def note(self, content: str, digest: bytes, sizes: ObjectSizes | None, *, ended: bool) -> None:
        """Cache the sizes of an object, ``None`` if it could not be measured, and count a hit or a miss.

        A hit is an object whose compiler ``ended`` after the inliner, because its decisions were known.
        """
        with self._lock:
            self.hits += ended
            self.misses += not ended
            if sizes is None:
                return
            of_module = self._sizes[content] = self._sizes.pop(content, {})
            if digest not in of_module:
                # Objects of one module have their names in common.
                names = tuple(map(sys.intern, sizes.function_names))
                of_module[digest] = dataclasses.replace(sizes, function_names=names)
                self._functions += len(names)
            while self._functions > MOST_FUNCTIONS and len(self._sizes) > 1:
                oldest = self._sizes.pop(next(iter(self._sizes)))
                self._functions -= sum(len(object_sizes.function_names) for object_sizes in oldest.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownObjects:
    """The cached object sizes of one module when its compilation begins.

    Attributes:
        memory: the cache of all modules.
        content: digest of the module's files, its command line and the plugin.
        sizes: sizes of the module's objects by digest of the decisions.
    """

    memory: KnownDecisions
    content: str
    sizes: Mapping[bytes, ObjectSizes]

    def settings(self, folder: Path) -> dict[str, str]:
        """Write the known digests into ``folder``, and return the plugin's environment variables."""
        path = folder / "known_decisions"
        path.write_bytes(b"".join(self.sizes))
        return {"MLGOKIT_KNOWN_DECISIONS": str(path), "MLGOKIT_DECIDED": str(folder / "decided")}

    def complete(self, folder: Path, measure: Callable[[], ObjectSizes | None]) -> ObjectSizes | None:
        """Return the sizes of the object, cached or measured; new ones are cached.

        Args:
            folder: folder of the plugin's output.
            measure: measures the object; called unless the compiler exited after the inliner.

        Raises:
            InputError: the object, or what the plugin wrote, cannot be read.
        """
        path = folder / "decided"
        if not path.exists():
            return measure()
        line = _LINE.fullmatch(path.read_bytes())
        if line is None:
            raise InputError(
                f"{path}: expected a letter and a digest of decisions, found {path.read_bytes()[:60]!r}; build the "
                "plugin again"
            )
        digest, ended = bytes.fromhex(line[2].decode()), line[1] == b"e"
        if ended and digest not in self.sizes:
            known = f"one of the {len(self.sizes)} digests that are known"
            raise InputError(f"{path}: expected {known}, found {line[2].decode()}, which is new; report this as a bug")
        sizes = self.sizes[digest] if ended else measure()
        self.memory.note(self.content, digest, sizes, ended=ended)
        return sizes
