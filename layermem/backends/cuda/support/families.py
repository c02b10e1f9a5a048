"""Families of kernels, and their fallbacks.

A family is off if LAYERMEM_WITHOUT names it, or if its kernels failed the self-test of this GPU (checks/selftest.py).
The table has a row for each family that other kernels can replace; every other module of cuda/ is a family without a
fallback.  Each family is decided at one place, which calls `is_on`:

    warpgroups  warpgroup.engine_of        packed     gemm_tiles.takes_narrow
    patch       conv_patch.pays            moments    warpgroup.leaves_moments
    sums        warpgroup.leaves_norm_sums depthwise, grouped   direct_problems

The families that are off are the same for all devices of a process, and known before a plan is made, because
conversions and parts of sums need workspace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from layermem.errors import InputError

VARIABLE = "LAYERMEM_WITHOUT"


class Family(NamedTuple):
    """
    name
    kernels    pattern of "module.function"
    title      its name in errors and reports
    fallback   the kernels that replace it
    role       a role whose ops belong to this family, whatever the name of their kernel
    """

    name: str
    kernels: str
    title: str
    fallback: str
    role: str = ""


FAMILIES = {
    family.name: family
    for family in (  # a kernel belongs to the first family that matches
        Family("warpgroups", r"\w+_sm90a\.\w+|weight_tiles\.\w+", "products by warpgroups", "the engine of every GPU"),
        Family("sums", r"\w+\.conv_dgrad_sums_\w+", "sums in data gradients", "a kernel for the sums", "norm_sums"),
        Family("patch", r"\w+\.conv_fprop\w*_patch_\w+", "convolutions by patches", "convolutions by windows"),
        Family("moments", r"", "moments in convolutions", "a kernel for the moments", "moments"),
        Family(
            "packed", r"convolution_bf16_on_bf16\.\w+", "products of packed bfloat16", "products of converted blobs"
        ),
        Family("depthwise", r"depthwise\.\w+", "depthwise convolutions", "implicit GEMM"),
        Family("grouped", r"grouped\.\w+", "convolutions in small groups", "implicit GEMM"),
    )
}
PRODUCTS = re.compile(r"convolution_(fp32x3|tf32|bf16)(_on_\w+)?$")  # modules of precisions that fp32 can replace


def family_of(module: str, function: str) -> str:
    """The family of a kernel: a row of the table, or else its module."""
    kernel = f"{module}.{function}"
    return next((name for name, family in FAMILIES.items() if re.fullmatch(family.kernels, kernel)), module)


def is_on(name: str) -> bool:
    """Whether the kernels of the family `name`, one of FAMILIES, are used."""
    return name not in _off()


def families_off() -> tuple[str, ...]:
    """The families that are not used, in the order of the table."""
    off = _off()
    return tuple(name for name in FAMILIES if name in off)


def switch_off(names: Iterable[str]) -> None:
    """Stop using these families on all devices of this process; must be called before plans are made."""
    global _failed
    _failed = _failed.union(names)


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """Disable these families inside the context."""
    global _failed
    before = _failed
    switch_off(names)
    try:
        yield
    finally:
        _failed = before


_failed: frozenset[str] = frozenset()


def _off() -> frozenset[str]:
    return _named(os.environ.get(VARIABLE, "")) | _failed


@lru_cache(maxsize=8)
def _named(text: str) -> frozenset[str]:
    """The families in LAYERMEM_WITHOUT."""
    names = frozenset(filter(None, (word.strip() for word in text.split(","))))
    unknown = sorted(names.difference(FAMILIES))
    if unknown:
        raise InputError(
            f"{VARIABLE} names the unknown family of kernels '{unknown[0]}' (choose from {', '.join(FAMILIES)})"
        )
    return names


def remedy_of(name: str) -> str:
    """The remedy for users if a family without a fallback is wrong."""
    return "use --precision fp32" if PRODUCTS.fullmatch(name) else "use --device cpu"
