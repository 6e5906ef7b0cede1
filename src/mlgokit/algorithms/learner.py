"""The contract of all learners: ask for compilations, be told their results, return the best policy.

A learner is a few pure functions over one state, and knows neither compiler nor disk::

    learner = make_learner("ppo", task)
    state = learner.start(rng)
    while budget:
        proposals = learner.ask(state, rng)
        state, metrics = learner.tell(state, proposals, compile_all(proposals), rng)
    policy = learner.best(state)

A state is a flat mapping from names to arrays, so that a checkpoint is its bytes, and a run that continues from them
ends with the same bits as one that was not interrupted.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mlgokit.errors import InputError
from mlgokit.policy.network import Policy
from mlgokit.policy.normaliser import Normaliser
from mlgokit.spec import AdviceKind

FORMAT_VERSION = 2
DEFAULT_RULE = ":default"
_KEY = "mlgokit.learner"

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
State = Mapping[str, npt.NDArray[Any]]
Actor = Policy | str
Detail = Literal["all", "departures", "scores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a learner is to learn, from M modules.

    Attributes:
        problem: name of the problem.
        kind: kind of advice that the problem needs.
        features: names of the F features that the policy may see, in the order of the experiences' columns.
        normaliser: fitted on a trace of the heuristic, for learners that do not fit their own.
        project: int64 [M] number of each module's project; modules of one project are held out together.
        start: policy with these features from which training starts, if any.
        mask: name of the feature that masks illegal columns; empty without columns.
        decisions: int64 [M] number of decisions of each module under the heuristic; ``None`` if not known.
        seed: seed of the run, for learners whose draws are one stream over all turns.
        place: int64 [M] position of each module among all modules that compile, with decisions or not; ``None`` if all
            have decisions.
        compiled: number of all modules that compile, with decisions or not.
    """

    problem: str
    kind: AdviceKind
    features: tuple[str, ...]
    normaliser: Normaliser
    project: Ints
    start: Policy | None = None
    mask: str = ""
    decisions: Ints | None = None
    seed: int = 1
    place: Ints | None = None
    compiled: int = 0

    @property
    def modules(self) -> int:
        """Number of modules."""
        return len(self.project)

    def inputs(self, features: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Normalise raw ``features`` [..., F] to the inputs [..., W] of a network."""
        flat = self.normaliser.apply(features.reshape(-1, features.shape[-1]))
        return flat.reshape(*features.shape[:-1], self.normaliser.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedDecisions:
    """Decisions at single call sites that override the actor's.

    Attributes:
        sites: int64 [S] the call sites, identified as in :attr:`Experience.sites`.
        decisions: [S] the decision at each of them.
    """

    sites: Ints
    decisions: npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """R compilations under one actor.

    Exploration with temperature T: a **binary** decision is drawn from the logistic of preference / T and then flipped
    with the flip probability; a **masked choice** is drawn from the softmax of preference / T over the legal columns,
    and then with the flip probability replaced by another of them; a **real** answer gets Gaussian noise with standard
    deviation T, and is not flipped. At T = 0 the actor is followed.

    Attributes:
        actor: a policy, or a rule such as ``:default``.
        modules: int64 [R] the modules to compile; a module may be repeated.
        seeds: int64 [R] seed of each compilation's exploration.
        temperature: the temperature T above.
        flip_probability: float64 [R] flip probability of each compilation.
        forced: empty, or one :class:`ForcedDecisions` per compilation, which override all exploration.
        independent: 0, or the maximum number of moves from the base's decisions: a move flips one decision, or all
            equal decisions about one callee. The seed draws moves of which no two can change the same function;
            explorations of a module that make the same decisions give one experience. Temperature and flip probability
            only count for modules in which the compiler cannot be given decisions for single call sites.
        base: position of another proposal in the same request, whose compilation of the same module is the baseline of
            credit assignment.
        detail: what the learner needs of each compilation: all decisions, those that depart from the base, or the
            scores alone. Other decisions may be missing in its experiences, so that whole corpora fit into memory.
    """

    actor: Actor
    modules: Ints
    seeds: Ints
    temperature: float
    flip_probability: Floats
    forced: tuple[ForcedDecisions, ...] = ()
    independent: int = 0
    base: int | None = None
    detail: Detail = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """One successful compilation with N decisions in X contexts; C columns where there are any.

    A context is the part of a compilation with a score of its own: the module for inlining, a function for register
    allocation. Failed compilations have no experience, so a learner must not count on all that it asked for.

    Attributes:
        proposal: position of the proposal in the request.
        compilation: position of the compilation in the proposal.
        module: position of the module in the task.
        features: [N, F], or [N, C, F] with columns; as the compiler sent them.
        mask: bool [N, C] the legal columns; ``None`` without columns.
        decisions: int64 [N]; float64 [N] for real advice, in the unit of a policy's output and not of the compiler.
        log_probability: float64 [N] log-probability, or log-density, of each decision; NaN if the detail is departures.
        defaults: [N] the heuristic's decision at the same question, as in ``decisions``.
        sites: int64 [N] identity of each question across compilations of the module, such as a hash of caller, callee
            and the number of the call.
        context: int64 [N] position of each decision's context.
        context_ids: int64 [X] identity of each context across compilations of the module.
        scores: float64 [X] score of each context; smaller is better.
        default_scores: float64 [X] score of each context under the heuristic.
        component: int64 [N] component of each departure from the base, -1 for other decisions; ``None`` if there is no
            base, or the base failed. See :mod:`mlgokit.algorithms.credit`.
        change: float64 [number of components] change of each component's score against the base.
        unattributed: sum of the absolute changes of the score that no departure explains.
        base_decisions: [N] the base's decision at the same site; at a site that it lacks, ``decisions``.
    """

    proposal: int
    compilation: int
    module: int
    features: npt.NDArray[Any]
    mask: npt.NDArray[np.bool_] | None = None
    decisions: npt.NDArray[Any]
    log_probability: Floats
    defaults: npt.NDArray[Any]
    sites: Ints
    context: Ints
    context_ids: Ints
    scores: Floats
    default_scores: Floats
    component: Ints | None = None
    change: Floats | None = None
    unattributed: float = 0.0
    base_decisions: npt.NDArray[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """A learner as pure functions; none changes its arguments, and all randomness comes from ``rng``.

    Attributes:
        start: makes the first state.
        ask: proposes the next compilations, at least one.
        tell: returns the state after learning from the compilations, and numbers to report; the proposals are those of
            ``ask``.
        best: returns the policy of a state.
        best_without: returns the members of the best policy that were not fitted on one project of the task, for
            validation on that project; ``None`` if all were. Only ensembles that leave projects out have it.
    """

    start: Callable[[np.random.Generator], State]
    ask: Callable[[State, np.random.Generator], tuple[Proposal, ...]]
    tell: Callable[
        [State, Sequence[Proposal], Sequence[Experience], np.random.Generator], tuple[State, dict[str, float]]
    ]
    best: Callable[[State], Policy]
    best_without: Callable[[State, int], Policy | None] | None = None


def state_bytes(state: State, *, learner: str) -> bytes:
    """Serialize a state as safetensors; the same state always gives the same bytes.

    Example:
        >>> state = {"step": np.array(3), "weight": np.zeros((2, 0), np.float32)}
        >>> again = state_from_bytes(state_bytes(state, learner="ppo"), learner="ppo")
        >>> {name: (value.dtype.name, value.shape) for name, value in sorted(again.items())}
        {'step': ('int64', ()), 'weight': ('float32', (2, 0))}
    """
    description = json.dumps({"format_version": FORMAT_VERSION, "learner": learner}, sort_keys=True)
    arrays = {name: np.array(value, order="C") for name, value in sorted(state.items())}
    return save(arrays, metadata={_KEY: description})


def state_from_bytes(data: bytes, *, learner: str) -> State:
    """Read a state that :func:`state_bytes` serialized.

    Raises:
        InputError: the bytes are not a state of this learner.
    """
    try:
        arrays = load(data)
        header: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        found = json.loads(header["__metadata__"][_KEY])
        version, name = found["format_version"], found["learner"]
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise InputError(
            f"checkpoint: expected the safetensors file of a learner's state, found something else ({error}); "
            "restart the training"
        ) from error
    if (version, name) != (FORMAT_VERSION, learner):
        raise InputError(
            f"checkpoint: expected version {FORMAT_VERSION} of a state of {learner!r}, found version {version!r} of "
            f"{name!r}; name the algorithm that wrote it, or restart the training"
        )
    return arrays
