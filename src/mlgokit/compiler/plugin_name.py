"""Publishing a finished plugin: a file with its digest in the name, and a symbolic link to it at the user's path.

ccache, sccache and Ninja reuse an object if its command line is the same, so a new plugin needs a new name. The name
does not end in ``.so``, which Meson 1.0 would take for a library to link.
"""

import contextlib
import re
from pathlib import Path

from mlgokit.errors import UsageError
from mlgokit.files import check_writable, digest_file, move_into_place, replace_by_link, writing
from mlgokit.manifest import digest_value

_DIGITS = 12
_SUFFIX = ".plugin"
_LEAST_BYTES = 1 << 20
"""Any plugin is about as large."""
_ELF, _OURS = b"\x7fELF", b"mlgokit"
"""First bytes of a plugin, and a text that all plugins of mlgokit contain."""


def versioned_path(output: Path, plugin: Path) -> Path:
    """Make the absolute path by which builds load a plugin, beside ``output``.

    Args:
        output: path that the user named for the plugin.
        plugin: current path of the plugin.
    """
    return _path_for(output, digest_file(plugin))


def check_plugin_output(output: Path) -> None:
    """Refuse an output path that is not writable, or that holds a file which mlgokit did not make.

    Raises:
        StorageError: the path cannot be written.
        UsageError: the path has a file that is no plugin of mlgokit.
    """
    check_writable(output, least_bytes=_LEAST_BYTES)
    check_writable(_path_for(output, digest_value("")))
    with writing(output):
        data = output.read_bytes() if output.is_file() else b""
    if data and not (data.startswith(_ELF) and _OURS in data):
        raise UsageError(
            f"{output}: expected a plugin that mlgokit made, or no file, found another file; name another output, or "
            "delete it"
        )


def publish_plugin(plugin: Path, output: Path) -> Path:
    """Move a finished plugin to its versioned path, and link ``output`` to it.

    The version before it stays, for builds that name it; older ones are removed.

    Returns:
        The versioned path.
    """
    with writing(output):
        digest = digest_file(plugin)
        earlier = digest_file(output) if output.is_file() else digest
        path = _path_for(output, digest)
        plugin.chmod(0o755)
        move_into_place(plugin, path, durable=True)
        replace_by_link(path.name, output)
        if earlier != digest:
            _remove_versions(output, kept={digest, earlier})
    return path


def _path_for(output: Path, digest: str) -> Path:
    return output.parent.resolve() / f"{_stem(output)}-{digest[:_DIGITS]}{_SUFFIX}"


def _stem(output: Path) -> str:
    """Cut the suffix from a plugin's name; the names of all its versions begin with the rest."""
    return output.name.removesuffix(".so").removesuffix(_SUFFIX)


def _remove_versions(output: Path, *, kept: set[str]) -> None:
    """Remove other versions of a plugin; files whose digest does not match their name are left."""
    version = re.compile(re.escape(_stem(output)) + f"-([0-9a-f]{{{_DIGITS}}})" + re.escape(_SUFFIX))
    for path in output.parent.iterdir():
        match = version.fullmatch(path.name)
        if match is None or any(digest.startswith(match[1]) for digest in kept):
            continue
        with contextlib.suppress(OSError):
            if path.is_file() and digest_file(path).startswith(match[1]):
                path.unlink()
