"""Rounds of trials of single evictions: each module asked, other answers drawn and tried, all labels together.

What was tried is kept module by module, so a run that was interrupted goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlgokit.algorithms.config import EvictionTrialsConfig
from mlgokit.algorithms.eviction_fit import EvictionFit, EvictionLabels, fit_evictions, join_labels
from mlgokit.compiler.pool import parallel
from mlgokit.compiler.request import HEURISTIC, Compiler
from mlgokit.errors import CorpusError
from mlgokit.learning.baselines import policy_file
from mlgokit.learning.eviction_trials import EvictionQuestions, EvictionTrials, ask_evictions, no_trials, try_evictions
from mlgokit.learning.trials import kept_or_made, module_draws
from mlgokit.module import Module
from mlgokit.progress import Report

_Drawn = list[tuple[int, np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvictionRound:
    """What the trials of all modules gave.

    Attributes:
        labels: of the modules that taught.
        taught: those modules, with the keys of their functions that were asked about.
        trials: how many were made.
        user_seconds: processor time.
        left_out: why modules gave nothing.
    """

    labels: EvictionLabels
    taught: tuple[tuple[Module, tuple[int, ...]], ...]
    trials: int
    user_seconds: float
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvictionRounds:
    """Makes them.

    Attributes:
        compiler: compiles.
        modules: what to learn from.
        settings: how.
        seed: of the draws.
        folder: where trials are kept.
        scratch: for policies that a round departs from.
        report: progress.
    """

    compiler: Compiler
    modules: tuple[Module, ...]
    settings: EvictionTrialsConfig
    seed: int
    folder: Path
    scratch: Path
    report: Report

    def round(self, number: int, fit: EvictionFit | None) -> EvictionRound:
        """Trials around the heuristic, or around a policy."""
        policy = HEURISTIC if fit is None else policy_file(fit.policy, self.scratch, number, self.modules)
        asked = parallel(
            lambda module: ask_evictions(self.compiler, module, policy),
            self.modules,
            workers=self.compiler,
            report=self.report,
            label=f"round {number + 1}: what the allocator asks",
        )
        plan = self._drawn(number, [questions for _, questions in asked])
        left_out = [done.reason or done.status.value for done, _ in asked if not done.ok]

        def work(part: tuple[Module, EvictionQuestions, _Drawn]) -> EvictionTrials:
            module, questions, drawn = part
            return kept_or_made(
                EvictionTrials,
                self.folder,
                module,
                lambda: try_evictions(self.compiler, module, questions, drawn, policy=policy),
                part=f"round{number}",
            )

        found = parallel(
            work,
            plan,
            workers=self.compiler,
            report=self.report,
            label=f"round {number + 1}: try other evictions",
        )
        parts = [one.labels(module.project) for (module, _, _), one in zip(plan, found, strict=True)]
        taught = [
            (module, tuple(questions.functions))
            for (module, questions, _), one in zip(plan, found, strict=True)
            if len(one.before)
        ]
        return EvictionRound(
            labels=join_labels(parts or [no_trials().labels("")]),
            taught=tuple(taught),
            trials=sum(one.trials for one in found),
            user_seconds=sum(done.user_seconds for done, _ in asked) + sum(one.user_seconds for one in found),
            left_out=(*left_out, *(one.reason for one in found if one.reason)),
        )

    def _drawn(
        self, number: int, asked: Sequence[EvictionQuestions | None]
    ) -> list[tuple[Module, EvictionQuestions, "_Drawn"]]:
        """Other answers in functions that no module before has, at most so many of each function and module."""
        known: set[int] = set()
        plan: list[tuple[Module, EvictionQuestions, _Drawn]] = []
        for module, questions in zip(self.modules, asked, strict=True):
            if questions is None:
                continue
            rng = module_draws(module, self.seed, number)
            fresh = np.array([key for key in questions.functions if key not in known], np.uint64)
            known |= set(fresh.tolist())
            left = self.settings.module_trials
            drawn: _Drawn = []
            for key in rng.permutation(fresh).tolist():
                rows, columns = questions.alternatives(key)
                chosen = np.sort(rng.permutation(len(rows))[: min(self.settings.trials, left)])
                if len(chosen):
                    drawn.append((key, rows[chosen], columns[chosen]))
                    left -= len(chosen)
            if drawn:
                plan.append((module, questions, drawn))
        return plan

    def fit(self, rounds: Sequence[EvictionRound]) -> EvictionFit:
        """The fit to all rounds.

        Raises:
            CorpusError: no module gave labels.
        """
        labels = join_labels([one.labels for one in rounds])
        if not len(labels.before):
            raise CorpusError(
                "training: expected at least one module that compiles and in which live ranges are evicted, found "
                "none; check the corpus with `mlgokit corpus info` and the compiler with `mlgokit doctor`"
            )
        self.report(0, 1, f"fit to {len(labels.before)} trials")
        return fit_evictions(labels, self.settings, seed=self.seed)
