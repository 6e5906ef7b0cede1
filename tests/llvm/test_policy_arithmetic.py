"""The arithmetic of policies in the plugin's own object files and in numpy, bit by bit, on values that try it hard."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from mlgokit.compiler import process
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.policy.exploration import (
    Exploration,
    choose_column,
    decide_binary,
    draw_factor,
    draw_priority,
    exploration_draws,
)
from mlgokit.policy.network import Gate, Layer, OutputKind, Policy
from mlgokit.policy.normaliser import BELOW_LARGEST, Quantile, fit_quantile, fit_signed_log
from mlgokit.policy.store import save_policy
from mlgokit.problems import INLINE_SIZE, REGALLOC_EVICTION, REGALLOC_PRIORITY, REGALLOC_WEIGHT
from mlgokit.spec import AdviceKind

pytestmark = pytest.mark.llvm

COLUMNS = 7
ROWS = 20 * COLUMNS
FIRST = 99
SPECIAL = np.array([
    0.0, -0.0, np.nan, np.inf, -np.inf, 1e38, -1e38, 3.5e38, 1e300, 5e-324, 255, 256, -256, -257, 0.5,
    2.0**53 + 1, 2.0**62,
])  # fmt: skip
PROBLEM_OF = {
    OutputKind.EFFECT_BYTES: INLINE_SIZE,
    OutputKind.LOGITS: INLINE_SIZE,
    OutputKind.COLUMN_LOGIT: REGALLOC_EVICTION,
    OutputKind.PRIORITY: REGALLOC_PRIORITY,
    OutputKind.LOG2_FACTOR: REGALLOC_WEIGHT,
}
DRIVER = """
#include "shared/Exploration.h"
#include "shared/Policy.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>
using namespace llvm;
using namespace mlgokit;
bool evaluate(char **Words) {
  auto File = MemoryBuffer::getFile(Words[0], false, false), RowsFile = MemoryBuffer::getFile(Words[1], false, false);
  Expected<Policy> P = Policy::parse((*File)->getBuffer(), Words[0]);
  if (!P) {
    errs() << toString(P.takeError());
    return false;
  }
  const Spread S = {std::atof(Words[2]), std::atof(Words[3])};
  const size_t F = P->features().size(), Rows = (*RowsFile)->getBufferSize() / sizeof(double) / F;
  const double *Values = reinterpret_cast<const double *>((*RowsFile)->getBufferStart());
  std::vector<double> Out, Logits;
  std::vector<int64_t> Mask;
  for (size_t R = 0; R < Rows; ++R) {
    ArrayRef<double> Row(Values + R * F, F);
    switch (P->output()) {
    case OutputKind::ColumnLogit:
      Logits.push_back(P->columnLogit(Row));
      Mask.push_back(R % 5 % 3 != 0);
      if (Logits.size() == COLUMNS) {
        const Column Chosen = chooseColumn(Logits, Mask, S, drawAt(FIRST, R));
        Out.insert(Out.end(), Logits.begin(), Logits.end());
        Out.insert(Out.end(), {double(Chosen.Index), Chosen.LogProbability});
        Logits.clear();
        Mask.clear();
      }
      break;
    case OutputKind::Priority:
    case OutputKind::Log2Factor: {
      const double Unit = P->unit(Row);
      const auto Of = P->output() == OutputKind::Priority ? drawPriority : drawFactor;
      const RangeDecision Drawn = Of(Unit, S, drawAt(FIRST, R));
      Out.insert(Out.end(), {Unit, Drawn.Value, Drawn.LogProbability});
      break;
    }
    default: {
      const double Preference = P->preference(Row, [&] { return R % 3 == 0; });
      const Binary Decided = decideBinary(Preference, S, drawAt(FIRST, R));
      Out.insert(Out.end(), {Preference, double(Decided.Yes), Decided.LogProbability});
    }
    }
  }
  outs().write(reinterpret_cast<const char *>(Out.data()), Out.size() * sizeof(double));
  return true;
}
int main(int Count, char **Words) {
  for (int I = 1; I < Count; I += 4)
    if (!evaluate(Words + I))
      return 1;
}
"""


@pytest.fixture(scope="session", params=["as shipped", "narrow"])
def driver(
    toolchain: Toolchain, plugin: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """A program that evaluates policies with the plugin's own object files; or with its loop for old processors."""
    built = plugin.parent
    folder = tmp_path_factory.mktemp("driver")
    narrow = request.param == "narrow"
    network = [built / f"shared/{name}.{'cpp' if narrow else 'o'}" for name in ("Network", "FirstLayer")]
    (folder / "driver.cpp").write_text(DRIVER)
    done = process.run(
        [
            toolchain.clangxx, "-std=c++17", "-fno-rtti", "-fno-exceptions", f"-I{built}",
            "-isystem", str(toolchain.include_dir), f"-DCOLUMNS={COLUMNS}", f"-DFIRST={FIRST}",
            folder / "driver.cpp",
            *(["-O2", "-ffp-contract=off", "-DMLGOKIT_NARROW"] if narrow else []), *network,
            *(built / f"shared/{name}.o" for name in ("Policy", "Evaluator", "Exploration", "Choice")),
            f"-L{toolchain.library_dir}",
            f"-Wl,-rpath,{toolchain.library_dir}", f"-lLLVM-{toolchain.major}", "-o", folder / "driver",
        ],
        timeout_seconds=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "driver"


def make_policy(
    output: OutputKind,
    *,
    weight: float,
    quantile: bool,
    gated: bool,
    doubt: float,
    rng: np.random.Generator,
    recurrent: int = 0,
) -> Policy:
    count, members = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    usual = rng.normal(size=(500, count)) * 100
    normaliser = fit_quantile(usual, count=30) if quantile else fit_signed_log(usual)
    if isinstance(normaliser, Quantile) and count > 1:
        normaliser = replace(normaliser, lengths=tuple(rng.integers(1, 31, count).tolist()))
    if isinstance(normaliser, Quantile) and rng.random() < 0.5:
        normaliser = replace(normaliser, nan=float(rng.choice([BELOW_LARGEST, -7.5])))
    widths = [normaliser.width, int(rng.integers(1, 70)), int(rng.integers(1, 20)), output.width]
    shapes = list(itertools.pairwise(widths))
    if recurrent:
        shapes[2:] = [(widths[2] + recurrent, 4 * recurrent), (recurrent, output.width)]
    return Policy(
        problem=PROBLEM_OF[output].name,
        features=tuple("abcdef"[:count]),
        normaliser=normaliser,
        layers=tuple(
            Layer(
                np.clip(rng.normal(size=(members, inputs, outputs)) * weight, -3e38, 3e38).astype(np.float32),
                rng.normal(size=(members, outputs)).astype(np.float32),
            )
            for inputs, outputs in shapes
        ),
        recurrent=recurrent,
        output=output,
        bytes_per_unit=3.0,
        caution=0.5 if output is OutputKind.COLUMN_LOGIT else 0.0,
        doubt=doubt,
        mask="mask" if output is OutputKind.COLUMN_LOGIT else "",
        gate=Gate(feature="a", margins=(np.inf, weight)) if gated else None,
    )


def evaluated(policy: Policy, rows: npt.NDArray[np.float64], exploration: Exploration) -> list[float]:
    """What the driver gives, in numpy."""
    found: list[float] = []
    match policy.output:
        case OutputKind.COLUMN_LOGIT:
            for last in range(COLUMNS - 1, len(rows), COLUMNS):
                first = last - COLUMNS + 1
                logits = policy.column_logits(rows[None, first : last + 1])[0].tolist()
                mask = [row % 5 % 3 != 0 for row in range(first, last + 1)]
                found += [*logits, *choose_column(logits, mask, exploration, *exploration_draws(FIRST, last))]
        case OutputKind.PRIORITY | OutputKind.LOG2_FACTOR:
            draw = draw_priority if policy.output is OutputKind.PRIORITY else draw_factor
            for row, unit in enumerate(policy.units(rows).tolist()):
                found += [unit, *draw(unit, exploration, *exploration_draws(FIRST, row))]
        case OutputKind.EFFECT_BYTES | OutputKind.LOGITS:
            preferences = policy.preferences(rows, np.arange(len(rows)) % 3 == 0).tolist()
            for row, preference in enumerate(preferences):
                found += [preference, *decide_binary(preference, exploration, *exploration_draws(FIRST, row))]
    return found


@pytest.mark.parametrize(
    ("output", "recurrent"),
    [*((output, False) for output in OutputKind), (OutputKind.LOGITS, True)],
    ids=[*(output.value for output in OutputKind), "recurrent"],
)
def test_the_plugins_numbers_are_numpys(driver: Path, tmp_path: Path, output: OutputKind, recurrent: bool) -> None:
    rng = np.random.default_rng(5)
    explorations = [(0.0, 0.0), (0.5, 0.0), (3.0, 0.3), (1e-3, 1.0)]
    effects = output is OutputKind.EFFECT_BYTES
    words: list[str | Path] = []
    wanted: list[list[float]] = []
    may_leave: list[bool] = []
    for weight, (temperature, flip), quantile, gated, doubt in itertools.product(
        (1.0, 1e18, 1e37),
        explorations,
        (False, True),
        (False, True) if effects else (False,),
        (0.0, 0.7) if effects else (0.0,),
    ):
        policy = make_policy(
            output, weight=weight, quantile=quantile, gated=gated, doubt=doubt, rng=rng,
            recurrent=int(rng.integers(1, 13)) if recurrent else 0,
        )  # fmt: skip
        flip_probability = 0.0 if output.advice_kind is AdviceKind.REAL else flip
        exploration = Exploration(temperature=temperature, flip_probability=flip_probability)
        shape = (ROWS, len(policy.features))
        usual = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 9, shape)
        rows = np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), usual)
        policy_file, rows_file = tmp_path / f"{len(wanted)}.policy", tmp_path / f"{len(wanted)}.rows"
        save_policy(policy, policy_file)
        rows.tofile(rows_file)
        words += [policy_file, rows_file, repr(temperature), repr(flip_probability)]
        wanted.append(evaluated(policy, rows, exploration))
        may_leave.append(effects and bool(doubt) and not gated and policy.members > 1)

    # All in one process: to start it takes longer than to evaluate a policy.
    done = process.run([driver, *words], timeout_seconds=120)

    assert done.returncode == 0, done.stderr
    left: set[float] = set()
    values = np.frombuffer(done.stdout)
    assert len(values) == sum(map(len, wanted))
    for expected, leaves in zip(wanted, may_leave, strict=True):
        found, values = values[: len(expected)], values[len(expected) :]
        np.testing.assert_array_equal(found, expected)
        if leaves:
            left |= set(found[::3].tolist()) & {2.0, -2.0}
    assert left == ({2.0, -2.0} if effects else set())
