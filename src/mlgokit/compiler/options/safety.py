"""The only check of command lines: which options may be passed to ``clang -cc1``, whoever wrote them.

A corpus is data, and so is a build's database, but their command lines are arguments of a program that can load
libraries, start others, and write where it is told to. So what nobody has reviewed is refused: clang's options and
LLVM's own (``-mllvm``), flags and those with values, are taken if they are in ``option_review.toml``. Both kinds of
compilation pass here, that of bitcode (:func:`check_command_line`) and that of sources (:func:`check_front_end`), with
the options as LLVM's own parser cuts them (:mod:`mlgokit.compiler.options.parse`): nothing is looked for in words.
The remedy is to delete or to replace the option (:mod:`mlgokit.corpus.options.edits`): what a user adds is not
questioned.

What stays possible: bitcode can hold inline assembly, whose ``.incbin`` reads a file into the object, sources can
include any file, and a compiler may have defects. Objects of a stranger's corpus are not to be published or run.
"""

import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from mlgokit.compiler.options.parse import LLVM_KINDS, Option, parse_options

LONGEST_COMMAND_LINE = 1 << 20
"""Limit in bytes; Linux accepts 2 MiB of arguments and environment."""
MOST_PROFILE_BYTES = 1 << 30

_REMEDY = "delete or replace it with --delete-options or --replace-options if you trust it"
_WORD = re.compile(r"[\w.,+:=%-]*")
_NAME = re.compile(r"[\w][\w.+-]*")
_TEXT = re.compile(r"(?![-@])[^\x00-\x08\x0a-\x1f\x7f]*")
_FEATURE = re.compile(r"[+-][\w][\w.+-]*")
_VALUES = {
    **dict.fromkeys(("-target-feature", "-aux-target-feature"), _FEATURE),
    **dict.fromkeys(("-target-cpu", "-aux-target-cpu", "-tune-cpu", "-target-abi", "-triple", "-aux-triple"), _NAME),
    **dict.fromkeys(("-mfpmath", "-mfloat-abi", "-mrelocation-model", "-mthread-model", "-exception-model"), _NAME),
}
"""Patterns of allowed values. All other options take :data:`_TEXT`, which does not begin like an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Review:
    """``option_review.toml``, as one predicate for each of its lists."""

    left_out: Callable[[str], bool]
    refused: Callable[[str], bool]
    exceptions: Callable[[str], bool]
    front_end: Callable[[str], bool]
    inside: Callable[[str], bool]
    kept: Callable[[str], bool]
    flags: Callable[[str], bool]
    llvm: Callable[[str], bool]
    llvm_text: Callable[[str], bool]


def is_left_out(option: Option) -> bool:
    """Whether compiling a module's bitcode does not need the option: front-end options, and further outputs."""
    review = _review()
    return review.left_out(option.name) and not review.exceptions(option.name)


def is_reviewed_code_option(word: str) -> bool:
    """Whether the word names a reviewed ``-cc1`` option about code, either as it is, negated or affirmed.

    Example:
        >>> [is_reviewed_code_option(word) for word in ("-fno-rtti", "-fvisibility=hidden", "-fproc-stat-report=a")]
        [True, True, False]
    """
    name, equals, _ = word.partition("=")
    bare = re.sub(r"^-f(no-)?", "", name)
    review = _review()
    names = [f"-f{no}{bare}{end}" for no in ("", "no-") for end in ("", "=")]
    if equals:
        return any(review.kept(spelling) for spelling in names if spelling.endswith("="))
    return any(review.flags(spelling) or review.kept(spelling) for spelling in names)


def names_a_profile(option: Option) -> bool:
    """Whether an option names a file that affects the code: a profile, or a remapping of its names."""
    return _review().inside(option.name)


def check_command_line(words: Sequence[str], *, folder: Path | None = None) -> str | None:
    """Check an untrusted ``clang -cc1`` command line; return why it is refused, or ``None``.

    Options for which :func:`is_left_out` is true are not checked.

    Args:
        words: the command line, ``-cc1`` first.
        folder: folder of the corpus, the only place from which profiles may be read, by paths relative to it.

    Example:
        >>> check_command_line(["-cc1", "-Oz", "-target-feature", "+avx"])
        >>> check_command_line(["-cc1", "-load", "evil.so"])  # doctest: +ELLIPSIS
        'expected options that only decide the code, found -load evil.so; delete or replace it with ...'
    """
    if tuple(words[:1]) != ("-cc1",):
        return f"expected -cc1 as the first option, found {words[0] if words else 'no option'}"
    if sum(len(word) + 1 for word in words) > LONGEST_COMMAND_LINE:
        return f"expected at most {LONGEST_COMMAND_LINE} bytes of options, found more"
    return check_options(parse_options(words[1:]), folder=folder)


def check_options(options: Iterable[Option], *, folder: Path | None = None) -> str | None:
    """Check parsed options as :func:`check_command_line` does; return why one is refused, or ``None``."""
    for option in options:
        if is_left_out(option) and _is_plain(option):
            continue
        trouble = _trouble(option, is_taken=_is_harmless(option)) or _profile_trouble(option, folder)
        if trouble is not None:
            return trouble
    return None


def option_trouble(option: Option, *, from_source: bool) -> str | None:
    """Check an option of a command line that is about to be started; return why it is refused, or ``None``.

    Args:
        option: an option of an untrusted line.
        from_source: whether the line reads a source, and not bitcode.
    """
    is_taken = _is_harmless(option) and not is_left_out(option)
    trouble = _trouble(option, is_taken=is_taken or (from_source and _is_front_end(option)))
    if trouble is None and names_a_profile(option) and not Path("".join(option.values)).is_absolute():
        return _refusal(option, " (no whole path)")
    return trouble


def check_front_end(words: Sequence[str]) -> str | None:
    """Check a ``clang -cc1`` command line that compiles a source to bitcode; return why it is refused, or ``None``.

    In addition to what :func:`check_command_line` allows, it may have options that only the front end reads. It must
    contain neither action, input and output, nor profiles, which :mod:`mlgokit.corpus.profiles` checks.

    Example:
        >>> check_front_end(["-cc1", "-Oz", "-I", "include", "-D", "A=1"])
        >>> print(check_front_end(["-cc1", "-dependency-file", "a.d"]))  # doctest: +ELLIPSIS
        expected options that decide the code, found -dependency-file a.d, which extraction does not do; take it ...
    """
    if tuple(words[:1]) != ("-cc1",):
        return f"expected -cc1 as the first option, found {words[0] if words else 'no option'}"
    for option in parse_options(words[1:]):
        taken = _is_harmless(option) and not is_left_out(option) and not names_a_profile(option)
        if not (taken or _is_front_end(option)):
            return (
                f"expected options that decide the code, found {_spelling(option)}, which extraction does not do; "
                "take it out of the build's command"
            )
    return None


def check_file(path: Path, what: str, *, folder: Path, most_bytes: int) -> str | None:
    """Check a file of a corpus; return why it must not be opened (no file, too large, link elsewhere), or ``None``."""
    if not path.is_file():
        return f"expected {what} in {path.name}, found {'no regular file' if path.exists() else 'no file'}"
    real = path.resolve()
    if not real.is_relative_to(folder.resolve()):
        return f"expected {what} inside of the corpus, found {path.name} to be a link to {real}; copy it"
    size = path.stat().st_size
    return None if size <= most_bytes else f"expected at most {most_bytes} bytes of {what} in {path.name}, found {size}"


def _trouble(option: Option, *, is_taken: bool) -> str | None:
    """Say why an option is refused: no check allows it, or it is a second ``-cc1``; else ``None``."""
    if option.name == "-cc1":
        return "expected one command line, found a second -cc1; extract the objects before they are joined"
    return None if is_taken else _refusal(option)


def _refusal(option: Option, why: str = "") -> str:
    """Make the sentence that refuses an option, with a further reason if there is one."""
    return f"expected options that only decide the code, found {_spelling(option)}{why}; {_REMEDY}"


def _spelling(option: Option) -> str:
    """Spell an option for a message."""
    return " ".join(word or "an empty word" for word in option.words)[:200]


def _is_plain(option: Option) -> bool:
    """Whether the compiler parses the words as this option as well, and as nothing else."""
    # The compiler replaces @file by the words in it wherever it stands.
    if option.kind in {"input", "unknown"} or not option.is_whole:
        return False
    if any(not word or word.startswith("@") or "\0" in word for word in option.words):
        return False
    if option.kind in LLVM_KINDS:
        return True
    pattern = _VALUES.get(option.name, _TEXT)
    return all(pattern.fullmatch(value) for value in option.values)


def _is_front_end(option: Option) -> bool:
    """Whether the option is a reviewed one that only a front end reads."""
    return _is_plain(option) and _review().front_end(option.name)


def _profile_trouble(option: Option, folder: Path | None) -> str | None:
    """Say why the profile that an option names must not be read; ``None`` if it may, or for another option."""
    if not names_a_profile(option):
        return None
    value = option.values[0] if option.values else ""
    trouble: str | None = "no file of a corpus"
    if folder is not None and value:
        try:
            trouble = check_file(folder / value, "a profile", folder=folder, most_bytes=MOST_PROFILE_BYTES)
        except (OSError, RuntimeError) as error:
            trouble = str(error)
    return None if trouble is None else _refusal(option, f" ({trouble})")


def _is_harmless(option: Option) -> bool:
    """Whether a reviewed list allows the option with its value."""
    review = _review()
    value = option.values[0] if option.values else ""
    if not _is_plain(option):
        harmless = False
    elif option.kind in LLVM_KINDS:
        harmless = _is_harmless_llvm(option)
    elif review.exceptions(option.name) or is_left_out(option):
        harmless = True
    elif option.name.startswith("-cc1") or review.refused(option.name):
        harmless = False
    elif option.name == "-fbasic-block-sections=":
        harmless = not value.startswith("list=")
    elif review.inside(option.name):
        harmless = True
    else:
        harmless = review.flags(option.name) if option.kind == "flag" else review.kept(option.name)
    return harmless


def _is_harmless_llvm(option: Option) -> bool:
    """Whether the reviewed list of LLVM's own options (``-mllvm``) allows the option with its value."""
    name = option.name.removeprefix("-mllvm -")
    value = option.values[0] if option.values else ""
    review = _review()
    return _WORD.fullmatch(value) is not None and (review.llvm_text if option.kind == "llvm-text" else review.llvm)(
        name
    )


@functools.cache
def _review() -> _Review:
    """Load the lists of reviewed options."""
    text = resources.files("mlgokit.compiler.options").joinpath("option_review.toml").read_text(encoding="utf-8")
    return _Review(**{key: _matcher(entries.split()) for key, entries in tomllib.loads(text).items()})


def _matcher(entries: Sequence[str]) -> Callable[[str], bool]:
    """Make a predicate for names in a list whose entries may contain the wildcard ``*``."""
    exact = frozenset(entry for entry in entries if "*" not in entry)
    patterns = "|".join(re.escape(entry).replace(r"\*", ".*") for entry in entries if "*" in entry)
    pattern = re.compile(patterns or "(?!)")

    @functools.lru_cache(maxsize=4096)
    def matches(name: str) -> bool:
        return name in exact or pattern.fullmatch(name) is not None

    return matches
