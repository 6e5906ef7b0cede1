"""Settings of the algorithms, in a module of their own so that the command line need not load JAX."""

import dataclasses
import enum
from dataclasses import dataclass
from typing import Literal

POSITIVE = frozenset({
    "batch", "batch_flips", "bytes_per_unit", "csr_first_time_costs", "departures", "epochs", "epsilon", "explorations",
    "generations", "half_life", "hidden", "huber_bytes", "members", "modules", "opening",
    "perturbations", "population", "project_share", "radius", "remembered", "sequence", "share", "spread", "steps",
    "stride", "unit_bytes",
})  # fmt: skip
"""Settings that must not be 0, unless they are by default; none is negative."""
SHARES = frozenset({"decay", "dropout", "epsilon", "flip_probability", "momentum", "project_share", "share"})
"""Settings that are at most 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectConfig:
    """Hyper-parameters of effect regression."""

    members: int = 6
    """Number of networks in the ensemble."""
    hidden: tuple[int, ...] = (48, 48)
    """Widths of the hidden layers."""
    project_share: float = 0.75
    """Share of the projects that each member is fitted on; early stopping is on the others."""
    epochs: int = 30
    """Epochs over all effects."""
    batch_flips: int = 2048
    """Flips in one gradient step."""
    learning_rate: float = 2e-3
    """Peak learning rate of the cosine schedule of AdamW."""
    weight_decay: float = 1e-2
    """Weight decay of AdamW."""
    dropout: float = 0.1
    """Dropout rate of the hidden units."""
    huber_bytes: float = 40.0
    """Threshold of the Huber loss in bytes."""
    unit_bytes: float = 32.0
    """Bytes in one unit of the network's output."""
    bytes_per_unit: float = 5.0
    """Bytes in one unit of preference, which scales the temperature of exploration."""
    doubt: float = 1.0
    """Standard deviations of the ensemble by which an effect must exceed the gate's margin for the policy to override
    LLVM's heuristic."""
    gate_feature: str = "callee_is_discardable"
    """Feature of the gate: LLVM's heuristic decides on the side of the gate (feature zero, or not) where overriding it
    did not pay in training; empty for no gate."""
    gate_margin: float = 2.0
    """Bytes that an effect must exceed for the policy to override LLVM's heuristic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTrialsConfig:
    """Effect regression of passes, fitted to trials of single functions."""

    functions: int = 60
    """Functions to try passes on in each module, drawn from those that no earlier module has; 0 for all."""
    rounds: int = 8
    """Maximum compilations of a module for trials of passes of the optimizer."""
    kept: tuple[str, ...] = ("InstSimplifyPass",)
    """Passes that are never left out: some hot loops are a quarter slower without them, and the features do not tell
    which."""
    margin: float = 0.05
    """Bytes that an omitted pass must save."""
    slowdown_free: float = 0.01
    """Share of additional executed instructions, by LLVM's estimate, that has no penalty."""
    slowdown_price: float = 1.0
    """Penalty for doubling the executed instructions beyond the free share, in multiples of the function's size."""
    fit: EffectConfig = dataclasses.field(
        default_factory=lambda: EffectConfig(
            members=8, hidden=(64, 48), huber_bytes=16.0, unit_bytes=8.0, doubt=0.25, gate_feature=""
        )
    )
    """Settings of the effect regression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTrialsConfig:
    """CMA-ES of priorities or spill weights; all policies of a generation allocate the same functions."""

    score: Literal["spill-cost", "executed", "bytes"] = "bytes"
    """Score to minimize: cost of spills, reloads and copies; executed instructions, with spills and reloads counted
    twice; or bytes of code."""
    functions: int = 1600
    """Maximum training functions, drawn evenly over projects from those whose score depends on the policy; 0 for
    all."""
    module_functions: int = 60
    """Functions of each module from which the training functions are drawn; 0 for all."""
    share: float = 0.4
    """Share of the training functions that a generation allocates, drawn anew each time."""
    generations: int = 30
    """Generations of CMA-ES."""
    renewed: int = 5
    """Generations after which the training functions are drawn anew, from all functions that the policy at the search's
    mean allocates otherwise than LLVM; 0 for never."""
    population: int = 16
    """Policies in one generation."""
    opening: float = 1.0
    """Weight of the single feature in the initial policies, the best of which is the initial mean."""
    spread: float = 0.5
    """Initial standard deviation."""
    csr_first_time_costs: tuple[int, ...] = ()
    """Costs of the first use of a callee-saved register that are tried after the last generation, beside LLVM's own, in
    2**14ths of an execution of the function's entry; the policy gets the best one. Spill weights only."""
    cost_modules: int = 100
    """Training modules on which --csr-first-time-costs are compared, drawn evenly over projects; 0 for all."""
    judges: int = 150
    """Maximum validation modules, from projects that are not trained on; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitationConfig:
    """Supervised fit of a network to decisions."""

    hidden: tuple[int, ...] = (40, 40, 20)
    """Widths of the hidden layers."""
    recurrent: int = 0
    """Units of an LSTM between the hidden layers and the last one, such as 10; 0 for none. Inlining by
    behavioural-cloning and bc-max only."""
    sequence: int = 16
    """Decisions in one window of a recurrent network, through which gradients go."""
    steps: int = 200
    """Minimum gradient steps in one iteration."""
    epochs: int = 0
    """Minimum epochs over all decisions in one iteration."""
    batch: int = 256
    """Decisions in one gradient step; windows, for a recurrent network."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    dropout: float = 0.0
    """Dropout rate of the hidden units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BcConfig:
    """Behavioural cloning. By default one iteration clones the decisions of the whole corpus."""

    rule: str = ":default"
    """Rule to imitate."""
    modules: int = 0
    """Modules in one iteration; 0 for all."""
    imitation: ImitationConfig = dataclasses.field(
        default_factory=lambda: ImitationConfig(steps=1000, epochs=10, batch=512)
    )
    """Supervised fit."""


BC_SMALL = BcConfig(modules=64, imitation=ImitationConfig())
"""Behavioural cloning in many small iterations."""

BC_REFERENCE = BcConfig(modules=100, imitation=ImitationConfig(steps=1000, batch=64, dropout=0.2))
"""google/ml-compiler-opt's network and optimiser (``behavioral_cloning_nn_agent.gin``), which makes 100,000 steps."""

BC_REFERENCE_EVICTION = dataclasses.replace(
    BC_REFERENCE, imitation=dataclasses.replace(BC_REFERENCE.imitation, hidden=(80, 40))
)
"""google/ml-compiler-opt's network and optimiser for evictions, from its ``regalloc`` folder, which makes 10,000 steps;
it has no settings for priorities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BcMaxConfig:
    """Imitation of the best of several advisors."""

    rules: tuple[str, ...] = (":default", ":never", ":always")
    """Rules to imitate before there is a policy; the heuristic alone unless decisions are binary."""
    modules: int = 64
    """Modules in one iteration."""
    flips: float = 2.0
    """Expected flips in one module."""
    spread: float = 0.5
    """Standard deviation of the exploration noise, for real-valued advice."""
    partitions: tuple[float, ...] = ()
    """Ascending bounds of score, such as 1000 10000, between buckets of contexts that are weighted by the policy's
    regret; none for equal weights."""
    imitation: ImitationConfig = dataclasses.field(default_factory=ImitationConfig)
    """Supervised fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSearchConfig:
    """Local search for better decisions, and imitation of these."""

    modules: int = 64
    """Modules in one iteration."""
    departures: int = 8
    """Call sites of a module to flip in one compilation; credit is by component."""
    imitation: ImitationConfig = dataclasses.field(default_factory=ImitationConfig)
    """Supervised fit."""


class Credit(enum.Enum):
    """Credit assignment: the score that a decision is rewarded for."""

    MODULE = "module"
    """The sum of all scores of the decision's compilation, as google/ml-compiler-opt does for inlining."""
    CONTEXT = "context"
    """The score of the decision's context."""
    COMPONENT = "component"
    """The change of the decision's component against the base; 0 for a decision that follows the base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationConfig:
    """Random network distillation: a bonus for observations unlike earlier ones, google/ml-compiler-opt's."""

    scale: float = 0.0
    """Initial factor of the bonus, such as 1; 0 for no bonus."""
    half_life: float = 10_000.0
    """Gradient steps in which the bonus halves."""
    hidden: tuple[int, ...] = (32, 128)
    """Widths of the layers of both networks."""
    learning_rate: float = 1e-4
    """Learning rate of Adam for the predictor."""
    stride: int = 2
    """Every how many observations the predictor learns from one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoConfig:
    """PPO as a contextual bandit. The defaults are ours; ``PPO_REFERENCE`` is google/ml-compiler-opt's."""

    hidden: tuple[int, ...] = (40, 40, 20)
    """Widths of the hidden layers."""
    modules: int = 32
    """Exploring compilations in one iteration; with component credit each needs a base as well."""
    credit: Credit = Credit.COMPONENT
    """Credit assignment: the score that a decision is rewarded for."""
    batch: int = 512
    """Windows in one gradient step."""
    sequence: int = 1
    """Decisions in one window."""
    steps: int = 40
    """Gradient steps in one iteration."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    clip: float = 0.2
    """Clipping range of the importance ratio."""
    entropy: float = 0.003
    """Coefficient of the entropy bonus."""
    weight_penalty: float = 1e-6
    """L2 penalty of the weights."""
    kl_beta: float = 1.0
    """Initial coefficient of the adaptive KL penalty."""
    kl_target: float = 0.02
    """Target KL divergence."""
    kl_tolerance: float = 0.3
    """Relative tolerance around the target within which the coefficient stays."""
    kl_cutoff_factor: float = 2.0
    """Multiple of the target beyond which the squared penalty applies."""
    kl_cutoff_weight: float = 1000.0
    """Coefficient of the squared penalty."""
    decay: float = 0.8
    """Decay of the moving-average baseline of scores."""
    spread: float = 1.0
    """Standard deviation of the exploration noise, for real-valued advice."""
    reference_frames: bool = False
    """Mask what google/ml-compiler-opt masks (the last decision of each window and of each context, and compilations of
    two decisions or fewer), and centre the advantages."""
    distillation: DistillationConfig = dataclasses.field(default_factory=DistillationConfig)
    """Random network distillation."""


PPO_REFERENCE = PpoConfig(
    modules=100,
    credit=Credit.CONTEXT,
    batch=256,
    sequence=16,
    steps=300,
    learning_rate=3e-5,
    kl_target=0.01,
    reference_frames=True,
)
"""google/ml-compiler-opt's settings for inlining (``ppo_nn_agent.gin``), where a module is the only context."""

PPO_REFERENCE_PRIORITY = dataclasses.replace(
    PPO_REFERENCE, steps=200, learning_rate=3e-4, entropy=0.005, weight_penalty=1e-5
)
"""google/ml-compiler-opt's settings for the priorities of register allocation, which it does not train at present."""

PPO_REFERENCE_EVICTION = dataclasses.replace(PPO_REFERENCE_PRIORITY, hidden=(80, 40), modules=512)
"""google/ml-compiler-opt's settings for eviction: one network for each column, and more modules in an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DqnConfig:
    """Q-learning of single decisions. The defaults are ours; ``DQN_REFERENCE`` is near google/ml-compiler-opt's."""

    hidden: tuple[int, ...] = (40, 40, 20)
    """Widths of the hidden layers."""
    modules: int = 32
    """Exploring compilations in one iteration; with component credit each needs a base as well."""
    credit: Credit = Credit.COMPONENT
    """Credit assignment: the score that a decision is rewarded for."""
    recurrent: int = 0
    """Units of an LSTM between the hidden layers and the last one, such as 10; 0 for none. Inlining only."""
    sequence: int = 8
    """Decisions in one window of a recurrent network, through which gradients go."""
    epsilon: float = 0.15
    """Epsilon of the greedy exploration: probability of a flip, or of a draw from all legal columns."""
    remembered: int = 50_000
    """Capacity of the replay buffer in decisions."""
    batch: int = 256
    """Decisions in one gradient step; windows, for a recurrent network."""
    steps: int = 150
    """Gradient steps in one iteration."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    decay: float = 0.8
    """Decay of the moving-average baseline of scores; unused with component credit."""


DQN_REFERENCE = DqnConfig(hidden=(20, 10), modules=100, credit=Credit.CONTEXT, epsilon=0.1, batch=256, steps=300)
"""Network, exploration and optimiser of google/ml-compiler-opt's ``dqn_nn_agent.gin``, which bootstraps over one step
with the episode's return as the reward of each decision; here nothing is bootstrapped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRegionConfig:
    """How the radius of a trust region follows the scores; google/ml-compiler-opt has these numbers as an example."""

    radius: float = 1.0
    """Initial radius, in the length of all weights."""
    least_radius: float = 0.1
    """Radius below which it does not shrink."""
    grow_threshold: float = 1e-5
    """Share of the expected gain that a step must reach for the radius to grow."""
    grow_factor: float = 1.1
    """Factor by which it grows."""
    shrink_threshold: float = 0.5
    """Relative loss of a step beyond which the radius shrinks."""
    shrink_factor: float = 0.9
    """Factor by which it shrinks."""
    reject_threshold: float = 1.0
    """Relative loss beyond which a step is taken back."""
    reject_factor: float = 0.75
    """Factor by which it then shrinks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EsConfig:
    """Evolution strategies. The defaults are ours; ``ES_REFERENCE`` is google/ml-compiler-opt's."""

    strategy: Literal["antithetic", "forward", "cma"] = "antithetic"
    """Gradient of pairs of opposite perturbations, or of single ones against their mean (forward differences); or
    CMA-ES, for networks of a few hundred weights."""
    hidden: tuple[int, ...] = (8,)
    """Widths of the hidden layers."""
    perturbations: int = 8
    """Perturbations in one iteration, of which antithetic ones are pairs; the population of CMA-ES is twice that."""
    modules: int = 2
    """Modules that each network compiles, the same for all networks of an iteration."""
    spread: float = 0.1
    """Standard deviation of the perturbations."""
    directions: Literal["gaussian", "orthogonal", "sobol"] = "gaussian"
    """Perturbations drawn independently, at right angles to each other, or from a scrambled Sobol sequence."""
    scaled: bool = False
    """Perturb each weight in proportion to its initial absolute value plus 0.01, as google/ml-compiler-opt does with a
    pretrained policy."""
    top: int = 0
    """Directions that the gradient is estimated from, those with the best scores; 0 for all."""
    step: Literal["adam", "momentum", "trust-region"] = "adam"
    """How the gradient becomes a step: by Adam, by gradient ascent with momentum, or by a quadratic model within a
    trust region, which takes rewards as they are, and neither ranks nor ridge regression."""
    learning_rate: float = 0.1
    """Learning rate of Adam, or step size of gradient ascent."""
    momentum: float = 0.9
    """Decay of the mean gradient that gradient ascent follows; 0 for the gradient itself."""
    ranks: bool = True
    """Use centred ranks in place of fitnesses."""
    ridge: float = 0.0
    """Penalty of a ridge regression with an intercept that estimates the gradient, such as 0.01; 0 for the mean over
    the perturbations."""
    trust: TrustRegionConfig = dataclasses.field(default_factory=TrustRegionConfig)
    """Trust region."""


ES_CMA = EsConfig(strategy="cma", hidden=(), spread=0.3)
"""CMA-ES on a policy without hidden layers."""

ES_REFERENCE = EsConfig(
    hidden=(64, 64, 64, 64), perturbations=100, modules=1, spread=0.5, learning_rate=0.5, ranks=False
)
"""The settings of google/ml-compiler-opt's ``es/inlining``, which draws a module for each perturbation."""

ES_REFERENCE_EVICTION = dataclasses.replace(ES_REFERENCE, hidden=(80, 40), learning_rate=0.005)
"""The settings of google/ml-compiler-opt's ``es/regalloc_trace``, whose fitness is the cost of a trace; here fitness is
the score of compilations, as for the other learners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRegressionConfig:
    """Decision-effect regression: iterations of exploration, each followed by a fit to all effects so far.

    The defaults are what ``mlgokit train`` and the quickstart run.
    """

    modules: int = 0
    """Modules in the first iteration; 0 for all."""
    later_share: float = 0.7
    """Share of the first iteration's number of modules that each later iteration explores, drawn anew each time."""
    most_decisions: int = 10_000
    """Maximum decisions of a module, under the heuristic, for it to be explored; 0 for no limit. Larger modules take
    seconds to compile; a limit in seconds would make the policy depend on the machine."""
    explorations: int = 2
    """Exploring compilations of each module in an iteration, all compared with one compilation without exploration."""
    independent: int = 256
    """Maximum moves in one exploration, no two of which can change the same function; 0 for random flips."""
    flip_probability: float = 0.06
    """Random exploration: probability of a flip."""
    least_flips: float = 3.0
    """Random exploration: expected flips in a small module, whose flip probability is raised to get them."""
    temperature: float = 0.5
    """Random exploration: temperature of the policy's decisions, in units of preference."""
    fit: EffectConfig = dataclasses.field(default_factory=EffectConfig)
    """Settings of the effect regression."""


EFFECT_RANDOM = EffectRegressionConfig(independent=0)
"""Explorations of a few random flips that may interact, instead of many that cannot."""

EFFECT_SMALL = EffectRegressionConfig(modules=200, later_share=1.0, most_decisions=0, independent=64)
"""Iterations of 600 compilations, for budgets in compilations."""
