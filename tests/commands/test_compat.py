"""Calls of the reference's tools and of mlgo-utils become commands of mlgokit; what is not understood is refused."""

from pathlib import Path

import pytest

from mlgokit.commands.compat import Compat, render, run
from mlgokit.commands.compat_tools import TOOLS, plan_call
from mlgokit.commands.help import options_of, split_call
from mlgokit.commands.parser import parse
from mlgokit.commands.table import COMMANDS
from mlgokit.corpus.corpus import load_corpus
from mlgokit.errors import UsageError
from mlgokit.terminal import open_console


def words(*call: str) -> list[str]:
    """The one command of a call, as a line."""
    (command,) = plan_call(call).commands
    return list(command)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("--input=b/compile_commands.json --input_type=json", "--compile-commands=b/compile_commands.json --embedded"),
        ("--input p --input_type params --obj_base_dir b", "--params=p --object-base=b"),
        ("--input=d --input_type=directory --num_workers=3", "--objects=d"),
        ("--input=q --input_type=bazel_aquery --obj_base_dir=b", "--aquery=q --object-base=b"),
        ("--thinlto_build=local --obj_base_dir=b", "--thinlto=b"),
        ("-input=d -input_type=directory -thinlto_build=distributed", "--objects=d"),
    ],
)
def test_extract_ir(call: str, wanted: str):
    found = words("extract_ir", "--output_dir=out", *call.split())
    assert found[:2] == ["corpus", "import"]
    assert {*wanted.split(), "--corpus=out"} <= {*found}
    assert ("--distributed" in found) == ("distributed" in call)
    assert ("--workers=3" in found) == ("num_workers" in call)


def test_extract_ir_passes_filters_and_names_of_sections_on():
    call = ["extract_ir", "--input=d", "--input_type=directory", "--output_dir=o", "--llvm_objcopy_path=/x"]
    plan = plan_call(
        [*call, "--cmd_filter=^-Oz$", "--cmd_section_name=__LLVM,__cmdline", "--bitcode_section_name=.llvmbc"]
    )
    assert plan.commands[0][4:] == ("--command-filter=^-Oz$", "--command-section=__LLVM,__cmdline")
    assert plan.notes == ("--llvm_objcopy_path: sections are read without it",)
    assert "--command-filter=None" not in words(*call, "--cmd_filter=None")


def test_a_local_thinlto_build_is_not_filtered():
    call = ["extract_ir", "--thinlto_build=local", "--output_dir=o", "--cmd_filter=^-O2", "--llvm_objcopy_path=/x"]
    assert plan_call(call).notes == (
        "--cmd_filter has no effect with --thinlto_build=local, there either",
        "--llvm_objcopy_path has no effect with --thinlto_build=local, there either",
    )


def test_a_script_is_named_by_its_path_and_options_of_ours_follow_a_dash():
    path = "compiler_opt/tools/combine_training_corpus.py"
    assert words(path, "--root_dir=r", "--", "--corpus=all") == ["corpus", "combine", "r", "--corpus=all"]


def test_a_default_trace(tmp_path: Path):
    (tmp_path / "g.gin").write_text("config_registry.get_configuration.implementation=@configs.RegallocEvictionConfig")
    plan = plan_call(
        [
            "generate_default_trace.py", "--data_path=c", "--output_path=t", "--output_performance_path=p.csv",
            f"--gin_files={tmp_path / 'g.gin'}", "--sampling_rate=0.2", "--module_filter=a.*", "--num_workers=2",
            "--key_filter=f", "--keys_file=k", "--gin_bindings=problem_config.flags_to_add.add_flags=('-O1',)",
        ]
    )  # fmt: skip
    assert plan.commands == (
        (
            "trace", "--corpus=c", "--output=t.traces", "--tfrecord=t", "--performance=p.csv", "--sampling-rate=0.2",
            "--module-filter=a.*", "--key-filter=f", "--keys-file=k", "--problem=regalloc-eviction", "--workers=2",
            "--add-options=-O1",
        ),
    )  # fmt: skip
    assert plan.names_corpus == (Path("t.corpus"), Path("c"))


def test_flags_of_earlier_versions():
    call = ["generate_default_trace", "--data_path=c", "--output_path=t", "--clang_path=/c", "--llvm_size_path=/s"]
    plan = plan_call([*call, "--compile_task=inlining"])
    assert "--problem=inline-size" in plan.commands[0]
    assert plan.notes == ("--clang_path has no effect here", "--llvm_size_path has no effect here")
    assert "--problem=regalloc-eviction" in words(*call, "--compile_task=regalloc")
    gin = ("train_eval.agent_config_type=@agents.PPOAgentConfig", "train_eval.num_modules=100")
    given = (f"--gin_bindings={binding}" for binding in gin)
    trained = words("train_locally", "--root_dir=r", "--data_path=c", "--num_modules=9", *given)
    assert trained.index("--setting=modules=9") > trained.index("--setting=modules=100")
    assert words("sparse_bucket_generator", "--input=t", "--output_dir=v") == ["vocab", "--tfrecord=t", "--output=v"]


def test_a_vocabulary_is_that_of_the_working_folder_or_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    here, checkout = tmp_path / "here", tmp_path / "checkout"
    (checkout / "rl/vocab").mkdir(parents=True)
    here.mkdir()
    monkeypatch.chdir(here)
    (checkout / "rl/g.gin").write_text("get_observation_processing_layer_creator.quantile_file_dir='rl/vocab'")
    call = ["train_locally", "--root_dir=r", "--data_path=c", f"--gin_files={checkout}/rl/g.gin"]
    assert f"--vocab={checkout}/rl/vocab" in words(*call)
    (here / "rl/vocab").mkdir(parents=True)
    assert "--vocab=rl/vocab" in words(*call)


def test_a_folder_with_a_model_is_imported_and_a_policy_of_ours_stands_for_a_saved_one(tmp_path: Path):
    (tmp_path / "saved_policy").mkdir()
    (tmp_path / "saved_policy" / "model.tflite").touch()
    call = ["generate_default_trace", "--data_path=c", "--output_path=t", f"--policy_path={tmp_path}/saved_policy"]
    first, second = plan_call(call).commands
    assert first == ("import-policy", f"{tmp_path}/saved_policy", "--output=t.policy")
    assert "--policy=t.policy" in second
    (tmp_path / "final.policy").touch()
    (only,) = plan_call([*call[:-1], f"--policy_path={tmp_path}/saved_collect_policy"]).commands
    assert f"--policy={tmp_path}/final.policy" in only


def test_trainings(tmp_path: Path):
    ppo = words("train_locally", "--root_dir=r", "--data_path=c", "--num_workers=4", "--compilation_timeout=30")
    assert ppo[:1] == ["train"]
    assert {"--corpus=c", "--output=r", "--algorithm=ppo", "--preset=reference", "--workers=4"} <= {*ppo}
    assert "--timeout-seconds=30" in ppo

    trained_on = tmp_path / "t.corpus"
    trained_on.write_text("/where/it/is\n")
    cloned = words("train_bc", "--root_dir=r", f"--data_path={tmp_path}/t")
    assert {"--corpus=/where/it/is", "--algorithm=behavioural-cloning"} <= {*cloned}
    with pytest.raises(UsageError, match=r"--data_path: expected one training set of `mlgokit compat generate_default"):
        plan_call(["train_bc", "--root_dir=r", "--data_path=elsewhere"])

    regression = "--gin_bindings=BlackboxLearnerConfig.blackbox_optimizer=%Algorithm.SKLEARN_REGRESSION"
    es = words("es_trainer", "--output_path=o", "--train_corpora=c", "--grad_reg_alpha=0.2", regression)
    assert "--algorithm=es" in es
    assert es[es.index("--setting=ridge=0.01") + 1] == "--setting=ridge=0.2"
    assert "--setting=scaled=true" in words(
        "es_trainer", "--output_path=o", "--train_corpora=c", "--pretrained_policy_path=p.policy"
    )


def test_a_training_from_a_policy_has_its_vocabulary(tmp_path: Path):
    call = ["train_locally", "--root_dir=r", "--data_path=c"]
    vocab = f"--gin_bindings=get_observation_processing_layer_creator.quantile_file_dir='{tmp_path}'"
    assert f"--vocab={tmp_path}" in words(*call, vocab)
    found = words(*call, vocab, "--gin_bindings=train_eval.warmstart_policy_dir='p.policy'")
    assert "--start=p.policy" in found
    assert not [word for word in found if word.startswith("--vocab")]


def test_flags_without_an_effect_are_told():
    call = ["generate_vocab", "--input=t", "--output_dir=v", "--verbosity=-1", "--noquiet", "--compilation_timeout=9"]
    assert plan_call(call).notes == tuple(
        f"--{flag} has no effect here" for flag in ("verbosity", "quiet", "compilation_timeout")
    )


def test_vocabularies_and_importance():
    assert words("generate_vocab", "--input=t", "--output_dir=v", "--num_buckets=9", "--parallelism=8") == [
        "vocab", "--tfrecord=t", "--output=v", "--num-buckets=9",
    ]  # fmt: skip
    assert words("feature_importance", "--data_path=t", "--model_path=m.policy", "--output_file=i.json") == [
        "importance", "m.policy", "--traces=t.traces", "--output=i.json",
    ]  # fmt: skip


def test_policies_are_combined(tmp_path: Path):
    (tmp_path / "size").mkdir()
    (tmp_path / "size/model.tflite").write_bytes(b"")
    call = ["combine_tfa_policies.py", "--policies_names=size", "--policies_names=speed", "--combined_policy_path=out/"]
    plan = plan_call([*call, f"--policies_paths={tmp_path / 'size'}", "--policies_paths=speed.policy"])
    assert plan.commands == (
        ("import-policy", str(tmp_path / "size"), "--output=out.size.policy"),
        ("export", "llvm", "out.size.policy", "speed.policy", "--output=out/", "--names", "size", "speed"),
    )
    with pytest.raises(UsageError, match="found 2 names of 1 policies; give as many, in the same order"):
        plan_call([*call, "--policies_paths=speed.policy"])
    words = ["export", "llvm", "a.policy", "b.policy", "--output=out", "--names", "size", "speed"]
    parsed = parse(words, ["export llvm"])[0].command
    assert (parsed.policies, parsed.names) == ((Path("a.policy"), Path("b.policy")), ("size", "speed"))


def test_functions_are_extracted_and_grouped():
    plan = plan_call(
        ["extract_functions.py", "--optimized_corpus=c", "--function_list=l", "--output_path=f", "--thread_count=2"]
    )
    assert plan.commands == (("corpus", "functions", "c", "--corpus=f", "--list=l", "--workers=2"),)
    plan = plan_call(["group_functions", "--function_folder=f", "--output_folder=g", "--llvm_link_path=/x"])
    assert plan.commands == (("corpus", "group", "f", "--corpus=g"),)
    assert plan.notes == ("--llvm_link_path: the program beside clang is taken, or --llvm says which",)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ([], "compat: expected the name of a tool"),
        (["train_localy"], "found 'train_localy'; did you mean train_locally?"),
        (
            ["make_corpus", "--frobnicate=1"],
            r"--input_dir, --output_dir, --default_args, .*'--frobnicate=1'; leave it out, or put .* behind --",
        ),
        (["make_corpus", "--input_dir=a"], "compat make_corpus: expected --output_dir, found no such flag; give it"),
        (["make_corpus", "--input_dir"], "--input_dir: expected a value, found none; give one"),
        (["extract_ir", "--output_dir=o"], "expected either --input or --thinlto_build=local, found both or neither"),
        (["extract_ir", "--output_dir=o", "--input=i", "--thinlto_build=local"], "found both or neither; give one"),
        (["extract_ir", "--output_dir=o", "--thinlto_build=all"], "expected local or distributed, found 'all'"),
        (["extract_ir", "--output_dir=o", "--input=i", "--input_type=x"], "--input_type: expected one of json, params"),
        (["generate_default_trace", "--data_path=c"], "expected --output_path or --output_performance_path"),
        (["generate_default_trace", "--data_path=c", "--output_path=t", "--compile_task=x"], "one of inlining"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(call: list[str], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        plan_call(call)


def test_the_words_of_the_command_line_are_the_tools_own():
    assert split_call(["compat", "make_corpus", "--input_dir=a"]).rest == ("--", "make_corpus", "--input_dir=a")
    assert split_call(["compat", "--help"]).rest == ("--help",)
    assert split_call(["--json", "compat", "gin_config"]).flags == ("--json",)


def test_a_call_is_carried_out_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "bc").mkdir()
    (tmp_path / "bc/a.bc").write_bytes(b"BC\xc0\xde")
    call = ("make_corpus", f"--input_dir={tmp_path}/bc", f"--output_dir={tmp_path}/out", "--default_args=-O2 -c")
    called = run(Compat(call=call))
    # Options without -cc1 are taken as a driver's.
    assert load_corpus(tmp_path / "out").modules[0].command_line[:2] == ("-cc1", "-O2")
    assert called.to_json()["result"]["modules"] == 1
    assert "mlgokit compat: mlgokit corpus import --bitcode=" in capsys.readouterr().err
    render(called, open_console())
    assert "modules: 1" in capsys.readouterr().out


def test_a_word_that_the_command_does_not_have_is_refused_before_anything_runs(tmp_path: Path):
    (tmp_path / "bitcode").mkdir()
    call = ("make_corpus", f"--input_dir={tmp_path}/bitcode", f"--output_dir={tmp_path}/corpus", "--", "--most=1")
    with pytest.raises(UsageError, match=r"expected options of `mlgokit corpus import` after --, found '--most=1'"):
        run(Compat(call=call))
    assert not (tmp_path / "corpus").exists()


def test_every_tool_is_in_the_help():
    (call,) = options_of(COMMANDS["compat"])
    assert [name for name in TOOLS if name not in call.help] == []
