"""The compiler wrapper of a build: it adds options, runs the real compiler, and records the call.

``wrapper_folder.py`` makes the folder that it stands in, ``wrapping.py`` reads what it wrote. A build starts it once
for each compilation and link, in a Python without site packages, with copies of this file and of those of mlgokit that
it imports: these import nothing else of mlgokit, and little besides.

Words: the programs of its folder, the settings of the build that runs now (nothing outside of one), and the name that
it was called by, empty if the folder has no program of that name; then those of the call.

A configure script calls it hundreds of times, and most of its time is what it imports. So there is no pathlib in it.
"""

from __future__ import annotations

import json
import os
import sys
import time

from mlgokit.compiler.driver_call import (
    COMPILER,
    drop_end_of_options,
    expand_response_words,
    find_lto_linker,
    is_native,
    makes_partial,
    precompiles,
    read_call,
    read_linker_call,
    separate_cache,
)
from mlgokit.compiler.source_texts import content_of, keep_texts, run_compiler, save_pipes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REDIRECT = "redirect.so"
_TAIL_BYTES = 8192
SESSION = "MLGOKIT_WRAPPING"
"""Environment variable with the settings of the build that runs now."""
_STARTED = "MLGOKIT_STARTED"
"""Environment variable with the path of the compiler that ``redirect.c`` replaced by this program."""
STANDARDS = {"c89": ["-std=c89"], "c99": ["-std=c99"]}
"""What names of POSIX for the compiler of one version of C say, where clang runs in their place."""


def _environment(variables: dict[str, str], *, hides: str = "") -> dict[str, str]:
    """Make the environment of the real compiler, whose own linker, assembler or compiler must not be replaced.

    Args:
        variables: environment of this program.
        hides: folder of the wrappers, in which the real compiler must not find another one by name.
    """
    kept = dict(variables)
    loaded = [path for path in kept.pop("LD_PRELOAD", "").replace(":", " ").split() if not path.endswith(REDIRECT)]
    if hides:
        kept["PATH"] = ":".join(path for path in kept.get("PATH", "").split(":") if path != hides)
    return kept | ({"LD_PRELOAD": ":".join(loaded)} if loaded else {})


def _find_program(known: dict[str, Any], name: str, started: str) -> tuple[str, str, bool]:
    """Find the program to run; return the call's name, the program, and whether it compiles for another machine.

    Args:
        known: the programs of the folder.
        name: name by which the wrapper was called; empty if it has none of its own.
        started: path that the build started, if it started one.
    """
    is_foreign = name in known["foreign"]
    if not name:
        # Only a compiler that no folder in ``PATH`` has needs this.
        import re

        name = os.path.basename(started)
        found = re.fullmatch(COMPILER, name)
        is_foreign = found is None or not is_native(found["target"])
    own = started if os.path.basename(started) == name else ""
    if name in known["linkers"]:
        # lld reads bitcode of one major only, so that it has to be that of the clang that compiles here.
        return name, (own if name != "ld.lld" else "") or known["linkers"][name], False
    if known["keeps_compilers"]:
        return name, own or known["programs"][name], False
    if is_foreign:
        return name, own or known["foreign"][name], True
    return name, known["programs"].get(name) or known["clang++" if "++" in name else "clang"], False


def _read_words(name: str, words: list[str], folder: str, *, is_linker: bool) -> dict[str, Any]:
    """Parse a call, with its response files expanded; its kind is ``unread`` if one of these cannot be parsed."""
    facts: dict[str, Any] = {"name": name, "folder": folder, "errors": ""}
    try:
        whole = drop_end_of_options(expand_response_words(words, folder))
    except ValueError as error:
        nothing: dict[str, Any] = {name: [] for name in ("inputs", "sources", "languages", "outputs")}
        return {**facts, "words": words, "kind": "unread", **nothing, "errors": str(error)}
    read = read_linker_call(whole) if is_linker else read_call(whole, is_cxx="++" in name)
    return {**facts, "words": whole, **read}


def _added_words(
    settings: dict[str, Any], call: dict[str, Any], log: str, environment: dict[str, str], *, is_linker: bool
) -> list[str]:
    """Make the words to add to a call; also set the path of its optimization record and its LTO linker in ``call``."""
    added: list[str] = []
    whole = call["words"]
    if call["kind"] != "link":
        added += settings["compile"]
    # Code that is left to a link has no record yet, and for a record its bitcode would get line numbers.
    left_to_link = bool(find_lto_linker(whole, []))
    if call["kind"] == "compile" and settings["record"] and len(call["sources"]) == 1 and not left_to_link:
        call["record"] = f"{log}.yaml"
        added += [option.replace("{record}", call["record"]) for option in settings["record"]]
    if call["kind"] != "compile":
        call["lto_linker"] = find_lto_linker(whole, call["inputs"], linker=call["name"] if is_linker else "")
        if call["lto_linker"] == "other" and not is_linker:
            linker = _default_linker(call["program"], whole, environment, log)
            call["lto_linker"] = find_lto_linker(whole, call["inputs"], linker=linker)
        links = list(settings["link"])
        if call["lto_linker"] == "lld":
            links += settings["lto_link"]
            cache = separate_cache(whole + settings["link"], settings["cache"]) if settings["cache"] else ""
            links += [f"-Wl,{cache}"] if cache else []
            call["record"] = f"{log}.yaml" if settings["link_record"] else ""
            links += [option.replace("{record}", call["record"]) for option in settings["link_record"]]
        added += _linker_words(links) if is_linker else links
    return added


def _default_linker(program: str, words: list[str], environment: dict[str, str], log: str) -> str:
    """Ask a driver for the name of the linker that it starts; empty if it does not say."""
    with open(f"{log}.errors", "w+b") as errors:
        os.unlink(errors.name)
        run_compiler([program, *words, "-###"], environment, errors=errors.fileno(), piped={})
        errors.seek(0)
        last = errors.read().decode("utf-8", "surrogateescape").rstrip().rpartition("\n")[2]
    return os.path.basename(last.split('"')[1]) if last.startswith(' "') else ""


def _linker_words(options: list[str]) -> list[str]:
    """Select the words that a driver passes to the linker from these options (``-Wl,``)."""
    return [word for option in options if option.startswith("-Wl,") for word in option.split(",")[1:]]


def _named_exe(path: str) -> str:
    """The program that a driver for Windows wrote, which adds ``.exe`` to a name without a suffix."""
    return f"{path}.exe" if not os.path.exists(path) and os.path.exists(f"{path}.exe") else path


def main() -> int:
    """Run one call; return its exit code."""
    known = _read_json(sys.argv[1])
    words, variables = sys.argv[4:], dict(os.environ)
    name, program, is_foreign = _find_program(known, sys.argv[3], variables.pop(_STARTED, ""))
    words = STANDARDS.get(name, []) + words
    # For MinGW clang takes the headers and libraries beside the GCC of that target which it finds in PATH.
    looks_for_gcc = any("mingw" in word or "windows-gnu" in word for word in words)
    wrappers = os.path.join(os.path.dirname(sys.argv[1]), "bin")
    hides = wrappers if known["keeps_compilers"] or looks_for_gcc else ""
    environment = _environment(variables, hides=hides)
    if known["keeps_compilers"]:
        # The build's own compiler may be another wrapper, of the build that configured it.
        environment.pop(SESSION, None)
    # A server that a build started, such as a cache's, outlives it and calls this wrapper when the settings are gone.
    if not os.path.isfile(sys.argv[2]):
        os.execve(program, [program, *words], environment)  # noqa: S606  (in the place of the compiler)
    settings, is_linker = _read_json(sys.argv[2]), name in known["linkers"]
    log = os.path.join(settings["log"], f"{time.time_ns()}-{os.getpid()}")
    call: dict[str, Any] = _read_words(name, words, os.getcwd(), is_linker=is_linker)
    call |= {
        "program": program,
        "record": "",
        "lto_linker": "",
        "code": 0,
        "user_seconds": 0.0,
        "wall_seconds": 0.0,
        "contents": [],
        "texts": [],
    }
    # The objects that a compiler for another machine links may be ours.
    if is_foreign and call["kind"] in {"compile", "both"}:
        call["kind"] = "foreign"
    if call["kind"] in {"other", "foreign", "unread"}:
        made = (
            call["kind"] != "other" or makes_partial(call["words"]) or not {"-c", "--compile"}.isdisjoint(call["words"])
        )
        if made:
            _write_json(log, call)
        if call["kind"] == "other" and not (is_linker or is_foreign) and precompiles(call["words"]):
            words = [*drop_end_of_options(words), *settings["compile"]]
        os.execve(program, [program, *words], environment)  # noqa: S606  (in the place of the compiler)
    added = [] if is_foreign else _added_words(settings, call, log, environment, is_linker=is_linker)
    piped = save_pipes(call["sources"], log) if settings["keep"] else {}
    begin = time.monotonic()
    with open(f"{log}.errors", "w+b") as errors:
        os.unlink(errors.name)
        argv = [program, *drop_end_of_options(words), *added]
        code, usage = run_compiler(argv, environment, errors=errors.fileno(), piped=piped)
        errors.seek(0)
        text = errors.read()
        sys.stderr.buffer.write(text)
        sys.stderr.flush()
    call |= {"code": code, "errors": text[-_TAIL_BYTES:].decode("utf-8", "replace") if code else ""}
    call |= {"user_seconds": usage.ru_utime, "wall_seconds": time.monotonic() - begin}
    if not code and call["kind"] != "compile":
        call["outputs"] = [_named_exe(path) for path in call["outputs"]]
    if not code and call["kind"] == "compile":
        call["contents"] = [content_of(path) for path in call["outputs"]]
    if not code and settings["keep"]:
        driver = [known["clang++" if "++" in name else "clang"]]
        driver += _target_words(name, call["words"]) if known["keeps_compilers"] else []
        call["texts"] = keep_texts(call, driver=driver, environment=environment, piped=piped, log=log)
    _write_json(log, call)
    return code if code >= 0 else 128 - code


def _target_words(name: str, words: list[str]) -> list[str]:
    """Make the option for the target that a compiler's name implies, unless the call has one."""
    if "-" not in name or any(word.startswith(("-target", "--target")) for word in words):
        return []
    import re

    found = re.fullmatch(COMPILER, name)
    return [f"--target={found['target'][:-1]}"] if found is not None and found["target"] else []


def _read_json(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        return json.load(file)


def _write_json(path: str, facts: dict[str, Any]) -> None:
    """Write a file atomically, because a build may be killed."""
    with open(f"{path}.part", "w") as file:
        json.dump(facts, file)
    os.rename(f"{path}.part", f"{path}.json")
