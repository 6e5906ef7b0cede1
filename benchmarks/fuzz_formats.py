"""Readers of what mlgokit, its plugin and LLVM write, which a stranger may hand over: for :mod:`fuzz_corpus`.

What is damaged and can be made again counts as not there: such a reader gives nothing, and raises nothing either.
"""

import functools
import io
import json
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from fuzz_plugin import SEEDS
from fuzz_readers import Framed, Reader
from made_models import drawn_weights, inline_model
from made_objects import make_elf

from mlgokit.algorithms.effects import MeasuredEffects
from mlgokit.algorithms.learner import state_bytes, state_from_bytes
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.describe import read_description
from mlgokit.compiler.objects.archive import read_members
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.regalloc_cost import parse_regalloc_costs
from mlgokit.compiler.reuse.known import read_functions
from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides, read_trial_results
from mlgokit.compiler.store import load_compilation, save_compilation
from mlgokit.errors import InputError
from mlgokit.evaluation.run import RunReport
from mlgokit.export.replay import parse_replay_lines, write_replay
from mlgokit.learning.run_folder import ROWS_NAME, read_metrics
from mlgokit.manifest import MANIFEST_NAME, check_manifest, write_manifest
from mlgokit.policy.store import load_policy
from mlgokit.policy.tflite.file import graph_bytes, read_graph
from mlgokit.policy.tflite.read_policy import read_policy
from mlgokit.policy.vocab import read_vocab
from mlgokit.spec import TensorSpec
from mlgokit.tables.decisions import TuningSummary, make_entry, read_table, table_bytes
from mlgokit.tables.overrides import ALLOCATIONS, OverrideSummary, override_bytes, read_overrides
from mlgokit.traces import ContextSpan, Header, Log, iter_log, read_log, render_log
from mlgokit.traces.sequence_example import encode_sequence
from mlgokit.traces.tfrecord import frame_record
from mlgokit.traces.training_set import iter_training_set
from mlgokit.tune.spaces.functions.state import FunctionState, load_functions, save_functions
from mlgokit.tune.spaces.inlining.state import Progress, append_effects, load_effects, load_progress, save_progress

CLAIMS = (0, 1 << 20, 2 << 30, 1 << 62)
"""Sizes that the directory of an archive may name."""
NOTHING = "nothing was in it"
"""Of a reader that raises nothing: what it had to give up."""


def _file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path, Path], None]:
    """A reader of one file; nothing, from one that raises nothing, is a refusal as well."""

    def reading(data: bytes, source: Path, output: Path) -> None:
        del output
        (source / name).write_bytes(data)
        if read(source / name) in (None, [], {}):
            raise InputError(NOTHING)

    return reading


def _written(write: Callable[[Path], object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.npz")
        write(path)
        return path.read_bytes()


def _inside_length(data: bytes) -> Framed:
    """A safetensors header, or a record of effects: what has its length before it."""
    width = 8 if len(data) > 8 and int.from_bytes(data[:8], "little") < len(data) else 4
    size = int.from_bytes(data[:width], "little")
    return data[width : width + size], lambda inner: len(inner).to_bytes(width, "little") + inner + data[width + size :]


def _inside_zip(data: bytes) -> Framed:
    """One member of an npz file, with the length before it that records of effects have."""
    length = data[:4] if data[4:6] == b"PK" else b""
    with zipfile.ZipFile(io.BytesIO(data[len(length) :])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = list(members)[len(data) % len(members)]

    def close(inner: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, inner if name == chosen else content)
            # What the directory says of sizes need not be true, and there may be members that nobody wants.
            drawn = zlib.crc32(inner)
            if drawn % 4 == 0:
                archive.writestr("more.npy", inner)
            if drawn % 4 < 2:
                archive.infolist()[-1 - drawn // 16 % 2].file_size = CLAIMS[drawn // 4 % len(CLAIMS)]
        whole = file.getvalue()
        return (len(whole).to_bytes(4, "little") if length else b"") + whole

    return members[chosen], close


def _log() -> Log:
    features = (
        TensorSpec(name="weights", type="float", shape=(2,)),
        TensorSpec(name="counts", type="int64_t", shape=(1,)),
    )
    score = TensorSpec(name="reward", type="float", shape=(1,))
    return Log(
        header=Header(features=features, score=score),
        contexts=(ContextSpan(name="f", start=0, stop=3), ContextSpan(name="g", start=3, stop=5)),
        columns={"weights": np.arange(10, dtype=np.float32).reshape(5, 2), "counts": np.arange(5).reshape(5, 1)},
        scores=np.arange(5, dtype=np.float32).reshape(5, 1),
    )


def _read_logs(path: Path) -> object:
    """Whole, what is there of it, and in batches: all three say the same of a whole one."""
    partial = read_log(path, partial=True)
    whole = read_log(path)
    if sum(log.observation_count for log in iter_log(path, observations_per_batch=2)) != whole.observation_count:
        raise AssertionError("batches and the whole log differ")
    if partial.observation_count != whole.observation_count:
        raise AssertionError("the part and the whole log differ")
    return whole


def _training_set() -> bytes:
    columns = {"a": np.arange(6).reshape(3, 2), "reward": np.ones((3, 1), np.float32)}
    return b"".join(frame_record(encode_sequence(columns, labels={"module": "m", "key": key})) for key in ("f", "g"))


def _read_state(path: Path) -> object:
    return state_from_bytes(path.read_bytes(), learner="ppo")


def _read_report(path: Path) -> object:
    """As the command does it, whose errors of JSON are ours too."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(str(error)) from error
    return RunReport.from_json(value)


def _read_manifest(path: Path) -> object:
    return check_manifest(path.parent, kind="corpus", config={"a": [1, {"b": 2}]}, toolchain=None, inputs={"x": "y"})


def _manifest() -> bytes:
    def write(path: Path) -> None:
        write_manifest(path.parent, kind="corpus", config={"a": [1, {"b": 2}]}, toolchain=None, inputs={"x": "y"})
        (path.parent / MANIFEST_NAME).rename(path)

    return _written(write)


def _effects() -> bytes:
    effects = MeasuredEffects(
        names=("a", "b"), values=np.arange(6).reshape(3, 2), sign=np.ones(3, np.float32),
        component=np.array([0, 0, 1]), change=np.array([1.0, 2.0], np.float32), project=np.zeros(2, np.int64),
        projects=("p",),
    )  # fmt: skip

    def write(path: Path) -> None:
        append_effects(path, effects)
        append_effects(path, effects)

    return _written(write)


def _progress() -> bytes:
    progress = Progress(decisions={4: True, 8: False}, tried={4: 2}, composed={16: True})
    return _written(lambda path: save_progress(path, progress))


def _functions() -> bytes:
    one = FunctionState(key=7, name="f", plain=2.0, score=1.0, overrides=SOME, seconds=0.1)
    return _written(lambda path: save_functions(path, [one]))


def _one_record(data: bytes) -> bytes:
    return data[: 4 + int.from_bytes(data[:4], "little")]


SOME = Overrides(evictions=np.array([(1, 0, 3)], OVERRIDE), priorities=np.array([(2, 0, 0x8001)], OVERRIDE))
DECISIONS = table_bytes(
    [make_entry([1, 2], np.array([4, 8], np.uint64), np.array([True, False]))],
    TuningSummary(llvm=22, objective="link-aware", plain_bytes=9.0, tuned_bytes=8.0, modules=("a.o",)),
)
SUMMARY = OverrideSummary(llvm=22, functions=1, plain_score=2.0, tuned_score=1.0)
REMARKS = """--- !Missed
Pass:            regalloc
Name:            SpillReloadCopies
Function:        f
Args:
  - NumSpills:       '2'
  - String:          ' spills '
  - TotalSpillsCost: '1.500000e+00'
  - String:          ' total spills cost '
...
"""
DESCRIPTION = (
    b'{"columns":["blocks","instructions"]}\n["f","external","0a0b",1,2]\n'
    b'{"llvm":22,"identity":"aa","functions":1,"declarations":0,"global_bytes":4,"language":"c"}\n'
)
TRIED = struct.pack("<QIII", 7, 1, 1, 1) + b"f" + struct.pack("<dI9d6I", 0.1, 96, *range(9), 9, 9, 9, 0, 0, 0)
ARCHIVE = b"!<arch>\n" + b"".join(
    name.ljust(16) + b"0           0     0     644     " + str(len(data)).encode().ljust(10) + b"`\n" + data
    for name, data in ((b"//", b"a_very_long_name.o/\n"), (b"a.o/", b"xx"), (b"/0", b"yy"), (b"#1/4", b"b.o\0zz"))
)
REPORT = Path(__file__).parent.parent.joinpath("tests", "golden", "results.json").read_bytes()


_FUNCTIONS = b"".join(
    kind + b" " + text + b"\n"
    for kind, text in (
        (b"n", b"0a" * 16 + b" f"),
        (b"k", b"00" * 16 + b" g"),
        (b"c", b"00000008" + b"0" * 24 + b" f"),
        (b"c", b"0" * 32 + b" g"),
    )
)


def _reader(
    seeds: Sequence[bytes],
    read: Callable[[bytes, Path, Path], None],
    *,
    is_text: bool = False,
    inside: Callable[[bytes], Framed] | None = None,
) -> Reader:
    return Reader(seeds=seeds, read=read, is_text=is_text, inside=inside)


def _compilation() -> bytes:
    return _written(lambda path: save_compilation(path, Compilation(status=CompileStatus.FAILED, reason="no")))


def _state() -> bytes:
    return state_bytes({"step": np.array(3), "weight": np.zeros((2, 3), np.float32)}, learner="ppo")


_REPLAY = (
    b"mlgokit: '_ZN1a1bEv' inlined into 'main' at callsite _ZN1c1dEv:2:5.1 @ main:12:3;\n"
    b"mlgokit: 'f' will not be inlined into '-[A b:c]' at callsite -[A b:c]:4294967295:1;\n"
)


def _read_replay(path: Path) -> object:
    """What is read is written as it was."""
    data = path.read_bytes()
    found = parse_replay_lines(data, "a")
    if write_replay(path.parent, found).lines.read_bytes().replace(b"\n", b"") != data.replace(b"\n", b""):
        raise AssertionError("lines that were read are written otherwise")
    return found


def _model() -> bytes:
    vocab = {name: np.array([0.0, 1.0, 1.0, 5.0]) for name in ("callee_users", "node_count")}
    return graph_bytes(inline_model(vocab, drawn_weights(np.random.default_rng(1), 4, 3, 2)))


def _read_model(path: Path) -> object:
    return read_policy(read_graph(path.read_bytes(), "a"), "a")


FORMATS: dict[str, Reader] = {
    "policy": _reader(SEEDS["policy"](), _file("a.policy", load_policy), inside=_inside_length),
    "TFLite model": _reader([_model()], _file("a.tflite", _read_model)),
    "replay list": _reader([_REPLAY], _file("a.txt", _read_replay)),
    "decision table": _reader([DECISIONS, *SEEDS["decision table"]()], _file("a", read_table)),
    "allocation table": _reader(
        [override_bytes(ALLOCATIONS, {7: SOME}, SUMMARY), *SEEDS["allocation table"]()],
        _file("a", functools.partial(read_overrides, ALLOCATIONS)),
    ),
    "training log": _reader([render_log(_log())], _file("a.log", _read_logs)),
    "training set": _reader([_training_set()], _file("a.tfrecord", lambda path: list(iter_training_set(path)))),
    "vocabulary": _reader([b"0.5\n1.0\n1e22\ninf\n"], _file("a.buckets", lambda path: len(read_vocab(path.parent)))),
    "progress of a search": _reader([_progress()], _file("a.npz", load_progress), inside=_inside_zip),
    "effects of a search": _reader([_effects()], _file("a", load_effects), inside=_inside_length),
    "record of effects": _reader([_one_record(_effects())], _file("a", load_effects), inside=_inside_zip),
    "functions of a search": _reader([_functions()], _file("a.npz", load_functions), inside=_inside_zip),
    "stored compilation": _reader(
        [_compilation()], _file("a.npz", lambda path: load_compilation(path, problem="inline-size")), inside=_inside_zip
    ),
    "checkpoint": _reader([_state()], _file("a", _read_state), inside=_inside_length),
    "metrics": _reader([b'[{"turn": 1, "time": 0.5, "loss": null}]'],
                       _file(ROWS_NAME, lambda path: [read_metrics(path.parent)]), is_text=True),
    "manifest": _reader([_manifest()], _file(MANIFEST_NAME, lambda path: [_read_manifest(path)]), is_text=True),
    "results of an evaluation": _reader([REPORT], _file("a.json", _read_report), is_text=True),
    "trials of allocations": _reader([TRIED, TRIED * 2], _file("a", lambda path: read_trial_results(path) or [1])),
    "known functions": _reader([_FUNCTIONS], _file("a", read_functions)),
    "optimization record": _reader(
        [REMARKS.encode()],
        _file("a", lambda path: parse_regalloc_costs(path.read_bytes().decode("utf-8", "replace"), name="a")),
    ),
    "description of a module": _reader(
        [DESCRIPTION], _file("a", lambda path: read_description(path.read_bytes().decode("utf-8", "replace")))
    ),
    "object to measure": _reader(
        [make_elf({".text": b"\x90" * 8, ".rodata": b"12345678", ".eh_frame": bytes(24)})],
        _file("a.o", measure_object),
    ),
    "static library": _reader([ARCHIVE], _file("a.a", read_members)),
}  # fmt: skip
"""By name; all of them are read by :mod:`fuzz_corpus` too."""
