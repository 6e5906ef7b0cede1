"""What the policies that come with the package do to code for other processors: linked projects, cross-compiled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import public
from changes import mean_change
from doubt import HARM, JUDGED, change
from harness import Setup, check_names, linker_of, run_benchmark
from public_projects import VERSION, public_projects, split_of
from public_tables import LANGUAGES, MEASURES, failures_said
from results import Cell, Result, Table, percent

from mlgokit.evaluation.sides import make_side
from mlgokit.manifest import digest_value, plain_json
from mlgokit.policy.pretrained import BUILTIN, SETS

ARMS = {name: (BUILTIN + name,) for name in SETS["Oz"]} | {"all": tuple(BUILTIN + name for name in SETS["Oz"])}
"""Policies alone, and together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Link projects for other processors, with the policies that come with the package."""

    targets: tuple[str, ...] = ("aarch64-linux-gnu", "thumbv7-linux-gnueabihf", "riscv64-linux-gnu")
    """Triples of the processors, whose headers are installed."""
    arms: tuple[str, ...] = tuple(ARMS)
    """Names of policies, or all for all together."""
    projects: tuple[str, ...] = (
        "lua", "hunspell", "cmark", "re2", "zstd", "yaml-cpp", "speex", "graphite2", "lcms2", "leveldb", "libmodplug",
    )  # fmt: skip
    """Validation projects of the public benchmark."""
    folder: Path = Path("build/public")
    """Where sources, bitcode, plain objects and rows are kept."""
    workers: int = 2
    """Compilers that run at once."""
    timeout_seconds: float = 300.0
    """Deadline of one compilation."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""
    json: Path = Path("docs/results/targets.json")
    """Where the result goes; the Markdown goes beside it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Targets, measure, arguments)


def measure(config: Targets, setup: Setup) -> Result:
    """Make the corpora and the rows.

    Raises:
        ToolError: there is no linker.
        UsageError: a project is none of validation, or an arm is not known.
    """
    known = public_projects()
    check_names("projects", config.projects, [name for name in known if split_of(name) == "validation"])
    check_names("arms", config.arms, ARMS)
    toolchain = setup.toolchain(config.llvm)
    linker_of(toolchain, "targets")
    setup.inputs[f"list of projects, version {VERSION}"] = digest_value([plain_json(one) for one in known.values()])
    chosen = [known[name] for name in config.projects]
    rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    failed: list[str] = []
    for target in config.targets:
        for arm in config.arms:
            of = public.Public(
                policies=ARMS[arm],
                target=target,
                folder=config.folder,
                workers=config.workers,
                timeout_seconds=config.timeout_seconds,
            )
            digests = public.policy_digests(make_side(of.policies))
            setup.inputs.update({f"policy {name}": digest for name, digest in digests.items()})
            rows[target, arm], missing = public.project_rows(chosen, public.side_of(of), of, setup, toolchain)
            failed += [one for one in (f"{target}, {one}" for one in missing) if one not in failed]
    return summarise(rows, failed, targets=config.targets, arms=config.arms)


def summarise(
    rows: Mapping[tuple[str, str], Mapping[str, Mapping[str, Any]]],
    failed: Sequence[str],
    *,
    targets: Sequence[str],
    arms: Sequence[str],
) -> Result:
    """The tables, and where no project is larger."""
    means: list[tuple[Cell, ...]] = []
    pays: list[str] = []
    for target in targets:
        for arm in arms:
            mine = rows[target, arm]
            worst = {}
            for language in LANGUAGES:
                found = {name: row for name, row in mine.items() if row["language"] == language}
                if not found:
                    continue
                images = {name: change(row, JUDGED) for name, row in found.items()}
                last = max(images, key=lambda name: images[name])
                worst[language] = images[last]
                means.append(
                    (target, arm, language, len(found), percent(mean_change(list(images.values()))),
                     *(percent(mean_change([change(row, link, part) for row in found.values()]))
                       for link, part in MEASURES[1:3]),
                     f"{percent(images[last])}, {last}",
                     sum(row["failures"] for row in found.values()))
                )  # fmt: skip
            if worst and max(worst.values()) <= 0:
                pays.append(f"{arm} on {target}")
    largest = max((change(row, JUDGED) for of in rows.values() for row in of.values()), default=0.0)
    return Result(
        benchmark="targets",
        question="Do the policies that come with the package, which were trained on code for x86-64, make code for "
        "other processors smaller?",
        answer=f"no project larger under {', '.join(pays) or 'none'}; the largest change {percent(largest)}",
        bar=f"no image more than {percent(HARM)} larger",
        passed=largest <= HARM and not failed,
        seed=0,
        tables=(
            Table(
                title="Geometric means",
                columns=("target", "policy", "language", "projects", "image", ".text", "image, icf=all",
                         "worst project", "modules that fail"),
                rows=tuple(means),
                note="Against plain -Oz for the same target, linked with --gc-sections; all is the four "
                "together, each made to decide for the target.",
            ),
            Table(
                title="Projects",
                columns=("target", "policy", "project", "language", "modules", "image", ".text", "image, icf=all",
                         "modules not larger", "left out, as they make no bitcode"),
                rows=tuple(
                    (target, arm, name, row["language"], row["modules"], percent(change(row, JUDGED)),
                     *(percent(change(row, link, part)) for link, part in MEASURES[1:3]),
                     row["modules"] - row["larger_modules"], row["left_out"])
                    for (target, arm), of in rows.items()
                    for name, row in of.items()
                ),
                note=failures_said(failed),
            ),
        ),
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
