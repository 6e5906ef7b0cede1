"""What policies do to the projects of the public benchmark, linked whole; the test projects once for each policy."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from harness import Setup, check_names, kept_row, linker_of, run_benchmark, shown_command
from public_projects import VERSION, public_projects, split_of
from public_tables import (
    LANGUAGES,
    LINKS,
    check_look,
    failures_said,
    read_looks,
    summarise,
    write_look,
)
from results import Cell, Result, Table

from mlgokit.builds.compiled import compile_projects
from mlgokit.builds.images import static_link
from mlgokit.builds.pair import VariantPair
from mlgokit.builds.variant import PLAIN_VARIANT, Variant, make_variant
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import Compiler
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import Corpus
from mlgokit.corpus.sources.extract import extract_projects
from mlgokit.corpus.sources.fetch import default_cache_folder, fetch_archive, prepare_sources
from mlgokit.corpus.sources.projects import Project
from mlgokit.errors import MlgokitError, ToolError, UsageError
from mlgokit.evaluation.compare import compare_builds
from mlgokit.files import digest_file
from mlgokit.manifest import digest_value, plain_json
from mlgokit.module import Module


@dataclass(frozen=True, slots=True, kw_only=True)
class Public:
    """Score policies on the public benchmark: linked whole projects of one split, against plain -Oz."""

    policies: tuple[str, ...] = ("builtin:size", "builtin:passes", "builtin:regalloc", "builtin:weights-size")
    """Policies that are scored together, one for each problem."""
    against: tuple[str, ...] = ()
    """Policies of the other side, which is plain -Oz without any; the bar is about that."""
    split: Literal["validation", "test"] = "validation"
    """Projects to score on. Each look at the test is written down, and the same policies may look once."""
    target: str | None = None
    """Triple of another processor to compile for; the compiler's own if not given."""
    option: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Further option of the compiler for all modules on both sides, as in --option=-fno-unwind-tables."""
    projects: tuple[str, ...] = ()
    """Names of the projects, all of the split if none is given; the test is looked at whole."""
    again: bool = False
    """Another look at the test by policies that had one."""
    prepare: bool = False
    """Only fetch the projects of all splits and make their bitcode; the result says what came of it."""
    folder: Path = Path("build/public")
    """Where sources, bitcode, plain objects and rows are kept."""
    looks: Path = Path("docs/data/public_looks.json")
    """Where looks at the test are written down, with a page of its own."""
    workers: int = 2
    """Compilers that run at once."""
    timeout_seconds: float = 300.0
    """Deadline of one compilation."""
    seed: int = 1
    """Of the intervals."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(Public, measure, arguments)


def measure(config: Public, setup: Setup) -> Result:
    """Prepare the projects and score them.

    Raises:
        PolicyError: a file is no usable policy.
        ToolError: there is no linker.
        UsageError: a project is not in the split, or the policies had their look at the test.
    """
    if config.against and config.split == "test":
        raise UsageError("--against: expected none with --split test, which is against -Oz; leave it out")
    known = public_projects()
    in_split = [name for name in known if config.prepare or split_of(name) == config.split]
    check_names("projects", config.projects, in_split)
    chosen = [known[name] for name in in_split if not config.projects or name in config.projects]
    toolchain = setup.toolchain(config.llvm)
    linker_of(toolchain, "public")
    setup.inputs[f"list of projects, version {VERSION}"] = digest_value([plain_json(one) for one in known.values()])
    if config.prepare:
        return prepared(chosen, config, setup, toolchain)
    after = make_variant(config.policies)
    digests = policy_digests(make_variant(config.policies))
    others = policy_digests(make_variant(config.against)) if config.against else {}
    setup.inputs.update({f"policy {name}, on the other side": digest for name, digest in others.items()})
    setup.inputs.update({f"policy {name}": digest for name, digest in digests.items()})
    looks = read_looks(config.looks)
    if config.split == "test":
        if config.projects:
            raise UsageError("--projects: expected none with --split test, which is looked at whole; leave them out")
        check_look(looks, digests, again=config.again)
    rows, failed = project_rows(chosen, after, config, setup, toolchain)
    result = summarise(
        rows,
        failed,
        policies=config.policies,
        against=config.against,
        split=config.split,
        complete=not config.projects and not config.against,
        seed=config.seed,
    )
    if config.split == "test" and rows:
        command = shown_command("public", ["--split", "test", "--policies", *config.policies], cwd=Path.cwd())
        write_look(
            looks, rows, failed, digests, config.looks, llvm=toolchain.major, again=config.again, command=command
        )
    return result


def policy_digests(side: Variant) -> dict[str, str]:
    """What the policies of a side are known by: the SHA-256 of a file, or the rule itself.

    Example:
        >>> policy_digests(make_variant([":never"]))
        {':never': ':never'}
    """
    return {
        policy if policy.startswith(":") else Path(policy).name: side.record.digests.get(policy, policy)
        for policy in side.record.policies.values()
    }


def place_of(project: Project, config: Public, toolchain: Toolchain) -> Path:
    """The folder of a project, which another archive, other options or another compiler have another of."""
    value = plain_json(project) | {"archive": project.archive.sha256}
    return config.folder / project.name / digest_value({"project": value, "toolchain": toolchain.describe()})[:12]


def build_digest(options: Sequence[str]) -> str:
    """What further options of a build are known by; empty without any."""
    return digest_value(list(options))[:8] if options else ""


def corpus_of(project: Project, config: Public, setup: Setup, toolchain: Toolchain) -> Corpus:
    """The project's bitcode, made unless it is there.

    Raises:
        CorpusError: no module can be made.
        FetchError: the archive is not to be had, or has another digest.
    """
    place = place_of(project, config, toolchain)
    archive = fetch_archive(project.archive, cache_folder=default_cache_folder())
    prepare_sources(project, archive_path=archive, sources_folder=place / "sources")
    return extract_projects(
        [project],
        toolchain=toolchain,
        sources_folder=place / "sources",
        corpus_folder=place / "-".join(["corpus", *filter(None, (config.target, build_digest(config.option)))]),
        target=config.target,
        options=config.option,
        workers=config.workers,
        report=lambda done, total, label: setup.report(done, total, f"{project.name}, front end"),  # noqa: ARG005
    )


def prepared(projects: Sequence[Project], config: Public, setup: Setup, toolchain: Toolchain) -> Result:
    """Make all bitcode, and say of each project what came of it."""
    rows: list[tuple[Cell, ...]] = []
    failed: list[str] = []
    began = time.monotonic()
    for project in projects:
        try:
            corpus = corpus_of(project, config, setup, toolchain)
        except MlgokitError as error:
            failed.append(f"{project.name}: {error}")
            continue
        left_out = len(corpus.failures) + len(corpus.missing)
        rows.append((project.name, project.language, split_of(project.name), len(corpus.modules), left_out))
    counts = [
        (split, *(sum(row[1:3] == (language, split) for row in rows) for language in LANGUAGES),
         sum(int(row[3] or 0) for row in rows if row[2] == split))
        for split in ("train", "validation", "test")
    ]  # fmt: skip
    return Result(
        benchmark="public",
        question="Which projects are in the public benchmark, and can their modules be made here?",
        answer=f"{len(rows)} projects with {sum(int(row[3] or 0) for row in rows)} modules, in "
        f"{time.monotonic() - began:.0f} s; {len(failed)} failed",
        bar="every module of every project",
        passed=not failed and not any(row[4] for row in rows),
        seed=config.seed,
        tables=(
            Table(title="Splits", columns=("split", "C++ projects", "C projects", "modules"), rows=tuple(counts)),
            Table(
                title="Projects",
                columns=("project", "language", "split", "modules", "left out, as they fail"),
                rows=tuple(rows),
                note=failures_said(failed),
            ),
        ),
    )


def project_rows(
    projects: Sequence[Project], after: Variant, config: Public, setup: Setup, toolchain: Toolchain
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """By project, what linking says; and what failed, which is not kept, so that the next call tries it again."""
    plugin = build_plugin(toolchain)
    compiler = ClangCompiler(
        toolchain=toolchain, plugin=plugin, workers=config.workers, timeout_seconds=config.timeout_seconds
    )
    of = {
        "policies": policy_digests(make_variant(config.policies)),
        "plugin": digest_file(plugin),
        "measures": "images, link-aware",
    }
    of |= {} if config.target is None else {"target": config.target}
    of |= {"options": list(config.option)} if config.option else {}
    against = {"against": policy_digests(make_variant(config.against))} if config.against else {}
    of |= against
    rows: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    for number, project in enumerate(projects):
        setup.report(number, len(projects), project.name)
        place = place_of(project, config, toolchain)

        def make(project: Project = project, place: Path = place) -> dict[str, Any]:
            corpus = corpus_of(project, config, setup, toolchain)
            # Plain objects are known by their number, which another list of modules gives to others.
            known = {"modules": [module.name for module in corpus.modules], "target": config.target, **against}
            known |= {"options": list(config.option)} if config.option else {}
            plain = place / "plain" / digest_value(known)[:12]
            before = make_variant(config.against) if config.against else PLAIN_VARIANT
            row = linked_row(corpus.modules, compiler=compiler, before=before, after=after, plain=plain)
            row["left_out"] = len(corpus.failures) + len(corpus.missing)
            return {"project": project.name, "language": project.language, **row}

        try:
            rows[project.name] = kept_row(place / "rows" / f"{digest_value(of)[:16]}.json", make, of=of)
        except MlgokitError as error:
            failed.append(f"{project.name}: {error}")
    return rows, failed


def linked_row(
    modules: Sequence[Module], *, compiler: Compiler, before: Variant = PLAIN_VARIANT, after: Variant, plain: Path
) -> dict[str, Any]:
    """One project as both sides build it, linked both ways; ``plain`` keeps the objects of the side ``before``.

    Raises:
        ToolError: there is no linker, or the project cannot be linked.
    """
    lld = linker_of(compiler.toolchain, "benchmark")
    pair = compile_projects(
        modules,
        VariantPair(before=before, after=after),
        compiler=compiler,
        links={name: static_link(lld, icf=folds) for name, folds in LINKS.items()},
        before_objects=plain,
    )
    found = compare_builds(pair).projects[0]
    if found.link_failure:
        raise ToolError(f"{found.project}: expected an image, found {found.link_failure}; leave the project out")
    return {
        "modules": found.modules,
        "failures": len(found.failures),
        "larger_modules": found.larger_modules,
        "link_aware": [found.before.link_aware, found.after.link_aware],
        "images": {one.image: [dataclasses.asdict(one.before), dataclasses.asdict(one.after)] for one in found.images},
    }


if __name__ == "__main__":
    raise SystemExit(main())
