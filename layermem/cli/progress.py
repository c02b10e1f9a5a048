"""Progress on standard error, if it is a terminal: a bar over items, or over steps that say what they do.

What takes less than DELAY_SECONDS shows none, so that quick commands print their results alone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from layermem.cli.verbosity import is_quiet

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")
DELAY_SECONDS = 2.0


def track_progress(items: Iterable[Item], description: str) -> Iterator[Item]:
    """The items, with a progress bar on standard error if it is a terminal; none with --quiet."""
    items = list(items)
    with show_progress(len(items), description) as show:
        for done, item in enumerate(items):
            show("", done)
            yield item


@contextmanager
def show_progress(total: int | None, description: str) -> Iterator[Callable[[str, int], None]]:
    """A bar over `total` steps, and a function that says what is done now and how many steps are complete.

    total   None: their number is not known, and the bar only moves
    """
    if is_quiet() or not sys.stderr.isatty():
        yield lambda doing, done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    count = () if total is None else (MofNCompleteColumn(),)
    text = TextColumn("{task.description}", markup=False)
    progress = Progress(BarColumn(), *count, TimeElapsedColumn(), text, console=Console(stderr=True), transient=True)
    task = progress.add_task(description, total=total)

    def show(doing: str, done: int) -> None:
        progress.update(task, description=f"{description} {doing}".rstrip(), completed=done)
        progress.refresh()

    with _after_delay(progress):
        yield show


@contextmanager
def _after_delay(progress: Progress) -> Iterator[None]:
    """Show `progress` once DELAY_SECONDS have passed, to the end of the block."""
    ended = threading.Event()
    lock = threading.Lock()

    def start() -> None:
        with lock:
            if not ended.is_set():
                progress.start()

    timer = threading.Timer(DELAY_SECONDS, start)
    timer.daemon = True
    if DELAY_SECONDS:
        timer.start()
    else:
        start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            ended.set()
        progress.stop()
