"""Display of progress: bars with remaining time on a terminal, one line a minute elsewhere."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from mlgokit.progress import Report
from mlgokit.terminal import open_console, printable

if TYPE_CHECKING:
    from rich.progress import TaskID

QUIET_SECONDS = 60.0
NEWS = " · "


@contextmanager
def show_progress(console: Console | None = None) -> Generator[Report]:
    """A report that draws on standard error; a new label begins a new bar; a total below what is done is not known.

    What follows " · " in a label is news of the same bar.
    """
    console = console or open_console(sys.stderr)
    if not console.is_terminal:
        yield _lines(console)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        tasks: dict[str, TaskID] = {}

        def report(done: int, total: int, label: str) -> None:
            known = None if done > total else total
            text, label = printable(label), label.partition(NEWS)[0]
            # What was done before under the same label has its bar already.
            before = None if label not in tasks else progress.tasks[tasks[label]]
            if before is None or _is_anew(done, int(before.completed), is_finished=before.finished):
                tasks[label] = progress.add_task(text, total=known)
            progress.update(tasks[label], completed=done, total=known, description=text)

        yield report


def _is_anew(done: int, before: int, *, is_finished: bool) -> bool:
    """Whether the work under a known label starts again; reports of threads may arrive out of order."""
    return (not done and (before > 0 or is_finished)) or (is_finished and done < before)


def _lines(console: Console) -> Report:
    said: dict[str, float] = {}
    began: dict[str, float] = {}
    last: dict[str, int] = {}
    finished: set[str] = set()

    def report(done: int, total: int, label: str) -> None:
        now = time.monotonic()
        text, label = printable(label), label.partition(NEWS)[0]
        if label in began and _is_anew(done, last[label], is_finished=label in finished):
            finished.discard(label)
            del began[label], said[label]
        began.setdefault(label, now)
        last[label] = done
        if total == 0:
            return
        whole = done == total
        if whole:
            finished.add(label)
        if not whole and now - said.get(label, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        said[label] = now
        passed = now - began[label]
        # The first moments say nothing about the rest.
        left = f", about {passed * (total - done) / done:.0f} s left" if passed >= 1 and 0 < done < total else ""
        console.print(
            f"{text}: {done} of {total if done <= total else 'unknown'} after {passed:.0f} s{left}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    return report
