"""Which corpora were made from sources on this machine by this user; all others count as from elsewhere.

Nothing that is in a folder can prove that, because a folder can be copied. So it is noted outside of it, in the user's
folder for such notes: a digest of the corpus's path, of the numbers that the disk gave the folder and its manifest, and
of the nanosecond at which the manifest came there, which nobody can choose. A corpus that was moved, copied or unpacked
is from elsewhere, which costs some milliseconds for each compilation.
"""

import contextlib
import hashlib
import os
from pathlib import Path

import platformdirs

from mlgokit.errors import StorageError
from mlgokit.files import atomic_write
from mlgokit.manifest import MANIFEST_NAME


def note_made_here(folder: Path) -> None:
    """Note a corpus folder that has a manifest and no module yet; if this fails, it counts as from elsewhere."""
    notes = _notes_folder()
    with contextlib.suppress(OSError, StorageError):
        notes.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Atomically: to another process of this user, half a note would look like that of a folder that is gone.
        atomic_write(notes / _name(folder), os.fsencode(folder.resolve()))
        for note in notes.iterdir():
            with contextlib.suppress(OSError):
                if not note.name.startswith(".") and not Path(os.fsdecode(note.read_bytes())).is_dir():
                    note.unlink()


def is_made_here(folder: Path) -> bool:
    """Whether this user made the corpus on this machine from sources."""
    try:
        return (_notes_folder() / _name(folder)).is_file()
    except OSError:
        return False


def _name(folder: Path) -> str:
    """Name the file of the note about a corpus folder, by a digest that another folder at this path has not."""
    path = folder.resolve()
    status, manifest = path.stat(), (path / MANIFEST_NAME).lstat()
    facts = (os.fsencode(path), status.st_dev, status.st_ino, status.st_uid, manifest.st_ino, manifest.st_ctime_ns)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _notes_folder() -> Path:
    return platformdirs.user_state_path("mlgokit") / "corpora"
