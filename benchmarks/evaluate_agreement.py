"""Whether ``mlgokit evaluate`` says what a script of clang, llvm-size and awk says, and nothing of equal sides."""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import Setup, run_benchmark, run_mlgokit
from results import Cell, Result, Table

from mlgokit.builds.variant import PLAIN_VARIANT
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.sources.extract import project_sources
from mlgokit.corpus.sources.projects import choose_projects
from mlgokit.errors import ToolError
from mlgokit.evaluation.compare import make_evaluation
from mlgokit.evaluation.records import COST, MEASURES, Evaluation
from mlgokit.evaluation.verdict import VerdictRules, judge
from mlgokit.export.plugin import export_plugin

SCRIPT = Path(__file__).with_suffix(".sh")
SEEDS = 100
LEVEL = 0.99
FLAGS = "-Oz -DNDEBUG -ffunction-sections -fdata-sections"
"""Without assertions, which have paths of sources in them: the script and the command build at different places."""
LINK = "-fuse-ld=lld -Wl,--gc-sections -Wl,--icf=all"
KINDS = {"none": "", "full": "-flto"}
SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateAgreement:
    """Evaluate one real build as a user would, and count the same with a shell script; then compare equal sides."""

    policy: Path
    """Policy for inlining."""
    project: str = "yaml-cpp"
    """Project of the list, with a CMake build of its own."""
    sources: Path = Path("quickstart/sources")
    """Folder where `mlgokit corpus fetch` put it."""
    cmake: tuple[str, ...] = ("-DYAML_BUILD_SHARED_LIBS=ON", "-DYAML_CPP_BUILD_TESTS=OFF")
    """Options of its configuration."""
    corpus: Path = Path("quickstart/corpus")
    """Corpus for the equal sides."""
    projects: tuple[str, ...] = ()
    """Its projects; those held out by default."""
    llvm: int | None = None
    """LLVM major to use; the newest supported one if not given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark(EvaluateAgreement, measure, arguments)


def measure(config: EvaluateAgreement, setup: Setup) -> Result:
    """Agreement and equal sides.

    Raises:
        ToolError: the script failed.
    """
    toolchain = setup.toolchain(config.llvm)
    setup.policies([config.policy])
    setup.corpus(config.corpus)
    rows: list[tuple[Cell, ...]] = []
    with tempfile.TemporaryDirectory(prefix="mlgokit-agreement-") as scratch:
        plugin = Path(scratch) / "policy.so"
        export_plugin(toolchain, [config.policy], plugin)
        for kind, lto in KINDS.items():
            counted = by_script(config, toolchain, plugin, lto, Path(scratch))
            found = by_command(config, toolchain, plugin, lto)
            rows.append(compared(kind, found, counted))
    equal = [equal_sides(config, name, options) for name, options in sides(config).items()]
    agree = all(row[-1] == 0 for row in rows)
    silent = all(row[2] == 0 and row[3] == SEEDS and row[4] == 0 for row in equal)
    files = sum(int(row[1] or 0) + int(row[2] or 0) for row in rows)
    return Result(
        benchmark="evaluate_agreement",
        question="Does `mlgokit evaluate` say what a shell script of clang, llvm-size and awk says of a real build, "
        "and does it claim a difference where there is none?",
        answer=f"{sum(int(row[-1] or 0) for row in rows)} of {2 * files} sizes differ from the script's; equal sides "
        f"differ in {sum(int(row[2] or 0) for row in equal)} modules, functions and images, and the "
        f"{100 * LEVEL:g} % interval has zero for {min(int(row[3] or 0) for row in equal)} of {SEEDS} seeds",
        bar="no size differs; zero in all intervals, and no verdict to ship",
        passed=agree and silent,
        seed=1,
        tables=(
            Table(
                title=f"The build of {config.project} with gc-sections and icf=all",
                columns=("link-time optimization", "objects", "images", "image before", "image after", "differ"),
                rows=tuple(rows),
                note="Bytes of all images, by llvm-size's text; `differ` are objects and images of either side whose "
                "bytes are not the same in both accounts. Objects of link-time optimization are bitcode, which "
                "llvm-size does not read.",
            ),
            Table(
                title=f"Equal sides, {SEEDS} seeds, {100 * LEVEL:g} % intervals",
                columns=("both sides", "modules", "differences", "seeds with zero inside", "verdicts to ship"),
                rows=tuple(equal),
                note="Differences are counted in modules, functions (bytes and costs of register allocation) and "
                "images.",
            ),
        ),
    )


def by_script(
    config: EvaluateAgreement, toolchain: Toolchain, plugin: Path, lto: str, scratch: Path
) -> dict[tuple[str, str], int]:
    """Side and path to text, as the script prints them."""
    root = tree(config)
    size = toolchain.clang.resolve().parent / "llvm-size"
    flags = f"{FLAGS} {lto}".strip()
    words = ["sh", SCRIPT, root, scratch, toolchain.clang, toolchain.clangxx, size, plugin, flags, *cmake(config)]
    done = process.run(words, timeout_seconds=SECONDS)
    if done.returncode != 0:
        log = (scratch / "log").read_text(errors="replace")[-500:] if (scratch / "log").exists() else done.stderr
        raise ToolError(f"{SCRIPT.name}: expected both builds, found: {log}; build the project by hand")
    lines = (line.split(" ") for line in done.stdout.decode().splitlines())
    return {(side, name): int(text) for side, name, text in lines}


def by_command(config: EvaluateAgreement, toolchain: Toolchain, plugin: Path, lto: str) -> Evaluation:
    """The same build as a user evaluates it."""
    flags = f"{FLAGS} {lto}".strip()
    options = " ".join(f"'{option}'" for option in cmake(config))
    configure = f"cmake -S . -B build -DCMAKE_C_FLAGS='{flags}' -DCMAKE_CXX_FLAGS='{flags}' {options}"
    words = ["evaluate", "--plugin", str(plugin), "--build", configure, "--build", "cmake --build build -j2"]
    words += ["--folder", str(tree(config)), "--llvm", str(toolchain.major)]
    return Evaluation.from_json(run_mlgokit(words, timeout_seconds=SECONDS))


def cmake(config: EvaluateAgreement) -> list[str]:
    """Options of the configuration that both have."""
    kinds = ("SHARED", "EXE")
    return [
        *config.cmake,
        "-DCMAKE_BUILD_TYPE=Sizes",
        # The path in a program would be that of its folder.
        "-DCMAKE_SKIP_RPATH=ON",
        *(f"-DCMAKE_{kind}_LINKER_FLAGS={LINK}" for kind in kinds),
    ]


def tree(config: EvaluateAgreement) -> Path:
    """The folder of the project's own CMakeLists.txt."""
    (project,) = choose_projects(None, (config.project,))
    root, _ = project_sources(project, sources_folder=config.sources)
    return next(folder for folder in (root, *root.parents) if (folder / "CMakeLists.txt").exists())


def compared(kind: str, found: Evaluation, counted: dict[tuple[str, str], int]) -> tuple[Cell, ...]:
    """A row: how many sizes differ, of objects and images on both sides."""
    (project,) = found.projects
    ours: dict[tuple[str, str], int] = {}
    for side in ("before", "after"):
        ours |= {
            (side, row.module.removeprefix("build/")): built.objects
            for row in project.module_rows
            if (built := getattr(row, side)).status == "ok"
        }
        ours |= {(side, image.image.removeprefix("build/")): getattr(image, side).image for image in project.images}
    differ = sum(ours.get(key) != counted.get(key) for key in ours.keys() | counted.keys())
    objects = len(ours) // 2 - len(project.images)
    return kind, objects, len(project.images), project.before.image, project.after.image, differ


def sides(config: EvaluateAgreement) -> dict[str, list[str]]:
    """Evaluations of something against itself, by name the options of `mlgokit evaluate`."""
    policy, rule = str(config.policy), "regalloc-eviction=:first"
    return {
        "plain": ["--plain"],
        "policy": ["--policy", policy, "--against-policy", policy],
        "register allocation": ["--policy", rule, "--against-policy", rule],
    }


def equal_sides(config: EvaluateAgreement, name: str, options: Sequence[str]) -> tuple[Cell, ...]:
    """A row: differences, seeds whose intervals have zero inside by every measure, verdicts to ship."""
    words = ["evaluate", *options, "--corpus", str(config.corpus), "--costs", "yes"]
    words += ["--projects", *config.projects] if config.projects else []
    words += [] if config.llvm is None else ["--llvm", str(config.llvm)]
    found = Evaluation.from_json(run_mlgokit(words, timeout_seconds=SECONDS))
    rows = [row for project in found.projects for row in project.module_rows]
    images = [image for project in found.projects for image in project.images]
    differences = sum(len(row.differing) + (row.before.objects != row.after.objects) for row in rows)
    differences += sum(image.before.sha256 != image.after.sha256 for image in images)
    inside = ships = 0
    for seed in range(SEEDS):
        again = make_evaluation(
            found.projects, before=PLAIN_VARIANT, after=PLAIN_VARIANT, seed=seed, level=LEVEL,
            compilations=found.compilations,
        )  # fmt: skip
        inside += all(again.overall[measure].low <= 0 <= again.overall[measure].high for measure in (*MEASURES, COST))
        ships += any(judge(again, VerdictRules(), measure).ship for measure in (*MEASURES, COST))
    return name, len(rows), differences, inside, ships


if __name__ == "__main__":
    sys.exit(main())
