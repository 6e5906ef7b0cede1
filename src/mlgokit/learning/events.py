"""TensorBoard's event files: numbers by step, as TFRecords of three protobuf messages.

The libraries that write them bring protobuf and more, for six fields; the framing is here already. docs/formats.md,
"Event files", has the bytes; ``Event`` and ``Summary`` in TensorFlow's ``core/util/event.proto`` and
``core/framework/summary.proto`` are the source.
"""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from mlgokit.files import atomic_write, writing
from mlgokit.traces.sequence_example import encode_field, encode_varint
from mlgokit.traces.tfrecord import frame

EVENTS_NAME = "events.out.tfevents.0.mlgokit"
"""TensorBoard finds files by the part in the middle."""

_FILE_VERSION = b"brain.Event:2"


def event(step: int, numbers: Mapping[str, float], *, wall_seconds: float) -> bytes:
    """The record of ``numbers`` at ``step``; ``wall_seconds`` since 1970.

    Example:
        >>> event(1, {"loss": 0.5}, wall_seconds=0.0).hex()
        '09000000000000000010012a0d0a0b0a046c6f7373150000003f'
    """
    values = b"".join(
        encode_field(1, encode_field(1, name.encode()) + b"\x15" + struct.pack("<f", value))
        for name, value in numbers.items()
    )
    return b"\x09" + struct.pack("<d", wall_seconds) + b"\x10" + encode_varint(step) + encode_field(5, values)


def start_events(path: Path, events: Iterable[bytes]) -> None:
    """Write a new file with ``events``, in the place of one that may be there.

    Raises:
        StorageError: the disk is full or not writable.
    """
    first = b"\x09" + struct.pack("<d", 0.0) + encode_field(3, _FILE_VERSION)
    atomic_write(path, b"".join(frame(record) for record in (first, *events)))


def append_event(path: Path, record: bytes) -> None:
    """Add a record, which a TensorBoard that looks at the file shows soon.

    Raises:
        StorageError: the disk is full or not writable.
    """
    with writing(path), path.open("ab") as file:
        file.write(frame(record))
