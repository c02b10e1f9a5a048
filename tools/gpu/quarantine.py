"""Kernels that are no longer launched, because they or similar kernels hung or destroyed the GPU's context.

A row of the results with `kernel` and `fatal` ("hung" or "faulted") reports such a kernel; Quarantine.reason() derives
from these rows which kernels are avoided.  A whole net names no kernel: its row has `suspects`, families of kernels
that are left out when it is restarted (LAYERMEM_WITHOUT).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tools.gpu.kept import Row

HUNG, FAULTED = "hung", "faulted"
RUNNING = "running"  # column of a row whose item has not ended, with known facts about it
FIRST_SUSPECT = "warpgroups"
MANY = 3  # modules with failures of a family, after which it is avoided everywhere
WORDS = 2  # leading words that names of a family share: conv_dgrad
WITHOUT = "LAYERMEM_WITHOUT"  # environment variable: families of kernels to avoid, separated by commas


class Kernel(NamedTuple):
    module: str
    function: str

    @property
    def family(self) -> str:
        """The common prefix of the names of similar kernels: conv_dgrad."""
        return "_".join(self.function.split("_")[:WORDS])


class Quarantine:
    """The quarantine of kernels that failed in these rows.

    After a hang the whole module of the kernel is avoided; after a fault, its family in that module.  A family that
    failed in three modules is avoided everywhere, except in modules where a kernel of it has passed.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        rows = [row for row in rows if "." in row.get("kernel", "")]
        self.failed = {Kernel(*row["kernel"].split(".")): row["fatal"] for row in rows if "fatal" in row}
        self._passed = {Kernel(*row["kernel"].split(".")) for row in rows if row.get("passed") is True}

    def reason(self, name: str) -> str:
        """The reason why a kernel, as MODULE.FUNCTION, is not launched; empty if it may be."""
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
    """LAYERMEM_WITHOUT for whole nets: the families of failed kernels, in addition to those in the environment."""
    families = {*filter(None, environment.get(WITHOUT, "").split(","))}
    for row in rows:
        if "fatal" in row:
            families.update(filter(None, row.get("suspects", [row.get("family")])))
    return ",".join(sorted(families))


def settled(row: Row, code: int | None) -> Row:
    """The row of an item that was running when its process ended with `code`, or was killed at the time limit of its
    step (None).  If a kernel or families of kernels can be blamed, the row reports them instead of the item, which
    is tried again without them."""
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
