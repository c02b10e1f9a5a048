"""BatchNorm, LRN, Scale and Bias, over blobs whose channels are innermost and others."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.ops import AffineNorm, BatchNorm, MovingAverage, Tensor
from tests.backends.cuda.harness import Case, Memory, Way, layer_of, run_op
from tests.emulator.emulate import WAYS
from tests.layers.harness import batch_norm_scale

MAPS = Tensor((4, 6, 3, 3))
SHAPES = [(2, 3, 7, 5), (3, 36), (2, 20, 13, 7), (6, 72, 9, 11), (300, 5), (4, 6, 11), (1, 4, 1, 1)]
LOOSE = {"y0": 4e-6, "dx0": 1e-5, "inv_std": 4e-6, "w1": 4e-6}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm_keeps_the_batchs_statistics_and_moves_its_averages(shape, rng):
    layer = layer_of('type: "BatchNorm"', shape)
    x = rng.standard_normal(shape) * 3 + 1
    ws = [rng.standard_normal(shape[1]), rng.random(shape[1]) + 1, np.array([2.0])]
    Case(layer, [x], ws, bounds=LOOSE, rng=rng).check()


def test_batch_norm_survives_a_mean_far_from_zero(rng):
    layer = layer_of('type: "BatchNorm"', (8, 4, 16, 16))
    x = np.float32(rng.standard_normal((8, 4, 16, 16)) + 1000)
    ws = [np.zeros(4), np.zeros(4), np.zeros(1)]
    Case(layer, [x], ws, bounds={"y0": 5e-5, "dx0": 5e-5, "inv_std": 1e-5}, rng=rng).check()


@pytest.mark.parametrize("weight", [0.0, 2.5])
@pytest.mark.parametrize("shape", [(2, 3, 7, 5), (3, 36), (4, 6, 11)], ids=str)
def test_batch_norm_divides_by_averages_with_use_global_stats(shape, weight, rng):
    layer = layer_of('type: "BatchNorm" batch_norm_param { use_global_stats: true eps: 0.1 }', shape)
    ws = [rng.standard_normal(shape[1]), rng.random(shape[1]) + 1, np.array([weight])]
    Case(layer, [rng.standard_normal(shape)], ws, bounds=LOOSE, rng=rng).check()


@pytest.mark.parametrize("way", [Way(*way) for way in WAYS], ids=lambda way: f"{way.mode}-{way.order}")
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("shape", [(2, 3, 7, 5), (6, 20, 9, 11)], ids=str)
def test_a_scale_and_a_relu_run_in_the_launches_of_their_batch_norm(shape, relu, way, rng):
    layer = batch_norm_scale(shape, relu=relu)
    channels = shape[1]
    ws = [rng.standard_normal(channels), rng.random(channels) + 1, np.array([2.0])]
    ws += [rng.standard_normal(channels), rng.standard_normal(channels)]
    bounds = {**LOOSE, "dw3": 1e-5, "dw4": 1e-5}
    Case(layer, [rng.standard_normal(shape) * 3 + 1], ws, way=way, bounds=bounds, rng=rng).check()


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("shape", [(2, 3, 7, 5), (1, 36, 3, 4), (3, 7, 13, 1), (1, 2500, 1, 2)], ids=str)
def test_lrn_agrees_with_double_precision(shape, size, region, rng):
    settings = f"local_size: {size} alpha: 0.5 beta: 0.75 norm_region: {region}"
    layer = layer_of(f'type: "LRN" lrn_param {{ {settings} }}', shape)
    Case(layer, [rng.standard_normal(shape)], bounds={"dx0": 4e-6}, rng=rng).check()


# axis, num_axes, shape of x
SPANS = {
    "channels": (1, 1, (2, 8, 7, 5)),
    "odd channels": (1, 1, (2, 3, 7, 5)),
    "channels in many parts": (1, 1, (4, 16, 24, 23)),
    "items": (0, 1, (3, 4, 5, 2)),
    "rows": (2, 1, (3, 4, 5, 2)),
    "columns": (3, 1, (3, 4, 5, 2)),
    "places": (2, 2, (3, 4, 5, 2)),
    "channels and rows": (1, 2, (3, 4, 5, 2)),
    "items and channels": (0, 2, (3, 4, 5, 2)),
    "all but the item": (1, -1, (3, 4, 5, 2)),
    "everything": (0, -1, (3, 4, 5, 2)),
    "a number": (1, 0, (3, 4, 5, 2)),
    "features": (1, 1, (30, 7)),
    "three axes": (1, 1, (3, 4, 5)),
    "the last of three axes": (2, 1, (3, 4, 5)),
}


@pytest.mark.parametrize("kind", ["scale with bias", "scale", "bias"])
@pytest.mark.parametrize("name", SPANS)
def test_a_learned_operand_spans_the_axes_that_it_names(name, kind, rng):
    axis, axes, shape = SPANS[name]
    block = "bias" if kind == "bias" else "scale"
    more = "bias_term: true" if kind == "scale with bias" else ""
    layer = layer_of(f'type: "{block.title()}" {block}_param {{ axis: {axis} num_axes: {axes} {more} }}', shape)
    ws = [rng.standard_normal(p.tensor.shape) for p in layer.params]
    Case(layer, [rng.standard_normal(shape)], ws, bounds={"dw0": 1e-5, "dw1": 1e-5}, rng=rng).check()


@pytest.mark.parametrize("kind", ["Scale", "Bias"])
@pytest.mark.parametrize("axis, operand", [(0, (3, 4)), (1, (4,)), (0, (3, 4, 5, 2)), (2, (5, 2)), (0, ())])
def test_an_operand_may_be_the_second_bottom(kind, axis, operand, rng):
    shape = (3, 4, 5, 2)
    layer = layer_of(f'type: "{kind}" {kind.lower()}_param {{ axis: {axis} }}', shape, operand)
    Case(layer, [rng.standard_normal(shape), rng.standard_normal(operand)], bounds={"dx1": 1e-5}, rng=rng).check()


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
