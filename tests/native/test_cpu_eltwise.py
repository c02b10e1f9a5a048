"""Eltwise kernels of the cpu device, with and without a ReLU in the epilogue."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch
from tests.native.numbers import at, close, normal


@pytest.mark.parametrize("inputs", [2, 3, 5])
@pytest.mark.parametrize("operation", ["sum", "product", "max"])
def test_eltwise_combines_its_inputs_and_sends_the_gradient_back(operation, inputs, isa, every_way):
    count = 20011
    xs = [np.round(normal(i, count)) for i in range(inputs)]
    dy, before = normal(50, count), normal(51, count)
    coefficients = [1.0, -0.5, 2.0, 1.0, 0.25][:inputs]
    accumulate = [i == 1 for i in range(inputs)]

    def make(memory):
        X, DY, y = [memory.put(x) for x in xs], memory.put(dy), memory.empty(count)
        dxs = [memory.put(before) if add else memory.empty(count) for add in accumulate]
        winner = memory.empty(count, dtype=np.uint8)
        ins, outs = [at(a) for a in X], [0 if i == 2 else at(a) for i, a in enumerate(dxs)]
        over = at(X[-1])  # an output may lie on any input
        if operation == "sum":
            launch("eltwise_sum", count, y=at(y), xs=ins, coefficients=coefficients)()
            launch(
                "eltwise_sum_backward", count, dxs=outs, dy=at(DY), coefficients=coefficients, accumulate=accumulate
            )()
            launch("eltwise_sum", count, y=over, xs=ins, coefficients=coefficients)()
        elif operation == "product":
            launch("eltwise_product", count, y=at(y), xs=ins)()
            launch("eltwise_product_backward", count, dxs=outs, xs=ins, dy=at(DY), accumulate=accumulate)()
            launch("eltwise_product", count, y=over, xs=ins)()
        else:
            launch("eltwise_max", count, y=at(y), xs=ins, argmax=at(winner))()
            launch("eltwise_max_backward", count, dxs=outs, dy=at(DY), argmax=at(winner), accumulate=accumulate)()
            launch("eltwise_max", count, y=over, xs=ins)()
        return y, X[-1], *[dx for i, dx in enumerate(dxs) if i != 2]

    y, over, *dxs = every_way(make)
    stack = np.stack(xs).astype(np.float64)
    if operation == "sum":
        want, slopes = np.tensordot(coefficients, stack, 1), np.array(coefficients)[:, None] * np.ones(count)
    elif operation == "product":
        want, slopes = stack.prod(axis=0), np.stack([np.delete(stack, i, 0).prod(axis=0) for i in range(inputs)])
    else:
        last = inputs - 1 - stack[::-1].argmax(axis=0)  # the last of equals, as in Caffe's CUDA kernel
        want, slopes = stack.max(axis=0), last == np.arange(inputs)[:, None]
    close(y, want)
    assert (over == y).all()
    for i, dx in zip([i for i in range(inputs) if i != 2], dxs):
        close(dx, dy * slopes[i] + (before if accumulate[i] else 0))


@pytest.mark.parametrize("inputs", [2, 3])
def test_a_sum_with_relu_keeps_one_bit_per_element(inputs, isa, every_way):
    count = 20011
    xs, dy = [normal(i, count) for i in range(inputs)], normal(50, count)

    def make(memory):
        X, DY, y = [memory.put(x) for x in xs], memory.put(dy), memory.empty(count)
        mask, dx = memory.empty(-(-count // 8), dtype=np.uint8), memory.empty(count)
        ones = [1.0] * inputs
        launch("eltwise_sum", count, y=at(y), xs=[at(x) for x in X], coefficients=ones, relu=True, bits=at(mask))()
        launch(
            "eltwise_sum_backward",
            count,
            dxs=[at(dx), at(DY)],
            dy=at(DY),
            coefficients=[2.0, 1.0],
            accumulate=[False] * 2,
            mask=at(mask),
        )()
        from_y, other = memory.put(y), memory.put(dy)  # the same with y in the mask's place, over y and over dy
        launch(
            "eltwise_sum_backward",
            count,
            dxs=[at(from_y), at(other)],
            dy=at(other),
            coefficients=[2.0, 1.0],
            accumulate=[False] * 2,
            y=at(from_y),
        )()
        launch("eltwise_sum", count, y=at(X[1]), xs=[at(x) for x in X], coefficients=ones, relu=True)()
        return y, X[1], mask, dx, DY, from_y, other

    y, own, mask, dx, over, from_y, other = every_way(make)
    assert (from_y == dx).all() and (other == over).all()
    total = sum(xs[1:], xs[0])
    assert (y == np.maximum(total, 0)).all() and (own == y).all()
    assert (mask == np.packbits(total > 0, bitorder="little")).all()
    assert (over == np.where(total > 0, dy, 0)).all() and (dx == 2 * over).all()


def test_gradients_of_an_eltwise_may_lie_on_each_others_inputs(isa, memory):
    a, b, dy = normal(1, 100), normal(2, 100), normal(3, 100)
    A, B, DY = memory.put(a), memory.put(b), memory.put(dy)
    launch(
        "eltwise_product_backward", 100, dxs=[at(A), at(B)], xs=[at(A), at(B)], dy=at(DY), accumulate=[False, False]
    )()
    assert (dy * b == A).all() and (dy * a == B).all()
