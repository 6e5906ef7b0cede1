"""Settings of the training loop, and changes to a learner's preset as a user types them."""

import contextlib
import dataclasses
import enum
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_type_hints

import tyro

from mlgokit.algorithms.config import POSITIVE, SHARES
from mlgokit.algorithms.registry import LEARNERS, check_framework, find_learner
from mlgokit.basic import Basic
from mlgokit.compiler.objects.measure import Objective
from mlgokit.decode import decode
from mlgokit.errors import CorpusError, InputError, UsageError
from mlgokit.files import digest_file
from mlgokit.module import Module
from mlgokit.policy.store import MOST_UNITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """Settings of the training loop.

    Iterations and validation that are not given are the preset's (``LoopDefaults`` in the registry).
    """

    preset: Annotated[str, Basic.WORK] = "default"
    """Name of a set of settings of the algorithm; `reference` for those of google/ml-compiler-opt for the problem."""
    setting: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Setting of the algorithm to change, as in --setting modules=8 or --setting imitation.steps=50."""
    seed: int = 1
    """Random seed."""
    start: Annotated[Path | None, Basic.WORK] = None
    """Policy file to start from, with its features, normaliser and network."""
    vocab: Path | None = None
    """Folder of .buckets files to normalise features with, in place of a normaliser fitted to the trace; features
    without a file are not used."""
    normaliser: Literal["signed-log", "quantile"] | None = None
    """Normaliser fitted to a trace of the heuristic; the preset's if not given."""
    excluded: tuple[str, ...] = ("node_count", "edge_count")
    """Features to exclude."""
    features: Literal["all", "llvm"] = "all"
    """Features to use: all that the plugin sends, or LLVM's own alone, as in a build of LLVM without the plugin
    (mlgokit export llvm)."""
    objective: Objective = Objective.LINK_AWARE
    """Measure of size, for inlining."""
    iterations: Annotated[int | None, Basic.WORK] = None
    """Number of iterations; without any budget the preset's: 3 for effect-regression, 1 for behavioural-cloning, 20
    for others."""
    compilations: int | None = None
    """Budget of the learner in compilations; no iteration begins after it is spent."""
    evaluate_every: int | None = None
    """Iterations between validations, 0 for never; the preset's if not given: 5 for most."""
    validation_share: float | None = None
    """Share of the training projects, or of the modules of a single project, to keep apart for validation; the
    preset's if not given: 0.2 for most, 0 for effect-regression, whose networks are validated on projects that they
    were not fitted on."""
    patience: int = 0
    """Consecutive validations without improvement after which training stops; 0 for never."""

    def resolve(self, algorithm: str) -> "Learning":
        """Replace settings that are not given by the preset's defaults."""
        loop = LEARNERS[algorithm].loop(self.preset)
        iterations = loop.iterations if self.iterations is None and self.compilations is None else self.iterations
        every, share = self.evaluate_every, self.validation_share
        return dataclasses.replace(
            self,
            iterations=iterations,
            evaluate_every=loop.evaluate_every if every is None else every,
            validation_share=loop.validation_share if share is None else share,
        )

    def identity_settings(self) -> dict[str, Any]:
        """Collect the settings that identify a run. Budgets are not among them, since they may be raised later.

        Raises:
            InputError: the policy to start from, or a vocabulary file, cannot be read.
        """
        left_out = {"iterations", "compilations", "start", "vocab"}
        values = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in left_out
        }
        try:
            start = None if self.start is None else digest_file(self.start)
            files = [] if self.vocab is None else sorted(self.vocab.iterdir())
            vocab = {path.name: digest_file(path) for path in files if path.is_file()}
        except OSError as error:
            raise InputError(
                f"{error.filename}: expected a readable policy or vocabulary, found: {error.strerror}; "
                "check --start and --vocab"
            ) from error
        return values | {"start": start, "vocab": vocab}


LIKE_PRESET = Learning()
"""Settings that leave everything to the preset."""


def find_replaced_option(words: Sequence[str]) -> str | None:
    """Find the first option of an older version of ``mlgokit train``; return an error that names its replacement.

    Example:
        >>> find_replaced_option(["train", "--effects.rounds", "2"])
        '--effects.rounds: expected an option of this version, found an older one; give --iterations'
        >>> find_replaced_option(["quickstart", "--training.seed", "3"])
    """
    for word in words:
        option = word.partition("=")[0]
        prefix, _, name = option.partition(".")
        name = name.replace("-", "_")
        kept = {field.name for field in dataclasses.fields(Learning)}
        if prefix not in ("--effects", "--cloning", "--training") or (prefix == "--training" and name in kept):
            continue
        place = "--training." if prefix == "--training" else "--"
        if name in ("rounds", "exploration", "quantiles"):
            new = {"rounds": "iterations", "exploration": "preset random", "quantiles": "normaliser quantile"}[name]
        elif name in kept:
            new = name
        else:
            part = "imitation." if prefix == "--cloning" else ""
            renamed = {"most_moves": "independent", "slowest_seconds": "most_decisions"}
            new = f"setting {part}{renamed.get(name, name)}=VALUE"
        return f"{option}: expected an option of this version, found an older one; give {place}{new}"
    return None


def check_learning(config: Learning) -> None:
    """Check the ranges of all numbers in the settings of the loop.

    Raises:
        UsageError: a number is out of range, or the objective needs a profile.
    """
    for name in ("iterations", "compilations"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name}: expected at least 1, found {value}; give more, or leave --{name} out")
    for name in ("evaluate_every", "patience"):
        if (getattr(config, name) or 0) < 0:
            option = name.replace("_", "-")
            raise UsageError(f"--{option}: expected 0 or more, found {getattr(config, name)}; correct it")
    if config.objective is Objective.EXECUTED:
        raise UsageError(
            "--objective EXECUTED: expected a measure of size, as policies are trained without a profile; name "
            "another, or tune one project by `mlgokit tune --objective instructions`"
        )
    if config.validation_share is not None and not 0 <= config.validation_share < 1:
        raise UsageError(
            f"--validation-share: expected a share from 0 to below 1, found {config.validation_share:g}; correct it"
        )
    if config.patience and config.evaluate_every == 0:
        raise UsageError(
            "--patience: expected validations to count, found none because of --evaluate-every 0; set --evaluate-every "
            "to 1 or more"
        )


def refuse_options(config: Learning, names: Iterable[str], *, where: str) -> None:
    """Refuse options that are given although they have no effect; ``where`` says in what case, for the error.

    Raises:
        UsageError: one of these options is given.
    """
    for name in names:
        value = getattr(config, name)
        if value != getattr(LIKE_PRESET, name):
            raise UsageError(
                f"--{name.replace('_', '-')}: expected no such option {where}, where it has no effect, found {value}; "
                "leave it out"
            )


def check_ready(modules: Sequence[Module]) -> None:
    """Check that there are modules, and that JAX is installed.

    Raises:
        CorpusError: there is no module.
        ToolError: JAX is not installed.
    """
    check_framework()
    if not modules:
        raise CorpusError(
            "training: expected at least one module that is not held out, found none; add projects to the corpus"
        )


def settings_of(algorithm: str, preset: str, changes: Sequence[str], *, problem: str = "inline-size") -> Any:
    """Look up the settings of a preset for a problem, and apply changes such as ``modules=8``.

    Raises:
        UsageError: there is no such algorithm, preset or setting, or its value is not of its type or range.

    Example:
        >>> settings_of("ppo", "reference", ["modules=8", "hidden=[4]"]).hidden
        (4,)
        >>> settings_of("ppo", "reference", [], problem="regalloc-eviction").hidden
        (80, 40)
    """
    settings = find_learner(algorithm).settings(preset, problem, name=algorithm)
    for change in changes:
        name, found, value = change.partition("=")
        if not found:
            raise UsageError(f"--setting {change}: expected name=value, found no '='; write it as modules=8")
        settings = _replace_setting(settings, name.strip(), value.strip(), shown=change)
    return settings


def check_network(settings: Any) -> int:
    """Check the settings of a recurrent network; return the units of its LSTM, 0 for other networks.

    Raises:
        UsageError: it has too many units, or there is no hidden layer before the LSTM.

    Example:
        >>> check_network(settings_of("behavioural-cloning", "default", ["imitation.recurrent=10"]))
        10
    """
    network = getattr(settings, "imitation", settings)
    units = getattr(network, "recurrent", 0)
    if units > MOST_UNITS or (units and not network.hidden):
        raise UsageError(
            f"--setting recurrent: expected at most {MOST_UNITS} units after at least one hidden layer, found {units} "
            f"units and hidden {list(network.hidden)}; correct it"
        )
    return units


def _replace_setting(settings: Any, name: str, value: str, *, shown: str) -> Any:
    """Replace a setting by the value that the user typed; a name with a dot is a setting inside another."""
    first, _, rest = name.partition(".")
    fields = [field.name for field in dataclasses.fields(settings)]
    if first not in fields:
        raise UsageError(f"--setting {shown}: expected one of {', '.join(fields)}, found {first!r}; name one of these")
    old, kind = getattr(settings, first), get_type_hints(settings.__class__)[first]
    if rest or dataclasses.is_dataclass(old):
        if not rest or not dataclasses.is_dataclass(old):
            raise UsageError(
                f"--setting {shown}: expected the name of one setting, as {first}.NAME if {first} has several, "
                f"found {name!r}; correct the name"
            )
        return dataclasses.replace(settings, **{first: _replace_setting(old, rest, value, shown=shown)})
    new = _parse_value(kind, old, value, shown)
    _check_range(first, new, positive=first in POSITIVE and getattr(settings.__class__(), first) != 0, shown=shown)
    return dataclasses.replace(settings, **{first: new})


def _parse_value(kind: Any, old: object, text: str, shown: str) -> object:
    """Parse ``text``, a word or JSON, as a value of the type ``kind``, of which ``old`` is one."""
    for read in (str, json.loads):
        with contextlib.suppress(InputError, ValueError, RecursionError):
            return decode(kind, read(text), shown)
    value = old.value if isinstance(old, enum.Enum) else old
    example = value if isinstance(value, str) else json.dumps(value)
    raise UsageError(f"--setting {shown}: expected a value such as {example}, found {text!r}; correct it")


def _check_range(name: str, value: object, *, positive: bool, shown: str) -> None:
    """Raise a UsageError if a number, or one of several, is negative or not finite, or out of its setting's range."""
    most = 1.0 if name in SHARES else sys.float_info.max
    for number in cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,):
        if isinstance(number, (int, float)) and not (0 <= number <= most and (number or not positive)):
            bounds = f"{'above' if positive else 'from'} 0{' to 1' if name in SHARES else ''}"
            raise UsageError(f"--setting {shown}: expected a number {bounds}, found {number}; correct it")
