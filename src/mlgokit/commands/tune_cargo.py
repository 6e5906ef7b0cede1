"""Tuning a cargo build: the full link-time optimization of each program is a module, and rustc compiles it."""

import dataclasses
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlgokit.commands.build_site import build_commands
from mlgokit.commands.options import option_words
from mlgokit.commands.tune_options import Tune
from mlgokit.compiler import process
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.objects.elf import read_elf
from mlgokit.compiler.objects.measure import section_totals
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.rust.compile import COMPILE_SECONDS, RustCompiler, link_program
from mlgokit.compiler.rust.record import RustcCall, programs_of, record_cargo
from mlgokit.compiler.rust.toolchain import find_rustc, load_plugin, unstable_options
from mlgokit.compiler.toolchain import find_toolchain
from mlgokit.errors import RejectedError, ToolError, UsageError
from mlgokit.files import atomic_write, digest_file
from mlgokit.manifest import sign_new
from mlgokit.module import Module
from mlgokit.progress import Report
from mlgokit.tune.result import Tuned

_FOLDER, _PROGRAMS = "cargo", "programs"
_REFUSED = {"linked", "command", "spill-cost"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CargoTuning:
    """A cargo build that is tuned.

    Attributes:
        words: the command as the user gave it.
        compiler: compiles.
        modules: a program each.
        left_out: programs of the build that are not tuned, with the reason.
        inputs: digests of what a search depends on.
        place: where the programs are linked at the end.
        folder: where the build and its tests run.
        tests: commands that test the programs.
        test_seconds: deadline of each.
    """

    words: tuple[str, ...]
    compiler: RustCompiler
    modules: tuple[Module, ...]
    left_out: dict[str, str]
    inputs: dict[str, str]
    place: Path
    folder: Path
    tests: tuple[tuple[str, ...], ...]
    test_seconds: float


def check_cargo(config: Tune) -> tuple[str, ...]:
    """The words of the cargo command.

    Raises:
        UsageError: it is none, or something is asked for that this search does not have.
    """
    words = option_words(config.cargo or "", "--cargo")
    if not words or not {"build", "b", "rustc"} & set(words):
        raise UsageError(
            f"--cargo: expected a build, as in --cargo 'cargo build --release', found {config.cargo!r}; correct it"
        )
    for option, given in {
        f"--objective {config.objective}": config.objective in _REFUSED,
        "--compile-commands": config.compile_commands is not None,
        "--corpus": config.corpus is not None,
        "--build": bool(config.built.build),
        "--level": config.level is not None,
        **config.database.given,
        "--keep-hot": bool(config.keep_hot),
        "--sandbox on": config.compiler.sandbox == "on",
        "--scheduler": config.cluster.scheduler is not None,
    }.items():
        if given:
            raise UsageError(f"{option}: expected no --cargo with it, which has another way; leave one out")
    return words


def open_cargo(
    config: Tune, words: tuple[str, ...], *, settings: Mapping[str, str] | None = None, report: Report
) -> CargoTuning:
    """Build as the user does, in a target folder of our own, and find the programs to tune.

    Args:
        config: the call.
        words: the cargo command.
        settings: variables of the build's environment beside the user's.
        report: told what is done.

    Raises:
        CorpusError: no program is made for size by full link-time optimization.
        ToolError: the rustc does not load the plugin.
        UsageError: the build fails, or is made with another LLVM than asked for.
    """
    place = config.folder.resolve() / _FOLDER
    sign_new(place, "cargo")
    folder = (config.link_folder or Path()).resolve()
    report(0, 1, "build as cargo does")
    deadline = config.compiler.deadline(config.judge.timeout_seconds)
    calls = record_cargo(
        words, folder, place=place, timeout_seconds=max(deadline, 6 * COMPILE_SECONDS), settings=settings
    )
    found, left_out = programs_of(calls)
    rustc = find_rustc(found[0].words[0])
    if config.compiler.llvm not in (None, rustc.major):
        raise UsageError(
            f"--llvm {config.compiler.llvm}: expected that of {rustc.version}, found {rustc.major} there; leave it out"
        )
    toolchain = find_toolchain(rustc.major, need_plugin=True)
    plugin = build_plugin(toolchain)
    try:
        load_plugin(rustc, plugin)
    except ToolError as error:
        raise ToolError(
            f"{rustc.program}: expected a rustc that loads the plugin, found: {error}; try doctor"
        ) from error
    modules = tuple(_module(call, place / "inputs") for call in found)
    compiler = RustCompiler(
        rustc=rustc,
        calls={module.name: call for module, call in zip(modules, found, strict=True)},
        toolchain=toolchain,
        plugin=plugin,
        workers=config.compiler.workers,
        timeout_seconds=config.compiler.deadline(COMPILE_SECONDS),
        room=config.compiler.room(config.folder),
        residents=config.reuse.new_residents(),
        known=config.reuse.new_known(),
    )
    return CargoTuning(
        words=words,
        compiler=compiler,
        modules=modules,
        left_out=left_out,
        inputs={module.name: digest_file(module.bitcode) for module in modules},
        place=place / _PROGRAMS,
        folder=folder,
        tests=tuple(tuple(command) for command in build_commands(config.built, "test")),
        test_seconds=60 * config.built.test_minutes,
    )


def versions_of(tuning: CargoTuning) -> dict[str, str]:
    """What the folder of a search says of its compiler."""
    return {**tuning.compiler.toolchain.describe(), "rustc": tuning.compiler.rustc.version}


def prove_programs(tuning: CargoTuning, plugin: Path, output: Path, tuned: Tuned, *, loaded: Path) -> Tuned:
    """Make the programs themselves by rustc's own link, plainly and with the plugin, and say what to add to the build.

    Args:
        tuning: the build.
        plugin: that was verified.
        output: where it will be.
        tuned: what the verification says.
        loaded: where builds will load it.

    Raises:
        RejectedError: a test prints something else with the tuned programs.
        ToolError: a program is not made with the plugin, or a larger one.
    """
    shutil.rmtree(tuning.place, ignore_errors=True)
    weights: dict[str, tuple[int, int]] = {}
    for module in tuning.modules:
        sizes: list[int] = []
        for name, used in (("plain", None), ("tuned", plugin)):
            path = tuning.place / name / _file_name(tuning.compiler.calls[module.name])
            failed = link_program(tuning.compiler, module, path, plugin=used)
            if failed:
                raise ToolError(f"{module.name}: expected rustc to link the {name} program, found: {failed}")
            sizes.append(section_totals(read_elf(path.read_bytes())).llvm_size_text if path.is_file() else 0)
        if sizes[1] > sizes[0]:
            raise ToolError(
                f"{module.name}: expected a program that is no larger with the plugin, found {sizes[1]:,} in place of "
                f"{sizes[0]:,} bytes; nothing was published, search on with --continue"
            )
        weights[module.name] = (sizes[0], sizes[1])
    calls = [tuning.compiler.calls[module.name] for module in tuning.modules]
    wrapped = shlex.join(["mlgokit", "build", "--plugin", str(output), "--", *tuning.words])
    note = f"the build as it is, with the plugin in the same calls of rustc: {wrapped}"
    return dataclasses.replace(
        tuned,
        flag=cargo_flag(tuning, calls, loaded),
        cargo_programs=weights,
        notes=(*tuned.notes, *_tested(tuning), note),
    )


def cargo_flag(tuning: CargoTuning, calls: Sequence[RustcCall], plugin: Path) -> str:
    """The command that builds each program with the plugin."""
    version, option = tuning.compiler.rustc.version, f"-Zllvm-plugins={plugin.resolve()}"
    lines = [cargo_line(tuning.words, call, unstable_options(version, call.crate), option) for call in calls]
    return " && ".join(lines)


def _tested(tuning: CargoTuning) -> Iterator[str]:
    """What the tests say, which must be the same of both sides."""
    for command in tuning.tests:
        plain, tuned = (_outcome(tuning, command, side) for side in ("plain", "tuned"))
        text = shlex.join(command)
        if plain != tuned:
            raise RejectedError(
                f"--test: expected the same exit code and output of `{text}` with the plain programs and the tuned "
                f"ones, found {_outcome_words(plain)} and {_outcome_words(tuned)}; no plugin was written, run it with "
                f"{tuning.place / 'plain'} and {tuning.place / 'tuned'} first in PATH"
            )
        how = "passes" if plain[0] == 0 else f"ends with {plain[0]}"
        yield f"`{text}` {how} with the plain programs and with the tuned ones, and prints the same"


def _outcome(tuning: CargoTuning, command: Sequence[str], side: str) -> tuple[int, bytes]:
    done = process.run(
        command,
        timeout_seconds=tuning.test_seconds,
        cwd=tuning.folder,
        env={**os.environ, "PATH": f"{tuning.place / side}{os.pathsep}{os.environ.get('PATH', '')}"},
        limits=USERS_LIMITS,
    )
    if done.timed_out:
        raise RejectedError(
            f"--test: expected an end of `{shlex.join(command)}` within {tuning.test_seconds:.0f} s with the {side} "
            "programs, found none; allow more with --test-minutes"
        )
    return done.returncode, done.stdout


def _outcome_words(outcome: tuple[int, bytes]) -> str:
    return f"exit code {outcome[0]} with {len(outcome[1]):,} bytes"


def cargo_line(words: Sequence[str], call: RustcCall, variables: Mapping[str, str], option: str) -> str:
    """As the user builds, by ``cargo rustc``, which gives an option to the program alone and not to all crates."""
    before = list(words[: words.index("--")] if "--" in words else words)
    after = list(words[words.index("--") + 1 :]) if "--" in words else []
    asked = ["rustc" if word in ("build", "b") else word for word in before]
    if call.kind == "bin" and "--bin" not in asked and "--bins" not in asked:
        asked += ["--bin", _program_name(call)]
    elif call.kind != "bin" and "--lib" not in asked:
        asked.append("--lib")
    asked = [f"--bin={_program_name(call)}" if word == "--bins" else word for word in asked]
    return shlex.join([*(f"{name}={value}" for name, value in variables.items()), *asked, "--", *after, option])


def _module(call: RustcCall, place: Path) -> Module:
    """A program as a module: its files by content stand for the bitcode that rustc merges from them."""
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
    """Those that a crate may read while it is compiled."""
    return {name: value for name, value in environment.items() if name.startswith("CARGO_PKG") or name == "OUT_DIR"}


def _program_name(call: RustcCall) -> str:
    return call.environment.get("CARGO_BIN_NAME", call.crate)


def _file_name(call: RustcCall) -> str:
    shapes = {"cdylib": "lib{}.so", "dylib": "lib{}.so", "staticlib": "lib{}.a"}
    return shapes.get(call.kind, "{}").format(call.crate if call.kind != "bin" else _program_name(call))
