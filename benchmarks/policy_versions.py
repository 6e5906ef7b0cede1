"""What the policies that come with the package do to successive versions of projects, linked whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import public
from doubt import HARM, JUDGED, change
from harness import Setup, check_names, linker_of, run_benchmark
from public_projects import split_of
from public_tables import MEASURES, failures_said
from results import Cell, Result, Table, percent
from tuning_versions import MANIFEST

from mlgokit.corpus.sources.projects import load_projects
from mlgokit.evaluation.sides import make_side
from mlgokit.manifest import digest_value, plain_json
from mlgokit.policy.pretrained import BUILTIN, SETS

LEAST_KEPT = 0.8
"""The share of the saving in a project's first version that its last one shall keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersions:
    """Link versions of projects with policies and without, to see what is left of the saving as code changes."""

    policies: tuple[str, ...] = tuple(BUILTIN + name for name in SETS["Oz"])
    """Policies that decide together, one for each problem."""
    projects: tuple[str, ...] = ("double-conversion", "marisa", "fasttext", "leveldb")
    """Which projects of the list; the modules of brotli do not link by themselves."""
    folder: Path = Path("build/public")
    """Where sources, bitcode, plain objects and rows are kept, as for `public.py`."""
    workers: int = 2
    """Compilers that run at once."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/policy_versions.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(PolicyVersions, measure, arguments)


def measure(config: PolicyVersions, setup: Setup) -> Result:
    """Make the corpora and the rows.

    Raises:
        ToolError: there is no linker.
        UsageError: a project is not known.
    """
    versions = load_projects(MANIFEST)
    names = list(dict.fromkeys(project_of(one.name) for one in versions))
    check_names("projects", config.projects, names)
    toolchain = setup.toolchain(config.llvm)
    linker_of(toolchain, "policy_versions")
    setup.inputs["list of versions"] = digest_value([plain_json(one) for one in versions])
    chosen = [one for one in versions if project_of(one.name) in config.projects]
    of = public.Public(policies=config.policies, folder=config.folder, workers=config.workers)
    side = make_side(of.policies)
    setup.inputs.update({f"policy {name}": digest for name, digest in public.policy_digests(side).items()})
    rows, failed = public.project_rows(chosen, side, of, setup, toolchain)
    return summarise(rows, failed, config)


def project_of(version: str) -> str:
    """The project of an entry of the list.

    Example:
        >>> project_of("double-conversion_4.0.0")
        'double-conversion'
    """
    return version.rpartition("_")[0]


def summarise(rows: Mapping[str, Mapping[str, Any]], failed: Sequence[str], config: PolicyVersions) -> Result:
    """The table, and whether savings last."""
    by_project: dict[str, list[str]] = {}
    for name in rows:
        by_project.setdefault(project_of(name), []).append(name)
    lasting = {project: _kept([change(rows[name], JUDGED) for name in of]) for project, of in by_project.items()}
    shown = ", ".join(f"{project} {100 * kept:.0f} %" for project, kept in lasting.items())
    table: list[tuple[Cell, ...]] = [
        (
            project_of(name), name.rpartition("_")[2], split_of(project_of(name)), row["modules"],
            *(percent(change(row, link, part)) for link, part in MEASURES[:3]), row["larger_modules"],
        )
        for name, row in rows.items()
    ]  # fmt: skip
    return Result(
        benchmark="policy_versions",
        question=f"Do {' and '.join(config.policies)} save as much in one version of a project as in the next?",
        answer=f"of the first version's saving the last one has: {shown or 'nothing could be linked'}",
        bar=f"at least {100 * LEAST_KEPT:.0f} %, and no image more than {percent(HARM)} larger",
        passed=bool(lasting)
        and min(lasting.values()) >= LEAST_KEPT
        and max(change(row, JUDGED) for row in rows.values()) <= HARM
        and not failed,
        seed=0,
        tables=(
            Table(
                title="Versions",
                columns=("project", "version", "for", "modules", "image", ".text", "image, icf=all", "larger modules"),
                rows=tuple(table),
                note="Oldest first, against plain -Oz, linked with --gc-sections. Projects for training taught the "
                f"policies in one version, the others in none. {failures_said(failed)}",
            ),
        ),
    )


def _kept(changes: Sequence[float]) -> float:
    """Which share of the first version's saving the last one has; all of it where nothing was saved."""
    return changes[-1] / changes[0] if changes[0] < 0 else 1.0


if __name__ == "__main__":
    raise SystemExit(main())
