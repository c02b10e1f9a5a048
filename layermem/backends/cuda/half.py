"""Between fp32 and bfloat16: what is stored in 16 bits is widened before a kernel, and rounded behind it."""

from __future__ import annotations

from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, launch

VECTOR = 4  # elements that a thread of the wide form converts


def widen_bf16(y: int, x: int, count: int) -> Launch:
    """y [count] in fp32 = x in bfloat16."""
    return _convert("widen_bf16", "WidenArgs", y, x, count, is_wide=y % 16 == 0 and x % 8 == 0)


def narrow_bf16(y: int, x: int, count: int) -> Launch:
    """y [count] in bfloat16 = x in fp32, rounded to nearest even."""
    return _convert("narrow_bf16", "NarrowArgs", y, x, count, is_wide=x % 16 == 0 and y % 8 == 0)


def _convert(function: str, args: str, y: int, x: int, count: int, *, is_wide: bool) -> Launch:
    v = VECTOR if is_wide and count % VECTOR == 0 else 1
    return launch("half", f"{function}_v{v}", args, ceil_div(count, THREADS * v), y=y, x=x, count=count)
