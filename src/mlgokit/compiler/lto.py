"""Link-time optimization as modules: bitcode that the linker compiles, by the linker's own command line.

In full LTO, the merged bitcode is one module. Its object is the output of the linker's LTO pipeline, and the image
beside it is the output of the same link. lld writes both
(``--plugin-opt=obj-path=``); with one thread it can stay as compilers do. Of ThinLTO each back end is a module: lld
imports and compiles it alone (``--thinlto-single-module=``), and does not link.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.objects.object_file import Image
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import OtherLinkerError, ToolError, UsageError
from mlgokit.module import Module

_LLD = re.compile(r"ld\.lld(-\d+)?")
_VERSION = re.compile(rb"LLD (\d+)\.\d+")
_NOTHING = Path("/dev/null")
_BESIDE = re.compile(
    r"--?(Map|map|dependency-file|save-temps|lto-obj-path|plugin-opt=obj-path|plugin-opt=save-temps|reproduce"
    r"|time-trace|print-map|cref|why-extract|out-implib)(?![a-z])"
)
"""Options that write further files; without them, the image is the same."""
_BESIDE_VALUES = frozenset(
    f"{dashes}{name}" for dashes in ("-", "--") for name in ("Map", "dependency-file", "reproduce", "out-implib")
)
_CACHE = re.compile(r"--?(thinlto-cache-|plugin-opt=cache-|thinlto-jobs|plugin-opt=jobs|threads(?![a-z]))")
"""Options of the ThinLTO cache, which would return objects that were compiled without the plugin, and of threads."""
_BACK_END = "--thinlto-single-module="
_SPLIT = re.compile(r"--?(plugin-opt=)?lto-partitions=(?!1$)")
_FOLDS = re.compile(r"--?(no-)?icf\b")
_MANY_OBJECTS = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkerCall:
    """The call of lld that a driver makes.

    Attributes:
        words: the program and its arguments, without those that name outputs.
        folder: working directory of the call.
        left_out: words that were left out, except for the output.
    """

    words: tuple[str, ...]
    folder: Path
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The merged bitcode of a link.

    Attributes:
        bitcode: the merged module as the linker's optimization pipeline reads it; ``None`` if there is none.
        image: the output of the link.
        reason: why the link failed; empty for success.
    """

    bitcode: Path | None
    image: Path
    reason: str = ""


def image_beside(object_path: Path) -> Path:
    """Make the path of the image beside a kept object."""
    return object_path.with_suffix(".image")


def link_for_object(module: Module, output: Path, *, plugin: Path | None, keeps: bool) -> list[str]:
    """Compose the linker's command line for the object of a module whose ``link_folder`` is set.

    Args:
        module: a link as a module.
        output: where the object goes; ``-`` for standard output.
        plugin: the plugin that the linker loads; ``None`` for none.
        keeps: whether the image is kept beside the object.
    """
    output = output if output == Path("-") else output.absolute()
    extra = [] if plugin is None else [f"--load-pass-plugin={plugin}"]
    words = [*module.command_line, *extra, "--threads=1", f"--plugin-opt=obj-path={output}"]
    if is_back_end(module):
        return [*words, "--thinlto-jobs=1"]
    return [*words, "-o", str(image_beside(output) if keeps else _NOTHING)]


def is_back_end(module: Module) -> bool:
    """Whether a module is a ThinLTO back end, which starts threads of its own."""
    return module.link_folder is not None and any(word.startswith(_BACK_END) for word in module.command_line)


def folds_code(module: Module) -> bool:
    """Whether a link folds identical functions, at least within one object."""
    icf = [word for word in module.command_line if _FOLDS.match(word)]
    return module.link_folder is not None and not is_back_end(module) and icf[-1:] in (["--icf=all"], ["-icf=all"])


def image_of(module: Module) -> Image:
    """Find the kind of image that a link writes: ``program``, ``library``, or empty for a static program or no link."""
    words = module.command_line
    if module.link_folder is None or is_back_end(module):
        return ""
    if "-shared" in words or "--shared" in words:
        # With -Bsymbolic a library binds its own symbols, as a program does.
        return "program" if any(word.lstrip("-").startswith("Bsymbolic") for word in words) else "library"
    return "program" if any(word.lstrip("-").startswith("dynamic-linker") for word in words) else ""


def take_object(module: Module, output: Path) -> None:
    """Move a back end's object to ``output``, where lld writes one without its code; lld appends a 1 to its name."""
    numbered = output.with_name(f"{output.name}1")
    if is_back_end(module) and numbered.exists():
        numbered.replace(output)


def compose_back_end(call: LinkerCall, identifier: str) -> tuple[str, ...]:
    """Compose the command line of a ThinLTO back end.

    Args:
        call: the call of the linker.
        identifier: part of lld's name for the module: the object as the link spells it, or ``library(member at``.
    """
    return (*call.words, f"{_BACK_END}{identifier}")


def find_linker_call(
    words: Sequence[str],
    folder: Path,
    *,
    toolchain: Toolchain,
    timeout_seconds: float,
    option: str = "--link-command",
) -> LinkerCall:
    """Find the call of lld in a link command, using clang's ``-###``.

    Args:
        words: the link command, a driver's or lld's own, with any output.
        folder: working directory of the command.
        toolchain: the linker must belong to its LLVM, to load the plugin.
        timeout_seconds: deadline of each process.
        option: the command-line option that named the command, for errors.

    Raises:
        ToolError: the command cannot be started.
        OtherLinkerError: the linker is not lld, or belongs to another LLVM.
        UsageError: the command is not a link, or has several LTO partitions.
    """
    call = list(words)
    if not _LLD.fullmatch(Path(call[0]).name):
        done = process.run(
            [*call, "-###"],
            timeout_seconds=timeout_seconds,
            cwd=folder,
            stderr_bytes=_MANY_OBJECTS,
            limits=USERS_LIMITS,
        )
        jobs = [line for line in done.stderr.splitlines() if line.startswith(' "')]
        try:
            call = shlex.split(jobs[-1]) if jobs and done.returncode == 0 else []
        except ValueError:
            call = []
        if not call:
            said = next((line for line in done.stderr.splitlines() if "error:" in line), "no linker")
            raise UsageError(
                f"{option}: searching a -flto build needs a link by clang with lld, found {said} in the output of "
                f"`{words[0]} -###`; build the project first, and compile and link in separate commands"
            )
        if not _LLD.fullmatch(Path(call[0]).name):
            found = Path(call[0]).name
            raise OtherLinkerError(
                f"{option}: searching a -flto build needs a link by clang with lld, found {found} in the output of "
                f"`{words[0]} -###`; link with -fuse-ld=lld, in CC and CXX if LDFLAGS does not reach that link, "
                "or give the call of ld.lld itself"
            )
    said = process.run([call[0], "--version"], timeout_seconds=timeout_seconds, cwd=folder).stdout
    version = _VERSION.search(said)
    if version is None or int(version[1]) != toolchain.major:
        found = "another program" if version is None else f"that of LLVM {version[1].decode()}"
        raise OtherLinkerError(
            f"{option}: expected the lld of LLVM {toolchain.major}, whose plugin it loads, found {found} "
            f"({call[0]}); name that linker with --ld-path=, or give --llvm"
        )
    if split := [word for word in call if _SPLIT.match(word)]:
        raise UsageError(
            f"{option}: expected a link that generates code in one partition, found {split[0]}, by which a "
            "function's code depends on the number of partitions; link without it"
        )
    return _drop_outputs(call, folder)


def count_words_beside(word: str) -> int:
    """Count the words of a linker's option that writes a further file, without which the image is the same; else 0.

    Example:
        >>> [count_words_beside(word) for word in ("-Map=a.map", "-Map", "--gc-sections")]
        [1, 2, 0]
    """
    if word in _BESIDE_VALUES:
        return 2
    return 1 if _BESIDE.match(word) else 0


def merge_bitcode(call: LinkerCall, scratch: Path, *, timeout_seconds: float) -> Merged:
    """Run the link once, and keep the bitcode that enters link-time optimization.

    Args:
        call: the call of the linker.
        scratch: an empty folder for the bitcode.
        timeout_seconds: deadline of the link.

    Raises:
        ToolError: the linker cannot be started.
    """
    image, reason = _link_keeping(call, scratch, ["--save-temps=internalize"], timeout_seconds=timeout_seconds)
    whole = image.with_name("image.0.2.internalize.bc")
    return Merged(bitcode=whole if whole.is_file() and not reason else None, image=image, reason=reason)


def import_bitcode(call: LinkerCall, scratch: Path, *, timeout_seconds: float) -> str:
    """Run a ThinLTO link once; beside each object is then its module, with what was imported into it.

    Args:
        call: the call of the linker.
        scratch: an empty folder for the image.
        timeout_seconds: deadline of the link.

    Returns:
        Why the link failed; empty for success.

    Raises:
        ToolError: the linker cannot be started.
    """
    return _link_keeping(call, scratch, ["--save-temps=import"], timeout_seconds=timeout_seconds)[1]


def external_functions(bitcode: Path, toolchain: Toolchain, *, timeout_seconds: float) -> tuple[str, ...]:
    """List the functions that a bitcode file defines for others, without those of which it has one copy of several.

    Raises:
        ToolError: there is no llvm-nm, or it cannot read the file.
    """
    nm = toolchain.find_tool("llvm-nm")
    if nm is None:
        raise ToolError("expected llvm-nm beside clang, found none; install it")
    argv = [nm, "--defined-only", "--extern-only", "--format=posix", bitcode]
    done = process.run(argv, timeout_seconds=timeout_seconds, limits=USERS_LIMITS)
    if done.returncode != 0 or done.timed_out:
        raise ToolError(f"{bitcode}: expected {nm.name} to read it, found: {first_error(done.stderr)}; build it again")
    fields = (line.split() for line in done.stdout.decode("utf-8", "surrogateescape").splitlines())
    return tuple(words[0] for words in fields if words[1:2] == ["T"])


def _link_keeping(call: LinkerCall, scratch: Path, kept: Sequence[str], *, timeout_seconds: float) -> tuple[Path, str]:
    """Run the link once with options that keep bitcode; return the image, and why the link failed."""
    scratch.mkdir(parents=True, exist_ok=True)
    image = scratch.absolute() / "image"
    argv = [*call.words, "--threads=1", *kept, "-o", str(image)]
    done = process.run(argv, timeout_seconds=timeout_seconds, cwd=call.folder, limits=USERS_LIMITS)
    if done.timed_out:
        return image, f"it did not end within {timeout_seconds:.0f} s"
    return image, "" if done.returncode == 0 else first_error(done.stderr)


def _drop_outputs(call: Sequence[str], folder: Path) -> LinkerCall:
    """Drop the words that name outputs from a call of the linker."""
    kept: list[str] = []
    left_out: list[str] = []
    position = 0
    while position < len(call):
        word = call[position]
        beside = 1 if _CACHE.match(word) else count_words_beside(word)
        takes = 2 if word == "-o" else max(1, beside)
        if beside:
            left_out += call[position : position + takes]
        elif word != "-o":
            kept.append(word)
        position += takes
    return LinkerCall(words=tuple(kept), folder=folder, left_out=tuple(left_out))
