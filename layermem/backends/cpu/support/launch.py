"""Calls native kernels by name: their declarations in layermem/native/cpu determine how arguments are packed.

`launch` binds a kernel to its arguments once, when a schedule is bound; every step calls the bound kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from layermem._native import cpu
from layermem.backends.struct_layout import Declarations, StructLayout, StructValue

Axis = tuple[int, int, int]  # outer, size, inner
Channels = tuple[int, int, int]  # outer, channels, inner; inner is 1 for channels-last images
StepLaunch = Callable[[int], None]

NATIVE = Path(__file__).resolve().parents[3] / "native" / "cpu"


@cache
def declarations() -> Declarations:
    """The declarations of the arguments of all kernels."""
    headers = sorted(path for folder in ("kernels", "microkernels") for path in (NATIVE / folder).glob("*.h"))
    return Declarations(path.read_text(encoding="utf-8") for path in headers)


@cache
def parameters(kernel: str) -> StructLayout:
    return declarations().parameters(kernel)


def launch(kernel: str, *args: StructValue, **fields: StructValue) -> Callable[..., None]:
    """Bind a kernel; `args` are its first parameters, in order.

    The bound kernel is called without arguments; if it draws random numbers, with the training step; if it is an
    update, with the rate and a factor of the gradient.
    """
    bound = _bind(kernel, args, fields)
    if isinstance(bound, int):
        raise TypeError(f"{kernel} returns a number; call it by query()")
    return bound


def query(kernel: str, *args: StructValue, **fields: StructValue) -> int:
    """Return the result of a query about a kernel's arguments, such as the bytes of its workspace."""
    answer = _bind(kernel, args, fields)
    if not isinstance(answer, int):
        raise TypeError(f"{kernel} is a kernel; bind it by launch()")
    return answer


def _bind(kernel: str, args: tuple[StructValue, ...], fields: dict[str, StructValue]) -> int | Callable[..., None]:
    layout = parameters(kernel)
    if len(args) > len(layout.members):
        raise TypeError(f"{kernel} takes {len(layout.members)} arguments, not {len(args)}")
    given = {member.name: value for member, value in zip(layout.members, args)}
    if twice := given.keys() & fields.keys():
        raise TypeError(f"{kernel} got {sorted(twice)} twice")
    packed, _ = layout.pack({**given, **fields})
    return cpu.bind(kernel, packed)
