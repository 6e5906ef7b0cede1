"""Settings of the algorithms, apart from them, so that a command line can name them without loading JAX."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectConfig:
    """Hyper-parameters of the regression."""

    members: int = 6
    """Networks in the ensemble."""
    hidden: tuple[int, ...] = (48, 48)
    """Widths of the hidden layers."""
    project_share: float = 0.75
    """Part of the projects that each member is fitted on; the others decide when it stops."""
    epochs: int = 30
    """Passes over the effects."""
    batch_flips: int = 2048
    """Flips in one gradient step."""
    learning_rate: float = 2e-3
    """Peak of the cosine schedule of AdamW."""
    weight_decay: float = 1e-2
    """Of AdamW."""
    dropout: float = 0.1
    """Share of hidden units left out in training."""
    huber_bytes: float = 40.0
    """Where the loss turns from square to linear."""
    unit_bytes: float = 32.0
    """Bytes in one unit of the network's output."""
    bytes_per_unit: float = 5.0
    """Bytes in one unit of preference: the temperature of exploration near the boundary."""
    caution: float = 0.0
    """Standard deviations of the members that are added to an effect before it is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloningConfig:
    """Hyper-parameters; network and optimiser are google/ml-compiler-opt's (``behavioral_cloning_nn_agent``)."""

    hidden: tuple[int, ...] = (40, 40, 20)
    """Widths of the hidden layers."""
    quantiles: int = 1000
    """Boundaries of the normaliser."""
    epochs: int = 10
    """Passes over the decisions."""
    batch: int = 512
    """Decisions in one gradient step."""
    learning_rate: float = 1e-3
    """Of Adam."""
    excluded: tuple[str, ...] = ("node_count", "edge_count")
    """Features the policy shall not see."""
    seed: int = 1
    """Of everything random."""


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
    """Of AdamW; falls to zero along a cosine."""
    weight_decay: float = 3e-3
    """Of AdamW."""
    huber: float = 0.2
    """Relative error from which on it counts linearly."""
