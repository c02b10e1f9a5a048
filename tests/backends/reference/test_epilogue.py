"""The epilogue of a fused op."""

import numpy as np
import pytest

from layermem.backends.reference.activation import unpack
from layermem.backends.reference.base import ReferenceCall
from layermem.backends.reference.support.epilogue import finish_epilogue
from layermem.ops import Eltwise, Tensor

Y = np.array([[-2.0, 1.0, 0.0, 3.0]])
OTHER = np.array([[3.0, -4.0, 0.0, 1.0]])


def finish(relu: bool, residual: bool, mask: bool = False) -> tuple[np.ndarray, np.ndarray | None]:
    arrays = {"y0": np.full_like(Y, np.nan), "x1": OTHER}
    if mask:
        arrays["mask"] = np.full(1, 255, "uint8")
    finish_epilogue(Eltwise("SUM", Tensor(Y.shape), 2, (1, 1)), ReferenceCall(arrays), Y, relu=relu, residual=residual)
    return arrays["y0"], unpack(arrays["mask"], Y) if mask else None


@pytest.mark.parametrize(
    "relu, residual, expected",
    [
        (False, False, [-2, 1, 0, 3]),
        (True, False, [0, 1, 0, 3]),
        (False, True, [1, -3, 0, 4]),
        (True, True, [1, 0, 0, 4]),
    ],
)
def test_the_residual_is_added_before_the_relu(relu, residual, expected):
    y, _ = finish(relu, residual)
    assert y.tolist() == [expected]


def test_the_mask_has_a_bit_for_every_positive_element():
    _, positive = finish(relu=True, residual=True, mask=True)
    assert positive.tolist() == [[True, False, False, True]]
