"""Mean changes of sizes with their intervals, correlations of measures, and paired measurements of noisy numbers.

Sizes are compared as ratios after / before; -0.025 means 2.5 % smaller. A change over several projects is that of the
geometric mean of their ratios, so that every project counts the same. With ``clusters`` the sizes are those of
modules, and a project's ratio is that of its modules' sums.

Noisy numbers of two builds are measured in pairs, until the interval decides or the maximum number of pairs is reached.
The order within a pair alternates, so that a slow drift of the machine affects both equally. The interval is computed
after a few fixed numbers of pairs only, each time with its part of the allowed error (Bonferroni), so that repeated
looks do not turn chance into an effect.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlgokit.errors import UsageError

Numbers = Sequence[float] | npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
DRAWS = 9999
FEW_PROJECTS = 8
"""Below this many projects the bootstrap interval is known to be too narrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """Pearson's and Spearman's correlation of two measures, each from -1 to 1."""

    pearson: float
    spearman: float


def geometric_mean_change(before: Numbers, after: Numbers, *, clusters: Sequence[object] | None = None) -> float:
    """Compute the geometric mean of the ratios after / before, minus 1.

    Args:
        before: [P] sizes, of projects or (with ``clusters``) of modules.
        after: [P] sizes of the same projects or modules after the change.
        clusters: [P] the project of each module.

    Raises:
        UsageError: the lists have different lengths, or a size is not positive.

    Example:
        Half the size and twice the size cancel; 0.9 and 0.4 have the mean 0.6.

        >>> geometric_mean_change([100, 100], [50, 200])
        0.0
        >>> round(geometric_mean_change([100, 10], [90, 4]), 6)
        -0.4
        >>> round(geometric_mean_change([60, 40, 10], [50, 40, 4], clusters=["a", "a", "b"]), 6)
        -0.4
    """
    sizes = _pairs(before, after)
    groups = [sizes] if clusters is None else _group(sizes, clusters)
    totals = sizes if clusters is None else np.array([group.sum(axis=0) for group in groups])
    return float(np.expm1(_log_ratios(totals).mean()))


def bootstrap_interval(
    before: Numbers,
    after: Numbers,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    clusters: Sequence[object] | None = None,
) -> tuple[float, float]:
    """Compute a bootstrap interval of :func:`geometric_mean_change` over projects.

    Without ``clusters``, projects are resampled (bias-corrected and accelerated). With ``clusters`` both levels are
    resampled: projects, and in each drawn project its modules (percentiles). Intervals from fewer than about eight
    projects are too narrow.

    Args:
        before: [P] sizes, of projects or (with ``clusters``) of modules.
        after: [P] sizes of the same projects or modules after the change.
        rng: generator of the resamples.
        level: confidence level of the interval.
        clusters: [P] the project of each module.

    Raises:
        UsageError: there are fewer than two projects, the lists have different lengths, a size is not positive, or the
            level is not between 0 and 1.

    Example:
        >>> low, high = bootstrap_interval([100, 100, 100, 100], [96, 97, 98, 99], rng=np.random.default_rng(1))
        >>> -0.04 <= low < geometric_mean_change([100] * 4, [96, 97, 98, 99]) < high <= -0.01
        True
    """
    if not 0 < level < 1:
        raise UsageError(f"bootstrap interval: expected a level between 0 and 1, found {level}; 0.95 is usual")
    sizes = _pairs(before, after)
    groups = [row[None] for row in sizes] if clusters is None else _group(sizes, clusters)
    if len(groups) < 2:
        raise UsageError(
            f"bootstrap interval: expected at least two projects, found {len(groups)}; report the change without "
            "an interval"
        )
    if clusters is None:
        logs = _log_ratios(sizes)
        # All the same: BCa divides by the spread.
        if np.ptp(logs) <= 1e-12:
            return float(np.expm1(logs[0])), float(np.expm1(logs[0]))
        result = _scipy_stats().bootstrap((logs,), np.mean, n_resamples=DRAWS, confidence_level=level, rng=rng)
        bounds = np.array([result.confidence_interval.low, result.confidence_interval.high])
    else:
        bounds = np.quantile(_two_level_means(groups, rng), [(1 - level) / 2, (1 + level) / 2])
    low, high = np.expm1(bounds).tolist()
    return low, high


def mean_interval(differences: Numbers, *, level: float = 0.95) -> tuple[float, float]:
    """Compute Student's interval of the mean of paired differences; a point if they are all the same.

    Raises:
        UsageError: there are fewer than two differences, or one is not finite.

    Example:
        >>> low, high = mean_interval([-3.0, -4.0, -5.0, -4.0])
        >>> round(low, 2), round(high, 2)
        (-5.3, -2.7)
    """
    values = np.asarray(differences, np.float64)
    if len(values) < 2 or not np.isfinite(values).all():
        raise UsageError(f"mean interval: expected at least two numbers, found {values.tolist()}; measure more often")
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    # The spread of equal numbers is not always exactly zero.
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    reach = spread / len(values) ** 0.5 * float(_scipy_stats().t.ppf((1 + level) / 2, len(values) - 1))
    return mean - reach, mean + reach


def correlation(x: Numbers, y: Numbers) -> Correlation:
    """Compute Pearson's and Spearman's correlation of two measures [N] of the same N items.

    Raises:
        UsageError: there are fewer than three items, or a measure does not vary.

    Example:
        The deviations are -1, 0, 1 and -1, 1, 0: covariance 1, variances 2 and 2.

        >>> found = correlation([1, 2, 3], [10, 30, 20])
        >>> round(found.pearson, 6), round(found.spearman, 6)
        (0.5, 0.5)
    """
    first, second = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if first.shape != second.shape or first.ndim != 1 or len(first) < 3:
        raise UsageError(
            f"correlation: expected two lists of the same length, at least 3, found shapes {first.shape} and "
            f"{second.shape}; measure more"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()) or np.ptp(first) == 0 or np.ptp(second) == 0:
        raise UsageError(
            "correlation: expected finite values that vary, found a constant or a value that is not finite; a "
            "constant has no correlation"
        )
    stats = _scipy_stats()
    pearson, spearman = stats.pearsonr(first, second), stats.spearmanr(first, second)
    return Correlation(pearson=float(pearson.statistic), spearman=float(spearman.statistic))


def _scipy_stats() -> Any:
    """Import scipy's statistics, which takes a second, only where they are needed; untyped, as scipy is."""
    from scipy import stats  # pyright: ignore[reportMissingTypeStubs]

    return stats


def _pairs(before: Numbers, after: Numbers) -> Floats:
    """Stack sizes before and after to [P, 2], and check that they are positive."""
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise UsageError(
            f"sizes: expected two lists of the same length, found shapes {first.shape} and {second.shape}; "
            "give each project once before and once after"
        )
    sizes = np.stack([first, second], axis=1)
    wrong = ~(np.isfinite(sizes) & (sizes > 0)).all(axis=1)
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        raise UsageError(
            f"sizes: expected positive numbers, found {first[index]} before and {second[index]} after at position "
            f"{index}; leave out what could not be measured"
        )
    return sizes


def _group(sizes: Floats, clusters: Sequence[object]) -> list[Floats]:
    """Group the rows of sizes by cluster, in the order of first appearance."""
    if len(clusters) != len(sizes):
        raise UsageError(
            f"clusters: expected the project of each of {len(sizes)} modules, found {len(clusters)} projects; give "
            "one for each module"
        )
    rows: dict[object, list[int]] = {}
    for row, cluster in enumerate(clusters):
        rows.setdefault(cluster, []).append(row)
    return [sizes[indices] for indices in rows.values()]


def _log_ratios(sizes: Floats) -> Floats:
    """Compute the natural logarithms [P] of after / before."""
    return np.log(sizes[:, 1] / sizes[:, 0])


def _two_level_means(groups: list[Floats], rng: np.random.Generator) -> Floats:
    """Compute means [DRAWS] of log ratios over resampled projects, each with its modules resampled."""
    logs = np.empty((len(groups), DRAWS))
    for project, group in enumerate(groups):
        # The counts of a multinomial draw are a resample; one project at a time bounds memory to [DRAWS, modules].
        counts = rng.multinomial(len(group), np.full(len(group), 1 / len(group)), size=DRAWS)
        logs[project] = _log_ratios(counts @ group)
    projects = rng.integers(len(groups), size=(DRAWS, len(groups)))
    draws = rng.integers(DRAWS, size=projects.shape)
    return logs[projects, draws].mean(axis=1)


LOOKS = (4, 6, 8, 12, 20)
"""Numbers of pairs after which the interval is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Paired measurements of two builds.

    Attributes:
        before: numbers of the first build, one for each pair.
        after: numbers of the second build, one for each pair.
        low: lower end of the interval of the mean difference, after minus before; minus infinity if not computed.
        high: upper end of that interval; infinity if not computed.
        reason: why a measurement failed; empty if none did.
    """

    before: tuple[float, ...] = ()
    after: tuple[float, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    reason: str = ""


def measure_in_pairs(
    once: Callable[[int], float | str],
    *,
    is_over: Callable[[], bool],
    error: float,
    looks: tuple[int, ...] = LOOKS,
    near: float = 0.0,
    ratios: bool = False,
    last_look: bool = False,
) -> Pairs:
    """Measure two builds in pairs, until the interval of their difference decides or a limit is reached.

    Args:
        once: function that measures build 0 or 1, and returns its number, or a reason if that failed.
        is_over: function that is called after each pair, and returns whether the time is over.
        error: significance level: share of comparisons of equal builds that may count as different by chance.
        looks: numbers of pairs after which the interval is computed; the last one is the maximum number of pairs.
        near: an interval within this distance of zero ends the measurement as well: the builds count as equal.
        last_look: whether to compute the interval also when the time is over, from two pairs on; not for rounded
            numbers, of which a few may agree by chance.
        ratios: whether to compare logarithms, so that the interval is of the relative change; all numbers must then be
            positive.

    Example:
        >>> found = measure_in_pairs(lambda build: (10.0, 8.0)[build], is_over=lambda: False, error=0.05, ratios=True)
        >>> len(found.before), round(found.low, 6), round(found.high, 6)
        (4, -0.2, -0.2)
    """
    values: tuple[list[float], list[float]] = ([], [])
    low, high = -math.inf, math.inf
    while True:
        pair = len(values[0])
        for build in (0, 1) if pair % 2 == 0 else (1, 0):
            found = once(build)
            if isinstance(found, str):
                return Pairs(before=tuple(values[0][:pair]), after=tuple(values[1][:pair]), reason=found)
            values[build].append(found)
        over = is_over()
        # The last look takes the place of one that is not reached, so that the error is the same.
        if (pairs := pair + 1) in looks or (over and last_look and pairs > 1):
            differences = [
                math.log(second) - math.log(first) if ratios else second - first
                for first, second in zip(*values, strict=True)
            ]
            low, high = mean_interval(differences, level=1 - error / len(looks))
            if ratios:
                low, high = math.expm1(low), math.expm1(high)
            if high < 0 or low > 0 or low == high or (-near <= low and high <= near) or pairs == looks[-1]:
                break
        if over:
            break
    return Pairs(before=tuple(values[0]), after=tuple(values[1]), low=low, high=high)
