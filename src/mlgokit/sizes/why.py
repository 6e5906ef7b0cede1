"""Why a symbol is in a file: what calls it or refers to it, up to what nothing refers to, and where it was inlined."""

import collections
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgokit.errors import MlgokitError, UsageError
from mlgokit.sizes.binary import Binary
from mlgokit.sizes.inlined import InlinedCopies, find_inlined
from mlgokit.sizes.names import read_names
from mlgokit.sizes.read import read_binary
from mlgokit.sizes.references import References, find_references

FORMAT = "mlgokit size reasons"
FORMAT_VERSION = 1
LEVELS = 3
"""How far users of users are told."""
MOST_USERS = 12
"""Users of one symbol that are told."""
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """What uses a symbol.

    Attributes:
        symbol: a function, a variable, or a section if no symbol owns the bytes.
        readable: its demangled name.
        calls: whether it calls the symbol, and does not only refer to it.
        size: its own bytes.
        users: who uses it in turn; empty at the last level and for those that stand elsewhere in the tree.
        others: how many more users it has.
    """

    symbol: str
    readable: str
    calls: bool
    size: int
    users: tuple["User", ...] = ()
    others: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Why a symbol is in a file.

    Attributes:
        path: the file.
        names: the symbol, with its other names.
        readable: demangled.
        size: its bytes; 0 if it was inlined everywhere.
        section: the name of its section.
        users: who calls it or refers to it.
        others: how many more users it has.
        chain: readable names of a shortest way from what nothing refers to, such as ``main``, to the symbol.
        inlined: the functions that it was inlined into.
        notes: sentences about what could not be told.
    """

    path: str
    names: tuple[str, ...]
    readable: str
    size: int
    section: str
    users: tuple[User, ...]
    others: int
    chain: tuple[str, ...]
    inlined: tuple[InlinedCopies, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The record of docs/formats.md."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}


def find_reasons(path: Path, wanted: str) -> Reasons:
    """Tell why a symbol is in a file.

    Args:
        path: the file.
        wanted: the symbol, its demangled name, or a part of that which only one symbol has.

    Raises:
        UsageError: there is no such symbol, or there are several.
        InputError: the file is damaged, or of another kind.
        ToolError: there is no LLVM.
    """
    binary = read_binary(path)
    readable = read_names({name for names in binary.symbols.owners for name in names})
    owner = _find_owner(binary, readable, wanted)
    names = (wanted,) if owner is None else binary.symbols.owners[owner]
    inlined, notes = _inlined(path, binary, sorted({*names, wanted}))
    inlined = tuple(dataclasses.replace(one, into=readable.get(one.into, one.into)) for one in inlined)
    if owner is None:
        if not inlined:
            raise _unknown(binary, readable, wanted, path)
        return Reasons(
            path=str(path),
            names=names,
            readable=wanted,
            size=0,
            section="",
            users=(),
            others=0,
            chain=(),
            inlined=inlined,
            notes=("It was inlined everywhere: no code of its own is left.",),
        )
    found = find_references(path, binary)
    sizes = _sizes(binary)
    place = int(binary.symbols.owner.tolist().index(owner))
    telling = _Telling(found=found, readable=readable, sizes=sizes, told={names[0]})
    users, others = telling.users_of(names[0], LEVELS)
    return Reasons(
        path=str(path),
        names=names,
        readable=readable.get(names[0], names[0]),
        size=sizes.get(names[0], 0),
        section=binary.sections[int(binary.symbols.section[place])].name,
        users=users,
        others=others,
        chain=tuple(readable.get(one, one) for one in _chain(found, names[0])),
        inlined=inlined,
        notes=notes,
    )


def _find_owner(binary: Binary, readable: dict[str, str], wanted: str) -> int | None:
    owners = binary.symbols.owners
    shown = [[readable.get(name, name) for name in names] for names in owners]
    exact = [index for index, names in enumerate(owners) if wanted in names or wanted in shown[index]]
    parts = [(name, index) for index, names in enumerate(shown) for name in names if wanted in name]
    # A local function may be there several times; the first stands for all, as their names are the same.
    found = exact or ([index for _, index in parts] if len({name for name, _ in parts}) == 1 else [])
    return found[0] if found else None


def _unknown(binary: Binary, readable: dict[str, str], wanted: str, path: Path) -> UsageError:
    every = dict.fromkeys(readable.get(name, name) for names in binary.symbols.owners for name in names)
    near = [name for name in every if wanted.lower() in name.lower()]
    some = ", ".join(near[:_NAMED]) or "no such name"
    more = f" and {len(near) - _NAMED} more" if len(near) > _NAMED else ""
    return UsageError(
        f"--why {wanted}: expected a symbol of {path}, or a part of one name alone, found {some}{more}; give a whole "
        "name, as `mlgokit size` shows it"
    )


def _inlined(path: Path, binary: Binary, names: list[str]) -> tuple[tuple[InlinedCopies, ...], tuple[str, ...]]:
    if not any(one.name.endswith("debug_info") for one in binary.sections):
        return (), ("No debug information, so what was inlined is not known: compile with -g to have it.",)
    try:
        return find_inlined(path, binary, names), ()
    except MlgokitError as error:
        return (), (f"What was inlined is not known: {error}.",)


def _sizes(binary: Binary) -> dict[str, int]:
    layer = binary.symbols
    sizes: dict[str, int] = {}
    owners: list[int] = layer.owner.tolist()
    for owner, size in zip(owners, (layer.end - layer.begin).tolist(), strict=True):
        name = layer.owners[owner][0]
        sizes[name] = sizes.get(name, 0) + size
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Telling:
    """What is known of users, and who was told of already."""

    found: References
    readable: dict[str, str]
    sizes: dict[str, int]
    told: set[str]

    def users_of(self, symbol: str, levels: int) -> tuple[tuple[User, ...], int]:
        """Those who use a symbol, callers first, with their own users; and how many more there are."""
        if not levels:
            return (), 0
        uses = self.found.users.get(symbol, {})
        order = sorted(uses, key=lambda user: (not uses[user], -self.sizes.get(user, 0), user))
        fresh = {user for user in order[:MOST_USERS] if user not in self.told}
        self.told.update(fresh)
        users: list[User] = []
        for user in order[:MOST_USERS]:
            above, others = self.users_of(user, levels - 1) if user in fresh else ((), 0)
            users.append(
                User(
                    symbol=user,
                    readable=self.readable.get(user, user),
                    calls=uses[user],
                    size=self.sizes.get(user, 0),
                    users=above,
                    others=others,
                )
            )
        return tuple(users), len(order) - len(users)


def _chain(found: References, symbol: str) -> list[str]:
    """A shortest way to the symbol from one that nothing uses; empty if there is none but itself."""
    below: dict[str, str] = {}
    todo = collections.deque([symbol])
    seen = {symbol}
    while todo:
        one = todo.popleft()
        users = found.users.get(one, {})
        if not users and one != symbol:
            chain = [one]
            while chain[-1] != symbol:
                chain.append(below[chain[-1]])
            return chain
        for user in users:
            if user not in seen:
                seen.add(user)
                below[user] = one
                todo.append(user)
    return []
