"""The one way to ``clang -cc1``: what is judged is what is started."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.scripts import script

from mlgokit.compiler import process
from mlgokit.compiler.options.cc1 import Cc1Line
from mlgokit.compiler.options.parse import parse_options
from mlgokit.errors import InputError, UsageError

OWN = ("-fpass-plugin=/p.so", "-x", "ir", "/m.bc", "-emit-obj", "-o", "/m.o")
GOOD = ("-Oz", "-target-cpu", "k8", "-target-feature", "+avx", "-mllvm", "-inline-threshold=5", "-O2", "-mabi=lp64")


def line_of(*options: str, source: Sequence[str] = (), allowed: Sequence[tuple[str, ...]] = ()) -> Cc1Line:
    return Cc1Line("clang", options=("-cc1", *options), own=OWN, source=source, allowed=allowed)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("-target-cpu", ""), "found -target-cpu an empty word"),
        (("-target-cpu", "", "-target-feature", "-fpass-plugin=./evil.so"), "found -target-cpu an empty word"),
        (("-Oz", ""), "found an empty word"),
        (("-target-feature", "-fpass-plugin=./evil.so"), "found -target-feature -fpass-plugin=./evil.so"),
        (("-target-feature", "-w", "-target-feature", "-fpass-plugin=e"), "found -target-feature -fpass-plugin=e"),
        (("-target-feature", "-fthinlto-index=x"), "found -target-feature -fthinlto-index=x"),
        (("-target-cpu", "k8\n-load"), "found -target-cpu k8"),
        (("-target-cpu", "./k8"), "found -target-cpu ./k8"),
        (("-triple", "x86_64 -load"), "found -triple x86_64 -load"),
        (("-target-abi", "@evil.rsp"), "found -target-abi @evil.rsp"),
        (("-target-cpu",), "found -target-cpu -fpass-plugin=/p.so; give it its value"),
        (("-mllvm",), "found -mllvm -fpass-plugin=/p.so; give it its value"),
        (("-mllvm", "-inline-threshold"), "found -mllvm -inline-threshold"),
        (("-Oz", "-cc1"), "one command line"),
        (("-dependency-file", "a.d"), "found -dependency-file a.d"),
        (("-fprofile-sample-use=a.prof",), "found -fprofile-sample-use=a.prof (no whole path)"),
        (("a.c",), "found a.c"),
    ],
)
def test_a_line_is_refused_as_a_whole(options: tuple[str, ...], found: str):
    with pytest.raises(InputError, match=rf"clang -cc1: expected .*{re.escape(found)}"):
        line_of(*options)


def test_what_the_user_allowed_is_not_questioned_if_it_is_whole():
    line = line_of("-load", "mine.so", allowed=[("-load", "mine.so")])
    assert line == ("clang", "-cc1", "-load", "mine.so", *OWN)
    for options, allowed in (
        (("-load", "other.so"), [("-load", "mine.so")]),
        (("-load",), [("-load",)]),
        (("-load", ""), [("-load", "")]),
    ):
        with pytest.raises(InputError, match=r"found -load"):
            line_of(*options, allowed=allowed)


@pytest.mark.parametrize(
    "source",
    [
        ("-x", "c", "-fplugin=evil.c"),
        ("-x", "c", "@evil.c"),
        ("-x", "c", ""),
        ("-x", "ir", "a.bc"),
        ("-x", "c", "a.c", "b.c"),
        ("a.c",),
    ],
)
def test_a_source_is_a_path_and_a_language_of_sources(source: tuple[str, ...]):
    with pytest.raises(InputError, match=r"expected (-x, a language of C or C\+\+, and )?a source"):
        line_of("-Oz", source=source)


def test_a_front_end_has_options_that_bitcode_has_not():
    assert line_of("-I", "a b", "-D", "A=1", source=("-x", "c", "a.c"))[-3:] == ("-x", "c", "a.c")
    with pytest.raises(InputError, match=r"found -I a b"):
        line_of("-I", "a b")


def test_only_a_judged_line_is_started(tmp_path: Path):
    clang = script(tmp_path / "clang", f"touch {tmp_path}/started")
    judged = Cc1Line(clang, options=("-cc1", "-Oz"), own=OWN)
    for changed in ([*judged], judged[:2] + judged[3:], (*judged, "-w"), [clang, "-cc1as"]):
        with pytest.raises(UsageError, match=r"must be passed as a Cc1Line, found plain words \(-cc1"):
            process.run(changed, timeout_seconds=30)
    assert not (tmp_path / "started").exists()
    assert process.run(judged.append_words(["-w"]), timeout_seconds=30).returncode == 0
    assert (tmp_path / "started").exists()


def test_words_that_are_dropped_doubled_emptied_and_moved_are_cut_as_the_compiler_cuts_them():
    """Of what is started, each option of the stranger's was judged, and ours begin where they should."""
    rng = np.random.default_rng(1)
    hostile = ("-load", "/e.so", "-fpass-plugin=/e.so", "", "-w", "-fthinlto-index=", "-mllvm", "-target-feature", "@e")
    taken = 0
    for _ in range(2000):
        words = [*GOOD, *rng.choice(hostile, int(rng.integers(0, 3)))]
        for _ in range(int(rng.integers(1, 4))):
            at, to = (int(rng.integers(len(words))) for _ in range(2))
            how = int(rng.integers(4))
            if how == 0:
                del words[at]
            elif how == 1:
                words.insert(to, words[at])
            elif how == 2:
                words[at] = ""
            else:
                words.insert(to, words.pop(at))
        try:
            line = line_of(*map(str, words))
        except InputError:
            continue
        taken += 1
        options = parse_options(line[2:])
        assert [word for option in options for word in option.words] == list(line[2:])
        names = [option.name for option in options]
        assert names[-5:] == ["-fpass-plugin=", "-x", "", "-emit-obj", "-o"]
        assert not {"", "-load", "-fpass-plugin="} & set(names[:-5])
    assert taken > 50
