"""BatchNorm, LRN, Scale and Bias, over blobs whose channels are innermost and others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.narrow import narrowed
from layermem.ops import (
    NARROW,
    OF_SECOND,
    AffineNorm,
    BatchNorm,
    BatchNormScale,
    BatchNormSum,
    MovingAverage,
    Scale,
    Tensor,
)
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


def two_norms(shape: tuple[int, ...], rng: np.random.Generator, word: str) -> tuple[BatchNormSum, dict, Memory]:
    """The op of two, and all that it and each of them read and write, in 16 bits where `word` says so."""
    memory, channels = Memory(), shape[1]
    view = (1, channels, 1, 1)
    first, second = (
        BatchNormScale(BatchNorm(Tensor(shape), eps, 0.9), Scale(Tensor(shape), "w0", view, (0, 2, 3), "w1"))
        for eps in (1e-5, 1e-3)
    )
    arrays = {}
    for role in ("x0", "x1", "dy0", "y0", "y", "dx0", "dx1"):
        value = np.float32(rng.standard_normal(shape) * 2 + 0.5)
        arrays[role] = memory.stored(
            narrowed(value, NARROW[word]) if word else value, np.uint16 if word else np.float32
        )
    numbers = [*(f"w{i}" for i in range(10)), "mean", "inv_std", "mean1", "inv_std1", "dw3", "dw4", "dw8", "dw9"]
    for role in numbers:
        size = 1 if role in ("w2", "w7") else channels
        arrays[role] = memory.stored(np.float32(rng.random(size) + 0.5), np.float32)
    arrays["mask"] = memory.bytes(-(-Tensor(shape).count // 8))
    return BatchNormSum((first, second), True, NARROW.get(word, "float32")), arrays, memory


def roles_of(arrays: dict, number: int, *roles: str) -> dict:
    return {role: arrays[OF_SECOND.get(role, role) if number else role] for role in roles}


@pytest.mark.parametrize("word", ["", *NARROW])
@pytest.mark.parametrize("shape", [(2, 4, 7, 5), (6, 72, 9, 11), (3, 132, 4, 8)], ids=str)
def test_two_batch_norms_and_their_sum_have_the_bits_of_two_ops(shape, word, rng):
    state = rng.bit_generator.state
    both, together, memory = two_norms(shape, rng, word)
    rng.bit_generator.state = state
    _, apart, others = two_norms(shape, rng, word)
    own = ("x0", "w0", "w1", "w2", "w3", "w4", "mean", "inv_std")
    second = {**roles_of(apart, 1, *own), "y0": apart["y"]}
    run_op(both.norms[1], "forward", second, storage=word)
    first = {**roles_of(apart, 0, *own, "y0", "mask"), "x1": apart["y"]}
    run_op(replace(both.norms[0], residual=True, relu=True), "forward", first, storage=word)
    backward = ("x0", "mean", "inv_std", "w3", "dy0", "dx0", "dw3", "dw4")
    for number, record in enumerate(both.norms):
        run_op(record, "backward", roles_of(apart, number, *backward), storage=word)
    forward = [role for role in together if not role.startswith("d") and role != "y"]
    run_op(both, "forward", {role: together[role] for role in forward}, storage=word)
    back = [OF_SECOND.get(role, role) for role in backward]
    run_op(both, "backward", {role: together[role] for role in dict.fromkeys((*backward, *back))}, storage=word)
    memory.check()
    others.check()
    for role in together.keys() - {"y"}:
        assert together[role].tobytes() == apart[role].tobytes(), role
    again = {role: together[role] for role in forward if role not in {f"w{i}" for i in (0, 1, 2, 5, 6, 7)}}
    again |= {"y0": memory.stored(np.zeros(shape), together["y0"].dtype)}
    run_op(both, "recompute", again, storage=word)
    assert again["y0"].tobytes() == together["y0"].tobytes()


@pytest.mark.parametrize("wanted", ["dx0", "dx1", ""])
def test_a_gradient_of_two_batch_norms_is_the_same_without_the_other(wanted, rng):
    both, arrays, memory = two_norms((2, 8, 5, 7), rng, "")
    read = {role: arrays[role] for role in ("x0", "x1", "dy0", "mean", "inv_std", "mean1", "inv_std1", "w3", "w8")}
    every = {role: arrays[role] for role in ("dx0", "dx1", "dw3", "dw4", "dw8", "dw9")}
    run_op(both, "backward", {**read, **every})
    one = {role: np.full_like(array, np.nan) for role, array in every.items() if role == wanted or role[1] == "w"}
    run_op(both, "backward", {**read, **one})
    memory.check()
    for role, array in one.items():
        np.testing.assert_array_equal(array, every[role], err_msg=role)


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


@pytest.mark.exhaustive(2)
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
