"""Policies that come with the package, by name."""

from pathlib import Path

from mlgokit.errors import UsageError

BUILTIN = "builtin:"
"""How the name of such a policy begins, where a file could stand."""
_FOLDER = Path(__file__).parent / "pretrained"


def policy_file(named: str | Path) -> Path:
    """The policy file that a user names: a path, or ``builtin:NAME`` for one that comes with the package.

    Raises:
        UsageError: no such policy comes with it.

    Example:
        >>> policy_file("builtin:size").name, policy_file("my.policy").name
        ('size.policy', 'my.policy')
    """
    text = str(named)
    if not text.startswith(BUILTIN):
        return Path(named)
    known = {path.stem: path for path in sorted(_FOLDER.glob("*.policy"))}
    name = text.removeprefix(BUILTIN)
    if name not in known:
        raise UsageError(
            f"policy {text}: expected {' or '.join(BUILTIN + one for one in known)}, found {name!r}; correct the name, "
            "or name a file"
        )
    return known[name]
