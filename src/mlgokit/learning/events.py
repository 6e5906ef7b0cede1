"""TensorBoard's event files: numbers by step, as TFRecords of protobuf's messages.

docs/formats.md, "Event files", has the bytes; ``Event`` and ``Summary`` in TensorFlow's ``core/util/event.proto`` and
``core/framework/summary.proto`` are the source.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from mlgokit.files import atomic_write, writing
from mlgokit.traces.messages import message_classes
from mlgokit.traces.tfrecord import frame

EVENTS_NAME = "events.out.tfevents.0.mlgokit"
"""TensorBoard finds files by the part in the middle."""

_Event = message_classes(
    "mlgokit.events",
    {
        "Value": {1: "optional string tag", 2: "optional float simple_value"},
        "Summary": {1: "repeated Value value"},
        "Event": {
            1: "optional double wall_time",
            2: "optional int64 step",
            3: "optional string file_version",
            5: "optional Summary summary",
        },
    },
)["Event"]


def event(step: int, numbers: Mapping[str, float], *, wall_seconds: float) -> bytes:
    """The record of ``numbers`` at ``step``; ``wall_seconds`` since 1970.

    Example:
        >>> event(1, {"loss": 0.5}, wall_seconds=0.0).hex()
        '09000000000000000010012a0d0a0b0a046c6f7373150000003f'
    """
    values = [{"tag": name, "simple_value": value} for name, value in numbers.items()]
    return _Event(wall_time=wall_seconds, step=step, summary={"value": values}).SerializeToString()


def start_events(path: Path, events: Iterable[bytes]) -> None:
    """Write a new file with ``events``, in the place of one that may be there.

    Raises:
        StorageError: the disk is full or not writable.
    """
    first = _Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString()
    atomic_write(path, b"".join(frame(record) for record in (first, *events)))


def append_event(path: Path, record: bytes) -> None:
    """Add a record, which a TensorBoard that looks at the file shows soon.

    Raises:
        StorageError: the disk is full or not writable.
    """
    with writing(path), path.open("ab") as file:
        file.write(frame(record))
