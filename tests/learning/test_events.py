import struct
from pathlib import Path

from mlgokit.learning.run_folder import append_event, event, start_events
from mlgokit.traces.tfrecord import iter_records


def test_a_file_begins_with_its_version_and_can_be_added_to(tmp_path: Path):
    path = tmp_path / "events"
    first = event(1, {"reward": 0.25}, wall_seconds=5.0)

    start_events(path, [first])
    append_event(path, event(300, {"reward": 0.5, "loss": -1.0}, wall_seconds=6.0))

    version, again, last = [record.data for record in iter_records(path)]
    assert version.endswith(b"brain.Event:2")
    assert again == first
    # wall_time, step 300 as a varint, then the summary with both numbers.
    assert last.startswith(b"\x09" + struct.pack("<d", 6.0) + b"\x10\xac\x02\x2a")
    assert last.endswith(b"\x0a\x04loss\x15" + struct.pack("<f", -1.0))


def test_starting_again_replaces_the_file(tmp_path: Path):
    path = tmp_path / "events"
    start_events(path, [event(1, {}, wall_seconds=0.0)])
    start_events(path, [])

    assert len(list(iter_records(path))) == 1
