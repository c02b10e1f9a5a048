"""What the signals of a terminal mean while a solver runs: SIGINT (Ctrl-C) and SIGHUP (the terminal closes).

    stop      finish the iteration, save a snapshot if the solver asks for one after training, and end
    snapshot  finish the iteration, save a snapshot, and go on
    none      ignore the signal

A second SIGINT while the first still waits ends the run at once, without a snapshot.
source  Caffe signal_handler.cpp; its defaults are stop and snapshot
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from layermem.errors import InputError

EFFECTS = ("stop", "snapshot", "none")


class Signals:
    """A context in which signals call `request(effect)`.  Only the main thread can have one; elsewhere it does nothing.

    `pending()` tells whether a stop was asked for and has not happened yet.
    """

    def __init__(self, request: Callable[[str], None], pending: Callable[[], bool], *, sigint: str, sighup: str):
        for effect in (sigint, sighup):
            if effect not in EFFECTS:
                raise InputError(f"'{effect}' is no effect of a signal; choose one of: {' '.join(EFFECTS)}")
        self.request, self.pending = request, pending
        self.effects = {signal.SIGINT: sigint}
        if hasattr(signal, "SIGHUP"):
            self.effects[signal.SIGHUP] = sighup
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in self.effects:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        effect = self.effects[signal.Signals(number)]
        if number == signal.SIGINT and effect == "stop" and self.pending():
            raise KeyboardInterrupt
        if effect != "none":
            self.request(effect)
