"""What ``import mlgokit`` offers, and that the examples need nothing else."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import mlgokit

ROOT = Path(__file__).parent.parent
PUBLIC = """
    Advice Advisor BusyError Check ClangCompiler Compilation CompileRequest CompileStatus Compiler CompilerEnvironment
    CompilerOptions Corpus DecisionTable Evaluate Evaluation Explain ExportedPlugin Extract FakeCompiler Fetch
    INLINE_SIZE Import InputError Learning Log MlgokitError Module ObjectSizes Observation PASS_SELECTION PROBLEMS
    PluginUse Policy PolicyAdvisor Problem REGALLOC_EVICTION REGALLOC_PRIORITY REGALLOC_WEIGHT ReuseError Size
    StorageError ToolError Toolchain Trace Train Tune UsageError build_plugin channel_use clang_words command drive
    drive_channels export_plugin find_toolchain load_corpus load_policy measure_object open_environment read_log
    read_table run_command save_policy training_modules
""".split()  # noqa: SIM905  (words are read more easily)


def test_the_public_names_are_these():
    assert mlgokit.__all__ == PUBLIC
    assert set(PUBLIC) <= set(dir(mlgokit))


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_documented(name: str):
    if name in {"CompilerEnvironment", "open_environment"}:
        pytest.importorskip("gymnasium")
    value = getattr(mlgokit, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        assert inspect.getdoc(value), name
        assert not (inspect.getdoc(value) or "").startswith(f"{name}("), name
    assert not (Path(mlgokit.__file__).parent / name).exists(), "a part of the package has the same name"


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="module 'mlgokit' has no attribute 'nothing'"):
        mlgokit.nothing  # noqa: B018


def test_type_checkers_are_told_the_same_names():
    (block,) = (node for node in ast.parse(Path(mlgokit.__file__).read_text()).body if isinstance(node, ast.If))
    told = {
        (node.module, alias.asname)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    assert told == {(f"mlgokit.{module}", name) for module, names in mlgokit._PLACES.items() for name in names}


def test_importing_the_package_imports_nothing_else():
    loaded = "import sys, mlgokit; print(*sorted({word.split('.')[0] for word in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=60, check=True)
    assert not {"numpy", "jax", "tyro", "rich"} & set(done.stdout.split())


def test_the_examples_import_public_names_only():
    for path in (ROOT / "examples").glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
        modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        assert {module for module in modules if module.startswith("mlgokit")} <= {"mlgokit"}, path.name
