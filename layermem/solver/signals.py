"""Effects of SIGINT (Ctrl-C) and SIGHUP (a closed terminal) on a running solver.

    stop      finish the iteration, save a snapshot if snapshot_after_train is set, and end
    snapshot  finish the iteration, save a snapshot, and continue
    none      ignore the signal

A second SIGINT before the first takes effect ends the run at once, without a snapshot.
source  Caffe signal_handler.cpp; its defaults are stop and snapshot
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from layermem.errors import InputError

Handler = Callable[[int, FrameType | None], object] | int | None  # of signal.signal
EFFECTS = ("stop", "snapshot", "none")


class Signals:
    """A context in which signals call `request(effect)`.  It works in the main thread only; elsewhere it does nothing.

    `pending()` is whether a stop was requested that has not happened yet.
    """

    def __init__(self, request: Callable[[str], None], pending: Callable[[], bool], *, sigint: str, sighup: str):
        for effect in (sigint, sighup):
            if effect not in EFFECTS:
                raise InputError(f"unknown signal effect '{effect}' (choose from {', '.join(EFFECTS)})")
        self.request, self.pending = request, pending
        self.effects = {signal.SIGINT: sigint}
        if hasattr(signal, "SIGHUP"):
            self.effects[signal.SIGHUP] = sighup
        self._previous: dict[int, Handler] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in self.effects:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        effect = self.effects[signal.Signals(number)]
        if number == signal.SIGINT and effect == "stop" and self.pending():
            raise KeyboardInterrupt
        if effect != "none":
            self.request(effect)
