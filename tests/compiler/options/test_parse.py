import pytest
from hypothesis import given, strategies as st

from mlgokit.compiler.options.parse import canonical_name, option_table, parse_options, spell_options

WORDS = st.one_of(
    st.sampled_from(sorted(option_table().kinds)),
    st.sampled_from(sorted(option_table().kinds)).map(lambda word: f"{word}7"),
    st.sampled_from(sorted(option_table().kinds)).map(lambda word: f"-{word}=value"),
    st.sampled_from(["-mllvm", "-", "--", "=", "-=", "@file", "-5", "+avx", "a.c", "-unheard-of=x", ""]),
    st.text(max_size=12),
)


@given(st.lists(WORDS, max_size=12))
def test_parsing_keeps_every_word(words: list[str]):
    assert spell_options(parse_options(words)) == tuple(words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-fdata-sections", "-Oz"], [("-fdata-sections", ()), ("-O", ("z",))]),
        (["-O0", "-Ofast", "-O"], [("-O", ("0",)), ("-O", ("fast",)), ("-O", ("",))]),
        (["-triple", "x86_64"], [("-triple", ("x86_64",))]),
        (["-triple=x86_64"], [("-triple", ("x86_64",))]),
        (["-fdebug-compilation-dir", "/a"], [("-fdebug-compilation-dir=", ("/a",))]),
        (["-fdebug-compilation-dir=/a"], [("-fdebug-compilation-dir=", ("/a",))]),
        (["-Ifoo", "-I", "foo"], [("-I", ("foo",)), ("-I", ("foo",))]),
        (["-target-feature", "-avx", "-w"], [("-target-feature", ("-avx",)), ("-w", ())]),
        (["-fsanitize=a,b"], [("-fsanitize=", ("a", "b"))]),
        (["-o"], [("-o", ())]),
        (["-plugin-arg-x", "y"], [("-plugin-arg-", ("y",))]),
        (["--include", "a.h"], [("-include", ("a.h",))]),
        (["-funheard-of=3", "-funheard-of"], [("-funheard-of=", ("3",)), ("-funheard-of", ())]),
        (["a.c", "-"], [("", ("a.c",)), ("", ("-",))]),
        (["-mllvm", "-inline-threshold=5"], [("-mllvm -inline-threshold", ("5",))]),
        (["-mllvm", "--inline-threshold", "-mllvm", "-5"], [("-mllvm -inline-threshold", ("-5",))]),
        (["-mllvm", "-stats", "-mllvm", "5"], [("-mllvm -stats", ()), ("-mllvm ", ("5",))]),
        (["-mllvm", "-regalloc", "-mllvm", "-stats"], [("-mllvm -regalloc", ()), ("-mllvm -stats", ())]),
        (["-mllvm"], [("-mllvm", ())]),
    ],
)
def test_options_have_the_values_that_clang_gives_them(words: list[str], expected: list[tuple[str, tuple[str, ...]]]):
    assert [(option.name, option.values) for option in parse_options(words)] == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("-split-dwarf-file", "-split-dwarf-file"),
        ("--warning-suppression-mappings", "--warning-suppression-mappings="),
        ("-fcf-protection", "-fcf-protection="),
        ("-mllvm --stats", "-mllvm -stats"),
        ("-unheard-of", "-unheard-of"),
    ],
)
def test_users_may_leave_out_the_equals_sign(text: str, name: str):
    assert canonical_name(text) == name
