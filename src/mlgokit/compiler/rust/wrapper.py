"""Parser of rustc calls, and a wrapper of rustc that loads a plugin in calls that make a program by full LTO for size.

``wrapper_folder.py`` puts a copy of it into the folder of wrappers, and ``RUSTC_WRAPPER`` names it. It is started for
each crate, in a Python without site packages; so it imports nothing of mlgokit, and little else.

Words: the settings of the build that runs now (nothing outside of one), rustc, and the words of the call.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FULL_LTO = frozenset(("fat", "yes", "y", "on", "true", ""))
"""Values of ``-C lto`` that mean full link-time optimization."""
LINKED_TYPES = frozenset(("bin", "cdylib", "staticlib", "dylib"))
"""Crate types that are compiled by link-time optimization."""
_LIBRARIES = frozenset(("lib", "rlib"))
_PROBE = "___"
"""Name of the crate of cargo's calls that only ask for file names."""


def codegen_options(words: Sequence[str]) -> Iterator[str]:
    """Yield the options of ``-C``, in either spelling.

    Example:
        >>> list(codegen_options(["rustc", "-C", "lto=fat", "-Copt-level=z"]))
        ['lto=fat', 'opt-level=z']
    """
    for before, word in itertools.pairwise(("", *words)):
        if before in {"-C", "--codegen"}:
            yield word
        elif word.startswith("-C") and word != "-C":
            yield word[2:]
        elif word.startswith("--codegen="):
            yield word.removeprefix("--codegen=")


def codegen_option(words: Sequence[str], name: str) -> str | None:
    """Find the last value of a codegen option such as ``opt-level``; ``None`` if it was not given."""
    found = [text for text in codegen_options(words) if text == name or text.startswith(f"{name}=")]
    return found[-1].partition("=")[2] if found else None


def option_values(words: Sequence[str], option: str) -> list[str]:
    """Find the values of ``option`` among words.

    Example:
        >>> option_values(["rustc", "--crate-type", "rlib", "--crate-type=cdylib"], "--crate-type")
        ['rlib', 'cdylib']
    """
    return [
        after if word == option else after.removeprefix(f"{option}=")
        for word, after in itertools.pairwise(("", *words))
        if word == option or after.startswith(f"{option}=")
    ]


def option_value(words: Sequence[str], option: str) -> str:
    """Find the value of the last ``option`` among words; empty without one.

    Example:
        >>> option_value(["rustc", "--crate-name", "toy", "--crate-type=bin"], "--crate-type")
        'bin'
    """
    return (option_values(words, option) or [""])[-1]


def is_program(words: Sequence[str]) -> bool:
    """Whether a call makes a final artifact, maybe beside a library for other crates; no build script, no test."""
    name, kinds = option_value(words, "--crate-name"), option_values(words, "--crate-type")
    is_linked = not LINKED_TYPES.isdisjoint(kinds)
    return is_linked and name != _PROBE and not name.startswith("build_script_") and "--test" not in words


def why_not_tuned(words: Sequence[str]) -> str:
    """Say why a program is not compiled by rustc's full link-time optimization for size; empty if it is.

    Example:
        >>> why_not_tuned(["rustc", "-C", "opt-level=z", "-C", "lto=thin"])
        'it is linked with lto=thin instead of fat'
    """
    lto, level = codegen_option(words, "lto"), codegen_option(words, "opt-level") or "0"
    if codegen_option(words, "linker-plugin-lto") is not None:
        return "its linker makes the code (-Clinker-plugin-lto)"
    if lto is None and not _LIBRARIES.isdisjoint(option_values(words, "--crate-type")):
        return "cargo has no lto for it, as it is a library for Rust (rlib) as well"
    if lto is None or lto not in FULL_LTO:
        return f"it is linked with lto={lto or 'off'} instead of fat"
    if level not in {"z", "s"}:
        return f"it is compiled with opt-level={level} in place of z or s"
    return ""


def permit_crate(given: str, crate: str) -> str:
    """Add a crate to the value of RUSTC_BOOTSTRAP, which may permit others or, as 1, all of them.

    Example:
        >>> permit_crate("", "toy"), permit_crate("parts", "toy"), permit_crate("1", "toy")
        ('toy', 'parts,toy', '1')
    """
    permitted = [one for one in given.split(",") if one]
    return ",".join(permitted if "1" in permitted else [*permitted, crate])


def plugin_environment(environment: dict[str, str], crate: str) -> dict[str, str]:
    """Make the environment of a call that loads the plugin: without the wrappers, and with two variables more.

    So the linker is the user's own: the tuned code is in the object already.
    """
    found = dict(environment)
    wrappers = found.pop("MLGOKIT_WRAPPERS", "")
    found["PATH"] = os.pathsep.join(one for one in found.get("PATH", "").split(os.pathsep) if one != wrappers)
    loaded = [
        path for path in found.pop("LD_PRELOAD", "").replace(":", " ").split() if not path.endswith("redirect.so")
    ]
    if loaded:
        found["LD_PRELOAD"] = ":".join(loaded)
    # A stable rustc takes -Zllvm-plugins for the crates that it names; a nightly one takes it anyway.
    found["RUSTC_BOOTSTRAP"] = permit_crate(found.get("RUSTC_BOOTSTRAP", ""), crate)
    # Of the crate's own code before the link nothing was tuned.
    return found | {"MLGOKIT_PHASE": "link"}


def main() -> int:
    """Run one call, replacing this process."""
    words = sys.argv[2:]
    # A server that a build started outlives it, and calls this wrapper when the settings are gone.
    if not os.path.isfile(sys.argv[1]) or not is_program(words):
        os.execvp(words[0], words)  # noqa: S606  (in the place of the compiler)
    with open(sys.argv[1], "rb") as file:
        settings = json.load(file)
    reason = why_not_tuned(words)
    crate, kind = (option_value(words, f"--crate-{which}") for which in ("name", "type"))
    log = os.path.join(settings["log"], f"{time.time_ns()}-{os.getpid()}")
    with open(f"{log}.part", "w") as file:
        json.dump({"crate": crate, "kind": kind, "reason": reason}, file)
    os.rename(f"{log}.part", f"{log}.rustc")
    if not settings["rustc"] or reason:
        os.execvp(words[0], words)  # noqa: S606
    environment = plugin_environment(dict(os.environ), crate)
    os.execvpe(words[0], [*words, *settings["rustc"]], environment)  # noqa: S606
    return 1


if __name__ == "__main__":
    sys.exit(main())
