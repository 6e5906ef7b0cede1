"""A shell script stands for the compiler: it shows what it was given, and ends as the test wants."""

import dataclasses
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.scripts import script

from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.compile import ClangCompiler, command
from mlgokit.compiler.objects import elf
from mlgokit.compiler.request import HEURISTIC, CompileRequest, PluginUse
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import StorageError, UsageError
from mlgokit.spec import TensorSpec
from mlgokit.testing import toy_source
from mlgokit.traces import ContextSpan, Header, Log, render_log

CODE_BYTES = 24
COLUMNS = {
    "a": np.array([[7], [9]]),
    "caller_id": np.array([[1], [2]]),
    "callee_id": np.array([[3], [3]]),
    "inlining_decision": np.array([[0], [1]]),
}
LOG = render_log(
    Log(
        header=Header(features=tuple(TensorSpec(name=name, type="int64_t", shape=(1,)) for name in COLUMNS)),
        contexts=(ContextSpan(name="m", start=0, stop=2),),
        columns=COLUMNS,
    )
)
SUCCEED = 'cp object.o "$output"'

Compile = Callable[..., Compilation]


def object_bytes() -> bytes:
    """The smallest object: string table (section 1) and machine code (section 2)."""
    strings = b"\0.text\0.s\0"
    begin = 64 + len(strings)
    sections = [
        (0,) * 10,
        (7, elf.SHT_STRTAB, 0, 0, 64, len(strings), 0, 0, 1, 0),
        (1, 1, elf.SHF_ALLOC | elf.SHF_EXECINSTR, 0, begin, CODE_BYTES, 0, 0, 1, 0),
    ]
    header = struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, begin + CODE_BYTES, 0, 64, 0, 0, 64, len(sections), 1)
    table = np.array(sections, elf.SECTION).tobytes()
    return b"\x7fELF\x02\x01\x01" + bytes(9) + header + strings + bytes(CODE_BYTES) + table


@pytest.fixture
def compile_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compile]:
    """Compile with a script for clang; afterwards neither a process nor a temporary file may be left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    (tmp_path / "object.o").write_bytes(object_bytes())
    (tmp_path / "whole.log").write_bytes(LOG)
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    descriptor = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)

    def run(
        text: str,
        command_line: tuple[str, ...] = ("-cc1", "-Oz"),
        *,
        use: PluginUse | None = None,
        keep_object: Path | None = None,
        keep_logs: dict[str, Path] | None = None,
        timeout_seconds: float = 60,
        thinlto_index: Path | None = None,
    ) -> Compilation:
        # Each process of the script holds the pipe open: its end is theirs.
        clang = script(tmp_path / "clang", f"cd {tmp_path}", "exec 9>alive", "for output; do :; done", text)
        toolchain = Toolchain(major=19, version="19.1.7", clang=clang, clangxx=clang)
        request = CompileRequest(use=use, keep="log", keep_object=keep_object, keep_logs=keep_logs or {})
        module = toy_source("module", bitcode=tmp_path / "module.bc", command_line=command_line)
        module = dataclasses.replace(module, thinlto_index=thinlto_index)
        return ClangCompiler(toolchain=toolchain, timeout_seconds=timeout_seconds).compile(module, request)

    yield run
    os.set_blocking(descriptor, True)
    assert os.read(descriptor, 1) == b""
    os.close(descriptor)
    assert list(scratch.iterdir()) == []


def given_words(tmp_path: Path) -> list[str]:
    return (tmp_path / "words").read_text().splitlines()


def given_settings(tmp_path: Path) -> dict[str, str]:
    lines = (tmp_path / "environment").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line.startswith("MLGOKIT_"))


def test_a_success_is_measured(compile_with: Compile):
    result = compile_with(SUCCEED)

    assert (result.status, result.reason, result.logs) == (CompileStatus.OK, "", {})
    assert result.sizes is not None
    assert result.sizes.llvm_size_text == CODE_BYTES
    assert result.wall_seconds > 0


def test_the_object_is_kept_where_it_is_wanted(compile_with: Compile, tmp_path: Path):
    kept = tmp_path / "kept.o"

    assert compile_with(SUCCEED, keep_object=kept).status is CompileStatus.OK
    assert kept.read_bytes() == object_bytes()


def test_a_plain_compilation_gets_its_options_and_nothing_else(compile_with: Compile, tmp_path: Path):
    compile_with(f"printf '%s\\n' \"$@\" > words; {SUCCEED}", ("-cc1", "-Oz", "-dwarf-version=4"))

    *words, output = given_words(tmp_path)
    assert words == ["-cc1", "-Oz", "-dwarf-version=4", "-x", "ir", str(tmp_path / "module.bc"), "-emit-obj", "-o"]
    assert Path(output).name == "module.o"


def test_a_refused_command_line_is_a_failed_compilation(compile_with: Compile, tmp_path: Path):
    ended = compile_with(f"touch started; {SUCCEED}", ("-cc1", "-Oz", "-target-cpu", "", "-target-feature", "-load"))

    assert ended.status is CompileStatus.FAILED
    assert ended.reason.startswith("clang -cc1: expected options that only decide the code, found -target-cpu an empty")
    assert not (tmp_path / "started").exists()


def test_what_a_compiler_reads_and_writes_is_named_by_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A relative one may read as an option, in whatever corpus it is."""
    monkeypatch.chdir(tmp_path)
    toolchain = Toolchain(major=19, version="19.1.7", clang=Path("clang"), clangxx=Path("clang"))
    module = toy_source("x", bitcode=Path("-fplugin=x.bc"), command_line=("-cc1",))
    imported = dataclasses.replace(module, thinlto_index=Path("-fplugin=x.thinlto.bc"))
    words = command(toolchain, imported, Path("-load"), None)
    assert [word for word in words if "x.bc" in word or "x.thinlto" in word or "-load" in word] == [
        f"-fthinlto-index={tmp_path}/-fplugin=x.thinlto.bc",
        f"{tmp_path}/-fplugin=x.bc",
        f"{tmp_path}/-load",
    ]
    assert command(toolchain, module, Path("-"), None)[-1] == "-"


def test_the_plugin_comes_after_the_recorded_options(compile_with: Compile, tmp_path: Path):
    compile_with(f"printf '%s\\n' \"$@\" > words; {SUCCEED}", use=PluginUse(plugin=tmp_path / "p.so"))

    assert given_words(tmp_path)[:4] == ["-cc1", "-Oz", f"-fpass-plugin={tmp_path / 'p.so'}", "-x"]


def test_settings_of_the_caller_do_not_leak(compile_with: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("POLICY", "LOG", "SEED", "ANY_LEVEL", "UNHEARD_OF"):
        monkeypatch.setenv(f"MLGOKIT_{name}", "7")
    monkeypatch.setenv("KEPT", "yes")

    assert compile_with(f"/usr/bin/env > environment; {SUCCEED}").status is CompileStatus.OK
    assert given_settings(tmp_path) == {}
    assert "KEPT=yes" in (tmp_path / "environment").read_text().splitlines()


def test_a_policy_that_is_named_may_decide_in_thinlto(compile_with: Compile, tmp_path: Path):
    plugin, index = tmp_path / "p.so", tmp_path / "m.thinlto.bc"
    named, inside = PluginUse(plugin=plugin, policies={"inline-size": HEURISTIC}), PluginUse(plugin=plugin)
    found: list[str | None] = []
    for use, thinlto_index in ((named, index), (inside, index), (named, None)):
        compile_with(f"/usr/bin/env > environment; {SUCCEED}", use=use, thinlto_index=thinlto_index)
        found.append(given_settings(tmp_path).get("MLGOKIT_LTO"))
    assert found == ["1", None, None]


def test_the_plugin_is_told_what_it_shall_do(compile_with: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLGOKIT_SEED", "99")
    monkeypatch.setenv("MLGOKIT_ANY_LEVEL", "1")
    use = PluginUse(
        plugin=tmp_path / "p.so", policies={"inline-size": HEURISTIC}, seed=5, temperature=0.1, flip_probability=1e-05
    )

    compile_with(f"/usr/bin/env > environment; {SUCCEED}", use=use)

    assert given_settings(tmp_path) == {
        "MLGOKIT_POLICY": ":default",
        "MLGOKIT_SEED": "5",
        "MLGOKIT_TEMPERATURE": "0.1",
        "MLGOKIT_FLIP_PROBABILITY": "1e-05",
    }


def test_without_settings_the_plugin_decides_greedily_with_its_own_policy():
    assert PluginUse(plugin=Path("p.so")).environment(Path("f")) == {
        "MLGOKIT_SEED": "0",
        "MLGOKIT_TEMPERATURE": "0.0",
        "MLGOKIT_FLIP_PROBABILITY": "0.0",
    }


def test_the_log_is_read_and_kept_where_it_is_wanted(compile_with: Compile, tmp_path: Path):
    result = compile_with(
        f'{SUCCEED}; cp whole.log "$MLGOKIT_LOG"',
        use=PluginUse(plugin=tmp_path / "p.so", logs=("inline-size",)),
        keep_logs={"inline-size": tmp_path / "folder" / "kept.log"},
    )

    assert result.status is CompileStatus.OK
    assert result.logs["inline-size"].columns["a"].tolist() == [[7], [9]]
    assert (tmp_path / "folder" / "kept.log").read_bytes() == LOG


def test_a_module_without_decisions_has_no_log(compile_with: Compile, tmp_path: Path):
    result = compile_with(
        SUCCEED,
        use=PluginUse(plugin=tmp_path / "p.so", logs=("inline-size",)),
        keep_logs={"inline-size": tmp_path / "kept.log"},
    )

    assert (result.status, result.logs) == (CompileStatus.OK, {})
    assert not (tmp_path / "kept.log").exists()


def test_a_log_that_cannot_be_read_leaves_the_sizes(compile_with: Compile, tmp_path: Path):
    result = compile_with(
        f'{SUCCEED}; head -c 40 whole.log > "$MLGOKIT_LOG"',
        use=PluginUse(plugin=tmp_path / "p.so", logs=("inline-size",)),
        keep_logs={"inline-size": tmp_path / "kept.log"},
    )

    assert result.status is CompileStatus.BAD_TRACE
    assert "inline-size.log: byte " in result.reason
    assert result.logs == {}
    assert result.sizes is not None
    assert not (tmp_path / "kept.log").exists()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'warning: w' >&2; echo ' error: first' >&2; echo 'error: second' >&2; exit 1", "error: first"),
        ("echo 'something else' >&2; echo '1 problem.' >&2; echo >&2; exit 2", "1 problem."),
        ("exit 1", "no message"),
        (f"{SUCCEED}; echo 'error: late' >&2; exit 1", "error: late"),
    ],
)
def test_an_error_is_a_result_with_its_first_line(compile_with: Compile, script: str, reason: str):
    result = compile_with(script)

    assert (result.status, result.reason) == (CompileStatus.FAILED, reason)
    assert (result.sizes, result.logs) == (None, {})


@pytest.mark.parametrize("end", ["kill -SEGV $$", "kill -ABRT $$", "exit 139"])
def test_a_signal_is_a_crash(compile_with: Compile, end: str):
    result = compile_with(f"ulimit -c 0; echo 'clang: error: unable to go on' >&2; {end}")

    assert (result.status, result.reason) == (CompileStatus.CRASHED, "clang: error: unable to go on")


def test_a_kill_from_outside_is_told_from_a_crash(compile_with: Compile):
    result = compile_with("echo 'error: half a wo' >&2; kill -KILL $$")

    assert (result.status, result.killed) == (CompileStatus.CRASHED, True)
    assert result.reason == "killed by signal 9, perhaps because memory ran out"
    assert not compile_with("ulimit -c 0; kill -SEGV $$").killed


def test_a_full_disk_is_not_the_modules_fault(compile_with: Compile):
    with pytest.raises(StorageError, match=r"expected room for what the compiler writes, found the disk full; free"):
        compile_with("echo 'LLVM ERROR: IO failure on output stream: No space left on device' >&2; exit 1")


def test_a_full_disk_that_swallows_the_message_is_seen(compile_with: Compile, monkeypatch: pytest.MonkeyPatch):
    assert compile_with("exit 1").status is CompileStatus.FAILED
    monkeypatch.setattr("mlgokit.compiler.outcome.LEAST_ROOM", 1 << 62)
    assert compile_with("echo 'error: e' >&2; exit 1").status is CompileStatus.FAILED
    with pytest.raises(StorageError, match="found the disk full"):
        compile_with("exit 1")


def test_the_deadline_ends_the_compiler_and_its_children(compile_with: Compile):
    # The fixture waits for all of them to end, and would do so for ever if one lived on.
    result = compile_with("sleep 600 & sleep 600", timeout_seconds=1)

    assert (result.status, result.reason) == (CompileStatus.TIMED_OUT, "after 1 s; allow more with --timeout-seconds")
    assert (result.sizes, result.logs) == (None, {})
    assert result.wall_seconds >= 1


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ('head -c 100 object.o > "$output"', "section headers within 100 bytes"),
        ('echo text > "$output"', "expected an ELF file, found 5 bytes"),
        (': > "$output"', "found 0 bytes that begin with nothing"),
        ("true", "expected a readable object file, found No such file or directory"),
    ],
)
def test_an_object_that_cannot_be_read_is_a_result(compile_with: Compile, script: str, reason: str):
    result = compile_with(script)

    assert result.status is CompileStatus.BAD_OBJECT
    assert reason in result.reason
    assert result.sizes is None


def test_a_use_of_the_plugin_needs_one(compile_with: Compile):
    with pytest.raises(
        UsageError, match="compile: expected a plugin for a request with policies, tables or logs, found none; build it"
    ):
        compile_with(SUCCEED, use=PluginUse())


def test_what_is_known_is_whole_again_when_the_memory_fails(tmp_path: Path):
    """The plugin's list of functions says nothing that fits: the module is compiled once more, and never with it."""
    (tmp_path / "object.o").write_bytes(object_bytes())
    clang = script(
        tmp_path / "clang", "for output; do :; done", f"echo >> {tmp_path}/calls",
        '[ -z "$MLGOKIT_FUNCTIONS" ] || exit 1', f'cp {tmp_path}/object.o "$output"',
    )  # fmt: skip
    compiler = ClangCompiler(
        toolchain=Toolchain(major=19, version="19.1.7", clang=clang, clangxx=clang), plugin=tmp_path / "p.so", known={}
    )
    for name in ("module.bc", "p.so"):
        (tmp_path / name).write_bytes(b"content")
    words = ("-cc1", "-Oz", "-triple", "x86_64-unknown-linux-gnu")
    module = toy_source("module", bitcode=tmp_path / "module.bc", command_line=words)
    for request, calls in (
        (CompileRequest(use=PluginUse()), 1),
        (CompileRequest(reuse=True), 2),
        (CompileRequest(use=PluginUse(), reuse=True, keep_object=tmp_path / "kept.o"), 3),
        (CompileRequest(use=PluginUse(), reuse=True), 5),
        (CompileRequest(use=PluginUse(), reuse=True), 6),
    ):
        assert compiler.compile(module, request).ok
        assert len((tmp_path / "calls").read_text()) == calls
