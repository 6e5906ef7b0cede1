"""A recorded build made again with options added, from as late a step as its own commands allow.

Leading commands that compile no object of the build configure it, so their tree is kept and copied for each rebuild.
Where only options of links differ from an earlier rebuild, its tree is copied without what it linked, and the build's
own commands link again.
"""

import contextlib
import dataclasses
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.builds.compression import Compressor
from mlgokit.builds.images import LINKED, BuiltImage
from mlgokit.builds.recorded import RecordedBuild, weigh_program
from mlgokit.builds.site import copies_of, fresh_tree, run_step
from mlgokit.compiler.project_calls import project_calls
from mlgokit.compiler.wrapping import AddedOptions, WrappedBuild, WrappedCall
from mlgokit.errors import UsageError
from mlgokit.files import writing

_NONE = AddedOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A rebuild.

    Attributes:
        reason: why it failed; empty for success.
        programs: by name, what they weigh; none of a build that failed.
        files: by name, bytes of the whole file.
        calls: compilations and links of the project; of a rebuild that only links, little else than links.
        compile_seconds: processor time of all compilations, also of those of an earlier rebuild that were reused.
        link_seconds: processor time of the links.
        wall_seconds: elapsed time.
    """

    reason: str
    programs: dict[str, BuiltImage]
    files: dict[str, int]
    calls: tuple[WrappedCall, ...]
    compile_seconds: float
    link_seconds: float
    wall_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """A tree whose objects were compiled with these options, which took ``seconds`` of processor time."""

    options: tuple[str, ...]
    tree: Path
    seconds: float


@dataclass(slots=True, kw_only=True)
class Rebuilder:
    """Makes a recorded build again at its place; open it with :func:`open_rebuilder`.

    Attributes:
        recorded: the plain build.
        compressor: strips programs, to weigh their files; without one their size is 0.
        start: what is copied to the place of the tree for a rebuild; ``None`` before the first.
        configured: how many commands of the build ``start`` contains.
        bases: trees that can be linked again.
    """

    recorded: RecordedBuild
    compressor: Compressor | None
    start: Path | None = None
    configured: int = 0
    bases: list[_Base] = dataclasses.field(default_factory=list[_Base])

    def make(self, added: AddedOptions, name: str, *, whole: bool = False) -> Rebuilt:
        """Build again, with a log of this name, and weigh the programs; the tree stays until the next rebuild.

        With ``whole`` all commands run from the sources, as those of a user who adds the options to the build.

        Raises:
            StorageError: the disk is full or not writable.
            ToolError: a command cannot be started.
        """
        if whole:
            return self._build(self._copies_folder / "source", 0, added, name)
        start = self.start or self._configure()
        for base in self.bases:
            if base.options == added.compile and (done := self._link(base, added, name)) is not None:
                return done
        done = self._build(start, self.configured, added, name)
        if not done.reason:
            kept = self._copies_folder / ("compiled" if added.compile else "plain")
            self.bases = [base for base in self.bases if base.tree != kept]
            _copy(self.recorded.tree, kept)
            self.bases.append(_Base(options=added.compile, tree=kept, seconds=done.compile_seconds))
        return done

    def test(self, added: AddedOptions, name: str) -> str:
        """Run the tests on the build that was made last, and say why they fail; empty if they pass.

        Raises:
            StorageError: the disk is full or not writable.
            ToolError: a command cannot be started.
        """
        return run_step(self.recorded.site, "test", name, added).reason

    @property
    def _copies_folder(self) -> Path:
        return copies_of(self.recorded.tree)

    def _configure(self) -> Path:
        """Find the leading commands that compile nothing of the build, and keep the tree that they leave."""
        tree, commands = self.recorded.tree, self.recorded.site.commands.build
        self.start = self._copies_folder / "source"
        _copy(self.start, tree)
        for count in range(1, len(commands)):
            build = self._run(commands[count - 1 : count], _NONE, "configure")
            made = {str(path) for call in project_calls(build, tree).calls for path in call.outputs}
            if build.reason or not made.isdisjoint(self.recorded.objects):
                break
            self.start = self._copies_folder / "configured"
            _copy(tree, self.start)
            self.configured = count
        return self.start

    def _build(self, start: Path, configured: int, added: AddedOptions, name: str) -> Rebuilt:
        """Copy ``start``, in which the first commands have run, and run the others."""
        tree = self.recorded.tree
        _copy(start, tree)
        build = self._run(self.recorded.site.commands.build[configured:], added, name)
        calls = project_calls(build, tree).calls
        seconds = sum(call.user_seconds for call in calls if call.kind != "link")
        return self._weigh(build, calls, seconds)

    def _link(self, base: _Base, added: AddedOptions, name: str) -> Rebuilt | None:
        """Link again what an earlier rebuild compiled; ``None`` if its commands do not link all programs again.

        A script may not run a second time in the same tree, so that a failure says nothing of the options.
        """
        tree = self.recorded.tree
        _copy(base.tree, tree)
        with writing(tree):
            for path in self.recorded.links:
                if path.is_relative_to(tree):
                    path.unlink(missing_ok=True)
        build = self._run(self.recorded.site.commands.build[self.configured :], added, name)
        calls = project_calls(build, tree).calls
        linked = {path for call in calls if call.kind != "compile" for path in call.outputs}
        if build.reason or not linked.issuperset(self.recorded.programs().values()):
            return None
        return self._weigh(build, calls, base.seconds)

    def _run(self, commands: Sequence[str], added: AddedOptions, name: str) -> WrappedBuild:
        site = self.recorded.site
        rest = dataclasses.replace(site, commands=dataclasses.replace(site.commands, build=tuple(commands)))
        return run_step(rest, "build", name, added)

    def _weigh(self, build: WrappedBuild, calls: tuple[WrappedCall, ...], compile_seconds: float) -> Rebuilt:
        programs: dict[str, BuiltImage] = {}
        files: dict[str, int] = {}
        reason = build.reason
        for name, path in self.recorded.programs().items() if not reason else ():
            programs[name] = weigh_program(path, self.compressor)
            if programs[name].status != LINKED:
                reason = f"{name}: {programs[name].reason}"
                break
            files[name] = path.stat().st_size
        return Rebuilt(
            reason=reason,
            programs={} if reason else programs,
            files={} if reason else files,
            calls=calls,
            compile_seconds=compile_seconds,
            link_seconds=sum(call.user_seconds for call in calls if call.kind == "link"),
            wall_seconds=build.wall_seconds,
        )


@contextlib.contextmanager
def open_rebuilder(recorded: RecordedBuild, *, compressor: Compressor | None) -> Generator[Rebuilder]:
    """Move the plain tree away for rebuilds in its place; it comes back at the end, or when the folder is next used.

    Raises:
        StorageError: the disk is full or not writable.
        UsageError: the build runs in the user's own folder.
    """
    if recorded.site.commands.clean:
        raise UsageError(
            "--clean: expected a build in copies of its folder, found one in the folder itself; leave --clean out, and "
            "configure in an earlier --build"
        )
    with fresh_tree(recorded.site):
        try:
            yield Rebuilder(recorded=recorded, compressor=compressor)
        finally:
            for name in ("configured", "compiled", "plain"):
                shutil.rmtree(copies_of(recorded.tree) / name, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Replace a tree by a copy of another, with the times of its files."""
    with writing(target):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, symlinks=True)
