"""The command that says which flags would make a build smaller, before anything is learned."""

import dataclasses
import json
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from mlgokit.basic import Basic
from mlgokit.builds.cargo import cargo_version, cargo_words
from mlgokit.builds.compilers import CompilerOptions, toolchain_of_build
from mlgokit.builds.compression import find_stripper
from mlgokit.builds.recorded import record_plain
from mlgokit.builds.site import state_of
from mlgokit.commands.options import NO_BUILD, Texts, WholeBuild, reject_with_cargo
from mlgokit.compiler.build_tree import files_below
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import UsageError
from mlgokit.files import atomic_write, digest_file
from mlgokit.flags.advise import AdviceOptions, advise_build
from mlgokit.flags.cargo import CargoCommands, advise_cargo, cargo_settings
from mlgokit.flags.page import advice_page
from mlgokit.flags.record import FlagAdvice
from mlgokit.flags.reviewed import FLAGS, RUST_FLAGS
from mlgokit.flags.search import check_names
from mlgokit.locks import locked
from mlgokit.manifest import check_manifest, digest_value, package_version, read_config, write_manifest
from mlgokit.pages.html import write_page
from mlgokit.progress import Report, say_nothing

RESULT = "advice.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advise:
    """Report which flags of clang and lld make a build smaller, alone and together: advise --build 'make -j2'."""

    built: WholeBuild = NO_BUILD
    """Build to make smaller; it runs in copies of its folder, once for each flag, so --clean does not apply. A flag
    with which a test fails is refused."""
    cargo: Annotated[str | None, Basic.INPUT] = None
    """Cargo build in place of --build, as in --cargo 'cargo build --release'; it runs in --cargo-folder with target
    folders of its own. Tests find the built programs first in PATH, and must exit with 0."""
    cargo_folder: Path = Path()
    """With --cargo: folder of the package."""
    folder: Annotated[Path, Basic.RESULT] = Path("advice")
    """Folder for the trials and the result; the same command, run again, resumes from what is there."""
    seconds: Annotated[float, Basic.WORK] = 600.0
    """Time limit of the trials in seconds, not counting the plain build before them and a clean build with the advised
    flags after them."""
    without: Annotated[Texts, Basic.WORK] = ()
    """Name of a flag that is not tried, such as lto."""
    llvm: Annotated[int | None, Basic.MACHINE] = None
    """LLVM major version to use. By default that of the build's own clang, else the newest supported one."""


def run(config: Advise, *, report: Report = say_nothing) -> FlagAdvice:
    """Try the flags on copies of the build, and leave ``advice.json`` with its report in the folder.

    Raises:
        BusyError: another process works in the folder.
        CorpusError: the plain build fails.
        ReuseError: the folder has another build's trials.
        UsageError: the call contradicts itself, or the build compiles or links nothing.
    """
    words = _check(config)
    if not words:
        config.built.check_programs()
    began = time.monotonic()
    with locked(config.folder):
        compiler = CompilerOptions(llvm=config.llvm)
        toolchain = toolchain_of_build(compiler, database=None, commands=config.built.build, need_plugin=False)
        _claim(config, words, toolchain)
        options = AdviceOptions(folder=config.folder, seconds=config.seconds, without=config.without)
        if words:
            commands = CargoCommands(
                words=words,
                folder=config.cargo_folder.resolve(),
                tests=tuple(map(tuple, config.built.words("test"))),
                build_seconds=60 * config.built.build_minutes,
                test_seconds=60 * config.built.test_minutes,
            )
            advice = advise_cargo(commands, options, compressor=find_stripper(toolchain), report=report)
        else:
            recorded = record_plain(config.built, config.folder, go_on=True, toolchain=toolchain, report=report)
            advice = advise_build(recorded, options, report=report)
        result = config.folder / RESULT
        advice = dataclasses.replace(
            advice,
            wall_seconds=time.monotonic() - began,
            command=shlex.join(["mlgokit", *sys.argv[1:]]),
            mlgokit_version=package_version(),
            toolchain=toolchain.describe(),
            report=str(result.with_suffix(".html")),
        )
        atomic_write(result, json.dumps(advice.to_json(), indent=1))
        write_page(advice_page(advice), result)
    return advice


def _check(config: Advise) -> tuple[str, ...]:
    """The words of the cargo build; none for another build.

    Raises:
        UsageError: the call contradicts itself.
    """
    built = config.built
    if bool(built.build) == (config.cargo is not None):
        found = "both" if built.build else "none of them"
        raise UsageError(f"advise: expected --build with the command of a build, or --cargo, found {found}; give one")
    if built.clean:
        raise UsageError(
            "--clean: advise builds in copies of the folder alone, which are always clean; leave it out (clean of "
            "mlgokit.toml belongs into its table [tune])"
        )
    if config.seconds < 0:
        raise UsageError(f"--seconds: expected a time of 0 or more, found {config.seconds:g}; correct it")
    check_names(config.without, FLAGS if config.cargo is None else RUST_FLAGS)
    if config.cargo is None:
        return ()
    reject_with_cargo({"--program": bool(built.program)})
    return cargo_words(config.cargo)


def _claim(config: Advise, cargo: tuple[str, ...], toolchain: Toolchain) -> None:
    """Sign the folder, or check that it has trials of this build, by these words of cargo if it is one of cargo.

    Raises:
        ReuseError: it has something else.
    """
    built, versions = config.built, toolchain.describe()
    claim: dict[str, object] = {
        "build": built.build,
        "test": built.test,
        "program": built.program,
        "build_folder": built.build_folder.resolve(),
        "cargo": config.cargo,
        "cargo_folder": config.cargo_folder.resolve(),
    }
    inputs = {"flags": digest_value([FLAGS, RUST_FLAGS])}
    if config.cargo is not None:
        inputs["sources"] = _digest_crate(config.cargo_folder.resolve())
        claim["lock"] = _digest_lock(
            config.cargo_folder.resolve(), was_missing=read_config(config.folder).get("lock") == ""
        )
        claim["environment"] = cargo_settings()
        versions["cargo"] = cargo_version(cargo, config.cargo_folder.resolve())
    if not check_manifest(config.folder, kind="advice", config=claim, toolchain=versions, inputs=inputs):
        write_manifest(config.folder, kind="advice", config=claim, toolchain=versions, inputs=inputs)


def _digest_crate(folder: Path) -> str:
    """Of what cargo compiles of a package, by the times of its files; what it has built is not looked at."""
    kinds = {".rs", ".toml", ".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".inc", ".s", ".S", ".asm"}
    paths = sorted(path for path in files_below(folder, without=folder / "target") if path.suffix in kinds)
    return digest_value([[path.relative_to(folder), *state_of(path)] for path in paths])


def _digest_lock(folder: Path, *, was_missing: bool) -> str:
    """Of the versions of what a package depends on; empty while it has no lock file, which the first build writes."""
    lock = next((path for place in (folder, *folder.parents) if (path := place / "Cargo.lock").is_file()), None)
    return "" if was_missing or lock is None else digest_file(lock)


page = advice_page
