"""The sections of a page that are planned while it is shown: what is ready, and how far the rest is.

    planned = Planned()
    plan = planned.begin()                    another plan: nothing is ready
    planned.advance(plan, "auto", 2, 9)       the comparison of strategies: what is done now, how many are complete
    planned.add(plan, "plan", b"{...}")       the data of a plan (page/data.py) as JSON; then "strategies"
    planned.note(plan, "...")                 a sentence above the plan
    planned.fail(plan, "...")                 why the rest does not come

One thread plans while others answer requests.  What an earlier plan still reports is dropped.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field

SECTIONS = ("plan", "strategies")  # in the order in which they become ready


@dataclass
class State:
    """What the page receives: the number of the plan (0: none), the sections that are ready, and the progress."""

    plan: int = 0
    ready: list[str] = field(default_factory=list)
    doing: str = ""
    done: int = 0
    total: int = 0
    notes: list[str] = field(default_factory=list)
    error: str | None = None


class Planned:
    """The sections of the newest plan, as JSON."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = State()
        self._contents: dict[str, bytes] = {}
        self._version = 0

    def begin(self) -> int:
        """Forget all sections; the number of the new plan."""
        with self._lock:
            self._state, self._contents = State(self._state.plan + 1), {}
            self._version += 1
            return self._state.plan

    def add(self, plan: int, section: str, content: bytes) -> None:
        """`section` is ready."""
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
        """No further section becomes ready."""
        with self._lock:
            if self._is_current(plan):
                self._state.error = sentence

    def state(self) -> tuple[int, dict[str, object]]:
        """A number that changes with the state, and the fields of State."""
        with self._lock:
            return self._version, asdict(self._state)

    def content(self, section: str) -> bytes | None:
        """The JSON of a section that is ready."""
        with self._lock:
            return self._contents.get(section)

    def _is_current(self, plan: int) -> bool:
        if plan != self._state.plan:
            return False
        self._version += 1
        return True
