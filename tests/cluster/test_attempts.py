"""How often what was killed or hung is tried again: a compilation, and a look at the worker's compiler."""

import pytest

from mlgokit.cluster.compiler import answer_with_retries
from mlgokit.cluster.link import WorkersDiedError
from mlgokit.cluster.parcel import Reply
from mlgokit.cluster.worker import open_with_retries
from mlgokit.compiler.compilation import Compilation, CompileStatus
from mlgokit.errors import ToolError

KILLED = Compilation(status=CompileStatus.CRASHED, killed=True)
HUNG = Compilation(status=CompileStatus.TIMED_OUT)
CRASHED = Compilation(status=CompileStatus.CRASHED)
FINE = Compilation(status=CompileStatus.OK)


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [
        ([FINE], FINE),
        ([KILLED, FINE], FINE),
        ([KILLED] * 5 + [FINE], FINE),
        ([KILLED] * 6, KILLED),
        ([HUNG, HUNG, FINE], FINE),
        ([HUNG] * 3, HUNG),
        ([KILLED, HUNG, KILLED, HUNG, KILLED, FINE], FINE),
        ([KILLED, HUNG, HUNG, HUNG], HUNG),
        ([CRASHED], CRASHED),
    ],
)
def test_kills_and_hangs_are_tried_again_and_are_an_outcome_in_the_end(
    replies: list[Compilation], outcome: Compilation
):
    left = [Reply(done=done) for done in replies]
    assert answer_with_retries(lambda: left.pop(0)).done is outcome
    assert not left


def test_a_compilation_that_ends_its_workers_is_not_asked_again():
    def answer() -> Reply:
        raise WorkersDiedError

    with pytest.raises(WorkersDiedError):
        answer_with_retries(answer)


@pytest.mark.parametrize(("failures", "outcome"), [(0, "made"), (2, "made"), (3, "killed")])
def test_a_worker_whose_compiler_was_killed_at_a_look_is_not_refused(failures: int, outcome: str):
    left = ["killed"] * failures

    def make() -> str:
        if left:
            raise ToolError(left.pop())
        return "made"

    assert open_with_retries(make) == outcome
    assert not left
