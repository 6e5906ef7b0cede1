"""A plugin and its tuned.json take their places together: a kill at any instant leaves the older pair or the newer."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlgokit.errors import StorageError
from mlgokit.files import digest_file
from mlgokit.progress import say_nothing
from mlgokit.testing import FAKE_TOOLCHAIN, FakeCompiler
from mlgokit.tune.publish import complete_publishing, publish
from mlgokit.tune.result import Tuned
from mlgokit.tune.verify import Verifier


def tuned(folder: Path, saved: float) -> Tuned:
    return Tuned(
        plugin=str(folder / "out" / "tuned.so"),
        table=str(folder / "tune" / "search" / "decisions"),
        flag="",
        plain_bytes=100.0,
        tuned_bytes=100.0 - saved,
        plain_link=None,
        tuned_link=None,
        judged=None,
        taken_back=0,
        ended="",
        modules=(),
        failures={},
        curve=(),
        user_seconds=0.0,
        compilations=0,
    )


def verifier(folder: Path, contents: str) -> Verifier:
    """What has verified a plugin with a table of this text."""

    def nothing(*_: object) -> None:
        raise AssertionError

    search = folder / "tune" / "search"
    made = Verifier(
        compiler=FakeCompiler(answer=nothing, toolchain=FAKE_TOOLCHAIN),  # pyright: ignore[reportArgumentType]
        modules=(),
        output=folder / "out" / "tuned.so",
        search_folder=search,
        report=say_nothing,
    )
    made.folder.mkdir(parents=True, exist_ok=True)
    made.plugin.write_text(f"plugin of {contents}")
    table = made.folder / "decisions.table"
    table.write_text(contents)
    made.tables[table] = search / "decisions"
    return made


def state(folder: Path) -> tuple[str, str, float]:
    """Plugin, table, and what tuned.json says of both."""
    result = json.loads((folder / "tune" / "tuned.json").read_text())
    output = folder / "out" / "tuned.so"
    assert result["plugin_sha256"] == digest_file(output)
    return output.read_text(), (folder / "tune" / "search" / "decisions").read_text(), result["tuned_bytes"]


OLDER, NEWER = ("plugin of older", "older", 99.0), ("plugin of newer", "newer", 98.0)


def publish_both(folder: Path) -> None:
    publish(verifier(folder, "older"), tuned(folder, 1.0), folder / "tune")
    assert state(folder) == OLDER
    publish(verifier(folder, "newer"), tuned(folder, 2.0), folder / "tune")


def test_a_result_has_its_place_and_the_digest_of_its_plugin(tmp_path: Path):
    publish_both(tmp_path)
    assert state(tmp_path) == NEWER
    assert os.access(tmp_path / "out" / "tuned.so", os.X_OK)
    result = json.loads((tmp_path / "tune" / "tuned.json").read_text())
    assert Path(result["versioned"]) == (tmp_path / "out" / "tuned.so").resolve()
    assert result["plugin_sha256"].startswith(Path(result["versioned"]).stem.removeprefix("tuned-"))
    # The one before, for builds that name it.
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert not (tmp_path / "tune" / "search" / "finished").exists()
    assert not complete_publishing(tmp_path / "tune" / "search", tmp_path / "out" / "tuned.so", tmp_path / "tune")


def test_the_time_of_earlier_sessions_adds_up(tmp_path: Path):
    folder = tmp_path / "tune"
    said = dataclasses.replace(tuned(tmp_path, 1.0), wall_seconds=10.0)

    sums = [publish(verifier(tmp_path, "older"), said, folder).earlier_seconds for _ in range(3)]
    assert sums == [0.0, 10.0, 20.0]
    assert json.loads((folder / "tuned.json").read_text())["earlier_seconds"] == 20.0
    (folder / "tuned.json").write_text("{")
    assert publish(verifier(tmp_path, "newer"), said, folder).earlier_seconds == 0.0


# Ends itself at the n-th thing that it does with files, for each n, in a copy of the process.
KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_publish import NEWER, OLDER, complete_publishing, publish, state, tuned, verifier
left = [0]
def count(event, _):
    if left[0] and event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "shutil.rmtree"):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
seen = []
for number in range(1, 500):
    folder = Path(sys.argv[1]) / str(number)
    publish(verifier(folder, "older"), tuned(folder, 1.0), folder / "tune")
    newer = verifier(folder, "newer")
    child = os.fork()
    if not child:
        left[0] = number
        publish(newer, tuned(folder, 2.0), folder / "tune")
        os._exit(0)
    _, code = os.waitpid(child, 0)
    plugin = (folder / "out" / "tuned.so").read_text()
    if code:
        # The next call may be killed as well.
        for again in range(1, 500):
            child = os.fork()
            if not child:
                left[0] = again
                complete_publishing(folder / "tune" / "search", folder / "out" / "tuned.so", folder / "tune")
                os._exit(0)
            if not os.waitpid(child, 0)[1]:
                break
    found = state(folder)
    assert found in (OLDER, NEWER) and found[0] == plugin, (number, found)
    assert not (folder / "tune" / "search" / "finished").exists()
    seen.append(found == NEWER)
    if not code:
        break
assert seen == sorted(seen) and not seen[0] and seen[-1], seen
print(len(seen))
"""


def test_a_kill_at_any_instant_leaves_the_older_pair_or_the_newer(tmp_path: Path):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    words = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15


def test_an_output_that_cannot_be_written_leaves_the_older_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    publish(verifier(tmp_path, "older"), tuned(tmp_path, 1.0), tmp_path / "tune")
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if target.name == "tuned.so":
            raise PermissionError(13, "Permission denied")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StorageError, match=r"tuned\.so: expected to be able to write there"):
        publish(verifier(tmp_path, "newer"), tuned(tmp_path, 2.0), tmp_path / "tune")
    assert state(tmp_path) == OLDER
    assert not complete_publishing(tmp_path / "tune" / "search", tmp_path / "out" / "tuned.so", tmp_path / "tune")
    assert state(tmp_path) == OLDER


@pytest.mark.parametrize("text", ["", "{", "[]", '{"plugin_sha256": 3}', "[" * 100_000])
def test_a_damaged_result_that_waited_is_put_away(tmp_path: Path, text: str):
    publish(verifier(tmp_path, "older"), tuned(tmp_path, 1.0), tmp_path / "tune")
    waiting = tmp_path / "tune" / "search" / "finished"
    waiting.mkdir()
    (waiting / "tuned.json").write_text(text)
    assert not complete_publishing(waiting.parent, tmp_path / "out" / "tuned.so", tmp_path / "tune")
    assert not waiting.exists()
    assert state(tmp_path) == OLDER


def test_what_is_published_says_what_was_left_out(tmp_path: Path):
    said = dataclasses.replace(tuned(tmp_path, 1.0), left_out={"a.c": "why not"})
    assert publish(verifier(tmp_path, "older"), said, tmp_path / "tune").left_out == {"a.c": "why not"}
