"""How many functions of a module a profile does not fit, according to the compiler's warnings.

Counters of the front end are matched when bitcode is made, which gives warnings. Counters of IR and samples are matched
in the optimizer, which is run for this once; its code is discarded.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.options.parse import parse_options, spell_options
from mlgokit.corpus.profiles import COUNTERS, SAMPLES, counts_by_front_end, profiles_in, replace_profiles
from mlgokit.module import Module

_QUIET = "-w"
"""Options with which imports silence a build's warnings."""
_MATCHED_BY_FRONT_END = (
    "-Wno-everything",
    "-Wprofile-instr-out-of-date",
    "-Wprofile-instr-missing",
    "-Wprofile-instr-unprofiled",
)
_MATCHED_BY_OPTIMIZER = (
    *("-Wno-everything", "-Wbackend-plugin"),
    *("-mllvm", "-pgo-warn-missing-function", "-mllvm", "-no-pgo-warn-mismatch-comdat-weak=false"),
    *("-mllvm", "-report-profile-staleness"),
)
_OF_FRONT_END = re.compile(r"of \d+ functions?, (\d+) (has|have) (mismatched data|no data)")
_NO_FILE = "no profile data available for file"
_OF_COUNTERS = re.compile(r"(hash mismatch\)|no profile data available for function) (\S+) Hash = ")
_OF_SAMPLES = re.compile(r"^\((\d+)/\d+\) of (?:functions|callsites)' profile are invalid", re.MULTILINE)
_NO_LINES = re.compile(r"No debug information found in function (\S+):")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFit:
    """How many functions of a module its profile does not fit.

    Attributes:
        mismatched: number of functions whose control flow has changed since the profile was made; with samples, of
            functions or calls, as the compiler counts them.
        missing: number of functions that the profile does not know; with samples, of functions without line numbers.
    """

    mismatched: int
    missing: int


def fit_of(module: Module) -> ProfileFit | None:
    """Return how well a module's profile fits; ``None`` if that is not known."""
    if module.profile_mismatched is None or module.profile_missing is None:
        return None
    return ProfileFit(mismatched=module.profile_mismatched, missing=module.profile_missing)


def front_end_words(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Let a front end that matches a profile warn if it does not fit: return its options, and further ones for that."""
    return (_drop_quiet(words), _MATCHED_BY_FRONT_END) if _is_matched_by_front_end(words) else (tuple(words), ())


def profile_fit(
    clang: str,
    command_line: Sequence[str],
    bitcode: Path,
    *,
    folder: Path,
    stderr: str,
    run: Callable[[Cc1Line], process.Completed],
) -> ProfileFit | None:
    """Determine how a module's profile fits; ``None`` without a profile, or if the compiler does not tell.

    Paths of profiles are relative to the ``folder`` of the corpus. ``stderr`` is the output of the front end that made
    the bitcode with the options of :func:`front_end_words`; ``run`` runs the optimizer, in the front end's sandbox.
    """
    used = {option.name for option in profiles_in(command_line)}
    if not used & {COUNTERS, SAMPLES}:
        return None
    words = replace_profiles(command_line, lambda option: str(folder / option.values[0]))
    if _is_matched_by_front_end(words):
        return _parse_front_end(stderr)
    own = [*_MATCHED_BY_OPTIMIZER, "-emit-llvm-only", "-x", "ir", str(bitcode.absolute())]
    argv = Cc1Line(clang, options=_drop_quiet(words), own=own)
    done = run(argv)
    return _parse_optimizer(done.stderr) if done.returncode == 0 else None


def _is_matched_by_front_end(words: Sequence[str]) -> bool:
    """Whether the front end matches the profile, which it does for counters that it inserted."""
    return any(
        option.name == COUNTERS and option.values and counts_by_front_end(Path(option.values[0]))
        for option in profiles_in(words)
    )


def _drop_quiet(words: Sequence[str]) -> tuple[str, ...]:
    return spell_options(option for option in parse_options(words) if option.name != _QUIET)


def _parse_front_end(stderr: str) -> ProfileFit:
    """Parse the front end's warnings.

    Example:
        >>> _parse_front_end("warning: profile data may be out of date: of 5 functions, 2 have mismatched data that")
        ProfileFit(mismatched=2, missing=0)
    """
    found = {kind: int(count) for count, _, kind in _OF_FRONT_END.findall(stderr)}
    missing = found.get("no data", 0) or int(_NO_FILE in stderr)
    return ProfileFit(mismatched=found.get("mismatched data", 0), missing=missing)


def _parse_optimizer(stderr: str) -> ProfileFit:
    r"""Parse the optimizer's warnings; a function that is named twice, as for a profile in two parts, counts once.

    Example:
        >>> stderr = "function control flow change detected (hash mismatch) f Hash = 1 up to 0 count discarded"
        >>> _parse_optimizer(f"{stderr}\n{stderr}\nno profile data available for function g Hash = 2 up to 0")
        ProfileFit(mismatched=1, missing=1)
    """
    named = set(_OF_COUNTERS.findall(stderr))
    mismatched = {name for kind, name in named if kind.startswith("hash")}
    missing = {name for kind, name in named if not kind.startswith("hash")} | set(_NO_LINES.findall(stderr))
    sampled = sum(int(count) for count in _OF_SAMPLES.findall(stderr))
    return ProfileFit(mismatched=len(mismatched) + sampled, missing=len(missing - mismatched))
