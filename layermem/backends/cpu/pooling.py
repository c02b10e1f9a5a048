"""Pooling: the maximum, or the mean, of each window."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from layermem.backends.cpu.base import CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import StepLaunch, launch
from layermem.backends.cpu.support.slices import rows_of_batch
from layermem.backends.struct_layout import StructValues
from layermem.ops import Pool, StochasticPool


def native(op: Pool) -> StructValues:
    rows, columns = op.windows
    n, c, h, w = op.x.shape
    _, _, out_h, out_w = op.y.shape
    return {
        "n": n,
        "c": c,
        "h": h,
        "w": w,
        "ho": out_h,
        "wo": out_w,
        "kh": rows.kernel,
        "kw": columns.kernel,
        "sh": rows.stride,
        "sw": columns.stride,
        "ph": rows.pad,
        "pw": columns.pad,
    }


def mask_workspace_bytes(op: Pool, roles: Collection[str]) -> int:
    """Bytes of the index of the maximum, from which the mask is computed, if no backward reads it."""
    return op.argmax.nbytes if "y1" in roles and "argmax" not in roles else 0


@kernel(Pool, "forward", workspace=mask_workspace_bytes, narrow="x0|y0")
def pool_forward(op: Pool, call: CpuCall) -> list[Launch]:
    if op.method == "AVE":
        return [launch("average_pool_forward", native(op), y=call["y0"], x=call["x0"], storage=call.storage)]
    if "y1" not in call:
        return [
            launch(
                "max_pool_forward", native(op), y=call["y0"], x=call["x0"], argmax=call["argmax"], storage=call.storage
            )
        ]
    argmax = call["argmax"] or call.workspace
    return [
        launch("max_pool_forward", native(op), y=call["y0"], x=call["x0"], argmax=argmax, storage=call.storage),
        launch("max_pool_mask", native(op), mask=call["y1"], argmax=argmax),
    ]


@kernel(StochasticPool, "forward")
def stochastic_pool_forward(op: StochasticPool, call: CpuCall) -> list[Launch]:
    if op.average:
        return [launch("stochastic_pool_average", native(op), y=call["y0"], x=call["x0"])]
    context, first = call.context, rows_of_batch(op, op.y.count)["first"]

    @lru_cache(maxsize=1)
    def bind(seed: int) -> StepLaunch:
        return launch(
            "stochastic_pool_forward",
            native(op),
            y=call["y0"],
            x=call["x0"],
            argmax=call["argmax"],
            seed=seed,
            stream=op.stream,
            first=first,
        )

    return [lambda: bind(context["seed"])(context["step"])]  # the seed is set after binding


@kernel(Pool, "backward", narrow="dx0|dy0", adds_narrow=True)
def pool_backward(op: Pool, call: CpuCall) -> list[Launch]:
    dx, dy, accumulate = call["dx0"], call["dy0"], call.accumulates("dx0")
    if op.method == "AVE":
        return [launch("average_pool_backward", native(op), dx=dx, dy=dy, accumulate=accumulate, storage=call.storage)]
    return [
        launch(
            "max_pool_backward",
            native(op),
            dx=dx,
            dy=dy,
            argmax=call["argmax"],
            accumulate=accumulate,
            storage=call.storage,
        )
    ]
