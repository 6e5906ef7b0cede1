"""What a compiler driver may be asked: its words as options with their values, and which of them are let through.

A driver that is only asked (``-###``) starts programs all the same: it looks for accelerators with ``nvptx-arch`` from
the folder where it runs, and for ``-gen-reproducer=always`` it preprocesses with whatever plugins it was given. So here
too an option is let through because it was reviewed. What it then becomes is checked once more, as ``clang -cc1`` gets
it (:mod:`mlgokit.compiler.options.safety`).
"""

import re
from collections.abc import Iterator, Sequence

from mlgokit.compiler.options.parse import Option


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WITH_VALUE = _words("""
    -o -x -D -U -I -L -l -u -z -T -B -F -A -e -MF -MT -MQ -MJ -include -imacros -include-pch -isystem -iquote -idirafter
    -iprefix -iwithprefix -iwithprefixbefore -isysroot -iframework -cxx-isystem -stdlib++-isystem --sysroot -target
    --target -arch -Xclang -Xassembler -Xlinker -Xpreprocessor -Xanalyzer -mllvm --param -dumpbase -dumpbase-ext
    -dumpdir -aux-info -wrapper -specs --config -ccc-gcc-name -ccc-install-dir -resource-dir -serialize-diagnostics
    --serialize-diagnostics -working-directory -ivfsoverlay -framework -install_name -gcc-toolchain -Xopenmp-target
    -gen-cdb-fragment-path
""")
"""Options whose value is the next word, if it is not joined to them."""
_WITH_PASSED_VALUE = frozenset({"-include-pch", "-load", "-plugin", "-add-plugin"})
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
"""Of the families above, what loads a library or starts a program."""
_ACCELERATOR = re.compile(r"(amdgcn|r600|nvptx|spirv?|dxil|amdil|hsail)\S*")


def driver_units(words: Sequence[str]) -> Iterator[Option]:
    """Cut a driver's words into options with the value that is a word of its own; an input has the empty name.

    Example:
        >>> [(unit.name, unit.values) for unit in driver_units(["-I", "a", "-O2", "-Xclang", "-load", "b.c"])]
        [('-I', ('a',)), ('-O2', ()), ('-Xclang', ('-load',)), ('', ('b.c',))]
    """
    position = 0
    while position < len(words):
        word = words[position]
        values = tuple(words[position + 1 : position + 2]) if word in _WITH_VALUE else ()
        size = 1 + len(values)
        if (
            word == "-Xclang"
            and values
            and values[0] in _WITH_PASSED_VALUE
            and "-Xclang" in words[position + 2 : position + 3]
        ):
            size = 4
        taken = tuple(words[position : position + size])
        if not word.startswith("-") or word == "-":
            yield Option(name="", values=(word,), words=taken, kind="input")
        elif word != "--":
            yield Option(name=word, values=values, words=taken, kind="driver")
        position += size


def may_be_asked(unit: Option) -> bool:
    """Whether the driver is given the option; of what another option has for a value the same is asked.

    Example:
        >>> [may_be_asked(unit) for unit in driver_units(["-march=native", "-gen-reproducer=always", "-fplugin=x"])]
        [True, False, False]
    """
    if _REVIEWED.fullmatch(unit.name) is None or _STARTS_OTHERS.fullmatch(unit.name) is not None:
        return False
    value = unit.values[0] if unit.values else unit.name.partition("=")[2]
    return not (unit.name.startswith(("-target", "--target")) and is_accelerator(value))


def may_be_left_out(word: str) -> bool:
    """Whether an option is known to start other programs or to be for an accelerator, so that it is not asked about."""
    names = [unit.name for unit in driver_units([word])]
    return any(_REVIEWED.fullmatch(name) or _STARTS_OTHERS.fullmatch(name) for name in names)


def is_accelerator(triple: str) -> bool:
    """Whether a target is none that a corpus can have: the driver starts programs to look for such a device."""
    return _ACCELERATOR.fullmatch(triple) is not None
