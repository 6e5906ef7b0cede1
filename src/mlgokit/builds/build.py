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
    """A plugin that was verified and is not published yet: its current path, and those asked for and with a digest."""

    file: Path
    output: Path
    published: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of making a build with the plugin that is to be published.

    Attributes:
        judged: bytes of the linked image without and with the plugin, if the build is a link.
        flag: what to add to the build so that it loads the plugin; empty for the usual option of clang.
        programs: bytes of each program without and with the plugin, by name.
        notes: notes for the user, a sentence each.
    """

    judged: Comparison | None = None
    flag: str = ""
    programs: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    notes: tuple[str, ...] = ()


class Build(Protocol):
    """A user's project: the modules that are searched, and how the whole is judged and proved.

    A corpus (:mod:`mlgokit.builds.corpus`), a link with link-time optimization (:mod:`mlgokit.builds.lto`) and a cargo
    build (:mod:`mlgokit.builds.cargo`) are such builds.
    """

    @property
    def modules(self) -> Sequence[Module]:
        """The modules that are compiled, in link order."""
        ...

    @property
    def left_out(self) -> Mapping[str, str]:
        """Reasons by name for the modules and sources of the project that are not compiled here."""
        ...

    @property
    def inputs(self) -> Mapping[str, str]:
        """Digests of the files that a search depends on."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the build for the user, a sentence each."""
        ...

    @property
    def measure(self) -> Measure | None:
        """The link or command that judges the search; ``None`` if the summed bytes of objects do."""
        ...

    @property
    def plugin_place(self) -> PluginPlace:
        """The steps of the build that load the plugin."""
        ...

    def prove(self, candidate: CandidatePlugin, folder: Path) -> Proof:
        """Make the build with a plugin before the plugin is published; ``folder`` is for temporary files.

        Raises:
            RejectedError: a test fails with the plugin.
            ToolError: the build fails with the plugin, or is larger.
        """
        ...
