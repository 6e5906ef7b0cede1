"""How much smaller does tuning make Rust programs with opt-level=z, fat LTO and one codegen unit, by rustc itself?"""

import dataclasses
import json
import os
import re
import shutil
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Setup, check_names, run_benchmark
from results import Cell, Result, Table

from mlgokit.commands import tune
from mlgokit.commands.options import CompilerOptions
from mlgokit.commands.tune_cargo import open_cargo
from mlgokit.commands.tune_options import ALLOCATION_SHARE
from mlgokit.compiler import process
from mlgokit.compiler.objects.elf import read_elf
from mlgokit.compiler.objects.measure import section_totals
from mlgokit.compiler.plugin_build import link_policies
from mlgokit.compiler.rust.compile import link_program
from mlgokit.compiler.rust.toolchain import find_rustc
from mlgokit.errors import UsageError
from mlgokit.evaluation.statistics import geometric_mean_change
from mlgokit.files import atomic_write
from mlgokit.policy.pretrained import policy_files
from mlgokit.policy.store import load_policy
from mlgokit.progress import Report
from mlgokit.tune.publish import RESULT_NAME
from mlgokit.tune.result import Tuned

MANIFEST = Path(__file__).with_suffix(".toml")
RUN_SECONDS = 60.0
BAR, AIM = -0.03, -0.06
_WEIGHTS = ("file", "image", "text")
_PARTS = ("inlining", "passes of the optimizer", "passes", "registers")
PROFILE = {
    f"CARGO_PROFILE_RELEASE_{name}": value
    for name, value in {"OPT_LEVEL": "z", "LTO": "fat", "CODEGEN_UNITS": "1"}.items()
}
"""Variables by which cargo builds for size, whatever a program's own profile says."""
_TESTS = re.compile(r"^\[(target\.[^\n]*\.)?dev-dependencies[^\n]*\]\n(?:(?!\[)[^\n]*\n?)*", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRust:
    """Tune programs by their cargo builds, build them plainly, with the plugin and with a policy, and run them all."""

    sources: Path = Path("build/rust-sources")
    """Folder with the unpacked source packages of programs that are no librust-*-dev (apt-get source)."""
    registry: Path = Path("/usr/share/cargo/registry")
    """Folder of crates, as librust-*-dev packages fill it."""
    folder: Path = Path("build/tuning-rust")
    """Where copies, searches and finished programs are kept; a run goes on where the last one stopped."""
    programs: tuple[str, ...] = ()
    """Which programs; all of the list if none is named."""
    minutes: float = 15.0
    """Processor time of each search in minutes, which it has in slices, in turn with the others; so it takes some
    more."""
    slice_seconds: int = 300
    """Wall time of each slice of a search."""
    wall_minutes: float = 600.0
    """Wall time after which no slice begins of a program that has had one; the rows say what each has had."""
    allocation_share: float = ALLOCATION_SHARE
    """As of `mlgokit tune`."""
    policies: tuple[str, ...] = ()
    """Policies tried as they are, such as builtin:Oz; none if not given."""
    workers: int = 2
    """Compilers that run at once."""
    json: Path = Path("docs/results/tuning_rust.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(TuningRust, measure, arguments)


def measure(config: TuningRust, setup: Setup) -> Result:
    """Run what is not finished yet.

    Raises:
        UsageError: a program is not known, or not there.
    """
    listed = {one["name"]: one for one in tomllib.loads(MANIFEST.read_text())["program"]}
    check_names("programs", config.programs, listed)
    rustc = find_rustc()
    setup.toolchain(rustc.major)
    setup.tools.update({"rustc": rustc.version, "LLVM of rustc": rustc.llvm})
    setup.policies(policy_files(config.policies))
    os.environ.update(PROFILE)
    programs = [listed[name] for name in config.programs or tuple(listed)]
    searched = _searched(config, programs, setup.report)
    rows = {one["name"]: searched[one["name"]] | _compared(config, one, setup.report) for one in programs}
    return summarise(rows, config, missing=[name for name in listed if name not in rows])


def _searched(config: TuningRust, programs: Sequence[dict[str, Any]], report: Report) -> dict[str, dict[str, Any]]:
    """Give the program that has had least another slice, until all have had enough or the time is over."""
    end = time.monotonic() + 60 * config.wall_minutes
    places = {one["name"]: config.folder / one["name"] / f"row-{config.allocation_share:g}.json" for one in programs}
    rows = {name: _known(path) for name, path in places.items()}
    while True:
        behind = [one for one in programs if _minutes(rows[one["name"]]) < config.minutes]
        program = min(behind, key=lambda one: _minutes(rows[one["name"]]), default=None)
        if program is None or (rows[program["name"]] and time.monotonic() > end):
            return rows
        name = program["name"]
        rows[name] = _after_slice(config, program, report)
        atomic_write(places[name], json.dumps(rows[name]))


def _minutes(row: dict[str, Any]) -> float:
    """Processor time of a program's search so far."""
    return row["user seconds"] / 60 if row else 0.0


def _after_slice(config: TuningRust, program: dict[str, Any], report: Report) -> dict[str, Any]:
    """Search one slice more."""
    how = _call(config, program)
    begun = (how.folder / "search" / "manifest.json").exists()
    return _row(tune.run(dataclasses.replace(how, go_on=begun), report=report))


def _known(place: Path) -> dict[str, Any]:
    """What a program's search has had, by what it published last, perhaps when it went on without this benchmark."""
    published = place.parent / "tune" / RESULT_NAME
    if published.exists():
        return _row(Tuned.from_json(json.loads(published.read_bytes())))
    return json.loads(place.read_bytes()) if place.exists() else {}


def _row(tuned: Tuned) -> dict[str, Any]:
    return {
        "compilations": tuned.compilations,
        "user seconds": tuned.user_seconds,
        "of that registers": 0.0 if tuned.allocated is None else tuned.allocated.user_seconds,
        "decisions": sum(one.decisions for one in tuned.modules),
        "curve": [(point.user_seconds, point.change) for point in tuned.curve],
    }


def _compared(config: TuningRust, program: dict[str, Any], report: Report) -> dict[str, Any]:
    """The programs of the last slice: their sizes, and whether they do the same."""
    how, source = _call(config, program), _copied(config, program)
    name = program.get("binary", program["name"])
    built = {side: how.folder / "cargo" / "programs" / side / name for side in ("plain", "tuned")}
    if config.policies:
        built["policies"] = _with_policies(config.policies, how, name, report)
    outcomes = {side: _outcomes(path, program, source) for side, path in built.items()}
    return {
        "sizes": {
            side: dataclasses.asdict(section_totals(read_elf(path.read_bytes()))) for side, path in built.items()
        },
        "files": {side: _stripped(path) for side, path in built.items()},
        "same": {side: found == outcomes["plain"] for side, found in outcomes.items()},
        "parts": _parts(Tuned.from_json(json.loads((how.folder / RESULT_NAME).read_bytes()))),
        "runs": len(program["runs"]),
        "output bytes": sum(len(text) for _, text, _ in outcomes["plain"]),
    }


def _parts(tuned: Tuned) -> dict[str, float]:
    """What each kind of decision changed of the object's bytes that count, one after the other, of the plain ones."""
    found = {"passes of the optimizer": tuned.optimizer_passes, "passes": tuned.passes, "registers": tuned.allocated}
    searched = {name: one for name, one in found.items() if one is not None}
    first = next((one.before_bytes for one in searched.values()), tuned.tuned_bytes)
    parts = {"inlining": first - tuned.plain_bytes}
    parts |= {name: one.after_bytes - one.before_bytes for name, one in searched.items()}
    return {name: change / tuned.plain_bytes for name, change in parts.items()}


def _call(config: TuningRust, program: dict[str, Any]) -> tune.Tune:
    folder = (config.folder / program["name"]).resolve()
    return tune.Tune(
        cargo=" ".join(cargo_words(program)),
        link_folder=_copied(config, program),
        folder=folder / "tune",
        output=folder / "tuned.so",
        budget=f"{config.slice_seconds}s",
        allocation_share=config.allocation_share,
        compiler=CompilerOptions(workers=config.workers),
    )


def cargo_words(program: dict[str, Any]) -> tuple[str, ...]:
    """The command that builds a program."""
    return ("cargo", "build", "--release", "--offline", *program["build"])


def _copied(config: TuningRust, program: dict[str, Any]) -> Path:
    return copied(program, config.folder, registry=config.registry, sources=config.sources)


def copied(program: dict[str, Any], folder: Path, *, registry: Path, sources: Path) -> Path:
    """A copy of the program's sources, whose dependencies for tests are left out: they are not all packaged.

    Raises:
        UsageError: the program is not there.
    """
    place = (folder / program["name"] / "source").resolve()
    if place.exists():
        return place
    found = [root / program["source"] for root in (registry, sources)]
    source = next((path for path in found if path.is_dir()), None)
    if source is None:
        raise UsageError(
            f"{program['name']}: expected its sources in {found[0]} or {found[1]}, found none; get them from "
            f"{', '.join(program['packages'])}"
        )
    shutil.copytree(source, place)
    for name in ("Cargo.lock", ".cargo-checksum.json"):
        (place / name).unlink(missing_ok=True)
    manifest = _TESTS.sub("", (place / "Cargo.toml").read_text())
    for feature in program.get("without_features", ()):
        manifest = re.sub(rf"^{feature} = .*\n", "", manifest, flags=re.MULTILINE)
    (place / "Cargo.toml").write_text(manifest)
    (place / ".cargo").mkdir(exist_ok=True)
    settings = f'[source.crates-io]\nreplace-with = "debian"\n\n[source.debian]\ndirectory = "{registry.resolve()}"\n'
    (place / ".cargo" / "config.toml").write_text(settings)
    return place


def _with_policies(policies: Sequence[str], how: tune.Tune, name: str, report: Report) -> Path:
    folder = how.folder.parent
    opened = open_cargo(how, tuple((how.cargo or "").split()), report=report)
    files = {load_policy(path).problem: path for path in policy_files(policies)}
    plugin = link_policies(opened.compiler.toolchain, files, folder / "policies.so")
    module = next(one for one in opened.modules if one.name == name)
    path = folder / "policies" / name
    failed = link_program(opened.compiler, module, path, plugin=plugin, settings={"MLGOKIT_PHASE": "link"})
    if failed:
        raise UsageError(f"{name}: expected a program with the policies, found: {failed}")
    return path


def _outcomes(path: Path, program: dict[str, Any], source: Path) -> list[tuple[int, bytes, str]]:
    """Exit code and both outputs of each run, all under one path, which some programs print."""
    given = (source / program["input"]).read_bytes() if "input" in program else b""
    place = source.parent / "run" / path.name
    place.parent.mkdir(exist_ok=True)
    shutil.copy(path, place)
    found = [
        process.run([place, *words], timeout_seconds=RUN_SECONDS, cwd=source, stdin=given) for words in program["runs"]
    ]
    return [(done.returncode, done.stdout, done.stderr) for done in found]


def _stripped(path: Path) -> int:
    """Size of the file without symbols."""
    stripped = path.with_name(f"{path.name}.stripped")
    process.run(["strip", "-o", stripped, path], timeout_seconds=RUN_SECONDS)
    return stripped.stat().st_size


def _percent(change: float) -> str:
    return f"{100 * change:+.2f} %"


def summarise(rows: dict[str, dict[str, Any]], config: TuningRust, *, missing: Sequence[str]) -> Result:
    """The tables of all programs, and the bar; some of the list may be missing."""

    def weight(row: dict[str, Any], side: str, what: str) -> int:
        sizes = row["sizes"][side]
        image = sizes["text"] + sizes["rodata"] + sizes["eh_frame"]
        return {"file": row["files"][side], "image": image, "text": sizes["text"]}[what]

    def change(side: str, what: str) -> float:
        pairs = np.array([(weight(row, "plain", what), weight(row, side, what)) for row in rows.values()], float)
        return geometric_mean_change(pairs[:, 0], pairs[:, 1])

    def percent(row: dict[str, Any], side: str, what: str) -> str | None:
        if side not in row["files"]:
            return None
        return _percent(weight(row, side, what) / weight(row, "plain", what) - 1)

    table: list[tuple[Cell, ...]] = []
    for name, row in rows.items():
        table.append(
            (
                name,
                row["files"]["plain"],
                f"{100 * weight(row, 'plain', 'text') / row['files']['plain']:.0f} %",
                percent(row, "tuned", "file"),
                percent(row, "tuned", "image"),
                percent(row, "tuned", "text"),
                percent(row, "policies", "file"),
                row["compilations"],
                _minutes(row),
                row["output bytes"],
                "yes" if all(row["same"].values()) else "no",
            )
        )
    tuned = change("tuned", "file")
    same = all(all(row["same"].values()) for row in rows.values())
    larger = [name for name, row in rows.items() if weight(row, "tuned", "file") > weight(row, "plain", "file")]
    policy = ""
    if config.policies:
        policy = f"; {' and '.join(config.policies)} without a search: {100 * change('policies', 'file'):+.2f} %"
    left = f"; not measured yet: {', '.join(missing)}" if missing else ""
    columns = (
        "program", "stripped file, bytes", "of that code", "tuned", "image", "code", "policies", "compilations",
        "core-minutes", "bytes of output", "same output",
    )  # fmt: skip
    return Result(
        benchmark="tuning_rust",
        question="How much smaller does `mlgokit tune --cargo` make Rust programs that are built with opt-level=z, fat "
        "LTO and one codegen unit?",
        answer=f"{len(rows)} programs: {100 * tuned:+.2f} % of the stripped file in the geometric mean (image "
        f"{100 * change('tuned', 'image'):+.2f} %, code {100 * change('tuned', 'text'):+.2f} %), {len(larger)} larger, "
        f"outputs {'all the same' if same else 'differ'}{policy}{left}",
        bar=f"stripped file {100 * BAR:g} % in the geometric mean of at least 4 programs (aim {100 * AIM:g} %), none "
        "larger, same output",
        passed=tuned <= BAR and not larger and same and len(rows) >= 4,
        seed=0,
        tables=(
            Table(
                title="Programs",
                columns=columns,
                rows=tuple(table),
                note="The file is the whole program as rustc links it, without symbols; its segments begin at whole "
                "pages, so it changes by 4,096 bytes at a time in places. Image: code, read-only data and unwind "
                "tables. All against the build without a plugin. The standard library takes part. Data and "
                "relocations are in the file, and no decision changes them. Core-minutes: of compilations in the "
                "search, registers included. Output: exit codes and both outputs of a few runs with the program's own "
                "sources as input, compared byte by byte. "
                "Policies: the same call of rustc with a plugin of policies alone, and no search.",
            ),
            Table(
                title="By kind of decision",
                columns=("program", *_PARTS),
                rows=tuple(
                    (name, *(_percent(row["parts"][part]) if part in row["parts"] else None for part in _PARTS))
                    for name, row in rows.items()
                ),
                note="Of the object's code, read-only data and unwind tables, in the order in which they are searched, "
                "each on top of those before. Registers: the search, and the policies of registers in the plugin where "
                "they gave less.",
            ),
            Table(
                title="Geometric means",
                columns=("of", "programs", "stripped file", "image", "code", "core-minutes each"),
                rows=(
                    (
                        "tuned",
                        len(rows),
                        *(_percent(change("tuned", what)) for what in _WEIGHTS),
                        float(np.mean([_minutes(row) for row in rows.values()])),
                    ),
                    *(
                        [
                            (
                                "policies alone",
                                len(rows),
                                *(_percent(change("policies", what)) for what in _WEIGHTS),
                                None,
                            )
                        ]
                        if config.policies
                        else []
                    ),
                ),
                note="Core-minutes are the arithmetic mean.",
            ),
        ),
    )


if __name__ == "__main__":
    raise SystemExit(main())
