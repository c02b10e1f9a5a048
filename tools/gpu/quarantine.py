"""Kernels that are not launched any more: they, or kernels like them, have hung or have ended the GPU's context.

A row of the results with `kernel` and `fatal` ("hung" or "faulted") reports such a kernel; Quarantine.reason() derives
from all of these rows which kernels are given up.  A whole net names no kernel: its row has `suspects`, families of
kernels that it is run without when it is begun again (LAYERMEM_WITHOUT).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, takewhile
from typing import NamedTuple

from tools.gpu.kept import Row

HUNG, FAULTED = "hung", "faulted"
RUNNING = "running"  # column of a row whose item has not ended: what is known of it
FIRST_SUSPECT = "warpgroups"
MANY = 3  # modules in which kernels of one family fail, or families of one module that fail
WORDS = 2  # at least, that names of one family have in common: conv_dgrad
WITHOUT = "LAYERMEM_WITHOUT"  # environment variable: families of kernels that are not used, separated by commas


class Kernel(NamedTuple):
    module: str
    function: str

    def begins(self, words: str) -> bool:
        return f"{self.function}_".startswith(f"{words}_")


class Quarantine:
    """Of the kernels that failed in these rows.

    A kernel that hung takes its whole module along.  Two of a module that failed take along those of the module whose
    names begin as theirs do; from three modules on, also those of other modules that have in their names all that the
    names of these modules have in common, unless one of them has passed there.  Three families of kernels that failed
    take their module along.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        rows = [row for row in rows if "." in row.get("kernel", "")]
        self.failed = {Kernel(*row["kernel"].split(".")): row["fatal"] for row in rows if "fatal" in row}
        self._passed = {Kernel(*row["kernel"].split(".")) for row in rows if row.get("passed") is True}
        self._reasons: dict[str, str] = {}

    def reason(self, kernel: str) -> str:
        """Why a kernel, as MODULE.FUNCTION, is not launched; empty if it may be."""
        if kernel not in self._reasons:
            self._reasons[kernel] = next(self._reasons_of(Kernel(*kernel.split("."))), "")
        return self._reasons[kernel]

    def _reasons_of(self, kernel: Kernel) -> Iterator[str]:
        if kernel in self.failed:
            yield f"it {self.failed[kernel]}"
        own = [each for each in self.failed if each.module == kernel.module]
        if hung := [each.function for each in own if self.failed[each] == HUNG]:
            yield f"{hung[0]} of its module hung"
        families = sorted({"_".join(each.function.split("_")[:WORDS]) for each in own})
        if len(families) >= MANY:
            yield f"{', '.join(families)} of its module failed"
        for begin in {common_begin(one.function, other.function) for one, other in combinations(self.failed, 2)}:
            if not begin or not kernel.begins(begin):
                continue
            alike = [each for each in self.failed if each.begins(begin)]
            if sum(each in own for each in alike) >= 2:
                yield f"{begin} of its module failed"
            modules = sorted({each.module for each in alike})
            shared = set.intersection(*({*module.split("_")} for module in modules))
            passed = any(each.module == kernel.module and each.begins(begin) for each in self._passed)
            if len(modules) >= MANY and shared <= {*kernel.module.split("_")} and not passed:
                yield f"{begin} failed in {', '.join(modules)}"


def common_begin(one: str, other: str) -> str:
    """The words that two names of functions begin with; empty if they are fewer than those of a family."""
    shared = [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one.split("_"), other.split("_")))]
    return "_".join(shared) if len(shared) >= WORDS else ""


def without(rows: Iterable[Row], environment: Mapping[str, str] = os.environ) -> str:
    """LAYERMEM_WITHOUT for whole nets: the families of the kernels that failed, beside those of the environment."""
    families = {*filter(None, environment.get(WITHOUT, "").split(","))}
    for row in rows:
        if "fatal" in row:
            families.update(filter(None, row.get("suspects", [row.get("family")])))
    return ",".join(sorted(families))


def settled(row: Row, code: int | None) -> Row:
    """The row of an item that was running when its process ended with `code`, or was killed because the time of its
    step was up (None).  If a kernel or families of kernels can be blamed, the row reports that and is not the item's
    any more: the item is tried again without them."""
    known = row[RUNNING]
    row = {name: value for name, value in row.items() if name != RUNNING}
    if code is None:
        return {**row, "passed": None, "late": "this", "says": "was not finished: the time was up"}
    how = HUNG if code == -signal.SIGALRM else FAULTED
    says = "its time limit ended it" if how == HUNG else row["says"]
    blamed = {"passed": False, "fatal": how, "says": f"{how} in {known['item']}: {says}"}
    if "kernel" in known:
        return {"kernel": known["kernel"], "family": known["family"], **blamed}
    if families := known.get("families"):
        return {"suspects": [FIRST_SUSPECT] if FIRST_SUSPECT in families else families, **blamed}
    return row | {"says": says}
