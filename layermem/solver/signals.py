"""Effects of SIGINT (Ctrl-C), SIGHUP (a closed terminal), SIGTERM (the end of a container or of a job) and SIGUSR1 on
a running solver.

    stop      finish the iteration, save a snapshot if snapshot_after_train is set, and end
    snapshot  finish the iteration, save a snapshot, and continue
    budget    look at the budget again before the next iteration (live_budget.py)
    none      ignore the signal

With several ranks, SIGUSR1 also has the effect of SIGHUP: launchers forward SIGUSR1 to all ranks, but end at a SIGHUP.

A second SIGINT or SIGTERM before the first takes effect ends the run at once, without a snapshot.
source  Caffe signal_handler.cpp, for SIGINT and SIGHUP; its defaults are stop and snapshot
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType

from layermem.errors import InputError
from layermem.utils.early_signals import deliver

Handler = Callable[[int, FrameType | None], object] | int | None  # a handler for signal.signal
EFFECTS = ("stop", "snapshot", "none", "budget")
REQUESTS = tuple(each for each in EFFECTS if each != "none")


class Requests:
    """Requests of signals, callbacks and other threads: "stop", "snapshot" or "budget".

    A single rank obeys at once.  Several ranks obey in the same iteration: a request is `pending` until the message
    that follows the iteration carries it to the others.
    """

    def __init__(self, size: int = 1):
        self._own: set[str] = set()
        self._agreed: set[str] = set() if size > 1 else self._own

    def add(self, what: str) -> None:
        if what not in REQUESTS:
            raise InputError(f"no request '{what}' (choose from {', '.join(REQUESTS)})")
        self._own.add(what)

    def __contains__(self, what: object) -> bool:
        return what in self._agreed

    def discard(self, what: str) -> None:
        self._own.discard(what)
        self._agreed.discard(what)

    @property
    def pending(self) -> frozenset[str]:
        """The requests of this rank that the others do not know yet."""
        return frozenset(self._own)

    def agree(self, ranks: Iterable[Iterable[str]]) -> None:
        """Obey the requests of any rank."""
        for requests in ranks:
            self._agreed.update(requests)

    def is_pending(self, what: str) -> bool:
        """Whether `what` was requested here and has not happened yet."""
        return what in self._own or what in self._agreed


class Signals:
    """A context in which signals call `request(effect)`.  It works in the main thread only; elsewhere it does nothing.

    `pending()` is whether a requested stop has not happened yet; `of_ranks`, whether there are several ranks; without
    `sigterm` or `sigusr1`, these signals end the process as ever.  `received` is the signal that asked to stop.
    """

    def __init__(
        self,
        request: Callable[[str], None],
        pending: Callable[[], bool],
        sigint: str,
        sighup: str,
        sigterm: str | None = None,
        sigusr1: str | None = None,
        *,
        of_ranks: bool = False,
    ):
        for effect in (sigint, sighup, sigterm, sigusr1):
            if effect not in (*EFFECTS, None):
                raise InputError(f"unknown signal effect '{effect}' (choose from {', '.join(EFFECTS)})")
        self.request, self.pending = request, pending
        self.received: int | None = None
        self.effects: dict[int, tuple[str, ...]] = {signal.SIGINT: (sigint,)}
        if sigterm is not None:
            self.effects[signal.SIGTERM] = (sigterm,)
        if hasattr(signal, "SIGHUP"):
            self.effects[signal.SIGHUP] = (sighup,)
            if sigusr1 is not None or of_ranks:
                self.effects[signal.SIGUSR1] = (sigusr1 or "none", sighup if of_ranks else "none")
        self._previous: dict[int, Handler] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in self.effects:
                self._previous[number] = signal.signal(number, self._handle)
            deliver()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        for effect in self.effects[signal.Signals(number)]:
            if effect == "stop":
                if number != signal.SIGHUP and self.pending():
                    raise KeyboardInterrupt
                self.received = number
            if effect != "none":
                self.request(effect)
