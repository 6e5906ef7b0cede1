"""Stands in the place of a build's compiler: adds options, runs the real one, and writes down what it did.

``wrapper_folder.py`` makes the folder that it stands in, ``wrapping.py`` reads what it wrote. A build starts it once
for each compilation and link, in a Python without site packages; so it imports nothing of mlgokit, and little else.

Words: the programs of its folder, the settings of the build that runs now (nothing outside of one), and the name that
it was called by; then those of the call.

A configure script calls it hundreds of times, and most of its time is what it imports. So there is no pathlib in it.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SOURCES = frozenset((".c", ".i", ".cc", ".cpp", ".cxx", ".c++", ".cp", ".C", ".CPP", ".ii"))
"""Suffixes of what the plugin has something to decide in; assembly is not."""

_LANGUAGES = frozenset(("c", "c++", "cpp-output", "c++-cpp-output"))
_ASKS = frozenset(
    ("-E", "-M", "-MM", "-fsyntax-only", "-###", "--version", "-dumpversion", "-dumpmachine", "-cc1", "-cc1as", "-r")
)
"""With one of these a call makes no object of a source and no image."""
_ASK_PREFIXES = ("-print-", "--print-", "--help")
_WITH_VALUE = frozenset(
    (
        "-o", "-x", "-I", "-D", "-U", "-L", "-l", "-F", "-B", "-T", "-u", "-z", "-e", "-include", "-imacros",
        "-isystem", "-iquote", "-idirafter", "-isysroot", "-iprefix", "-iwithprefix", "-iwithprefixbefore",
        "-include-pch", "-MF", "-MT", "-MQ", "-MJ", "-MV", "-Xclang", "-Xlinker", "-Xassembler", "-Xpreprocessor",
        "-Xanalyzer", "-mllvm", "-arch", "-target", "--target", "--sysroot", "-resource-dir", "-framework", "--param",
        "-rpath", "-install_name", "--config", "-dumpbase", "-dumpdir", "-dumpbase-ext", "-serialize-diagnostics",
        "--serialize-diagnostics",
    )
)  # fmt: skip
_CACHES = ("thinlto-cache-dir=", "plugin-opt=cache-dir=")
_DEPTH = 8
_TAIL_BYTES = 8192
_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
REDIRECT = "redirect.so"


def expanded(words: list[str], folder: str, depth: int = 0) -> list[str]:
    """The words with those of response files, which may name others."""
    found: list[str] = []
    for word in words:
        path = os.path.join(folder, word[1:])
        if word.startswith("@") and depth < _DEPTH and os.path.isfile(path):
            # Most calls have no response file.
            import shlex

            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
            found += expanded(shlex.split(text), folder, depth + 1)
        else:
            found.append(word)
    return found


def read_call(words: list[str]) -> dict[str, Any]:
    """What a call of clang's driver is asked for.

    Gives ``kind`` (``compile``, ``link``, ``both`` if it does that in one go, or ``other``), ``inputs``, ``sources``
    among them, and ``outputs``, as the call spells them.
    """
    inputs, sources, output = _files(words)
    compiles = "-c" in words or "-S" in words
    asks = any(word in _ASKS or word.startswith(_ASK_PREFIXES) for word in words)
    if asks or not inputs or (compiles and not sources):
        kind = "other"
    elif compiles:
        kind = "compile"
    else:
        kind = "both" if sources else "link"
    suffix = ".s" if "-S" in words else ".o"
    if kind == "compile":
        outputs = [output] if output else [_split(source)[0] + suffix for source in sources]
    else:
        outputs = [output or "a.out"]
    return {"kind": kind, "inputs": inputs, "sources": sources, "outputs": outputs}


def _files(words: list[str]) -> tuple[list[str], list[str], str]:
    """Inputs, the sources among them, and the output or nothing."""
    inputs: list[str] = []
    sources: list[str] = []
    output, language = "", ""
    position = 0
    while position < len(words):
        word = words[position]
        value = words[position + 1] if position + 1 < len(words) else ""
        if word == "-o":
            output = value
        elif word.startswith("-x"):
            language = value if word == "-x" else word[2:]
            language = "" if language == "none" else language
        elif word == "-" or not word.startswith("-"):
            inputs.append(word)
            if language in _LANGUAGES or (not language and _split(word)[1] in SOURCES):
                sources.append(word)
        position += 2 if word in _WITH_VALUE else 1
    return inputs, sources, output


def _split(path: str) -> tuple[str, str]:
    """The name of a file without its suffix, and the suffix."""
    return os.path.splitext(os.path.basename(path))


def lto_link(words: list[str], inputs: list[str]) -> str:
    """Which linker does link-time optimization in a link: ``lld``, ``other``, or nothing if there is none to do."""
    kinds = [word for word in words if word in {"-flto", "-fno-lto"} or word.startswith("-flto=")]
    if kinds[-1:] == ["-fno-lto"] or not (kinds or any(map(_is_bitcode, inputs))):
        return ""
    linkers = [word for word in words if word.startswith(("-fuse-ld=", "--ld-path="))]
    return "lld" if linkers and "lld" in linkers[-1].rpartition("/")[2] else "other"


def own_cache(words: list[str], key: str) -> str:
    """The linker's option that gives a link another cache of ThinLTO than it names; nothing if it names none.

    lld's cache does not know of plugins: it would give out objects that were made without one, and keep those made with
    one for links without.

    Args:
        words: of the link, a driver's or a linker's.
        key: of what the objects are made with, which the name of the folder ends with.
    """
    options = [part for word in words for part in (word.split(",") if word.startswith("-Wl,") else [word])]
    for option in reversed(options):
        name = option.lstrip("-")
        for cache in _CACHES:
            if option != name and name.startswith(cache) and name != cache:
                return f"--thinlto-cache-dir={name[len(cache) :].rstrip('/')}-{key}"
    return ""


def _is_bitcode(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) in _BITCODE
    except OSError:
        return False


def _environment() -> dict[str, str]:
    """That of the real compiler: a linker or an assembler that it starts is not to be replaced."""
    kept = dict(os.environ)
    loaded = [path for path in kept.pop("LD_PRELOAD", "").replace(":", " ").split() if not path.endswith(REDIRECT)]
    return kept | ({"LD_PRELOAD": ":".join(loaded)} if loaded else {})


def main() -> int:
    """Run one call; gives its exit code."""
    known = _read(sys.argv[1])
    name, words = sys.argv[3], sys.argv[4:]
    program = known["programs"].get(name) or known["foreign"][name]
    # A server that a build has started, as of a cache, outlives it and keeps its variables.
    if not os.path.isfile(sys.argv[2]):
        os.execve(program, [program, *words], _environment())  # noqa: S606  (in the place of the compiler)
    settings, folder = _read(sys.argv[2]), os.getcwd()
    try:
        whole = expanded(words, folder)
    except ValueError:
        whole = words
    call = read_call(whole)
    if name in known["foreign"] and call["kind"] != "other":
        call["kind"] = "foreign"
    log = os.path.join(settings["log"], f"{time.time_ns()}-{os.getpid()}")
    facts: dict[str, Any] = {**call, "name": name, "folder": folder, "words": whole, "record": ""}
    facts |= {"code": 0, "errors": "", "user_seconds": 0.0, "wall_seconds": 0.0, "lto_linker": "", "files": []}
    if call["kind"] in {"other", "foreign"}:
        if call["kind"] == "foreign" or "-c" in whole or "-r" in whole:
            _write(log, facts)
        os.execve(program, [program, *words], _environment())  # noqa: S606  (in the place of the compiler)
    added: list[str] = []
    if call["kind"] != "link":
        added += settings["compile"]
    # Of code that is left to a link there is nothing to record yet, and its bitcode would have lines of the source.
    is_left = bool(lto_link(whole, []))
    if call["kind"] == "compile" and settings["record"] and len(call["sources"]) == 1 and not is_left:
        facts["record"] = f"{log}.yaml"
        added += [option.replace("{record}", facts["record"]) for option in settings["record"]]
    if call["kind"] != "compile":
        facts["lto_linker"] = lto_link(whole, call["inputs"])
        added += settings["link"]
        if facts["lto_linker"] == "lld":
            added += settings["lto_link"]
            cache = own_cache(whole + settings["link"], settings["cache"]) if settings["cache"] else ""
            added += [f"-Wl,{cache}"] if cache else []
            facts["record"] = f"{log}.yaml" if settings["link_record"] else ""
            added += [option.replace("{record}", facts["record"]) for option in settings["link_record"]]
    begin = time.monotonic()
    with open(f"{log}.errors", "w+b") as errors:
        os.unlink(errors.name)
        actions = [(os.POSIX_SPAWN_DUP2, errors.fileno(), 2)]
        child = os.posix_spawn(program, [program, *words, *added], _environment(), file_actions=actions)
        _, status, usage = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        text = errors.read()
        sys.stderr.buffer.write(text)
        sys.stderr.flush()
    facts |= {
        "code": code,
        "errors": text[-_TAIL_BYTES:].decode("utf-8", "replace") if code else "",
        "user_seconds": usage.ru_utime,
        "wall_seconds": time.monotonic() - begin,
        "files": [os.stat(name).st_ino for name in call["outputs"] if os.path.isfile(name)],
    }
    _write(log, facts)
    return code if code >= 0 else 128 - code


def _read(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        return json.load(file)


def _write(path: str, facts: dict[str, Any]) -> None:
    """Whole, or not at all: a build may be killed."""
    with open(f"{path}.part", "w") as file:
        json.dump(facts, file)
    os.rename(f"{path}.part", f"{path}.json")


if __name__ == "__main__":
    sys.exit(main())
