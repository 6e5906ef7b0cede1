"""What policies do to programs that are linked with -flto and -flto=thin, in all compile steps and in the link."""

import dataclasses
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Setup, check_names, kept_row, linker_of, run_benchmark
from results import Cell, Result, Table, percent
from tuning_builds import LINKING, build_project, source_folder
from tuning_projects import PROJECTS

from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import MlgokitError
from mlgokit.export.plugin import export_plugin
from mlgokit.files import digest_file
from mlgokit.policy.pretrained import policy_files
from mlgokit.statistics import geometric_mean_change

KINDS = {"-flto": ("-flto",), "-flto=thin": ("-flto=thin",)}
MOST = 0.001
"""A build that grows by more is larger."""
BAR = -0.03
"""That of issue 60, in either language."""
PARTS = ("image", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesLto:
    """Build real programs with link-time optimization, with and without policies, and run their tests."""

    policies: tuple[str, ...] = ("builtin:Oz",)
    """Policies, one for each problem."""
    projects: tuple[str, ...] = (
        "ninja", "muparser", "jsoncpp", "pugixml", "tinyxml2", "double-conversion", "cmark", "expat", "jansson",
    )  # fmt: skip
    """Which projects."""
    folder: Path = Path("build/policies-lto")
    """Where projects and rows are kept."""
    workers: int = 2
    """Compilers that run at once."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(PoliciesLto, measure, arguments)


def measure(config: PoliciesLto, setup: Setup) -> Result:
    """Build what is missing, and make the tables.

    Raises:
        ToolError: there is no linker.
        UsageError: a project is not known.
    """
    check_names("projects", config.projects, PROJECTS)
    toolchain = setup.toolchain(config.llvm)
    files = policy_files(config.policies)
    setup.policies(files)
    config.folder.mkdir(parents=True, exist_ok=True)
    plugin = export_plugin(toolchain, files, config.folder / "policies.so").plugin
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for number, name in enumerate(config.projects):
        setup.inputs[f"{name}, {PROJECTS[name].archive.file}"] = PROJECTS[name].archive.sha256
        for kind in KINDS:
            setup.report(number, len(config.projects), f"{name}, {kind}")
            try:
                rows[name, kind] = _row(config, name, kind, toolchain=toolchain, plugin=Path(plugin))
            except MlgokitError as error:
                failed[f"{name}, {kind}"] = str(error)
    return summarise(rows, failed, config=config)


def _row(config: PoliciesLto, name: str, kind: str, *, toolchain: Toolchain, plugin: Path) -> dict[str, Any]:
    """Both builds of a project by one kind of link-time optimization."""
    lld = linker_of(toolchain, "policies_lto")
    place = config.folder / name
    source = source_folder(PROJECTS[name], config.folder)

    def make() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for build in ("before", "after"):
            flags = [*KINDS[kind], "-Wno-unused-command-line-argument"]
            linking = [*LINKING, "-Wl,--icf=all", f"--ld-path={lld}", *KINDS[kind]]
            if build == "after":
                flags.append(f"-fpass-plugin={plugin.resolve()}")
                linking.append(f"-Wl,--load-pass-plugin={plugin.resolve()}")
            built = build_project(
                PROJECTS[name],
                place / f"{build}{kind}",
                source=source,
                toolchain=toolchain,
                plugin_flag=shlex.join(flags),
                workers=config.workers,
                linking=linking,
                runs_tests=build == "after",
            )
            found[build] = dataclasses.asdict(built)
        return found

    of = {"plugin": digest_file(plugin), "toolchain": toolchain.describe(), "archive": PROJECTS[name].archive.sha256}
    return kept_row(place / f"rows{kind}.json", make, of=of)


def change(row: Mapping[str, Any], part: str) -> float:
    """A build's change of a part of its image.

    Example:
        >>> change({"before": {"image": {"text": 200}}, "after": {"image": {"text": 190}}}, "text")
        -0.05
    """
    return round(float(row["after"]["image"][part] / row["before"]["image"][part] - 1), 9)


def summarise(
    rows: Mapping[tuple[str, str], Mapping[str, Any]], failed: Mapping[str, str], *, config: PoliciesLto
) -> Result:
    """The tables of all rows that there are."""
    means: list[tuple[Cell, ...]] = []
    reached = 0
    for kind in KINDS:
        for language in ("c++", "c"):
            mine = [row for (name, of), row in rows.items() if of == kind and PROJECTS[name].language == language]
            if mine:
                changes = [
                    geometric_mean_change(*([row[side]["image"][part] for row in mine] for side in ("before", "after")))
                    for part in PARTS
                ]
                worst = max(change(row, "image") for row in mine)
                reached += changes[0] <= BAR
                means.append((kind, language, len(mine), *map(percent, changes), percent(worst)))
    larger = sum(change(row, "image") > MOST for row in rows.values())
    told = "; ".join(f"{row[0]} {str(row[1]).upper()} {row[3]}" for row in means)
    return Result(
        benchmark="policies_lto",
        question=f"What does {' and '.join(config.policies)} do to programs that are linked with -flto?",
        answer=f"{told or 'nothing was built'}; {larger} of {len(rows)} builds more than {percent(MOST)} larger, "
        f"{len(failed)} failed",
        bar=f"{percent(BAR)} for either link in either language, no build more than {percent(MOST)} larger, all tests "
        "pass",
        passed=bool(rows) and reached == len(means) and not larger and not failed,
        seed=1,
        tables=(
            Table(
                title="In the geometric mean",
                columns=("link", "language", "programs", "image", "of that .text", "worst image"),
                rows=tuple(means),
                note="Against the same build without policies: -Oz, lld with --gc-sections and --icf=all; the plugin "
                "is in all compile steps and in the link. Images are .text, .rodata, exception and unwind tables.",
            ),
            Table(
                title="Programs",
                columns=("project", "language", "link", "bytes before", "image", "of that .text", "tests that passed"),
                rows=tuple(
                    (name, PROJECTS[name].language, kind, row["before"]["image"]["image"],
                     *(percent(change(row, part)) for part in PARTS), row["after"]["tests"])
                    for (name, kind), row in rows.items()
                ),
            ),
            *([Table(title="Failures", columns=("build", "reason"), rows=tuple(failed.items()))] if failed else []),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
