"""Gin files as data: what they say in words of ``mlgokit train``, and that nothing in them is executed."""

import tomllib
from pathlib import Path

import pytest

from mlgokit.commands.compat_tools import plan_call
from mlgokit.commands.gin import MOST_BYTES, MOST_FILES, Reference, read_gin
from mlgokit.commands.gin_settings import settings_of_gin
from mlgokit.errors import InputError
from mlgokit.learning.settings import settings_of

COMMON = """
import some.module.that.does.not.exist  # and is not looked for
config_registry.get_configuration.implementation=@configs.InliningConfig
clang_path=None
runners.InliningRunner.clang_path=%clang_path
problem_config.flags_to_delete.delete_flags=('-split-dwarf-file','-gone',)
problem_config.flags_to_replace.replace_flags={'-fprofile-use': '/p'}
"""
CONFIG = "BlackboxLearnerConfig"
TRAINING = """
include 'common.gin'
train_eval.agent_config_type=@agents.PPOAgentConfig
train_eval.num_policy_iterations=7
scope/train_eval.num_modules=12
width = 16
ActorDistributionNetwork.fc_layer_params=(%width,
    8)  # over two lines
ActorDistributionNetwork.dropout_layer_params=None
tf.train.AdamOptimizer.learning_rate = 0.00003
tf.train.AdamOptimizer.epsilon = 0.0003125
PPOAgent.entropy_regularization = 0.004
PPOAgent.lambda_value = 0.0
PPOAgent.gradient_clipping = 1.5
PPOAgent.optimizer = @tf.train.AdamOptimizer()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "common.gin").write_text(COMMON)
    (tmp_path / "training.gin").write_text(TRAINING)
    return tmp_path / "training.gin"


def test_values_macros_scopes_and_included_files(file: Path):
    found = read_gin([file], ["clang_path='/x'"])
    assert found["train_eval.num_modules"] == 12
    assert found["ActorDistributionNetwork.fc_layer_params"] == (16, 8)
    assert found["InliningRunner.clang_path"] == "/x"
    assert found["PPOAgent.optimizer"] == Reference("tf.train.AdamOptimizer()")
    assert found["flags_to_replace.replace_flags"] == {"-fprofile-use": "/p"}


def test_a_file_is_translated_and_what_has_no_counterpart_is_named(file: Path):
    settings = settings_of_gin(read_gin([file], ["train_eval.num_modules=3"]))
    assert (settings.problem, settings.algorithm) == ("inline-size", "ppo")
    assert settings.left_out == ("PPOAgent.gradient_clipping = 1.5",)
    changes = ["--delete-options=-split-dwarf-file", "--delete-options=-gone", "--replace-options=-fprofile-use=/p"]
    assert list(settings.changes) == changes
    assert "--iterations=7" in settings.options
    changed = [word.removeprefix("--setting=") for word in settings.options if word.startswith("--setting=")]
    ppo = settings_of("ppo", "reference", changed)
    assert (ppo.modules, ppo.hidden, ppo.learning_rate, ppo.entropy) == (3, (16, 8), 3e-5, 0.004)


@pytest.mark.parametrize(
    ("bindings", "wanted"),
    [
        ([f"{CONFIG}.estimator_type = %blackbox_optimizers.EstimatorType.FORWARD_FD"], {"strategy": "forward"}),
        ([f"{CONFIG}.blackbox_optimizer = %Algorithm.TRUST_REGION"], {"step": "trust-region"}),
        ([f"{CONFIG}.blackbox_optimizer = %Algorithm.SKLEARN_REGRESSION"], {"ridge": 0.01}),
        (["BlackboxLearnerConfig.num_top_directions = 4", "BlackboxLearnerConfig.precision_parameter = 0.5"],
         {"top": 4, "spread": 0.5}),
        (["BlackboxLearnerConfig.fvalues_normalization = True"], {"ranks": False}),
        (["es_trainer_lib.train.gradient_ascent_optimizer_type = %x.GradientAscentOptimizerType.MOMENTUM",
          "es_trainer_lib.train.momentum = 0.5"], {"step": "momentum", "momentum": 0.5}),
    ],
)  # fmt: skip
def test_what_evolution_strategies_are_told(bindings: list[str], wanted: dict[str, object]):
    found = settings_of_gin(read_gin([], bindings), tool="es")
    assert found.left_out == ()
    changed = [word.removeprefix("--setting=") for word in found.options]
    es = settings_of("es", "reference", changed)
    assert {name: getattr(es, name) for name in wanted} == wanted


RECURRENT = """
train_eval.agent_config_type=@agents.{agent}
train_eval.batch_size=64
train_eval.train_sequence_length=16
create_agent.policy_network = @q_rnn_network.QRnnNetwork
QRnnNetwork.preprocessing_combiner=@tf.keras.layers.Concatenate()
QRnnNetwork.input_fc_layer_params=(20, 10)
QRnnNetwork.lstm_size=({units},)
QRnnNetwork.output_fc_layer_params=({after})
QRnnNetwork.activation_fn=@tf.keras.activations.relu
"""


@pytest.mark.parametrize(("agent", "algorithm"), [("BCAgentConfig", "behavioural-cloning"), ("DQNAgentConfig", "dqn")])
def test_a_recurrent_network_is_read(tmp_path: Path, agent: str, algorithm: str):
    (tmp_path / "rnn.gin").write_text(RECURRENT.format(agent=agent, units=10, after=""))
    found = settings_of_gin(read_gin([tmp_path / "rnn.gin"]))
    assert (found.algorithm, found.left_out) == (algorithm, ())
    changed = [word.removeprefix("--setting=") for word in found.options if word.startswith("--setting=")]
    settings = settings_of(algorithm, "reference", changed)
    network = getattr(settings, "imitation", settings)
    assert (network.hidden, network.recurrent, network.sequence, network.batch) == ((20, 10), 10, 16, 64)
    assert getattr(network, "dropout", 0.0) == 0.0
    # Several LSTMs, or layers between the LSTM and the last one, have no counterpart.
    (tmp_path / "rnn.gin").write_text(RECURRENT.format(agent=agent, units="10, 5", after="40,"))
    left_out = settings_of_gin(read_gin([tmp_path / "rnn.gin"])).left_out
    assert {"QRnnNetwork.lstm_size = (10, 5)", "QRnnNetwork.output_fc_layer_params = (40,)"} <= set(left_out)


@pytest.mark.parametrize("used", [True, False])
def test_random_network_distillation_counts_where_it_is_used(used: bool):
    bindings = [
        f"train_eval.use_random_network_distillation={used}", "RandomNetworkDistillation.update_frequency=3",
        "RandomNetworkDistillation.encoding_network=@x", "train_eval.agent_config_type=@PPOAgentConfig",
    ]  # fmt: skip
    found = settings_of_gin(read_gin([], bindings))
    assert found.left_out == ()
    wanted = ("--setting=distillation.scale=1.0", "--setting=distillation.stride=3")
    assert found.options == (wanted if used else ())


def test_the_toml_is_toml_and_has_the_command(file: Path):
    text = plan_call(["gin_config", f"--gin_files={file}"]).text
    table = tomllib.loads(text)["train"]
    assert (table["algorithm"], table["preset"], table["iterations"]) == ("ppo", "reference", 7)
    assert "modules=12" in table["setting"]
    assert text.startswith("# mlgokit train --problem=inline-size --algorithm=ppo --preset=reference ")
    assert text.endswith("# Without a counterpart:\n# PPOAgent.gradient_clipping = 1.5")


@pytest.mark.parametrize("value", ["__import__('os').abort()", "open('/etc/passwd')", "1 + exit()", "[x for x in 'a']"])
def test_nothing_is_executed(value: str):
    with pytest.raises(InputError, match="expected a literal of Python, @name or %name"):
        read_gin([], [f"train_eval.num_modules = {value}"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("include 'missing.gin'", "include 'missing.gin': expected a file in the working folder or one above"),
        ("what is this", "line 1: expected an import, an include or NAME = VALUE, found 'what is this'"),
        ("a.b = (1,", "expected a gin file, found: "),
        ("a.b = " + " " * MOST_BYTES, f"expected at most {MOST_BYTES} bytes, found more"),
    ],
)
def test_what_is_no_gin_file_is_a_sentence(tmp_path: Path, text: str, sentence: str):
    (tmp_path / "x.gin").write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_gin([tmp_path / "x.gin"])


def test_files_that_include_each_other_end(tmp_path: Path):
    (tmp_path / "a.gin").write_text("include 'b.gin'\na.b = 1")
    (tmp_path / "b.gin").write_text("include 'a.gin'\na.c = %d\nd = %e\ne = %d")
    assert read_gin([tmp_path / "a.gin"])["a.b"] == 1
    for number in range(MOST_FILES + 1):
        (tmp_path / f"{number}.gin").write_text(f"include '{number + 1}.gin'")
    with pytest.raises(InputError, match=f"expected at most {MOST_FILES} gin files, found more"):
        read_gin([tmp_path / "0.gin"])
