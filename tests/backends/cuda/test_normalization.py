"""BatchNorm: far means, given averages, its Scale and ReLU, and averages that move by statistics."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.ops import AffineNorm, BatchNorm, MovingAverage, Tensor
from tests.backends.cuda.harness import Case, Memory, Way, layer_of, run_op
from tests.cases.normalization import NORM_SHAPES
from tests.emulator.emulate import WAYS
from tests.layers.harness import batch_norm_scale

MAPS = Tensor((4, 6, 3, 3))
LOOSE = {"y0": 4e-6, "dx0": 1e-5, "inv_std": 4e-6, "w1": 4e-6}


def test_batch_norm_survives_a_mean_far_from_zero(rng):
    layer = layer_of('type: "BatchNorm"', (8, 4, 16, 16))
    x = np.float32(rng.standard_normal((8, 4, 16, 16)) + 1000)
    ws = [np.zeros(4), np.zeros(4), np.zeros(1)]
    Case(layer, [x], ws, bounds={"y0": 5e-5, "dx0": 5e-5, "inv_std": 1e-5}, rng=rng).check()


@pytest.mark.parametrize("weight", [0.0, 2.5])
@pytest.mark.parametrize("shape", NORM_SHAPES, ids=str)
def test_batch_norm_divides_by_averages_with_use_global_stats(shape, weight, rng):
    layer = layer_of('type: "BatchNorm" batch_norm_param { use_global_stats: true eps: 0.1 }', shape)
    ws = [rng.standard_normal(shape[1]), rng.random(shape[1]) + 1, np.array([weight])]
    Case(layer, [rng.standard_normal(shape)], ws, bounds=LOOSE, rng=rng).check()


@pytest.mark.parametrize("way", [Way(*way) for way in WAYS], ids=lambda way: f"{way.mode}-{way.order}")
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("shape", NORM_SHAPES, ids=str)
def test_a_scale_and_a_relu_run_in_the_launches_of_their_batch_norm(shape, relu, way, rng):
    layer = batch_norm_scale(shape, relu=relu)
    channels = shape[1]
    ws = [rng.standard_normal(channels), rng.random(channels) + 1, np.array([2.0])]
    ws += [rng.standard_normal(channels), rng.standard_normal(channels)]
    bounds = {**LOOSE, "dw3": 1e-5, "dw4": 1e-5}
    Case(layer, [rng.standard_normal(shape) * 3 + 1], ws, way=way, bounds=bounds, rng=rng).check()


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("ops", [1, 3])
@pytest.mark.parametrize(
    "norm",
    [BatchNorm(MAPS, eps=1e-5, fraction=0.9), AffineNorm(MAPS, 1e-5, kept=0.9, share=0.1)],
    ids=["BatchNorm", "BN"],
)
@pytest.mark.parametrize("way", [Way(*way) for way in WAYS], ids=lambda way: f"{way.mode}-{way.order}")
def test_averages_move_by_the_statistics_of_batches_as_by_the_batches(way, norm, ops, rng):
    """Statistics alone, whatever the averages hold before, then those of all batches in turn: the same bits."""
    shape, batches = norm.x.shape, 3
    memory, (averages,) = Memory(), norm.averages
    xs = [memory.stored(rng.standard_normal(shape), np.float32) for _ in range(batches)]
    start = [rng.standard_normal(6), rng.random(6) + 1, np.array([2.0])][: len(averages.roles)]
    affine = {} if len(start) == 3 else {f"w{i}": memory.stored(rng.standard_normal(6), np.float32) for i in range(2)}
    in_turn, at_once = ([memory.stored(w, np.float32) for w in start] for _ in range(2))
    statistics = [memory.stored(np.full((batches, w.size), np.nan), np.float32) for w in start]
    for batch, x in enumerate(xs):
        for record, moved in ((norm, in_turn), (norm.of_one_batch(), [each[batch] for each in statistics])):
            y = memory.stored(np.full(shape, np.nan), np.float32)
            run_op(record, "forward", {"x0": x, "y0": y, **affine, **dict(zip(averages.roles, moved))}, way=way)
    roles = {**{f"w{i}": w for i, w in enumerate(at_once)}, **{f"x{i}": x for i, x in enumerate(statistics)}}
    fewer = {**roles, **{f"w{i}": memory.stored(w, np.float32) for i, w in enumerate(start)}}
    average = MovingAverage(0.9, 6, batches // ops, ops)
    run_op(average, "average", roles, way=way)
    run_op(average, "average", fewer, way=way, context={"averaged": 0})
    memory.check()
    for i, (one, other) in enumerate(zip(at_once, in_turn, strict=True)):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(fewer[f"w{i}"], np.float32(start[i]))
