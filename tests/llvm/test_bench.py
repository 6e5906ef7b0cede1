"""Programs built by real compilers in two ways, run, and counted by callgrind."""

import dataclasses
import hashlib
import json
import os
import shlex
import tarfile
from pathlib import Path

import pytest
from tests.calls import ended

from mlgokit.bench.callgrind import find_callgrind
from mlgokit.bench.record import Bench as BenchRecord, WorkloadResult
from mlgokit.builds.compilers import CompilerOptions
from mlgokit.cli import run_command
from mlgokit.commands.bench import Bench
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError

pytestmark = pytest.mark.llvm

LIBRARY = """
#include <stdint.h>
uint64_t mix(uint64_t x);
static uint64_t spread(uint64_t x) { x ^= x >> 29; x *= 0x9E3779B97F4A7C15u; return x ^ (x << 7); }
static uint64_t twice(uint64_t x) { return spread(spread(x) + LIBRARY_OFFSET); }
uint64_t mix(uint64_t x) { uint64_t s = 0; for (int i = 0; i < 20; i++) s += twice(x + i) ^ spread(s); return s; }
uint64_t mix_more(uint64_t x) { return mix(twice(x)) + twice(mix(x)); }
"""
DRIVER = """
#include <stdint.h>
#include <stdio.h>
uint64_t mix_more(uint64_t x);
int main(int count, char **words) {
  FILE *file = fopen(words[1], "rb");
  uint64_t sum = count;
  for (int letter; (letter = getc(file)) != EOF;) sum += mix_more(sum ^ letter);
  printf("%llu\\n", (unsigned long long)sum);
  return 0;
}
"""
MANIFEST = """
[[project]]
name = "mixer"
language = "c"
standard = "gnu11"
archive = {{ registry = "pypi", package = "mixer", version = "1", file = "mixer-1.tar.gz", sha256 = "{sha256}" }}
root = "mixer-1"
defines = ["LIBRARY_OFFSET=3"]
sources = ["*.c"]
license = "MIT"

[[workload]]
name = "mixer"
kind = "mixing"
projects = ["mixer"]
driver = "driver.c"
run = ["{{inputs}}/input.txt"]
input = [{{ name = "input.txt", kind = "text", size = 3000 }}]
"""


@pytest.fixture(autouse=True)
def valgrind():
    try:
        find_callgrind()
    except ToolError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A list with one workload, whose project's archive is in the cache already."""
    (tmp_path / "mixer.c").write_text(LIBRARY)
    archive = tmp_path / "mixer-1.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "mixer.c", "mixer-1/mixer.c")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    place = tmp_path / "cache" / "archives" / sha256
    place.mkdir(parents=True)
    archive.rename(place / archive.name)
    (tmp_path / "drivers").mkdir()
    (tmp_path / "drivers" / "driver.c").write_text(DRIVER)
    path = tmp_path / "workloads.toml"
    path.write_text(MANIFEST.format(sha256=sha256))
    return path


def bench(manifest: Path, toolchain: Toolchain, **more: object) -> BenchRecord:
    config = Bench(
        manifest=manifest,
        folder=manifest.parent / "bench",
        cache=manifest.parent / "cache",
        counter="callgrind",
        time_seconds=0,
        compiler=CompilerOptions(llvm=toolchain.major, workers=1),
    )
    return run_command(dataclasses.replace(config, **more))


def numbers(one: WorkloadResult) -> list[dict[str, int | None]]:
    return [side.counts.to_json() for side in (one.before, one.after)]


def test_the_same_against_the_same_is_exactly_zero(manifest: Path, toolchain: Toolchain):
    found = bench(manifest, toolchain, time_seconds=60)
    (one,) = found.workloads
    assert (one.failures, one.same_output) == ((), True)
    assert (one.time, one.untimed) == (None, "both builds are the same program, byte for byte")
    before, after = numbers(one)
    assert before == after
    assert one.before.whole == one.after.whole
    assert min(number or 0 for number in before.values()) > 1000
    assert one.before.image == one.after.image
    assert {change.mean for change in found.changes if change.measure in {*before, "image"}} == {0.0}
    assert (found.before.label, found.after.label) == ("plain", "plain")
    cost = one.before.cost
    assert cost is not None
    assert cost.compilations == 2
    assert cost.peak_bytes > 1 << 20


def test_options_policies_and_plugins_are_sides(manifest: Path, toolchain: Toolchain, tmp_path: Path):
    speed = bench(manifest, toolchain, options="-O2")
    never = bench(manifest, toolchain, policy=(":never",))
    for found, label in ((speed, "-O2"), (never, ":never")):
        (one,) = found.workloads
        assert (one.failures, one.same_output, found.after.label) == ((), True, label)
        before, after = numbers(one)
        assert before["instructions"] != after["instructions"]
        assert one.before.image != one.after.image
    # What was the judged side is now the other one: the same numbers, exchanged.
    turned = bench(manifest, toolchain, against_options="-O2")
    assert numbers(turned.workloads[0]) == numbers(speed.workloads[0])[::-1]
    assert (tmp_path / "bench" / "bench.md").read_text().startswith("# plain against -O2\n")
    values = json.loads((tmp_path / "bench" / "bench.json").read_text())
    assert (values["format"], values["format_version"]) == ("mlgokit bench", 1)
    assert values["workloads"][0]["before"]["own"] == numbers(turned.workloads[0])[0]


def test_a_build_that_fails_is_a_row_and_the_exit_code(
    manifest: Path, toolchain: Toolchain, capsys: pytest.CaptureFixture[str]
):
    words = ["bench", "--manifest", str(manifest), "--folder", str(manifest.parent / "bench")]
    words += ["--cache", str(manifest.parent / "cache"), "--llvm", str(toolchain.major), "--time-seconds", "0"]
    assert ended(*words, "--options=-DLIBRARY_OFFSET=nothing") == 1
    assert "mixer: build: after: mixer.c does not compile:" in capsys.readouterr().out


def test_a_build_of_ones_own(toolchain: Toolchain, tmp_path: Path):
    (tmp_path / "mixer.c").write_text(LIBRARY + DRIVER.replace("uint64_t mix_more(uint64_t x);", ""))
    (tmp_path / "input").write_text("some text to read\n" * 20)
    config = Bench(
        build=("{cc} -Oz -DLIBRARY_OFFSET=5 {flags} -c {source}/mixer.c -o mixer.o", "{cc} mixer.o -o mixer"),
        run=shlex.join(["./mixer", str(tmp_path / "input")]),
        source=tmp_path,
        folder=tmp_path / "bench",
        counter="callgrind",
        time_seconds=0,
        compiler=CompilerOptions(llvm=toolchain.major),
    )
    same = run_command(config).workloads[0]
    assert (same.failures, numbers(same)[0]) == ((), numbers(same)[1])
    assert "both builds are the same program, byte for byte; if they should differ" in same.untimed
    other = run_command(dataclasses.replace(config, policy=(":never",))).workloads[0]
    assert (other.failures, other.same_output) == ((), True)
    assert numbers(other)[0] == numbers(same)[0]
    assert numbers(other)[0] != numbers(other)[1]
    assert other.untimed == ""
    assert other.before.image
    assert other.before.image != other.after.image
