"""A program with many live ranges prints what the plain build prints, however eviction and priority are decided."""

import os
from pathlib import Path

import numpy as np
import pytest

from mlgokit.advisors import RandomLegal
from mlgokit.compiler import process
from mlgokit.compiler.channel.interactive import InteractiveStatus, channel_use, drive_channels
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.problems import PROBLEMS, REGALLOC_EVICTION, REGALLOC_PRIORITY

pytestmark = pytest.mark.llvm

# Hashing, sorting, matrices, text, exceptions that unwind through spilled registers, and setjmp; it checks itself.
SOURCE = r"""
#include <algorithm>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

static uint64_t digest = 14695981039346656037ull;
static void note(const void *p, size_t n) {
  for (size_t i = 0; i < n; ++i) digest = (digest ^ static_cast<const unsigned char *>(p)[i]) * 1099511628211ull;
}
static void require(bool holds, const char *what) {
  if (!holds) { std::printf("failed: %s\n", what); std::exit(3); }
}
struct Dice { uint64_t s; uint32_t operator()() { s = s * 6364136223846793005ull + 1442695040888963407ull;
  return uint32_t(s >> 33); } };

static uint32_t rot(uint32_t x, int k) { return x << k | x >> (32 - k); }
// ChaCha's block function: sixteen values alive all the time.
__attribute__((noinline)) static void block(uint32_t *out, const uint32_t *in) {
  uint32_t x[16];
  std::memcpy(x, in, sizeof x);
#define QR(a, b, c, d) x[a] += x[b]; x[d] = rot(x[d] ^ x[a], 16); x[c] += x[d]; x[b] = rot(x[b] ^ x[c], 12); \
  x[a] += x[b]; x[d] = rot(x[d] ^ x[a], 8); x[c] += x[d]; x[b] = rot(x[b] ^ x[c], 7);
  for (int i = 0; i < 10; ++i) {
    QR(0, 4, 8, 12) QR(1, 5, 9, 13) QR(2, 6, 10, 14) QR(3, 7, 11, 15)
    QR(0, 5, 10, 15) QR(1, 6, 11, 12) QR(2, 7, 8, 13) QR(3, 4, 9, 14)
  }
  for (int i = 0; i < 16; ++i) out[i] = x[i] + in[i];
}
static void ciphers() {
  uint32_t in[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, 0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c,
                     0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c, 1, 0x09000000, 0x4a000000, 0}, out[16];
  block(out, in);
  require(out[0] == 0xe4e7f110 && out[15] == 0x4e3c50a2, "RFC 8439, section 2.3.2");
  for (uint32_t i = 0; i < 50; ++i) { in[12] = i; block(out, in); note(out, sizeof out); }
}

__attribute__((noinline)) static void multiply(double *c, const double *a, const double *b, int n) {
  for (int i = 0; i < n; i += 2)
    for (int j = 0; j < n; j += 4) {
      double c00 = 0, c01 = 0, c02 = 0, c03 = 0, c10 = 0, c11 = 0, c12 = 0, c13 = 0;
      for (int k = 0; k < n; ++k) {
        double p = a[i * n + k], q = a[(i + 1) * n + k];
        double w = b[k * n + j], x = b[k * n + j + 1], y = b[k * n + j + 2], z = b[k * n + j + 3];
        c00 += p * w; c01 += p * x; c02 += p * y; c03 += p * z; c10 += q * w; c11 += q * x; c12 += q * y; c13 += q * z;
      }
      double *r = c + i * n + j, *s = r + n;
      r[0] = c00; r[1] = c01; r[2] = c02; r[3] = c03; s[0] = c10; s[1] = c11; s[2] = c12; s[3] = c13;
    }
}
static void matrices(Dice &dice) {
  const int n = 16;
  double a[n * n], b[n * n], c[n * n];
  for (int i = 0; i < n * n; ++i) { a[i] = int(dice() % 200) - 100; b[i] = int(dice() % 200) - 100; }
  multiply(c, a, b, n);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      require(sum == c[i * n + j], "a product of whole numbers is exact");
    }
  note(c, sizeof c);
}

struct Item { std::string name; long weight; double share; };
static void texts(Dice &dice) {
  std::vector<Item> items;
  for (int i = 0; i < 200; ++i) {
    char text[64];
    long w = long(dice() % 1000) - 500;
    std::snprintf(text, sizeof text, "%c%03u/%+.3f/%lx", 'a' + int(dice() % 26), dice() % 1000, w / 7.0, w & 0xfff);
    items.push_back({text, w, w / 3.0});
  }
  std::stable_sort(items.begin(), items.end(), [](const Item &x, const Item &y) { return x.weight < y.weight; });
  for (size_t i = 1; i < items.size(); ++i) require(items[i - 1].weight <= items[i].weight, "sorted");
  std::sort(items.begin(), items.end(), [](const Item &x, const Item &y) { return x.name < y.name; });
  for (const Item &item : items) { note(item.name.data(), item.name.size()); note(&item.share, sizeof item.share); }
}

struct Guard { long *sum; long by; ~Guard() { *sum += by; } };
__attribute__((noinline)) static long deep(int depth, long a, long b, long c, long d, long e, long f, long *sum) {
  Guard guard{sum, a ^ f};
  if (depth == 0) throw std::runtime_error(std::to_string(a + b * 2 + c * 3 + d * 5 + e * 7 + f * 11));
  long r;
  try { r = deep(depth - 1, b + 1, c ^ depth, d + a, e - b, f + c, a * 3, sum); }
  catch (const std::runtime_error &error) {
    if (depth % 3) throw;
    r = std::atol(error.what()) ^ (a + b + c + d + e + f);
    throw std::runtime_error(std::to_string(r % 1000003));
  }
  return r;
}
static void exceptions() {
  long sum = 0;
  for (int i = 1; i < 20; ++i)
    try { deep(i, i, i + 1, i + 2, i + 3, i + 4, i + 5, &sum); require(false, "thrown"); }
    catch (const std::exception &error) { note(error.what(), std::strlen(error.what())); }
  note(&sum, sizeof sum);
}

static std::jmp_buf back;
__attribute__((noinline)) static void leap(int n) { if (n > 3) std::longjmp(back, n); }
__attribute__((noinline)) static long leaps(long a, long b, long c, long d, long e, long f) {
  volatile int turns = 0;
  int came = setjmp(back);
  turns = turns + 1;
  if (came < 9) leap(came + 5);
  require(turns == 3, "returned twice by longjmp");
  return a * 2 + b * 3 + c * 5 + d * 7 + e * 11 + f * 13 + came;
}

int main() {
  Dice dice{42};
  ciphers(); matrices(dice); texts(dice); exceptions();
  long value = leaps(1, 2, 3, 4, 5, 6);
  require(value == 184 + 10, "values live across setjmp");
  note(&value, sizeof value);
  std::printf("%016llx\n", static_cast<unsigned long long>(digest));
  return 0;
}
"""

EVICTION, PRIORITY = REGALLOC_EVICTION.name, REGALLOC_PRIORITY.name
VARIABLES = {EVICTION: "MLGOKIT_EVICTION_POLICY", PRIORITY: "MLGOKIT_PRIORITY_POLICY"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MLGOKIT_")}


@pytest.fixture(scope="session")
def program(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """SOURCE before optimization, by level."""
    folder = tmp_path_factory.mktemp(f"program-{toolchain.major}")
    (folder / "program.cpp").write_text(SOURCE)
    for level in ("-O2", "-Oz"):
        front = ["-std=c++17", level, "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "program.cpp"]
        done = process.run(
            [toolchain.clangxx, *front, "-o", f"program{level}.bc"], timeout_seconds=60, cwd=folder, env=ENVIRONMENT
        )
        assert done.returncode == 0, done.stderr
    return {level: folder / f"program{level}.bc" for level in ("-O2", "-Oz")}


def words(toolchain: Toolchain, program: dict[str, Path], output: Path, level: str) -> list[str]:
    return [str(toolchain.clangxx), level, "-c", str(program[level]), "-o", str(output)]


def printed(toolchain: Toolchain, output: Path) -> bytes:
    """What the program prints that is linked from this object."""
    program = output.with_suffix("")
    linked = process.run([toolchain.clangxx, output, "-o", program], timeout_seconds=60)
    assert linked.returncode == 0, linked.stderr
    done = process.run([program], timeout_seconds=20)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def expected(toolchain: Toolchain, program: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    output = tmp_path_factory.mktemp("plain") / "plain.o"
    done = process.run(words(toolchain, program, output, "-O2"), timeout_seconds=60, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return printed(toolchain, output)


@pytest.mark.parametrize(
    ("decided", "level", "seed"),
    [
        ((EVICTION,), "-O2", 1),
        ((PRIORITY,), "-O2", 2),
        ((EVICTION, PRIORITY), "-O2", 3),
        ((EVICTION, PRIORITY), "-Oz", 4),
    ],
)
def test_a_program_under_the_plugin(
    toolchain: Toolchain,
    plugin: Path,
    program: dict[str, Path],
    expected: bytes,
    tmp_path: Path,
    decided: tuple[str, ...],
    level: str,
    seed: int,
):
    environment = {**ENVIRONMENT, "MLGOKIT_SEED": str(seed), **{VARIABLES[name]: ":random" for name in decided}}
    argv = [*words(toolchain, program, tmp_path / "program.o", level), f"-fpass-plugin={plugin}"]
    done = process.run(argv, timeout_seconds=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert printed(toolchain, tmp_path / "program.o") == expected


@pytest.mark.parametrize("decided", [(EVICTION,), (PRIORITY,), (EVICTION, PRIORITY)], ids="+".join)
def test_a_program_over_the_pipes(
    toolchain: Toolchain, program: dict[str, Path], expected: bytes, tmp_path: Path, decided: tuple[str, ...]
):
    result = drive_channels(
        words(toolchain, program, tmp_path / "program.o", "-O2"),
        channels={
            name: channel_use(
                PROBLEMS[name],
                major=toolchain.major,
                advisor=RandomLegal(PROBLEMS[name], np.random.default_rng([5, number])),
            )
            for number, name in enumerate(decided)
        },
        timeout_seconds=120,
        answer_timeout_seconds=60,
        env=ENVIRONMENT,
    )
    assert (result.status, result.detail) == (InteractiveStatus.OK, "")
    assert all(log is not None and log.observation_count > 20 for log in result.logs.values())
    assert printed(toolchain, tmp_path / "program.o") == expected
