"""Settings of the algorithms, apart from them, so that a command line can name them without loading JAX."""

import dataclasses
import enum
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectConfig:
    """Hyper-parameters of the regression."""

    members: int = 6
    """Number of networks in the ensemble."""
    hidden: tuple[int, ...] = (48, 48)
    """Widths of the hidden layers."""
    project_share: float = 0.75
    """Share of the projects that each member is fitted on; the others decide when it stops."""
    epochs: int = 30
    """Number of passes over the effects."""
    batch_flips: int = 2048
    """Number of flips in one gradient step."""
    learning_rate: float = 2e-3
    """Peak learning rate of the cosine schedule of AdamW."""
    weight_decay: float = 1e-2
    """Weight decay of AdamW."""
    dropout: float = 0.1
    """Share of hidden units left out in training."""
    huber_bytes: float = 40.0
    """Error in bytes beyond which the loss is linear instead of square."""
    unit_bytes: float = 32.0
    """Bytes in one unit of the network's output."""
    bytes_per_unit: float = 5.0
    """Bytes in one unit of preference: the temperature of exploration near the boundary."""
    doubt: float = 1.0
    """Number of standard deviations of the members that an effect must exceed, beyond the gate's margin, for the policy
    to depart from LLVM's own decision."""
    gate_feature: str = "callee_is_discardable"
    """Feature of the gate: LLVM decides where the feature is 0, or where it is not, if departing there has not paid; no
    gate if empty."""
    gate_margin: float = 2.0
    """Bytes that an effect must exceed for the policy to depart from LLVM's own decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTrialsConfig:
    """Effect regression of passes: trials of single functions, and a fit to what they measured."""

    functions: int = 60
    """Functions of a module that are tried, drawn from those that no module before it has; 0 for all."""
    rounds: int = 8
    """Compilations of a module, at most, in which passes of the optimizer are left out of its functions."""
    kept: tuple[str, ...] = ("InstSimplifyPass",)
    """Passes that are never left out: of some hot loops the code without them is slower by a quarter, and a policy does
    not tell which."""
    margin: float = 0.05
    """Bytes that leaving a pass out must save."""
    slowdown_free: float = 0.01
    """By which part a function may execute more instructions at no cost, by LLVM's estimate."""
    slowdown_price: float = 1.0
    """What it costs if a function executes twice as many beyond that, in sizes of the function."""
    fit: EffectConfig = dataclasses.field(
        default_factory=lambda: EffectConfig(
            members=8, hidden=(64, 48), huber_bytes=16.0, unit_bytes=8.0, doubt=0.25, gate_feature=""
        )
    )
    """The regression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTrialsConfig:
    """CMA-ES of priorities or spill weights: each policy of a generation allocates the same functions in copies."""

    score: Literal["spill-cost", "executed", "bytes"] = "bytes"
    """What shall fall: cost of spills, reloads and copies; instructions executed, with spills and reloads counted
    twice; or bytes of code."""
    functions: int = 1600
    """Functions that teach, at most, drawn from those whose score depends on the policy, evenly over projects."""
    module_functions: int = 60
    """Functions of a module among which these are looked for; 0 for all."""
    share: float = 0.4
    """Part of them that a generation allocates; another one each time."""
    generations: int = 30
    """Generations of the search."""
    renewed: int = 5
    """Generations after which all functions are tried, and those that the search's centre changes teach, too; 0 for
    never."""
    population: int = 16
    """Policies in one generation."""
    opening: float = 1.0
    """The one weight that is not 0 in the policies that it begins with; the best of them is the centre."""
    spread: float = 0.5
    """Standard deviation of the first generation's weights."""
    csr_first_time_costs: tuple[int, ...] = ()
    """What the first use of a callee-saved register may cost at the end, beside what it costs LLVM, where 2**14 is one
    execution of a function's entry; what does best is in the policy. Spill weights only."""
    cost_modules: int = 100
    """Modules whose functions choose among these, drawn evenly over projects; 0 for all that may teach."""
    judges: int = 150
    """Modules of projects kept apart whose functions judge the policy; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeModelConfig:
    """How a native-size model is fitted."""

    members: int = 4
    """Networks; their mean is the prediction."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers."""
    epochs: int = 60
    """Times that every function is seen."""
    batch: int = 128
    """Functions in one step."""
    learning_rate: float = 2e-3
    """Learning rate of AdamW; falls to zero along a cosine."""
    weight_decay: float = 3e-3
    """Weight decay of AdamW."""
    huber: float = 0.2
    """Relative error from which on it counts linearly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitationConfig:
    """How a network is fitted to decisions, in the learners that imitate."""

    hidden: tuple[int, ...] = (40, 40, 20)
    """Widths of the hidden layers."""
    steps: int = 200
    """Gradient steps in one turn, at least."""
    epochs: int = 0
    """Passes over all decisions in one turn, at least."""
    batch: int = 256
    """Number of decisions in one gradient step."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    dropout: float = 0.0
    """Share of hidden units left out in training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BcConfig:
    """Behavioural cloning. By default one turn clones the decisions of the whole corpus."""

    rule: str = ":default"
    """Advisor to imitate."""
    modules: int = 0
    """Modules in one turn; 0 for all."""
    imitation: ImitationConfig = dataclasses.field(
        default_factory=lambda: ImitationConfig(steps=1000, epochs=10, batch=512)
    )
    """Settings of the fit."""


BC_SMALL = BcConfig(modules=64, imitation=ImitationConfig())
"""Many small turns."""

BC_REFERENCE = BcConfig(modules=100, imitation=ImitationConfig(steps=1000, batch=64, dropout=0.2))
"""google/ml-compiler-opt's network and optimiser (``behavioral_cloning_nn_agent.gin``), which makes 100,000 steps."""

BC_REFERENCE_EVICTION = dataclasses.replace(
    BC_REFERENCE, imitation=dataclasses.replace(BC_REFERENCE.imitation, hidden=(80, 40))
)
"""The same of its ``regalloc`` folder, which makes 10,000 steps; it has none for priorities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BcMaxConfig:
    """Imitation of the best of several advisors."""

    rules: tuple[str, ...] = (":default", ":never", ":always")
    """The advisors before there is a policy; only the heuristic where the others make no sense."""
    modules: int = 64
    """Modules in one turn."""
    flips: float = 2.0
    """Flips expected in one module."""
    spread: float = 0.5
    """Standard deviation of the exploration of real advice, in its own unit."""
    partitions: tuple[float, ...] = ()
    """Ascending bounds of score, such as 1000 10000, between contexts that are weighted apart, by how much the policy
    regrets in each; none weighs all alike."""
    imitation: ImitationConfig = dataclasses.field(default_factory=ImitationConfig)
    """Settings of the fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSearchConfig:
    """Local search for labels, and imitation of them."""

    modules: int = 64
    """Modules in one turn."""
    departures: int = 8
    """Sites of a module that are tried at once; their credit is told apart by component."""
    spread: float = 0.5
    """Standard deviation of a departure of real advice, in its own unit."""
    imitation: ImitationConfig = dataclasses.field(default_factory=ImitationConfig)
    """Settings of the fit."""


class Credit(enum.Enum):
    """What a decision is rewarded for."""

    MODULE = "module"
    """All scores of its compilation, as the reference does for inlining."""
    CONTEXT = "context"
    """The score of its context."""
    COMPONENT = "component"
    """The change that its component made against the base; nothing for a decision that follows the base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoConfig:
    """PPO as a contextual bandit. The defaults are ours; ``PPO_REFERENCE`` is google/ml-compiler-opt's."""

    hidden: tuple[int, ...] = (40, 40, 20)
    """Widths of the hidden layers."""
    modules: int = 32
    """Compilations that explore, in one turn; with component credit each has a base besides."""
    credit: Credit = Credit.COMPONENT
    """What a decision is rewarded for."""
    batch: int = 512
    """Windows in one gradient step."""
    sequence: int = 1
    """Decisions in one window."""
    steps: int = 40
    """Gradient steps in one turn."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    clip: float = 0.2
    """How far the importance ratio may move from 1 before it earns nothing more."""
    entropy: float = 0.003
    """Weight of the policy's entropy."""
    weight_penalty: float = 1e-6
    """Weight of the sum of the squared weights."""
    kl_beta: float = 1.0
    """First weight of the divergence from the policy that explored; it adapts."""
    kl_target: float = 0.02
    """Divergence at which that weight stays as it is."""
    kl_tolerance: float = 0.3
    """How far from the target it stays as it is."""
    kl_cutoff_factor: float = 2.0
    """Times the target: where the squared penalty begins."""
    kl_cutoff_weight: float = 1000.0
    """Weight of the squared penalty."""
    decay: float = 0.8
    """Decay of the moving average of scores that rewards are measured against."""
    spread: float = 1.0
    """Standard deviation of the exploration of real advice, in its own unit."""
    reference_frames: bool = False
    """Leave out what the reference leaves out: the last decision of each window and of each context, and
    compilations of two decisions or fewer; and centre the advantages."""


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
"""The reference's settings for inlining (``ppo_nn_agent.gin``), where a module is the only context."""

PPO_REFERENCE_PRIORITY = dataclasses.replace(
    PPO_REFERENCE, steps=200, learning_rate=3e-4, entropy=0.005, weight_penalty=1e-5
)
"""Its settings for the priorities of register allocation, which do not run there at present."""

PPO_REFERENCE_EVICTION = dataclasses.replace(PPO_REFERENCE_PRIORITY, hidden=(80, 40), modules=512)
"""Its settings for eviction: one network for each column, and more modules in a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DqnConfig:
    """Q-learning of single decisions. The defaults are ours; ``DQN_REFERENCE`` is near google/ml-compiler-opt's."""

    hidden: tuple[int, ...] = (40, 40, 20)
    """Widths of the hidden layers."""
    modules: int = 32
    """Compilations that explore, in one turn; with component credit each has a base besides."""
    credit: Credit = Credit.COMPONENT
    """What a decision is rewarded for."""
    epsilon: float = 0.15
    """Probability that a decision is flipped, or drawn from all legal columns."""
    remembered: int = 50_000
    """Decisions kept to learn from; the oldest are forgotten."""
    batch: int = 256
    """Number of decisions in one gradient step."""
    steps: int = 150
    """Gradient steps in one turn."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    decay: float = 0.8
    """Decay of the moving average of scores that rewards are measured against; unused with component credit."""


DQN_REFERENCE = DqnConfig(hidden=(20, 10), modules=100, credit=Credit.CONTEXT, epsilon=0.1, batch=256, steps=300)
"""Network, exploration and optimiser of ``dqn_nn_agent.gin``. That one looks one decision ahead and takes the whole
return as the reward of each; here nothing is looked ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EsConfig:
    """Evolution strategies. The defaults are ours; ``ES_REFERENCE`` is google/ml-compiler-opt's."""

    strategy: Literal["antithetic", "cma"] = "antithetic"
    """Gradient estimate from pairs of opposite perturbations, or CMA-ES, for networks of a few hundred weights."""
    hidden: tuple[int, ...] = (8,)
    """Widths of the hidden layers."""
    perturbations: int = 8
    """Pairs in one turn; with CMA-ES, networks in one turn are twice as many."""
    modules: int = 2
    """Modules that each network compiles; all networks of a turn compile the same."""
    spread: float = 0.1
    """Standard deviation of the perturbations."""
    learning_rate: float = 0.1
    """Learning rate of Adam."""
    ranks: bool = True
    """Use the order of the fitnesses instead of their values."""
    ridge: float = 0.0
    """Penalty of a ridge regression that estimates the gradient, such as 0.01; 0 takes the mean over the pairs."""


ES_CMA = EsConfig(strategy="cma", hidden=(), spread=0.3)
"""CMA-ES on a policy without hidden layers."""

ES_REFERENCE = EsConfig(
    hidden=(64, 64, 64, 64), perturbations=100, modules=1, spread=0.5, learning_rate=0.5, ranks=False
)
"""The settings of the reference's ``es/inlining``, which draws a module for each perturbation."""

ES_REFERENCE_EVICTION = dataclasses.replace(ES_REFERENCE, hidden=(80, 40), learning_rate=0.005)
"""Those of its ``es/regalloc_trace``, whose fitness is a trace's cost; here it is that of the other learners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRegressionConfig:
    """Decision-effect regression: turns of exploration, each followed by a fit to all effects measured so far.

    The defaults are what ``mlgokit train`` and the quickstart run.
    """

    modules: int = 0
    """Modules in the first turn; 0 for all."""
    later_share: float = 0.7
    """Part of as many modules that each later turn explores, drawn anew each time."""
    most_decisions: int = 10_000
    """Modules that ask for more decisions under the heuristic are not explored; 0 for no limit. They take seconds to
    compile; a limit in seconds would make the policy depend on the machine."""
    explorations: int = 2
    """Explored compilations of each module in a turn, against one base."""
    independent: int = 256
    """Moves in one exploration at most, no two of which can change the same function; 0 to flip at random instead."""
    flip_probability: float = 0.06
    """Random exploration: probability that a decision is flipped."""
    least_flips: float = 3.0
    """Random exploration: flips expected in a small module, whose probability is raised for it."""
    temperature: float = 0.5
    """Random exploration: of decisions near the boundary, in units of preference, once there is a policy."""
    fit: EffectConfig = dataclasses.field(default_factory=EffectConfig)
    """The regression."""


EFFECT_RANDOM = EffectRegressionConfig(independent=0)
"""Explorations of a random few decisions that may meet, instead of many that cannot."""

EFFECT_SMALL = EffectRegressionConfig(modules=200, later_share=1.0, most_decisions=0, independent=64)
"""Turns of 600 compilations, for budgets in compilations."""
