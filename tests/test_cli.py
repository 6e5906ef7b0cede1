"""The command line without a compiler: help, exit codes, where output goes, and what is not imported."""

import ast
import errno
import importlib
import inspect
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from tests.calls import ended

import mlgokit
from mlgokit import cli, errors
from mlgokit.algorithms.registry import LEARNERS
from mlgokit.builds.compilers import CompilerOptions
from mlgokit.cli import COMMANDS, main, run, run_command
from mlgokit.commands import trace, train
from mlgokit.commands.corpus import info
from mlgokit.commands.help import DESCRIPTION
from mlgokit.commands.table import GROUPS
from mlgokit.corpus.verify import Verdict, VerifiedModule, VerifyResult
from mlgokit.corpus.writer import corpus_writer, description_fields
from mlgokit.errors import MlgokitError, StorageError
from mlgokit.learning.run_folder import Counters
from mlgokit.learning.settings import Learning
from mlgokit.learning.training import Learned
from mlgokit.module import Module
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import SignedLog


def squeezed(text: str) -> str:
    """The text without what breaking it into lines and boxes changes."""
    return re.sub(r"[\s\u2500-\u257f]+", "", text)


def comments(config: type) -> Iterator[str]:
    """The texts below a dataclass's fields."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(definition, ast.ClassDef)
    for statement in definition.body[1:]:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            yield str(statement.value.value)


def nested(config: type) -> Iterator[type]:
    """A configuration, and the dataclasses among its fields, whose own fields are options too."""
    yield config
    for field in fields(config):
        if is_dataclass(kind := get_type_hints(config)[field.name]) and isinstance(kind, type):
            yield from nested(kind)


PRIVATE_WORDS = re.compile(r"comes? out|goes by|turned|come of|(in|at) one go|begun anew|pays? any more")
NO_NOUN = re.compile(r"(With [^:]*: )?(Of|Where|What|Whose|Who|How|That|This|So|Another|An?|The|Only) (?!clang\b)")


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_help_text_is_read_alone(command: str):
    texts = [text for config in nested(cli.COMMANDS[command].configuration) for text in comments(config)]
    assert [text for text in texts if not text.endswith(".") or not re.match(r"[A-Z]", text)] == []
    assert [text for text in texts if NO_NOUN.match(text)] == [], "begins with no noun"
    assert [text for text in texts if PRIVATE_WORDS.search(text)] == [], "has words that users do not know"


def test_every_command_of_the_table_is_offered(capsys: pytest.CaptureFixture[str]):
    found: set[str] = set()
    for group in ("", *GROUPS):
        assert ended(*group.split(), "--help") == 0
        out = capsys.readouterr().out
        assert squeezed(GROUPS.get(group, DESCRIPTION)) in squeezed(out)
        found |= set(re.findall(r"^  ([a-z][a-z-]*(?: [a-z-]+)*)(?:  |$)", out, flags=re.MULTILINE))

    assert found == {*cli.COMMANDS, *GROUPS}
    assert ended("--help-all") == 0
    out = capsys.readouterr().out
    assert [name for name in cli.COMMANDS if f"\n  {name} " not in out] == []


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_what_a_command_says_of_itself_is_one_paragraph(name: str):
    """The site has one line for it."""
    assert "\n\n" not in (cli.COMMANDS[name].configuration.__doc__ or "\n\n")


def replace_run(monkeypatch: pytest.MonkeyPatch, command: str, run: Callable[..., Any]) -> None:
    """Let ``run`` carry a command out."""
    monkeypatch.setattr(importlib.import_module(cli.COMMANDS[command].place), "run", run)


@pytest.mark.parametrize("words", [["evaluate"], ["export", "plugin"]], ids=" ".join)
def test_a_call_that_makes_no_sense_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert ended(*words) == 2

    out, err = capsys.readouterr()
    assert not out
    assert "mlgokit" in err
    assert "--help" in err


def test_unknown_projects_are_named_before_anything_is_fetched(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for words in (
        ("corpus", "fetch", "--folder", tmp_path / "sources", "--cache", tmp_path / "cache"),
        ("corpus", "extract", "--corpus", tmp_path / "corpus"),
    ):
        assert ended(*words, "--projects", "leveldb", "nonsense", "absurdity") == 2
        assert capsys.readouterr().err.startswith(
            "mlgokit: projects: expected names of listed projects, found absurdity, nonsense; name some of leveldb, "
        )
    assert not list(tmp_path.iterdir())


# ---- Exit codes ----


def subclasses(base: type[MlgokitError]) -> Iterator[type[MlgokitError]]:
    yield base
    for derived in base.__subclasses__():
        yield from subclasses(derived)


CODES = {
    "MlgokitError": 1,
    "UsageError": 2,
    "OtherLinkerError": 2,
    "ToolError": 3,
    "InputError": 4,
    "CorpusError": 4,
    "TraceError": 4,
    "PolicyError": 4,
    "FetchError": 4,
    "ReuseError": 5,
    "StorageError": 6,
    "BusyError": 7,
    "StaleError": 8,
    "RejectedError": 9,
}
SENTENCE = "[red]corpus[/red] x: expected :smile:, found 'none'; do " + "a very long " * 20 + "walk"


def raising(error: BaseException) -> Callable[..., Any]:
    def stage(*_: object, **__: object) -> Any:
        raise error

    return stage


@pytest.mark.parametrize("kind", tuple(subclasses(MlgokitError)), ids=lambda kind: kind.__name__)
def test_every_error_is_one_line_and_its_own_exit_code(
    kind: type[MlgokitError], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    error = kind(SENTENCE, path="x", offset=3) if kind is errors.TraceError else kind(SENTENCE)
    replace_run(monkeypatch, "trace", raising(error))

    assert ended("trace", "--json") == CODES[kind.__name__] == kind.exit_code
    assert capsys.readouterr() == ("", f"mlgokit: {SENTENCE}\n")


def test_every_error_of_the_package_is_in_the_table_above():
    assert {kind.__name__ for kind in subclasses(MlgokitError)} == set(CODES)


def test_an_interrupt_says_what_to_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    replace_run(monkeypatch, "train", raising(KeyboardInterrupt()))

    assert ended("train") == 130
    assert capsys.readouterr() == (
        "",
        "mlgokit: interrupted; finished work is kept; run the same command again to resume\n",
    )


def test_an_interrupt_promises_nothing_of_a_command_that_keeps_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    replace_run(monkeypatch, "evaluate", raising(KeyboardInterrupt()))
    assert ended("evaluate", "--plain") == 130
    assert capsys.readouterr() == ("", "mlgokit: interrupted\n")


def test_a_search_is_gone_on_with_if_that_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    again = "run the same command again"
    for words, expected in (((), f"{again} with --continue"), (("--continue",), again)):
        for error in (KeyboardInterrupt(), StorageError(f"free some space, then {again}: what was finished is kept")):
            replace_run(monkeypatch, "tune", raising(error))
            assert ended("tune", *words) in {130, 6}
            said = capsys.readouterr().err
            assert expected in said
            assert said.count("--continue") == expected.count("--continue")


WRITTEN = {"output", "folder", "tfrecord", "performance", "store", "corpus"}
"""Options of files and folders that some command writes."""
READ = {
    "corpus verify": {"corpus"}, "corpus info": {"corpus"}, "trace": {"corpus"}, "tune": {"corpus"},
    "check": {"corpus"}, "vocab": {"tfrecord"}, "train": {"corpus"}, "explain": {"corpus"},
    "evaluate": {"corpus", "folder"},
}  # fmt: skip
"""Of these, what is read."""


@pytest.mark.parametrize("name", COMMANDS)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    command = COMMANDS[name]
    options = {field.name for field in fields(command.configuration)} & WRITTEN - READ.get(name, set())
    files = {command.plugin, *command.files} - {""}
    folders = {command.folder, *command.folders} - {""}
    assert options == files | folders
    replace_run(monkeypatch, name, raising(AssertionError()))
    for option in options:
        (tmp_path / "file").write_text("")
        configuration = unchecked(
            command.configuration, **{option: tmp_path / "file" if option in folders else tmp_path}
        )
        with pytest.raises(StorageError, match=r"expected to be able to write there"):
            run_command(configuration)


def unchecked(kind: type, **given: Any) -> Any:
    """A configuration that has what is given, and else what stands for nothing."""
    values = {field.name: None for field in fields(kind) if field.default is MISSING}
    return kind(**(values | given))


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "corpus/x"), "use corpus/x, found: No space left on device"),
        (OSError(errno.EIO, "Input/output error"), "use the disk, found: Input/output error"),
    ],
)
def test_a_disk_that_will_not_do_is_a_sentence(
    error: OSError, found: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    replace_run(monkeypatch, "trace", raising(error))

    assert ended("trace") == 6
    assert capsys.readouterr().err == (
        f"mlgokit: expected to be able to {found}; "
        "free some space or check permissions, then run the same command again\n"
    )


@pytest.mark.parametrize(
    ("error", "code", "found"),
    [
        (MemoryError(), 6, "have more memory, found none left; end other programs or have fewer compilers run at once"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 6, "have more memory, found none left; end other programs"),
        (RuntimeError("can't start new thread"), 6, "have another process or thread, found none left; raise `ulimit"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), 6, "have another process or thread, found"),
        (
            OSError(errno.EMFILE, "Too many open files", "x"),
            6,
            "have another open file, found none left; raise `ulimit",
        ),
        (
            RecursionError("maximum recursion depth exceeded"),
            4,
            "input of fewer levels, found one that is nested too deeply; give it in another form",
        ),
    ],
)
def test_what_a_machine_does_not_have_is_a_sentence(
    error: Exception, code: int, found: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    replace_run(monkeypatch, "trace", raising(error))

    assert ended("trace") == code
    assert re.fullmatch(rf"mlgokit: expected (to )?{re.escape(found)}.*\n", capsys.readouterr().err)


def test_a_mistake_of_the_program_is_no_shortage(monkeypatch: pytest.MonkeyPatch):
    replace_run(monkeypatch, "trace", raising(RuntimeError("dictionary changed size during iteration")))

    with pytest.raises(RuntimeError, match="dictionary changed size"):
        main(["trace"])


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [((Verdict.SAME, Verdict.SAME_CODE), 0), ((Verdict.SAME, Verdict.DIFFERENT), 1), ((Verdict.NO_REFERENCE,), 1)],
)
def test_verification_ends_with_1_when_code_differs(
    verdicts: tuple[Verdict, ...], code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    modules = tuple(VerifiedModule(name=verdict.name, verdict=verdict) for verdict in verdicts)
    replace_run(monkeypatch, "corpus verify", lambda *_, **__: VerifyResult(modules=modules, of=9))
    assert ended("--json", "corpus", "verify", "--objects", "x") == code
    assert json.loads(capsys.readouterr().out)["verified"] == (code == 0)


def test_a_mistake_of_ours_is_not_dressed_up(monkeypatch: pytest.MonkeyPatch):
    replace_run(monkeypatch, "corpus info", raising(ZeroDivisionError()))

    with pytest.raises(ZeroDivisionError):
        run(info.Info())


# ---- What goes where ----


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    modules: list[Module] = []
    for number in range(20):
        name = f"alpha/part{number}.cc.o"
        path = folder / f"{name}.bc"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"BC\xc0\xde" + bytes([number]))
        (folder / f"{name}.cmd").write_bytes(b"-cc1\0")
        modules.append(
            Module(name=name, project="alpha", language="c++", bitcode=path, command_line=("-cc1",), bitcode_bytes=5)
        )
    with corpus_writer(folder, description_fields(), remedy="add modules") as writer:
        for one in modules:
            writer.add(one)
    return folder


@pytest.mark.parametrize("position", ["first", "last"])
def test_json_is_all_that_goes_to_standard_output(position: str, corpus: Path, capsys: pytest.CaptureFixture[str]):
    words = ["corpus", "info", "--no-counts", "--corpus", str(corpus)]

    assert ended(*(["--json", *words] if position == "first" else [*words, "--json"])) == 0

    out, err = capsys.readouterr()
    assert not err
    assert (json.loads(out)["folder"], json.loads(out)["modules"]) == (str(corpus), 20)


def test_progress_goes_to_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    # A folder of an earlier run is told of, too.
    monkeypatch.chdir(tmp_path)

    def run_trace(_: trace.Trace, *, report: Callable[[int, int, str], None]) -> dict[str, Any]:
        report(0, 2, "default trace")
        report(2, 2, "default trace")
        return {"folder": "x", "failed": []}

    replace_run(monkeypatch, "trace", run_trace)

    assert ended("trace", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"folder": "x", "failed": []}
    assert err.splitlines() == ["default trace: 0 of 2 after 0 s", "default trace: 2 of 2 after 0 s"]

    assert ended("trace") == 0
    assert capsys.readouterr().out == "folder: x\nfailed: []\n"


def test_long_lists_are_counted_unless_json_is_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    replace_run(monkeypatch, "corpus fetch", lambda *_, **__: {"projects": {str(number): "x" for number in range(13)}})

    assert ended("corpus", "fetch") == 0
    assert capsys.readouterr().out == "projects: 13 (use --json to see them)\n"


ONE = np.ones(1, np.float32)
POLICY = Policy(
    problem="inline-size",
    features=("size",),
    normaliser=SignedLog(mean=ONE, scale=ONE, clip=1.0),
    layers=(Layer(ONE.reshape(1, 1, 1), ONE.reshape(1, 1)),),
    output=OutputKind.EFFECT_BYTES,
)
LEARNED = Learned(policy=POLICY, counters=Counters(), rows=(), taught=0, judged=0, left_out={})


def test_options_become_configurations(monkeypatch: pytest.MonkeyPatch):
    seen: list[Any] = []

    def run_train(config: train.Train, **_: Any) -> train.Trained:
        seen.append(config)
        return train.Trained(policy=Path("p"), learned=LEARNED)

    replace_run(monkeypatch, "train", run_train)
    words = "--corpus c --llvm 19 --iterations 5 --setting fit.hidden=[8,4] --setting independent=0"

    assert ended("train", *words.split()) == 0
    assert seen == [
        train.Train(
            corpus=Path("c"),
            compiler=CompilerOptions(llvm=19),
            learning=Learning(iterations=5, setting=("fit.hidden=[8,4]", "independent=0")),
        )
    ]
    assert is_dataclass(seen[0])


# ---- Other processes ----


def python(*words: str) -> subprocess.CompletedProcess[str]:
    folder = Path(mlgokit.__file__).parents[1]
    surroundings = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=120, env=surroundings, check=False
    )


def test_the_package_is_a_program():
    done = python("-m", "mlgokit", "corpus", "info", "--corpus", "nowhere")

    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("mlgokit: nowhere/corpus_description.json: expected a file, found: No such file")


HEAVY = {"jax", "jaxlib", "optax", "scipy", "jinja2", "requests"}
IMPORTED = f"import sys; print(*sorted({HEAVY!r} & sys.modules.keys()))"


def test_what_is_heavy_is_imported_where_it_is_needed():
    assert python("-c", f"import mlgokit; {IMPORTED}").stdout == "\n"
    assert python("-c", f"import mlgokit.cli; {IMPORTED}").stdout == "\n"


def test_only_training_needs_jax(corpus: Path):
    without = (
        "import sys; sys.modules |= dict.fromkeys(['jax', 'jaxlib', 'optax']); from mlgokit.cli import main; main()"
    )

    assert python("-c", without, "train", "--help").returncode == 0
    assert python("-c", without, "corpus", "info", "--no-counts", "--corpus", str(corpus)).returncode == 0


@pytest.mark.parametrize("options", [("info", "--no-counts", "--json"), ("extract", "--help")])
def test_a_reader_that_goes_away_is_no_error(corpus: Path, options: Sequence[str]):
    closed = "import os, sys; from mlgokit.cli import main; os.close(0); r, w = os.pipe(); os.close(r); os.dup2(w, 1); "
    done = python("-c", f"{closed} main()", "corpus", *options, "--corpus", str(corpus))

    assert (done.returncode, done.stderr) == (141, "")


def test_every_learner_can_be_named():
    (algorithm,) = (one for one in get_args(get_type_hints(train.Train)["algorithm"]) if get_args(one))
    assert set(get_args(algorithm)) == set(LEARNERS)
