"""`mlgokit tune` as it is called, until its compilers took so much processor time."""

import dataclasses
import json
from pathlib import Path

from mlgokit.commands.tune import run as tune
from mlgokit.commands.tune_options import Tune
from mlgokit.progress import Report
from mlgokit.tune.loop import NOTHING_LEFT
from mlgokit.tune.result import Tuned

LEAST_SECONDS = 5.0
"""Of processor time, for which a search is begun once more; less is lost in opening it."""
ENOUGH = 0.98
"""A search that spent less than this share of its budget had nothing left to try."""


def tune_for(config: Tune, *, seconds: float, report: Report) -> Tuned:
    """Tune, and go on with it until the compilers took so many seconds in user mode, or nothing more comes of it.

    A call's budget is wall time, of which a busy machine gives it a part; so it is called again for the rest. No call
    gets more wall time than its compilers may use: a busy machine that calms down would spend too much.

    Args:
        config: the call, but for its budget and whether it goes on.
        seconds: of processor time, that of earlier calls in the folder included.
        report: told what is done.
    """
    spent = spent_in(config.folder)
    while True:
        left = seconds - spent
        budget = f"{left / config.compiler.workers:.0f}s" if left >= LEAST_SECONDS else "0s"
        result = tune(dataclasses.replace(config, budget=budget, go_on=config.folder.exists()), report=report)
        gained = result.user_seconds - spent
        spent = result.user_seconds
        if spent >= ENOUGH * seconds or result.ended == NOTHING_LEFT or gained < 1:
            return result


def spent_in(folder: Path) -> float:
    """Processor seconds of the calls that ended in a folder."""
    path = folder / "tuned.json"
    return float(json.loads(path.read_bytes())["user_seconds"]) if path.exists() else 0.0
