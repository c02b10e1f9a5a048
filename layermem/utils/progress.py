"""Progress on standard error, if it is a terminal: a bar over items, or over steps that describe themselves.

Work that takes less than DELAY_SECONDS shows no bar, so that quick commands print only their results.  A bar that
begins while another one is shown appears below it: the terminal has one display at a time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from layermem.utils.steps import is_quiet
from layermem.utils.text import printable, wrap

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")
DELAY_SECONDS = 2.0
_shown: list[Progress] = []  # the display of the terminal, while there is one


def track_progress(items: Iterable[Item], description: str) -> Iterator[Item]:
    """Yield the items, with a progress bar on standard error if it is a terminal, unless --quiet is set."""
    items = list(items)
    with show_progress(len(items), description) as show:
        for done, item in enumerate(items):
            show("", done)
            yield item


def announce(text: str) -> None:
    """Print one line on standard error, for work that takes long, unless --quiet is set."""
    if not is_quiet():
        print(wrap(printable(text)), file=sys.stderr, flush=True)


@contextmanager
def show_progress(total: int | None, description: str) -> Iterator[Callable[[str, int], None]]:
    """Show a bar over `total` steps; yield a function that takes the current activity and the number of complete steps.

    total   None: their number is not known, and the bar only moves
    """
    if is_quiet() or not sys.stderr.isatty():
        yield lambda doing, done: None
        return
    with _display() as progress:
        task = progress.add_task(description, total=total, count=_count(0, total))

        def show(doing: str, done: int) -> None:
            text = f"{description} {doing}".rstrip()
            progress.update(task, description=text, completed=done, count=_count(done, total))
            progress.refresh()

        try:
            yield show
        finally:
            progress.remove_task(task)


def _count(done: int, total: int | None) -> str:
    return "" if total is None else f"{done}/{total}"


@contextmanager
def _display() -> Iterator[Progress]:
    """Yield the display that is shown, or a new one until the end of the block."""
    if _shown:
        yield _shown[-1]
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    count, text = (TextColumn(f"{{task.{field}}}", markup=False) for field in ("fields[count]", "description"))
    progress = Progress(BarColumn(), count, TimeElapsedColumn(), text, console=Console(stderr=True), transient=True)
    _shown.append(progress)
    try:
        with _after_delay(progress):
            yield progress
    finally:
        _shown.remove(progress)


@contextmanager
def _after_delay(progress: Progress) -> Iterator[None]:
    """Show `progress` after DELAY_SECONDS, until the end of the block."""
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
