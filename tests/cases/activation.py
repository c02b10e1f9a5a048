"""Activations: y0 = formula(x0).

ELEMENTWISE, FEW   shapes of kernels that know nothing of a tensor but its elements
FORMULA_SHAPES     shapes of layers
"""

import numpy as np

from tests.cases.base import BATCH, BIG, IMAGE, MAPS, ODD, QUADS, TINY, by_shape, cases_of, number
from tests.op_case import Shape


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def relu(x: np.ndarray, slope: float = 0) -> np.ndarray:
    return np.where(x > 0, x, slope * x)


ReLU, Clip, ELU, Sigmoid, TanH, AbsVal, Power = (
    cases_of(kind, medium=TINY) for kind in ("ReLU", "Clip", "ELU", "Sigmoid", "TanH", "AbsVal", "Power")
)
Exp, Log, BNLL, Swish, Threshold, ReLU6 = (
    cases_of(kind, medium=TINY) for kind in ("Exp", "Log", "BNLL", "Swish", "Threshold", "ReLU6")
)
# Elements one at a time, four at a time in one block, and in several blocks; and fewer than four.
ELEMENTWISE: list[Shape] = [(2, 3, 7, 5), (7, 36), (4100,)]
FEW: Shape = (3,)
FORMULA_SHAPES: list[Shape] = [TINY, (4, 7), (11,)]  # of checks of formulas and their derivatives

PReLU, Dropout = cases_of("PReLU"), cases_of("Dropout")

ReLU("ReLU", "", relu, small=ODD, gpu=MAPS, **BIG)
ReLU("ReLU from y", "", relu, small=ODD, saved="y0", edges=(3, 5, 4, 3))
ReLU("ReLU from x", "", relu, saved="x0", medium=None, edges=(3, 5, 4, 3))
ReLU("ReLU of slope 1/8", "negative_slope: 0.125", lambda x: relu(x, 1 / 8))
ReLU("ReLU of slope 0.1", "negative_slope: 0.1", lambda x: relu(x, number(0.1)), medium=(3, 7))
ReLU("ReLU of slope -2", "negative_slope: -2", lambda x: relu(x, -2))
Clip("Clip", "min: -0.5 max: 0.7", lambda x: np.clip(x, -0.5, number(0.7)), **BIG)
Clip("Clip to 0..1", "min: 0 max: 1", lambda x: np.clip(x, 0, 1), small=ODD)
Clip("Clip from x", "min: 0 max: 1", lambda x: np.clip(x, 0, 1), small=ODD, saved="x0", edges=(3, 5, 4, 3))
Clip("Clip from y", "min: -0.5 max: 1", saved="y0", medium=None, edges=(3, 5, 4, 3))
Clip("Clip to -0.75..1.5", "min: -0.75 max: 1.5", lambda x: np.clip(x, -0.75, 1.5))
ELU("ELU", "", lambda x: np.where(x > 0, x, np.exp(x) - 1), small=ODD, **BIG)
ELU("ELU of alpha 0.5", "alpha: 0.5", lambda x: np.where(x > 0, x, 0.5 * (np.exp(x) - 1)))
Sigmoid("Sigmoid", "", sigmoid, small=ODD, **BIG)
TanH("TanH", "", lambda x: (np.exp(2 * x) - 1) / (np.exp(2 * x) + 1), small=ODD, **BIG)
AbsVal("AbsVal", "", np.abs, small=ODD, **BIG)
Power("Power of 0.5 x + 3", "scale: 0.5 shift: 3", lambda x: x / 2 + 3, medium=IMAGE)
Power("Power of 5 - 2 x", "power: 1 scale: -2 shift: 5", lambda x: 5 - 2 * x)
Power("Power of 2 x", "scale: 2", lambda x: 2 * x, small=ODD)
Power("Power of x", "", lambda x: x)
Power("Power 2", "power: 2", np.square, small=ODD)
Power("Power", "power: 2 scale: 0.5 shift: 3", lambda x: (x / 2 + 3) ** 2, **BIG)
Power("Power 2 of 3 x - 1", "power: 2 scale: 3 shift: -1", lambda x: (3 * x - 1) ** 2)
Power("Power 0.375", "power: 0.375 scale: 2 shift: 1", lambda x: (1 + 2 * x) ** 0.375, positive=True)
Power("Power 0", "power: 0 scale: 2 shift: 1", np.ones_like)
Power("Power of a constant", "power: 3 scale: 0 shift: 2", lambda x: np.full_like(x, 8))
Power("Power 1.7", "power: 1.7 scale: 0.01 shift: 3", lambda x: (3 + number(0.01) * x) ** number(1.7), timing=BATCH)
Exp("Exp", "", np.exp, small=ODD, timing=BATCH)
Exp("Exp to base 2", "base: 2 scale: 0.5", lambda x: 2 ** (x / 2), medium=IMAGE)
Exp("Exp of 1 + 3 x to base 2", "base: 2 scale: 3 shift: 1", lambda x: 2 ** (1 + 3 * x))
Exp("Exp of 0.5 x - 1", "scale: 0.5 shift: -1", lambda x: np.exp(x / 2 - 1))
Log("Log", "", np.log, small=ODD, positive=True)
Log("Log to base 2", "base: 2 scale: 3 shift: 1", lambda x: np.log2(1 + 3 * x), positive=True)
Log("Log to base 2 of 0.1 x + 3", "base: 2 scale: 0.1 shift: 3", lambda x: np.log2(3 + number(0.1) * x), medium=IMAGE)
Log("Log of 0.01 x + 9", "scale: 0.01 shift: 9", lambda x: np.log(9 + number(0.01) * x), timing=BATCH)
BNLL("BNLL", "", lambda x: np.log(1 + np.exp(x)), small=ODD, **BIG)
Swish("Swish", "", lambda x: x * sigmoid(x), small=ODD, timing=BATCH)
Swish("Swish of beta 0.7", "beta: 0.7", lambda x: x * sigmoid(number(0.7) * x), medium=IMAGE)
Swish("Swish of beta 1.5", "beta: 1.5", lambda x: x * sigmoid(1.5 * x))
Threshold("Threshold", "", lambda x: (x > 0).astype(float), small=ODD)
Threshold("Threshold of 0.2", "threshold: 0.2", lambda x: (x > number(0.2)).astype(float), medium=IMAGE)
ReLU6("ReLU6", "", lambda x: np.clip(x, 0, 6), small=ODD, **BIG)
PReLU("PReLU", "", small=ODD, **BIG)
PReLU("PReLU by quads", "", small=QUADS)
PReLU("PReLU, shared", "channel_shared: true", medium=IMAGE)
for _shared in ("true", "false"):
    by_shape(
        PReLU,
        f"PReLU, shared {_shared}",
        f"channel_shared: {_shared}",
        [(2, 3, 7, 5), (3, 36), (16, 20, 13, 9), (3, 4, 5), (700, 3)],
    )
Dropout("Dropout", "", small=ODD, timing=BATCH, gpu=MAPS)
Dropout("Dropout of 0.3", "dropout_ratio: 0.3", medium=IMAGE)
