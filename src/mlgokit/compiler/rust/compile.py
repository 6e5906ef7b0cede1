"""rustc as a compiler of modules: a module is a program's full link-time optimization, std and all crates together.

rustc is called as cargo called it, but for its outputs, and with a linker that only keeps the object. So the code is
made by rustc's own pipeline; the plugin decides in that of the link (``MLGOKIT_PHASE=link``). A rustc can stay where
that comes to the inliner (``plugin/reuse/Resident.cpp``): a copy of the one thread that is there goes on from it.
"""

import contextlib
import dataclasses
import functools
import os
import re
import shlex
import shutil
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import plugin_of, request_large_pages
from mlgokit.compiler.inputs import module_facts
from mlgokit.compiler.limits import TOOL_LIMITS
from mlgokit.compiler.loaded import Loaded, LoadedFile
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.outcome import describe_end, first_error, read_outputs
from mlgokit.compiler.request import PLAIN, CompileRequest
from mlgokit.compiler.reuse.known import KnownFunctions
from mlgokit.compiler.reuse.known_use import NOTHING, Known, compile_with_reuse, select_known
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.rust.record import RustcCall
from mlgokit.compiler.rust.toolchain import Rustc, unstable_options
from mlgokit.compiler.rust.wrapper import codegen_options
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.disk import Room
from mlgokit.errors import UsageError
from mlgokit.files import digest_cached, stamp_of, writing
from mlgokit.manifest import digest_value
from mlgokit.module import Module

COMPILE_SECONDS = 600.0
_MADE, _STATIC = "made-", "staticlib"
_LINKER = """#!/bin/sh
# Stands in for the linker: keeps the objects that rustc made itself.
for w; do case $w in *.rcgu.o) mv -- "$w" "$(mktemp {folder}/{made}XXXXXXXX)";; esac; done
"""
_VALUED = {"--emit", "--out-dir", "-o", "--error-format", "--json", "--diagnostic-width"}
_DROPPED_CODEGEN = re.compile(r"(extra-filename|incremental|save-temps)(=.*)?")
_LAYOUT = re.compile(r"(llvm-args|code-model|instrument-coverage|profile-generate|profile-use|passes)(=.*)?")
"""Options under which the code of functions may depend on others, or is laid out in other ways."""
_CHANGES = re.compile(r"(MLGOKIT|LLVM(?!_PROFILE_FILE))_.*|RUSTC_LOG")


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class OutputFolders:
    """Output folders of resident compilers, which are reused. Threads may share it.

    They are removed by :meth:`close`, and with the object.

    Attributes:
        idle: folders that are not in use, by module.
        parent: temporary folder of all of them; made when the first is requested.
    """

    idle: dict[str, list[Path]] = field(default_factory=dict[str, list[Path]])
    parent: tempfile.TemporaryDirectory[str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def take_folder(self, module: str) -> Generator[Path]:
        """Take a folder for one compilation, and return it afterwards."""
        with self._lock:
            if self.parent is None:
                self.parent = tempfile.TemporaryDirectory(prefix="mlgokit-rustc-", ignore_cleanup_errors=True)
            parent = self.parent
            folders = self.idle.setdefault(module, [])
            folder = folders.pop() if folders else Path(tempfile.mkdtemp(dir=parent.name))
        try:
            yield folder
        finally:
            with self._lock:
                # Closed in the meantime, it is gone.
                if self.parent is parent:
                    self.idle.setdefault(module, []).append(folder)

    def close(self) -> None:
        """Remove all folders; later compilations get new ones."""
        with self._lock:
            self.idle.clear()
            if self.parent is not None:
                self.parent.cleanup()
            self.parent = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RustCompiler:
    """The user's rustc, with the plugin where a request uses it.

    Attributes:
        rustc: the compiler.
        calls: cargo's call of rustc for each module.
        toolchain: the LLVM of the plugin, and of the linker that measures.
        plugin: the plugin of requests that name none.
        workers: best number of simultaneous compilations.
        timeout_seconds: deadline of one compilation.
        room: checks for free disk space before each compilation; ``None`` for no check.
        residents: resident rustcs, which wait where the link-time optimization comes to the inliner; a compilation that
            fails in one is repeated without it.
        known: cached functions by module, whose code generation is skipped; sizes still are those of the whole object.
        output_folders: folders that resident rustcs write to.
    """

    rustc: Rustc
    calls: Mapping[str, RustcCall]
    toolchain: Toolchain
    plugin: Path | None = None
    workers: int = 1
    timeout_seconds: float = COMPILE_SECONDS
    room: Room | None = field(default=None)
    residents: Residents | None = None
    known: dict[str, KnownFunctions] | None = None
    output_folders: OutputFolders = field(default_factory=OutputFolders)

    @property
    def loaded(self) -> Loaded:
        """Digests of rustc and its LLVM."""
        paths = [path.resolve() for path in (self.rustc.program, self.rustc.library) if path is not None]
        files = [LoadedFile(path=path, sha256=digest_cached(path), stamp=stamp_of(path)) for path in paths]
        return Loaded(version=self.rustc.version, target="", files=tuple(files))

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Compile the object of a program, and measure it.

        Raises:
            StorageError: the compiler found the disk full, or it would be.
            ToolError: the compiler cannot be started.
            UsageError: the request uses a plugin, and there is none; or it asks for costs or bitcode, which only clang
                gives.
        """
        if request.regalloc or request.lto:
            raise UsageError(
                f"{module.name}: expected a request that rustc can fulfil, found one for costs of register allocation "
                "or for bitcode; only clang gives these"
            )
        if self.room is not None:
            self.room.check()
        content = _content_to_reuse(self, module, request)
        needs_all_functions = any(
            _LAYOUT.fullmatch(option) for option in codegen_options(self.calls[module.name].words)
        )
        known = NOTHING if needs_all_functions else select_known(self.known, None, module, request, content)
        return compile_with_reuse(known, functools.partial(_compile, self, module, request, content))

    def close(self) -> None:
        """End the resident compilers; a later compilation starts new ones."""
        if self.residents is not None:
            self.residents.close()
        self.output_folders.close()


def _content_to_reuse(compiler: RustCompiler, module: Module, request: CompileRequest) -> str:
    """Digest everything that a resident and cached functions depend on; empty if the request reuses nothing."""
    use = request.use
    plugin = plugin_of(compiler.plugin, use)
    # Trials use a resident in any case: their results are the same, and rustc's front end takes longer than most.
    wanted = request.reuse or (use is not None and use.trials is not None)
    if not wanted or plugin is None or (compiler.known is None and compiler.residents is None):
        return ""
    return digest_value([module_facts(module), digest_cached(plugin)])


def _compile(
    compiler: RustCompiler, module: Module, request: CompileRequest, content: str, known: Known
) -> Compilation:
    """Compile once, in a resident rustc if there is one, and make the record."""
    use, call = request.use, compiler.calls[module.name]
    plugin = plugin_of(compiler.plugin, use)
    deadline = compiler.timeout_seconds + request.extra_seconds
    with tempfile.TemporaryDirectory(prefix="mlgokit-") as scratch:
        folder = Path(scratch)
        settings = {"TMPDIR": scratch} | ({} if use is None else use.environment(folder))
        # Policies that are named here are for the link-time optimization; a plugin's own know what they are for.
        if use is not None and (use.policies or use.explores or use.logs):
            settings["MLGOKIT_PHASE"] = "link"
        settings |= known.settings(folder)
        environment = _environment(compiler.rustc, call, plugin)
        output = folder / "program.o"
        done = None
        if content:
            done = _run_resident(
                compiler,
                module,
                folder,
                plugin=plugin,
                content=content,
                environment=environment,
                request=settings,
                timeout_seconds=deadline,
            )
        if done is None:
            done = process.run(
                _words_for_object(call, folder, plugin),
                timeout_seconds=deadline,
                cwd=call.folder,
                env=environment | settings,
                limits=TOOL_LIMITS,
            )
        made = _objects_in(folder)
        ended = describe_end(done, output, deadline)
        if ended.status is not CompileStatus.OK:
            return ended
        if len(made) != 1:
            return dataclasses.replace(
                ended,
                status=CompileStatus.BAD_OBJECT,
                reason=f"expected one object of the link-time optimization, found {len(made)}; set codegen-units=1",
            )
        made[0].rename(output)
        ended = read_outputs(ended, known, request, folder=folder, output=output, record=None, measure=measure_object)
        if request.keep_object is not None:
            with writing(request.keep_object):
                shutil.move(output, request.keep_object)
        return ended


def _run_resident(
    compiler: RustCompiler,
    module: Module,
    folder: Path,
    *,
    plugin: Path | None,
    content: str,
    environment: Mapping[str, str],
    request: Mapping[str, str],
    timeout_seconds: float,
) -> process.Completed | None:
    """Let a resident rustc compile into a folder; ``None`` if there is none and a new rustc must do it."""
    residents, call = compiler.residents, compiler.calls[module.name]
    if residents is None:
        return None
    with compiler.output_folders.take_folder(module.name) as work_folder:
        argv = _words_for_object(call, work_folder, plugin)
        for left in _objects_in(work_folder):
            left.unlink()
        done = residents.run(
            argv,
            content=content,
            environment={**environment, "MLGOKIT_RESIDENT": "worker", "TMPDIR": str(work_folder)},
            request=request,
            output=folder / "said",
            timeout_seconds=timeout_seconds,
            limits=TOOL_LIMITS,
            cwd=call.folder,
        )
        made = _objects_in(work_folder)
        # The forked copy, which has only one of rustc's threads, exits with 0 whatever happened.
        if done is not None and not done.timed_out and (done.returncode != 0 or not made):
            residents.decline(argv, f"a compilation failed: {first_error(done.stderr)}")
            return None
        for path in made:
            path.rename(folder / path.name)
        return done


def _words_for_object(call: RustcCall, folder: Path, plugin: Path | None) -> list[str]:
    """Compose the command line that leaves the program's object in a folder."""
    # A static library is made without a linker.
    kind = f"obj={folder / _MADE}" if call.kind == _STATIC else "link"
    words = [*_drop_outputs(call.words), f"--emit={kind}", "--out-dir", str(folder)]
    return [*words, "-C", f"linker={_write_linker(call, folder)}", *plugin_words(plugin)]


def _objects_in(folder: Path) -> list[Path]:
    """List the objects that rustc made: kept by the script in place of the linker, or left by a resident's fork."""
    return sorted([*folder.glob(f"{_MADE}*"), *folder.glob("*.rcgu.o")])


def link_program(compiler: RustCompiler, module: Module, output: Path, *, plugin: Path | None) -> str:
    """Link the program as cargo does, but to another path and with the plugin; return an error, or an empty string.

    Args:
        compiler: compiler with cargo's call for the program.
        module: the program as a module.
        output: where the program goes.
        plugin: the plugin to load; ``None`` for none.

    Raises:
        StorageError: the folder of the program cannot be made.
        ToolError: the compiler cannot be started.
    """
    call = compiler.calls[module.name]
    with writing(output.parent):
        output.parent.mkdir(parents=True, exist_ok=True)
    emitted = f"link={output},obj={weighed_file(call, output)}" if call.kind == _STATIC else f"link={output}"
    words = [*_drop_outputs(call.words), f"--emit={emitted}", *plugin_words(plugin)]
    done = process.run(
        words,
        timeout_seconds=compiler.timeout_seconds,
        cwd=call.folder,
        env=_environment(compiler.rustc, call, plugin),
        limits=TOOL_LIMITS,
    )
    ended = describe_end(done, output, compiler.timeout_seconds)
    return "" if ended.status is CompileStatus.OK else f"{ended.status.value}: {ended.reason}"


def weighed_file(call: RustcCall, output: Path) -> Path:
    """The file whose size is that of a program: of a static library its own object, as the others are those of crates.

    ``output`` is the program that :func:`link_program` makes.
    """
    return output.with_suffix(".o") if call.kind == _STATIC else output


def plugin_words(plugin: Path | None) -> list[str]:
    """Make the options with which rustc loads a plugin, if there is one."""
    return [] if plugin is None else [f"-Zllvm-plugins={plugin.absolute()}"]


def _environment(rustc: Rustc, call: RustcCall, plugin: Path | None) -> dict[str, str]:
    """Make the environment of cargo's call, without variables that change rustc or the plugin."""
    kept = {name: value for name, value in call.environment.items() if not _CHANGES.fullmatch(name)}
    permitted = unstable_options(rustc.version, call.crate, given=call.permitted) if plugin is not None else {}
    return request_large_pages({**kept, **permitted})


def _drop_outputs(words: Sequence[str]) -> list[str]:
    """Remove the options for outputs and for the format of messages from a call.

    Example:
        >>> _drop_outputs(["rustc", "--emit=dep-info,link", "--out-dir", "/x", "-C", "extra-filename=-1", "a.rs"])
        ['rustc', 'a.rs']
    """
    kept: list[str] = []
    position = 0
    while position < len(words):
        word, after = words[position], words[position + 1 : position + 2]
        takes = 2 if word in _VALUED or word in ("-C", "--codegen") else 1
        is_codegen = word in ("-C", "--codegen") and after and _DROPPED_CODEGEN.fullmatch(after[0])
        joined = word.startswith("-C") and _DROPPED_CODEGEN.fullmatch(word[2:])
        if not (word in _VALUED or word.partition("=")[0] in _VALUED or is_codegen or joined):
            kept += words[position : position + takes]
        position += takes
    return kept


def _write_linker(call: RustcCall, folder: Path) -> Path:
    """Write a script that acts as the linker and keeps the object; rustc derives the linker's flavor from its name."""
    path = folder / "linker" / Path(call.codegen("linker") or "cc").name
    path.parent.mkdir(exist_ok=True)
    path.write_text(_LINKER.format(folder=shlex.quote(os.fspath(folder)), made=_MADE))
    path.chmod(0o755)
    return path
