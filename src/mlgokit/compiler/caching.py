"""A compiler that remembers: what was compiled once is read from a store, so an interrupted run repeats nothing.

A compilation is keyed by all that decides its outcome.
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.request import HEURISTIC, PLAIN, Compiler, CompileRequest, PluginUse
from mlgokit.compiler.store import load_compilation, save_compilation
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.files import digest_file
from mlgokit.module import Module
from mlgokit.problems import INLINE_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class CachingCompiler:
    """Another compiler's records, kept in a store.

    Kept are plain compilations, and those in which the compiler's own plugin lets one policy decide and logs its
    decisions; whatever else is asked for goes to the other compiler each time, as does a request for the object.

    Attributes:
        compiler: who compiles what the store does not have.
        store: folder of finished compilations.
        identity: digest of compiler and plugin, as far as they change an outcome; filled by :func:`open_caching`.
        plain_identity: the same of the compiler alone.
    """

    compiler: Compiler
    store: Path
    identity: str
    plain_identity: str

    @property
    def toolchain(self) -> Toolchain:
        """Whose clang it is."""
        return self.compiler.toolchain

    @property
    def plugin(self) -> Path | None:
        """The plugin of a use that names none."""
        return self.compiler.plugin

    @property
    def workers(self) -> int:
        """How many compilations are best made at once."""
        return self.compiler.workers

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Recall a compilation, or make it.

        A missed deadline, a kill, or a limit that was met is not remembered: the machine may have been busy, and the
        next run may allow more. Nor is a failure under the heuristic or without the plugin, as everything is measured
        against that.

        A compilation that explored comes without the keys of its call sites, unless its log is kept: they do not
        compress, and nobody explores around it.

        Raises:
            StorageError: the disk is full or not writable.
            ToolError: the compiler cannot be started.
        """
        use = request.use
        if not _is_kept(request):
            return self.compiler.compile(module, request)
        key = _digest(self._facts(module, request))
        path = self.store / key[:2] / f"{key}.npz"
        explored = use is not None and use.explores
        baseline = use is None or (not explored and set(use.policies.values()) == {HEURISTIC})
        known = load_compilation(path, problem=INLINE_SIZE.name if use is None else use.logs[0])
        if known is not None and not (baseline and not known.ok):
            lost = known.decision_count > 0 and any(not log.exists() for log in request.keep_logs.values())
            # Older versions kept no sites.
            lacks_sites = known.ok and not explored and len(known.decisions) > 0 and known.decisions.site is None
            if not lost and not lacks_sites:
                return known
        done = self.compiler.compile(module, request)
        stored = done
        if explored:
            stored = dataclasses.replace(done, decisions=dataclasses.replace(done.decisions, site=None))
            done = done if done.logs else stored
        # Bitcode that is not what the key says may be mended: the next run shall try again.
        intact = module.bitcode_sha256 is None or module.bitcode_sha256 == digest_file(module.bitcode)
        limited = done.status in {CompileStatus.TIMED_OUT, CompileStatus.LIMITED}
        passing = limited or done.killed or (baseline and not done.ok)
        if not passing and intact:
            save_compilation(path, stored)
        return done

    def close(self) -> None:
        """End compilers that stay."""
        self.compiler.close()

    def _facts(self, module: Module, request: CompileRequest) -> list[object]:
        """All that decides the outcome; other entries are only there where they matter, so old stores stay valid."""
        content = module.bitcode_sha256 or digest_file(module.bitcode)
        content += "" if module.thinlto_index is None else digest_file(module.thinlto_index)
        use = request.use
        if use is None:
            return ["baseline", self.plain_identity, content, module.command_line, request.regalloc]
        ((problem, policy),) = use.policies.items()
        facts: list[object] = [
            self.identity, content, module.command_line,
            policy if policy.startswith(":") else digest_file(Path(policy)),
            use.seed, use.temperature, use.flip_probability, request.keep,
        ]  # fmt: skip
        facts += [problem, request.regalloc] if problem != INLINE_SIZE.name or request.regalloc else []
        facts += [hashlib.sha256(use.decisions).hexdigest()] if use.decisions else []
        facts += [] if request.flips is None else [hashlib.sha256(request.flips.tobytes()).hexdigest()]
        return facts


def _is_kept(request: CompileRequest) -> bool:
    """Whether the store keeps such compilations: what it keys is all that decides the outcome."""
    use = request.use
    if request.keep_object is not None:
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
    )
    return len(use.policies) == 1 and use == keyed


def open_caching(compiler: Compiler, store: Path) -> CachingCompiler:
    """Remember in ``store`` what ``compiler`` makes."""
    toolchain = compiler.toolchain
    plain = [toolchain.version_text or toolchain.version, toolchain.target]
    plugin = [] if compiler.plugin is None else [digest_file(compiler.plugin)]
    return CachingCompiler(
        compiler=compiler, store=store, identity=_digest([*plain, *plugin]), plain_identity=_digest(plain)
    )


def _digest(facts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
