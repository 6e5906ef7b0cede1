"""A module in which no move of the local search pays, although much smaller builds are near."""

from pathlib import Path

import pytest

from mlgokit.commands.corpus import import_build
from mlgokit.compiler.compile import ClangCompiler
from mlgokit.compiler.plugin_build import build_plugin
from mlgokit.compiler.request import NEVER
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.corpus.corpus import load_corpus
from mlgokit.progress import say_nothing
from mlgokit.tune.loop import NOTHING_LEFT, run_search
from mlgokit.tune.spaces.inlining.opening import InliningSearch, open_inlining, try_on_all
from mlgokit.tune.spaces.inlining.space import SearchConfig
from mlgokit.tune.spaces.inlining.step import request_of

pytestmark = pytest.mark.llvm

CALLS = 14
"""More than the largest move of the local search."""
BODIES = "\n".join(
    f"    case {one}: return (v[{one}] * v[{one + 1}] ^ v[{one + 2}] / {one + 7}) - v[{one + 5}] * v[{one}];"
    for one in range(CALLS)
)
SOURCE = f"""
static int picked(const int* v, int which) {{
  switch (which) {{
{BODIES}
  }}
  return 0;
}}
""" + "\n".join(f"int use{index}(const int* v) {{ return picked(v, {index}); }}" for index in range(CALLS))


def opened(toolchain: Toolchain, folder: Path, restarts: int) -> InliningSearch:
    return open_inlining(
        load_corpus(folder / "corpus").modules,
        compiler=ClangCompiler(toolchain=toolchain, plugin=build_plugin(toolchain)),
        config=SearchConfig(restarts=restarts),
        folder=folder / "search",
        report=say_nothing,
    )


def test_restarts_find_what_dies_only_if_all_its_calls_are_inlined(toolchain: Toolchain, tmp_path: Path):
    (tmp_path / "use.cc").write_text(SOURCE)
    (tmp_path / "compile_commands.json").write_text(
        f'[{{"directory": "{tmp_path}", "file": "use.cc", "arguments": '
        '["clang++", "-Oz", "-ffunction-sections", "-c", "use.cc", "-o", "use.o"]}]'
    )
    database = tmp_path / "compile_commands.json"
    import_build.run(
        import_build.Import(compile_commands=database, corpus=tmp_path / "corpus", llvm=toolchain.major, workers=1),
        report=say_nothing,
    )
    stuck = opened(toolchain, tmp_path, restarts=0)
    try_on_all(stuck, request_of(policy=NEVER), units=stuck.space.units, report=say_nothing, label="never")
    run_search(stuck, seconds=200, workers=1, report=say_nothing, clock=lambda: stuck.compilations)
    assert (stuck.ended, stuck.space.account.image) == (NOTHING_LEFT, stuck.space.plain_bytes)
    freed = opened(toolchain, tmp_path, restarts=100)
    run_search(freed, seconds=24, workers=1, report=say_nothing, clock=lambda: freed.compilations)
    assert freed.space.account.image < 0.9 * stuck.space.account.image
    assert {one.build.decisions.inlined.all() for one in freed.space.units} == {True}
    again = opened(toolchain, tmp_path, restarts=2)
    run_search(again, seconds=12, workers=1, report=say_nothing, clock=lambda: again.compilations)
    assert again.space.account.image <= freed.space.account.image
