"""Record the calls of rustc in a cargo build; find those that make programs by full link-time optimization."""

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.rust.wrapper import codegen_option, is_program, option_value, why_not_tuned
from mlgokit.errors import CorpusError, InputError, UsageError
from mlgokit.files import digest_file, writing

_WRAPPER, _CALLS, _TARGET = "rustc-wrapper", "calls", "target"
_SCRIPT = """#!/bin/sh
n=$(mktemp "$MLGOKIT_RUSTC_CALLS/XXXXXXXX") || exit 1
(umask 077; printf '%s\\0' "$PWD" "$@" > "$n.new" && env -0 > "$n.environment") && mv "$n.new" "$n.call" && rm -f "$n"
exec "$@"
"""
"""The environment may have passwords, which are for nobody else; what rustc makes has the rights that a user chose."""
_LATER = re.compile(r"(MLGOKIT|RUSTC_WRAPPER|CARGO_MAKEFLAGS|MAKEFLAGS|MFLAGS)(_.*)?")
"""Variables of the running build that are not recorded, such as its job server."""
_STDERR_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RustcCall:
    """A call of rustc by cargo.

    Attributes:
        words: program and arguments.
        folder: working directory.
        environment: the whole environment.
    """

    words: tuple[str, ...]
    folder: Path
    environment: dict[str, str]

    @property
    def crate(self) -> str:
        """Name of the crate."""
        return self.value("--crate-name")

    @property
    def kind(self) -> str:
        """Crate type, such as ``bin``."""
        return self.value("--crate-type")

    @property
    def permitted(self) -> str:
        """Crates that a stable rustc lets use unstable features (RUSTC_BOOTSTRAP); empty for none."""
        return self.environment.get("RUSTC_BOOTSTRAP", "")

    def value(self, option: str) -> str:
        """Find the value of the last option of that name; empty without one."""
        return option_value(self.words, option)

    def codegen(self, name: str) -> str | None:
        """Find the last value of a codegen option such as ``opt-level``; ``None`` if it was not given."""
        return codegen_option(self.words, name)

    def inputs(self) -> dict[str, str]:
        """Digest the libraries and sources that the call reads, by path.

        Raises:
            InputError: one of these files is gone.
        """
        extern = (word.partition("=")[2] for word in self.words if word.endswith((".rlib", ".rmeta", ".so")))
        folders = [word.removeprefix("dependency=") for word in self.words if word.startswith("dependency=")]
        libraries = [path for folder in folders for path in sorted(Path(folder).glob("*.rlib"))]
        found = [*(Path(path) for path in extern if path), *libraries, *self._sources()]
        try:
            return {str(path): digest_file(path) for path in found}
        except OSError as error:
            raise InputError(
                f"{error.filename}: expected a file that rustc read during the build, found it deleted; build again"
            ) from error

    def _sources(self) -> Iterator[Path]:
        """List the sources in the crate's dependency file, if rustc wrote one."""
        name = f"{self.crate}{self.codegen('extra-filename') or ''}.d"
        listed = Path(self.value("--out-dir") or self.folder) / name
        if not listed.is_file():
            return
        for line in listed.read_text("utf-8", "surrogateescape").splitlines():
            if line.endswith(":") and not line.startswith("#"):
                yield self.folder / line[:-1].replace("\\ ", " ")


def record_cargo(
    command: Sequence[str],
    folder: Path,
    *,
    place: Path,
    timeout_seconds: float,
    settings: Mapping[str, str] | None = None,
) -> list[RustcCall]:
    """Run a cargo build with a target folder of our own; return its calls of rustc, and those of earlier builds there.

    Args:
        command: for example ``cargo build --release``.
        folder: working directory.
        place: folder for the target folder and the recorded calls.
        timeout_seconds: deadline of the build.
        settings: environment variables beside those of this process.

    Returns:
        The last call for each crate and crate type; calls of earlier builds count, since cargo does not repeat them.

    Raises:
        ToolError: the build cannot be started.
        UsageError: it fails.
        StorageError: the disk is full or not writable.
    """
    run_cargo(command, folder, place=place, timeout_seconds=timeout_seconds, settings=settings)
    return calls_below(place)


def run_cargo(
    command: Sequence[str],
    folder: Path,
    *,
    place: Path,
    timeout_seconds: float,
    settings: Mapping[str, str] | None = None,
) -> process.Completed:
    """Run the build of :func:`record_cargo`; ``place`` then has its target folder and calls.

    Raises:
        ToolError: the build cannot be started.
        UsageError: it fails.
        StorageError: the disk is full or not writable.
    """
    place = place.resolve()
    wrapper, calls = place / _WRAPPER, place / _CALLS
    with writing(place):
        calls.mkdir(parents=True, exist_ok=True)
        wrapper.write_text(_SCRIPT)
        wrapper.chmod(0o755)
    ours = {"RUSTC_WRAPPER": str(wrapper), "MLGOKIT_RUSTC_CALLS": str(calls), **target_variables(place)}
    done = process.run(
        _drop_target_folder(command),
        timeout_seconds=timeout_seconds,
        cwd=folder,
        env={**os.environ, **(settings or {}), **ours},
        stderr_bytes=_STDERR_BYTES,
        limits=USERS_LIMITS,
    )
    if done.timed_out or done.returncode != 0:
        reason = f"no end after {timeout_seconds:.0f} s" if done.timed_out else first_error(done.stderr)
        raise UsageError(f"--cargo: expected a build that succeeds, found: {reason}; run it by hand in {folder}")
    return done


def target_variables(place: Path) -> dict[str, str]:
    """Make the variables by which cargo builds below ``place``, also what a user has in a folder of its own."""
    folder = str(place.resolve() / _TARGET)
    return {"CARGO_TARGET_DIR": folder, "CARGO_BUILD_BUILD_DIR": folder}


def _drop_target_folder(command: Sequence[str]) -> list[str]:
    """Remove the user's target folder, which the option sets whatever the environment says, from a cargo command."""
    end = list(command).index("--") if "--" in command else len(command)
    kept = [
        word
        for before, word in itertools.pairwise(("", *command[:end]))
        if "--target-dir" not in {before, word} and not word.startswith("--target-dir=")
    ]
    return [*kept, *command[end:]]


def calls_below(place: Path) -> list[RustcCall]:
    """Read the calls of the builds that :func:`run_cargo` ran in ``place``, the last of each crate and crate type."""
    found: dict[tuple[str, str], RustcCall] = {}
    for path in sorted((place / _CALLS).glob("*.call"), key=lambda path: path.stat().st_mtime_ns):
        folder, *words = _texts(path)
        pairs = (text.partition("=") for text in _texts(path.with_suffix(".environment")))
        environment = {name: value for name, _, value in pairs if name and not _LATER.fullmatch(name)}
        call = RustcCall(words=tuple(words), folder=Path(folder), environment=environment)
        if call.crate:
            found.pop((call.crate, call.kind), None)
            found[call.crate, call.kind] = call
    return list(found.values())


def programs_of(calls: Sequence[RustcCall]) -> tuple[list[RustcCall], dict[str, str]]:
    """Select the calls that make programs by full LTO for size; return them, and for other programs the reason.

    Raises:
        CorpusError: there is no such call.
    """
    found: list[RustcCall] = []
    others: dict[str, str] = {}
    for call in calls:
        if not is_program(call.words):
            continue
        if reason := why_not_tuned(call.words):
            others[call.crate] = reason
        else:
            found.append(call)
    if not found:
        why = "; ".join(f"{name}: {reason}" for name, reason in others.items()) or "no program"
        raise CorpusError(
            f'--cargo: expected a program with opt-level = "z" or "s", lto = "fat" and codegen-units = 1, found {why}; '
            "add them to [profile.release] in Cargo.toml, or to the environment as CARGO_PROFILE_RELEASE_LTO=fat and "
            "the like"
        )
    return found, others


def _texts(path: Path) -> list[str]:
    """Read the texts of a recorded call, each ended by a NUL byte."""
    return path.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]
