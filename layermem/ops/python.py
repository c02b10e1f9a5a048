"""Python: code of the user that runs on the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy.typing as npt

from layermem.ops.base import OpRecord, Tensor
from layermem.utils.units import aligned

Array = npt.NDArray[Any]


class Code(Protocol):
    """Code that runs on arrays by role; they are contiguous and in Caffe's order."""

    def forward(self, arrays: Mapping[str, Array]) -> None:
        """Write y{i} from x{i} and w{i}."""

    def backward(self, arrays: Mapping[str, Array]) -> None:
        """Write those of dx{i} and dw{i} that are present, from the other arrays."""


@dataclass(frozen=True)
class Python(OpRecord):
    """forward   y{i} from x{i}, w{i}      backward   dx{i}, dw{i} from dy{i}, w{i}, and x{i}, y{i} as declared

    code   None if it may not run
    why    the reason, with a remedy
    """

    x: tuple[Tensor, ...]
    y: tuple[Tensor, ...]
    w: tuple[Tensor, ...] = ()
    code: Code | None = field(default=None, compare=False, repr=False)
    why: str = ""

    @property
    def refusal(self) -> str:
        return self.why

    def tensor(self, role: str) -> Tensor:
        """The tensor of an operand or its gradient."""
        stem, index = role.removeprefix("d")[0], int(role.removeprefix("d")[1:])
        tensors: Mapping[str, tuple[Tensor, ...]] = {"x": self.x, "y": self.y, "w": self.w}
        return tensors[stem][index]

    def staging_bytes(self, roles: Iterable[str]) -> int:
        """Bytes of host copies of the operands `roles`."""
        return sum(aligned(self.tensor(role).nbytes) for role in roles)

    @staticmethod
    def is_written(step: str, role: str) -> bool:
        return role[0] == "y" if step == "forward" else role[:2] in ("dx", "dw")

    def run(self, step: str, arrays: Mapping[str, Array]) -> None:
        assert self.code is not None, "a net is checked to be runnable before it runs"
        (self.code.forward if step == "forward" else self.code.backward)(arrays)
