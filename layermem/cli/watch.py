"""A progress bar over items, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def track_progress(items: Iterable[Item], description: str) -> Iterator[Item]:
    """The items, with a progress bar on standard error if it is a terminal."""
    items = list(items)
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=description, console=Console(stderr=True), transient=True)
