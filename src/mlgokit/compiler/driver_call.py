"""Calls of a compiler driver: inputs, outputs, and kind of the call, parsed from its words.

The compiler wrapper imports it at each call, so it imports nothing of mlgokit, and little else.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

SOURCES = frozenset((".c", ".i", ".cc", ".cpp", ".cxx", ".c++", ".cp", ".C", ".CC", ".CPP", ".CXX", ".C++", ".ii"))
"""Suffixes of sources with decisions for the plugin, which assembly does not have."""

INTERFACES = frozenset((".cppm", ".ccm", ".cxxm", ".c++m", ".pcm"))
"""Suffixes of interfaces of C++20 modules, precompiled ones among them, of which a driver makes objects too."""

_WITH_CODE = SOURCES | INTERFACES

HEADERS = frozenset((".h", ".hh", ".hp", ".hpp", ".hxx", ".h++", ".H", ".HPP", ".tcc"))
"""Suffixes of headers, of which a driver makes precompiled ones."""

COMPILER = r"(?P<target>\w+(?:-\w+){1,3}-)?(?P<name>cc|gcc|clang|c\+\+|g\+\+|clang\+\+)(?:-\d+(?:\.\d+)*)?"
"""Names of compilers, as a regular expression."""

LINKER = r"(?P<target>\w+(?:-\w+){1,3}-)?ld(?P<kind>\.(?:lld|bfd|gold|mold))?(?:-\d+(?:\.\d+)*)?"
"""Names of linkers, as a regular expression."""

LANGUAGES = {
    "c": "cpp-output",
    "c++": "c++-cpp-output",
    "cpp-output": "cpp-output",
    "c++-cpp-output": "c++-cpp-output",
    "c++-module": "c++-module-cpp-output",
    "c++-module-cpp-output": "c++-module-cpp-output",
}
"""Languages of sources, each with the language of its preprocessed text."""
_LANGUAGE_OF_SUFFIX = {
    ".c": "c",
    ".i": "cpp-output",
    ".ii": "c++-cpp-output",
    **dict.fromkeys(INTERFACES, "c++-module"),
}
_ASKS = frozenset(
    (
        "-E", "-M", "-MM", "-fsyntax-only", "-###", "--version", "-dumpversion", "-dumpmachine", "-cc1", "-cc1as",
        "--analyze", "--precompile", "-emit-module-interface",
    )
)  # fmt: skip
"""Options with which a call makes neither an object nor an image."""
_ASK_PREFIXES = ("-print-", "--print-", "--help")
_PRECOMPILES = frozenset(("--precompile", "-emit-module-interface", "-emit-pch"))
WITH_VALUE = frozenset(
    (
        "-o", "-x", "-I", "-D", "-U", "-L", "-l", "-F", "-B", "-T", "-u", "-z", "-e", "-A", "-G", "-b", "-include",
        "-imacros", "-isystem", "-iquote", "-idirafter", "-isysroot", "-iprefix", "-iwithprefix", "-iwithprefixbefore",
        "-include-pch", "-MF", "-MT", "-MQ", "-MJ", "-Xclang", "-Xlinker", "-Xassembler", "-Xpreprocessor",
        "-Xanalyzer", "-Xclangas", "-Xarch_host", "-Xarch_device", "-Xopenmp-target", "-Xoffload-linker",
        "-mllvm", "-arch", "-target", "--target", "--sysroot", "-resource-dir", "-framework", "--param",
        "-rpath", "-install_name", "--config", "-dumpbase", "-dumpdir", "-dumpbase-ext", "-serialize-diagnostics",
        "--serialize-diagnostics", "-iframework", "-cxx-isystem", "-iwithsysroot", "-ivfsoverlay", "-working-directory",
        "-aux-info", "-wrapper", "-specs", "--output", "--include", "-gcc-toolchain", "-stdlib++-isystem",
        "-isystem-after", "-iframeworkwithsysroot", "-imultilib", "-vfsoverlay", "--vfsoverlay", "--imacros",
        "--include-directory", "--define-macro", "-ccc-gcc-name", "-ccc-install-dir", "-gen-cdb-fragment-path",
        "-fdebug-compilation-dir", "-ftrapv-handler", "-mthread-model", "-undefined", "-dependency-dot",
        "-dependency-file",
    )
)  # fmt: skip
"""Options of a driver whose value may be the next word."""
_PARTIAL = frozenset(("-r", "-i", "-Ur", "--relocatable"))
"""Options with which a linker makes an object, and no image."""
_LINKER_ASKS = _PARTIAL | {"--version", "--help"}
"""With one of these a linker makes no image. It says its version (``-v``) and links all the same."""
LINKER_WITH_VALUE = frozenset(
    (
        "-o", "--output", "-m", "-T", "--script", "-L", "-l", "-e", "--entry", "-z", "-u", "--undefined", "-h",
        "-soname", "--soname", "-rpath", "--rpath", "-rpath-link", "-Map", "--Map", "-dynamic-linker",
        "--dynamic-linker", "-plugin", "-plugin-opt", "--plugin-opt", "--defsym", "-defsym", "-y", "-I", "-F", "-f",
        "-A", "-b", "--format", "-G", "-R", "-a", "-init", "-fini", "--version-script", "-version-script",
        "--dynamic-list", "--sysroot", "-mllvm", "--mllvm", "--wrap", "--section-start", "-Ttext", "-Tdata", "-Tbss",
        "-Ttext-segment", "--exclude-libs", "--rpath-link", "--image-base", "--oformat", "--just-symbols", "--library",
        "--library-path", "--retain-symbols-file", "--out-implib", "--dependency-file", "--trace-symbol",
    )
)  # fmt: skip
"""Options of a linker whose value is the next word."""
_UNPREPROCESSED = frozenset(
    (
        "-c", "-S", "--compile", "--assemble", "-MD", "-MMD", "-MP", "-MG", "-MV", "-emit-llvm", "-save-temps", "-o",
        "-MF", "-MT", "-MQ", "-MJ", "-L", "-l", "-Xlinker", "-Xassembler", "-Xanalyzer", "-serialize-diagnostics",
        "--serialize-diagnostics", "-dumpbase", "-dumpdir", "-dumpbase-ext", "-aux-info", "-wrapper", "--output", "-H",
        "-v", "--save-temps",
    )
)  # fmt: skip
_UNPREPROCESSED_PREFIXES = (
    "-Wp,-M",
    "-Wl,",
    "-MF",
    "-MT",
    "-MQ",
    "-MJ",
    "-save-temps=",
    "--save-temps=",
    "-ftime-trace",
    "-fuse-ld=",
)
"""Options that name outputs, or that only a link reads."""
_CACHES = ("thinlto-cache-dir=", "plugin-opt=cache-dir=")
_DEPTH = 8
_ARCHIVE = b"!<arch>\n"
_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


def is_native(target: str | None) -> bool:
    """Whether a compiler with this prefix of its name compiles for this machine.

    Vendors of distributions' own compilers are known; another one, as Buildroot's or Yocto's, has its own C library.

    Example:
        >>> is_native(os.uname().machine + "-redhat-linux-"), is_native("armv7l-linux-gnueabihf-")
        (True, False)
    """
    if target is None:
        return True
    parts = target.removesuffix("-").split("-")
    vendors = {"pc", "unknown", "redhat", "suse"}
    return parts.pop(0) == os.uname().machine and [part for part in parts if part not in vendors] in (
        ["linux"],
        ["linux", "gnu"],
    )


def split_response(text: str) -> list[str]:
    r"""Split the words in a response file as LLVM's ``TokenizeGNUCommandLine`` does, and not as a shell would.

    A backslash stands for the character after it, inside of both kinds of quotation too.

    Example:
        >>> split_response(r'-DA="\$b c" -DB=\"c\" ' + "'a\\'b'")
        ['-DA=$b c', '-DB="c"', "a'b"]

    Raises:
        ValueError: a quotation does not end.
    """
    # Most calls have no response file.
    import re

    word = re.compile(r"""(?:[^ \t\r\n'"\\]+|\\.|\\\Z|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')+""", re.DOTALL)
    piece = re.compile(r"""\\(.)|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'""", re.DOTALL)
    escaped = re.compile(r"\\(.)", re.DOTALL)

    def unquote(piece: re.Match[str]) -> str:
        """Remove the quotes or the backslash of a part of a word."""
        return piece[1] or escaped.sub(r"\1", piece[2] or piece[3] or "")

    words: list[str] = []
    position = 0
    while position < len(text):
        if text[position] in " \t\r\n":
            position += 1
            continue
        found = word.match(text, position)
        if found is None or (found.end() < len(text) and text[found.end()] in "\"'"):
            raise ValueError(f"expected every quotation mark to be closed, found {text[position : position + 40]!r}")
        words.append(piece.sub(unquote, found[0]))
        position = found.end()
    return words


def expand_response_words(words: list[str], folder: str, depth: int = 0) -> list[str]:
    """Expand response files, which may be nested; the name of a missing file stays a word.

    Raises:
        ValueError: a response file cannot be parsed, with the reason.
    """
    found: list[str] = []
    for word in words:
        path = os.path.join(folder, word[1:])
        if not word.startswith("@") or not os.path.exists(path):
            found.append(word)
            continue
        if not os.path.isfile(path):
            raise ValueError(
                f"{word}: expected a response file that is a regular file, so that it can be read twice, found none"
            )
        if depth >= _DEPTH:
            raise ValueError(f"{word}: expected response files nested at most {_DEPTH} deep, found more")
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                inner = split_response(file.read().removeprefix("\ufeff"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{word}: {error}") from error
        found += expand_response_words(inner, folder, depth + 1)
    return found


def read_call(words: list[str], *, is_cxx: bool = False) -> dict[str, Any]:
    """Parse a call of a compiler driver.

    Gives ``kind`` (``compile``, ``link``, ``both`` if it does that in one go, or ``other``), ``inputs``, ``sources``
    among them with the ``languages`` of these as ``-x`` names them, and ``outputs``, as the call spells them.

    Args:
        words: words of the call, without the driver.
        is_cxx: whether the driver compiles every source as C++.
    """
    inputs, sources, _, output = _find_files(words)
    compiles = any(word in {"-c", "-S", "--compile", "--assemble"} for word in words)
    if makes_partial(words) or _asks(words) or not inputs or (compiles and not sources):
        kind = "other"
    elif compiles:
        kind = "compile"
    else:
        kind = "both" if sources else "link"
    is_text = "-S" in words or "--assemble" in words
    suffixes = (".bc", ".ll") if "-emit-llvm" in words else (".o", ".s")
    suffix = suffixes[is_text]
    if kind == "compile":
        outputs = [output] if output else [_split(source)[0] + suffix for source in sources]
    elif kind == "other" and compiles:
        outputs = [output] if output else [_split(name)[0] + suffix for name in inputs]
    else:
        outputs = [output or "a.out"]
    languages = [named or _language(source, is_cxx=is_cxx) for source, named in sources.items()]
    return {"kind": kind, "inputs": inputs, "sources": list(sources), "languages": languages, "outputs": outputs}


def read_linker_call(words: list[str]) -> dict[str, Any]:
    """Parse a call of a linker, as :func:`read_call` does that of a driver: of the kind ``link``, or ``other``.

    Example:
        >>> found = read_linker_call(["-m", "elf", "-T", "board.ld", "a.o", "--start-group", "lib.a", "-o", "tool"])
        >>> found["kind"], found["inputs"], found["outputs"]
        ('link', ['a.o', 'lib.a'], ['tool'])
    """
    units = list(option_units(words, with_value=LINKER_WITH_VALUE))
    inputs = [unit[0] for unit in units if _is_input(unit[0])]
    outputs = [named for unit in units if (named := _output(unit)) is not None]
    kind = "link" if inputs and _LINKER_ASKS.isdisjoint(words) else "other"
    return {"kind": kind, "inputs": inputs, "sources": [], "languages": [], "outputs": outputs[-1:] or ["a.out"]}


def precompiles(words: list[str]) -> bool:
    """Whether a call of a driver precompiles a header or the interface of a module.

    What then reads that has to be compiled with the same options.

    Example:
        >>> [precompiles(call.split()) for call in ("-x c++-header a.h -o a.pch", "a.hpp", "-E a.h", "-c a.c a.h")]
        [True, True, False, False]
    """
    _, sources, headers, _ = _find_files(words)
    return not _PRECOMPILES.isdisjoint(words) or (bool(headers) and not sources and not _asks(words))


def _asks(words: list[str]) -> bool:
    return any(word in _ASKS or word.startswith(_ASK_PREFIXES) for word in words)


def makes_partial(words: list[str]) -> bool:
    """Whether a driver or a linker links objects to an object (``-r``, ``-Wl,-r``)."""
    return any(not _PARTIAL.isdisjoint(word.split(",")[1:] if word.startswith("-Wl,") else (word,)) for word in words)


def drop_end_of_options(words: list[str]) -> list[str]:
    """Drop the word ``--``, so that more options may follow the inputs after it.

    Example:
        >>> drop_end_of_options(["-c", "--", "a.c", "-b.c"])
        ['-c', 'a.c', './-b.c']
    """
    if "--" not in words:
        return words
    end = words.index("--")
    return [*words[:end], *(f"./{word}" if word.startswith("-") and word != "-" else word for word in words[end + 1 :])]


def option_units(words: list[str], *, with_value: frozenset[str] = WITH_VALUE) -> Iterator[list[str]]:
    """Group the words of a call into options with their values, which follow those of ``with_value``."""
    position = 0
    while position < len(words):
        size = 2 if words[position] in with_value else 1
        yield words[position : position + size]
        position += size


def _is_input(word: str) -> bool:
    return word == "-" or not word.startswith("-")


def _output(unit: list[str]) -> str | None:
    """Find the output that an option names, if it names one."""
    word = unit[0]
    if word in {"-o", "--output"}:
        return unit[-1]
    if word.startswith("--output="):
        return word[9:]
    return word[2:] if word.startswith("-o") and not word.startswith("-obj") else None


def _find_files(words: list[str]) -> tuple[list[str], dict[str, str], list[str], str]:
    """Find the inputs, the sources with their languages by ``-x``, headers, and the output by ``-o``; else empty.

    Headers are no inputs: what a driver makes of them are precompiled headers.
    """
    inputs: list[str] = []
    headers: list[str] = []
    sources: dict[str, str] = {}
    output, language = "", ""
    for unit in option_units(words):
        word = unit[0]
        if (named := _output(unit)) is not None:
            output = named
        elif word.startswith("-x"):
            language = unit[-1] if word == "-x" else word[2:]
            language = "" if language == "none" else language
        elif _is_input(word) and _is_header(word, language):
            headers.append(word)
        elif _is_input(word):
            inputs.append(word)
            if language in LANGUAGES or (not language and _split(word)[1] in _WITH_CODE):
                sources[word] = language
    return inputs, sources, headers, output


def _is_header(word: str, language: str) -> bool:
    return language.endswith("-header") or (not language and _split(word)[1] in HEADERS)


def _language(source: str, *, is_cxx: bool) -> str:
    """Find the language of a source by its suffix, for a driver that compiles C as C++ or not."""
    language = _LANGUAGE_OF_SUFFIX.get(_split(source)[1], "c++")
    return "c++" if is_cxx and language == "c" else language


def _split(path: str) -> tuple[str, str]:
    """Split the name of a file into what is before its suffix, and the suffix."""
    return os.path.splitext(os.path.basename(path))


def preprocessor_words(words: list[str], source: str) -> list[str]:
    """Select the words of a call that preprocessing ``source`` needs: no outputs, linker options and other inputs.

    To preprocess, add ``-E``. If ``source`` is not an input of the call, as ``""`` is not, no input is left.
    """
    found: list[str] = []
    for unit in option_units(words):
        word = unit[0]
        if word in _UNPREPROCESSED or word.startswith(_UNPREPROCESSED_PREFIXES) or _output(unit) is not None:
            continue
        if not _is_input(word) or word == source:
            found += unit
    return found


def find_lto_linker(words: list[str], inputs: list[str], *, linker: str = "") -> str:
    """Find the linker that does link-time optimization in a link: ``lld``, ``other``, or empty without ``-flto``.

    Args:
        words: words of the link.
        inputs: paths of its inputs.
        linker: the linker's name, where no option names it.
    """
    option = last_lto_option(words)
    if option == "-fno-lto" or not (option or any(map(_has_bitcode, inputs))):
        return ""
    linkers = [word for word in words if word.startswith(("-fuse-ld=", "--ld-path="))]
    chosen = linkers[-1].rpartition("/")[2] if linkers else linker
    return "lld" if "lld" in chosen else "other"


def last_lto_option(words: Sequence[str]) -> str:
    """Find the option for link-time optimization that counts, the last one; empty if there is none."""
    options = [word for word in words if word in {"-flto", "-fno-lto"} or word.startswith("-flto=")]
    return options[-1] if options else ""


def separate_cache(words: list[str], key: str) -> str:
    """Make the option that replaces the ThinLTO cache of a link by one for ``key``; empty if the link names no cache.

    lld's cache key ignores plugins: it would reuse objects that were compiled without the plugin, and the other way
    round.

    Args:
        words: words of the link, a driver's or a linker's.
        key: digest of compiler and plugin; the suffix of the folder's name.
    """
    options = [part for word in words for part in (word.split(",") if word.startswith("-Wl,") else [word])]
    for option in reversed(options):
        name = option.lstrip("-")
        for cache in _CACHES:
            if option != name and name.startswith(cache) and name != cache:
                return f"--thinlto-cache-dir={name[len(cache) :].rstrip('/')}-{key}"
    return ""


def _has_bitcode(path: str) -> bool:
    """Whether a file is bitcode, or a static library that has some; a thin library, which only has names, is not."""
    try:
        with open(path, "rb") as file:
            begin = file.read(len(_ARCHIVE))
            if begin != _ARCHIVE:
                return begin[:4] in _BITCODE
            while len(header := file.read(60)) == 60:
                place, size = file.tell(), int(header[48:58])
                if file.read(4) in _BITCODE:
                    return True
                # Members begin at even places.
                file.seek(place + max(0, size) + size % 2)
    except (OSError, ValueError):
        pass
    return False
