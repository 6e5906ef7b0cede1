"""Limits of memory, files and time of each module, by what its plain compilation took."""

import os
import signal
from pathlib import Path

import pytest

from mlgokit.builds.compilers import CompilerOptions
from mlgokit.compiler.limits import (
    COMPILER_LIMITS,
    LEAST_FILE_BYTES,
    LEAST_MEMORY_BYTES,
    LEAST_SECONDS,
    Limits,
    ModuleLimits,
    describe_exceeded_limit,
    link_limits,
    usable_memory,
    usable_processors,
)
from mlgokit.errors import UsageError

MIB = 1 << 20
SOME = Limits(file_bytes=5 * MIB, memory_bytes=3 << 29, settable=True)


def noted(limits: ModuleLimits, *, memory_mib: int = 1, object_mib: int = 1, seconds: float = 0.1) -> ModuleLimits:
    limits.note("a", memory_bytes=memory_mib * MIB, object_bytes=object_mib * MIB, seconds=seconds)
    return limits


def control_groups(root: Path, membership: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": membership, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("membership", "files", "memory"),
    [
        ("0::/", {"sys/fs/cgroup/memory.max": "5000"}, 5000),
        (
            "0::/user/run",
            {"sys/fs/cgroup/user/memory.max": "7000", "sys/fs/cgroup/user/run/memory.max": "max"},
            7000,
        ),
        # A container that sees its own group alone, with its path on the host.
        ("0::/docker/1", {"sys/fs/cgroup/memory.max": "5000"}, 5000),
        (
            "5:cpu,cpuacct:/a\n4:memory:/a\n0::/",
            {"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "6000", "sys/fs/cgroup/cpu/memory.max": "1"},
            6000,
        ),
    ],
)
def test_compilers_share_the_memory_of_the_control_group(
    tmp_path: Path, membership: str, files: dict[str, str], memory: int
):
    assert usable_memory(control_groups(tmp_path, membership, files)) == memory


def test_as_many_compilers_run_as_processors_may_be_used(tmp_path: Path):
    allowed = os.sched_getaffinity(0)
    assert usable_processors(tmp_path) == len(allowed)
    assert usable_processors(control_groups(tmp_path / "1", "0::/", {"sys/fs/cgroup/cpu.max": "max 100000"})) == len(
        allowed
    )
    quota = {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}
    assert usable_processors(control_groups(tmp_path / "2", "3:cpu:/", quota)) == 1
    assert usable_processors(control_groups(tmp_path / "3", "0::/", {"sys/fs/cgroup/cpu.max": "50000 100000"})) == 1
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_processors(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_nothing_is_known_at_first():
    assert ModuleLimits().of("a", only_object=True) == COMPILER_LIMITS
    assert ModuleLimits(seconds=True).deadline("a", 60.0) == 60.0


def test_a_small_module_may_take_little():
    limits = noted(ModuleLimits(seconds=True))
    found = limits.of("a", only_object=True)
    assert (found.file_bytes, found.memory_bytes) == (
        LEAST_FILE_BYTES,
        min(LEAST_MEMORY_BYTES, found.memory_bytes or 0),
    )
    assert limits.deadline("a", 60.0) == LEAST_SECONDS
    assert limits.of("b", only_object=True) == COMPILER_LIMITS


def test_a_larger_one_takes_so_many_times_what_it_took():
    limits = noted(noted(ModuleLimits(seconds=True), object_mib=10, seconds=0.6), memory_mib=2)
    assert limits.of("a", only_object=True).file_bytes == 160 * MIB
    assert limits.deadline("a", 60.0) == pytest.approx(30.0)
    huge = noted(ModuleLimits(seconds=True), memory_mib=10_000, object_mib=1000, seconds=9)
    assert huge.of("a", only_object=True) == COMPILER_LIMITS
    assert huge.deadline("a", 60.0) == 60.0


def test_an_object_says_nothing_of_a_log():
    assert noted(ModuleLimits()).of("a", only_object=False).file_bytes == COMPILER_LIMITS.file_bytes


def test_what_the_user_allows_is_allowed():
    limits = noted(CompilerOptions(memory_limit_gib=100, file_limit_gib=0.25, timeout_seconds=600).limits())
    found = limits.of("a", only_object=True)
    assert (found.memory_bytes, found.file_bytes) == (100 << 30, 1 << 28)
    assert limits.deadline("a", 600.0) == 600.0


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_is_a_number(value: float):
    with pytest.raises(UsageError, match=r"--file-limit-gib: expected a positive number of GiB, .*correct it"):
        CompilerOptions(file_limit_gib=value).limits()


FILE = "it wrote more than 5 MiB into one file, and was ended; allow more with --file-limit-gib"
MEMORY = "it asked for more than 1.5 GiB of memory, and was ended; allow more with --memory-limit-gib"


@pytest.mark.parametrize(
    ("returncode", "complaint", "sentence"),
    [
        (-signal.SIGXFSZ, "", FILE),
        (1, "IO failure on output stream: File too large", FILE),
        (-signal.SIGABRT, "LLVM ERROR: out of memory\nAllocation failed", MEMORY),
        (127, "clang: libLLVM.so: failed to map segment from shared object", MEMORY),
        # As of a file system that is mounted noexec.
        (1, "error: unable to load plugin './p.so': './p.so: failed to map segment from shared object'", ""),
        (-signal.SIGSEGV, "Stack dump", ""),
        (1, "error: no", ""),
        (0, "Cannot allocate memory", ""),
    ],
)
def test_the_exceeded_limit_is_named(returncode: int, complaint: str, sentence: str):
    assert describe_exceeded_limit(SOME, returncode=returncode, complaint=complaint) == sentence


def test_a_limit_that_is_not_there_is_no_reason():
    free = Limits(file_bytes=None, memory_bytes=None)
    assert describe_exceeded_limit(free, returncode=-signal.SIGXFSZ, complaint="Cannot allocate memory") == ""


def test_a_link_goes_by_what_goes_in():
    small, large = link_limits(1000), link_limits(1 << 40)
    assert (small.file_bytes or 0) < (1 << 29)
    assert (small.memory_bytes or 0) < (large.memory_bytes or 0)
