"""What bindings of google/ml-compiler-opt's gin files mean for ``mlgokit train``."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from mlgokit.algorithms.registry import LEARNERS
from mlgokit.commands.gin import Bindings, Reference, Value

_PROBLEMS = {
    "InliningConfig": "inline-size",
    "RegallocEvictionConfig": "regalloc-eviction",
    "RegallocPriorityConfig": "regalloc-priority",
}
_ALGORITHMS = {"PPOAgentConfig": "ppo", "BCAgentConfig": "behavioural-cloning", "DQNAgentConfig": "dqn"}
_NETWORKS = ("ActorDistributionNetwork", "QNetwork", "RegAllocNetwork")
_RECURRENT = "QRnnNetwork."
_RND = "RandomNetworkDistillation."
_RND_USED = "train_eval.use_random_network_distillation"
_DISTILLATION = {
    f"{_RND}initial_intrinsic_reward_scale": "distillation.scale",
    f"{_RND}half_decay_steps": "distillation.half_life",
    f"{_RND}fc_layer_params": "distillation.hidden",
    f"{_RND}learning_rate": "distillation.learning_rate",
    f"{_RND}update_frequency": "distillation.stride",
}
_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "ppo": {
        "train_eval.num_modules": "modules",
        "train_eval.num_iterations": "steps",
        "train_eval.batch_size": "batch",
        "train_eval.train_sequence_length": "sequence",
        "train_eval.moving_average_decay_rate": "decay",
        "AdamOptimizer.learning_rate": "learning_rate",
        "PPOAgent.importance_ratio_clipping": "clip",
        "PPOAgent.entropy_regularization": "entropy",
        "PPOAgent.policy_l2_reg": "weight_penalty",
        "PPOAgent.kl_cutoff_factor": "kl_cutoff_factor",
        "PPOAgent.kl_cutoff_coef": "kl_cutoff_weight",
        "PPOAgent.initial_adaptive_kl_beta": "kl_beta",
        "PPOAgent.adaptive_kl_target": "kl_target",
        "PPOAgent.adaptive_kl_tolerance": "kl_tolerance",
        **_DISTILLATION,
    },
    "dqn": {
        "train_eval.num_modules": "modules",
        "train_eval.num_iterations": "steps",
        "train_eval.batch_size": "batch",
        "train_eval.moving_average_decay_rate": "decay",
        "AdamOptimizer.learning_rate": "learning_rate",
        "DqnAgent.epsilon_greedy": "epsilon",
    },
    "behavioural-cloning": {
        "train_eval.num_iterations": "imitation.steps",
        "train_eval.batch_size": "imitation.batch",
        "AdamOptimizer.learning_rate": "imitation.learning_rate",
    },
    "es": {
        "BlackboxLearnerConfig.total_num_perturbations": "perturbations",
        "BlackboxLearnerConfig.num_top_directions": "top",
        "BlackboxLearnerConfig.precision_parameter": "spread",
        "BlackboxLearnerConfig.step_size": "learning_rate",
        "SamplingBlackboxEvaluator.num_ir_repeats_within_worker": "modules",
        "train.momentum": "momentum",
    },
}
"""By algorithm, bindings and the setting that has the same meaning."""
_OF_ES: Mapping[str, Mapping[str, dict[str, str]]] = {
    "BlackboxLearnerConfig.blackbox_optimizer": {
        "MONTE_CARLO": {},
        "TRUST_REGION": {"step": "trust-region"},
        "SKLEARN_REGRESSION": {"ridge": "0.01"},
    },
    "BlackboxLearnerConfig.estimator_type": {
        "ANTITHETIC": {"strategy": "antithetic"},
        "FORWARD_FD": {"strategy": "forward"},
    },
    "train.gradient_ascent_optimizer_type": {"ADAM": {"step": "adam"}, "MOMENTUM": {"step": "momentum"}},
    "BlackboxLearnerConfig.fvalues_normalization": {"True": {"ranks": "false"}},
}
"""Of evolution strategies, bindings and the settings that each of their values means."""
_FIXED: Mapping[str, tuple[Value, ...]] = {
    "AdamOptimizer.epsilon": (3.125e-4,),
    "BehavioralCloningAgent.gradient_clipping": (None,),
    "BlackboxLearnerConfig.hyperparameters_update_method": (Reference("%blackbox_optimizers.UpdateMethod.NO_METHOD"),),
    "ConstantValueNetwork.constant_output_val": (0,),
    "DqnAgent.boltzmann_temperature": (None,),
    "DqnAgent.emit_log_probability": (False,),
    "DqnAgent.gradient_clipping": (None,),
    "DqnAgent.reward_scale_factor": (1.0,),
    "DqnAgent.td_errors_loss_fn": (None,),
    "InliningRunner.ir2vec_vocab_path": (None,),
    "InliningRunner.launcher_path": (None, ""),
    "NormalProjectionNetwork.mean_transform": (None,),
    "PPOAgent.discount_factor": (0.0,),
    "PPOAgent.gradient_clipping": (None,),
    "PPOAgent.lambda_value": (0.0,),
    "PPOAgent.log_prob_clipping": (0.0,),
    "PPOAgent.normalize_observations": (False,),
    "PPOAgent.normalize_rewards": (False,),
    "PPOAgent.num_epochs": (1,),
    "PPOAgent.shared_vars_l2_reg": (0.0,),
    "PPOAgent.use_gae": (False,),
    "PPOAgent.use_td_lambda_return": (False,),
    "PPOAgent.value_clipping": (None,),
    "PPOAgent.value_function_l2_reg": (0.0,),
    "PPOAgent.value_pred_loss_coef": (0.0,),
    "QRnnNetwork.output_fc_layer_params": ((),),
    "RegAllocPriorityRunner.launcher_path": (None, ""),
    "RegAllocRunner.launcher_path": (None, ""),
    "get_inlining_signature_spec.ir2vec_vocab_path": (None,),
    "get_observation_processing_layer_creator.with_sqrt": (False,),
    "get_observation_processing_layer_creator.with_z_score_normalization": (False,),
    "train.beta1": (0.9,),
    "train.beta2": (0.999,),
    "train_eval.train_sequence_length": (1,),
    "train_eval.warmstart_policy_dir": ("",),
}
"""Values that mean what is done here anyway; another one has no counterpart."""
_WITHOUT_EFFECT = re.compile(
    r"(PPOAgent|BehavioralCloningAgent|DqnAgent)\.(optimizer|debug_summaries|summarize_grads_and_vars|check_numerics)"
    r"|PPOAgent\.(compute_value_and_advantage_in_train|update_normalizers_in_train|reward_norm_clipping)"
    r"|BehavioralCloningAgent\.epsilon_greedy|create_agent\.policy_network"
    r"|create_actor_policy\.(actor_network_ctor|greedy)|train_eval\.deploy_policy_name"
    r"|BlackboxLearnerConfig\.(save_best_policy|evaluator)|SamplingBlackboxEvaluator\.total_num_perturbations"
    r"|train\.worker_class|\w+\.(thread_count|clang_path|llvm_size_path|preprocessing_combiner)"
    r"|get_observation_processing_layer_creator\.ir2vec_with_z_score_normalization"
    r"|RandomNetworkDistillation\.encoding_network"
)
"""Bindings of what there is not here: summaries, objects, and paths of programs, which the toolchain has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GinSettings:
    """What gin files say, in words of ``mlgokit train``; what no file names is empty.

    Attributes:
        options: options of ``mlgokit train`` besides problem and algorithm, such as ``--setting=modules=100``.
        changes: options that change command lines, for every command with a corpus.
        start: folder of the policy that training starts from.
        left_out: bindings without a counterpart, each as it was given with the reason.
    """

    problem: str = ""
    algorithm: str = ""
    options: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    start: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence about each binding without a counterpart."""
        return tuple(f"no counterpart: {one}" for one in self.left_out)


def settings_of_gin(bindings: Bindings, *, tool: str = "", folders: Sequence[Path] = (Path(),)) -> GinSettings:
    """Translate bindings from :func:`mlgokit.commands.gin.read_gin`.

    ``tool`` is the algorithm of the tool that is given them, or empty if they name it. The folder of a vocabulary is
    looked for in ``folders``, the first one that has it.

    Example:
        >>> found = settings_of_gin({"train_eval.agent_config_type": Reference("agents.PPOAgentConfig"),
        ... "PPOAgent.entropy_regularization": 0.005, "PPOAgent.lambda_value": 0.5})
        >>> found.algorithm, found.options, found.left_out
        ('ppo', ('--setting=entropy=0.005',), ('PPOAgent.lambda_value = 0.5',))
    """
    rest = dict(bindings)
    problem = _named(rest, "get_configuration.implementation", _PROBLEMS)
    algorithm = _named(rest, "train_eval.agent_config_type", _ALGORITHMS)
    if any(name.startswith("BlackboxLearnerConfig.") for name in rest):
        algorithm = "es"
    algorithm = tool or algorithm
    settings = _settings(rest, algorithm)
    if algorithm == "behavioural-cloning":
        # The reference clones one trace of the whole corpus.
        settings["modules"] = "0"
    options = [f"--setting={name}={value}" for name, value in settings.items()]
    options += ["--iterations=1"] if algorithm == "behavioural-cloning" else []
    for name, option in (
        ("train_eval.num_policy_iterations", "iterations"),
        ("BlackboxLearnerConfig.total_steps", "iterations"),
    ):
        if name in rest:
            options.append(f"--{option}={rest.pop(name)}")
    options += _vocabulary(rest, folders)
    start = rest.pop("train_eval.warmstart_policy_dir", "")
    changes = _changes(rest)
    return GinSettings(
        problem=problem,
        algorithm=algorithm,
        options=tuple(options),
        changes=tuple(changes),
        start=start if isinstance(start, str) else "",
        left_out=tuple(_left_out(rest)),
    )


def preset_of(algorithm: str, problem: str) -> str:
    """The preset that has the other settings of the reference, for the problems that it trains with the algorithm."""
    return "reference" if problem in LEARNERS[algorithm].reference else "default"


def _named(rest: dict[str, Value], binding: str, names: Mapping[str, str]) -> str:
    """What a reference names, which is then dealt with; empty if it is not there or not known."""
    value = rest.get(binding)
    if not isinstance(value, Reference) or value.last not in names:
        return ""
    del rest[binding]
    return names[value.last]


def _settings(rest: dict[str, Value], algorithm: str) -> dict[str, str]:
    """The settings of the learner, as a user types them."""
    settings: dict[str, str] = {}
    _take_network(rest, algorithm, settings)
    _take_distillation(rest, algorithm, settings)
    for binding, name in _SETTINGS.get(algorithm, {}).items():
        if binding in rest:
            settings[name] = _typed(rest.pop(binding))
    if algorithm == "es":
        for binding, known in _OF_ES.items():
            value = rest.get(binding)
            found = known.get(value.last if isinstance(value, Reference) else repr(value))
            if found is not None:
                settings |= found
                del rest[binding]
    return settings


def _take_network(rest: dict[str, Value], algorithm: str, settings: dict[str, str]) -> None:
    """The widths of the network's layers, and what else is said of it."""
    inner = "imitation." if algorithm == "behavioural-cloning" else ""
    for network in _NETWORKS:
        if algorithm and f"{network}.fc_layer_params" in rest:
            settings[f"{inner}hidden"] = _typed(rest.pop(f"{network}.fc_layer_params"))
        _take_dropout(rest, f"{network}.dropout_layer_params", inner, settings)
    if algorithm in ("behavioural-cloning", "dqn") and f"{_RECURRENT}lstm_size" in rest:
        _take_recurrent(rest, inner, settings)
    for network in (*_NETWORKS, _RECURRENT.removesuffix(".")):
        if rest.get(f"{network}.activation_fn") == Reference("tf.keras.activations.relu"):
            del rest[f"{network}.activation_fn"]


def _take_recurrent(rest: dict[str, Value], inner: str, settings: dict[str, str]) -> None:
    """The layers before one LSTM, its units, and the length of the windows that it is trained on."""
    found = rest[f"{_RECURRENT}lstm_size"]
    units = cast("tuple[Value, ...]", found) if isinstance(found, tuple) else ()
    if len(units) != 1:
        return
    del rest[f"{_RECURRENT}lstm_size"]
    settings[f"{inner}recurrent"] = _typed(units[0])
    for binding, name in (
        (f"{_RECURRENT}input_fc_layer_params", "hidden"),
        ("train_eval.train_sequence_length", "sequence"),
    ):
        if binding in rest:
            settings[f"{inner}{name}"] = _typed(rest.pop(binding))
    if inner:
        # The preset's is that of the other network.
        settings[f"{inner}dropout"] = "0.0"


def _take_distillation(rest: dict[str, Value], algorithm: str, settings: dict[str, str]) -> None:
    """The settings of random network distillation, which are in every file and mean nothing until it is used."""
    if rest.get(_RND_USED, False) is not True:
        for binding in [_RND_USED, *(name for name in rest if name.startswith(_RND))]:
            rest.pop(binding, None)
    elif algorithm == "ppo":
        del rest[_RND_USED]
        settings["distillation.scale"] = "1.0"


def _take_dropout(rest: dict[str, Value], binding: str, inner: str, settings: dict[str, str]) -> None:
    """One rate for all layers is a setting of imitation; none is what the others have."""
    value = rest.get(binding, ())
    rates = set(cast("tuple[Value, ...]", value)) if isinstance(value, tuple) else {value}
    if binding in rest and (rates == {None} or (inner and len(rates) == 1)):
        del rest[binding]
        if rates != {None}:
            settings[f"{inner}dropout"] = _typed(rates.pop())


def _vocabulary(rest: dict[str, Value], folders: Sequence[Path]) -> list[str]:
    """The folder of the vocabulary, if it is there; without it a normaliser is fitted to a trace."""
    name = "get_observation_processing_layer_creator.quantile_file_dir"
    folder = rest.get(name)
    if not isinstance(folder, str) or not folder:
        return []
    found = next((above / folder for above in folders if (above / folder).is_dir()), None)
    if found is None:
        return []
    del rest[name]
    return [f"--vocab={found}"]


def _changes(rest: dict[str, Value]) -> list[str]:
    """Changes of command lines, for PPO's tools and for those of evolution strategies."""
    places = {
        "add": ("flags_to_add.add_flags", "train.additional_compilation_flags"),
        "delete": ("flags_to_delete.delete_flags", "train.delete_compilation_flags"),
        "replace": ("flags_to_replace.replace_flags", "train.replace_compilation_flags"),
    }
    words: list[str] = []
    for kind, names in places.items():
        for name in names:
            value = rest.get(name)
            if isinstance(value, dict):
                pairs = cast("dict[Value, Value]", value)
                words += [f"--{kind}-options={option}={new}" for option, new in pairs.items()]
                del rest[name]
            elif isinstance(value, tuple):
                words += [f"--{kind}-options={option}" for option in cast("tuple[Value, ...]", value)]
                del rest[name]
    return words


def _left_out(rest: Mapping[str, Value]) -> list[str]:
    """The bindings that say something else than what is done here, and have no counterpart."""
    return [
        f"{name} = {_shown(value)}"
        for name, value in rest.items()
        if not _WITHOUT_EFFECT.fullmatch(name)
        and not any(value == fixed and type(value) is type(fixed) for fixed in _FIXED.get(name, ()))
    ]


def _typed(value: Value) -> str:
    """A value as a user types it after ``--setting name=``."""
    try:
        return json.dumps(value)
    except TypeError:
        return _shown(value)


def _shown(value: Value) -> str:
    if isinstance(value, Reference):
        return value.name if value.name.startswith("%") else f"@{value.name}"
    return repr(value)
