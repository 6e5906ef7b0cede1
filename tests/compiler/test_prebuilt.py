"""A package with objects that a shell script stands for: which are taken, which are refused, and what is said."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.scripts import script

from mlgokit.commands.doctor_trials import list_prebuilt, obtain_plugin
from mlgokit.compiler import prebuilt as module
from mlgokit.compiler.plugin_build import build_plugin, link_policies, was_compiled
from mlgokit.compiler.prebuilt import (
    INDEX,
    Prebuilt,
    all_prebuilt,
    find_prebuilt,
    index_text,
    plugin_sources,
    processor_of,
    sources_digest,
)
from mlgokit.compiler.toolchain import Toolchain
from mlgokit.errors import ToolError

OBJECTS = {"Plugin": b"one", "shared/Policy": b"two"}
TARGET = "x86_64-pc-linux-gnu"


def one(series: str = "22.1", **changes: Any) -> Prebuilt:
    found = Prebuilt(
        series=series,
        processor="x86_64",
        cxx_library="libstdc++",
        compiler=f"clang version {series}.8",
        sources=sources_digest(plugin_sources()),
        objects={unit: hashlib.sha256(data).hexdigest() for unit, data in OBJECTS.items()},
    )
    return replace(found, **changes)


Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """``install(prebuilt, ...)`` puts objects into the package; gives the folder."""
    root = tmp_path / "prebuilt"
    # The place of package data cannot be chosen by a caller.
    monkeypatch.setattr(module, "_FOLDER", root)

    def put(*known: Prebuilt) -> Path:
        for entry in known:
            for unit, data in OBJECTS.items():
                path = root / entry.folder / f"{unit}.o"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        (root / INDEX).write_text(index_text(known))
        return root

    return put


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A toolchain of scripts without headers, and a folder for what it builds."""

    toolchain: Toolchain
    cache: Path
    calls_file: Path

    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []

    def build(self, **changes: Any) -> Path:
        return build_plugin(replace(self.toolchain, **changes), cache_folder=self.cache)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for name, action in (("clang++", 'echo "made of $*" > "$output"'), ("clang", "true")):
        script(tmp_path / name, f'echo "{name} $*" >> {tmp_path}/calls', "for output; do :; done", action)
    toolchain = Toolchain(
        major=22, version="22.1.8", clang=tmp_path / "clang", clangxx=tmp_path / "clang++", target=TARGET
    )
    return Place(toolchain=toolchain, cache=tmp_path / "cache", calls_file=tmp_path / "calls")


def refuse(place: Place) -> None:
    """Let the compiler load nothing."""
    script(place.toolchain.clang, "echo 'error: unable to load plugin: no such symbol' >&2", "exit 1")


def test_objects_that_fit_are_linked_and_loaded_without_headers(install: Install, place: Place):
    install(one("19.1"), one("22.1"))

    plugin = place.build()

    assert place.calls() == [
        "clang++ -shared -Wl,-Bsymbolic-functions Plugin.o shared/Policy.o -o mlgokit.so",
        "clang -Oz -fpass-plugin=./mlgokit.so -c try.c -o /dev/null",
    ]
    assert (plugin.parent / "shared" / "Policy.o").read_bytes() == b"two"
    assert not was_compiled(plugin)
    assert place.build() == plugin
    assert len(place.calls()) == 2


def test_policies_are_linked_with_prebuilt_objects(install: Install, place: Place, tmp_path: Path):
    install(one())
    (tmp_path / "a.policy").write_bytes(b"policy")

    link_policies(
        place.toolchain, {"inline-size": tmp_path / "a.policy"}, tmp_path / "out.so", cache_folder=place.cache
    )

    *_, link = place.calls()
    assert "/Plugin.o " in link
    assert link.endswith("/shared/Policy.o policies.o -o plugin.so")


def test_objects_of_other_sources_are_stale_and_refused(install: Install, place: Place):
    install(one(sources="0" * 64))

    with pytest.raises(ToolError) as caught:
        place.build()

    assert str(caught.value) == (
        f"plugin for LLVM 22: expected the headers of LLVM beside {place.toolchain.clang}, found none, and the "
        "prebuilt plugin for LLVM 22.1 on x86_64 with libstdc++ in this installation was built from other sources; "
        "install them: apt-get install llvm-22-dev"
    )
    assert place.calls() == []


def test_where_headers_are_stale_objects_are_compiled_anew(install: Install, place: Place, tmp_path: Path):
    install(one(sources="0" * 64))

    plugin = place.build(include_dir=tmp_path)

    assert was_compiled(plugin)


@pytest.mark.parametrize(
    ("version", "target", "library"),
    [
        ("22.2.0", TARGET, "libstdc++"),
        ("19.1.7", TARGET, "libstdc++"),
        ("22.1.8", TARGET, "libc++"),
        ("22.1.8", "aarch64-unknown-linux-gnu", "libstdc++"),
        ("22.1.8", "x86_64-alpine-linux-musl", "libstdc++"),
        ("22.1.8", "x86_64-linux-android24", "libstdc++"),
    ],
)
def test_a_compiler_of_another_series_system_or_library_has_none(
    install: Install, version: str, target: str, library: str
):
    install(one())

    assert find_prebuilt(version, target, library) == (
        "the prebuilt plugins in this installation are for LLVM 22.1 on x86_64 with libstdc++"
    )


def test_each_cxx_library_has_its_own(install: Install):
    install(one(), one(cxx_library="libc++"))

    for library in ("libstdc++", "libc++"):
        found = find_prebuilt("22.1.8", TARGET, library)
        assert isinstance(found, Prebuilt)
        assert found.folder == f"llvm-22.1-x86_64-{library}"


@pytest.mark.parametrize(
    ("target", "processor"),
    [
        ("x86_64-redhat-linux-gnu", "x86_64"),
        ("x86_64-suse-linux", "x86_64"),
        ("amd64-unknown-linux-gnu", "x86_64"),
        ("arm64-linux-gnu", "aarch64"),
        ("x86_64-linux-gnux32", ""),
        ("x86_64-unknown-freebsd14", ""),
        ("", ""),
    ],
)
def test_processors_have_one_name(target: str, processor: str):
    assert processor_of(target) == processor


def test_a_compiler_that_does_not_load_them_is_named(install: Install, place: Place):
    install(one())
    refuse(place)

    with pytest.raises(ToolError) as caught:
        place.build()

    assert str(caught.value) == (
        f"plugin for LLVM 22: expected {place.toolchain.clang} to load the plugin that is prebuilt for LLVM 22.1 "
        "on x86_64 with libstdc++, found: error: unable to load plugin: no such symbol; install the headers, so that "
        "it is compiled: apt-get install llvm-22-dev"
    )
    assert list(place.cache.iterdir()) == []


def test_where_headers_are_a_plugin_that_is_not_loaded_is_compiled(install: Install, place: Place, tmp_path: Path):
    install(one())
    refuse(place)

    assert was_compiled(place.build(include_dir=tmp_path))


def test_damaged_objects_are_named(install: Install, place: Place):
    path = install(one()) / "llvm-22.1-x86_64-libstdc++" / "Plugin.o"

    path.write_bytes(b"cut")
    with pytest.raises(
        ToolError, match=rf"^{re.escape(str(path))}: expected what `make wheel` put there, found other bytes; install"
    ):
        place.build()
    path.unlink()
    with pytest.raises(ToolError, match=r"found none \(No such file or directory\); install the package again"):
        place.build()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format_version": 1, "prebuilt": []}',
        '{"format_version": 2, "prebuilt": [{}]}',
        '{"format_version": 2, "prebuilt": 7}',
        json.dumps({"format_version": 2, "prebuilt": [dict.fromkeys(("series", "processor", "compiler"), 1)]}),
        index_text((one(objects={"../../x": ""}),)),
    ],
)
def test_an_invalid_index_is_one_sentence(install: Install, text: str):
    path = install(one()) / INDEX
    path.write_text(text)

    with pytest.raises(ToolError, match=r"index\.json: expected what `make wheel` put there, found .*; install the"):
        all_prebuilt()


def test_a_checkout_has_no_prebuilt_plugins():
    assert all_prebuilt() == ()
    assert find_prebuilt("22.1.8", TARGET, "libstdc++") == ""
    with pytest.raises(ToolError, match="no prebuilt plugin in this installation: it is compiled with LLVM's headers"):
        list_prebuilt()


def test_doctor_says_what_is_prebuilt(install: Install, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    install(one("19.1"), one("22.1"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))

    plugin, whence = obtain_plugin(place.toolchain)

    assert plugin.is_relative_to(tmp_path / "home")
    assert whence == "comes prebuilt for LLVM 22.1 on x86_64 with libstdc++"
    assert list_prebuilt() == "LLVM 19.1 on x86_64 with libstdc++, LLVM 22.1 on x86_64 with libstdc++"
    with pytest.raises(ToolError, match="no LLVM headers of major 22 found, and the prebuilt plugins in this install"):
        obtain_plugin(replace(place.toolchain, version="22.2.0"))
