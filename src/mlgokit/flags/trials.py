"""Trials of flags on a build of C and C++: made, tested, weighed, and remembered in a folder."""

import dataclasses
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mlgokit.builds.lines import PREFIXES
from mlgokit.builds.rebuild import Rebuilder, Rebuilt
from mlgokit.builds.variant import with_options
from mlgokit.compiler.driver_call import LINKER
from mlgokit.compiler.objects.formats import file_totals
from mlgokit.compiler.wrapping import AddedOptions, WrappedCall
from mlgokit.decode import decode, read_json
from mlgokit.errors import InputError
from mlgokit.files import atomic_write
from mlgokit.flags.record import Trial
from mlgokit.flags.reviewed import Flag, is_present, split_linker_words
from mlgokit.manifest import digest_value
from mlgokit.module import architecture_of

PLAIN, WHOLE = "plain", "whole"
"""Keys of trials: of the build without flags, and of one by all commands of the build."""
TRIALS = "trials"
"""Name of the folder of the trials. It is beside the record of the plain build, and is deleted when that is renewed."""
ALREADY = "already there"
"""Why a flag is not tried that the build has."""
_DEBUG = re.compile(r"-g(?:[0-3]|gdb[0-3]?|dwarf(?:-\d)?|line-tables-only|line-directives-only|mlt|full)?")
"""Options that switch debug information on or off; the last one counts."""


class Trials(Protocol):
    """How builds with flags are made, whatever compiles them."""

    @property
    def flags(self) -> Sequence[Flag]:
        """The flags to try."""
        ...

    @property
    def has_passing_tests(self) -> bool:
        """Whether there are tests that pass on the plain build."""
        ...

    def make_plain(self) -> Trial:
        """Build without any flag. This comes before all else: it finds what is excluded, and whether tests pass."""
        ...

    def list_excluded(self) -> dict[str, str]:
        """List the flags that are not to be tried, with the reasons, by name; :data:`ALREADY` if the build has one."""
        ...

    def make(self, flags: Sequence[Flag], *, whole: bool = False) -> Trial:
        """Build with flags in this order; with ``whole`` by all commands of the build from its sources."""
        ...

    def is_known(self, flags: Sequence[Flag]) -> bool:
        """Whether the trial of ``flags`` is stored, so that :meth:`make` builds nothing."""
        ...

    def only_links(self, flags: Sequence[Flag]) -> bool:
        """Whether :meth:`make` has the objects already, and only links."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStore:
    """Trials in files of a folder, one each."""

    folder: Path

    def path(self, key: str) -> Path:
        """Make the path of a trial's file."""
        return self.folder / f"{key}.json"

    def load_or_make(self, key: str, make: Callable[[], Trial]) -> Trial:
        """Load the trial of a key from its file; if there is none, make the trial and store it.

        A plain build that failed is not stored: the next run tries it again.

        Raises:
            InputError: the file is damaged.
            StorageError: the disk is full or not writable.
        """
        path = self.path(key)
        if path.exists():
            value = read_json(path, expected="a trial", remedy="delete it: it is then made again")
            return decode(Trial, value, str(path))
        trial = make()
        if key != PLAIN or not trial.reason:
            atomic_write(path, json.dumps(dataclasses.asdict(trial), indent=1))
        return trial

    def load_or_make_plain(self, make: Callable[[Path], Trial]) -> tuple[Trial, dict[str, str]]:
        """Load or make the plain build, and load the facts about it, which ``make`` writes to a path.

        Raises:
            InputError: a file is damaged.
            StorageError: the disk is full or not writable.
        """
        path = self.folder / "facts.json"
        trial = self.load_or_make(PLAIN, lambda: make(path))
        facts = read_json(path, expected="what the plain build shows", remedy=f"delete {self.folder}")
        return trial, {str(name): str(reason) for name, reason in facts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTrials:
    """Trials on a recorded build; the plain one fills ``excluded``, why flags are not tried by their names.

    ``has_lld`` says whether there is a linker of LLVM beside the compiler.
    """

    rebuilder: Rebuilder
    store: TrialStore
    flags: tuple[Flag, ...]
    has_lld: bool
    excluded: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def has_passing_tests(self) -> bool:
        """Whether there are tests that pass on the plain build."""
        return self.rebuilder.recorded.tests == ""

    def make_plain(self) -> Trial:
        """Build without any flag, and note which flags the build has already, or does not fit."""
        trial, excluded = self.store.load_or_make_plain(
            lambda path: self._make((), AddedOptions(), PLAIN, whole=False, excluded=path)
        )
        self.excluded.update(excluded)
        return trial

    def list_excluded(self) -> dict[str, str]:
        """List the flags that are not to be tried, with the reasons, by name."""
        return self.excluded

    def make(self, flags: Sequence[Flag], *, whole: bool = False, plugin: AddedOptions | None = None) -> Trial:
        """Build with flags, and with the options of ``plugin`` that load one; see :class:`Trials`."""
        added = options_of(flags)
        key = key_of(flags, whole=whole, plugin=plugin)
        if plugin is not None:
            added = with_options(plugin, added)
        return self.store.load_or_make(key, lambda: self._make(flags, added, key, whole=whole))

    def is_known(self, flags: Sequence[Flag]) -> bool:
        """Whether the trial of ``flags`` is in the folder."""
        return self.store.path(key_of(flags)).exists()

    def only_links(self, flags: Sequence[Flag]) -> bool:
        """Whether an earlier trial left the objects that the flags need."""
        return any(base.options == options_of(flags).compile for base in self.rebuilder.bases)

    def _make(
        self, flags: Sequence[Flag], added: AddedOptions, key: str, *, whole: bool, excluded: Path | None = None
    ) -> Trial:
        """Rebuild with options, and run the tests; the plain build writes the flags not to try to ``excluded``."""
        began = time.monotonic()
        built = self.rebuilder.make(added, key, whole=whole)
        if excluded is not None:
            atomic_write(excluded, json.dumps(find_excluded(self.flags, built.calls, has_lld=self.has_lld), indent=1))
        folders = _folder_bytes(built, self.rebuilder.recorded.tree)
        tests = self.rebuilder.test(added, key) if self.has_passing_tests and not built.reason else None
        return Trial(
            flags=tuple(flag.name for flag in flags),
            reason=built.reason,
            tests=tests,
            programs=built.programs,
            files=built.files,
            folders=folders,
            compile_seconds=built.compile_seconds,
            link_seconds=built.link_seconds,
            wall_seconds=time.monotonic() - began,
        )


def find_excluded(flags: Sequence[Flag], calls: Sequence[WrappedCall], *, has_lld: bool) -> dict[str, str]:
    """Find the flags that a build with these calls has already, and those that do not fit it; return reasons by name.

    Of the flags of one group, each is weaker than the next.
    """
    compilations = [call.words for call in calls if call.kind != "link"]
    links = [split_linker_words(_driver_words(call)) for call in calls if call.kind != "compile"]
    languages = {"c++" if "c++" in language else "c" for call in calls for language in call.languages}
    architectures = {architecture_of(call.target) for call in calls}
    lacks = {
        "one language": _unwinding_defect(languages, links),
        "C++": "" if "c++" in languages else "the build has no C++",
        "executables": _export_defect(links),
        "debug information": "" if any(_has_debug(words) for words in compilations) else "the build has none",
        "RISC-V": _target_defect(architectures, "riscv", "RISC-V"),
        "WebAssembly": _target_defect(architectures, "wasm", "WebAssembly"),
        "": "",
    }
    found: dict[str, str] = {}
    for flag in flags:
        if is_present(flag, compilations, links):
            found[flag.name] = ALREADY
        elif reason := lacks[flag.needs]:
            found[flag.name] = reason
        elif not has_lld and any("lld" in word for word in flag.link):
            found[flag.name] = "there is no ld.lld beside the compiler"
    return found | find_weaker_flags(flags, found)


def _target_defect(architectures: Iterable[str], prefix: str, name: str) -> str:
    return "" if any(one.startswith(prefix) for one in architectures) else f"the build is not for {name}"


def find_weaker_flags(flags: Sequence[Flag], excluded: Mapping[str, str]) -> dict[str, str]:
    """Find the flags of whose group a build has a stronger one; return reasons by name.

    Of the flags of one group, each is weaker than the next. Those that the build has are ``excluded`` as
    :data:`ALREADY`.
    """
    found: dict[str, str] = {}
    stronger: dict[str, Flag] = {}
    for flag in reversed(flags):
        if excluded.get(flag.name) == ALREADY:
            stronger.setdefault(flag.group, flag)
        elif flag.group in stronger and flag.group and flag.name not in excluded:
            found[flag.name] = f"the build has {stronger[flag.group].text}"
    return found


def options_of(flags: Sequence[Flag]) -> AddedOptions:
    """Merge the options of flags into those of compilations and those of links, each option once.

    Example:
        >>> from mlgokit.flags.reviewed import FLAGS
        >>> found = options_of([flag for flag in FLAGS if flag.name in {"gc-sections", "icf-safe"}])
        >>> found.compile, found.link
        (('-ffunction-sections', '-fdata-sections'), ('-Wl,--gc-sections', '-fuse-ld=lld', '-Wl,--icf=safe'))
    """
    words: dict[tuple[str, ...], None] = {}
    for flag in flags:
        words |= dict.fromkeys(_group_options(flag.compile))
    compile_options = tuple(word for unit in words for word in unit)
    link_options = tuple(dict.fromkeys(word for flag in flags for word in flag.link))
    return AddedOptions(compile=compile_options, link=link_options)


def key_of(flags: Sequence[Flag], *, whole: bool = False, plugin: AddedOptions | None = None) -> str:
    """Name a trial by its flags, by whether it is a whole build, and by the options that load a plugin."""
    names = [*([WHOLE] if whole else []), *(flag.name for flag in flags)]
    names += [] if plugin is None else [name_policies(plugin.compile)]
    return "+".join(names) or PLAIN


def name_policies(options: Sequence[str]) -> str:
    """Name the policies of the package by the options that load them; other versions have others in their plugin."""
    return f"policies-{digest_value(list(options))[:8]}"


def _group_options(options: Sequence[str]) -> list[tuple[str, ...]]:
    """Group words to options: ``-Xclang`` and ``-mllvm`` with the word that follows, any other word alone."""
    found: list[tuple[str, ...]] = []
    for option in options:
        if found and len(found[-1]) == 1 and found[-1][0] in PREFIXES:
            found[-1] = (*found[-1], option)
        else:
            found.append((option,))
    return found


def _driver_words(call: WrappedCall) -> list[str]:
    """Make the words of a link those of a compiler driver: options of a linker that was called itself get ``-Wl,``."""
    if re.fullmatch(LINKER, call.name) is None:
        return list(call.words)
    return [str(call.program), *(f"-Wl,{word}" if word.startswith("-") else word for word in call.words)]


def _unwinding_defect(languages: Collection[str], links: Sequence[Sequence[str]]) -> str:
    """Say why C code may need unwind tables, which exceptions pass through; empty if it needs none."""
    if len(languages) > 1:
        return "exceptions of the build's C++ could not pass through its C"
    if "c" in languages and any(_is_shared(words) for words in links):
        return "exceptions of C++ programs could not pass through its shared libraries in C"
    return ""


def _is_shared(words: Sequence[str]) -> bool:
    return not {"-shared", "--shared", "-Bshareable"}.isdisjoint(word.removeprefix("-Wl,") for word in words)


def _export_defect(links: Sequence[Sequence[str]]) -> str:
    """Say why a build's symbols must stay visible to other files; empty if it links executables without exports."""
    if any(_is_shared(words) for words in links):
        return "the build links shared libraries"
    exported = {"-rdynamic", "-E", "--export-dynamic", "-export-dynamic"}
    if any(word.removeprefix("-Wl,") in exported for words in links for word in words):
        return "a program exports its symbols to what it loads"
    return ""


def _has_debug(words: Sequence[str]) -> bool:
    levels = [word for word in words if _DEBUG.fullmatch(word)]
    return bool(levels) and not levels[-1].endswith("0")


def _folder_bytes(built: Rebuilt, tree: Path) -> dict[str, int]:
    """Sum the bytes of code, constants and data of objects by folder of their sources; of LTO's objects nothing."""
    found: Counter[str] = Counter()
    for call in built.calls:
        if call.kind != "compile" or len(call.sources) != 1 or len(call.outputs) != 1:
            continue
        folder = call.sources[0].parent
        try:
            totals = file_totals(call.outputs[0])
        except InputError:
            continue
        found[folder.relative_to(tree).as_posix() if folder.is_relative_to(tree) else str(folder)] += (
            totals.llvm_size_text + totals.data
        )
    return dict(found)
