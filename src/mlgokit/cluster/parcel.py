"""The messages for a compilation on a worker: the request with digests of its files, and the reply."""

import dataclasses
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import ClangCompiler, plugin_of
from mlgokit.compiler.inputs import has_hidden_inputs, named_files
from mlgokit.compiler.limits import PlainCosts
from mlgokit.compiler.loaded import Loaded
from mlgokit.compiler.recheck import Recheck
from mlgokit.compiler.request import CompileRequest
from mlgokit.files import digest_cached
from mlgokit.manifest import package_version
from mlgokit.module import Module

Place = Callable[[str, str], Path]
"""A function that returns the path on a worker of the file with a digest and a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Requirements on a worker, and settings that all compilations of a run share.

    Attributes:
        mlgokit: version of this package.
        python: version of Python, major and minor, between which values are pickled.
        major: LLVM's major version.
        clang: the version line that the client's clang prints.
        programs: digests of the client's compiler and of its LLVM libraries, by file name.
        residents: whether workers keep resident compilers.
        known_functions: whether code generation of known functions is skipped.
        known_decisions: whether a compiler exits if it repeats known decisions.
        sandboxed: whether compilers run in a sandbox.
        recheck: draws the compilations with reuse that are repeated without, and compared.
        keep_hot: percentage of profile counts, as in :class:`~mlgokit.compiler.compile.ClangCompiler`.
        memory_bytes: the user's memory limit of each compiler; ``None`` for the default.
        file_bytes: the user's limit on the size of each file that a compiler writes; ``None`` for the default.
    """

    mlgokit: str
    python: str
    major: int
    clang: str
    programs: tuple[tuple[str, str], ...]
    residents: bool
    known_functions: bool
    known_decisions: bool
    sandboxed: bool
    recheck: Recheck
    keep_hot: float
    memory_bytes: int | None
    file_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parcel:
    """A compilation request as it is sent to a worker.

    Attributes:
        setup: requirements and settings of the run.
        module: the module, with paths of the client.
        request: the request, with paths of the client, and with its plugin named.
        files: digests of the files that the compilation reads, by path as the module or request spells it.
        costs: resources of the module's baseline compilation, if they are known.
        deadline: deadline of the compilation in seconds.
    """

    setup: Setup
    module: Module
    request: CompileRequest
    files: Mapping[str, str]
    costs: PlainCosts | None
    deadline: float


NOT_MADE = Compilation(status=CompileStatus.FAILED, reason="the worker did not compile it")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reply:
    """A worker's reply.

    Attributes:
        worker: address of the worker.
        done: the compilation; a failed one if files are missing or the worker refused.
        missing: digests of files that the worker must get first.
        refused: why this worker cannot compile for this run; empty if it can.
        costs: resources of the module's baseline compilation, if this was it.
        object: content of the object file, if it was to be kept.
        logs: contents of the logs to be kept, by problem.
    """

    worker: str = ""
    done: Compilation = NOT_MADE
    missing: tuple[str, ...] = ()
    refused: str = ""
    costs: PlainCosts | None = None
    object: bytes | None = None
    logs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


def programs_of(loaded: Loaded) -> tuple[tuple[str, str], ...]:
    """List names and digests of a compiler's files that affect its output: itself and LLVM's libraries, not libc."""
    named = ((file.path.name, file.sha256) for file in loaded.files)
    return tuple(sorted((name, digest) for name, digest in named if "clang" in name or "LLVM" in name))


def setup_of(compiler: ClangCompiler) -> Setup:
    """Make the requirements on workers that compile as ``compiler`` does."""
    return Setup(
        mlgokit=package_version(),
        python=".".join(platform.python_version_tuple()[:2]),
        major=compiler.toolchain.major,
        clang=compiler.toolchain.version_text or compiler.toolchain.version,
        programs=programs_of(compiler.loaded),
        residents=compiler.residents is not None,
        known_functions=compiler.known is not None,
        known_decisions=compiler.decided is not None,
        sandboxed=compiler.sandbox is not None,
        recheck=compiler.recheck,
        keep_hot=compiler.keep_hot,
        memory_bytes=compiler.limits.memory_bytes,
        file_bytes=compiler.limits.file_bytes,
    )


def is_portable(module: Module) -> bool:
    """Whether a module can be compiled on another machine: not a link, nor with options that read files indirectly."""
    return module.link_folder is None and not has_hidden_inputs(module.command_line)


def pack(compiler: ClangCompiler, setup: Setup, module: Module, request: CompileRequest) -> Parcel:
    """Make the message for a compilation; the plugin that it uses is named explicitly."""
    use = request.use
    # A word without a slash that names a file here is an option that happens to be called so.
    files = {path: digest for path, digest in named_files(module.command_line).items() if "/" in path}
    read = [module.bitcode, *([] if module.thinlto_index is None else [module.thinlto_index])]
    if use is not None:
        plugin = plugin_of(compiler.plugin, use)
        request = dataclasses.replace(request, use=dataclasses.replace(use, plugin=plugin))
        read += [Path(policy) for policy in use.policies.values() if not policy.startswith(":")]
        read += [] if plugin is None else [plugin]
    return Parcel(
        setup=setup,
        module=module,
        request=request,
        files=files | {str(path): digest_cached(path) for path in read},
        costs=compiler.limits.costs_of(module.name),
        deadline=compiler.limits.deadline(module.name, compiler.timeout_seconds, bitcode_bytes=module.bitcode_bytes),
    )


def unpack(parcel: Parcel, place: Place, kept: Path) -> tuple[Module, CompileRequest]:
    """Make the module and the request with a worker's paths.

    Args:
        parcel: the message.
        place: function that returns the path of a file on the worker.
        kept: folder for the object and the logs that the request keeps.
    """
    placed = {path: str(place(digest, Path(path).name)) for path, digest in parcel.files.items()}
    module = parcel.module
    module = dataclasses.replace(
        module,
        bitcode=Path(placed[str(module.bitcode)]),
        thinlto_index=None if module.thinlto_index is None else Path(placed[str(module.thinlto_index)]),
        command_line=tuple(_replace_path(word, placed) for word in module.command_line),
        allowed_options=tuple(
            tuple(_replace_path(word, placed) for word in option) for option in module.allowed_options
        ),
    )
    request = parcel.request
    use = request.use
    if use is not None:
        policies = {problem: placed.get(policy, policy) for problem, policy in use.policies.items()}
        plugin = None if use.plugin is None else Path(placed[str(use.plugin)])
        use = dataclasses.replace(use, plugin=plugin, policies=policies)
    request = dataclasses.replace(
        request,
        use=use,
        keep_object=None if request.keep_object is None else kept / "module.o",
        keep_logs={problem: kept / f"{problem}.log" for problem in request.keep_logs},
    )
    return module, request


def _replace_path(word: str, placed: Mapping[str, str]) -> str:
    """Replace the longest path of ``placed`` that a word of a command line contains by its path on the worker.

    Example:
        >>> _replace_path("-fprofile-instrument-use-path=/p/a.profdata", {"/p/a.profdata": "/w/1", "/p/a": "/w/2"})
        '-fprofile-instrument-use-path=/w/1'
    """
    for path in sorted(placed, key=len, reverse=True):
        if path in word:
            return word.replace(path, placed[path])
    return word
