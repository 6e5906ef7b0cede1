"""Inlining, and passes that do not run, in ld.lld and in compile steps before it, for full and for thin LTO."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.compilation import read_pass_changes
from mlgokit.compiler.reuse.trials import OVERRIDE, Overrides, Stage, TrialRequest, read_trial_results
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.policy.store import join_parts, load_policy, save_policy
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
        (OPTIMIZER_PASSES, read_pass_changes(tmp_path / "list").changed, 65_535, SIMPLIFYING),
        (PASSES, {one.key for one in read_trial_results(tmp_path / "tried")}, 0, ("block-placement",)),
    ):
        for table, question in (("yes", 60_000), ("no", nth)):
            passes = np.array([(pass_number(name), question, 0) for name in left_out], OVERRIDE)
            write_overrides(kind, tmp_path / table, dict.fromkeys(keys, Overrides(passes=passes)))
        assert link("-Oz", **{kind.table: "yes"}) == plain
        assert link("-Oz", **{kind.table: "no"}) != plain, kind.called


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The compile step of one source in a folder, and the link of its object, under an inlining policy or a rule."""

    toolchain: Toolchain
    plugin: Path
    folder: Path

    def compiled(self, *words: str, policy: str | Path = "", level: str = "-Oz") -> bytes:
        """The object of a compile step."""
        (self.folder / "a.c").write_text(PART.format(name="one", other="one"))
        load = [f"-fpass-plugin={self.plugin}"] if policy else []
        # The path of the object is in its bitcode's symbol table.
        return self._run([self.toolchain.clang, level, "-fPIC", "-c", "a.c", *words, *load], "a.o", policy)

    def linked(self, policy: str | Path = "") -> bytes:
        """The image of the object of the last compile step."""
        assert self.toolchain.lld is not None
        load = [f"--load-pass-plugin={self.plugin}"] if policy else []
        return self._run([self.toolchain.lld, "-shared", *load, "a.o"], "image.so", policy)

    def _run(self, words: Sequence[str | Path], output: str, policy: str | Path) -> bytes:
        """Run a command, and read its output."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")}
        environment |= {"MLGOKIT_POLICY": str(policy)} if policy else {}
        done = process.run([*words, "-o", output], timeout_seconds=60, cwd=self.folder, env=environment)
        assert done.returncode == 0, done.stderr
        return (self.folder / output).read_bytes()


@pytest.fixture
def steps(toolchain: Toolchain, plugin: Path, tmp_path: Path) -> Steps:
    return Steps(toolchain=toolchain, plugin=plugin, folder=tmp_path)


KINDS = pytest.mark.parametrize("kind", ["-flto", "-flto=thin"])


@KINDS
def test_a_policy_changes_no_compile_step_and_no_link(steps: Steps, never_policy: Path, kind: str):
    assert steps.compiled() != steps.compiled(policy=never_policy), "without link-time optimization it decides"
    plain = steps.compiled(kind)
    assert steps.compiled(kind, policy=never_policy) == plain
    assert steps.linked() == steps.linked(never_policy)


@KINDS
def test_a_policy_for_links_decides_there_and_nowhere_else(steps: Steps, never_policy: Path, tmp_path: Path, kind: str):
    in_links = tmp_path / "links.policy"
    save_policy(replace(load_policy(never_policy), stage="link"), in_links)
    assert steps.compiled() == steps.compiled(policy=in_links), "without link-time optimization LLVM decides"
    # The compile step leaves all calls to the link.
    assert steps.compiled(kind) != steps.compiled(kind, policy=in_links) == steps.compiled(kind, policy=":never")
    assert steps.linked(in_links) == steps.linked(":never") != steps.linked()
    # A link leaves functions to LLVM that are not compiled for size.
    assert steps.compiled(kind, level="-O2") == steps.compiled(kind, policy=in_links, level="-O2")
    assert steps.linked(in_links) == steps.linked()


@KINDS
def test_each_stage_has_its_own_part_of_a_file(steps: Steps, never_policy: Path, tmp_path: Path, kind: str):
    never = load_policy(never_policy)
    always = replace(never, layers=(replace(never.layers[0], bias=never.layers[0].bias[:, ::-1].copy()),))
    both, one = tmp_path / "both.policy", tmp_path / "one.policy"
    save_policy(join_parts([always, replace(never, stage="link")]), both)
    save_policy(always, one)
    assert steps.compiled(policy=both) == steps.compiled(policy=one) != steps.compiled(policy=never_policy)
    steps.compiled(kind)
    assert steps.linked(both) == steps.linked(":never") != steps.linked(":always")
