"""A user's project as a search sees it, whatever it came from, and what its own build shows of a plugin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mlgokit.builds.measurement import Comparison, Measure
from mlgokit.builds.variant import PluginPlace
from mlgokit.module import Module


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePlugin:
    """A plugin that was verified and is not published yet.

    Attributes:
        file: where it is now.
        output: the name that was asked for.
        published: the name with a digest, which builds will load.
    """

    file: Path
    output: Path
    published: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a build shows when it is made with the plugin that is to be published.

    Attributes:
        judged: bytes of the linked image, plainly and with the plugin, if the build is a link.
        flag: what to add to the build so that it loads the plugin; empty for the usual option of clang.
        programs: by name, bytes of each program, plainly and with the plugin.
        notes: a sentence each.
    """

    judged: Comparison | None = None
    flag: str = ""
    programs: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    notes: tuple[str, ...] = ()


class Build(Protocol):
    """A user's project: the modules that are searched, and how the whole is judged and proved.

    A corpus (:mod:`mlgokit.builds.corpus`), a link with link-time optimization (:mod:`mlgokit.builds.lto`) and a cargo
    build (:mod:`mlgokit.builds.cargo`) are one.
    """

    @property
    def modules(self) -> Sequence[Module]:
        """What is compiled, in link order."""
        ...

    @property
    def left_out(self) -> Mapping[str, str]:
        """What belongs to the project and is not compiled here, with the reason."""
        ...

    @property
    def inputs(self) -> Mapping[str, str]:
        """Digests of what a search depends on."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the build, a sentence each."""
        ...

    @property
    def measure(self) -> Measure | None:
        """The link or command that judges; ``None`` if the account of the objects does."""
        ...

    @property
    def plugin_place(self) -> PluginPlace:
        """The steps of the build that load the plugin."""
        ...

    def prove(self, candidate: CandidatePlugin, folder: Path) -> Proof:
        """Make the build with a plugin before that is published; ``folder`` is for what is made meanwhile.

        Raises:
            RejectedError: a test fails with it.
            ToolError: the build fails with it, or is larger.
        """
        ...
