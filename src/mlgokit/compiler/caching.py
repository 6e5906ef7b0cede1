"""A compiler with a cache on disk, so that an interrupted run repeats no compilation.

The key covers everything that affects the outcome.
"""

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.arrays import MOST_BYTES
from mlgokit.compiler.compilation import Compilation
from mlgokit.compiler.inputs import has_hidden_inputs, module_facts
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.recheck import NO_RECHECK, Recheck, difference, stale_error
from mlgokit.compiler.request import HEURISTIC, PLAIN, Compiler, CompileRequest, InFront, PluginUse
from mlgokit.compiler.shared_store import SharedStore
from mlgokit.compiler.store import decode_compilation, load_compilation, save_compilation
from mlgokit.files import atomic_write, digest_cached
from mlgokit.manifest import digest_value
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE

KEY_VERSION = 3
"""Version of keys and records; each has a folder of its own, so that no record is taken for one of another version."""
FOLDER = f"version-{KEY_VERSION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachingCompiler(InFront):
    """Caches another compiler's records in a store.

    It caches compilations without the plugin, and those in which one policy decides in the compiler's own plugin and
    is logged. All other requests, and requests for the object itself, are compiled each time.

    Attributes:
        compiler: compiles on a cache miss.
        store: folder of finished compilations.
        loaded: digests of that compiler's program and libraries; filled by :func:`open_caching`.
        recheck: draws the cache hits that are compiled again.
        shared: a store shared with other machines, read on a miss in ``store``, and written to; ``None`` for none.
    """

    compiler: Compiler
    store: Path
    loaded: Loaded
    recheck: Recheck = NO_RECHECK
    shared: SharedStore | None = None

    @property
    def identity(self) -> str:
        """Digest of compiler and plugin, by content."""
        plugin = self.compiler.plugin
        return digest_value([KEY_VERSION, self.loaded.facts, None if plugin is None else digest_cached(plugin)])

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Read a compilation from the cache, or compile.

        A timeout, a kill or an exceeded limit is not cached: the machine may have been busy, and the next run may have
        other limits. Nor is a failure of a baseline, against which everything is measured.

        A compilation with exploration is cached without the keys of its call sites, unless its log is kept: they do
        not compress, and no exploration starts from it.

        Raises:
            InputError: the cached record takes more memory than a compilation may.
            StaleError: the cached record differs from the compiler's result, which has replaced it.
            StorageError: the disk is full or not writable.
            ToolError: the compiler cannot be started, or was replaced since the store was opened.
        """
        key = self._key(module, request)
        if key is None:
            return self.compiler.compile(module, request)
        use = request.use
        digest = digest_value(key)
        name = f"{FOLDER}/{digest[:2]}/{digest}.npz"
        explored = use is not None and use.explores
        baseline = use is None or (not explored and set(use.policies.values()) == {HEURISTIC})
        known = self._load(name, problem=INLINE_SIZE.name if use is None else use.logs[0])
        if known is not None and baseline and not known.ok:
            known = None
        is_incomplete = known is None or (
            known.decision_count > 0 and any(not log.exists() for log in request.keep_logs.values())
        )
        if known is not None and not is_incomplete and not self.recheck.draws(digest):
            return known
        done = self.compiler.compile(module, request)
        self.loaded.check()
        stored = done
        if explored:
            stored = dataclasses.replace(done, decisions=dataclasses.replace(done.decisions, site=None))
            done = done if done.logs else stored
        if known is not None and not is_incomplete and done.was_ended:
            return known
        # An input that changed while the compiler ran has another key now.
        if done.was_ended or (baseline and not done.ok and known is None) or self._key(module, request) != key:
            return done
        mismatch = "" if known is None else difference(known, stored)
        if baseline and not done.ok:
            self._save(name, None)
        elif known is None or mismatch:
            self._save(name, stored)
        if mismatch:
            raise stale_error(
                module.name,
                mismatch,
                memory=f"the store {self.store}",
                key=key,
                remedy="use another store, and report this sentence; in this one other results may be old too",
            )
        # Times differ from run to run, and a check changes no result.
        return done if known is None or is_incomplete else known

    def _load(self, name: str, *, problem: str) -> Compilation | None:
        """Read a record from our own store, or else from the shared one."""
        path = self.store / name
        if self.shared is None or path.exists():
            return load_compilation(path, problem=problem)
        data = self.shared.fetch(name, most_bytes=MOST_BYTES)
        if data is None:
            return None
        stored = decode_compilation(data, problem=problem, where=f"{self.shared.url}/{name}")
        if stored is not None:
            atomic_write(path, data)
        return stored

    def _save(self, name: str, done: Compilation | None) -> None:
        """Write a compilation to both stores, or remove it from both."""
        path = self.store / name
        if done is None:
            path.unlink(missing_ok=True)
            if self.shared is not None:
                self.shared.remove(name)
            return
        if save_compilation(path, done) and self.shared is not None:
            self.shared.put(name, path)

    def _key(self, module: Module, request: CompileRequest) -> dict[str, object] | None:
        """Make the fields of the cache key; ``None`` if not all inputs are known, so that nothing is cached."""
        if not _is_cached(request) or request.lto or has_hidden_inputs(module.command_line):
            return None
        key: dict[str, object] = {"version": KEY_VERSION, "compiler": self.loaded.facts, "regalloc": request.regalloc}
        use, plugin = request.use, self.compiler.plugin
        try:
            key |= module_facts(module)
            if use is None:
                return key
            ((problem, policy),) = use.policies.items()
            key |= {"plugin": None if plugin is None else digest_cached(plugin), "problem": problem}
            key |= {"policy": policy if policy.startswith(":") else digest_cached(Path(policy))}
        except OSError:
            # A file is missing; the compiler will report which.
            return None
        if use.decides_at_any_level(module):
            key["any_level"] = 2 if use.any_growth else True
        key |= {"seed": use.seed, "temperature": use.temperature, "flip_probability": use.flip_probability}
        key |= {"keep": request.keep, "decisions": hashlib.sha256(use.decisions).hexdigest() if use.decisions else None}
        flips = None if request.flips is None else hashlib.sha256(request.flips.tobytes()).hexdigest()
        return key | {"flips": flips}


def _is_cached(request: CompileRequest) -> bool:
    """Whether a request is cached: only if the key covers everything that affects its outcome."""
    use = request.use
    if request.keep_object is not None or request.references:
        return False
    if use is None:
        return True
    keyed = PluginUse(
        policies=use.policies,
        logs=tuple(use.policies),
        seed=use.seed,
        temperature=use.temperature,
        flip_probability=use.flip_probability,
        decisions=use.decisions,
        any_level=use.any_level,
        any_growth=use.any_growth,
    )
    return len(use.policies) == 1 and use == keyed


def open_caching(
    compiler: Compiler, store: Path, *, recheck: Recheck = NO_RECHECK, shared: SharedStore | None = None
) -> CachingCompiler:
    """Open a cache in ``store`` for ``compiler``.

    Args:
        compiler: compiles on a cache miss.
        store: folder of finished compilations.
        recheck: draws the cache hits that are compiled again.
        shared: a store shared with other machines; ``None`` for none.
    """
    return CachingCompiler(compiler=compiler, store=store, loaded=compiler.loaded, recheck=recheck, shared=shared)


def older_results(store: Path) -> int:
    """Count the results of other mlgokit versions in a store, which are not read."""
    return sum(1 for path in store.rglob("*.npz") if FOLDER not in path.relative_to(store).parts)
