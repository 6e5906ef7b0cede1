"""Pretrained policies of the package, by name."""

from collections.abc import Sequence
from pathlib import Path

from mlgokit.errors import UsageError

BUILTIN = "builtin:"
"""Prefix of the name of a pretrained policy, by which it is told from a file."""
SETS = {"Oz": ("size", "passes", "regalloc", "weights-size")}
"""Names of sets of pretrained policies, which are exported into one plugin: all policies for one optimization level."""
SHIPPED = f"{BUILTIN}Oz"
"""The set that is measured beside other results, and that tuned plugins contain."""
_FOLDER = Path(__file__).parent / "pretrained"


def policy_file(named: str | Path) -> Path:
    """Resolve a policy argument: a path, or ``builtin:NAME`` for a pretrained policy of the package.

    Raises:
        UsageError: the package has no policy of this name, or the name stands for several policies.

    Example:
        >>> policy_file("builtin:size").name, policy_file("my.policy").name
        ('size.policy', 'my.policy')
    """
    text = str(named)
    if not text.startswith(BUILTIN):
        return Path(named)
    known = {path.stem: path for path in sorted(_FOLDER.glob("*.policy"))}
    name = text.removeprefix(BUILTIN)
    if name in SETS:
        parts = ", ".join(BUILTIN + part for part in SETS[name])
        raise UsageError(f"policy {text}: expected one policy here, found the name of several; name one of {parts}")
    if name not in known:
        names = (BUILTIN + builtin for builtin in [*SETS, *known])
        raise UsageError(
            f"policy {text}: expected {' or '.join(names)}, found {name!r}; correct the name, or name a file"
        )
    return known[name]


def policy_name(path: Path) -> str:
    """Name a policy file in messages: ``builtin:NAME`` for a pretrained policy of the package, else its path.

    Example:
        >>> policy_name(policy_file("builtin:size")), policy_name(Path("my.policy"))
        ('builtin:size', 'my.policy')
    """
    return BUILTIN + path.stem if path.parent == _FOLDER else str(path)


def policy_files(named: Sequence[str | Path]) -> tuple[Path, ...]:
    """Resolve policy arguments, where ``builtin:Oz`` stands for all pretrained policies of that level.

    Raises:
        UsageError: the package has no policy of such a name.

    Example:
        >>> [path.stem for path in policy_files(["my.policy", "builtin:Oz"])]
        ['my', 'size', 'passes', 'regalloc', 'weights-size']
    """
    files: list[Path] = []
    for name in named:
        parts = SETS.get(str(name).removeprefix(BUILTIN), ()) if str(name).startswith(BUILTIN) else ()
        files += [policy_file(BUILTIN + part) for part in parts] or [policy_file(name)]
    return tuple(files)
