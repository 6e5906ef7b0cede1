"""Trials of flags on a build of C and C++: made, tested, weighed, and remembered in a folder."""

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mlgokit.builds.rebuild import Rebuilder, Rebuilt
from mlgokit.compiler.objects.formats import file_totals
from mlgokit.compiler.wrapping import AddedOptions, WrappedCall
from mlgokit.decode import read_json
from mlgokit.errors import InputError
from mlgokit.files import atomic_write
from mlgokit.flags.record import Trial, trial_from_json
from mlgokit.flags.reviewed import Flag, is_present

PLAIN, WHOLE = "plain", "whole"
TRIALS = "trials"
"""Name of the folder of the trials; beside the record of the plain build, with which they go when that is made anew."""
ALREADY = "already there"


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
        """Build without any flag."""
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

        Raises:
            InputError: the file is damaged.
            StorageError: the disk is full or not writable.
        """
        path = self.path(key)
        if path.exists():
            value = read_json(path, expected="a trial", remedy="delete it: it is then made again")
            return trial_from_json(value, str(path))
        trial = make()
        atomic_write(path, json.dumps(dataclasses.asdict(trial), indent=1))
        return trial


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTrials:
    """Trials on a recorded build.

    Attributes:
        rebuilder: makes it again.
        store: keeps the trials.
        flags: the list.
        has_lld: whether there is a linker of LLVM beside the compiler.
        facts: what the plain build showed of the flags.
    """

    rebuilder: Rebuilder
    store: TrialStore
    flags: tuple[Flag, ...]
    has_lld: bool
    facts: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def has_passing_tests(self) -> bool:
        """Whether there are tests that pass on the plain build."""
        return self.rebuilder.recorded.tests == ""

    def make_plain(self) -> Trial:
        """Build without any flag, and note which flags the build has already."""
        path = self.store.folder / "facts.json"
        trial = self.store.load_or_make(PLAIN, lambda: self._make((), AddedOptions(), PLAIN, whole=False, facts=path))
        value = read_json(path, expected="what the plain build shows", remedy=f"delete {self.store.folder}")
        self.facts.update({str(name): str(reason) for name, reason in value.items()})
        return trial

    def list_excluded(self) -> dict[str, str]:
        """List the flags that are not to be tried, with the reasons, by name."""
        return self.facts

    def make(self, flags: Sequence[Flag], *, whole: bool = False, plugin: AddedOptions | None = None) -> Trial:
        """Build with flags, and with the options of ``plugin`` that load one; see :class:`Trials`."""
        added = options_of(flags)
        key = key_of(flags, whole=whole, plugin=plugin is not None)
        if plugin is not None:
            added = dataclasses.replace(
                plugin, compile=(*added.compile, *plugin.compile), link=(*added.link, *plugin.link)
            )
        return self.store.load_or_make(key, lambda: self._make(flags, added, key, whole=whole))

    def is_known(self, flags: Sequence[Flag]) -> bool:
        """Whether the trial of ``flags`` is in the folder."""
        return self.store.path(key_of(flags)).exists()

    def only_links(self, flags: Sequence[Flag]) -> bool:
        """Whether an earlier trial left the objects that the flags need."""
        return any(base.options == options_of(flags).compile for base in self.rebuilder.bases)

    def _make(
        self, flags: Sequence[Flag], added: AddedOptions, key: str, *, whole: bool, facts: Path | None = None
    ) -> Trial:
        """Rebuild with options, and run the tests; the plain build also writes the flags not to try to ``facts``."""
        began = time.monotonic()
        built = self.rebuilder.make(added, key, whole=whole)
        if facts is not None:
            atomic_write(facts, json.dumps(self._find_excluded(built), indent=1))
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

    def _find_excluded(self, plain: Rebuilt) -> dict[str, str]:
        """Find the flags that the build has already, and those that do not fit it; return reasons by name."""
        compilations = [call.words for call in plain.calls if call.kind != "link"]
        linking = [call for call in plain.calls if call.kind != "compile"]
        languages = {_language(path, call) for call in plain.calls for path in call.sources}
        links = [_link_words(call) for call in linking]
        lacks = {
            "one language": _unwinding_defect(languages, links),
            "C++": "" if "c++" in languages else "the build has no C++",
            "executables": _export_defect(links),
            "debug information": "" if any(_has_debug(words) for words in compilations) else "the build has none",
            "": "",
        }
        found: dict[str, str] = {}
        strongest: dict[str, int] = {}
        for index, flag in enumerate(self.flags):
            if is_present(flag, compilations, links):
                found[flag.name] = ALREADY
                strongest[flag.group] = index
            elif reason := lacks[flag.needs]:
                found[flag.name] = reason
            elif not self.has_lld and any("lld" in word for word in flag.link):
                found[flag.name] = "there is no ld.lld beside the compiler"
        for index, flag in enumerate(self.flags):
            if flag.group and flag.name not in found and index < strongest.get(flag.group, -1):
                found[flag.name] = f"the build has {self.flags[strongest[flag.group]].text}"
        return found


def options_of(flags: Sequence[Flag]) -> AddedOptions:
    """Merge the options of flags to those of compilations and of links, each option once.

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


def key_of(flags: Sequence[Flag], *, whole: bool = False, plugin: bool = False) -> str:
    """Name a trial by its flags, and by whether it is a whole build and loads a plugin."""
    names = [*([WHOLE] if whole else []), *(flag.name for flag in flags), *(["policies"] if plugin else [])]
    return "+".join(names) or PLAIN


def _group_options(options: Sequence[str]) -> list[tuple[str, ...]]:
    """Group words to options: ``-Xclang`` with the word that follows it, any other word alone."""
    found: list[tuple[str, ...]] = []
    for option in options:
        if found and found[-1] == ("-Xclang",):
            found[-1] = ("-Xclang", option)
        else:
            found.append((option,))
    return found


def _language(path: Path, call: WrappedCall) -> str:
    """Find the language as which a call compiles a source; standard input is C unless the compiler is for C++."""
    if "++" in call.name:
        return "c++"
    return "c" if path.suffix in {".c", ".i"} or path.name == "-" else "c++"


def _link_words(call: WrappedCall) -> list[str]:
    """Make the words of a link those of a compiler driver: options of a linker that was called itself get ``-Wl,``."""
    if "++" in call.name or not (call.name.startswith("ld") or call.name.endswith(("-ld", "ld.lld", "ld.bfd"))):
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
    return not {"-shared", "-Wl,-shared", "-Wl,--shared"}.isdisjoint(words)


def _export_defect(links: Sequence[Sequence[str]]) -> str:
    """Say why a build's symbols must stay visible to other files; empty if it links executables without exports."""
    if any(_is_shared(words) for words in links):
        return "the build links shared libraries"
    # `-Wl,-E` may stand among others behind one comma.
    exported = {"-rdynamic", "-E", "--export-dynamic", "-export-dynamic"}
    if any(part in exported for words in links for word in words for part in word.removeprefix("-Wl,").split(",")):
        return "a program exports its symbols to what it loads"
    return ""


def _has_debug(words: Sequence[str]) -> bool:
    return any(word.startswith("-g") and word != "-g0" for word in words)


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
