"""Run a user's build with its compilers replaced by wrappers, which add options and record every call.

Compilers that the build calls by a usual name or by a whole path are replaced by the toolchain's clang, unless the
build keeps its own; ``wrapper_folder.py`` describes how.
"""

import dataclasses
import itertools
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mlgokit.compiler import process
from mlgokit.compiler.driver_call import COMPILER
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.regalloc_cost import link_record_options, record_options
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.compiler.wrapper_folder import open_wrappers, wrapper_variables
from mlgokit.errors import InputError
from mlgokit.files import atomic_write, writing

_SETTINGS, _LOG = "settings.json", "log"
_KINDS = ("compile", "link", "both")
_DAMAGE = (OSError, ValueError, KeyError, TypeError, RecursionError)

_RECORD = [word for option in record_options(Path("{record}")) for word in ("-Xclang", option)]
"""Past the driver, whose own option for this gives other objects, with lines of the source."""

REPEATABLE = {"SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", "0")}
"""Variables for reproducible builds, which ``__DATE__`` must not make different."""


Content = tuple[int, int]
"""Content of a file: size and CRC-32."""
FileState = tuple[int, int, int]
"""State of a file: inode, size, and time of the last change; zeros if it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """The preprocessed text of a source that was compiled.

    Attributes:
        text: path of the text, compressed by zlib; ``None`` if there is none.
        reason: why there is no text; empty if there is.
        language: language of the text, as in ``-x``.
        is_piped: whether the source was read from standard input or another pipe.
        files: states of the source and the files that it includes when it was compiled, without the system's headers
            and pipes.
    """

    text: Path | None
    reason: str
    language: str
    is_piped: bool
    files: Mapping[Path, FileState]

    @property
    def changed(self) -> tuple[Path, ...]:
        """The files that have been changed or deleted since."""
        return tuple(path for path, state in self.files.items() if file_state(path) != state)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedCall:
    """A call of a compiler in a build.

    Attributes:
        kind: ``compile``, ``link``, or ``both`` in one call; in :attr:`WrappedBuild.others` also ``other`` (assembly,
            say), ``foreign`` for a compiler for another machine, and ``unread`` if its response files could not be
            read.
        name: name by which the compiler was called.
        program: path of the compiler that ran.
        folder: working directory of the call.
        words: words of the call with response files expanded, without those that were added.
        inputs: absolute paths of the inputs.
        sources: absolute paths of the inputs that are compiled.
        languages: language of each source, as ``-x`` names it.
        outputs: absolute paths of the outputs.
        contents: size and checksum of each output of a compilation when it was made; ``None`` if it is no file.
        texts: the preprocessed text of each source; empty unless sources are to be kept.
        code: exit code; negative for a signal.
        errors: the end of standard error, if the call failed; or why response files could not be read.
        user_seconds: processor time.
        wall_seconds: elapsed time.
        record: path of the record of register allocation, if one was asked for.
        lto_linker: the linker that does link-time optimization in this call, ``lld`` or ``other``; empty for none.
    """

    kind: str
    name: str
    program: Path
    folder: Path
    words: tuple[str, ...]
    inputs: tuple[Path, ...]
    sources: tuple[Path, ...]
    languages: tuple[str, ...]
    outputs: tuple[Path, ...]
    contents: tuple[Content | None, ...]
    texts: tuple[SourceText, ...]
    code: int
    errors: str
    user_seconds: float
    wall_seconds: float
    record: Path | None
    lto_linker: str

    @property
    def reason(self) -> str:
        """The first error of a call that failed; empty otherwise."""
        return first_error(self.errors) if self.code else ""

    @property
    def target(self) -> str:
        """The last triple of ``-target`` or ``--target=``, else that in the compiler's name (``arm-none-eabi-gcc``)."""
        options = [
            value if word == "-target" else word.removeprefix("--target=")
            for word, value in itertools.pairwise((*self.words, ""))
            if word == "-target" or word.startswith("--target=")
        ]
        if options:
            return options[-1]
        compiler = re.fullmatch(COMPILER, self.name)
        return (compiler["target"] or "").removesuffix("-") if compiler is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedProgram:
    """A call of rustc that makes a program or a shared library.

    Attributes:
        crate: name of the crate.
        kind: crate type, such as ``bin``.
        reason: why it cannot have a plugin; empty if it has one, where calls of rustc are to have it.
    """

    crate: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedBuild:
    """The result of a build.

    Attributes:
        reason: why it failed; empty for success.
        code: exit code of the command that failed; negative for a signal or the deadline.
        every_call: all calls of compilers, in the order in which they started.
        wall_seconds: elapsed time.
        programs: calls of rustc that make programs.
    """

    reason: str
    code: int
    every_call: tuple[WrappedCall, ...]
    wall_seconds: float
    programs: tuple[WrappedProgram, ...] = ()

    @property
    def calls(self) -> tuple[WrappedCall, ...]:
        """Compilations and links."""
        return tuple(call for call in self.every_call if call.kind in _KINDS)

    @property
    def others(self) -> tuple[WrappedCall, ...]:
        """Calls of compilers that neither compile nor link."""
        return tuple(call for call in self.every_call if call.kind not in _KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedOptions:
    """Words that are appended to calls of compilers.

    Attributes:
        compile: words for compilations of C or C++.
        link: words for links.
        lto_link: words for links by lld with link-time optimization.
        rustc: words for calls of rustc that make a program by full link-time optimization for size.
        record: whether compilations, and links by lld with link-time optimization, write records of register
            allocation.
        cache: digest of compiler and plugin; a ThinLTO link that names a cache gets one for this digest. Empty to use
            the cache that it names.
    """

    compile: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    lto_link: tuple[str, ...] = ()
    rustc: tuple[str, ...] = ()
    record: bool = False
    cache: str = ""


def run_wrapped(
    commands: Sequence[Sequence[str]],
    *,
    tree: Path,
    folder: Path,
    toolchain: Toolchain,
    added: AddedOptions,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float,
    output: IO[bytes] | int | None = None,
    keeps_compilers: bool = False,
    keeps_sources: bool = False,
) -> WrappedBuild:
    """Run the commands of a build in order, until one fails.

    Args:
        commands: words of each command; there is no shell.
        tree: working directory.
        folder: an empty folder for what the wrappers write.
        toolchain: LLVM installation whose clang compiles.
        added: words that are appended to the calls of compilers.
        environment: variables that are set beside those of this process.
        timeout_seconds: deadline of all commands together.
        output: a file for the output of the commands; without one, the output is only searched for an error.
        keeps_compilers: whether the build's own compilers run, and not the toolchain's.
        keeps_sources: whether the text of each source is kept in ``folder``, see :attr:`WrappedCall.texts`.

    Raises:
        StorageError: the disk is full or not writable.
        ToolError: a command cannot be started, or the folder of wrappers cannot be made.
    """
    settings = _write_settings(folder, added, keeps_sources=keeps_sources)
    wrappers = open_wrappers(toolchain, keeps_compilers=keeps_compilers)
    variables = wrapper_variables(wrappers, settings, keeps_compilers=keeps_compilers)
    variables |= dict(environment or {})
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")} | variables
    reason, code, spent = "", 0, 0.0
    for words in commands:
        left = max(1.0, timeout_seconds - spent)
        # A program's path is relative to the tree, and not to the folder where mlgokit was started.
        argv = [str(tree / words[0]) if "/" in words[0] else words[0], *words[1:]]
        done = process.run(argv, timeout_seconds=left, cwd=tree, env=variables, limits=USERS_LIMITS, output=output)
        spent += done.wall_seconds
        code = done.returncode
        if done.timed_out:
            reason = f"{shlex.join(words)} did not end within {timeout_seconds:.0f} s"
        elif code != 0:
            said = f": {first_error(done.stderr)}" if output is None else ""
            reason = f"{shlex.join(words)} ended with {code}{said}"
        if reason:
            break
    return WrappedBuild(
        reason=reason,
        code=code,
        every_call=tuple(_read_calls(folder / _LOG)),
        wall_seconds=spent,
        programs=_read_programs(folder / _LOG),
    )


def file_state(path: Path) -> FileState:
    """Read the current state of a file: inode, size, and time of the last change in ns; zeros if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns


def _write_settings(folder: Path, added: AddedOptions, *, keeps_sources: bool) -> Path:
    """Write the settings that the wrappers read."""
    with writing(folder):
        (folder / _LOG).mkdir(parents=True)
    settings = dataclasses.asdict(added) | {
        "log": str(folder / _LOG),
        "keep": keeps_sources,
        "record": _RECORD if added.record else [],
        "link_record": link_record_options(Path("{record}")) if added.record else [],
    }
    atomic_write(folder / _SETTINGS, json.dumps(settings))
    return folder / _SETTINGS


def _read_calls(log: Path) -> list[WrappedCall]:
    """Read the calls that the wrappers recorded."""
    found: list[tuple[str, WrappedCall]] = []
    for path in log.glob("*.json"):
        try:
            facts = json.loads(path.read_bytes())
            folder = Path(facts["folder"])
            call = WrappedCall(
                kind=facts["kind"],
                name=facts["name"],
                program=Path(facts["program"]),
                folder=folder,
                words=tuple(facts["words"]),
                inputs=tuple(_normalize(folder / name) for name in facts["inputs"]),
                sources=tuple(_normalize(folder / name) for name in facts["sources"]),
                languages=tuple(facts["languages"]),
                outputs=tuple(_normalize(folder / name) for name in facts["outputs"]),
                contents=tuple(None if one is None else (one[0], one[1]) for one in facts["contents"]),
                texts=tuple(_source_text(one) for one in facts["texts"]),
                code=facts["code"],
                errors=facts["errors"],
                user_seconds=facts["user_seconds"],
                wall_seconds=facts["wall_seconds"],
                record=Path(facts["record"]) if facts["record"] else None,
                lto_linker=facts["lto_linker"],
            )
        except _DAMAGE as error:
            raise _damaged_log_error(path, error) from error
        found.append((path.name, call))
    return [call for _, call in sorted(found, key=lambda pair: pair[0])]


def _source_text(facts: dict[str, Any]) -> SourceText:
    """Decode the record of a source's preprocessed text."""
    return SourceText(
        text=Path(facts["text"]) if facts["text"] else None,
        reason=facts["reason"],
        language=facts["language"],
        is_piped=facts["is_piped"],
        files={Path(path): (number, size, changed) for path, number, size, changed in facts["files"]},
    )


def _read_programs(log: Path) -> tuple[WrappedProgram, ...]:
    """Read the programs that the wrapper of rustc recorded, each once."""
    found: dict[WrappedProgram, None] = {}
    for path in sorted(log.glob("*.rustc")):
        try:
            facts = json.loads(path.read_bytes())
            found[WrappedProgram(crate=facts["crate"], kind=facts["kind"], reason=facts["reason"])] = None
        except _DAMAGE as error:
            raise _damaged_log_error(path, error) from error
    return tuple(found)


def _damaged_log_error(path: Path, error: Exception) -> InputError:
    """Make the error for a file in the wrappers' log that cannot be read."""
    return InputError(
        f"{path}: expected what a wrapped compiler wrote, found: {error!r}; build again, and let nothing else write "
        "there"
    )


def _normalize(path: Path) -> Path:
    return Path(os.path.normpath(path))
