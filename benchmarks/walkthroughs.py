"""Do the walkthroughs of MLGO run here, from nothing, as docs/how-to/walkthroughs.md has them?

Each block of commands in that document is a step, and is run by a shell as it stands, after those before it. What it
prints and writes is looked at: a step that fails, or of which nothing comes, ends its walkthrough.
"""

import csv
import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import Setup, check_names, clean_environment, kept_row, run_benchmark
from results import Result, Table, percent
from tuning_builds import run_command, source_folder
from tuning_projects import C_PROJECTS, CPP_PROJECTS

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import InputError
from mlgokit.files import digest_file
from mlgokit.manifest import digest_value
from mlgokit.progress import Report

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs/how-to/walkthroughs.md"
NAMES = ("inlining", "llvm", "thinlto", "tools")
"""Of the walkthroughs, in the order of the document."""
TUNED = {project.name: project for project in (*CPP_PROJECTS, *C_PROJECTS)}
PROJECTS = {"inlining": "ninja", "thinlto": "cmark", "tools": "double-conversion"}
"""By walkthrough, the project that it is run on; LLVM's own is in the list of its sources."""
PROGRAM, WORKLOAD = "src/cmark", "test/spec.txt"
"""A program in the build of the second project, and what it is run with, in its sources."""
GIN_FOLDERS = {"inlining": "compiler_opt/rl/inlining/gin_configs", "eviction": "compiler_opt/rl/regalloc/gin_configs"}
_SHOWN = 400
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SET = re.compile(r"(?<=[ ])([A-Z_]+)=")
# The shell's mlgokit: its results are JSON, and a verdict that says no is a result.
_LAUNCHER = '#!/bin/sh\n"{python}" -m mlgokit --json "$@"\ncode=$?\n[ $code -eq 1 ] && exit 0\nexit $code\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Walkthroughs:
    """Run the walkthroughs of MLGO on real projects."""

    names: tuple[str, ...] = ()
    """Walkthroughs to run, of inlining, llvm, thinlto and tools; all if none is named."""
    reference: Path | None = None
    """Checkout of google/ml-compiler-opt, whose gin files and vocabularies are read; without it short gin files are
    written."""
    folder: Path = Path("build/walkthroughs")
    """Folder of sources and runs; walkthroughs that are finished there are not run again."""
    llvm_sources: tuple[str, ...] = ("lib/Support/[A-D]*.cpp",)
    """Globs of LLVM's sources that are the corpus."""
    cloning_steps: int = 1000
    """Steps of behavioural cloning."""
    iterations: int = 2
    """Iterations of PPO."""
    modules: int = 40
    """Modules compiled in each of them."""
    seconds: float = 3600.0
    """Deadline of each step."""
    remark: str = ""
    """Sentence for the result, such as what else the machine did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a walkthrough.

    Attributes:
        title: its heading.
        commands: its block; empty if nothing is to do.
    """

    title: str
    commands: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walkthrough:
    """One of the document.

    Attributes:
        title: its heading.
        variables: names that the block at its top sets.
        steps: what follows.
    """

    title: str
    variables: tuple[str, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of a step.

    Attributes:
        step: its heading.
        seconds: wall time; ``None`` if nothing was to do.
        found: what came out.
        reason: why it did not work; empty if it did.
    """

    step: str
    seconds: float | None = None
    found: str = ""
    reason: str = ""


def read_walkthroughs(path: Path = DOCUMENT) -> dict[str, Walkthrough]:
    """The walkthroughs of the document by name.

    Raises:
        InputError: a section has no variables, or a step more than one block.
    """
    sections = path.read_text(encoding="utf-8").split("\n## ")[1:]
    if len(sections) != len(NAMES):
        raise InputError(f"{path.name}: expected sections of {', '.join(NAMES)}, found {len(sections)}; correct it")
    found: dict[str, Walkthrough] = {}
    for name, section in zip(NAMES, sections, strict=True):
        top, *parts = section.split("\n### ")
        steps = [Step(title=part.partition("\n")[0], commands="\n".join(_BLOCK.findall(part))) for part in parts]
        variables = _SET.findall("\n".join(_BLOCK.findall(top)))
        if not variables or any(len(_BLOCK.findall(part)) > 1 for part in parts):
            raise InputError(f"{path.name}: {name}: expected variables, and at most one block in a step; correct it")
        found[name] = Walkthrough(title=top.partition("\n")[0], variables=tuple(variables), steps=tuple(steps))
    return found


def run_walkthrough(
    walkthrough: Walkthrough,
    variables: Mapping[str, str],
    folder: Path,
    *,
    seconds: float,
    report: Report,
) -> tuple[Row, ...]:
    """Run the steps in the new folder ``folder``, up to the first that does not work.

    Args:
        walkthrough: which.
        variables: values of its variables.
        folder: made for it.
        seconds: deadline of each step.
        report: told how many steps are done, of how many, and the next one.

    Raises:
        InputError: other variables are given than it has.
    """
    if {*variables} != {*walkthrough.variables}:
        raise InputError(
            f"{walkthrough.title}: expected the variables {', '.join(walkthrough.variables)}, found "
            f"{', '.join(variables)}; give those"
        )
    work, programs = folder / "work", folder / "bin"
    work.mkdir(parents=True)
    programs.mkdir()
    launcher = programs / "mlgokit"
    launcher.write_text(_LAUNCHER.format(python=sys.executable))
    launcher.chmod(0o755)
    path = os.pathsep.join([str(programs.resolve()), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = clean_environment() | {**variables, "PATH": path}
    rows: list[Row] = []
    exports = ""
    for number, step in enumerate(walkthrough.steps):
        report(number, len(walkthrough.steps), step.title)
        rows.append(run_step(step, exports, work, environment, seconds=seconds))
        if rows[-1].reason:
            break
        exports += "".join(f"{line}\n" for line in step.commands.splitlines() if line.startswith("export "))
    return tuple(rows)


def run_step(step: Step, exports: str, work: Path, environment: Mapping[str, str], *, seconds: float) -> Row:
    """Run a step in the folder ``work``, after the lines ``exports``, and say what came of it."""
    if not step.commands:
        return Row(step=step.title, found="nothing to do")
    before = {path.name for path in work.iterdir()}
    begin = time.monotonic()
    done = process.run(["sh", "-e", "-c", exports + step.commands], timeout_seconds=seconds, cwd=work, env=environment)
    taken = time.monotonic() - begin
    printed = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        how = f"no end in {seconds:.0f} s" if done.timed_out else f"exit code {done.returncode}"
        said = (done.stderr.strip() or printed.strip())[-_SHOWN:]
        return Row(step=step.title, seconds=taken, reason=f"{how}: {said}")
    results = results_in(printed)
    calls = sum(line.startswith("mlgokit ") for line in step.commands.splitlines())
    made = sorted({path.name for path in work.iterdir()} - before)
    found = [facts_of(result, work) for result in results]
    if not calls:
        found.append(", ".join(made) or (f"{len(printed.splitlines())} lines" if printed else ""))
    reason = f"expected {calls} results, found {len(results)}" if len(results) != calls else ""
    if not all(found) or not found:
        reason = reason or f"a command gave nothing: {printed[-_SHOWN:]}"
    return Row(step=step.title, seconds=taken, found="; ".join(found), reason=reason)


def results_in(text: str) -> list[dict[str, Any]]:
    r"""The results that mlgokit printed among what other programs did.

    Example:
        >>> results_in('-- Configuring done\n{\n "modules": 3\n}\n{ no result\n{\n "decisions": 1\n}\n')
        [{'modules': 3}, {'decisions': 1}]
    """
    found: list[dict[str, Any]] = []
    decoder = json.JSONDecoder()
    place = 0
    while (place := text.find('{\n "', place)) >= 0:
        value, place = decoder.raw_decode(text, place)
        found.append(value)
    return found


def facts_of(result: Mapping[str, Any], work: Path) -> str:
    """What a result says, in few words; empty if it says that nothing came out, or that something failed.

    Example:
        >>> facts_of({"modules": 3, "failures": 0}, Path()), facts_of({"modules": 3, "failures": {"a": 1}}, Path())
        ('3 modules', '')
    """
    if "commands" in result and "notes" in result:
        inner = result["result"]
        text = facts_of(inner, work) if inner else f"{len(result['text'].splitlines())} lines"
        scores = [name for call in result["commands"] for name in re.findall(r" --performance=(\S+)", call)]
        return ", ".join([text, *(_change_in(work / name) for name in scores)]) if text else ""
    if any(result.get(name) for name in ("failures", "failed", "refused")):
        return ""
    workloads: Sequence[Any] = result.get("workloads", ())
    if any(one["failures"] or one["same_output"] is False for one in workloads):
        return ""
    counts = [(result.get(name), name) for name in ("modules", "decisions", "features", "projects", "options")]
    words = [f"{value if isinstance(value, int) else len(value)} {name}" for value, name in counts if value]
    if "last_turn" in result:
        words.append(f"{result['counters']['compilations']} compilations")
        words.append(f"reward {percent(result['last_turn']['reward'])}")
    words += [f"{one['measure']} {percent(one['mean'])}" for one in result.get("changes", ())]
    words += [f"{result[name]} bytes" for name in ("size_bytes", "model_bytes") if name in result]
    return ", ".join(words)


def _change_in(path: Path) -> str:
    """The change of all scores that ``generate_default_trace`` wrote: module or function, name, heuristic, policy."""
    with path.open(newline="") as file:
        rows = [(float(row[-2]), float(row[-1])) for row in csv.reader(file)]
    heuristic, policy = (math.fsum(column) for column in zip(*rows, strict=True))
    return f"{len(rows)} scores {percent(policy / heuristic - 1)}"


def write_settings(folder: Path) -> Path:
    """Short gin files under the names of the reference's, for where no checkout of it is; the folder they are in."""
    common = {
        "inlining": "config_registry.get_configuration.implementation = @configs.InliningConfig\n",
        "eviction": "config_registry.get_configuration.implementation = @configs.RegallocEvictionConfig\n",
    }
    for problem, place in GIN_FOLDERS.items():
        where = folder / place
        where.mkdir(parents=True)
        vocabulary = f"{Path(place).parent / 'vocab'}"
        shared = (
            f"include '{place}/common.gin'\n"
            f"get_observation_processing_layer_creator.quantile_file_dir = '{vocabulary}'\n"
        )
        (where / "common.gin").write_text(
            f"{common[problem]}problem_config.flags_to_delete.delete_flags = ('-split-dwarf-file',)\n"
        )
        (where / "behavioral_cloning_nn_agent.gin").write_text(
            f"{shared}train_eval.agent_config_type = @agents.BCAgentConfig\ntrain_eval.batch_size = 32\n"
        )
        (where / "ppo_nn_agent.gin").write_text(
            f"{shared}train_eval.agent_config_type = @agents.PPOAgentConfig\n"
            "train_eval.num_iterations = 20\ntrain_eval.batch_size = 32\n"
        )
    return folder


def write_manifest(path: Path, globs: Sequence[str]) -> None:
    """Write the list with LLVM's sources, with other globs."""
    listed = (ROOT / "examples/llvm-19.toml").read_text(encoding="utf-8")
    path.write_text(re.sub(r"^sources = .*$", f"sources = {json.dumps(list(globs))}", listed, flags=re.MULTILINE))


def build_objects(source: Path, folder: Path, toolchain: Toolchain, *, seconds: float) -> Path:
    """Build a project of CMake with bitcode in its objects, and write what ``bazel aquery`` would say of their link.

    Returns:
        The file; the objects are in the folder ``objects`` beside it.

    Raises:
        ToolError: it cannot be built.
    """
    objects = folder / "objects"
    embed = "-Xclang -fembed-bitcode=all"
    words = ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(objects), "-DCMAKE_BUILD_TYPE=MinSizeRel"]
    words += [f"-DCMAKE_C_COMPILER={toolchain.clang}", f"-DCMAKE_CXX_COMPILER={toolchain.clangxx}"]
    words += [f"-DCMAKE_C_FLAGS={embed}", f"-DCMAKE_CXX_FLAGS={embed}"]
    run_command("objects", words, folder, seconds=seconds)
    run_command("objects", ["cmake", "--build", str(objects)], folder, seconds=seconds)
    names = sorted(found.relative_to(objects).as_posix() for found in objects.rglob("*.o"))
    link = {"mnemonic": "CppLink", "arguments": ["clang++", "-o", "program", *names]}
    path = folder / "aquery.json"
    path.write_text(json.dumps({"artifacts": [], "actions": [link]}))
    return path


def variables_of(name: str, config: Walkthroughs, folder: Path, toolchain: Toolchain) -> dict[str, str]:
    """The values of a walkthrough's variables; what they name is made in ``folder``.

    Raises:
        FetchError: a project cannot be fetched.
        ToolError: one cannot be built.
    """
    values = {"CC": str(toolchain.clang), "CXX": str(toolchain.clangxx)}
    if name in PROJECTS:
        source = source_folder(TUNED[PROJECTS[name]], config.folder / "projects")
        values["SOURCES"] = str(source)
    else:
        write_manifest(folder / "llvm.toml", config.llvm_sources)
        values = {"MANIFEST": str(folder / "llvm.toml")}
    if name == "tools":
        aquery = build_objects(Path(values["SOURCES"]), folder, toolchain, seconds=config.seconds)
        return {**values, "AQUERY": str(aquery), "OBJECTS": str(folder / "objects"), "MLGOKIT_DIR": str(ROOT)}
    if name == "thinlto":
        values |= {"PROGRAM": PROGRAM, "WORKLOAD": f"{values['SOURCES']}/{WORKLOAD}"}
    reference = config.reference.resolve() if config.reference else write_settings(folder / "settings")
    values |= {"ML_COMPILER_OPT_DIR": str(reference), "MODULES": str(config.modules)}
    return {**values, "CLONING_STEPS": str(config.cloning_steps), "ITERATIONS": str(config.iterations)}


def walk(name: str, config: Walkthroughs, toolchain: Toolchain, report: Report) -> tuple[Row, ...]:
    """Run a walkthrough in a new folder, or read how it ended if it did before.

    Raises:
        UsageError: it did so with other options.
        FetchError: its sources cannot be fetched.
        ToolError: what it begins with cannot be built.
    """
    folder = config.folder.resolve() / name
    kept = config.folder / f"{name}.json"
    walkthrough = read_walkthroughs()[name]

    def run() -> dict[str, Any]:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        variables = variables_of(name, config, folder, toolchain)
        rows = run_walkthrough(walkthrough, variables, folder, seconds=config.seconds, report=report)
        return {"rows": [asdict(row) for row in rows]}

    others = {"names", "folder", "remark"} | ({"llvm_sources"} if name != "llvm" else set())
    options = {option: value for option, value in asdict(config).items() if option not in others}
    of = json.loads(json.dumps({"walkthrough": asdict(walkthrough), "options": options}, default=str))
    rows = tuple(Row(**row) for row in kept_row(kept, run, of=of)["rows"])
    if any(row.reason for row in rows):
        kept.unlink()
    return rows


def measure(config: Walkthroughs, setup: Setup) -> Result:
    """Run the walkthroughs that are asked for, and lay their steps out."""
    check_names("names", config.names, NAMES)
    toolchain = setup.toolchain(None)
    config.folder.mkdir(parents=True, exist_ok=True)
    if config.reference:
        files = sorted(path for place in GIN_FOLDERS.values() for path in (config.reference / place).glob("*.gin"))
        setup.inputs["gin files of the reference"] = digest_value([digest_file(path) for path in files])
    chosen = [name for name in NAMES if name in config.names or not config.names]
    found = {name: walk(name, config, toolchain, setup.report) for name in chosen}
    walkthroughs = read_walkthroughs()
    steps = {name: sum(bool(step.commands) for step in walkthroughs[name].steps) for name in chosen}
    works = {name: sum(row.seconds is not None and not row.reason for row in rows) for name, rows in found.items()}
    seconds = sum(row.seconds or 0 for rows in found.values() for row in rows)
    gin = "the gin files and vocabularies of the reference" if config.reference else "short gin files of ours"
    return Result(
        benchmark="walkthroughs",
        question="Do the walkthroughs of google/ml-compiler-opt and LLVM run here, as "
        "[the document](../how-to/walkthroughs.md) has them, from nothing?",
        answer=f"{sum(works.values())} of {sum(steps.values())} steps of {len(chosen)} walkthroughs work, "
        f"in {seconds / 60:.0f} minutes",
        bar="every step of every walkthrough works",
        passed=works == steps,
        seed=1,
        tables=(
            Table(
                title="Walkthroughs",
                columns=("walkthrough", "code", "steps", "work", "nothing to do", "seconds"),
                rows=tuple(
                    (
                        walkthroughs[name].title,
                        PROJECTS.get(name, "LLVM 19.1.7, part of it"),
                        steps[name],
                        works[name],
                        len(walkthroughs[name].steps) - steps[name],
                        sum(row.seconds or 0 for row in rows),
                    )
                    for name, rows in found.items()
                ),
                note=f"{config.cloning_steps} steps of cloning, {config.iterations} iterations of PPO with "
                f"{config.modules} compilations each, with {gin}. So little trains no policy worth having; it "
                f"shows that all steps work. Seconds are wall time. {config.remark}".strip(),
            ),
            *(
                Table(
                    title=walkthroughs[name].title,
                    columns=("step", "seconds", "what came out"),
                    rows=tuple((row.step, row.seconds, row.reason or row.found) for row in rows),
                )
                for name, rows in found.items()
            ),
        ),
    )


def main() -> int:
    """Entry point."""
    return run_benchmark(Walkthroughs, measure)


if __name__ == "__main__":
    raise SystemExit(main())
