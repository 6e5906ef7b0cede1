"""Options of a compiler driver, and the check which of them may be passed to it.

A driver that is only asked (``-###``) starts programs all the same: it looks for accelerators with ``nvptx-arch`` from
the folder where it runs, and for ``-gen-reproducer=always`` it preprocesses with whatever plugins it was given. So here
too an option is let through because it was reviewed. What it then becomes is checked once more, as ``clang -cc1`` gets
it (:mod:`mlgokit.compiler.options.safety`).
"""

import re
from collections.abc import Iterator, Sequence

from mlgokit.compiler.driver_call import WITH_VALUE
from mlgokit.compiler.options.parse import Option, parse_options
from mlgokit.compiler.options.safety import is_reviewed_code_option

_PASSED_ON = "-Xclang"
_REVIEWED = re.compile(
    r"-[fmWODUIF].*|-g(?!en-).*|-i(dirafter|framework|macros|nclude|prefix|quote|sysroot|system|withprefix).*"
    r"|--?(std|stdlib|rtlib|unwindlib|sysroot|target|gcc-toolchain|gcc-install-dir|gcc-triple|embed-dir)(=.*)?"
    r"|--(param|include|imacros|include-directory|define-macro|undefine-macro)(=.*)?"
    r"|--?(ansi|pedantic|no-warnings|all-warnings|pipe|static|shared|traditional-cpp|trigraphs)"
    r"|--no-default-config|--(start|end)-no-unused-arguments"
    r"|-(cxx-isystem|stdlib\+\+-isystem|arch|Xclang|Xpreprocessor|Qunused-arguments|ivfsoverlay|working-directory)"
    r"|-(w|p|pg|pthreads?|undef|traditional|nostd.*|nobuiltininc|nodefaultlibs|nolibc|static-.*|rdynamic|pie|no-pie|nopie)"
    r"|-(s|r|static-pie|integrated-as|no-integrated-as|nostartfiles)"
)
_STARTS_OTHERS = re.compile(r"-(fplugin|fpass-plugin|fopenmp-targets|fsycl|foffload|fcrash-diagnostics|mmlir).*")
"""Options of the families above that load a library or start a program."""
_RUN = re.compile(
    r"-[DUI].*|-(w|include|isystem|iquote|pedantic|pthread|Xclang|mllvm|target)|-O[0-3sz]|-g[0-3]?|-std=[\w+:]+"
    r"|-W(?![lap],)[\w=+-]*|--target=[\w.-]+|-m(?!mlir)[\w.,=+-]+"
    # The driver's own names for what -cc1 calls otherwise.
    r"|-f(no-)?(strict-aliasing|strict-overflow|PIC|pic|PIE|pie|(un)?signed-char|builtin-\w+|stack-protector(-\w+)?|ident"
    r"|asynchronous-unwind-tables|omit-frame-pointer|trapping-math|associative-math|reciprocal-math|signed-zeros"
    r"|honor-nans|honor-infinities|(tree-|tree-slp-|slp-)?vectorize)|-fexcess-precision=\w+"
)
_RUN_IF_REVIEWED = re.compile(r"-f(?!no-integrated-as)[\w+-]+(=[\w.,+-]*)?")
_LINKED = re.compile(r"-l\w[\w.+-]*|-pthread|-static|-rdynamic|-Wl,--(no-)?as-needed|-Wl,--(start|end)-group")
_ACCELERATOR = re.compile(r"(amdgcn|r600|nvptx|spirv?|dxil|amdil|hsail)\S*")

PRECOMPILED = "-include-pch"
_PATHS = frozenset(
    f"""
    -D -U -I -F -include -imacros -isystem -iquote -idirafter -iprefix -iwithprefix -iwithprefixbefore -iframework
    -cxx-isystem {PRECOMPILED}
    """.split()
)
_JOINED_PATHS = ("-D", "-U", "-I", "-isystem", "-iquote", "-idirafter")
"""Options that only the front end reads; commands that differ only in these compile bitcode in the same way."""
_PASSED = frozenset({"-include", PRECOMPILED})


def driver_units(words: Sequence[str]) -> Iterator[Option]:
    """Parse a driver's words into options with their separate values; an input has an empty name.

    Words after ``-Xclang`` stay together with their values, wherever these are: the driver puts all such words in a row
    into the ``-cc1`` line, in order.

    Example:
        >>> words = ["-I", "a", "-Xclang", "-target-cpu", "-O2", "-Xclang", "k8", "b.c"]
        >>> [(unit.name, unit.values) for unit in driver_units(words)]
        [('-I', ('a',)), ('-Xclang', ('-target-cpu', 'k8')), ('-O2', ()), ('', ('b.c',))]
    """
    units = [unit for unit in _pairs(words) if unit.name != "--"]
    passed = iter(parse_options(value for unit in units if unit.name == _PASSED_ON for value in unit.values))
    waiting = 0
    for unit in units:
        if unit.name != _PASSED_ON or not unit.values:
            yield unit
        elif waiting:
            waiting -= 1
        else:
            values = next(passed).words
            waiting = len(values) - 1
            taken = tuple(word for value in values for word in (_PASSED_ON, value))
            yield Option(name=_PASSED_ON, values=values, words=taken, kind="driver")


def _pairs(words: Sequence[str]) -> Iterator[Option]:
    """Parse words into options with their separate values, without regard to ``-Xclang``."""
    rest = iter(words)
    for word in rest:
        values = tuple(value for value in [next(rest, None)] if value is not None) if word in WITH_VALUE else ()
        is_input = not word.startswith("-") or word == "-"
        yield Option(
            name="" if is_input else word,
            values=(word,) if is_input else values,
            words=(word, *values),
            kind="input" if is_input else "driver",
        )


def may_be_asked(unit: Option) -> bool:
    """Whether the option may be passed to a driver that only prints its commands; an option's value is checked too.

    Example:
        >>> [may_be_asked(unit) for unit in driver_units(["-march=native", "-gen-reproducer=always", "-fplugin=x"])]
        [True, False, False]
    """
    if not all(unit.words) or not _REVIEWED.fullmatch(unit.name) or _STARTS_OTHERS.fullmatch(unit.name):
        return False
    value = unit.values[0] if unit.values else unit.name.partition("=")[2]
    return not (unit.name.startswith(("-target", "--target")) and is_accelerator(value))


def may_be_run(unit: Option) -> bool:
    """Whether a driver that compiles, and is not only asked, may be given the option by an untrusted command.

    A driver acts on more than it tells ``-cc1``: it writes statistics (``-fproc-stat-report=``), leaves reports of
    crashes, and chooses the programs that it starts. So of the families only those options are taken that ``-cc1`` has
    too and that are reviewed there.

    Example:
        >>> [may_be_run(unit) for unit in driver_units(["-fno-rtti", "-DA", "-fproc-stat-report=a", "-save-temps"])]
        [True, True, False, False]
    """
    return may_be_asked(unit) and (
        _RUN.fullmatch(unit.name) is not None
        or (_RUN_IF_REVIEWED.fullmatch(unit.name) is not None and is_reviewed_code_option(unit.name))
    )


def may_be_linked(word: str) -> bool:
    """Whether an untrusted link command may end in this word: a library by name, or how libraries are linked.

    Example:
        >>> [may_be_linked(word) for word in ("-lm", "-pthread", "-Wl,-Map=m", "--ld-path=./ld", "-l./evil", "@words")]
        [True, True, False, False, False, False]
    """
    return _LINKED.fullmatch(word) is not None


def may_be_left_out(word: str) -> bool:
    """Whether an option is known to start other programs or to concern accelerators, so that it is dropped."""
    names = [unit.name for unit in driver_units([word])]
    return any(_REVIEWED.fullmatch(name) or _STARTS_OTHERS.fullmatch(name) for name in names)


def is_accelerator(triple: str) -> bool:
    """Whether a target is an accelerator, which is not supported: the driver starts programs to look for one."""
    return _ACCELERATOR.fullmatch(triple) is not None


def split_path_option(unit: Option) -> Option | None:
    """Separate the name and the path of an option that only the front end reads; ``None`` for any other option.

    Raises:
        ValueError: the value is empty, or an option to a compiler that parses the line otherwise.
    """
    option, value = unit.name, "".join(unit.values)
    if option == "-Xclang" and len(unit.values) > 1 and unit.values[0] in _PASSED:
        name, value = unit.values
    elif option in _PATHS:
        name = option
    else:
        name = next((name for name in _JOINED_PATHS if option.startswith(name)), "")
        value = option.removeprefix(name)
        if not name:
            return None
    if not value or value.startswith(("-", "@")):
        raise ValueError(
            f"expected a value of {name} that does not begin with - or @, found {' '.join(unit.words)[:200]}"
        )
    return Option(name=name, values=(value,), words=unit.words, kind="path")


def front_end_paths(words: Sequence[str]) -> tuple[Option, ...]:
    """List the options of a command that only the front end reads, those of ``-Xclang`` last, as ``-cc1`` gets them.

    Raises:
        ValueError: as :func:`split_path_option` does.
    """
    paths = (path for unit in driver_units(words) if (path := split_path_option(unit)) is not None)
    return tuple(sorted(paths, key=lambda path: path.words[0] == _PASSED_ON))
