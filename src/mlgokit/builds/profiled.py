"""A profile of a recorded build: the build with counters, run by the user's commands, and what they counted merged."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from mlgokit.builds.recorded import RecordedBuild
from mlgokit.builds.site import fresh_tree, run_step
from mlgokit.compiler import process
from mlgokit.compiler.limits import USERS_LIMITS
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.toolchain import Toolchain, apt_command
from mlgokit.compiler.wrapping import AddedOptions
from mlgokit.errors import CorpusError, ToolError, UsageError
from mlgokit.files import writing
from mlgokit.progress import Report

_COUNTED = "counted"
"""Name of the build with counters, in logs."""
_MERGE_SECONDS = 600.0
_USES = ("-fprofile-use", "-fprofile-instr-use", "-fprofile-sample-use", "-fauto-profile")


def has_profile(recorded: RecordedBuild) -> bool:
    """Whether the build's own commands compile with a profile."""
    entries = json.loads(recorded.site.database.read_bytes())
    return any(word.startswith(_USES) for entry in entries for word in entry["arguments"])


def profile_options(profile: Path) -> AddedOptions:
    """The options that compile a build with a profile of counters."""
    return AddedOptions(compile=(f"-fprofile-use={profile.resolve()}",))


def make_profile(
    recorded: RecordedBuild, runs: Sequence[Sequence[str]], output: Path, *, run_seconds: float, report: Report
) -> None:
    """Build with counters in the place of the plain build, run, and merge what was counted into ``output``.

    ``runs`` are the words of the commands that run what is built, in the folder of the build.

    Raises:
        CorpusError: the build fails with counters.
        StorageError: the disk is full or not writable.
        ToolError: llvm-profdata is missing, or cannot merge the counts.
        UsageError: a command fails, or no program that was built with counters ran.
    """
    site, raw = recorded.site, output.absolute().with_suffix(".raw")
    llvm_profdata = _find_profdata(site.toolchain)
    with writing(raw):
        shutil.rmtree(raw, ignore_errors=True)
        raw.mkdir(parents=True)
    option = f"-fprofile-generate={raw}"
    added = AddedOptions(compile=(option,), link=(option,))
    with fresh_tree(site):
        if site.commands.clean:
            run_step(site, "clean", _COUNTED, AddedOptions())
        report(0, 1, "build with counters")
        if reason := run_step(site, "build", _COUNTED, added).reason:
            raise CorpusError(
                f"--run: expected the build with -fprofile-generate to succeed, found: {reason}; look into "
                f"{site.log(_COUNTED, 'build')}, or build with a profile yourself (-fprofile-use)"
            )
        for index, words in enumerate(runs):
            report(index, len(runs), "run the build with counters")
            if reason := run_command(words, recorded.tree, seconds=run_seconds):
                raise UsageError(f"--run: {reason}; correct it, and try it by hand in a built folder")
    counts = sorted(str(path) for path in raw.glob("*.profraw"))
    if not counts:
        raise UsageError(
            f"--run: expected a program of the build to write its counts to {raw}, found none; give a command that "
            "runs what --build links"
        )
    argv = [str(llvm_profdata), "merge", "-o", str(output.absolute()), *counts]
    done = process.run(argv, timeout_seconds=_MERGE_SECONDS)
    if done.returncode != 0:
        raise ToolError(
            f"{llvm_profdata}: expected it to merge {len(counts)} files of counts, found: {first_error(done.stderr)}; "
            "is it of the same LLVM as clang?"
        )
    with writing(raw):
        shutil.rmtree(raw)


def run_command(words: Sequence[str], tree: Path, *, seconds: float) -> str:
    """Run a command in the folder of a build; return why it failed, empty if it did not.

    Raises:
        ToolError: it cannot be started.
    """
    # That variable of a user would send the counts elsewhere.
    variables = {name: value for name, value in os.environ.items() if name != "LLVM_PROFILE_FILE"}
    argv = command_in(words, tree)
    done = process.run(argv, timeout_seconds=seconds, cwd=tree, env=variables, limits=USERS_LIMITS)
    if done.timed_out:
        return f"{words[0]} did not end within {seconds:.0f} s"
    return f"{words[0]} ended with {done.returncode}: {first_error(done.stderr)}" if done.returncode else ""


def command_in(words: Sequence[str], tree: Path) -> list[str]:
    """The words of a command whose program may be a path below the folder of the build.

    Example:
        >>> command_in(["./lzip", "-c", "a"], Path("/b")), command_in(["sh", "a.sh"], Path("/b"))
        (['/b/lzip', '-c', 'a'], ['sh', 'a.sh'])
    """
    return [str(tree / words[0]) if "/" in words[0] else words[0], *words[1:]]


def _find_profdata(toolchain: Toolchain) -> Path:
    found = toolchain.find_tool("llvm-profdata")
    if found is None:
        raise ToolError(
            f"--run: expected llvm-profdata of LLVM {toolchain.major}, found none; run "
            f"`{apt_command(f'llvm-{toolchain.major}')}`, or build with a profile yourself (-fprofile-use)"
        )
    return found
