"""The interface of the device for which a graph is made; backends/base.py documents its members.  The device states the
sizes of buffers and workspaces, so a graph belongs to one device."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from layermem.ops import BandRules, InnerProduct, OpRecord, Tensor


class Device(Protocol):
    """The members of a backend's Device that graphs use."""

    fusions: frozenset[str]
    storage: str
    part_bytes: int
    least_parts: int

    @property
    def title(self) -> str: ...

    def nbytes(self, tensor: Tensor) -> int: ...

    def takes(
        self, record: OpRecord, step: str, dtypes: Mapping[str, str], accumulates: Collection[str]
    ) -> frozenset[str]: ...

    def workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int: ...

    def host_workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int: ...

    def carry_bytes(self, record: OpRecord, step: str, role: str) -> int | None: ...

    def open_bytes(self, record: OpRecord, step: str, role: str) -> int: ...

    def sums_in_place(self, record: OpRecord, step: str, role: str, accumulates: bool) -> bool: ...

    def row_bands(self, record: InnerProduct) -> BandRules | None: ...
