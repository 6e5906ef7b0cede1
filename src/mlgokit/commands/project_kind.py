"""What the files of a project say about how it is built for size and tested."""

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

BUILD = "build-mlgokit"
"""The build folder, in the copy in which a build runs."""
_LARGEST = 4 << 20
_LEVEL = re.compile(r"-O(?:[0-3]|fast|g)?(?![\w-])")
_HOST, _SYSTEM = "${hostSystemName}", "Linux"
_FLAGS = re.compile(r"^(C(?:XX)?FLAGS)[ \t]*([?:+]{0,2})=[ \t]*([^#\n]*?)[ \t]*(?:#.*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectKind:
    """How a project is built, and tested if it can be, by commands, a cargo build or a compilation database.

    ``name`` says what was recognized, with the file that says so. ``programs`` have to be installed, and ``notes`` are
    what the user has to know or to do.
    """

    name: str
    build: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    cargo: str = ""
    compile_commands: str = ""
    programs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def recognize_project(folder: Path, *, jobs: int) -> ProjectKind | None:
    """What kind of project is in a folder; ``None`` if there is none that is known."""
    kinds: tuple[Callable[[Path, int], ProjectKind | None], ...] = (
        _cmake_preset, _cmake, _meson, _cargo, _autotools, _make, _database,
    )  # fmt: skip
    return next((found for kind in kinds if (found := kind(folder, jobs)) is not None), None)


def _text(path: Path) -> str:
    """What a file of the project says; empty if it is not there or is too large."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return ""
        return path.read_text(errors="replace")
    except OSError:
        return ""


# --- Build systems ----------------------------------------------------------------------------------------------------


def _cmake_build(folder: Path, jobs: int, name: str, configure: str) -> ProjectKind:
    lists = _text(folder / "CMakeLists.txt")
    has_tests = re.search(r"^\s*(?:enable_testing\s*\(|include\s*\(\s*CTest\b)", lists, re.IGNORECASE | re.MULTILINE)
    return ProjectKind(
        name=name,
        build=(configure, f"cmake --build {BUILD} --parallel {jobs}"),
        test=(f"ctest --test-dir {BUILD} --output-on-failure",) if has_tests else (),
        programs=("cmake",),
    )


def _cmake_preset(folder: Path, jobs: int) -> ProjectKind | None:
    try:
        presets: Any = json.loads(_text(folder / "CMakePresets.json"))["configurePresets"]
        known = {str(one["name"]): one for one in presets}
        whole: dict[str, Any] = {}
        usable = {name: _whole_preset(name, known, whole) for name, one in known.items() if not one.get("hidden")}
        shown = [(name, _build_type(one)) for name, one in usable.items() if _works_here(one)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not shown:
        return None
    order = ("minsizerel", "release", "relwithdebinfo", "")
    shown.sort(key=lambda one: order.index(one[1].lower()) if one[1].lower() in order else len(order))
    preset, kind = shown[0]
    words = f"cmake --preset {shlex.quote(preset)} -B {BUILD}"
    words += "" if kind == "MinSizeRel" else " -DCMAKE_BUILD_TYPE=MinSizeRel"
    return _cmake_build(folder, jobs, f"CMake with the preset {preset} (CMakePresets.json)", words)


def _whole_preset(name: str, known: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """A preset with what it inherits, of which the first one named takes precedence; also noted in ``whole``."""
    if name not in whole:
        # What inherits itself ends here.
        whole[name] = _over({}, known[name])
        inherits: Any = known[name].get("inherits", [])
        found: dict[str, Any] = {}
        for one in reversed([inherits] if isinstance(inherits, str) else inherits):
            found = _over(found, _whole_preset(one, known, whole) if one in known else {})
        whole[name] = _over(found, known[name])
    return whole[name]


def _over(base: dict[str, Any], preset: dict[str, Any]) -> dict[str, Any]:
    variables = {**base.get("cacheVariables", {}), **preset.get("cacheVariables", {})}
    return {**base, **preset, "cacheVariables": variables}


def _works_here(preset: dict[str, Any]) -> bool:
    """Whether a preset is not for another system alone, by its generator or a plain condition."""
    if str(preset.get("generator", "")).startswith(("Visual Studio", "Xcode", "NMake", "MinGW")):
        return False
    condition: Any = preset.get("condition")
    match condition:
        case {"type": "equals" | "notEquals" as kind, "lhs": left, "rhs": right} if _HOST in (left, right):
            return (_SYSTEM in (left, right)) == (kind == "equals")
        case {"type": "inList" | "notInList" as kind, "string": name, "list": names} if name == _HOST:
            return (_SYSTEM in names) == (kind == "inList")
        case _:
            return condition is not False


def _build_type(preset: dict[str, Any]) -> str:
    value = preset["cacheVariables"].get("CMAKE_BUILD_TYPE", "")
    return str(cast("dict[str, Any]", value).get("value", "") if isinstance(value, dict) else value)


def _cmake(folder: Path, jobs: int) -> ProjectKind | None:
    if not _text(folder / "CMakeLists.txt"):
        return None
    configure = f"cmake -S . -B {BUILD} -DCMAKE_BUILD_TYPE=MinSizeRel"
    return _cmake_build(folder, jobs, "CMake (CMakeLists.txt)", configure)


def _meson(folder: Path, jobs: int) -> ProjectKind | None:
    top = _text(folder / "meson.build")
    if not re.search(r"^\s*project\s*\(", top, re.MULTILINE):
        return None
    texts = [top, *(_text(path) for path in sorted(folder.glob("*/meson.build")))]
    has_tests = any(re.search(r"^\s*test\s*\(", text, re.MULTILINE) for text in texts)
    return ProjectKind(
        name="Meson (meson.build)",
        build=(f"meson setup {BUILD} --buildtype=minsize", f"meson compile -C {BUILD} -j {jobs}"),
        test=(f"meson test -C {BUILD}",) if has_tests else (),
        programs=("meson", "ninja"),
    )


def _cargo(folder: Path, jobs: int) -> ProjectKind | None:  # noqa: ARG001  (as of other kinds)
    try:
        manifest, configured = (tomllib.loads(_text(folder / name)) for name in ("Cargo.toml", ".cargo/config.toml"))
    except tomllib.TOMLDecodeError:
        return None
    if not manifest.keys() & {"package", "workspace"}:
        return None
    # What the configuration says of a profile takes precedence.
    profile: dict[str, Any] = {}
    for one in (manifest, configured):
        profile |= one.get("profile", {}).get("release", {})
    reasons = {'lto = "fat"': "tune changes programs with fat LTO", 'opt-level = "z"': 'level "z" builds for size'}
    missing = {line: why for line, why in reasons.items() if not _says(profile, line)}
    note = f"add {' and '.join(missing)} to [profile.release] of Cargo.toml: {', and '.join(missing.values())}"
    return ProjectKind(
        name="cargo (Cargo.toml)",
        cargo="cargo build --release",
        programs=("cargo",),
        notes=(note,) if missing else (),
    )


def _says(profile: dict[str, Any], line: str) -> bool:
    key = line.partition(" ")[0]
    return profile.get(key) in {"lto": ("fat", True), "opt-level": ("s", "z")}[key]


def _autotools(folder: Path, jobs: int) -> ProjectKind | None:
    is_made = (folder / "configure").is_file() and (folder / "Makefile.in").is_file()
    if not is_made and not _text(folder / "configure.ac"):
        return None
    rules = _text(folder / "Makefile.in") or _text(folder / "Makefile.am")
    has_tests = re.search(r"^check\b.*:|^TESTS\b", rules, re.MULTILINE) or (folder / "Makefile.am").is_file()
    first = () if is_made else ("autoreconf -fi",)
    return ProjectKind(
        name="autotools (configure)" if is_made else "autotools (configure.ac)",
        build=(*first, "./configure CFLAGS=-Os CXXFLAGS=-Os", f"make -j{jobs}"),
        test=("make check",) if has_tests else (),
        programs=("make",) if is_made else ("autoreconf", "make"),
    )


def _make(folder: Path, jobs: int) -> ProjectKind | None:
    name = next((name for name in ("GNUmakefile", "makefile", "Makefile") if _text(folder / name)), None)
    if name is None:
        return None
    text = re.sub(r"[ \t]*\\\n[ \t]*", " ", _text(folder / name))
    targets = set(re.findall(r"^([\w.-]+)[ \t]*:(?!=)", text, re.MULTILINE))
    is_for_size = re.search(r"-O[sz]\b", text)
    flags = {} if is_for_size else _flags_of(text)
    said = {one: _LEVEL.sub("-Os", value) for one, value in flags.items() if _LEVEL.search(value)}
    if not is_for_size and not said:
        said = {one: f"{flags.get(one, '')} -Os".strip() for one in ("CFLAGS", "CXXFLAGS")}
    words = "".join(f" {shlex.quote(f'{one}={value}')}" for one, value in said.items())
    test = next((one for one in ("check", "test") if one in targets), None)
    return ProjectKind(
        name=f"Make ({name})",
        # Many a clean fails where there is nothing to remove, as in a fresh checkout.
        build=(*(("make -i clean",) if "clean" in targets else ()), f"make -j{jobs}{words}"),
        test=() if test is None else (f"make {test}{words}",),
        programs=("make",),
        notes=()
        if is_for_size
        else (f"tune needs -Os or -Oz, and {name} has neither: look at the flags in the build",),
    )


def _flags_of(text: str) -> dict[str, str]:
    """The last values of CFLAGS and CXXFLAGS in a Makefile, with what ``+=`` appends.

    They are complete, because a value on the command line of make replaces every assignment in the Makefile.
    """
    flags = dict[str, str]()
    for name, operator, value in _FLAGS.findall(text):
        flags[name] = f"{flags.get(name, '')} {value}".strip() if operator == "+" else value
    return flags


def _database(folder: Path, jobs: int) -> ProjectKind | None:  # noqa: ARG001  (as of other kinds)
    name = "compile_commands.json"
    found = [path for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.is_file()]
    if not found:
        return None
    path = found[0].relative_to(folder).as_posix()
    return ProjectKind(name=f"a compilation database ({path})", compile_commands=path)
