"""InnerProduct: three matrix products, and the weight gradient that an update consumes while it is computed.

With a band of the weights' rows, each sum keeps the order of the whole: native/cpu/kernels/inner_product.h.
"""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu import inner_product_transposed as transposed
from layermem.backends.cpu.base import CpuCall, Launch, Launches, kernel
from layermem.backends.cpu.convolution import bias_gradient
from layermem.backends.cpu.support import slices
from layermem.backends.cpu.support.launch import launch, query
from layermem.backends.cpu.update import UpdateLaunch, rule_settings
from layermem.ops import CARRY, BandRules, InnerProduct, InnerProductUpdate


def reorder_workspace_bytes(op: InnerProduct, roles: Collection[str]) -> int:
    return 0 if op.by_rows else transposed.workspace(op, roles)


def wgrad_workspace_bytes(op: InnerProduct, roles: Collection[str]) -> int:
    if not op.by_rows:
        return transposed.workspace(op, roles)
    weights = partial_sums_workspace_bytes(op) if "dw0" in roles or "dw0" + CARRY in roles else 0
    return max(weights, slices.column_sums_workspace_bytes(op, op.rows, op.outputs))


def partial_sums_workspace_bytes(op: InnerProduct) -> int:
    """Bytes of a weight gradient that is summed in parts (split-K); 0 if it is not."""
    rows = slices.rows_of_batch(op, op.rows)
    return query("inner_product_wgrad_workspace_bytes", op.rows, op.dy_outputs, op.inner, **rows)


def columns_of(op: InnerProduct, address: int) -> int:
    """The address of this op's columns in the row of all outputs at `address`; 0 stays 0."""
    return address + slices.FLOAT * op.first_output if address else 0


def wgrad_carry_bytes(op: InnerProduct, role: str) -> int:
    if role == "dw1":
        return slices.column_sums_carry_bytes(op, op.rows, op.outputs)
    partial_sums = 0 if op.band is not None else transposed.partial_sums_bytes(op)
    return partial_sums or op.outputs * op.inner * slices.FLOAT


def row_bands(op: InnerProduct) -> BandRules | None:
    """Each sum over outputs or rows is one chain, independent of bands; but the number of split-K parts of a gradient
    depends on its size."""
    parts = query("inner_product_wgrad_carry_bytes", slices.rows_of_batch(op, op.rows)["of"], op.outputs, op.inner)
    return None if parts else BandRules()


@kernel(InnerProduct, "forward", workspace=reorder_workspace_bytes)
def inner_product_fprop(op: InnerProduct, call: CpuCall) -> Launches:
    if op.residual:
        return None
    if not op.by_rows:
        return transposed.fprop(op, call)
    return [
        launch(
            "inner_product_fprop",
            op.rows,
            op.outputs,
            op.inner,
            y=call["y0"],
            x=call["x0"],
            w=call["w0"],
            bias=columns_of(op, call["w1"]),
            relu=op.relu,
            bits=call["mask"],
            largest_zero=op.largest_zero,
        )
    ]


@kernel(InnerProduct, "dgrad", workspace=reorder_workspace_bytes)
def inner_product_dgrad(op: InnerProduct, call: CpuCall) -> list[Launch]:
    if not op.by_rows:
        return transposed.dgrad(op, call)
    return [
        launch(
            "inner_product_dgrad",
            op.rows,
            op.outputs,
            op.inner,
            dx=call["dx0"],
            dy=columns_of(op, call["dy0"]),
            w=call["w0"],
            accumulate=call.accumulates("dx0"),
            dy_outputs=op.dy_outputs,
        )
    ]


def wgrad_in_place(op: InnerProduct, role: str) -> bool:
    if role == "dw1":
        return slices.column_sums_in_place(op, op.rows, op.outputs)
    return op.band is not None or not transposed.partial_sums_bytes(op)


@kernel(InnerProduct, "wgrad", workspace=wgrad_workspace_bytes, carry=wgrad_carry_bytes, in_place=wgrad_in_place)
def inner_product_wgrad(op: InnerProduct, call: CpuCall) -> list[Launch]:
    if not op.by_rows:
        return transposed.wgrad(op, call)
    launches: list[Launch] = []
    if op.band is not None:
        return band_wgrad(op, call)
    if "dw0" in call or "dw0" + CARRY in call:
        launches += transposed.product(op, call, call["x0"], call["dy0"], call.workspace)
    if "dw1" in call or "dw1" + CARRY in call:
        launches += bias_gradient(op, call, op.rows, op.outputs, "dy0", call.accumulates("dw1"))
    return launches


def band_wgrad(op: InnerProduct, call: CpuCall) -> list[Launch]:
    dw, accumulate, before = slices.sum_in_place(op, call, "dw0", op.outputs * op.inner)
    gradient = launch(
        "inner_product_band_wgrad",
        op.rows,
        op.outputs,
        op.inner,
        dw=dw,
        x=call["x0"],
        dy=columns_of(op, call["dy0"]),
        dy_outputs=op.dy_outputs,
        accumulate=accumulate,
    )
    return [*before, gradient]


def fused_update_workspace_bytes(op: InnerProductUpdate, roles: Collection[str]) -> int:
    """Split-K needs a full-size gradient buffer, so fusing the update saves nothing."""
    if partial_sums_workspace_bytes(op.product):
        return op.update.tensor.nbytes
    return query("column_sums_workspace_bytes", op.product.rows, op.product.outputs) if "dw1" in roles else 0


@kernel(InnerProductUpdate, "backward_update", workspace=fused_update_workspace_bytes)
def inner_product_backward_update(op: InnerProductUpdate, call: CpuCall) -> Launches:
    product, update = op.product, op.update
    if partial_sums_workspace_bytes(product):
        return None
    fused = launch(
        "inner_product_backward_update",
        product.rows,
        product.outputs,
        product.inner,
        rule=update.rule,
        x=call["x0"],
        dy=columns_of(product, call["dy0"]),
        dy_outputs=product.dy_outputs,
        **rule_settings(update, call),
    )
    launches: list[Launch] = [UpdateLaunch(update, call, fused)]
    if "dw1" in call:
        launches += bias_gradient(product, call, product.rows, product.outputs, "dy0", accumulate=False)
    return launches
