"""Ops that no layer makes.

RECORDS   name -> RecordCase        BYTE_IMAGES, NORMS_OF_ROWS   sizes for tests of single kernels
"""

from dataclasses import replace

import numpy as np

from layermem import ops
from layermem.backends.registry import StepContext
from layermem.ops import Tensor
from tests.cases.base import TINY
from tests.op_case import RecordCase

SETTINGS: StepContext = {
    "momentum": 0.9,
    "momentum2": 0.999,
    "rms_decay": 0.98,
    "delta": 1e-3,
    "weight_decay": 5e-3,
    "regularization": "L2",
    "clip": -1.0,
    "iter_size": 1,
    "rate": 0.1,
    "iteration": 4,
}
# optimizer state by rule
STATES = {"SGD": 1, "Nesterov": 1, "AdaGrad": 1, "RMSProp": 1, "AdaDelta": 2, "Adam": 2, "AdamW": 2}
# Images in bytes: odd sizes, one channel, four, one pixel, more than a block of pixels.
BYTE_IMAGES = [(2, 3, 5, 7), (3, 1, 4, 4), (1, 4, 9, 3), (5, 2, 1, 1), (2, 3, 17, 16)]
NORMS_OF_ROWS = [(1,), (3, 64, 2), (5000, 1, 800)]  # rows of each parameter whose squares are added
WEIGHTS, SCALAR = Tensor((5, 7)), Tensor(())


def state(rule: str) -> dict[str, Tensor]:
    return {"w0": WEIGHTS, **{f"h{i}": WEIGHTS for i in range(STATES[rule])}}


def update(rule: str) -> ops.Update:
    return ops.Update(rule, "ip.w", WEIGHTS, lr_mult=2.0, decay_mult=0.5)


PRODUCT = ops.InnerProduct(Tensor((4, 7)), Tensor((4, 5)), rows=4, inner=7, outputs=5, bias=True)
RECORDS = {
    **{rule: RecordCase(update(rule), "update", {"dw0": WEIGHTS}, updates=state(rule), context=SETTINGS)
       for rule in STATES},
    "SGD with clipping": RecordCase(update("SGD"), "update", {"dw0": WEIGHTS, "norm": SCALAR}, updates=state("SGD"),
                                    context={**SETTINGS, "clip": 0.5}),
    "SGD with L1 decay": RecordCase(update("SGD"), "update", {"dw0": WEIGHTS}, updates=state("SGD"),
                                    context={**SETTINGS, "regularization": "L1", "iter_size": 3}),
    "SGD with a loss scale": RecordCase(
        replace(update("SGD"), scaled=True), "update", {"dw0": WEIGHTS, "norm": SCALAR},
        updates=state("SGD"), context={**SETTINGS, "loss_scale": 1024.0}),
    "Fill with a loss scale": RecordCase(ops.Fill(0.3, scaled=True), "fill", writes={"y0": SCALAR},
                                         context={"loss_scale": 1024.0}),
    "Fill with 0": RecordCase(ops.Fill(0.0), "fill", writes={"y0": WEIGHTS}),
    "Fill with 0.3": RecordCase(ops.Fill(0.3), "fill", writes={"y0": SCALAR}),
    "GradientNorm": RecordCase(ops.GradientNorm(), "forward", {"x0": WEIGHTS, "x1": Tensor((3,)), "x2": Tensor(())},
                               {"y0": SCALAR}),
    **{f"InnerProductUpdate by {rule}": RecordCase(
        ops.InnerProductUpdate(PRODUCT, update(rule)), "backward_update", {"x0": PRODUCT.x, "dy0": PRODUCT.y},
        {"dw1": Tensor((5,))}, state(rule), SETTINGS) for rule in STATES},
    "Feed": RecordCase(ops.Feed("data", 2), "forward", writes={"y0": Tensor(TINY), "y1": Tensor((2,))},
                       context={"batch": {"data": [np.arange(60.0).reshape(TINY), np.array([3.0, 4.0])]}}),
    "CopyOut": RecordCase(ops.CopyOut("score"), "forward", {"x0": Tensor(TINY)}, context={"results": {}}),
}  # fmt: skip
