"""The GC roots of each module by the user's link: functions that are live even if their module does not use them."""

import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from mlgokit.builds.link import Linked, LinkPlan, link
from mlgokit.builds.measurement import Measure
from mlgokit.compiler.limits import MOST_PRINTED_BYTES
from mlgokit.compiler.live import dead_functions, mark_live
from mlgokit.compiler.objects import elf as e
from mlgokit.compiler.objects.measure import ObjectSizes
from mlgokit.compiler.regalloc_cost import link_option
from mlgokit.errors import InputError

_REMOVED = re.compile(
    r"(?:removing unused section .*?\.text[.$](?:unlikely\.|hot\.|startup\.|exit\.)?|: Discarded )([^\s')\[]+)"
)
"""What linkers print of each section of a function that they discard: GNU ld, gold, lld and mold; lld for Windows."""
_LISTING = ("--print-gc-sections", "--verbose")
"""Options that make a linker print it, tried in turn: of ELF linkers, and of lld for Windows."""


def find_roots(
    how: Measure, objects: Mapping[str, Path], sizes: Mapping[str, ObjectSizes], *, scratch: Path
) -> dict[str, frozenset[str]]:
    """Find the GC roots of each module: exported functions, those that other modules refer to, and the entry.

    A function that several programs share is kept if one of them keeps it. What is kept although nothing that was
    compiled here refers to it, such as ``main``, is a root as well.

    The plain objects and their sizes with references are by module; images go to a folder of ``scratch``.

    Returns:
        Names of functions by module; empty if the links discard no function, or one of them fails.

    Raises:
        ToolError: a link command cannot be started.
    """
    kept: dict[str, set[str]] = {}
    exported, removes = set[str](), False
    linked = {name: objects[name] for name in sizes if name in objects}
    for index, plan in enumerate(how.plans.values()):
        done = _link_and_list_discarded(how, plan, linked, scratch / str(index))
        if done is None:
            return {}
        removed = Counter(_REMOVED.findall(done.said))
        # A library's objects that the program does not need are not linked at all, and none of their names is there.
        there, exports = _symbols_of(done.image)
        shutil.rmtree(done.image.parent, ignore_errors=True)
        modules = [name for name in plan.modules if name in sizes]
        # Linkers print names alone: a local function is dead only if as many are discarded as modules define it.
        defined = Counter(name for module in modules for name in sizes[module].function_names)
        for module in modules:
            names, groups = sizes[module].function_names, sizes[module].function_signature.tolist()
            kept.setdefault(module, set()).update(
                name
                for name, group in zip(names, groups, strict=True)
                # Of a COMDAT group only the prevailing copy takes part in garbage collection.
                if removed[name] < (1 if group >= 0 else defined[name]) and (not there or name in there)
            )
        exported |= exports
        removes |= bool(removed)
    if not removes:
        return {}
    referring = {module: _names_referred_to(sizes[module], names) for module, names in kept.items()}
    wanted = Counter(name for names in referring.values() for name in names)

    def roots_of(module: str) -> frozenset[str]:
        own = referring[module]
        # Exported, or referred to by another module than this one.
        needed = [one for one in sizes[module].function_names if one in exported or wanted[one] > (one in own)]
        return _add_missing_roots(needed, sizes[module], kept[module])

    return {module: roots_of(module) for module in kept if sizes[module].references is not None}


def _link_and_list_discarded(how: Measure, plan: LinkPlan, objects: Mapping[str, Path], scratch: Path) -> Linked | None:
    """Link, and let the linker print what it discards; ``None`` if that fails."""
    for option in _LISTING:
        done = link(
            plan,
            objects,
            scratch / option,
            timeout_seconds=how.timeout_seconds,
            added=[link_option(option, plan.words[0])],
            environment={"LC_ALL": "C"},
            said_bytes=MOST_PRINTED_BYTES,
        )
        if not done.reason:
            return done
    return None


def _add_missing_roots(needed: Collection[str], sizes: ObjectSizes, kept: Collection[str]) -> frozenset[str]:
    """Add roots to those that are needed from outside, until all functions that the link kept are reachable."""
    roots = set(needed)
    while left := dict.fromkeys(name for name in dead_functions(mark_live(sizes, roots)) if name in kept):
        called = {to for name, to in _references(sizes) if name in left and to != name}
        # Where only cycles of references, and what they reach, are left, one function becomes a root.
        roots.update([name for name in left if name not in called] or [next(iter(left))])
    return frozenset(roots)


def _references(sizes: ObjectSizes) -> Iterator[tuple[str, str]]:
    """Pairs of a function and a name that it refers to."""
    listed = () if sizes.references is None else sizes.references.by_function
    return ((name, to) for name, names in zip(sizes.function_names, listed, strict=True) for to in names)


def _names_referred_to(sizes: ObjectSizes, kept: Collection[str]) -> frozenset[str]:
    """The names that the kept functions and the data of a module refer to."""
    if sizes.references is None:
        return frozenset()
    return sizes.references.always_live.union(to for name, to in _references(sizes) if name in kept)


def _symbols_of(image: Path) -> tuple[set[str], set[str]]:
    """The names that an image defines, as far as it was not stripped, and those that it exports."""
    try:
        elf = e.read_elf(image)
    except InputError:
        return set(), set()
    defined, exported = (_defined(e.read_symbols(elf, kind=kind)) for kind in (e.SHT_SYMTAB, e.SHT_DYNSYM))
    return defined, exported


def _defined(symbols: e.Symbols) -> set[str]:
    rows = zip(symbols.table["name"].tolist(), symbols.section.tolist(), strict=True)
    return {e.text_at(symbols.strings, name) for name, section in rows if section >= 0}
