"""A verified plugin is published together with what was measured with it, or nothing is.

Everything that belongs to a result is put into ``finished/`` in the folder of the search first. Then the plugin
replaces the older one atomically, and the rest follows; ``tuned.json`` is last, and names the plugin's digest. A kill
in between leaves the newer plugin with a part of its files still in ``finished/``, and the next call takes them from
there.
"""

import dataclasses
import json
import shutil
from pathlib import Path

from mlgokit.compiler.plugin_name import publish_plugin, versioned_path
from mlgokit.errors import InputError
from mlgokit.files import atomic_write, digest_file, move_into_place, writing
from mlgokit.tune.result import Tuned
from mlgokit.tune.verify import Verifier

RESULT_NAME = "tuned.json"
_FINISHED = "finished"


def publish(verifier: Verifier, tuned: Tuned, folder: Path) -> Tuned:
    """Publish a verified plugin, its tables and ``tuned.json``; the verifier's plugin is moved.

    Args:
        verifier: verifier of the plugin, with the destinations of it and its tables; tables go below ``folder``.
        tuned: the verified result.
        folder: folder of the tuning, where ``tuned.json`` goes.

    Returns:
        ``tuned`` with the digest and the versioned path of the plugin, with the flag that loads it, and with the time
        of the sessions whose result it takes the place of.

    Raises:
        StorageError: the disk is full or not writable.
    """
    folder, finished = folder.resolve(), verifier.search_folder.resolve() / _FINISHED
    with writing(verifier.plugin):
        versioned = versioned_path(verifier.output, verifier.plugin)
        tuned = dataclasses.replace(
            tuned,
            plugin_sha256=digest_file(verifier.plugin),
            versioned=str(versioned),
            flag=tuned.flag or f"-fpass-plugin={versioned}",
            earlier_seconds=_seconds_in(folder / RESULT_NAME),
        )
    with writing(finished):
        shutil.rmtree(finished, ignore_errors=True)
        for table, target in verifier.tables.items():
            atomic_write(finished / target.resolve().relative_to(folder), table.read_bytes(), durable=True)
    # Without this file the folder does not count, so it is written last and moved last.
    atomic_write(finished / RESULT_NAME, json.dumps(tuned.to_json(), indent=1), durable=True)
    publish_plugin(verifier.plugin, verifier.output)
    _move_finished(finished, folder)
    return tuned


def complete_publishing(search_folder: Path, output: Path, folder: Path) -> bool:
    """Complete a publication that was killed after the plugin was replaced; return whether there was one.

    Args:
        search_folder: folder of the search.
        output: path of the plugin.
        folder: folder of the tuning.

    Raises:
        StorageError: the disk is full or not writable.
    """
    finished = search_folder / _FINISHED
    if not finished.is_dir():
        return False
    digest = _digest_in(finished / RESULT_NAME)
    with writing(output):
        is_replaced = bool(digest) and output.is_file() and digest_file(output) == digest
    if is_replaced:
        _move_finished(finished, folder)
    else:
        shutil.rmtree(finished, ignore_errors=True)
    return is_replaced


def _move_finished(finished: Path, folder: Path) -> None:
    """Move all finished files to the folder of the tuning, the result last."""
    with writing(folder):
        paths = sorted(
            (path for path in finished.rglob("*") if path.is_file()), key=lambda path: path.name == RESULT_NAME
        )
        for path in paths:
            if not path.name.endswith(".tmp"):
                move_into_place(path, folder / path.relative_to(finished), durable=True)
    shutil.rmtree(finished, ignore_errors=True)


def _seconds_in(path: Path) -> float:
    """Elapsed time of the sessions that made a result; 0 if there is none that can be read."""
    try:
        earlier = Tuned.from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError, InputError):
        return 0.0
    return earlier.wall_seconds + earlier.earlier_seconds


def _digest_in(path: Path) -> str:
    """The digest of the plugin in a result; empty if there is none."""
    try:
        return str(json.loads(path.read_bytes())["plugin_sha256"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return ""
