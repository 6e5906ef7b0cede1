"""The calls of a wrapped build that belong to the project, the current paths of their objects, and why others do not.

After a configure script's test compilation, neither its source nor any output is left. A source that the build
generates and removes differs from that: its object still exists, under its own or another name or in a static library,
or was linked into a file that exists.
"""

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlgokit.compiler.build_tree import files_below, is_check
from mlgokit.compiler.objects.archive import is_archive, read_members
from mlgokit.compiler.source_texts import content_of
from mlgokit.compiler.wrapping import Content, WrappedBuild, WrappedCall
from mlgokit.errors import InputError

_MOST_NAMED, _MOST_SHOWN = 3, 120
_ARCHIVES = (".a", ".lib")
TRIED = "source and object no longer exist, as with checks of a configure script"
CHECKED = "the build system compiled it to identify the compiler"
"""These two are why compilations are left out that no program needs."""
_AGAIN = "a later call made its output again"
_FOREIGN = "it compiles for another machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A compilation that is left out, with the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectCalls:
    """The calls of a build, separated into those of the project and others.

    Attributes:
        calls: compilations and links of the project, in order, with the current paths of their outputs. A call that
            compiles several sources counts once for each; failed calls are included if their inputs exist.
        left_out: other compilations; each source of a call is one.
    """

    calls: tuple[WrappedCall, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def compilations(self) -> int:
        """How many sources the calls compile."""
        return sum(len(call.sources) for call in self.calls)

    @property
    def seen(self) -> int:
        """How many compilations the wrappers recorded, with those that are left out."""
        return self.compilations + len(self.left_out)


def group_by_reason(left_out: Sequence[LeftOut]) -> dict[str, str]:
    """Group left-out compilations by reason: the first names of each group, then its reason.

    Example:
        >>> gone = [LeftOut(name=f"{name}.c", reason="it is gone") for name in "abcde"]
        >>> group_by_reason([*gone, LeftOut(name="f.c", reason="it failed")])
        {'a.c, b.c, c.c and 2 more': 'it is gone', 'f.c': 'it failed'}
    """
    found: dict[str, str] = {}
    for reason in dict.fromkeys(one.reason for one in left_out):
        names = [one.name for one in left_out if one.reason == reason]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        shown = ", ".join(names[:_MOST_NAMED]) + more
        found[f"{shown} ({len(found) + 1})" if shown in found else shown] = reason
    return found


def project_calls(build: WrappedBuild, tree: Path) -> ProjectCalls:
    """Separate the calls of a build into those of the project and others.

    rustc removes all that it linked, except for the program.

    Args:
        build: a build that has ended.
        tree: the folder where it ran.
    """
    finder = _Finder(build=build, tree=tree)
    calls: list[WrappedCall] = []
    left_out: list[LeftOut] = []
    # From the end: what a call made is used by later ones.
    for call in reversed([part for whole in build.every_call for part in _split_by_object(whole)]):
        reason = finder.reason(call)
        if call.kind == "other" or (reason and call.kind == "link"):
            continue
        if not reason:
            calls.append(finder.update_outputs(call))
            continue
        names = [shown_path(path, tree) for path in call.sources]
        if call.kind == "unread":
            names = [" ".join([call.name, *call.words])[:_MOST_SHOWN]]
        left_out += [LeftOut(name=name, reason=reason) for name in reversed(names)]
    return ProjectCalls(calls=tuple(reversed(calls)), left_out=tuple(reversed(left_out)))


@dataclass(slots=True, kw_only=True)
class _Finder:
    """Finds what became of outputs, call by call from the last one.

    Attributes:
        build: the build.
        tree: folder of the build.
        used: inputs of later calls of the project, except for those that were made again in between.
        made: outputs of later calls.
        files: files below the folder that no call names as its output, by content; ``None`` before they are indexed.
        members: number of objects in static libraries by content.
        found: current paths of outputs under other names, for the call last given to :meth:`reason`.
    """

    build: WrappedBuild
    tree: Path
    used: set[Path] = field(default_factory=set[Path])
    made: set[Path] = field(default_factory=set[Path])
    files: dict[Content, list[Path]] | None = None
    members: Counter[Content] = field(default_factory=Counter[Content])
    found: dict[Path, Path] = field(default_factory=dict[Path, Path])

    def reason(self, call: WrappedCall) -> str:
        """Say why a call does not belong to the project; empty if it does. Calls must be passed in reverse order."""
        self.found = {}
        if reason := _intrinsic_reason(call, self.tree):
            return reason
        if call.code:
            return ""
        was_used = not self.used.isdisjoint(call.outputs)
        is_there = self._has_output(call)
        self.used.difference_update(call.outputs)
        self.made.update(call.outputs)
        if is_there or was_used:
            self.used.update(call.inputs)
            return ""
        if any(path.is_file() for path in call.outputs):
            return _AGAIN
        if call.kind in {"link", "other"} or not all(path.is_file() for path in call.sources):
            return TRIED
        written = [path for path in call.outputs if path.exists() or path.name == "-"]
        return f"its output is discarded ({written[0]})" if written else ""

    def update_outputs(self, call: WrappedCall) -> WrappedCall:
        """Replace the outputs of the call that was last passed to :meth:`reason` by their current paths."""
        return replace(call, outputs=tuple(self.found.get(path, path) for path in call.outputs))

    def _has_output(self, call: WrappedCall) -> bool:
        """Whether any output of a call still exists."""
        found = False
        for index, path in enumerate(call.outputs):
            if path.is_file() and (call.kind == "link" or path not in self.made):
                found = True
            elif index < len(call.contents) and (content := call.contents[index]) is not None:
                found = self._claim_file(path, content) or found
        return found

    def _claim_file(self, path: Path, content: Content) -> bool:
        """Whether a file with the content of an output exists under another name; it then belongs to this output."""
        if self.files is None:
            self.files = self._read_files()
        if self.files.get(content):
            self.found[path] = self.files[content].pop(0)
            return True
        if self.members[content]:
            self.members[content] -= 1
            return True
        return False

    def _read_files(self) -> dict[Content, list[Path]]:
        """Index files by content that are as large as some compiled object; count members of static libraries."""
        contents = [one for call in self.build.calls for one in call.contents if one is not None]
        sizes = {size for size, _ in contents}
        named = {path for call in self.build.every_call for path in call.outputs}
        found: dict[Content, list[Path]] = {}
        for path in sorted(files_below(self.tree)):
            try:
                size = path.stat().st_size
            except OSError:
                continue
            if path.suffix in _ARCHIVES and is_archive(path):
                self._read_archive(path, sizes)
            elif size in sizes and path not in named and (content := content_of(path)) is not None:
                found.setdefault(content, []).append(path)
        return found

    def _read_archive(self, path: Path, sizes: set[int]) -> None:
        """Count the members of a static library that have one of these sizes, by content."""
        try:
            for member in read_members(path):
                if member.size in sizes:
                    self.members[member.size, zlib.crc32(member.data())] += 1
        except InputError:
            return


def _split_by_object(call: WrappedCall) -> list[WrappedCall]:
    """Split a compilation into a call for each of its objects, whose paths may change separately."""
    if call.kind != "compile" or call.code or len(call.sources) < 2 or len(call.outputs) != len(call.sources):
        return [call]
    return [
        replace(
            call,
            sources=call.sources[index : index + 1],
            outputs=call.outputs[index : index + 1],
            contents=call.contents[index : index + 1],
            texts=call.texts[index : index + 1],
        )
        for index in range(len(call.sources))
    ]


def _intrinsic_reason(call: WrappedCall, tree: Path) -> str:
    """Say why a call does not belong to the project, as far as the call itself tells; empty if nothing excludes it."""
    if call.kind == "foreign":
        return _FOREIGN
    if call.kind == "unread":
        return f"its words are in a response file that is not understood: {call.errors}"
    if any(is_check(path, tree) for path in call.outputs):
        return CHECKED
    if call.code and not all(path.exists() for path in call.inputs):
        return f"it failed, and is gone: {call.reason}"
    return ""


def shown_path(path: Path, tree: Path) -> str:
    """Show a path relative to ``tree`` if it is below it, else the whole path."""
    return path.relative_to(tree).as_posix() if path.is_relative_to(tree) else str(path)
