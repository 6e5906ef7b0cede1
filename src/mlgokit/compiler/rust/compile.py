"""rustc as a compiler of modules: a module is a program's full link-time optimization, std and all crates together.

rustc is called as cargo called it, but for its outputs, and with a linker that only keeps the object. So the code is
made by rustc's own pipeline; the plugin decides in that of the link (``MLGOKIT_PHASE=link``).
"""

import functools
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import failure_of, plugin_of, with_outputs
from mlgokit.compiler.inputs import digest_once, stamp_of
from mlgokit.compiler.limits import TOOL_LIMITS
from mlgokit.compiler.loaded import Loaded, LoadedFile
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.request import PLAIN, CompileRequest
from mlgokit.compiler.rust.record import RustcCall
from mlgokit.compiler.rust.toolchain import Rustc, unstable_options
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.disk import Room
from mlgokit.errors import UsageError
from mlgokit.files import writing
from mlgokit.module import Module

COMPILE_SECONDS = 600.0
_LINKER = """#!/bin/sh
# Stands in for the linker: keeps the objects that rustc made itself.
for w; do case $w in *.rcgu.o) mv -- "$w" "$(mktemp {folder}/made-XXXXXXXX)";; esac; done
"""
_VALUED = {"--emit", "--out-dir", "-o", "--error-format", "--json", "--diagnostic-width"}
_DROPPED_CODEGEN = re.compile(r"(extra-filename|incremental|save-temps)(=.*)?")
_CHANGES = re.compile(r"(MLGOKIT|LLVM(?!_PROFILE_FILE))_.*|RUSTC_BOOTSTRAP|RUSTC_LOG")


@dataclass(frozen=True, slots=True, kw_only=True)
class RustCompiler:
    """The user's rustc, with the plugin where a request uses it.

    Attributes:
        rustc: itself.
        calls: by module, what cargo asked of it.
        toolchain: of the plugin, and of the linker that measures.
        plugin: the plugin of a use that names none.
        workers: how many compilations are best made at once.
        timeout_seconds: deadline of one compilation.
        room: asked before each compilation whether the disk has room; ``None`` for no question.
    """

    rustc: Rustc
    calls: Mapping[str, RustcCall]
    toolchain: Toolchain
    plugin: Path | None = None
    workers: int = 1
    timeout_seconds: float = COMPILE_SECONDS
    room: Room | None = field(default=None)

    @property
    def loaded(self) -> Loaded:
        """The program and its LLVM.

        Raises:
            ToolError: what it loads cannot be read.
        """
        paths = [path.resolve() for path in (self.rustc.program, self.rustc.library) if path is not None]
        files = [LoadedFile(path=path, sha256=digest_once(path), stamp=stamp_of(path)) for path in paths]
        return Loaded(version=self.rustc.version, target="", files=tuple(files))

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Make the object of a program, and measure it.

        Raises:
            StorageError: the compiler found the disk full, or it would be.
            ToolError: the compiler cannot be started.
            UsageError: the request uses a plugin, and there is none; or asks for what only clang gives.
        """
        if request.regalloc or request.lto:
            raise UsageError(f"{module.name}: expected a request that rustc can fulfil; costs are clang's alone")
        if self.room is not None:
            self.room.check()
        call, use = self.calls[module.name], request.use
        with tempfile.TemporaryDirectory(prefix="mlgokit-") as scratch:
            folder = Path(scratch)
            words = [*_without_outputs(call.words), "--emit=link", "--out-dir", scratch]
            words += ["-C", f"linker={_write_linker(call, folder)}"]
            plugin = plugin_of(self.plugin, use)
            settings = {} if use is None else use.environment(folder)
            # What is asked for is meant for the link; a plugin by itself knows what it is for.
            if use is not None and (use.policies or use.explores or use.logs):
                settings["MLGOKIT_PHASE"] = "link"
            done = process.run(
                [*words, *_plugin_words(plugin)],
                timeout_seconds=self.timeout_seconds + request.extra_seconds,
                cwd=call.folder,
                env={**_environment(self.rustc, call, plugin), **settings, "TMPDIR": scratch},
                limits=TOOL_LIMITS,
            )
            output = folder / "program.o"
            failed = failure_of(done, output, self.timeout_seconds + request.extra_seconds)
            if failed is not None:
                return failed
            ended = Compilation(status=CompileStatus.OK, user_seconds=done.user_seconds, wall_seconds=done.wall_seconds)
            made = sorted(folder.glob("made-*"))
            if len(made) != 1:
                return Compilation(
                    status=CompileStatus.BAD_OBJECT,
                    reason=f"expected one object of the link-time optimization, found {len(made)}; set codegen-units=1",
                )
            made[0].rename(output)
            ended = with_outputs(ended, functools.partial(measure_object, output), request, folder, None)
            if request.keep_object is not None:
                with writing(request.keep_object):
                    shutil.move(output, request.keep_object)
            return ended

    def close(self) -> None:
        """Nothing stays."""


def link_program(compiler: RustCompiler, module: Module, output: Path, *, plugin: Path | None) -> str:
    """Make the program itself, as cargo does but for the place and the plugin; gives why that failed, or nothing.

    Raises:
        ToolError: the compiler cannot be started.
    """
    call = compiler.calls[module.name]
    output.parent.mkdir(parents=True, exist_ok=True)
    words = [*_without_outputs(call.words), f"--emit=link={output}", *_plugin_words(plugin)]
    done = process.run(
        words,
        timeout_seconds=compiler.timeout_seconds,
        cwd=call.folder,
        env=_environment(compiler.rustc, call, plugin),
        limits=TOOL_LIMITS,
    )
    failed = failure_of(done, output, compiler.timeout_seconds)
    return "" if failed is None else f"{failed.status.value}: {failed.reason}"


def _plugin_words(plugin: Path | None) -> list[str]:
    return [] if plugin is None else [f"-Zllvm-plugins={plugin.absolute()}"]


def _environment(rustc: Rustc, call: RustcCall, plugin: Path | None) -> dict[str, str]:
    """What cargo gave, without what changes rustc or the plugin."""
    kept = {name: value for name, value in call.environment.items() if not _CHANGES.fullmatch(name)}
    return {**kept, **({} if plugin is None else unstable_options(rustc.version, call.crate))}


def _without_outputs(words: Sequence[str]) -> list[str]:
    """A call without what names its outputs and its messages' form.

    Example:
        >>> _without_outputs(["rustc", "--emit=dep-info,link", "--out-dir", "/x", "-C", "extra-filename=-1", "a.rs"])
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
    """A linker that keeps the object; rustc tells from its name how to talk to it."""
    path = folder / "linker" / Path(call.codegen("linker") or "cc").name
    path.parent.mkdir()
    path.write_text(_LINKER.format(folder=shlex.quote(os.fspath(folder))))
    path.chmod(0o755)
    return path
