"""What every benchmark does alike: options, what it was made with, rows that a later run goes on with, the result.

A benchmark is a frozen dataclass of options, and a function from it and a :class:`Setup` to a
:class:`~results.Result`. Compilers and corpora are opened through the setup, so that the result names them.
"""

import contextlib
import dataclasses
import inspect
import json
import os
import platform
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tyro
from results import Result, page_of, write_result

from mlgokit.commands.progress_bar import show_progress
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain, find_toolchain
from mlgokit.corpus.corpus import Corpus, load_corpus
from mlgokit.corpus.identity import digest_modules
from mlgokit.errors import MlgokitError, ToolError, UsageError
from mlgokit.files import atomic_write, digest_file
from mlgokit.manifest import digest_value, package_version
from mlgokit.module import Module
from mlgokit.policy.pretrained import BUILTIN, SHIPPED
from mlgokit.progress import Report

DATA = Path("docs/data")
INTERRUPTED = 130
Config = TypeVar("Config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the result goes."""

    json: Path
    """JSON file for the result. Its page in Markdown is beside it; of one in docs/data, in docs/results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a result is made with.

    Attributes:
        report: told how far the benchmark is.
        tools: versions of the tools that take part.
        inputs: name to digest.
    """

    report: Report
    tools: dict[str, str] = field(default_factory=dict[str, str])
    inputs: dict[str, str] = field(default_factory=dict[str, str])

    def toolchain(self, major: int | None, *, suffix: str = "") -> Toolchain:
        """A compiler that can load the plugin; ``suffix`` goes behind the names of its versions."""
        toolchain = find_toolchain(major, need_plugin=True)
        self.tools.update({name + suffix: version for name, version in toolchain.describe().items()})
        return toolchain

    def corpus(self, folder: Path, name: str = "corpus") -> Corpus:
        """A corpus, whose description and modules are one of the inputs."""
        corpus = load_corpus(folder)
        # Corpora of one list at two levels have the same description.
        description = digest_file(folder / "corpus_description.json")
        self.inputs[name] = digest_value([description, digest_modules(corpus.modules)])
        return corpus

    def policies(self, paths: Sequence[Path]) -> None:
        """Note policies as inputs."""
        self.inputs.update({f"policy {path.name}": digest_file(path) for path in paths})


def run_benchmark(
    config: type[Config], measure: Callable[[Config, Setup], Result], arguments: Sequence[str] | None = None
) -> int:
    """Parse the arguments of a benchmark, measure, write both forms, and say the answer.

    Args:
        config: its options, a dataclass; ``--json`` is added to them, by default a file named after the script.
        measure: the benchmark.
        arguments: of the command line; the process's own by default.

    Returns:
        The exit code: 0, 1 if the bar was missed, or that of the error.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    output = Output(json=DATA / f"{Path(inspect.getfile(measure)).stem}.json")
    call = dataclasses.make_dataclass("Call", [("options", config), ("output", Output, field(default=output))])
    parsed: Any = tyro.cli(
        call,
        description=(config.__doc__ or "").strip(),
        args=words,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    path: Path = parsed.output.json
    machine = machine_versions()
    try:
        with show_progress() as report:
            setup = Setup(report=report)
            result = measure(parsed.options, setup)
        versions = {"mlgokit": package_version(), **setup.tools, **machine}
        result = dataclasses.replace(result, versions=versions, inputs=setup.inputs)
        write_result(result, path, command=shown_command(result.benchmark, words, cwd=Path.cwd()))
    except KeyboardInterrupt:
        print(f"{Path(sys.argv[0]).name}: interrupted; nothing was written, start it again", file=sys.stderr)
        return INTERRUPTED
    except MlgokitError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return error.exit_code
    print(result.answer)
    print(f"{path}\n{page_of(path)}")
    return 1 if result.passed is False else 0


def shown_command(benchmark: str, words: Sequence[str], *, cwd: Path) -> str:
    """The command line for a reader on another machine: paths outside of ``cwd`` by their last part only.

    Example:
        >>> shown_command("overhead", ["--corpus", "/data/corpus", "--json", "/here/out.json"], cwd=Path("/here"))
        'python benchmarks/overhead.py --corpus .../corpus --json out.json'
    """
    shown: list[str] = []
    for word in words:
        option, separator, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
        path = Path(value)
        if path.is_absolute():
            value = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else f".../{path.name}"
        shown.append(f"{option}{separator}{shlex.quote(value)}")
    return " ".join(["python", f"benchmarks/{benchmark}.py", *shown])


def machine_versions() -> dict[str, str]:
    """What the machine is, so that another machine's result can be compared with this one."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": f"{_processor()}, {os.cpu_count()} usable",
        "load when it began": f"{os.getloadavg()[0]:.2f}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def clean_environment() -> dict[str, str]:
    """This process's environment without what would lead the plugin."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")}


def run_mlgokit(words: Sequence[str], *, timeout_seconds: float) -> dict[str, Any]:
    """Run a command of mlgokit in a process of its own, as a user would, and read the JSON that it prints.

    A command that ends with 1 behind its result has a verdict, as `mlgokit evaluate` that says not to ship.

    Raises:
        ToolError: it fails, or does not end in time.
    """
    return call_mlgokit(words, timeout_seconds=timeout_seconds)[0]


def call_mlgokit(words: Sequence[str], *, timeout_seconds: float) -> tuple[dict[str, Any], str]:
    """The same, and what the command said on standard error.

    Raises:
        ToolError: it fails, or does not end in time.
    """
    argv = [sys.executable, "-m", "mlgokit", *words, "--json"]
    done = process.run(argv, timeout_seconds=timeout_seconds, env=clean_environment())
    said = done.stderr.strip()
    if done.returncode not in {0, 1} or not done.stdout.strip():
        how = "did not end" if done.timed_out else f"ended with {done.returncode}"
        raise ToolError(f"mlgokit {shlex.join(words)}: expected success, found that it {how}: {said}")
    return json.loads(done.stdout), said


def tune_words(place: Path, *, toolchain: Toolchain, budget: str, workers: int) -> list[str]:
    """The beginning of a call of `mlgokit tune` that keeps its search and its plugin in the folder ``place``."""
    words = ["tune", "--llvm", str(toolchain.major), "--budget", budget, "--workers", str(workers)]
    return [*words, "--folder", str(place / "tune"), "--output", str(place / "tuned.so")]


def export_shipped(path: Path, *, toolchain: Toolchain, timeout_seconds: float) -> str:
    """Write the plugin of the shipped policies, and return the flag that loads it.

    Raises:
        ToolError: it cannot be linked.
    """
    words = ["export", "plugin", SHIPPED, "--llvm", str(toolchain.major), "--output", str(path)]
    return str(run_mlgokit(words, timeout_seconds=timeout_seconds)["flag"])


def draw_modules(modules: Sequence[Module], count: int, rng: np.random.Generator) -> list[Module]:
    """``count`` modules drawn without replacement, in the order of the corpus; all of them if ``count`` is 0.

    Raises:
        UsageError: ``count`` is negative.
    """
    if count < 0:
        raise UsageError(f"modules: expected a number of modules, or 0 for all, found {count}; correct it")
    if not count or count >= len(modules):
        return list(modules)
    return [modules[index] for index in sorted(rng.choice(len(modules), count, replace=False).tolist())]


def linker_of(toolchain: Toolchain, benchmark: str) -> Path:
    """The linker beside the compiler, for a ``benchmark`` that cannot do without.

    Raises:
        ToolError: there is none.
    """
    if toolchain.lld is None:
        raise ToolError(f"{benchmark}: expected ld.lld beside clang, found none; install it")
    return toolchain.lld


def check_names(what: str, given: Collection[str], known: Collection[str]) -> None:
    """Refuse names that are not known.

    Raises:
        UsageError: there is one.
    """
    if unknown := sorted(set(given) - set(known)):
        raise UsageError(f"{what}: expected names among {', '.join(known)}, found {', '.join(unknown)}; correct them")


def name_of(policy: str) -> str:
    """How results name a policy: one of the package as it is given, a file without its folder.

    Example:
        >>> name_of("builtin:size"), name_of("seeds/passes-2.policy")
        ('builtin:size', 'passes-2.policy')
    """
    return policy if policy.startswith(BUILTIN) else Path(policy).name


def kept_row(path: Path, make: Callable[[], dict[str, Any]], *, of: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The row in the file ``path``, which is made and written first if it is not there.

    Args:
        path: a JSON file of its own, as the row takes minutes to make.
        make: measures.
        of: what the row depends on, if the path does not say so; its digest stands in the file.

    Raises:
        UsageError: the file's row depends on something else.
    """
    claim = {} if of is None else {"of": digest_value(of)}
    if not path.exists():
        atomic_write(path, json.dumps(claim | make(), indent=1))
    row = json.loads(path.read_bytes())
    if claim and row["of"] != claim["of"]:
        raise UsageError(f"{path}: expected a row of {dict(of or {})}, found another's; name another folder")
    return row


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Rows by key, one line each in a common file, written as soon as they are known: for rows that take seconds."""

    path: Path
    known: dict[str, dict[str, Any]]

    def add(self, key: str, row: dict[str, Any]) -> None:
        """Append one."""
        self.known[key] = row
        with self.path.open("a") as file:
            file.write(json.dumps({"key": key, **row}) + "\n")


def open_ledger(path: Path, setting: Mapping[str, str | int]) -> Ledger:
    """What an earlier run has done, if it was of the same setting; a last line cut short is done again.

    Raises:
        UsageError: the file is of another setting.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, dict[str, Any]] = {}
    if path.exists():
        text = path.read_text()
        if text and not text.endswith("\n"):
            path.write_text(text[: text.rfind("\n") + 1])
        for line in text.splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                row = json.loads(line)
                known[row.pop("key")] = row
    ledger = Ledger(path=path, known=known)
    if "setting" not in known:
        ledger.add("setting", dict(setting))
    elif known["setting"] != dict(setting):
        raise UsageError(f"{path}: expected records of {dict(setting)}, found {known['setting']}; give another file")
    return ledger
