"""Update rules: w changes by its gradient and its history.

g = dw, clipped, divided by iter_size, plus decay (L2: w, L1: sign w);  r = rate lr_mult;  m = momentum
    SGD       h <- m h + r g                                   w <- w - h
    Nesterov  v <- m h + r g                                   w <- w - ((1 + m) v - m h);   h <- v
    AdaGrad   h <- h + g^2                                     w <- w - r g / (sqrt h + delta)
    RMSProp   h <- d h + (1 - d) g^2                           w <- w - r g / (sqrt h + delta)
    AdaDelta  h0 <- m h0 + (1 - m) g^2;  u = g sqrt((h1 + delta) / (h0 + delta))
              h1 <- m h1 + (1 - m) u^2                         w <- w - r u
    Adam      h0 <- m h0 + (1 - m) g;  h1 <- m2 h1 + (1 - m2) g^2
                                                               w <- w - r c h0 / (sqrt h1 + delta)
              c = sqrt(1 - m2^t) / (1 - m^t),  t = iteration + 1
source  Caffe src/caffe/solvers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, kernel


def gradient(parameter: Any, b: Buffers) -> np.ndarray:
    """A new array: the gradient as the rules see it, in the order clip, iter_size, decay of Caffe's solver."""
    g = np.array(b.dw)
    if b.norm is not None and b.norm > b.clip:
        g *= g.dtype.type(b.clip / b.norm)
    if b.iter_size > 1:
        g *= g.dtype.type(1 / b.iter_size)
    decay = g.dtype.type(b.weight_decay * parameter.decay_mult)
    if decay:
        g += decay * (b.w if b.regularization == "L2" else np.sign(b.w))
    return g


def rule(name: str) -> Callable:
    """Register an update: `step(b, g, local_rate)` changes b.w and its histories."""

    def register(step: Callable[[Buffers, np.ndarray, Any], None]) -> Callable:
        @kernel(f"{name}.update")
        def update(parameter: Any, b: Buffers) -> None:
            g = gradient(parameter, b)
            step(b, g, g.dtype.type(b.rate * parameter.lr_mult))

        return update

    return register


@rule("SGD")
def sgd(b: Buffers, g: np.ndarray, r: Any) -> None:
    b.h[...] = b.h * g.dtype.type(b.momentum) + r * g
    b.w[...] -= b.h


@rule("Nesterov")
def nesterov(b: Buffers, g: np.ndarray, r: Any) -> None:
    m = g.dtype.type(b.momentum)
    v = b.h * m + r * g
    b.w[...] -= (1 + m) * v - m * b.h
    b.h[...] = v


@rule("AdaGrad")
def adagrad(b: Buffers, g: np.ndarray, r: Any) -> None:
    b.h[...] += g * g
    b.w[...] -= r * (g / (np.sqrt(b.h) + g.dtype.type(b.delta)))


@rule("RMSProp")
def rmsprop(b: Buffers, g: np.ndarray, r: Any) -> None:
    d = g.dtype.type(b.rms_decay)
    b.h[...] = d * b.h + (1 - d) * (g * g)
    b.w[...] -= r * (g / (np.sqrt(b.h) + g.dtype.type(b.delta)))


@rule("AdaDelta")
def adadelta(b: Buffers, g: np.ndarray, r: Any) -> None:
    m, delta = g.dtype.type(b.momentum), g.dtype.type(b.delta)
    b.h0[...] = m * b.h0 + (1 - m) * (g * g)
    u = g * np.sqrt((b.h1 + delta) / (b.h0 + delta))
    b.h1[...] = m * b.h1 + (1 - m) * (u * u)
    b.w[...] -= r * u


@rule("Adam")
def adam(b: Buffers, g: np.ndarray, r: Any) -> None:
    m, m2 = g.dtype.type(b.momentum), g.dtype.type(b.momentum2)
    t = b.iteration + 1
    correction = g.dtype.type(np.sqrt(1 - b.momentum2**t) / (1 - b.momentum**t))
    b.h0[...] = m * b.h0 + (1 - m) * g
    b.h1[...] = m2 * b.h1 + (1 - m2) * (g * g)
    b.w[...] -= r * correction * (b.h0 / (np.sqrt(b.h1) + g.dtype.type(b.delta)))
