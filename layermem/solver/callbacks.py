"""User functions that a solver calls in each iteration."""

from __future__ import annotations

from collections.abc import Callable

Callback = Callable[[], object]
EVENTS = ("on_start", "on_gradient", "on_iteration")  # in this order, in each iteration


class Callbacks:
    """Callbacks by event, in the order in which they were added."""

    def __init__(self) -> None:
        self._by_event: dict[str, list[Callback]] = {event: [] for event in EVENTS}

    def add(self, **callbacks: Callback | None) -> None:
        for event, callback in callbacks.items():
            if callback is not None:
                self._by_event[event].append(callback)

    def call(self, event: str) -> None:
        for callback in self._by_event[event]:
            callback()
