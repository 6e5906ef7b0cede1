"""The task of a learner: its modules, its features and their normaliser, and the policy to start from."""

from collections.abc import Mapping, Sequence

import numpy as np

from mlgokit.algorithms.learner import Task
from mlgokit.algorithms.registry import LEARNERS, check_recurrent
from mlgokit.errors import PolicyError, UsageError
from mlgokit.learning.baselines import Baselines
from mlgokit.learning.settings import Learning
from mlgokit.policy.network import Layer, OutputKind, Policy
from mlgokit.policy.normaliser import Normaliser, SignedLog, fit_quantile, fit_signed_log
from mlgokit.policy.store import load_policy
from mlgokit.policy.targets import restrict_to_targets
from mlgokit.policy.vocab import Boundaries, quantile_of, read_vocab


def split_modules(baselines: Baselines, config: Learning) -> tuple[list[int], list[int]]:
    """Split the modules for training and validation, by project; a single project is split by module."""
    count = len(baselines.modules)
    if not config.evaluate_every or not config.validation_share:
        return list(range(count)), []
    rng = np.random.default_rng([config.seed, count])
    projects = sorted({module.project for module in baselines.modules})
    keys = [module.project if len(projects) > 1 else module.name for module in baselines.modules]
    names = sorted(set(keys))
    if len(names) < 2:
        return list(range(count)), []
    wanted = min(len(names) - 1, max(1, round(config.validation_share * len(names))))
    drawn = rng.permutation(len(names))[:wanted]
    apart = {names[int(index)] for index in drawn}
    return (
        [index for index, key in enumerate(keys) if key not in apart],
        [index for index, key in enumerate(keys) if key in apart],
    )


def make_task(baselines: Baselines, training_indices: Sequence[int], config: Learning, *, algorithm: str) -> Task:
    """Make the task of a learner.

    Raises:
        PolicyError: the policy to start from is another problem's, or does not fit the learner or the compiler.
        UsageError: the vocabulary lacks a feature, or no feature is left.
    """
    problem = baselines.problem
    start = None if config.start is None else _load_start(config, baselines, algorithm)
    if start is not None:
        features, normaliser = start.features, start.normaliser
    else:
        features = tuple(name for name in baselines.available if name not in config.excluded)
        if config.preset == "reference" or config.features == "llvm":
            features = tuple(name for name in features if name in problem.feature_names)
        known = None if config.vocab is None else read_vocab(config.vocab)
        if known is not None:
            features = tuple(name for name in features if name in known)
        if not features:
            raise UsageError(
                "training: expected features to learn from, found none left after --excluded and --vocab; exclude "
                "fewer, or make the vocabulary from a trace of this problem"
            )
        normaliser = _fit_normaliser(baselines, features, config, known, algorithm=algorithm)
    projects = [baselines.modules[index].project for index in training_indices]
    numbers = {name: number for number, name in enumerate(sorted(set(projects)))}
    place = baselines.place[list(training_indices)]
    # Positions among the modules that a learner may draw: all that compile, also without decisions, but not those that
    # are kept for validation.
    places = np.union1d(place, np.setdiff1d(np.arange(len(baselines.compiled)), baselines.place))
    return Task(
        problem=problem.name,
        kind=problem.advice_kind,
        features=features,
        normaliser=normaliser,
        project=np.array([numbers[name] for name in projects], np.int64),
        start=start,
        mask=problem.mask or "",
        decisions=np.array([baselines.defaults[index].decision_count for index in training_indices], np.int64),
        seed=config.seed,
        place=np.searchsorted(places, place),
        compiled=len(places),
    )


def _fit_normaliser(
    baselines: Baselines,
    features: tuple[str, ...],
    config: Learning,
    known: Mapping[str, Boundaries] | None,
    *,
    algorithm: str,
) -> Normaliser:
    """Fit the learner's normaliser to the trace, or make it from a vocabulary."""
    if known is not None:
        return quantile_of(known, features)
    if LEARNERS[algorithm].fits_normaliser:
        # A placeholder: this learner replaces it by one that it fits.
        nothing = np.zeros(len(features), np.float32)
        return SignedLog(mean=nothing, scale=nothing, clip=1.0)
    rows = baselines.rows[:, [baselines.available.index(name) for name in features]]
    kind = config.normaliser or LEARNERS[algorithm].loop(config.preset).normaliser
    return fit_quantile(rows) if kind == "quantile" else fit_signed_log(rows)


def _load_start(config: Learning, baselines: Baselines, algorithm: str) -> Policy:
    """Load the policy to start from, converted to the kind of output that the learner has."""
    assert config.start is not None  # noqa: S101  (looked at by the caller)
    policy = restrict_to_targets(load_policy(config.start, problem=baselines.problem.name), baselines.modules)
    check_recurrent(algorithm, policy.problem, policy.recurrent)
    own = config.features == "llvm"
    known = {name for name in baselines.available if not own or name in baselines.problem.feature_names}
    missing = [name for name in policy.features if name not in known]
    if missing:
        raise PolicyError(
            f"policy {config.start}: expected features that this compiler sends{' without our plugin' if own else ''}, "
            f"found {missing[0]!r}; start from a policy that was made for this compiler"
        )
    has_effects = policy.output is OutputKind.EFFECT_BYTES
    return as_logits(policy) if has_effects and algorithm != "effect-regression" else policy


def as_logits(policy: Policy) -> Policy:
    """Convert a policy that outputs effects to one that outputs two logits, with the same preferences.

    Gate and doubt are dropped, so that a learner that starts from the policy decides everywhere.

    Example:
        >>> from mlgokit.policy.normaliser import SignedLog
        >>> one = np.ones(1, np.float32)
        >>> effect = Policy(
        ...     problem="inline-size", features=("a",), normaliser=SignedLog(mean=0 * one, scale=one, clip=4.0),
        ...     layers=(Layer(np.full((1, 1, 1), 10, np.float32), np.full((1, 1), 5, np.float32)),),
        ...     output=OutputKind.EFFECT_BYTES, bytes_per_unit=5.0)
        >>> values = np.array([[0], [3]])
        >>> np.abs(effect.preferences(values) - as_logits(effect).preferences(values)).max() < 1e-6
        np.True_
    """
    last = policy.layers[-1]
    scale = np.float32(-1 / policy.bytes_per_unit)
    weight = np.concatenate([np.zeros_like(last.weight), last.weight * scale], axis=2)
    bias = np.concatenate([np.zeros_like(last.bias), last.bias * scale], axis=1)
    return Policy(
        problem=policy.problem,
        features=policy.features,
        normaliser=policy.normaliser,
        layers=(*policy.layers[:-1], Layer(weight, bias)),
        output=OutputKind.LOGITS,
    )
