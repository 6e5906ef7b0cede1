"""The command line for all modules of a local ThinLTO build, derived from its link command.

In such a build the linker compiles, with options of its own, so that objects have no command line to record. What
``ld.lld`` does by default and what it was told become the options that make ``clang -cc1`` do the same
(``linker_words.py``). Facts about clang are from ``runThinLTOBackend`` (``BackendUtil.cpp``).
"""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, cast

from mlgokit.compiler.driver_call import WITH_VALUE
from mlgokit.compiler.options.parse import MLLVM, Option, parse_options
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.layout import UNSPECIFIED
from mlgokit.corpus.options.command_line import ask_driver, printed_words
from mlgokit.corpus.options.driver import driver_units, may_be_asked, may_be_left_out
from mlgokit.corpus.options.linker_words import LinkOptions, Words, translate_linker, word_set
from mlgokit.corpus.profiles import profile_copier, replace_profiles
from mlgokit.corpus.response_files import LINK_BYTES, expand_response_files
from mlgokit.errors import CorpusError, UsageError
from mlgokit.files import atomic_write
from mlgokit.locks import locked

_FOR_THE_LINKER = re.compile(
    r"-[LlBTueNnRYsoxh].*|-Wl,.*|-[Bdv]|-(Xlinker|undefined|framework|rpath|M[FTQJ]|no-pie|nopie|Q.*)"
    r"|-?-(specs|ld-path|coverage|save-temps)(=.*)?|--|-gen-reproducer.*|--(offload|cuda|hip|rocm|amdgpu)-.*"
)
"""Options that do not affect a module's code: libraries, scripts, symbols, paths, outputs, devices, bug reports."""
_LLD = re.compile(r"(ld\.lld|ld64\.lld|lld|ld)(-[\d.]+)?(\.exe)?")
_CLANG = re.compile(r"(.*-)?(clang|clang\+\+|cc|c\+\+)(-[\d.]+)?(\.exe)?")
_TARGET = re.compile(r"^Target: (\S+)$", re.MULTILINE)
_POSITIONS = {
    **dict.fromkeys(word_set("-fPIE -fpie -pie"), "-pie"),
    **dict.fromkeys(word_set("-fPIC -fpic -shared"), "-shared"),
    **dict.fromkeys(word_set("-fno-PIE -fno-pie -fno-PIC -fno-pic -no-pie -nopie"), ""),
}
"""Driver options for position-independent code, and the linker's equivalents."""
_LEVELS = {**{level: level for level in "0123sz"}, "": "1", "4": "3"}
"""Optimization levels of a driver, and their equivalents for ``clang -cc1``."""
_NOTHING_FOR_BITCODE = re.compile(
    r"-c|-S|-pipe|-pthreads?|-w|-(no-)?canonical-prefixes|-nostd.*|-nodefaultlibs|-nostartfiles|-static.*|-rdynamic"
    r"|-(stdlib|rtlib|unwindlib|fuse-ld)=.*|-isysroot.*|--(sysroot|gcc-toolchain)(=.*)?|-[LlB].*|-Wl,.*"
)
"""Driver options that have no effect on the compilation of bitcode."""
_PASSED_ON = word_set("-Xlinker -mllvm -z -T -u -e -rpath")
"""Driver options with a value that is passed to the linker only."""


def read_link_command(path: Path) -> list[str]:
    """Read the words of the link command in a file, see :func:`split_link_command`.

    Raises:
        UsageError: there is no such file, or no such command in it.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UsageError(
            f"{path}: expected a file with the link's command, found: {error.strerror or error}; "
            "make one with `ninja -t commands`"
        ) from error
    return split_link_command(text)


def split_link_command(text: str) -> list[str]:
    """Find the words of a link command, without launchers before the compiler or linker and what follows ``&&``.

    Of several commands, as ``ninja -t commands`` prints them, this is the last one that links.

    Example:
        >>> split_link_command("python3 wrapper.py --output=a -- ../bin/clang++ -flto=thin a.o -o a && touch b")
        ['../bin/clang++', '-flto=thin', 'a.o', '-o', 'a']

    Raises:
        UsageError: no line of the text has a link command.
    """
    for line in reversed(text.replace("\\\n", " ").splitlines()):
        try:
            words = shlex.split(line)
        except ValueError:
            continue
        for command in reversed(list(_commands(words))):
            start = next((number for number, word in enumerate(command) if _is_tool(word)), None)
            if start is not None and "-c" not in command[start:]:
                return command[start:]
    raise UsageError(
        f"link command: expected one with clang or ld.lld in it, found {text.strip()[:200]!r}; "
        "give the line that links the program, for example from `ninja -t commands`"
    )


def link_options(words: Sequence[str], *, toolchain: Toolchain, folder: Path | None = None) -> LinkOptions:
    """Translate a link command; a compiler driver is first asked for its call of the linker (``-###``).

    The toolchain's clang is asked in place of the compiler in the command. The folder of the build has response files.

    Raises:
        UsageError: clang does not take the command.
        ToolError: clang cannot be started, or an option has a line break in it.
    """
    if _LLD.fullmatch(PurePath(words[0]).name):
        return translate_linker(list(_expand(words[1:], folder)), profile_kinds=toolchain.wants_profile_kinds)
    driver_words = [*_drop_inputs(_expand(words[1:], folder)), "-fuse-ld=lld", "-lc"]
    done = ask_driver(toolchain.clangxx, driver_words, folder=folder)
    lines = [line for line in done.stderr.split("\n") if line.startswith(' "')]
    if done.returncode != 0 or not lines:
        raise UsageError(
            f"link command: expected options that {toolchain.clangxx} takes, found: {first_error(done.stderr)}; "
            "correct it, or give the command of ld.lld"
        )
    triple = _TARGET.search(done.stderr)
    return translate_linker(
        printed_words(lines[-1]),
        triple=triple[1] if triple else None,
        profile_kinds=toolchain.wants_profile_kinds,
    )


def parse_override(words: Sequence[str], *, where: str) -> Words:
    """Make the ``-cc1`` line for the options that a corpus's description has for all modules.

    Options of ``clang -cc1`` alone are taken as they are, with ``-cc1`` in front or without. Otherwise they are a
    compiler driver's, as MLGO's walkthroughs write them down for a ThinLTO link: the level, position-independent code
    and the target become what the driver and the linker make of them, and what only matters before or after the
    compilation of bitcode is left out. Any other word is refused.

    Example:
        >>> parse_override(["-fPIC", "-mllvm", "-inline-threshold=5", "-O3", "--sysroot=/x", "-c"], where="x")[:4]
        ('-cc1', '-O3', '-vectorize-loops', '-vectorize-slp')

    Raises:
        CorpusError: a word is neither an option of ``clang -cc1`` nor a driver option whose meaning is known, or the
            driver's options have no optimization level.
    """
    if "-cc1" in words[:1]:
        return tuple(words)
    if not any(option.kind == "unknown" for option in parse_options(words)):
        return ("-cc1", *words)
    facts: dict[str, str] = {}
    passed: list[str] = []
    start = 0
    while start < len(words):
        # No option has more words than these: -mllvm -name -mllvm value.
        option = parse_options(words[start : start + 4])[0]
        unit = next(driver_units(words[start : start + 2]), option)
        if (fact := _driver_fact(option, unit)) is not None:
            facts |= fact
            start += len(unit.words)
        elif _is_for_cc1(option):
            passed += option.words
            start += len(option.words)
        else:
            raise CorpusError(
                f"{where}: expected options of clang -cc1, or a compiler driver's whose meaning for bitcode is known, "
                f"found {words[start][:200]!r}; leave it out, or give the line that `clang -###` prints, from -cc1 on"
            )
    level = facts.get("level")
    if level is None:
        raise CorpusError(
            f"{where}: expected an optimization level (-O1, -O2, -O3, -Os or -Oz) among the driver options, found "
            "none, so clang would not optimize; add one"
        )
    linker = [f"--lto-O{level}", *filter(None, [facts.get("position")])]
    options = list(translate_linker(linker, triple=facts.get("triple")).options)
    # A linker knows no level for size; the driver, whose words these are, does.
    options[options.index("-O2" if level in "sz" else f"-O{level}")] = f"-O{level}"
    if level == "z":
        options.remove("-vectorize-loops")
    return (*options, *passed)


def _driver_fact(option: Option, unit: Option) -> dict[str, str] | None:
    """Find what a driver option sets (level, relocation model or target), as -cc1 parses it, and as the driver does.

    Empty for an option that means nothing to the compilation of bitcode, ``None`` for one that is not the driver's.
    """
    word = unit.words[0]
    if option.name == "-O" and option.values[0] in _LEVELS:
        return {"level": _LEVELS[option.values[0]]}
    if word in _POSITIONS:
        return {"position": _POSITIONS[word]}
    if unit.name in {"-target", "--target"} and unit.values:
        return {"triple": unit.values[0]}
    if word.startswith("--target="):
        return {"triple": word.removeprefix("--target=")}
    return {} if _NOTHING_FOR_BITCODE.fullmatch(unit.name) else None


def _is_for_cc1(option: Option) -> bool:
    """Whether ``clang -cc1`` takes the option as it is; a driver's ``-O`` has a translation of its own."""
    known = option.kind not in {"unknown", "input"} or option.name.startswith(f"{MLLVM} -")
    return known and option.name != "-O"


def fill_override(folder: Path, options: Sequence[str], *, build: Path) -> None:
    """Write the options into a corpus whose description has a placeholder for them, and copy the profiles they name.

    Paths of profiles are relative to the folder of the ``build``.

    Raises:
        BusyError: another process uses the corpus.
        CorpusError: there is no description, or it has no place for them.
        InputError: an option names a profile, and there is none.
        StorageError: the disk is full or not writable.
    """
    with locked(folder, make=False):
        path = folder / "corpus_description.json"
        try:
            description: object = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise CorpusError(
                f"{path}: expected a corpus's description, found: {error}; extract the corpus first"
            ) from error
        fields = cast("dict[str, Any]", description) if isinstance(description, dict) else {}
        current = fields.get("global_command_override")
        if current != [UNSPECIFIED]:
            raise CorpusError(
                f"{path}: expected global_command_override to be {[UNSPECIFIED]}, found {current!r:.200}; "
                "the corpus has its options: change them with --add-options, --delete-options and --replace-options"
            )
        copies = profile_copier(folder)
        fields["global_command_override"] = list(replace_profiles(options, lambda option: copies(option, build)))
        atomic_write(path, json.dumps(fields, indent=2) + "\n")


def _commands(words: Sequence[str]) -> Iterator[list[str]]:
    """Split a shell line into commands; what follows a lone ``--`` is the command that a launcher runs."""
    command: list[str] = []
    for word in words:
        if word in {"&&", ";", "||", "|", "--"}:
            yield command
            command = []
        else:
            command.append(word)
    yield command


def _is_tool(word: str) -> bool:
    name = PurePath(word).name
    return not word.startswith("-") and (_CLANG.fullmatch(name) or _LLD.fullmatch(name)) is not None


def _expand(words: Sequence[str], folder: Path | None) -> list[str]:
    """Expand response files among words; one that is missing is dropped, since it most likely held inputs."""
    if folder is None:
        return [word for word in words if not word.startswith("@")]
    try:
        return expand_response_files(words, folder, most_bytes=LINK_BYTES, missing="drop")
    except ValueError as error:
        raise UsageError(
            f"{folder}: expected the words of a link command, found: {error}; link again, or give the command "
            "without response files"
        ) from error


def _drop_inputs(words: Sequence[str]) -> Iterator[str]:
    """Yield a driver's options, without inputs, libraries and accelerators: inputs may no longer exist."""
    for unit in driver_units(words):
        name, has_no_value = unit.name, unit.name in WITH_VALUE and not unit.values
        if unit.kind == "input" or name.startswith("-Wl,-l") or has_no_value:
            continue
        if name in _PASSED_ON or name.startswith("-z") or may_be_asked(unit):
            yield from unit.words
        elif not (may_be_left_out(name) or _FOR_THE_LINKER.fullmatch(name)):
            raise UsageError(
                f"link command: the option {name[:200]!r} is not in the list of reviewed options; remove it from "
                "the command, or give the command of ld.lld"
            )
