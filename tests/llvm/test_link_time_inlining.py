"""Inlining, and passes that do not run, in ld.lld and in compile steps before it, for full and for thin LTO."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.compilation import read_changes
from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides, Stage, TrialRequest, read_trial_results
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.tables.overrides import OPTIMIZER_PASSES, PASSES, write_overrides
from mlgokit.traces import read_log
from mlgokit.tune.spaces.passes.trials import pass_number

pytestmark = [pytest.mark.llvm, pytest.mark.every_major]

SIMPLIFYING = ("InstCombinePass", "SROAPass", "GVNPass", "DSEPass", "EarlyCSEPass", "MemCpyOptPass")
# Each part calls functions of the other one, which only the linker can inline; a variable is in a register then.
PART = """
extern int {other}(int, const int *);
static int square(int x) {{ return x * x; }}
int {name}(int x, const int *p) {{
  int s = x;
  for (int i = 0; i < 9; ++i) s += square(p[i]) ^ square(s);
  return s;
}}
int twice_{name}(const int *p) {{ return {name}(p[0], p) + {other}(p[1], p) + {other}(p[2], p); }}
extern void halve_{other}(int *);
void halve_{name}(int *p) {{ *p /= 2; }}
int halved_{name}(int x) {{ while (x & 1) halve_{other}(&x); return x; }}
"""


@pytest.fixture(params=["full", "thin"])
def link(request: pytest.FixtureRequest, toolchain: Toolchain, plugin: Path, tmp_path: Path) -> Callable[..., bytes]:
    """``link(level, option, policy=..., log=..., any_level="1")``: the image that ld.lld makes of two parts."""

    def run(level: str, *more: str, **settings: str) -> bytes:
        for name, other in (("one", "two"), ("two", "one")):
            (tmp_path / f"{name}.c").write_text(PART.format(name=name, other=other))
            words = [toolchain.clang, level, f"-flto={request.param}", "-fPIC", "-c", f"{name}.c", "-o", f"{name}.o"]
            done = process.run(words, timeout_seconds=60, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        assert toolchain.lld is not None
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")}
        environment |= {f"MLGOKIT_{key.upper()}": value for key, value in settings.items()}
        load = [f"--load-pass-plugin={plugin}"] if settings else []
        words = [toolchain.lld, "-shared", "-Bsymbolic", *load, *more, "one.o", "two.o", "-o", "image.so"]
        done = process.run(words, timeout_seconds=60, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "image.so").read_bytes()

    return run


def test_modules_for_size_are_decided_in_the_linker(link: Callable[..., bytes], tmp_path: Path):
    plain = link("-Oz")

    assert link("-Oz", policy=":default", log="lto.log") == plain
    assert sum(read_log(path).observation_count for path in tmp_path.glob("lto.log*")) > 0
    assert link("-Oz", policy=":always") != plain


def test_other_modules_are_decided_on_request_only(link: Callable[..., bytes], tmp_path: Path):
    plain = link("-O2")

    assert link("-O2", policy=":never", log="lto.log") == plain
    assert not list(tmp_path.glob("lto.log*"))
    assert link("-O2", policy=":never", log="lto.log", any_level="1") != plain
    assert sum(read_log(path).observation_count for path in tmp_path.glob("lto.log*")) > 0


def test_passes_do_not_run_in_the_linker(link: Callable[..., bytes], tmp_path: Path):
    plain = link("-Oz")
    (tmp_path / "none").write_bytes(TrialRequest(stages=Stage.PASSES).to_bytes())

    # Each module has a list, which takes the place of the one before.
    assert link("-Oz", "--threads=1", policy=":default", changed="list", trials="none", tried="tried") == plain
    # In the optimizer they are left out each time: any of these puts the variable into a register.
    for kind, keys, nth, left_out in (
        (OPTIMIZER_PASSES, read_changes(tmp_path / "list").changed, 65_535, SIMPLIFYING),
        (PASSES, {one.key for one in read_trial_results(tmp_path / "tried")}, 0, ("block-placement",)),
    ):
        for table, question in (("yes", 60_000), ("no", nth)):
            passes = np.array([(pass_number(name), question, 0) for name in left_out], OVERRIDE)
            write_overrides(kind, tmp_path / table, dict.fromkeys(keys, Overrides(passes=passes)))
        assert link("-Oz", **{kind.table: "yes"}) == plain
        assert link("-Oz", **{kind.table: "no"}) != plain, kind.called


@pytest.mark.parametrize("kind", ["-flto", "-flto=thin"])
def test_a_policy_changes_no_compile_step_and_no_link(
    toolchain: Toolchain, plugin: Path, tmp_path: Path, never_policy: Path, kind: str
):
    environment = {**os.environ, "MLGOKIT_POLICY": str(never_policy)}
    (tmp_path / "a.c").write_text(PART.format(name="one", other="one"))

    def made(*words: str | Path) -> bytes:
        # The path of the object is in its bitcode's symbol table.
        argv = [toolchain.clang, "-Oz", "-fPIC", "-c", "a.c", "-o", "a.o", *words]
        done = process.run(argv, timeout_seconds=60, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "a.o").read_bytes()

    def image(*words: str) -> bytes:
        argv = [str(toolchain.lld), "-shared", *words, "a.o", "-o", "image.so"]
        done = process.run(argv, timeout_seconds=60, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "image.so").read_bytes()

    assert made() != made(f"-fpass-plugin={plugin}"), "without link-time optimization it decides"
    plain = made(kind)
    assert made(kind, f"-fpass-plugin={plugin}") == plain
    assert image() == image(f"--load-pass-plugin={plugin}")
