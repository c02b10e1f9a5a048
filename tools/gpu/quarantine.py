"""Kernels that are not launched any more: they, or kernels like them, have hung or have ended the GPU's context.

A row of the results with `kernel` and `fatal` ("hung" or "faulted") reports such a kernel; Quarantine.reason() derives
from all of these rows which kernels are given up.  A whole net names no kernel: its row has `suspects`, families of
kernels that it is run without when it is begun again (LAYERMEM_WITHOUT).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tools.gpu.kept import Row

HUNG, FAULTED = "hung", "faulted"
RUNNING = "running"  # column of a row whose item has not ended: what is known of it
FIRST_SUSPECT = "warpgroups"
MANY = 3  # modules in which kernels of a family fail, after which it is given up in all
WORDS = 2  # that names of one family have in common: conv_dgrad
WITHOUT = "LAYERMEM_WITHOUT"  # environment variable: families of kernels that are not used, separated by commas


class Kernel(NamedTuple):
    module: str
    function: str

    @property
    def family(self) -> str:
        """What the names of kernels that are alike begin with: conv_dgrad."""
        return "_".join(self.function.split("_")[:WORDS])


class Quarantine:
    """Of the kernels that failed in these rows.

    A kernel that hung takes its whole module along, one that faulted those of its family in its module.  A family that
    failed in three modules is given up in all others too, but those where one of it has passed.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        rows = [row for row in rows if "." in row.get("kernel", "")]
        self.failed = {Kernel(*row["kernel"].split(".")): row["fatal"] for row in rows if "fatal" in row}
        self._passed = {Kernel(*row["kernel"].split(".")) for row in rows if row.get("passed") is True}

    def reason(self, name: str) -> str:
        """Why a kernel, as MODULE.FUNCTION, is not launched; empty if it may be."""
        kernel = Kernel(*name.split("."))
        if kernel in self.failed:
            return f"it {self.failed[kernel]}"
        for each, how in self.failed.items():
            if each.module == kernel.module and (how == HUNG or each.family == kernel.family):
                return f"{each.function} of its module {how}"
        modules = {each.module for each in self.failed if each.family == kernel.family}
        passed = any((each.module, each.family) == (kernel.module, kernel.family) for each in self._passed)
        return f"{kernel.family} failed in {', '.join(sorted(modules))}" if len(modules) >= MANY and not passed else ""


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
