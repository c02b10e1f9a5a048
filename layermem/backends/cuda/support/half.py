"""Conversions between fp32 and 16 bits: 16-bit blobs are widened before a kernel and rounded after it."""

from __future__ import annotations

from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, launch
from layermem.ops import NARROW

VECTOR, GROUPS = 4, 4  # elements per access of the wide form, and groups per thread, as in cuda/half.cu
WORDS = {dtype: word for word, dtype in NARROW.items()}


def widen(y: int, x: int, count: int, dtype: str) -> Launch:
    """y [count] in fp32 = x in `dtype`."""
    return _convert(f"widen_{WORDS[dtype]}", "WidenArgs", y, x, count, is_wide=y % 16 == 0 and x % 8 == 0)


def narrow(y: int, x: int, count: int, dtype: str) -> Launch:
    """y [count] in `dtype` = x in fp32, rounded to nearest even."""
    return _convert(f"narrow_{WORDS[dtype]}", "NarrowArgs", y, x, count, is_wide=x % 16 == 0 and y % 8 == 0)


def _convert(function: str, args: str, y: int, x: int, count: int, *, is_wide: bool) -> Launch:
    v, groups = (VECTOR, GROUPS) if is_wide and count % VECTOR == 0 else (1, 1)
    return launch("half", f"{function}_v{v}", args, ceil_div(count, THREADS * v * groups), y=y, x=x, count=count)
