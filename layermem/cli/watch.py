"""Progress on standard error, if it is a terminal: a bar over items, or over steps that say what they do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from layermem.cli.verbosity import is_quiet

Item = TypeVar("Item")


def track_progress(items: Iterable[Item], description: str) -> Iterator[Item]:
    """The items, with a progress bar on standard error if it is a terminal; none with --quiet."""
    items = list(items)
    if is_quiet() or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=description, console=Console(stderr=True), transient=True)


@contextmanager
def show_progress(total: int, description: str) -> Iterator[Callable[[str, int], None]]:
    """A bar over `total` steps, and a function that says what is done now and how many steps are complete."""
    if is_quiet() or not sys.stderr.isatty():
        yield lambda doing, done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)

        def show(doing: str, done: int) -> None:
            progress.update(task, description=f"{description} {doing}", completed=done)
            progress.refresh()

        yield show
