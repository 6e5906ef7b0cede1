"""A policy as an advisor in this process, which decides as the plugin does in the compiler."""

from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt

from mlgokit.advisors import Advice, Observation
from mlgokit.advisors.legal import LARGEST_LEGAL_PRIORITY
from mlgokit.errors import PolicyError
from mlgokit.policy.exploration import (
    Exploration,
    choose_column,
    context_seed,
    decide_binary,
    draw_factor,
    draw_priority,
    exploration_draws,
)
from mlgokit.policy.network import HEURISTIC_PREFERENCE, Memory, OutputKind, Policy
from mlgokit.policy.normaliser import Values
from mlgokit.problems import PASS_FEATURES, PASS_SELECTION, PROBLEMS, header_defect
from mlgokit.spec import AdviceKind


@final
@dataclass(frozen=True, slots=True)
class PolicyAdvisor:
    """Decides as the plugin does with the same policy file and exploration, observation by observation.

    Random numbers depend on the observation (its context and number) alone, so the order of questions matters only for
    a recurrent policy, to which the observation with the number 0 begins a module.
    """

    policy: Policy
    exploration: Exploration = field(default_factory=Exploration)
    _memories: dict[str, Memory] = field(default_factory=dict[str, Memory], init=False, repr=False, compare=False)

    def advise(self, observation: Observation) -> Advice:
        """Answer an observation with a decision; see :meth:`decide`."""
        return self.decide(observation)[0]

    def decide(self, observation: Observation) -> tuple[Advice, float]:
        """Decide, and compute the natural logarithm of the decision's probability (of its density for a number).

        Raises:
            PolicyError: the compiler does not send a feature that the policy needs.
            UsageError: the exploration has a flip probability, and the decision is a number, which cannot be flipped.
        """
        policy, exploration = self.policy, self.exploration
        seed = context_seed(exploration.seed, policy.problem, observation.context)
        choice, flip = exploration_draws(seed, observation.index)
        match policy.output.advice_kind:
            case AdviceKind.BINARY:
                preference = -HEURISTIC_PREFERENCE
                if policy.problem != PASS_SELECTION.name or self._knows_pass(observation):
                    rows = self._rows(observation, 1)
                    memory = self._recall(observation) if policy.recurrent else None
                    preference = float(policy.preferences(rows, self._heuristic(observation), memory)[0])
                decision, logarithm = decide_binary(preference, exploration, choice, flip)
                return int(decision), logarithm
            case AdviceKind.MASKED_CHOICE:
                if policy.mask not in observation.values:
                    raise self._missing_features(observation)
                mask = observation.values[policy.mask].ravel()
                return choose_column(self._logits(observation, mask), mask.tolist(), exploration, choice, flip)
            case AdviceKind.REAL:
                row, default = self._rows(observation, 1), self._default_number(observation)
                if default is not None and not policy.gate_opens(row)[0]:
                    return float(np.float32(min(default, LARGEST_LEGAL_PRIORITY))), 0.0
                draw = draw_priority if policy.output is OutputKind.PRIORITY else draw_factor
                return draw(float(policy.units(row)[0]), exploration, choice, flip)

    def _recall(self, observation: Observation) -> Memory:
        """Look up what a recurrent policy keeps of the decisions before in the same module."""
        if not observation.index:
            self._memories[observation.context] = self.policy.start_memory()
        return self._memories.setdefault(observation.context, self.policy.start_memory())

    def _knows_pass(self, observation: Observation) -> bool:
        """Whether the policy decides about the pass of this observation: it has that pass's feature, or none of any."""
        known = [name for name in self.policy.features if name in PASS_FEATURES]
        return not known or any(observation.values[name].any() for name in known if name in observation.values)

    def _heuristic(self, observation: Observation) -> npt.NDArray[np.bool_] | None:
        """Read LLVM's default decision from the observation, if the policy's gate or doubt needs it."""
        if not self.policy.asks_heuristic:
            return None
        name = PROBLEMS[self.policy.problem].default_decision
        value = observation.values.get(name)
        if value is None:
            raise PolicyError(
                f"policy for {self.policy.problem}: expected the feature {name!r}, which its gate or doubt needs, "
                "found none; ask the compiler with include_default=True"
            )
        return value.ravel() != 0

    def _default_number(self, observation: Observation) -> int | None:
        """Read the heuristic's number from the observation, if the policy's gate needs it."""
        if not self.policy.asks_heuristic:
            return None
        value = observation.values.get(PROBLEMS[self.policy.problem].default_decision)
        if value is None:
            raise PolicyError(
                f"policy for {self.policy.problem}: it leaves some decisions to LLVM's heuristic, and the "
                "interactive channel does not transmit the heuristic's decision; use the policy with the plugin"
            )
        return int(value.ravel()[0])

    def _logits(self, observation: Observation, mask: Values) -> list[float]:
        """Compute the logits of all columns; those of masked columns are left at 0, as they are never read."""
        legal = mask != 0
        logits = np.zeros(len(mask))
        if legal.any():
            logits[legal] = self.policy.column_logits(self._rows(observation, len(mask))[None, legal])[0]
        return logits.tolist()

    def _rows(self, observation: Observation, columns: int) -> npt.NDArray[np.float64]:
        """Collect the policy's raw inputs [C, F]; a scalar feature is repeated in every column."""
        rows = np.empty((columns, len(self.policy.features)))
        for column, name in enumerate(self.policy.features):
            value = observation.values.get(name)
            if value is None or value.size not in (1, columns):
                raise self._missing_features(observation)
            rows[:, column] = value.ravel()
        return rows

    def _missing_features(self, observation: Observation) -> PolicyError:
        """Make the error for a compiler that does not send the features of the policy."""
        name = self.policy.problem
        defect = f"{name}: expected one of {', '.join(PROBLEMS)}; train it for a problem that there is"
        if name in PROBLEMS:
            defect = header_defect(PROBLEMS[name], observation.header.features, needed=self.policy.features)
        return PolicyError(f"policy for {defect}")
