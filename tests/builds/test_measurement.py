"""Numbers that commands print, and how many of them it takes to tell two builds apart."""

import dataclasses
import itertools
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from mlgokit.builds import measurement
from mlgokit.builds.compression import Compressor, find_compressor, find_stripper
from mlgokit.builds.measurement import (
    Comparison,
    LinkedBuild,
    Measure,
    Measurement,
    compare,
    measure,
    measuring_words,
    number_in,
)
from mlgokit.errors import InputError, ToolError, UsageError
from mlgokit.statistics import LOOKS
from mlgokit.testing import FAKE_TOOLCHAIN


def how(*words: str, timeout_seconds: float = 30) -> Measure:
    return Measure(plans={}, command=words, modules=("a", "b"), timeout_seconds=timeout_seconds)


def linked(name: str) -> LinkedBuild:
    return LinkedBuild(objects={"a": Path(name), "b": Path("b.o")})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12.0),
        ("size 1,234,567 bytes", 1234567.0),
        ("before 3 after 4.5e2\n", 450.0),
        ("-0.5", -0.5),
        ("12.5ms on x86_64", 12.5),
        ("nan inf", None),
        ("", None),
        ("v1.2.3", None),
    ],
)
def test_the_last_number_counts(text: str, number: float | None):
    assert number_in(text) == number


def test_a_command_gets_the_objects_as_words():
    script = "import sys; print(len(sys.argv[1:]), 'of', sys.argv[1:])"
    assert measure(how(sys.executable, "-c", script, "{objects}"), linked("x")) == Measurement(value=2)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("print('no idea')", "the command printed no number"),
        ("import sys; print(3); sys.exit('broken')", "the command ended with 1: broken"),
        ("import time; print(3, flush=True); time.sleep(60)", "the command did not end within 2 s"),
    ],
)
def test_a_command_that_fails_gives_a_sentence(script: str, reason: str):
    assert measure(how(sys.executable, "-c", script, timeout_seconds=2), linked("x")) == Measurement(
        value=None, reason=reason
    )


def test_a_command_must_be_able_to_know_the_build():
    with pytest.raises(UsageError, match="add one, by which the command gets the build to measure"):
        measuring_words("./measure.sh")


def draw(
    monkeypatch: pytest.MonkeyPatch, effect: float, noise: float, *, drift: float = 0.0, seed: int = 1
) -> list[str]:
    """Measures of ``new`` are smaller by ``effect``, all vary by ``noise`` and grow by ``drift`` each time."""
    rng = np.random.default_rng(seed)
    asked: list[str] = []

    def fake(_how: Measure, build: LinkedBuild) -> Measurement:
        name = str(build.objects["a"])
        asked.append(name)
        value = 100 + noise * rng.normal() + drift * len(asked) - (effect if name == "new" else 0)
        return Measurement(value=value)

    monkeypatch.setattr(measurement, "measure", fake)
    return asked


def compared(*, known: float | None = None, most: int = 10_000) -> Comparison:
    pairs = itertools.count()
    return compare(
        how("x"),
        linked("old"),
        linked("new"),
        is_over=lambda: next(pairs) >= most,
        known=None if known is None else Measurement(value=known),
    )


def test_a_large_effect_is_seen_at_the_first_look(monkeypatch: pytest.MonkeyPatch):
    asked = draw(monkeypatch, effect=10, noise=1)
    found = compared()
    assert found.is_better
    assert found.pairs == LOOKS[0]
    assert found.low < -10 < found.high
    assert asked[:4] == ["old", "new", "new", "old"]


def test_an_effect_under_the_noise_is_not_believed(monkeypatch: pytest.MonkeyPatch):
    draw(monkeypatch, effect=0.01, noise=1)
    found = compared()
    assert found.pairs == LOOKS[-1]
    assert not found.is_better
    assert not found.is_no_worse


def test_drift_alone_is_no_effect(monkeypatch: pytest.MonkeyPatch):
    draw(monkeypatch, effect=0, noise=0, drift=-1)
    found = compared()
    assert not found.is_better
    assert found.before == found.after


def test_of_builds_that_are_alike_few_are_called_better_or_worse(monkeypatch: pytest.MonkeyPatch):
    wrong = 0
    for seed in range(300):
        draw(monkeypatch, effect=0, noise=1, seed=seed)
        found = compared()
        wrong += found.high < 0 or found.low > 0
    assert wrong <= 0.05 * 300


def test_equal_numbers_are_no_gain_and_no_loss(monkeypatch: pytest.MonkeyPatch):
    draw(monkeypatch, effect=0, noise=0)
    found = compared()
    assert (found.pairs, found.is_better, found.is_no_worse) == (LOOKS[0], False, True)


def test_without_time_nothing_is_believed(monkeypatch: pytest.MonkeyPatch):
    draw(monkeypatch, effect=10, noise=1)
    assert not compared(most=1).is_no_worse


def test_exact_numbers_are_asked_for_once(monkeypatch: pytest.MonkeyPatch):
    asked = draw(monkeypatch, effect=2, noise=0)
    assert compared(known=100.0).high == -2
    assert asked == ["new"]


def test_a_failure_is_no_gain(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measurement, "measure", lambda *_: Measurement(value=None, reason="gone"))
    for known in (None, 1.0):
        found = compared(known=known)
        assert (found.reason, found.is_better, found.is_no_worse) == ("gone", False, False)


def test_a_program_that_grew_is_no_gain_of_the_whole(monkeypatch: pytest.MonkeyPatch):
    programs = {"a": 90, "b": 103}
    monkeypatch.setattr(measurement, "measure", lambda *_: Measurement(value=193.0, programs=programs))
    known = Measurement(value=200.0, programs={"a": 100, "b": 100})

    def found(limits: dict[str, int]) -> Comparison:
        builds = linked("old"), linked("new")
        return compare(how("x"), *builds, is_over=lambda: False, known=known, limits=limits)

    assert found({}).larger == ("b",)
    assert (found({}).is_better, found({}).is_no_worse) == (False, False)
    assert found({"b": 103}).is_better
    assert found({}).programs == {"a": (100, 90), "b": (100, 103)}


def test_an_image_is_stripped_and_compressed(tmp_path: Path):
    strip, image = tmp_path / "strip", tmp_path / "image"
    strip.write_text('#!/bin/sh\nhead -c 3000 "$2" > "$4"\n')
    strip.chmod(0o755)
    image.write_bytes(b"a" * 4000)
    assert Compressor(strip=strip).measure(image) == (3000, None)
    assert Compressor(strip=strip, words=("head", "-c", "70")).measure(image) == (3000, 70)

    compressor = Compressor(strip=strip, words=("sh", "-c", "echo no space >&2; exit 3"))
    with pytest.raises(
        InputError, match=r"expected it to write 3,000 bytes compressed .* found no space; try it by hand"
    ):
        compressor.measure(image)
    how = Measure(plans={}, command=(), modules=("a",), timeout_seconds=1, compressor=compressor)
    assert "no space" in measure(how, LinkedBuild(objects={}, images={"app": image})).reason
    how = dataclasses.replace(how, compressor=Compressor(strip=strip, words=("head", "-c", "70")))
    assert measure(how, LinkedBuild(objects={}, images={"app": image})).programs == {"app": 70}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such -9", "--compressor: expected a program in 'no-such -9', found no no-such"),
        ("xz '", "--compressor: expected a command such as 'xz -9', found"),
    ],
)
def test_a_compressor_that_is_none_is_refused(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    strip = tmp_path / "llvm-strip"
    strip.write_text("#!/bin/sh\n")
    strip.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match=re.escape(message)):
        find_compressor(command, FAKE_TOOLCHAIN)


def test_a_compressor_is_tried_and_a_missing_stripper_named_only_where_one_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("llvm-strip", "fails"):
        (tmp_path / name).write_text("#!/bin/sh\necho no such level >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{tmp_path}:{path}")
    with pytest.raises(
        InputError, match=r"^--compressor fails -9: expected it to write 7 bytes .* found no such level"
    ):
        find_compressor("fails -9", FAKE_TOOLCHAIN)
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_stripper(FAKE_TOOLCHAIN) is None
    with pytest.raises(ToolError, match=r"^llvm-strip: expected .* apt-get install llvm-22"):
        find_compressor("cat", FAKE_TOOLCHAIN)
