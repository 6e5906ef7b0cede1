"""Notes on a build, reported once before long work: options that affect the code, and how well its profile fits.

An import writes the options down beside the corpus that it makes, ``corpus_options.json``:
``{"format_version": 1, "commands": 27, "left_out": {"-flto": 27}, "kept": {"-fsanitize=address": 27}, "unknown": [],
"notes": []}``.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from mlgokit.corpus.corpus import read_object
from mlgokit.corpus.staleness import ProfileFit, fit_of
from mlgokit.decode import decode
from mlgokit.errors import CorpusError, InputError
from mlgokit.files import atomic_write
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.terminal import counted

OPTIONS_NAME = "corpus_options.json"
OPTIONS_VERSION = 1
_MOST = 20
"""Maximum number of options that are listed, since a file from elsewhere may have any number."""
_LEFT_OUT = (
    (
        r"-flto(=.*)?",
        ("modules are compiled one by one, without link-time optimization; judge the result by the build's own link"),
    ),
    (r"-fwhole-program-vtables|-fvirtual-function-elimination.*", "it works in a link with -flto only"),
    (r"--?coverage|-fprofile-arcs|-ftest-coverage", "modules have no counters of coverage, as the build's objects do"),
    (
        r"-fplugin.*|-fpass-plugin.*|-Xclang -(load|plugin|add-plugin|fplugin|fpass-plugin).*",
        "other plugins are not loaded, so modules lack their changes",
    ),
)
"""Options that are left out, and the consequence; all others are unknown to clang, or not passed to it."""
_KEPT = (
    (r"-fsanitize=.+", "modules contain the sanitizer's checks, so measured code is larger and slower"),
    (
        r"-f(cs-)?profile-(instr-)?generate(=.*)?",
        "modules contain profile counters: this build generates a profile, it does not use one",
    ),
    (r"--?coverage|-fprofile-arcs|-ftest-coverage", "objects have counters of coverage in them, and write files"),
    (
        r"-fplugin.*|-fpass-plugin.*|-Xclang -(load|plugin|add-plugin|fplugin|fpass-plugin).*",
        "objects are made with this plugin too",
    ),
    (r"-fcoverage-mapping|-pg|-finstrument-functions.*|-fxray-instrument", "modules have this instrumentation in them"),
)
"""Options that are kept although they make another program than the shipped one, and the consequence."""
_OF_LINKS = r"-flto(=.*)?|-fwhole-program-vtables|-fvirtual-function-elimination.*"
"""Options that have an effect in a link with ``-flto`` only."""
_UNKNOWN = "this clang does not know it"
_NOT_ASKED = "it could start a program or write a file, so it is not passed to clang"
_LEVEL = re.compile(r"-O(\w*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptionCounts:
    """The number of commands of a build, and of those that have certain options.

    A corpus is made without the options in ``left_out``, of which clang does not know those in ``unknown``. Options in
    ``kept`` instrument the program, as a sanitizer does. ``notes`` are further sentences about the build.
    """

    commands: int = 0
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    kept: dict[str, int] = field(default_factory=dict[str, int])
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lost_by_links(self) -> dict[str, int]:
        """Left-out options, except for ``-flto`` itself: without them modules give a link with ``-flto`` other code."""
        return {option: count for option, count in self.left_out.items() if not re.fullmatch(r"-flto(=.*)?", option)}

    @property
    def of_objects(self) -> "BuildOptionCounts":
        """Option counts of the objects that the build itself makes, where the options left out of a corpus have effect.

        Example:
            >>> BuildOptionCounts(commands=1, left_out={"-flto": 1, "--coverage": 1}).of_objects.kept
            {'--coverage': 1}
        """
        in_objects = {option: count for option, count in self.left_out.items() if not re.fullmatch(_OF_LINKS, option)}
        return BuildOptionCounts(commands=self.commands, kept={**self.kept, **in_objects})

    def sentences(self) -> tuple[str, ...]:
        """List the notes on the build, and a sentence for each option that was left out or kept, at most ``_MOST``.

        Example:
            >>> BuildOptionCounts(commands=3, left_out={"-fwhole-program-vtables": 2}).sentences()
            ('-fwhole-program-vtables (2 of 3 commands) is left out: it works in a link with -flto only',)
        """
        lines = [
            f"{option} ({count} of {self.commands} commands) is {what}: {self._meaning(option, meanings)}"
            for what, options, meanings in (("left out", self.left_out, _LEFT_OUT), ("kept", self.kept, _KEPT))
            for option, count in options.items()
        ]
        more = f"{len(lines) - _MOST} more options of the build are left out or kept; {OPTIONS_NAME} has all of them"
        return (*self.notes, *lines[:_MOST], *([more] if len(lines) > _MOST else []))

    def _meaning(self, option: str, meanings: Sequence[tuple[str, str]]) -> str:
        otherwise = _UNKNOWN if option in self.unknown else _NOT_ASKED
        return next((text for pattern, text in meanings if re.fullmatch(pattern, option)), otherwise)


def is_instrumentation(option: str) -> bool:
    """Whether a driver's option instruments the program or loads a plugin, so that objects are not the shipped ones.

    Example:
        >>> is_instrumentation("-fsanitize=address"), is_instrumentation("-fprofile-use=a.profdata")
        (True, False)
    """
    return any(re.fullmatch(pattern, option) for pattern, _ in _KEPT)


def write_options(folder: Path, counts: BuildOptionCounts) -> None:
    """Write the counts of a build's options beside its corpus.

    Raises:
        StorageError: the disk is full or not writable.
    """
    fields = {"format_version": OPTIONS_VERSION, **asdict(counts)}
    atomic_write(folder / OPTIONS_NAME, json.dumps(fields, indent=1) + "\n")


def read_options(folder: Path) -> BuildOptionCounts:
    """Read the counts of options beside a corpus; empty if there are none, as in a corpus from elsewhere.

    Raises:
        CorpusError: the file is damaged.
    """
    path = folder / OPTIONS_NAME
    if not path.exists():
        return BuildOptionCounts()
    remedy = "import again, or delete the file"
    fields = read_object(path, remedy)
    try:
        counts: BuildOptionCounts = decode(BuildOptionCounts, fields, "counts")
        is_known = fields.get("format_version") == OPTIONS_VERSION and {"commands", "left_out", "kept"} <= fields.keys()
    except InputError:
        counts, is_known = BuildOptionCounts(), False
    if not is_known:
        raise CorpusError(
            f"{path}: expected format_version {OPTIONS_VERSION}, a number 'commands', and objects 'left_out' and "
            f"'kept', found {fields!r:.200}; {remedy}"
        )
    return replace(counts, notes=counts.notes[:_MOST])


def level_of(command_line: Sequence[str]) -> str:
    """Find the optimization level of a ``-cc1`` command line.

    Example:
        >>> level_of(["-cc1", "-O2", "-Oz"]), level_of(["-cc1"])
        ('-Oz', '-O0')
    """
    return next((word for word in reversed(command_line) if _LEVEL.fullmatch(word)), "-O0")


def baseline_text(version: str, levels: Mapping[str, int]) -> str:
    """Describe the baseline: compiler, version, and optimization levels, the most frequent first.

    Example:
        >>> baseline_text("22.1.8", {"-Os": 1, "-Oz": 12})
        'clang 22.1.8 -Oz (12 modules), -Os (1 module)'
        >>> baseline_text("22.1.8", {"-Oz": 12})
        'clang 22.1.8 -Oz'
    """
    ordered = sorted(levels.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) < 2:
        return " ".join([f"clang {version}", *levels])
    named = ", ".join(f"{level} ({counted(count, 'module')})" for level, count in ordered)
    return f"clang {version} {named}"


def baseline_of(version: str, modules: Iterable[Module]) -> str:
    """Describe the baseline of modules for a clang of this version.

    The level of a link is that of its compile steps, which its own command does not have.
    """
    levels = ("-flto" if module.link_folder is not None else level_of(module.command_line) for module in modules)
    return baseline_text(version, Counter(levels))


def build_notes(folder: Path, modules: Iterable[Module]) -> tuple[str, ...]:
    """Collect the notes on a corpus's build: options left out or kept, and profiles that do not fit ``modules``.

    Raises:
        CorpusError: the file of option counts is damaged.
    """
    fits = [fit for module in modules if (fit := fit_of(module)) is not None]
    return (*read_options(folder).sentences(), *profile_sentences(fits))


def profile_sentences(fits: Sequence[ProfileFit]) -> tuple[str, ...]:
    """Describe profiles that do not fit their modules, given one fit for each module; empty if all fit."""
    mismatched, missing = sum(fit.mismatched for fit in fits), sum(fit.missing for fit in fits)
    if not mismatched and not missing:
        return ()
    touched = sum(bool(fit.mismatched or fit.missing) for fit in fits)
    sentence = (
        f"the profile is stale for {mismatched} functions whose control flow has changed, and lacks {missing} "
        f"functions, in {touched} of {len(fits)} modules; these are compiled without counts; renew the profile if "
        "there are many"
    )
    return (sentence,)


def warn_about_levels(modules: Sequence[Module], report: Report) -> None:
    """Report how many modules are not compiled for size, for training and evaluation of inlining policies."""
    count = sum(not module.is_for_size for module in modules)
    if count:
        note = (
            f"{count:,} of {len(modules):,} modules are not compiled for size (-Os or -Oz): the policy decides in "
            "them here, but a plugin does so only with MLGOKIT_ANY_LEVEL=1"
        )
        report(1, 1, note)
