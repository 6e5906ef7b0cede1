"""Limits of memory, files and time of each module, by what its plain compilation took."""

import signal

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
)
from mlgokit.errors import UsageError

MIB = 1 << 20
SOME = Limits(file_bytes=5 * MIB, memory_bytes=3 << 29, settable=True)


def noted(limits: ModuleLimits, *, memory_mib: int = 1, object_mib: int = 1, seconds: float = 0.1) -> ModuleLimits:
    limits.note("a", memory_bytes=memory_mib * MIB, object_bytes=object_mib * MIB, seconds=seconds)
    return limits


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
