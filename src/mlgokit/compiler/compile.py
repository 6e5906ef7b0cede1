"""Compile one module of a corpus with clang, with or without the plugin, and measure it. A failure is a result."""

import contextlib
import dataclasses
import functools
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlgokit.compiler import process
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.compiler.inputs import module_facts
from mlgokit.compiler.limits import Limits, ModuleLimits
from mlgokit.compiler.loaded import Loaded, inspect_compiler
from mlgokit.compiler.lto import folds_code, image_of, is_back_end, link_for_object, take_object
from mlgokit.compiler.memory import MemoryGate
from mlgokit.compiler.objects.measure import measure_object
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.options.parse import parse_options, spell_options
from mlgokit.compiler.outcome import describe_end, first_error, read_outputs
from mlgokit.compiler.recheck import NO_RECHECK, Recheck, difference, stale_error
from mlgokit.compiler.regalloc_cost import record_options
from mlgokit.compiler.request import HEURISTIC, PLAIN, CompileRequest, Lto, PluginUse
from mlgokit.compiler.reuse.known import KnownFunctions, may_drop
from mlgokit.compiler.reuse.known_decisions import KnownDecisions
from mlgokit.compiler.reuse.known_use import NOTHING, Known, compile_with_reuse, select_known
from mlgokit.compiler.reuse.resident import Residents
from mlgokit.compiler.sandbox import Sandbox, inside_environment, writable_folder
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.disk import Room
from mlgokit.errors import InputError, UsageError
from mlgokit.files import digest_cached, writing
from mlgokit.manifest import digest_value
from mlgokit.module import Module

COMPILE_SECONDS = 60.0

_CHANGES_COMPILER = re.compile(
    r"(MLGOKIT|CCC|CC_PRINT|CC_LOG|CLANG|LLVM(?!_PROFILE_FILE)|GCOV|DEBUGINFOD)_|(.*_)?(CPATH|INCLUDE_PATH)$"
)
"""Variables that change what clang does, or make it write logs. Symbolization of crashes is turned off, as it would run
the llvm-symbolizer in PATH."""

THINLTO_INDEX = "-fthinlto-index="

_LARGE_PAGES = (("GLIBC_TUNABLES", ":", "glibc.malloc.hugetlb", "=1"), ("MALLOC_CONF", ",", "thp", ":always"))
"""For glibc and for the jemalloc of rustc: environment variable, separator of its settings, the setting for large
pages, and its value."""


def command(
    toolchain: Toolchain,
    module: Module,
    output: Path,
    plugin: Path | None,
    *,
    record: Path | None = None,
    lto: Lto = "",
) -> Cc1Line:
    """Compose the compiler call for one module: recorded ``-cc1`` options, bitcode, plugin, record and ThinLTO index.

    The bitcode of a ThinLTO module already contains its imports, which LLVM has to be told.
    """
    extra = [] if plugin is None else [f"-fpass-plugin={plugin}"]
    extra += [] if record is None else record_options(record)
    options = module.command_line
    # No compiler takes an absolute path for an option.
    bitcode, output = module.bitcode.absolute(), output if output == Path("-") else output.absolute()
    if module.thinlto_index is not None:
        options = spell_options(option for option in parse_options(options) if option.name != THINLTO_INDEX)
        extra += [f"{THINLTO_INDEX}{module.thinlto_index.absolute()}", "-mllvm", "-thinlto-assume-merged"]
    # What the driver asks of -cc1 for -flto.
    kind = [f"-flto={lto}", "-flto-unit", "-emit-llvm-bc"] if lto else ["-emit-obj"]
    own = [*extra, "-x", "ir", str(bitcode), *kind, "-o", str(output)]
    return Cc1Line(toolchain.clang, options=options, own=own, allowed=module.allowed_options)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClangCompiler:
    """The user's clang, with the plugin where a request uses it.

    Attributes:
        toolchain: LLVM installation with the clang.
        plugin: the plugin of a use that names none.
        workers: best number of simultaneous compilations.
        timeout_seconds: deadline of one compilation.
        residents: resident compilers, for modules that are compiled many times under the plugin; not for ThinLTO, nor
            for costs of register allocation. A failure in one is compiled again without it, so that the outcome never
            depends on it.
        known: cached functions by module, whose code generation is skipped; sizes still are those of the whole object.
        decided: cached sizes of objects by the inliner's decisions; a compiler that repeats these decisions exits.
        recheck: draws the compilations with reuse that are repeated without, and compared.
        limits: resource limits of each compilation.
        sandbox: sandbox of the compilers; ``None`` for none.
        keep_hot: percentage of a module's profile counts; the functions that make them up are left to LLVM by the
            compiler's own plugin. A plugin that a use names has this setting inside.
        room: checks for free disk space before each compilation; ``None`` for no check.
        memory: admission by memory for compilers that run at once; ``None`` for none.
    """

    toolchain: Toolchain
    plugin: Path | None = None
    workers: int = 1
    timeout_seconds: float = COMPILE_SECONDS
    residents: Residents | None = None
    known: dict[str, KnownFunctions] | None = None
    decided: KnownDecisions | None = None
    recheck: Recheck = NO_RECHECK
    limits: ModuleLimits = field(default_factory=ModuleLimits)
    sandbox: Sandbox | None = None
    room: Room | None = None
    keep_hot: float = 0.0
    memory: MemoryGate | None = None

    @property
    def loaded(self) -> Loaded:
        """Digests of the program and of the libraries that it loads in the compilers' environment, not cached."""
        toolchain = self.toolchain
        version = toolchain.version_text or toolchain.version
        return inspect_compiler(
            toolchain.clang, version=version, target=toolchain.target, environment=compiler_environment()
        )

    def compile(self, module: Module, request: CompileRequest = PLAIN) -> Compilation:
        """Compile a module and measure its object.

        Raises:
            StaleError: a compilation with reuse gave another object than one without.
            StorageError: the disk is full, or would be.
            ToolError: the compiler cannot be started.
            UsageError: the request uses a plugin, and there is none.
        """
        if self.room is not None:
            self.room.check()
        content = self._content_to_reuse(module, request)
        separable = module.link_folder is None and may_drop(module.command_line)
        known = select_known(self.known if separable else None, self.decided, module, request, content)
        with self._enough_memory(module):
            done = compile_with_reuse(known, functools.partial(_compile, self, module, request, content))
        use = request.use
        if content and done.ok and use is not None:
            name = f"{module.name} {hashlib.sha256(use.decisions).hexdigest()} {use.seed}"
            if self.recheck.draws(name):
                self._recheck_reuse(module, request, use, done, known)
        return done

    def _enough_memory(self, module: Module) -> contextlib.AbstractContextManager[None]:
        """Wait until the expected memory of a compilation is free."""
        if self.memory is None:
            return contextlib.nullcontext()
        return self.memory.acquire(self.limits.expected_memory(module.name, bitcode_bytes=module.bitcode_bytes))

    def _recheck_reuse(
        self, module: Module, request: CompileRequest, use: PluginUse, done: Compilation, known: Known
    ) -> None:
        """Compile again without reuse, and compare. Trials are left out, since they do not change the object."""
        alone = dataclasses.replace(
            request,
            use=dataclasses.replace(use, trials=None),
            reuse=False,
            keep_object=None,
            keep_logs={},
            extra_seconds=0.0,
        )
        mismatch = difference(done, _compile(self, module, alone, "", NOTHING))
        if mismatch:
            likely = "known functions" if known.codes else "a resident compiler"
            raise stale_error(
                module.name,
                mismatch,
                memory="known decisions" if known.objects is not None and known.objects.sizes else likely,
                key={
                    **module_facts(module),
                    "known objects": 0 if known.objects is None else len(known.objects.sizes),
                    "known functions": len(known.codes),
                    "each by": "a digest of its IR after the last pass (plugin/identity/FinalCode.cpp)",
                },
                remedy="report this sentence, and go on with --check-share 0: what was found is kept, and at its end a "
                "search compiles everything from the beginning",
            )

    def close(self) -> None:
        """End the resident compilers; a later compilation starts new ones."""
        if self.residents is not None:
            self.residents.close()

    def _content_to_reuse(self, module: Module, request: CompileRequest) -> str:
        """Compute the digest under which results are reused; empty if the request allows no reuse."""
        use = request.use
        if not request.reuse or use is None or (self.known is self.residents is self.decided is None):
            return ""
        plugin = use.plugin or self.plugin
        try:
            return digest_value([module_facts(module), None if plugin is None else digest_cached(plugin)])
        except OSError:
            # A file is missing; the compiler will report which.
            return ""


def compiler_environment() -> dict[str, str]:
    """Make the compilers' environment: without variables that change clang's output, except for the loader's."""
    kept = {name: value for name, value in os.environ.items() if not _CHANGES_COMPILER.match(name)}
    return request_large_pages({**kept, "LLVM_DISABLE_SYMBOLIZATION": "1"})


def plugin_of(own: Path | None, use: PluginUse | None) -> Path | None:
    """Choose the plugin of a compilation: the one that its use names, else the compiler's own.

    Raises:
        UsageError: there is none.
    """
    if use is None:
        return None
    plugin = use.plugin or own
    if plugin is None:
        raise UsageError(
            "compile: expected a plugin for a request with policies, tables or logs, found none; build it, or name one"
        )
    # Without a folder, clang would look for it where the system's libraries are.
    return plugin.absolute()


def _line_composer(
    toolchain: Toolchain, module: Module, request: CompileRequest, plugin: Path | None, record: Path | None
) -> Callable[..., Sequence[str]]:
    """Return a function that composes the command line of a module for the path of its output.

    The function raises :class:`InputError` for a command line that the option check refuses.
    """
    if module.link_folder is not None:
        return functools.partial(link_for_object, module, plugin=plugin, keeps=request.keep_object is not None)
    return functools.partial(
        command,
        toolchain,
        module,
        plugin=plugin,
        record=record,
        lto=request.lto,
    )


def _plugin_settings(compiler: ClangCompiler, module: Module, use: PluginUse | None, folder: Path) -> dict[str, str]:
    """Make the plugin's environment variables for a compilation, and write the files that they name to ``folder``."""
    if use is None:
        return {}
    kept = {"MLGOKIT_KEEP_HOT": repr(compiler.keep_hot)} if compiler.keep_hot and use.plugin is None else {}
    if use.policies and (module.thinlto_index or module.link_folder):
        # By itself a plugin leaves modules of link-time optimization to LLVM; learning and searches need decisions.
        kept["MLGOKIT_LTO"] = "1"
    if use.decides_at_any_level(module):
        kept["MLGOKIT_ANY_LEVEL"] = "2" if use.any_growth else "1"
    return use.environment(folder) | kept


def _compile(
    compiler: ClangCompiler,
    module: Module,
    request: CompileRequest,
    content: str,
    known: Known,
) -> Compilation:
    """Compile once, in a temporary folder, in a resident compiler if there is one; make the record."""
    use, box = request.use, compiler.sandbox
    with writable_folder(box) as folder:
        # From a sandbox only this folder can be written to.
        output = folder / "module.o" if box is not None or request.keep_object is None else request.keep_object
        record = folder / "module.opt.yaml" if request.regalloc else None
        environment = compiler_environment()
        # What a killed compiler leaves behind goes with this folder.
        environment["TMPDIR"] = str(folder)
        settings = _plugin_settings(compiler, module, use, folder)
        if box is not None:
            environment = request_large_pages(inside_environment(environment))
            settings = box.settings(settings, folder)
        settings |= known.settings(folder)
        plugin = plugin_of(compiler.plugin, use)
        words = _line_composer(compiler.toolchain, module, request, plugin, record)
        try:
            line = words(output=output)
        except InputError as error:
            return Compilation(status=CompileStatus.FAILED, reason=str(error))
        deadline = compiler.limits.deadline(module.name, compiler.timeout_seconds, bitcode_bytes=module.bitcode_bytes)
        timeout_seconds = deadline + request.extra_seconds
        only_object = record is None and (use is None or not use.logs)
        named = [path for path in (module.bitcode, module.thinlto_index, plugin) if path is not None]

        def sandbox_words(limits: Limits, writable: Path) -> tuple[str, ...]:
            """Make the words that start the compiler in the sandbox; empty without one."""
            program = compiler.toolchain.clang
            return () if box is None else box(limits, program=program, writable=writable, readable=named)

        done = None
        # A resident linker writes no image, which a kept object has beside it, and a fork has no threads for ThinLTO.
        is_alone = is_back_end(module) or (module.link_folder is not None and request.keep_object is not None)
        may_stay = content and record is None and module.thinlto_index is None and not is_alone
        if compiler.residents is not None and may_stay:
            argv = words(output=Path("-"))
            # A resident keeps its limits and its sandbox for all later requests, which may write logs.
            limits = compiler.limits.of(module.name, only_object=False)
            done = compiler.residents.run(
                argv,
                content=content,
                environment=environment,
                request={"TMPDIR": str(folder), **settings},
                output=output,
                timeout_seconds=timeout_seconds,
                limits=limits,
                inside=sandbox_words(limits, folder if box is None else box.scratch),
                folder=None if box is None else folder,
                cwd=module.link_folder,
            )
            if done is not None and done.returncode != 0 and not done.timed_out:
                compiler.residents.decline(argv, f"a compilation failed: {first_error(done.stderr)}")
                done = None
        if done is None:
            limits = compiler.limits.of(module.name, only_object=only_object)
            done = process.run(
                line,
                timeout_seconds=timeout_seconds,
                env=environment | settings,
                cwd=module.link_folder,
                limits=limits,
                inside=sandbox_words(limits, folder),
            )
        take_object(module, output)
        ended = describe_end(done, output, timeout_seconds)
        if ended.status is not CompileStatus.OK:
            return ended
        if _is_plain(use):
            compiler.limits.note(
                module.name,
                memory_bytes=done.peak_bytes,
                object_bytes=output.stat().st_size if output.exists() else 0,
                seconds=done.user_seconds,
            )
        whole = functools.partial(
            measure_object, folds=folds_code(module), image=image_of(module), references=request.references
        )
        ended = read_outputs(ended, known, request, folder=folder, output=output, record=record, measure=whole)
        if request.keep_object not in (None, output) and output.exists():
            with writing(request.keep_object):
                shutil.move(output, request.keep_object)
        return ended


def _is_plain(use: PluginUse | None) -> bool:
    """Whether a compilation makes the module's baseline object, so that its costs are those of the baseline."""
    return use is None or (not use.explores and use.trials is None and set(use.policies.values()) <= {HEURISTIC})


def request_large_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """Ask for large pages in the environment of a compiler, unless it sets the page size itself.

    Each trial, and each compilation by a resident compiler, is a fork, for which Linux copies a table of all its pages
    and takes it down again. With pages of 2 MiB in place of 4 KiB that table is short
    (linux/Documentation/admin-guide/mm/transhuge.rst). Allocators ask for them if their variables say so; where the
    kernel has none, or the allocator is another, nothing changes.

    Example:
        >>> request_large_pages({"LANG": "C", "MALLOC_CONF": "narenas:1"})
        {'LANG': 'C', 'MALLOC_CONF': 'narenas:1,thp:always', 'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}
        >>> request_large_pages({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0", "MALLOC_CONF": "thp:never"})
        {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=0', 'MALLOC_CONF': 'thp:never'}
    """
    variables = dict(environment)
    for variable, between, name, value in _LARGE_PAGES:
        settings = [setting for setting in variables.get(variable, "").split(between) if setting]
        if not any(setting.startswith(name + value[0]) for setting in settings):
            variables[variable] = between.join([*settings, name + value])
    return variables
