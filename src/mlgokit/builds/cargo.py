"""A cargo build: the full link-time optimization of each program is a module, and rustc compiles it."""

import itertools
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.builds.build import CandidatePlugin, Proof
from mlgokit.builds.compilers import CompilerOptions, ReuseOptions
from mlgokit.builds.images import BuiltImage, no_image, weigh_image
from mlgokit.builds.measurement import Measure
from mlgokit.builds.recorded import TunedProgram
from mlgokit.builds.variant import PluginPlace
from mlgokit.compiler import process
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.rust.compile import COMPILE_SECONDS, RustCompiler, link_program, weighed_file
from mlgokit.compiler.rust.record import RustcCall, programs_of, record_cargo
from mlgokit.compiler.rust.toolchain import TRIAL_SECONDS, find_rustc, load_plugin, unstable_options
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.corpus.importers.compile_commands import split_command
from mlgokit.errors import RejectedError, ToolError, UsageError
from mlgokit.files import atomic_write, digest_file
from mlgokit.manifest import sign_new
from mlgokit.module import Module
from mlgokit.progress import Report

_FOLDER, _PROGRAMS = "cargo", "programs"
_SUBCOMMANDS = frozenset({"build", "b", "rustc"})
_PACKAGES = frozenset({"-p", "--package", "--exclude", "--workspace", "--all"})
_VALUED = frozenset({"-p", "--package", "--exclude", "--bin", "--example", "--test", "--bench"})
"""Options that choose packages and targets, whose value may be the next word."""
_CHOOSING = _PACKAGES | _VALUED | {"--lib", "--bins", "--examples", "--tests", "--benches", "--all-targets"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CargoRequest:
    """A cargo build that is asked for.

    Attributes:
        scratch: folder for the target folder and the programs.
        compiler: how compilers are opened; its ``llvm`` may be ``None`` for that of rustc.
        tests: commands that test the programs, each with the deadline ``test_seconds``.
    """

    words: tuple[str, ...]
    folder: Path
    scratch: Path
    compiler: CompilerOptions
    reuse: ReuseOptions = field(default_factory=ReuseOptions)
    link_seconds: float = 300.0
    tests: tuple[tuple[str, ...], ...] = ()
    test_seconds: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CargoBuild:
    """A cargo build, each of whose programs is a module; a :class:`~mlgokit.builds.build.Build`.

    Attributes:
        asked: the build that the user asked for.
        compiler: compiler of the programs.
        programs_folder: where the programs are linked at the end.
    """

    asked: CargoRequest
    compiler: RustCompiler
    modules: tuple[Module, ...]
    left_out: dict[str, str]
    inputs: dict[str, str]
    programs_folder: Path
    notes: tuple[str, ...] = ()
    measure: Measure | None = None
    plugin_place: PluginPlace = "compile"

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the compiler, for the manifest of a search."""
        return {**self.compiler.toolchain.describe(), "rustc": self.compiler.rustc.version}

    def prove(self, candidate: CandidatePlugin, folder: Path) -> Proof:  # noqa: ARG002  (of the protocol)
        """Link the programs by rustc's own link, without and with the plugin, and test both.

        Raises:
            RejectedError: a test prints something else with the tuned programs.
            ToolError: rustc cannot link a program, or it is larger with the plugin.
        """
        programs: dict[str, tuple[int, int]] = {}
        for one in self.link_programs(candidate.file):
            if one.tuned.image > one.plain.image:
                raise ToolError(
                    f"{one.program}: the program grew from {one.plain.image:,} to {one.tuned.image:,} bytes with the "
                    "plugin, so nothing was published; continue the search with --continue"
                )
            programs[one.program] = (one.plain.image, one.tuned.image)
        version, option = self.compiler.rustc.version, f"-Zllvm-plugins={candidate.published.resolve()}"
        calls = [self.compiler.calls[module.name] for module in self.modules]
        lines = [
            cargo_line(self.asked.words, call, unstable_options(version, call.crate, given=call.permitted), option)
            for call in calls
        ]
        wrapped = shlex.join(["mlgokit", "build", "--plugin", str(candidate.output), "--", *self.asked.words])
        note = f"to build with the plugin in the same rustc calls, without editing files: {wrapped}"
        sides = [self.programs_folder / side for side in ("plain", "tuned")]
        tests = self.run_tests(
            f"no plugin was written, run it once with {sides[0]} first in PATH, and once with {sides[1]}"
        )
        return Proof(flag=" && ".join(lines), programs=programs, notes=(*tests, note))

    def link_programs(self, plugin: Path) -> tuple[TunedProgram, ...]:
        """Link the programs by rustc's own link, without and with the plugin, below ``programs_folder``.

        Raises:
            ToolError: rustc cannot link a program.
        """
        shutil.rmtree(self.programs_folder, ignore_errors=True)
        programs: list[TunedProgram] = []
        for module in self.modules:
            images: list[BuiltImage] = []
            for name, used in (("plain", None), ("tuned", plugin)):
                path = self.programs_folder / name / program_file_name(self.compiler.calls[module.name])
                failed = link_program(self.compiler, module, path, plugin=used)
                if failed:
                    raise ToolError(
                        f"{module.name}: expected rustc to link the {name} program, found: {failed}; check that the "
                        "cargo build still succeeds by itself"
                    )
                weighed = weighed_file(self.compiler.calls[module.name], path)
                image = weigh_image(weighed, plugin=used is not None).row if weighed.is_file() else no_image().row
                if image.status == "failed":
                    raise ToolError(
                        f"{module.name}: expected to read the {name} program, found: {image.reason}; build again"
                    )
                images.append(image)
            programs.append(TunedProgram(program=module.name, plain=images[0], tuned=images[1]))
        return tuple(programs)

    def run_tests(self, remedy: str) -> Iterator[str]:
        """Run the tests with the plain and with the tuned programs that were linked; yield a sentence for each.

        Raises:
            RejectedError: the two runs of a test differ, or one does not end in time.
        """
        for command in self.asked.tests:
            plain, tuned = (_run_test(self, command, side) for side in ("plain", "tuned"))
            text = shlex.join(command)
            if plain != tuned:
                found = " and ".join(f"exit code {code} with {len(output):,} bytes" for code, output in (plain, tuned))
                raise RejectedError(
                    f"--test: expected the same exit code and output of `{text}` with the plain programs and the tuned "
                    f"ones, found {found}; {remedy}"
                )
            how = "passes" if plain[0] == 0 else f"ends with {plain[0]}"
            yield f"`{text}` {how} with the plain programs and with the tuned ones, and prints the same"


def cargo_words(text: str) -> tuple[str, ...]:
    """Split a cargo command into words, and check that it builds.

    Raises:
        UsageError: the command builds nothing, or a quotation is not closed.
    """
    try:
        words = tuple(split_command(text))
    except ValueError as error:
        raise UsageError(f"--cargo: {error}; close the quotation") from error
    if _SUBCOMMANDS.isdisjoint(words):
        raise UsageError(
            f"--cargo: expected a build, as in --cargo 'cargo build --release', found {text!r}; correct it"
        )
    return words


def cargo_version(words: Sequence[str], folder: Path) -> str:
    """Ask the cargo that a command calls for its version, which is that of its rustc; empty without an answer."""
    begin = next(index for index, word in enumerate(words) if word in _SUBCOMMANDS)
    done = process.run([*words[:begin], "--version"], timeout_seconds=TRIAL_SECONDS, cwd=folder, limits=USERS_LIMITS)
    return done.stdout.decode("utf-8", "replace").strip()


def open_cargo(asked: CargoRequest, *, settings: Mapping[str, str] | None = None, report: Report) -> CargoBuild:
    """Build as the user does, in a target folder of our own, and find the programs to tune.

    ``settings`` are environment variables of the build beside the user's.

    Raises:
        CorpusError: no program is made for size by full link-time optimization.
        ToolError: rustc does not load the plugin.
        UsageError: the build fails, or its rustc has another LLVM than the one asked for.
    """
    place = asked.scratch.resolve() / _FOLDER
    sign_new(place, "cargo")
    folder = asked.folder.resolve()
    report(0, 1, "build as cargo does")
    deadline = asked.compiler.deadline(asked.link_seconds)
    calls = record_cargo(
        asked.words, folder, place=place, timeout_seconds=max(deadline, 6 * COMPILE_SECONDS), settings=settings
    )
    found, left_out = programs_of(calls)
    rustc = find_rustc(found[0].words[0])
    if asked.compiler.llvm not in (None, rustc.major):
        raise UsageError(
            f"--llvm {asked.compiler.llvm}: expected the LLVM of {rustc.version}, which is {rustc.major}; leave "
            "--llvm out"
        )
    toolchain = find_toolchain(rustc.major, need_plugin=True)
    plugin = build_plugin(toolchain)
    try:
        load_plugin(rustc, plugin)
    except ToolError as error:
        raise ToolError(
            f"{rustc.program}: expected a rustc that loads the plugin, found: {error}; see `mlgokit doctor`"
        ) from error
    modules = tuple(_module(call, place / "inputs") for call in found)
    compiler = RustCompiler(
        rustc=rustc,
        calls={module.name: call for module, call in zip(modules, found, strict=True)},
        toolchain=toolchain,
        plugin=plugin,
        workers=asked.compiler.workers,
        timeout_seconds=asked.compiler.deadline(COMPILE_SECONDS),
        room=asked.compiler.room(asked.scratch),
        residents=asked.reuse.new_residents(),
        known=asked.reuse.new_known(),
    )
    return CargoBuild(
        asked=asked,
        compiler=compiler,
        modules=modules,
        left_out=left_out,
        inputs={module.name: digest_file(module.bitcode) for module in modules},
        programs_folder=place / _PROGRAMS,
    )


def _run_test(build: CargoBuild, command: Sequence[str], side: str) -> tuple[int, bytes]:
    done = process.run(
        command,
        timeout_seconds=build.asked.test_seconds,
        cwd=build.asked.folder,
        env={**os.environ, "PATH": f"{build.programs_folder / side}{os.pathsep}{os.environ.get('PATH', '')}"},
        limits=USERS_LIMITS,
    )
    if done.timed_out:
        raise RejectedError(
            f"--test: expected `{shlex.join(command)}` to end within {build.asked.test_seconds:.0f} s with the {side} "
            "programs, found it still running; allow more with --test-minutes"
        )
    return done.returncode, done.stdout


def cargo_line(words: Sequence[str], call: RustcCall, variables: Mapping[str, str], option: str) -> str:
    """Rewrite the user's command as ``cargo rustc``, which passes ``option`` to one program and not to all crates.

    That takes one package and one target; whatever the command chose, they are those of ``call``.
    """
    end = list(words).index("--") if "--" in words else len(words)
    begin = next(index for index, word in enumerate(words) if word in _SUBCOMMANDS)
    # -pNAME is -p with its value.
    pairs = [("-p" if word[:2] == "-p" else word.partition("=")[0], word) for word in words[begin:end]]
    kept = [
        word
        for (_, before), (name, word) in itertools.pairwise(pairs)
        if before not in _VALUED and name not in _CHOOSING
    ]
    is_package_named = not _PACKAGES.isdisjoint(name for name, _ in pairs)
    if is_package_named or call.environment.get("CARGO_MANIFEST_DIR", str(call.folder)) != str(call.folder):
        kept += ["-p", call.environment["CARGO_PKG_NAME"]]
    if call.kind != "bin":
        kept.append("--lib")
    else:
        kept += ["--example" if Path(call.value("--out-dir")).name == "examples" else "--bin", _program_name(call)]
    # A shell takes no word for an assignment that is quoted as a whole.
    settings = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    line = shlex.join([*words[:begin], "rustc", *kept, "--", *words[end + 1 :], option])
    return " ".join([*settings, line])


def _module(call: RustcCall, place: Path) -> Module:
    """Make the module of a program; a file with the digests of its inputs stands for its bitcode."""
    described = {"words": call.words, "inputs": call.inputs(), "variables": _variables(call.environment)}
    path = place / f"{call.crate}-{call.kind}.json"
    atomic_write(path, json.dumps(described, indent=1))
    return Module(
        name=_program_name(call) if call.kind == "bin" else f"{call.crate} ({call.kind})",
        project=call.environment.get("CARGO_PKG_NAME", call.crate),
        language="rust",
        bitcode=path,
        command_line=call.words,
        bitcode_bytes=path.stat().st_size,
        bitcode_sha256=digest_file(path),
    )


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Select the environment variables that a crate may read while it is compiled."""
    return {name: value for name, value in environment.items() if name.startswith("CARGO_PKG") or name == "OUT_DIR"}


def _program_name(call: RustcCall) -> str:
    """Name the program that a call makes, as ``--bin`` takes it."""
    return call.environment.get("CARGO_BIN_NAME", call.crate)


def program_file_name(call: RustcCall) -> str:
    """Name the file of the program or library that a call makes, in the folder of the profile."""
    shapes = {"cdylib": "lib{}.so", "dylib": "lib{}.so", "staticlib": "lib{}.a"}
    return shapes.get(call.kind, "{}").format(call.crate if call.kind != "bin" else _program_name(call))
