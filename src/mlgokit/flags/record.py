"""What trials of flags found: a trial, a flag with its verdict, and the advice with all of them."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from mlgokit.builds.images import BuiltImage
from mlgokit.decode import check_format, decode
from mlgokit.flags.reviewed import Counts

FORMAT, FORMAT_VERSION = "mlgokit advice", 1
State = Literal["smaller", "no smaller", "already there", "not tried", "does not build", "fails the tests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A build that was made with some flags.

    Attributes:
        flags: their names, in the order in which they were added.
        reason: why the build failed; empty for success.
        tests: why the tests fail, empty if they do not; ``None`` if they did not run.
        files: by name of the program, bytes of the whole file.
        folders: by folder of the sources, bytes of their objects; empty where these are bitcode or not known.
        compile_seconds: processor time of the compilations, as ``link_seconds`` of the links.
        wall_seconds: elapsed time, with the tests.
    """

    flags: tuple[str, ...]
    reason: str
    tests: str | None
    programs: dict[str, BuiltImage]
    files: dict[str, int]
    folders: dict[str, int]
    compile_seconds: float
    link_seconds: float
    wall_seconds: float

    @property
    def works(self) -> bool:
        """Whether the build succeeds with the flags, and no test fails."""
        return not self.reason and not self.tests

    def count(self, counts: Counts) -> int:
        """Count the bytes of all programs: what is loaded (code, constants, unwind tables, data), or whole files."""
        return sum(one.flash for one in self.programs.values()) if counts == "loaded" else sum(self.files.values())

    @property
    def seconds(self) -> float:
        """Processor time of compilations and links."""
        return self.compile_seconds + self.link_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedFlag:
    """A flag of the list, with its options as text, its cost in words, and the build with it alone.

    Attributes:
        counts: which bytes it is for.
        reason: why it was not tried or does not work.
        saved: bytes of all programs that it saves alone; negative if they grow.
    """

    name: str
    text: str
    cost: str
    counts: Counts
    state: State
    reason: str = ""
    trial: Trial | None = None
    saved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A flag on top of those that were kept before it: the bytes that it saves, and why it does not stay."""

    flag: str
    counts: Counts
    saved: int
    kept: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildLine:
    """What adds the recommended flags to a build: a line or several of a build system."""

    system: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagAdvice:
    """What free flags give a build.

    Attributes:
        build: the commands of the build.
        flags: of the list, in its order.
        steps: of the combination, in the order in which they were tried.
        advised: names of the recommended flags, whose options are ``compile`` and ``link``.
        advised_build: the whole build with them, made from its sources by all of its commands; ``None`` without any.
        line: what to add to this build, in words; ``lines`` are the same for each build system.
        shipped: the build with the policies of the package on top; ``None`` if it was not made.
        shipped_reason: why it was not made, or is not recommended.
        shipped_line: what adds them, and all that is advised, to this build.
        tune: the command that tunes the build.
        tests: whether tests judged, in words.
        notes: what else one has to know, a sentence each.
        baseline: what compiled the build, in words.
        command: what was typed.
        toolchain: tool name -> version.
        report: path of the page.
    """

    build: tuple[str, ...]
    plain: Trial
    flags: tuple[TriedFlag, ...]
    steps: tuple[Step, ...]
    advised: tuple[str, ...]
    advised_build: Trial | None
    compile: tuple[str, ...]
    link: tuple[str, ...]
    line: str
    lines: tuple[BuildLine, ...]
    shipped: Trial | None = None
    shipped_name: str = ""
    shipped_reason: str = ""
    shipped_line: str = ""
    shipped_compile: tuple[str, ...] = ()
    shipped_link: tuple[str, ...] = ()
    tune: str = ""
    tests: str = ""
    notes: tuple[str, ...] = ()
    baseline: str = ""
    wall_seconds: float = 0.0
    command: str = ""
    mlgokit_version: str = ""
    toolchain: dict[str, str] = field(default_factory=dict[str, str])
    report: str = ""

    def to_json(self) -> dict[str, Any]:
        """Convert the advice to plain JSON values."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, value: object) -> "FlagAdvice":
        """Decode what :meth:`to_json` encoded; unknown keys are ignored.

        Raises:
            InputError: the value has another format or version, lacks a key, or has a value of another type.
        """
        given = check_format(value, FORMAT, FORMAT_VERSION, where="advice", remedy="run mlgokit advise again")
        return decode(cls, given, "advice")
