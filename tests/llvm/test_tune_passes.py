"""Passes that are left out where a function is smaller without them: a small program."""

import dataclasses
import json
from pathlib import Path

import pytest
from tests.llvm.searching import tune_until
from tests.llvm.small_calls import source_of_calls

from mlgokit.commands import check, tune
from mlgokit.commands.options import COMPILER
from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import UsageError
from mlgokit.tables.overrides import OPTIMIZER_PASSES, PASSES, read_plugin_overrides
from mlgokit.tune.result import Tuned

pytestmark = pytest.mark.llvm

SOURCE = """
void show(const char *, int);
int state(int x, const int *p, int n) {
  int found = 0;
  for (int i = 0; i < n; i++) {
    if (p[i] == x) { found++; continue; }
    if (p[i] > 1000) { show("large", p[i]); if (p[i] > 5000) return found; }
    switch (p[i] & 7) {
    case 1: show("one", i); break;
    case 2: show("two", i); break;
    case 5: found += p[i] * 1234567; show("five", found); break;
    default: found ^= 0x12345678;
    }
  }
  return found;
}
void fill(int *p, int n, int x) { for (int i = 0; i < n; i++) p[i] = x * 3 + n; }
int both(const int *p, int n) { return n > 3 ? state(p[0], p + 1, n) + p[n] * n : state(n, p, 2) - p[n] * n; }
long apart(long a, long b) { return a > b ? a / 7 : b % 9 ? b * 12345678901 : a + b; }
"""
LOOPS = """
int lower(int);
void show(int, int);
int each(const char *s, int from, int to) {
  int i, j;
  for (i = from; i < to; i++) {
    for (j = i; j < to; j++) if (lower(s[j]) == lower(s[i])) break;
    if (j - i > 5) lower(j);
  }
  return lower(i) + from;
}
int ends(const char *s, const char *with, int most, int n) {
  int i, j;
  for (i = most - n, j = 0; s[i]; i++, j++) if (lower(s[i]) != lower(with[j])) return 0;
  return i - j;
}
void spread(int *a, const short *b, int n, int m) {
  int i, j, k = 0;
  for (i = 0; i < n; i++) {
    for (j = m - 1; j > 0; j -= 2) { a[i * m + j] = b[j] + b[k]; k += 3; if (lower(a[k])) show(i, j); }
    show(a[i * m], b[i]);
  }
  show(k, i);
}
int runs(const unsigned char *p, int n) {
  int found = 0, i = 0;
  while (i < n) {
    int j = i + 1;
    while (j < n && p[j] == p[i] && j - i < 255) j++;
    if (j - i > 3) { show(p[i], j - i); found++; }
    i = j;
  }
  return found;
}
"""


def search_of_passes(
    folder: Path, toolchain: Toolchain, *, outputs: tuple[str, ...], source: str = SOURCE, shared: tuple[str, ...] = ()
) -> tune.Tune:
    """Two seconds for passes alone, on the source compiled to each of the outputs, to the last one with options."""
    (folder / "work.c").write_text(source)
    entries = [
        {
            "directory": str(folder),
            "file": "work.c",
            "arguments": ["clang", "-Oz", *(shared if output == outputs[-1] else ()), "-c", "work.c", "-o", output],
        }
        for output in outputs
    ]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return tune.Tune(
        compile_commands=folder / "compile_commands.json",
        folder=folder / "tune",
        output=folder / "tuned.so",
        budget="2s",
        pass_share=1.0,
        allocation_share=0.0,
        slowdown=float("inf"),
        compiler=dataclasses.replace(COMPILER, llvm=toolchain.major),
    )


def leaves_passes_out(tuned: Tuned) -> bool:
    """Whether passes of the optimizer and of the code generator were tried, and some of the optimizer left out."""
    optimizer, passes = tuned.optimizer_passes, tuned.passes
    if optimizer is None or passes is None or optimizer.changed == 0:
        return False
    return (
        optimizer.compilations > 5
        and passes.trials > 40
        and all(one.tuned_bytes < one.plain_bytes for one in tuned.modules)
    )


@pytest.mark.usefixtures("measured_copies", "other_targets")
def test_the_search_over_passes_starts_from_what_pays_of_the_policy_of_passes(toolchain: Toolchain, tmp_path: Path):
    # No policy is for that processor, so that none in the plugin can save more than the passes by themselves.
    shared = ("--target=riscv64-unknown-elf", "-ffreestanding")
    config = search_of_passes(tmp_path, toolchain, outputs=("work.o",), source=LOOPS, shared=shared)
    config = dataclasses.replace(config, budget="0s")
    found = tune.run(config).optimizer_passes
    without = dataclasses.replace(config, folder=tmp_path / "without", shipped_policies="off")
    bare = tune.run(without).optimizer_passes
    assert found is not None
    assert bare is not None
    assert (found.changed > 0, bare.changed) == (True, 0)
    assert found.after_bytes < found.before_bytes == bare.after_bytes


def test_a_source_of_several_targets_is_checked_as_one(toolchain: Toolchain, tmp_path: Path):
    source = source_of_calls("void part(void)", 24)
    config = search_of_passes(tmp_path, toolchain, outputs=("work.o", "other.o"), source=source)
    tune.run(dataclasses.replace(config, pass_share=0.0, budget="1s", shipped_policies="off"))
    found = check.run(check.Check(plugin=config.output, compile_commands=config.compile_commands))
    assert len(found.modules) == 2
    assert (found.kept, found.gone, found.is_stale) == (found.decisions, (), False)
    assert found.decisions > 0
    assert found.kept < sum(one.kept for one in found.modules)


@pytest.mark.every_major
@pytest.mark.usefixtures("measured_copies")
def test_passes_are_left_out_verified_and_checked(toolchain: Toolchain, plugin: Path, tmp_path: Path):
    config = search_of_passes(tmp_path, toolchain, outputs=("work.o",))

    found = tune_until(leaves_passes_out, config)

    optimizer = found.optimizer_passes
    assert optimizer is not None
    assert optimizer.changed > 0
    assert optimizer.compilations > 5
    assert optimizer.after_bytes < optimizer.before_bytes
    assert (
        found.modules[0].optimizer_passes
        == optimizer.changed
        == len(read_plugin_overrides(OPTIMIZER_PASSES, config.output))
    )
    assert found.passes is not None
    assert found.passes.before_bytes == optimizer.after_bytes
    assert found.passes.after_bytes <= found.passes.before_bytes
    assert found.tuned_bytes < found.plain_bytes
    assert found.passes.trials > 40
    assert found.modules[0].passes == found.passes.changed == len(read_plugin_overrides(PASSES, config.output))
    plain, tuned = tmp_path / "plain.o", tmp_path / "tuned.o"
    for output, options in ((plain, []), (tuned, [found.flag])):
        command = [toolchain.clang, "-Oz", *options, "-c", tmp_path / "work.c", "-o", output]
        assert process.run(command, timeout_seconds=60).returncode == 0
    assert tuned.read_bytes() != plain.read_bytes()

    again = check.run(check.Check(plugin=config.output, compile_commands=config.compile_commands))

    changed = found.passes.changed + optimizer.changed
    assert (again.passes, again.passes_kept) == (changed, changed)
    assert again.tuned_bytes < again.plain_bytes
    assert again.to_json()["passes_kept"] == changed


def test_a_source_that_is_compiled_twice_is_searched_once_and_changes_in_both_modules(
    toolchain: Toolchain, plugin: Path, tmp_path: Path
):
    config = search_of_passes(tmp_path, toolchain, outputs=("static.o", "shared.o"))

    found = tune_until(leaves_passes_out, config)

    assert found.optimizer_passes is not None
    assert found.optimizer_passes.changed > 0
    assert [one.optimizer_passes for one in found.modules] == [found.optimizer_passes.changed] * 2
    assert found.modules[0].tuned_bytes == found.modules[1].tuned_bytes < found.modules[0].plain_bytes


@pytest.mark.slow  # the test above holds that it is searched once
def test_a_source_that_is_position_independent_the_second_time_is_searched_once(
    toolchain: Toolchain, plugin: Path, tmp_path: Path
):
    """As libtool does. Position-independent code gets the address of ``most``, which may be another's, from a table."""
    config = search_of_passes(
        tmp_path,
        toolchain,
        outputs=("static.o", "shared.o"),
        source="int most = 1000;" + SOURCE.replace("p[i] > 1000", "p[i] > most"),
        shared=("-fPIC",),
    )

    found = tune_until(leaves_passes_out, config)

    first, second = found.modules
    assert first.plain_bytes != second.plain_bytes
    assert found.optimizer_passes is not None
    assert first.optimizer_passes == second.optimizer_passes == found.optimizer_passes.changed > 0
    assert first.tuned_bytes < first.plain_bytes
    assert second.tuned_bytes < second.plain_bytes


def test_shares_that_cannot_be_are_refused(tmp_path: Path):
    config = tune.Tune(corpus=tmp_path, pass_share=1.2)
    with pytest.raises(UsageError, match=r"--pass-share: expected a number from 0 to 1, found 1\.2"):
        tune.run(config)
    assert dataclasses.replace(config, pass_share=0.7, allocation_share=0.9).share_for_passes == pytest.approx(0.1)
    with pytest.raises(UsageError, match="--slowdown: expected a number of at least 0"):
        tune.run(dataclasses.replace(config, pass_share=0.1, slowdown=-1.0))
