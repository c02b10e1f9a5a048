"""The sections of a page that are planned while it is shown: finished sections, and the progress of the others.

    planned = PlannedPage()
    plan = planned.begin()                    starts another plan, of which nothing is ready
    planned.advance(plan, "auto", 2, 9)       the comparison of strategies: current one, number complete
    planned.add(plan, "plan", b"{...}")       the data of a plan (page/data.py) as JSON; then "strategies"
    planned.note(plan, "...")                 a sentence above the plan
    planned.fail(plan, "...")                 the reason why the rest does not come

One thread plans while others answer requests.  Late reports of an earlier plan are dropped.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field

SECTIONS = ("plan", "strategies")  # in the order in which they become ready


@dataclass
class PageState:
    """The state that the page receives: the number of the plan (0: none), the finished sections, and the progress."""

    plan: int = 0
    ready: list[str] = field(default_factory=list)
    doing: str = ""
    done: int = 0
    total: int = 0
    notes: list[str] = field(default_factory=list)
    error: str | None = None


class PlannedPage:
    """The sections of the newest plan, as JSON."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = PageState()
        self._contents: dict[str, bytes] = {}
        self._version = 0

    def begin(self) -> int:
        """Drop all sections and return the number of the new plan."""
        with self._lock:
            self._state, self._contents = PageState(self._state.plan + 1), {}
            self._version += 1
            return self._state.plan

    def add(self, plan: int, section: str, content: bytes) -> None:
        """Store a finished section."""
        with self._lock:
            if self._is_current(plan):
                self._contents[section] = content
                self._state.ready.append(section)

    def advance(self, plan: int, doing: str, done: int, total: int) -> None:
        with self._lock:
            if self._is_current(plan):
                self._state.doing, self._state.done, self._state.total = doing, done, total

    def note(self, plan: int, sentence: str) -> None:
        with self._lock:
            if self._is_current(plan):
                self._state.notes.append(sentence)

    def fail(self, plan: int, sentence: str) -> None:
        """Record an error; no further section becomes ready."""
        with self._lock:
            if self._is_current(plan):
                self._state.error = sentence

    def state(self) -> tuple[int, dict[str, object]]:
        """A number that changes with the state, and the fields of PageState."""
        with self._lock:
            return self._version, asdict(self._state)

    def content(self, section: str) -> bytes | None:
        """The JSON of a finished section."""
        with self._lock:
            return self._contents.get(section)

    def _is_current(self, plan: int) -> bool:
        if plan != self._state.plan:
            return False
        self._version += 1
        return True
