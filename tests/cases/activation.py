"""Activations: y0 = formula(x0)."""

from typing import Any

import numpy as np

from tests.cases.base import BATCH, BIG, IMAGE, MAPS, ODD, QUADS, TINY, add, number
from tests.op_case import Formula


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def relu(x: np.ndarray, slope: float = 0) -> np.ndarray:
    return np.where(x > 0, x, slope * x)


def unary(name: str, kind: str, settings: str, formula: Formula, **more: Any) -> None:
    add(name, f'type: "{kind}" {settings}', formula=formula, **{"medium": TINY, **more})


unary("ReLU", "ReLU", "", relu, small=ODD, gpu=MAPS, **BIG)
unary("ReLU from y", "ReLU", "", relu, small=ODD, saved="y0")
unary("ReLU of slope 1/8", "ReLU", "relu_param { negative_slope: 0.125 }", lambda x: relu(x, 1 / 8))
unary("ReLU of slope 0.1", "ReLU", "relu_param { negative_slope: 0.1 }", lambda x: relu(x, number(0.1)), medium=(3, 7))
unary("ReLU of slope -2", "ReLU", "relu_param { negative_slope: -2 }", lambda x: relu(x, -2))
unary("Clip", "Clip", "clip_param { min: -0.5 max: 0.7 }", lambda x: np.clip(x, -0.5, number(0.7)), **BIG)
unary("Clip to 0..1", "Clip", "clip_param { min: 0 max: 1 }", lambda x: np.clip(x, 0, 1), small=ODD)
unary("Clip from x", "Clip", "clip_param { min: 0 max: 1 }", lambda x: np.clip(x, 0, 1), small=ODD, saved="x0")
unary("Clip to -0.75..1.5", "Clip", "clip_param { min: -0.75 max: 1.5 }", lambda x: np.clip(x, -0.75, 1.5))
unary("ELU", "ELU", "", lambda x: np.where(x > 0, x, np.exp(x) - 1), small=ODD, **BIG)
unary("ELU of alpha 0.5", "ELU", "elu_param { alpha: 0.5 }", lambda x: np.where(x > 0, x, 0.5 * (np.exp(x) - 1)))
unary("Sigmoid", "Sigmoid", "", sigmoid, small=ODD, **BIG)
unary("TanH", "TanH", "", lambda x: (np.exp(2 * x) - 1) / (np.exp(2 * x) + 1), small=ODD, **BIG)
unary("AbsVal", "AbsVal", "", np.abs, small=ODD, **BIG)
unary("Power of 0.5 x + 3", "Power", "power_param { scale: 0.5 shift: 3 }", lambda x: x / 2 + 3, medium=IMAGE)
unary("Power of 5 - 2 x", "Power", "power_param { power: 1 scale: -2 shift: 5 }", lambda x: 5 - 2 * x)
unary("Power of 2 x", "Power", "power_param { scale: 2 }", lambda x: 2 * x, small=ODD)
unary("Power of x", "Power", "", lambda x: x)
unary("Power 2", "Power", "power_param { power: 2 }", np.square, small=ODD)
unary("Power", "Power", "power_param { power: 2 scale: 0.5 shift: 3 }", lambda x: (x / 2 + 3) ** 2, **BIG)
unary("Power 2 of 3 x - 1", "Power", "power_param { power: 2 scale: 3 shift: -1 }", lambda x: (3 * x - 1) ** 2)
unary(
    "Power 0.375",
    "Power",
    "power_param { power: 0.375 scale: 2 shift: 1 }",
    lambda x: (1 + 2 * x) ** 0.375,
    positive=True,
)
unary("Power 0", "Power", "power_param { power: 0 scale: 2 shift: 1 }", np.ones_like)
unary("Power of a constant", "Power", "power_param { power: 3 scale: 0 shift: 2 }", lambda x: np.full_like(x, 8))
unary(
    "Power 1.7",
    "Power",
    "power_param { power: 1.7 scale: 0.01 shift: 3 }",
    lambda x: (3 + number(0.01) * x) ** number(1.7),
    timing=BATCH,
)
unary("Exp", "Exp", "", np.exp, small=ODD, timing=BATCH)
unary("Exp to base 2", "Exp", "exp_param { base: 2 scale: 0.5 }", lambda x: 2 ** (x / 2), medium=IMAGE)
unary("Exp of 1 + 3 x to base 2", "Exp", "exp_param { base: 2 scale: 3 shift: 1 }", lambda x: 2 ** (1 + 3 * x))
unary("Exp of 0.5 x - 1", "Exp", "exp_param { scale: 0.5 shift: -1 }", lambda x: np.exp(x / 2 - 1))
unary("Log", "Log", "", np.log, small=ODD, positive=True)
unary("Log to base 2", "Log", "log_param { base: 2 scale: 3 shift: 1 }", lambda x: np.log2(1 + 3 * x), positive=True)
unary(
    "Log to base 2 of 0.1 x + 3",
    "Log",
    "log_param { base: 2 scale: 0.1 shift: 3 }",
    lambda x: np.log2(3 + number(0.1) * x),
    medium=IMAGE,
)
unary(
    "Log of 0.01 x + 9",
    "Log",
    "log_param { scale: 0.01 shift: 9 }",
    lambda x: np.log(9 + number(0.01) * x),
    timing=BATCH,
)
unary("BNLL", "BNLL", "", lambda x: np.log(1 + np.exp(x)), small=ODD, **BIG)
unary("Swish", "Swish", "", lambda x: x * sigmoid(x), small=ODD, timing=BATCH)
unary("Swish of beta 0.7", "Swish", "swish_param { beta: 0.7 }", lambda x: x * sigmoid(number(0.7) * x), medium=IMAGE)
unary("Swish of beta 1.5", "Swish", "swish_param { beta: 1.5 }", lambda x: x * sigmoid(1.5 * x))
unary("Threshold", "Threshold", "", lambda x: (x > 0).astype(float), small=ODD)
unary(
    "Threshold of 0.2",
    "Threshold",
    "threshold_param { threshold: 0.2 }",
    lambda x: (x > number(0.2)).astype(float),
    medium=IMAGE,
)
unary("ReLU6", "ReLU6", "", lambda x: np.clip(x, 0, 6), small=ODD, **BIG)
add("PReLU", 'type: "PReLU"', small=ODD, **BIG)
add("PReLU by quads", 'type: "PReLU"', small=QUADS)
add("PReLU, shared", 'type: "PReLU" prelu_param { channel_shared: true }', medium=IMAGE)
add("Dropout", 'type: "Dropout"', small=ODD, timing=BATCH, gpu=MAPS)
add("Dropout of 0.3", 'type: "Dropout" dropout_param { dropout_ratio: 0.3 }', medium=IMAGE)
