"""What ``mlgokit doctor`` tries, each on a small input; a trial says what it found, or raises."""

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.objects.link import LinkStatus, link_image, link_roots
from mlgokit.compiler.outcome import first_error
from mlgokit.compiler.plugin_build import build_plugin, was_compiled
from mlgokit.compiler.plugin_loading import replay_sentence, why_no_plugin_loads
from mlgokit.compiler.prebuilt import Prebuilt, all_prebuilt, find_prebuilt
from mlgokit.compiler.rust.toolchain import find_rustc, load_plugin, unstable_options
from mlgokit.compiler.sandbox import open_sandbox
from mlgokit.compiler.toolchain import SUPPORTED_MAJORS, Toolchain, find_toolchain, known_majors
from mlgokit.errors import ToolError
from mlgokit.policy.targets import join_names
from mlgokit.problems import PROBLEMS, Problem

TRIAL_SECONDS = 30.0

_IR = """
define internal i32 @callee(i32 %x) {
  %y = add i32 %x, 1
  ret i32 %y
}
define i32 @caller(i32 %x) {
  %y = call i32 @callee(i32 %x)
  ret i32 %y
}
"""

_OTHER_FORMATS = {
    "wasm": "wasm32-unknown-wasi",
    "COFF": "x86_64-w64-windows-gnu",
    "Mach-O": "arm64-apple-macos13",
}
"""A target for each object format but ELF."""
_PROGRAM = (
    "#include <vector>\nint main(int count, char **) { return static_cast<int>(std::vector<int>(count).size()) - 1; }\n"
)


def toolchain_trials(
    toolchain: Toolchain, folder: Path, *, plugin: bool
) -> Iterator[tuple[str, Callable[[], str], bool]]:
    """Name, trial, and whether tuning and the plugin need it, of everything that depends on one compiler.

    Inputs and outputs are in an empty folder. With ``plugin``, that is also built and loaded.
    """
    (folder / "tiny.ll").write_text(_IR)
    yield "compile", functools.partial(_compile, toolchain, folder), True
    yield "link C++ with lld", functools.partial(_link, toolchain, folder), True
    yield "other object formats", functools.partial(_link_other_formats, toolchain, folder), False
    yield "sandbox", functools.partial(_enter_sandbox, toolchain), False
    for name, attempt in (("interactive", _open_channel), ("training log", _write_log), ("embedded", _use_embedded)):
        for problem in PROBLEMS.values():
            if problem.has_llvm_advisor:
                yield f"{name} {problem.name}", functools.partial(attempt, toolchain, problem, folder), False
    if plugin:
        yield "plugin", functools.partial(_load_plugin, toolchain, folder), True


def _run(toolchain: Toolchain, folder: Path, *llvm_options: str, plugin: Path | None = None) -> None:
    """Compile the tiny module.

    Raises:
        ToolError: with the first complaint of the compiler.
    """
    words = [word for option in llvm_options for word in ("-mllvm", option)]
    if plugin is not None:
        words.append(f"-fpass-plugin={plugin}")
    argv = [toolchain.clang, "-Oz", "-c", "tiny.ll", "-o", "tiny.o", "-Wno-override-module", *words]
    _expect_success(process.run(argv, timeout_seconds=TRIAL_SECONDS, cwd=folder))


def _expect_success(completed: process.Completed) -> None:
    if completed.timed_out:
        raise ToolError(f"the compiler did not end within {TRIAL_SECONDS:g} s")
    if completed.returncode != 0:
        lines = [line.strip() for line in completed.stderr.splitlines() if line.strip()]
        complaint = next((line for line in lines if "error" in line or "nknown" in line), lines[0] if lines else "")
        # "clang (LLVM option parsing): Unknown command line argument '-x'.  Try: ... --help"
        complaint = complaint.removeprefix("clang (LLVM option parsing): ").split("  Try: ")[0]
        raise ToolError(complaint or f"exit status {completed.returncode} and no message")


def _compile(toolchain: Toolchain, folder: Path) -> str:
    _run(toolchain, folder)
    return f"IR to object ({(folder / 'tiny.o').stat().st_size} bytes)"


def _link(toolchain: Toolchain, folder: Path) -> str:
    if toolchain.lld is None:
        raise ToolError(f"no ld.lld of major {toolchain.major} found")
    (folder / "main.cpp").write_text(_PROGRAM)
    argv = [toolchain.clangxx, "main.cpp", "-o", "main", f"--ld-path={toolchain.lld}", "-Wl,--gc-sections"]
    _expect_success(process.run(argv, timeout_seconds=TRIAL_SECONDS, cwd=folder))
    _expect_success(process.run([folder / "main"], timeout_seconds=TRIAL_SECONDS, cwd=folder))
    return "a program with the C++ standard library links and runs"


def _link_other_formats(toolchain: Toolchain, folder: Path) -> str:
    """Compile the tiny module for each other object format, measure it, and link it."""
    if toolchain.lld is None:
        raise ToolError(f"no ld.lld of major {toolchain.major} found")
    for name, triple in _OTHER_FORMATS.items():
        output = folder / f"tiny.{name}.o"
        words = [f"--target={triple}", "-Wno-override-module", "-c", "tiny.ll", "-o", output]
        _expect_success(process.run([toolchain.clang, *words], timeout_seconds=TRIAL_SECONDS, cwd=folder))
        roots = link_roots([output])
        image = folder / f"tiny.{name}"
        linked = link_image([output], image, roots=roots, lld=toolchain.lld, timeout_seconds=TRIAL_SECONDS)
        if linked.status is not LinkStatus.LINKED:
            raise ToolError(f"{name}: {first_error(linked.stderr)}")
    return f"{join_names(_OTHER_FORMATS)}: objects are compiled, measured and linked"


def _enter_sandbox(toolchain: Toolchain) -> str:
    sandbox = open_sandbox(toolchain)
    return f"bubblewrap ({sandbox.program}): no network, nothing written outside, for corpora not made here"


def _open_channel(toolchain: Toolchain, problem: Problem, folder: Path) -> str:
    base = folder / problem.name
    inbound, outbound = (base.with_name(f"{base.name}.{end}") for end in ("in", "out"))
    for path in (inbound, outbound):
        os.mkfifo(path)
    with contextlib.ExitStack() as stack:
        # Opened for both directions, which Linux allows, neither side waits for the other, so no thread is needed:
        # the answers lie ready before the first question, and what LLVM sends fits into the pipe.
        descriptors: list[int] = []
        for path in (inbound, outbound):
            descriptors.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))
            stack.callback(os.close, descriptors[-1])
        os.write(descriptors[0], bytes(4096))
        _run(toolchain, folder, *(option.format(base=base) for option in problem.channel_options))
        try:
            header = os.read(descriptors[1], 65536).split(b"\n", 1)[0]
        except BlockingIOError:
            raise ToolError("the option is accepted, but nothing was sent over the channel") from None
    try:
        return f"{len(json.loads(header)['features'])} features"
    except (ValueError, KeyError, TypeError):
        raise ToolError(f"expected a header with features over the channel, found {header[:40]!r}") from None


def _write_log(toolchain: Toolchain, problem: Problem, folder: Path) -> str:
    log = folder / f"{problem.name}.log"
    development = problem.channel_options[0].replace("=release", "=development")
    _run(toolchain, folder, development, f"{problem.log_option}={log.name}")
    if not log.exists() or not log.stat().st_size:
        raise ToolError("the option is accepted, but no log was written")
    return "the compiler writes training logs, and takes a TFLite model under training"


def _use_embedded(toolchain: Toolchain, problem: Problem, folder: Path) -> str:
    _run(toolchain, folder, problem.channel_options[0])
    return "the compiler accepts its release mode"


def _load_plugin(toolchain: Toolchain, folder: Path) -> str:
    plugin, whence = obtain_plugin(toolchain)
    _run(toolchain, folder, plugin=plugin)
    return f"{whence}, and the compiler loads it: {plugin}"


# --- The plugin, and what is not of one compiler ----------------------------------------------------------------------


def obtain_plugin(toolchain: Toolchain) -> tuple[Path, str]:
    """The plugin for a compiler, and the words for where it comes from.

    Raises:
        ToolError: the plugin is not made for this compiler, cannot be loaded or built there, or there are no headers.
    """
    if not toolchain.supported:
        raise ToolError(f"the plugin is made for LLVM {known_majors('and')} only")
    if reason := why_no_plugin_loads(toolchain.clang):
        raise ToolError(replay_sentence(toolchain.clang, reason))
    prebuilt = find_prebuilt(toolchain.version, toolchain.target, toolchain.cxx_library)
    if toolchain.include_dir is None and isinstance(prebuilt, str):
        raise ToolError(f"no LLVM headers of major {toolchain.major} found{prebuilt and f', and {prebuilt}'}")
    plugin = build_plugin(toolchain)
    if isinstance(prebuilt, Prebuilt) and not was_compiled(plugin):
        return plugin, f"comes prebuilt for {prebuilt.name}"
    return plugin, "builds"


def list_prebuilt() -> str:
    """The compilers for which a plugin came with the package."""
    known = all_prebuilt()
    if not known:
        raise ToolError("no prebuilt plugin in this installation: it is compiled with LLVM's headers")
    return ", ".join(one.name for one in known)


def rust_trials() -> Iterator[tuple[str, Callable[[], str]]]:
    """Name and trial of what is asked of the rustc in ``PATH``: its LLVM, and whether it loads the plugin for that."""
    yield "rustc", _say_rustc
    yield "plugin in rustc", _try_plugin


def _say_rustc() -> str:
    rustc = find_rustc()
    library = "inside the compiler" if rustc.library is None else f"shared ({rustc.library.resolve()})"
    return f"{rustc.version}, LLVM {rustc.llvm}, {library}"


def _try_plugin() -> str:
    rustc = find_rustc()
    if rustc.major not in SUPPORTED_MAJORS:
        raise ToolError(f"the plugin is made for LLVM {known_majors('and')} only, this rustc has {rustc.llvm}")
    load_plugin(rustc, build_plugin(find_toolchain(rustc.major, need_plugin=True)))
    variables = " ".join(f"{name}={value}" for name, value in unstable_options(rustc.version, "CRATE").items())
    return f"it loads it and asks it about calls: {variables + ' ' if variables else ''}rustc -Zllvm-plugins=..."
