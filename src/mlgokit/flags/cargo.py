"""Trials of flags on a cargo build: settings of its profile, and options of rustc."""

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.builds.cargo import program_file_name
from mlgokit.builds.compression import Compressor
from mlgokit.builds.images import LINKED, BuiltImage
from mlgokit.builds.recorded import weigh_program
from mlgokit.compiler import process
from mlgokit.compiler.build_tree import is_image
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.rust.compile import plugin_words
from mlgokit.compiler.rust.record import RustcCall, calls_below, run_cargo, target_variables
from mlgokit.compiler.rust.toolchain import find_rustc, load_plugin
from mlgokit.compiler.rust.wrapper import LINKED_TYPES, codegen_options, is_program, option_values
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.errors import ToolError, UsageError
from mlgokit.files import atomic_write, writing
from mlgokit.flags.advise import AdviceOptions, describe_tests, export_shipped, search_flags, shipped_defect
from mlgokit.flags.record import BuildLine, FlagAdvice, Trial
from mlgokit.flags.reviewed import RUST_FLAGS, Flag
from mlgokit.flags.trials import ALREADY, TRIALS, TrialStore, find_weaker_flags, key_of, name_policies
from mlgokit.manifest import sign_new
from mlgokit.policy.pretrained import SHIPPED
from mlgokit.progress import Report

_UNSTABLE = {"RUSTC_BOOTSTRAP": "1"}
"""Has a stable rustc take an option that is not stable."""
_RUSTFLAGS, _BUILD_RUSTFLAGS = "RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS"
"""Variables: the first hides all ``rustflags`` of cargo's files, the second adds to those of ``[build]``."""
_DEFAULTS = {"opt-level": "3", "lto": "false", "codegen-units": "16", "panic": "unwind", "strip": "none"}
"""Settings of a release build that rustc is not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CargoCommands:
    """The words of a cargo build that is asked about, the folder where it and its tests run, and their deadlines.

    Tests are commands that end with 0 if the programs, which are first in PATH, do as they should.
    """

    words: tuple[str, ...]
    folder: Path
    tests: tuple[tuple[str, ...], ...]
    build_seconds: float
    test_seconds: float

    @property
    def profile(self) -> str:
        """The Cargo profile that the command builds; the last one that it names."""
        words = self.words
        named = [word.removeprefix("--profile=") for word in words if word.startswith("--profile=")]
        named += [words[index + 1] for index, word in enumerate(words[:-1]) if word == "--profile"]
        return named[-1] if named else "release" if {"--release", "-r"} & set(words) else "dev"


@dataclass(frozen=True, slots=True, kw_only=True)
class CargoTrials:
    """Trials on a cargo build, each in a target folder of its own; see :class:`~mlgokit.flags.trials.Trials`.

    ``place`` is the folder of the target folders, and the compressor strips programs, to weigh their files. The plain
    build fills ``facts``: why flags are not to be tried by their names, under ``tests`` why the tests fail on it, and
    under ``rustc`` the compiler that cargo calls.
    """

    commands: CargoCommands
    place: Path
    store: TrialStore
    compressor: Compressor | None
    flags: tuple[Flag, ...] = RUST_FLAGS
    facts: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def has_passing_tests(self) -> bool:
        """Whether there are tests that pass on the plain build."""
        return bool(self.commands.tests) and self.facts.get("tests", "") == ""

    def make_plain(self) -> Trial:
        """Build without any flag, and note which flags the build has already."""
        trial, facts = self.store.load_or_make_plain(lambda path: self._make((), facts=path))
        self.facts.update(facts)
        return trial

    def list_excluded(self) -> dict[str, str]:
        """List the flags that are not to be tried, with the reasons, by name."""
        return {name: reason for name, reason in self.facts.items() if name not in {"tests", "rustc"}}

    def make(self, flags: Sequence[Flag], *, whole: bool = False) -> Trial:
        """Build with flags; each build is made from its sources."""
        return self.store.load_or_make(key_of(flags, whole=whole), lambda: self._make(flags))

    def is_known(self, flags: Sequence[Flag]) -> bool:
        """Whether the trial of ``flags`` is in the folder."""
        return self.store.path(key_of(flags)).exists()

    def only_links(self, flags: Sequence[Flag]) -> bool:  # noqa: ARG002  (of the protocol)
        """Return false, as cargo compiles all again for each set of options."""
        return False

    def _make(self, flags: Sequence[Flag], *, facts: Path | None = None) -> Trial:
        """Build into an empty target folder, weigh the programs, and run the tests.

        The plain build also writes the flags that it has, and why its tests fail if they do, to ``facts``.
        """
        began = time.monotonic()
        commands = self.commands
        with writing(self.place):
            shutil.rmtree(self.place, ignore_errors=True)
        sign_new(self.place, "cargo")
        reason, seconds, calls = "", 0.0, list[RustcCall]()
        try:
            done = run_cargo(
                _add_rustflags(commands.words, flags),
                commands.folder,
                place=self.place,
                timeout_seconds=commands.build_seconds,
                settings=self._variables(flags),
            )
            seconds, calls = done.user_seconds, calls_below(self.place)
        except UsageError as error:
            if facts is not None:
                raise
            reason = str(error)
        programs: dict[str, BuiltImage] = {}
        files: dict[str, int] = {}
        folders: set[Path] = set()
        made = [(call, path) for call in calls if not reason for path in _find_programs(call)]
        if flags and not made:
            reason = reason or "the build makes no program with it"
        for call, path in made:
            if reason := _hidden_defect(call, flags):
                break
            image = weigh_program(path, self.compressor)
            if image.status != LINKED:
                reason = f"{path.name}: {image.reason}"
                break
            programs[path.name], files[path.name] = image, path.stat().st_size
            folders.add(path.parent)
        tests = None
        if not reason and commands.tests and (facts is not None or self.has_passing_tests):
            tests = self._test(flags, folders)
        if facts is not None:
            found = _find_present(self.flags, [call for call, _ in made])
            found |= {"tests": tests} if tests else {}
            found |= {"rustc": made[0][0].words[0]} if made else {}
            atomic_write(facts, json.dumps(found, indent=1))
        with writing(self.place):
            shutil.rmtree(self.place, ignore_errors=True)
        return Trial(
            flags=tuple(flag.name for flag in flags),
            reason=reason,
            tests=None if facts is not None and tests else tests,
            programs={} if reason else programs,
            files={} if reason else files,
            folders={},
            compile_seconds=seconds,
            link_seconds=0.0,
            wall_seconds=time.monotonic() - began,
        )

    def _variables(self, flags: Sequence[Flag]) -> dict[str, str]:
        """Make the environment variables that set keys of the profile, and add rustc options to a user's RUSTFLAGS."""
        profile = self.commands.profile.upper().replace("-", "_")
        found = {
            f"CARGO_PROFILE_{profile}_{key.upper().replace('-', '_')}": value.strip('"')
            for flag in flags
            for key, value in flag.profile
        }
        if (given := os.environ.get(_RUSTFLAGS)) is not None:
            found[_RUSTFLAGS] = " ".join([given, *_rustc_words(flags)])
        if any(word.startswith("-Z") for word in _rustc_words(flags)):
            found |= _UNSTABLE
        return found

    def _test(self, flags: Sequence[Flag], folders: set[Path]) -> str:
        """Run the tests, and say why they fail; empty if they pass."""
        environment: Mapping[str, str] = {**os.environ, **self._variables(flags), **_test_rustflags(flags)}
        path = os.pathsep.join([*map(str, sorted(folders)), os.environ.get("PATH", "")])
        for command in self.commands.tests:
            done = process.run(
                command,
                timeout_seconds=self.commands.test_seconds,
                cwd=self.commands.folder,
                env={**environment, "PATH": path, **target_variables(self.place)},
                limits=USERS_LIMITS,
            )
            if done.timed_out or done.returncode != 0:
                how = "did not end" if done.timed_out else f"ended with {done.returncode}"
                said = done.stderr.strip().splitlines()[-1:]
                return ": ".join([f"{' '.join(command)} {how}", *said])
        return ""


def cargo_settings() -> dict[str, str]:
    """Select the environment variables that change what cargo makes of the same sources.

    Example:
        >>> sorted(cargo_settings().keys() & {"PATH", "CARGO_TARGET_DIR"})
        []
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in {_RUSTFLAGS, "CARGO_ENCODED_RUSTFLAGS"}
        or (name.startswith(("CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_TARGET_")) and name != "CARGO_TARGET_DIR")
    }


def advise_cargo(
    commands: CargoCommands, options: AdviceOptions, *, compressor: Compressor | None, report: Report
) -> FlagAdvice:
    """Find the flags of :data:`RUST_FLAGS` that make a cargo build smaller, and say how to add them.

    Raises:
        InputError: a trial in the folder is damaged.
        StorageError: the disk is full or not writable.
        ToolError: cargo cannot be started, or the build makes no program.
        UsageError: the build fails.
    """
    trials = CargoTrials(
        commands=commands,
        place=options.folder / "cargo",
        store=TrialStore(folder=options.folder / TRIALS),
        compressor=compressor,
    )
    report(0, 1, "plain build")
    plain = trials.make_plain()
    if not plain.programs:
        raise ToolError(
            f"--cargo: expected a build that makes a program or a C library, found {plain.reason or 'none'}; name "
            "another cargo command"
        )
    text = shlex.join(commands.words)
    advice, flags = search_flags(trials, options, build=(text,), whole_seconds=plain.wall_seconds, report=report)
    lines = config_lines(commands.profile, flags)
    advice = dataclasses.replace(
        advice,
        line=_join_lines(lines),
        lines=lines,
        tests=describe_tests(trials.facts.get("tests", "") if commands.tests else None),
        tune=_tune_command(commands),
    )
    return _measure_shipped(advice, trials, flags, options, report=report)


def _tune_command(commands: CargoCommands) -> str:
    words = ["mlgokit", "tune", "--cargo", shlex.join(commands.words)]
    for command in commands.tests:
        words += ["--test", shlex.join(command)]
    if commands.folder != Path.cwd():
        words += ["--link-folder", str(commands.folder)]
    return shlex.join(words)


def _measure_shipped(
    advice: FlagAdvice, trials: CargoTrials, flags: Sequence[Flag], options: AdviceOptions, *, report: Report
) -> FlagAdvice:
    """Build with the package's policies on top of the advised flags, and add the result to the advice."""
    report(0, 1, f"{SHIPPED} on top")
    try:
        rustc = find_rustc(trials.facts.get("rustc", "rustc"))
        toolchain = find_toolchain(rustc.major, need_plugin=True)
        plugin = export_shipped(toolchain, options.folder)
        load_plugin(rustc, plugin)
    except ToolError as error:
        return dataclasses.replace(advice, shipped_reason=str(error))
    words = tuple(plugin_words(plugin))
    policies = Flag(name=name_policies(words), rustc=words, cost="")
    trial = trials.make([*flags, policies])
    report(1, 1, f"{SHIPPED} on top")
    reason = shipped_defect(trial, (advice.advised_build or advice.plain).count("loaded"))
    lines = config_lines(trials.commands.profile, [*flags, policies])
    line = f"RUSTC_BOOTSTRAP=1 in the environment; {_join_lines(lines)}"
    return dataclasses.replace(advice, shipped=trial, shipped_reason=reason, shipped_line="" if reason else line)


def _join_lines(lines: Sequence[BuildLine]) -> str:
    return "; ".join(f"{one.system}: {', '.join(one.line.splitlines())}" for one in lines)


def config_lines(profile: str, flags: Sequence[Flag]) -> tuple[BuildLine, ...]:
    """Write the lines of Cargo.toml and of .cargo/config.toml that set flags."""
    settings = [f"{key} = {value}" for flag in flags for key, value in flag.profile]
    words = _rustc_words(flags)
    found: list[BuildLine] = []
    if settings:
        found.append(BuildLine(system="Cargo.toml", line="\n".join([f"[profile.{profile}]", *settings])))
    if words and _RUSTFLAGS in os.environ:
        line = f"{_RUSTFLAGS}={shlex.quote(' '.join([os.environ[_RUSTFLAGS], *words]).strip())}"
        found.append(BuildLine(system="environment", line=line))
    elif words:
        line = f"[build]\nrustflags = {json.dumps(words)}"
        found.append(BuildLine(system=".cargo/config.toml", line=line))
    return tuple(found)


def _add_rustflags(words: Sequence[str], flags: Sequence[Flag]) -> list[str]:
    """Let a command of cargo add options to all calls of rustc, unless RUSTFLAGS is set, which overrides that."""
    added = _rustc_words(flags)
    if not added or _RUSTFLAGS in os.environ:
        return list(words)
    end = list(words).index("--") if "--" in words else len(words)
    return [*words[:end], "--config", f"build.rustflags={json.dumps(added)}", *words[end:]]


def _rustc_words(flags: Sequence[Flag]) -> list[str]:
    """List the options of all calls of rustc, each once."""
    return list(dict.fromkeys(word for flag in flags for word in flag.rustc))


def _test_rustflags(flags: Sequence[Flag]) -> dict[str, str]:
    """Make the variable by which a test that calls cargo adds the same options, so that it tests what was built."""
    added = _rustc_words(flags)
    # Cargo splits it at spaces.
    if not added or _RUSTFLAGS in os.environ or any(" " in word for word in added):
        return {}
    return {_BUILD_RUSTFLAGS: " ".join([*os.environ.get(_BUILD_RUSTFLAGS, "").split(), *added])}


def _hidden_defect(call: RustcCall, flags: Sequence[Flag]) -> str:
    """Say why a program is made without options that cargo was to add; empty if it has them."""
    missing = [word for word in _rustc_words(flags) if word not in call.words]
    if not missing:
        return ""
    ours = f"the variable {_RUSTFLAGS}" if _RUSTFLAGS in os.environ else "[build]"
    return (
        f"rustc does not get {missing[0]}: CARGO_ENCODED_RUSTFLAGS, or `rustflags` of a [target] in a config.toml of "
        f"cargo, hide those of {ours}, so move them there"
    )


def _find_programs(call: RustcCall) -> list[Path]:
    """Find the programs and shared libraries for users that a call makes; none of crates, tests and build scripts."""
    folder = Path(call.value("--out-dir") or call.folder)
    # The programs of dependencies, such as build scripts and procedural macros, stay in their folders.
    folder = folder if folder.name == "examples" else folder.parent
    found: list[Path] = []
    # A library may be made for Rust and for others by one call, each with an option of its own.
    for kind in option_values(call.words, "--crate-type"):
        one = dataclasses.replace(call, words=(*call.words, "--crate-type", kind))
        path = folder / program_file_name(one)
        with contextlib.suppress(OSError):
            if kind in LINKED_TYPES and is_program(one.words) and path.is_file() and is_image(path):
                found.append(path)
    return found


def _find_present(flags: Sequence[Flag], calls: Sequence[RustcCall]) -> dict[str, str]:
    """Find the flags that all programs have, and those that are weaker than one of them; return reasons by name."""
    found: dict[str, str] = {}
    for flag in flags:
        by_profile = all(_has_setting(call, key, value.strip('"')) for call in calls for key, value in flag.profile)
        if by_profile and all(_has_option(call, word) for call in calls for word in flag.rustc):
            found[flag.name] = ALREADY
    return found | find_weaker_flags(flags, found)


def _has_option(call: RustcCall, word: str) -> bool:
    """Whether rustc is called with an option such as ``-Clink-arg=-s``, in either spelling."""
    return word in call.words or word.removeprefix("-C") in codegen_options(call.words)


def _has_setting(call: RustcCall, key: str, value: str) -> bool:
    """Whether rustc is called with a value of a key of the profile, which may be rustc's default."""
    given = call.codegen(key)
    if key == "lto" and given in {"", "true", "yes", "on"}:
        given = "fat"
    return (given if given is not None else _DEFAULTS.get(key)) == value
