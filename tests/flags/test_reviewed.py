"""The list of flags, which of them a build has, and the options of several."""

from pathlib import Path

import pytest

from mlgokit.compiler.wrapping import AddedOptions
from mlgokit.flags.cargo import CargoCommands
from mlgokit.flags.reviewed import FLAGS, RUST_FLAGS, Flag, is_present
from mlgokit.flags.trials import key_of, options_of

DOCUMENT = Path(__file__).parents[2] / "docs/how-to/advise.md"
BY_NAME = {flag.name: flag for flag in FLAGS}


def test_each_flag_has_a_name_options_and_a_cost():
    for flags in (FLAGS, RUST_FLAGS):
        assert len({flag.name for flag in flags}) == len(flags)
        for flag in flags:
            assert flag.text
            assert flag.cost
            assert flag.worth == 0.005 or not flag.risk
            assert not flag.needs or flags is FLAGS
    assert all(flag.compile or flag.link for flag in FLAGS)
    assert all(flag.profile or flag.rustc for flag in RUST_FLAGS)


def test_the_how_to_has_every_flag():
    text = DOCUMENT.read_text()
    assert {flag.name for flag in (*FLAGS, *RUST_FLAGS) if f"`{flag.name}`" not in text} == set()
    for flag in FLAGS:
        assert all(option in text for option in (*flag.compile, *flag.link) if not option.startswith("-O"))


def test_what_goes_together_shares_its_compilations():
    sections = [index for index, flag in enumerate(FLAGS) if "-ffunction-sections" in flag.compile]
    assert sections == list(range(sections[0], sections[-1] + 1))
    links = [flag.compile for flag in FLAGS[: sections[0]]]
    assert not any(links)


@pytest.mark.parametrize(
    ("name", "compilation", "link", "present"),
    [
        ("Oz", "-O2 -Oz", "", True),
        ("Oz", "-Oz -O2", "", False),
        ("gc-sections", "-ffunction-sections -fdata-sections", "-Wl,-z,now,--gc-sections", True),
        ("gc-sections", "-ffunction-sections -fdata-sections -fno-data-sections", "-Wl,--gc-sections", False),
        ("lto", "-flto", "-flto -fuse-ld=lld", True),
        ("lto", "-flto=full", "-flto=full -fuse-ld=lld", True),
        ("lto", "-flto=thin", "-flto=thin -fuse-ld=lld", False),
        ("lto-thin", "-flto=thin", "-flto=thin", False),
        ("lto-thin", "-flto=thin -flto-jobs=4", "-fuse-ld=lld-19", True),
        ("lto", "-flto=auto -flto-partitions=2", "-flto=auto -fuse-ld=/opt/llvm/bin/ld.lld", True),
        ("lto", "-flto -fno-lto", "-fuse-ld=lld", False),
        ("lld", "", "-fuse-ld=lld -fuse-ld=bfd", False),
        ("lld", "", "-fuse-ld=bfd -Wl,-Map=ld.lld.map", False),
        ("lld", "", "--ld-path=ld.lld -o app", True),
        ("strip", "", "-s", True),
        ("strip", "", "-Wl,--strip-all", True),
        ("relr", "", "-fuse-ld=lld -Xlinker -z -Xlinker pack-relative-relocs", True),
        ("relr", "", "-fuse-ld=lld -z pack-relative-relocs", True),
        ("relr", "", "-fuse-ld=lld -Wl,-z -Wl,pack-relative-relocs", True),
        ("gc-sections", "-ffunction-sections -fdata-sections", "-Xlinker --gc-sections", True),
        ("relr", "", "-fuse-ld=lld -Wl,-z,relro,-z,pack-relative-relocs", True),
        ("icf-all", "-ffunction-sections -fdata-sections", "/usr/bin/ld.lld -Wl,--icf=safe -Wl,--icf=all", True),
        ("merge-functions", "-Xclang -fmerge-functions", "", True),
        ("merge-functions", "-Xclang -something", "", False),
        ("no-unwind-tables", "-fno-unwind-tables -fno-asynchronous-unwind-tables", "", True),
        ("no-unwind-tables", "-fno-unwind-tables", "", False),
        ("hidden", "-fvisibility=default -fvisibility=hidden -fvisibility-inlines-hidden", "", True),
    ],
)
def test_flags_are_seen_in_the_words_of_a_build(name: str, compilation: str, link: str, present: bool):
    assert is_present(BY_NAME[name], [compilation.split()], [link.split()]) is present


def test_a_flag_of_some_compilations_alone_is_not_there():
    assert not is_present(BY_NAME["Oz"], [["-Oz"], ["-O2"]], [[]])


def test_options_of_several_flags_stand_once_in_their_order():
    added = options_of([BY_NAME[name] for name in ("Oz", "icf-safe", "gc-sections", "lto", "merge-functions")])
    assert " ".join(added.compile) == "-Oz -ffunction-sections -fdata-sections -flto -Xclang -fmerge-functions"
    assert " ".join(added.link) == "-Oz -fuse-ld=lld -Wl,--icf=safe -Wl,--gc-sections -flto"
    assert key_of([BY_NAME["Oz"]], whole=True) == "whole+Oz"
    old, new = (AddedOptions(compile=(f"-fpass-plugin=/a/builtin-{digest}.plugin",)) for digest in ("1a", "2b"))
    assert key_of([], plugin=old) != key_of([], plugin=new), "policies of another version are another trial"
    two = Flag(name="two", compile=("-Xclang", "-a", "-Xclang", "-b"), cost="")
    assert options_of([two, two]).compile == ("-Xclang", "-a", "-Xclang", "-b")


@pytest.mark.parametrize(
    ("command", "profile"),
    [
        ("cargo build --release", "release"),
        ("cargo build -r", "release"),
        ("cargo build", "dev"),
        ("cargo build --profile small --release", "small"),
        ("cargo build --profile=small", "small"),
    ],
)
def test_the_profile_is_that_of_the_command(command: str, profile: str, tmp_path: Path):
    words = tuple(command.split())
    found = CargoCommands(words=words, folder=tmp_path, tests=(), build_seconds=1.0, test_seconds=1.0)
    assert found.profile == profile
