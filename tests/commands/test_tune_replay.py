"""What a tuning with a replay may be asked."""

from pathlib import Path
from typing import Any

import pytest

from mlgokit.commands.tune import run
from mlgokit.commands.tune_options import Tune, _for_replay
from mlgokit.errors import ToolError, UsageError


def test_inlining_alone_is_searched_where_a_replay_is_asked_for():
    plain, replayed = _for_replay(Tune()), _for_replay(Tune(artifact="replay"))
    assert plain == Tune()
    # Of the shipped policies too, only inlining could be replayed.
    assert (replayed.allocation_share, replayed.pass_share, replayed.shipped_policies) == (0, 0, "off")


@pytest.mark.parametrize(
    ("named", "option"),
    [
        ({"objective": "spill-cost"}, "--objective spill-cost"),
        ({"corpus": Path("corpus")}, "--corpus"),
        ({"cargo": "cargo build --release", "replay_clang": Path("clang-16")}, "--replay-clang with --cargo"),
        ({"allocation_share": 0.5}, "--allocation-share 0.5"),
        ({"pass_share": 0.1}, "--pass-share 0.1"),
    ],
)
def test_what_has_no_replay_is_refused(named: dict[str, Any], option: str):
    with pytest.raises(
        UsageError, match=f"{option}: cannot be combined with --artifact replay, which covers only inlining"
    ):
        _for_replay(Tune(artifact="replay", **named))


def test_a_compiler_for_no_replay_is_refused():
    with pytest.raises(UsageError, match="--replay-clang: needs --artifact replay; add that"):
        _for_replay(Tune(replay_clang=Path("clang-16")))


def test_a_compiler_that_is_not_there_is_told_before_the_search(tmp_path: Path):
    database = tmp_path / "compile_commands.json"
    database.write_text("[]")
    config = Tune(
        compile_commands=database,
        artifact="replay",
        replay_clang=tmp_path / "clang-77",
        folder=tmp_path / "tune",
        output=tmp_path / "tuned.so",
    )
    with pytest.raises(ToolError, match="clang-77: expected a clang that prints its version"):
        run(config)


def test_a_path_that_rustc_cannot_read_is_told_before_the_search(tmp_path: Path):
    config = Tune(artifact="replay", cargo="cargo build --release", output=tmp_path / "my own" / "tuned.so")
    with pytest.raises(UsageError, match="tuned-replay': expected a folder without spaces in its path"):
        _for_replay(config)
