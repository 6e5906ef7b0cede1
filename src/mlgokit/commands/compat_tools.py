"""Tools of google/ml-compiler-opt and of LLVM's mlgo-utils as commands of mlgokit: their flags, and what these mean."""

import difflib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from mlgokit.commands.gin import read_gin, search_folders
from mlgokit.commands.gin_settings import GinSettings, preset_of, settings_of_gin
from mlgokit.errors import UsageError
from mlgokit.export.tflite import MODEL

CORPUS_SUFFIX = ".corpus"
"""Suffix of the file beside a training set that names the corpus which it was made from."""
TRACES_SUFFIX = ".traces"
"""Suffix of the folder beside a training set that has its logs."""
_WITHOUT_EFFECT = ("verbosity", "logtostderr", "alsologtostderr", "quiet", "clang_path", "llvm_size_path")
_COMMON = ("gin_files", "gin_bindings", "compilation_timeout", *_WITHOUT_EFFECT)
_LLVM_TOOLS = ("llvm_nm_path", "llvm_extract_path", "opt_path", "llvm_link_path")
_BOOLEAN = frozenset({"logtostderr", "alsologtostderr", "quiet"})
_TASKS = {"inlining": "inline-size", "regalloc": "regalloc-eviction"}
"""Problems by ``--compile_task``, which earlier versions of the reference have in place of gin files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a call of such a tool comes to: the words of each command of mlgokit, or a text to print in their place.

    ``notes`` say what has no counterpart. ``names_corpus`` is a file to write, and the corpus to name in it.
    """

    commands: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    names_corpus: tuple[Path, Path] | None = None
    text: str = ""


Flags = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One of their tools, which makes a plan of the values of each flag.

    Besides the flags that are ``required`` and the others, it has those of every tool if it is ``common``.
    """

    plan: Callable[[Flags], Plan]
    required: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    common: bool = True

    @property
    def known(self) -> tuple[str, ...]:
        """All flags that are understood."""
        return (*self.required, *self.flags, *(_COMMON if self.common else ("verbosity",)))


def plan_call(words: Sequence[str]) -> Plan:
    """Translate a call: the name of a tool, or the path of its script, and its flags.

    Flags are ``--flag=value``, ``--flag value`` or with one dash, as absl and argparse take them. Words after ``--``
    are options of mlgokit's, for the last command.

    Raises:
        UsageError: the tool or a flag is not known, or a flag that it needs is missing.
        InputError: a gin file cannot be read.

    Example:
        >>> plan_call(["make_corpus.py", "--input_dir=bc", "--output_dir", "out", "--default_args=-O2 -c"]).commands
        (('corpus', 'import', '--bitcode=bc', '--corpus=out', '--options=-O2 -c'),)
    """
    if not words:
        raise UsageError(f"compat: expected the name of a tool ({', '.join(TOOLS)}), found none; give one")
    name = PurePath(words[0]).name.removesuffix(".py")
    if name not in TOOLS:
        near = difflib.get_close_matches(name, TOOLS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"compat: expected one of the tools {', '.join(TOOLS)}, found {name!r:.100}{hint}")
    own = list(words[1:])
    extra: list[str] = []
    if "--" in own:
        own, extra = own[: own.index("--")], own[own.index("--") + 1 :]
    tool = TOOLS[name]
    flags = _read_flags(name, tool, own)
    plan = tool.plan(flags)
    commands = [*plan.commands]
    if commands:
        commands[-1] = (*commands[-1], *extra)
    has_deadline = any(word.startswith("--timeout-seconds=") for command in commands for word in command)
    silent = _WITHOUT_EFFECT if has_deadline else (*_WITHOUT_EFFECT, "compilation_timeout")
    notes = (*plan.notes, *(f"--{flag} has no effect here" for flag in silent if flag in flags))
    return Plan(commands=tuple(commands), notes=notes, names_corpus=plan.names_corpus, text=plan.text)


def _read_flags(name: str, tool: Tool, words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The values of each flag that is given."""
    found: dict[str, tuple[str, ...]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.lstrip("-").partition("=")
        negated = flag.startswith("no") and flag[2:] in _BOOLEAN
        flag = flag[2:] if negated else flag
        if not word.startswith("-") or flag not in tool.known:
            raise UsageError(
                f"compat {name}: expected one of the flags --{', --'.join(tool.known)}, found {word!r:.200}; leave it "
                "out, or put an option of mlgokit's own command behind --"
            )
        if not equals and flag not in _BOOLEAN:
            if not rest:
                raise UsageError(f"compat {name}: --{flag}: expected a value, found none; give one")
            value = rest.pop(0)
        found[flag] = (*found.get(flag, ()), value)
    for flag in tool.required:
        if not any(found.get(flag, ())):
            raise UsageError(f"compat {name}: expected --{flag}, found no such flag; give it")
    return found


def _last(flags: Flags, flag: str, default: str = "") -> str:
    values = flags.get(flag, ())
    return values[-1] if values else default


def _options(flags: Flags, **names: str) -> tuple[str, ...]:
    """Options of mlgokit for the flags that are given with a value."""
    return tuple(f"--{option}={value}" for flag, option in names.items() if (value := _last(flags, flag)))


def _gin(flags: Flags, *, tool: str = "") -> GinSettings:
    files = [Path(name) for name in flags.get("gin_files", ())]
    bindings = read_gin(files, flags.get("gin_bindings", ()))
    return settings_of_gin(bindings, tool=tool, folders=search_folders(files))


def _machine(flags: Flags) -> tuple[str, ...]:
    return _options(flags, num_workers="workers", compilation_timeout="timeout-seconds")


# --- LLVM's mlgo-utils --------------------------------------------------------------------------------------------


def _extract_ir(flags: Flags) -> Plan:
    thin, given = _last(flags, "thinlto_build"), _last(flags, "input")
    if thin not in {"", "local", "distributed"}:
        raise UsageError(
            f"compat extract_ir: --thinlto_build: expected local or distributed, found {thin!r}; correct it"
        )
    if (thin == "local") == bool(given):
        raise UsageError(
            "compat extract_ir: expected either --input or --thinlto_build=local, found both or neither; give one"
        )
    base = _last(flags, "obj_base_dir")
    target = f"--corpus={_last(flags, 'output_dir')}"
    if thin == "local":
        return Plan(
            commands=(("corpus", "import", f"--thinlto={base or '.'}", target, *_workers(flags)),),
            notes=tuple(
                f"--{flag} has no effect with --thinlto_build=local, there either"
                for flag in ("cmd_filter", "llvm_objcopy_path")
                if flags.get(flag)
            ),
        )
    kind = _last(flags, "input_type", "json")
    sources = {
        "json": (f"--compile-commands={given}", "--embedded"),
        "params": (f"--params={given}", *((f"--object-base={base}",) if base else ())),
        "directory": (f"--objects={given}",),
        "bazel_aquery": (f"--aquery={given}", *((f"--object-base={base}",) if base else ())),
    }
    if kind not in sources:
        raise UsageError(
            f"compat extract_ir: --input_type: expected one of {', '.join(sources)}, found {kind!r}; correct it"
        )
    words = [*sources[kind], target, *_workers(flags)]
    words += _options(flags, cmd_filter="command-filter") if _last(flags, "cmd_filter") != "None" else ()
    words += ["--distributed"] if thin else []
    for flag, option, usual in (
        ("cmd_section_name", "command-section", ".llvmcmd"),
        ("bitcode_section_name", "bitcode-section", ".llvmbc"),
    ):
        if (section := _last(flags, flag, usual)) != usual:
            words.append(f"--{option}={section}")
    notes = ["--llvm_objcopy_path: sections are read without it"] if flags.get("llvm_objcopy_path") else []
    return Plan(commands=(("corpus", "import", *words),), notes=tuple(notes))


def _workers(flags: Flags) -> tuple[str, ...]:
    return () if _last(flags, "num_workers") == "None" else _options(flags, num_workers="workers")


def _make_corpus(flags: Flags) -> Plan:
    words = _options(flags, input_dir="bitcode", output_dir="corpus", default_args="options")
    return Plan(commands=(("corpus", "import", *words),))


def _combine(flags: Flags) -> Plan:
    return Plan(commands=(("corpus", "combine", _last(flags, "root_dir")),))


# --- google/ml-compiler-opt ---------------------------------------------------------------------------------------


def _policy(folder: str, beside: str) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """A policy file for a folder with a model, and the command that makes it; a policy file is taken as it is.

    A training here has no ``saved_policy``, and its policy stands for that.
    """
    path = Path(folder)
    final = path.parent / "final.policy"
    if not path.exists() and final.is_file():
        return str(final), ()
    if not (path / MODEL).is_file() and path.suffix != ".tflite":
        return folder, ()
    made = f"{beside}.policy"
    return made, (("import-policy", folder, f"--output={made}"),)


def _default_trace(flags: Flags) -> Plan:
    gin = _gin(flags)
    output, performance = _last(flags, "output_path"), _last(flags, "output_performance_path")
    beside = output or performance
    if not beside:
        raise UsageError(
            "compat generate_default_trace: expected --output_path or --output_performance_path, found neither; "
            "give one"
        )
    words = [f"--corpus={_last(flags, 'data_path')}", f"--output={beside}{TRACES_SUFFIX}"]
    words += _options(
        flags, output_path="tfrecord", output_performance_path="performance", sampling_rate="sampling-rate",
        module_filter="module-filter", key_filter="key-filter", keys_file="keys-file",
    )  # fmt: skip
    task = _last(flags, "compile_task")
    if task and task not in _TASKS:
        raise UsageError(
            f"compat generate_default_trace: --compile_task: expected one of {', '.join(_TASKS)}, found {task!r:.100}; "
            "correct it"
        )
    problem = gin.problem or _TASKS.get(task, "")
    words += [f"--problem={problem}"] if problem else []
    before: tuple[tuple[str, ...], ...] = ()
    if folder := _last(flags, "policy_path"):
        policy, before = _policy(folder, beside)
        words.append(f"--policy={policy}")
    words += [*_machine(flags), *gin.changes]
    return Plan(
        commands=(*before, ("trace", *words)),
        notes=gin.notes,
        names_corpus=(Path(f"{output}{CORPUS_SUFFIX}"), Path(_last(flags, "data_path"))) if output else None,
    )


def _vocab(flags: Flags) -> Plan:
    gin = _gin(flags)
    words = _options(
        flags, input="tfrecord", output_dir="output", sampling_fraction="sampling-fraction", num_buckets="num-buckets"
    )
    notes = ["--parallelism: one process reads in bounded memory"] if flags.get("parallelism") else []
    return Plan(commands=(("vocab", *words),), notes=(*gin.notes, *notes))


def _train(flags: Flags, gin: GinSettings, *, corpus: str, output: str, start: str, more: Sequence[str] = ()) -> Plan:
    """The commands of a training: a policy to start from, the training, and the folder that their tools load."""
    problem, algorithm = gin.problem or "inline-size", gin.algorithm or "ppo"
    words = [f"--corpus={corpus}", f"--output={output}", f"--problem={problem}", f"--algorithm={algorithm}"]
    words += [f"--preset={preset_of(algorithm, problem)}", "--features=llvm", *gin.options, *more]
    before: tuple[tuple[str, ...], ...] = ()
    if start:
        # A policy has a vocabulary of its own.
        words = [word for word in words if not word.startswith("--vocab=")]
        policy, before = _policy(start, f"{output.rstrip('/')}.start")
        words.append(f"--start={policy}")
    words += [*_machine(flags), *gin.changes]
    return Plan(commands=(*before, ("train", *words)), notes=gin.notes)


def _train_locally(flags: Flags) -> Plan:
    gin = _gin(flags)
    return _train(
        flags,
        gin,
        corpus=_last(flags, "data_path"),
        output=_last(flags, "root_dir"),
        start=gin.start,
        more=_options(flags, num_modules="setting=modules"),
    )


def _train_bc(flags: Flags) -> Plan:
    gin = _gin(flags)
    data = _last(flags, "data_path")
    note = Path(f"{data}{CORPUS_SUFFIX}")
    if len(flags.get("data_path", ())) != 1 or not note.is_file():
        raise UsageError(
            f"compat train_bc: --data_path: expected one training set of `mlgokit compat generate_default_trace`, with "
            f"{note.name} beside it, found {', '.join(flags.get('data_path', ()))}; trace again, or use "
            "`mlgokit train --algorithm behavioural-cloning --corpus CORPUS`, which compiles the corpus"
        )
    corpus = note.read_text(encoding="utf-8", errors="surrogateescape").strip()
    if not gin.algorithm:
        gin = _gin(flags, tool="behavioural-cloning")
    return _train(flags, gin, corpus=corpus, output=_last(flags, "root_dir"), start=gin.start)


def _es_trainer(flags: Flags) -> Plan:
    gin = _gin(flags, tool="es")
    start = _last(flags, "pretrained_policy_path")
    more = ["--setting=scaled=true"] if start else []
    if "--setting=ridge=0.01" in gin.options:
        more += _options(flags, grad_reg_alpha="setting=ridge")
    notes = ["--request_deadline: it has no effect there either"] if flags.get("request_deadline") else []
    if _last(flags, "grad_reg_type", "ridge") != "ridge":
        notes.append(f"no counterpart: --grad_reg_type={_last(flags, 'grad_reg_type')}")
    plan = _train(
        flags, gin, corpus=_last(flags, "train_corpora"), output=_last(flags, "output_path"), start=start, more=more
    )
    return Plan(commands=plan.commands, notes=(*plan.notes, *notes))


def _importance(flags: Flags) -> Plan:
    gin = _gin(flags)
    policy, before = _policy(_last(flags, "model_path"), _last(flags, "output_file"))
    words = [policy, f"--traces={_last(flags, 'data_path')}{TRACES_SUFFIX}"]
    words += _options(flags, output_file="output", num_examples="explained")
    return Plan(commands=(*before, ("importance", *words)), notes=gin.notes)


def _combine_policies(flags: Flags) -> Plan:
    """The commands that make policies one model, which ``-ml-inliner-model-selector`` chooses among."""
    names, folders = flags.get("policies_names", ()), flags.get("policies_paths", ())
    if len(names) != len(folders):
        raise UsageError(
            f"compat combine_tfa_policies: expected a --policies_names for each --policies_paths, found {len(names)} "
            f"names of {len(folders)} policies; give as many, in the same order"
        )
    output = _last(flags, "combined_policy_path")
    imported = [_policy(folder, f"{output.rstrip('/')}.{name}") for name, folder in zip(names, folders, strict=True)]
    words = [*(policy for policy, _ in imported), f"--output={output}", "--names", *names]
    return Plan(commands=(*(command for _, before in imported for command in before), ("export", "llvm", *words)))


def _extract_functions(flags: Flags) -> Plan:
    words = [_last(flags, "optimized_corpus"), f"--corpus={_last(flags, 'output_path')}"]
    words += _options(flags, function_list="list", thread_count="workers")
    return Plan(commands=(("corpus", "functions", *words),), notes=_own_tools(flags))


def _group_functions(flags: Flags) -> Plan:
    words = [_last(flags, "function_folder"), f"--corpus={_last(flags, 'output_folder')}"]
    words += _options(flags, chunk_count="groups")
    return Plan(commands=(("corpus", "group", *words),), notes=_own_tools(flags))


def _own_tools(flags: Flags) -> tuple[str, ...]:
    """What is said of flags that name programs of LLVM."""
    return tuple(
        f"--{flag}: the program beside clang is taken, or --llvm says which" for flag in _LLVM_TOOLS if flag in flags
    )


def _gin_config(flags: Flags) -> Plan:
    """What gin files say, as TOML."""
    settings = _gin(flags)
    algorithm, problem = settings.algorithm or "ppo", settings.problem or "inline-size"
    names = ("problem", "algorithm", "preset")
    values = dict(zip(names, (problem, algorithm, preset_of(algorithm, problem)), strict=True))
    words = [*(f"--{name}={value}" for name, value in values.items()), *settings.options, *settings.changes]
    lists: dict[str, list[str]] = {}
    for word in (*settings.options, *settings.changes):
        name, _, value = word.removeprefix("--").partition("=")
        lists.setdefault(name, []).append(value)
    lines = [f"# mlgokit {shlex.join(['train', *words])}", "[train]"]
    lines += [f"{name} = {_toml(value)}" for name, value in values.items()]
    for name, found in lists.items():
        many = name == "setting" or name.endswith("-options")
        lines.append(f"{name} = [{', '.join(map(_toml, found))}]" if many else f"{name} = {_toml(found[-1])}")
    lines += [f"start = {_toml(settings.start)}"] if settings.start else []
    lines += ["", "# Without a counterpart:", *(f"# {one}" for one in settings.left_out or ("nothing",))]
    return Plan(text="\n".join(lines))


def _toml(text: str) -> str:
    return text if text.isdecimal() else json.dumps(text, ensure_ascii=False)


_VOCAB = Tool(plan=_vocab, required=("input", "output_dir"), flags=("sampling_fraction", "parallelism", "num_buckets"))
TOOLS: Mapping[str, Tool] = {
    "extract_ir": Tool(
        plan=_extract_ir,
        required=("output_dir",),
        flags=(
            "input", "input_type", "num_workers", "llvm_objcopy_path", "obj_base_dir", "cmd_filter", "thinlto_build",
            "cmd_section_name", "bitcode_section_name",
        ),
        common=False,
    ),
    "make_corpus": Tool(
        plan=_make_corpus, required=("input_dir", "output_dir"), flags=("default_args",), common=False
    ),
    "combine_training_corpus": Tool(plan=_combine, required=("root_dir",), common=False),
    "generate_default_trace": Tool(
        plan=_default_trace,
        required=("data_path",),
        flags=(
            "policy_path", "output_path", "output_performance_path", "num_workers", "sampling_rate", "module_filter",
            "key_filter", "keys_file", "compile_task",
        ),
    ),
    "generate_vocab": _VOCAB,
    "sparse_bucket_generator": _VOCAB,
    "train_bc": Tool(plan=_train_bc, required=("root_dir", "data_path")),
    "train_locally": Tool(
        plan=_train_locally, required=("root_dir", "data_path"), flags=("num_workers", "num_modules")
    ),
    "es_trainer": Tool(
        plan=_es_trainer,
        required=("output_path", "train_corpora"),
        flags=("pretrained_policy_path", "num_workers", "request_deadline", "grad_reg_alpha", "grad_reg_type"),
    ),
    "feature_importance": Tool(
        plan=_importance, required=("data_path", "model_path", "output_file"), flags=("num_examples",)
    ),
    "combine_tfa_policies": Tool(
        plan=_combine_policies, required=("policies_names", "policies_paths", "combined_policy_path")
    ),
    "extract_functions": Tool(
        plan=_extract_functions,
        required=("optimized_corpus", "function_list", "output_path"),
        flags=("thread_count", *_LLVM_TOOLS[:3]),
    ),
    "group_functions": Tool(
        plan=_group_functions, required=("function_folder", "output_folder"), flags=("chunk_count", _LLVM_TOOLS[3])
    ),
    "gin_config": Tool(plan=_gin_config),
}  # fmt: skip
"""The tools that are understood, by the names of their scripts; ``gin_config`` is ours, and prints what files say."""
