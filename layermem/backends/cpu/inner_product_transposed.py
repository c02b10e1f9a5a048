"""InnerProducts whose weights are transposed, or whose operands must be reordered in memory before they are multiplied.

A transposed weight swaps the products: forward runs as a dgrad, dgrad as a forward, and wgrad exchanges x and dy.
Operands in another order are copied into the workspace: x or dx first, then y or dy.
"""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import CpuCall, Launch
from layermem.backends.cpu.copy import operand_workspace_bytes, reorder, reorder_operand
from layermem.backends.cpu.support import slices
from layermem.backends.cpu.support.launch import launch, query
from layermem.ops import CARRY, InnerProduct, Tensor
from layermem.utils.units import aligned


def matrices(op: InnerProduct) -> tuple[Tensor, Tensor]:
    """x and y as matrices."""
    return Tensor((op.rows, op.inner)), Tensor((op.rows, op.outputs))


def operand_bytes(op: InnerProduct) -> tuple[int, int]:
    """Workspace for x and for y as matrices.  With transposed weights a gradient of x is always copied, because the
    kernel of its product (fprop) cannot accumulate."""
    x, y = matrices(op)
    x_bytes = operand_workspace_bytes(op.x, x) or (aligned(x.nbytes) if op.transpose else 0)
    return x_bytes, operand_workspace_bytes(op.y, y)


def weights_shape(op: InnerProduct) -> tuple[int, int]:
    return (op.inner, op.outputs) if op.transpose else (op.outputs, op.inner)


def gradient_bytes(op: InnerProduct) -> int:
    rows = slices.rows_of_batch(op, op.rows)
    weights = query("inner_product_wgrad_workspace_bytes", op.rows, *weights_shape(op), **rows)
    return aligned(max(weights, slices.column_sums_workspace_bytes(op, op.rows, op.outputs)))


def partial_sums_bytes(op: InnerProduct) -> int:
    """Bytes of the partial sums that slices of a batch carry; 0 if the gradient itself is carried."""
    return query("inner_product_wgrad_carry_bytes", slices.rows_of_batch(op, op.rows)["of"], *weights_shape(op))


def workspace(op: InnerProduct, roles: Collection[str]) -> int:
    gradients = any(role.removesuffix(CARRY) in ("dw0", "dw1") for role in roles)
    return sum(operand_bytes(op)) + (gradient_bytes(op) if gradients else 0)


def fprop(op: InnerProduct, call: CpuCall) -> list[Launch]:
    x_bytes, _ = operand_bytes(op)
    x_matrix, y_matrix = matrices(op)
    x, launches = reorder_operand(call, "x0", op.x, x_matrix, 0)
    reordered = not y_matrix.ordered_like(op.y)
    y = call.workspace + x_bytes if reordered else call["y0"]
    if op.transpose:
        launches.append(
            launch("inner_product_dgrad", op.rows, op.inner, op.outputs, dx=y, dy=x, w=call["w0"], accumulate=False)
        )
        if op.bias:
            launches.append(launch("bias_forward", (op.rows, op.outputs, 1), y=y, x=y, bias=call["w1"]))
    else:
        launches.append(
            launch("inner_product_fprop", op.rows, op.outputs, op.inner, y=y, x=x, w=call["w0"], bias=call["w1"])
        )
    if reordered:
        launches += reorder(call["y0"], op.y, y, y_matrix, y + aligned(y_matrix.nbytes))
    if op.relu:
        launches.append(
            launch(
                "relu_forward",
                call.count("y0"),
                y=call["y0"],
                x=call["y0"],
                bits=call["mask"],
                largest_zero=op.largest_zero,
            )
        )
    return launches


def dgrad(op: InnerProduct, call: CpuCall) -> list[Launch]:
    x_bytes, _ = operand_bytes(op)
    x_matrix, y_matrix = matrices(op)
    dy, launches = reorder_operand(call, "dy0", op.y, y_matrix, x_bytes)
    accumulate = call.accumulates("dx0")
    copied = not x_matrix.ordered_like(op.x) or (op.transpose and accumulate)
    dx = call.workspace if copied else call["dx0"]
    if op.transpose:
        launches.append(launch("inner_product_fprop", op.rows, op.inner, op.outputs, y=dx, x=dy, w=call["w0"]))
    else:
        launches.append(
            launch(
                "inner_product_dgrad",
                op.rows,
                op.outputs,
                op.inner,
                dx=dx,
                dy=dy,
                w=call["w0"],
                accumulate=accumulate and not copied,
            )
        )
    if copied:
        launches += reorder(call["dx0"], op.x, dx, x_matrix, dx + aligned(x_matrix.nbytes), accumulate)
    return launches


def wgrad(op: InnerProduct, call: CpuCall) -> list[Launch]:
    x_bytes, y_bytes = operand_bytes(op)
    x_matrix, y_matrix = matrices(op)
    dy, launches = reorder_operand(call, "dy0", op.y, y_matrix, x_bytes)
    workspace = call.workspace + x_bytes + y_bytes
    if "dw0" in call or "dw0" + CARRY in call:
        x, before = reorder_operand(call, "x0", op.x, x_matrix, 0)
        left, right = (dy, x) if op.transpose else (x, dy)
        launches += [*before, *product(op, call, left, right, workspace)]
    if "dw1" in call or "dw1" + CARRY in call:
        accumulate = call.accumulates("dw1")
        launches += slices.column_sums(op, call, "dw1", op.rows, op.outputs, dy, accumulate, workspace)
    return launches


def product(op: InnerProduct, call: CpuCall, left: int, right: int, workspace: int) -> list[Launch]:
    """Compute dw0 (+)= right' left, for matrices at these addresses."""
    n, k = weights_shape(op)
    dw, accumulate, before = call["dw0"], call.accumulates("dw0"), list[Launch]()
    if not partial_sums_bytes(op):
        dw, accumulate, before = slices.sum_in_place(op, call, "dw0", n * k)
    gradient = launch(
        "inner_product_wgrad",
        op.rows,
        n,
        k,
        dw=dw,
        x=left,
        dy=right,
        accumulate=accumulate,
        workspace=workspace,
        carry=call["dw0" + CARRY],
        **slices.rows_of_batch(op, op.rows),
    )
    return [*before, gradient]
