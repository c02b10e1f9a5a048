"""LRN, BatchNorm, Scale, Bias: definitions written as loops, moving averages by hand, gradients, in-place kernels."""

import numpy as np
import pytest

from layermem.backends.reference.base import REGISTRY, ReferenceCall
from layermem.errors import InputError
from layermem.layers.fillers import fill
from tests.cases.base import THREE_CHANNELS
from tests.layers.harness import TEST, TRAIN, Run, backward, check_gradients, forward, layer_of


def layer(type, settings, *shapes, phase=TRAIN, param=""):
    field = {"LRN": "lrn", "BatchNorm": "batch_norm", "Scale": "scale", "Bias": "bias"}[type]
    return layer_of(f'type: "{type}" {param} {field}_param {{ {settings} }}', *shapes, phase=phase)


def random(*shape, seed=5):
    return np.random.default_rng(seed).standard_normal(shape)


def random_for(it):
    """Bottoms and parameters; the moving averages of a BatchNorm are those of one earlier batch."""
    ws = [abs(random(*p.shape, seed=20 + i)) + 0.5 for i, p in enumerate(it.params)]
    return [random(*x.shape, seed=10 + i) for i, x in enumerate(it.bottoms)], ws


def lie(run, role, over):
    """Run a step of the layer again with `role` in the memory of `over`."""
    step = next(s for s in (run.layer.forward(), *run.layer.backward(WANTS)) if role in s.writes)
    arrays = {r: run.arrays[r].copy(order="K") for r in (*step.reads, *step.writes, *step.updates)}
    arrays[role] = arrays[over]
    REGISTRY.bind(run.layer.record, step.step, ReferenceCall(arrays))
    return arrays[role]


WANTS = ("dx0", "dw0", "dw1")

# ---- LRN ------------------------------------------------------------------------------------------------------------


def plain_lrn(x, size, alpha, beta, k, across):
    y = np.empty_like(x)
    _, channels, height, width = x.shape
    half = size // 2
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                if across:
                    around = x[:, max(0, c - half) : c + half + 1, i, j]
                    scale = k + alpha / size * (around**2).sum(axis=1)
                else:
                    around = x[:, c, max(0, i - half) : i + half + 1, max(0, j - half) : j + half + 1]
                    scale = 1 + alpha / size**2 * (around**2).sum(axis=(1, 2))
                y[:, c, i, j] = x[:, c, i, j] * scale**-beta
    return y


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
@pytest.mark.parametrize("size", [1, 3, 5, 15])
def test_lrn_divides_by_the_squares_around(size, region):
    x = random(2, 7, 3, 4)
    it = layer("LRN", f"local_size: {size} alpha: 0.7 beta: 0.6 k: 2 norm_region: {region}", x.shape)
    expected = plain_lrn(x, size, 0.7, 0.6, 2, region == "ACROSS_CHANNELS")
    np.testing.assert_allclose(forward(it, x).arrays["y0"], expected, rtol=1e-6)
    check_gradients(it, x)


def test_lrn_of_ones_counts_the_channels_within_reach():
    y = forward(layer("LRN", "local_size: 5 alpha: 5 beta: 1", (1, 6, 1, 1)), np.ones((1, 6, 1, 1))).arrays["y0"]
    np.testing.assert_allclose(y.ravel(), [1 / 4, 1 / 5, 1 / 6, 1 / 6, 1 / 5, 1 / 4])


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
def test_lrn_with_a_window_wider_than_the_blob_sums_all_there_is(region):
    """A loop over a window of 2^32 - 1 would not end."""
    size, across = 2**32 - 1, region == "ACROSS_CHANNELS"
    x = random(2, 5, 3, 4)
    alpha = np.float32(1e10 if across else 1e19)
    it = layer("LRN", f"local_size: {size} alpha: {alpha} beta: 0.6 norm_region: {region}", x.shape)
    sums = (x * x).sum(axis=1 if across else (2, 3), keepdims=True)
    expected = x * (1 + float(alpha) / (size if across else size**2) * sums) ** -np.float32(0.6)
    np.testing.assert_allclose(forward(it, x).arrays["y0"], expected, rtol=1e-5)
    assert np.abs(expected / x).max() < 0.9


@pytest.mark.parametrize(("region", "most"), [("ACROSS_CHANNELS", 9), ("WITHIN_CHANNEL", 7)])
def test_lrn_windows_are_as_wide_as_stated_up_to_the_whole_blob(region, most):
    """Windows over 5 channels, or 3 x 4 pixels, may extend from the first to the last, on both sides."""
    for size in (1, most - 2, most, most + 2, 99):
        it = layer("LRN", f"local_size: {size} norm_region: {region}", (2, 5, 3, 4))
        assert it.record.size == min(size, most)


def test_lrn_keeps_x_and_nothing_else():
    it = layer("LRN", "", (2, 6, 3, 3))
    assert it.stash == {}
    assert it.backward(("dx0",))[0].reads == ("x0", "dy0")


# ---- BatchNorm ------------------------------------------------------------------------------------------------------


def test_batch_norm_gives_each_channel_mean_0_and_variance_1():
    it = layer("BatchNorm", "eps: 0", (5, 2, 3, 4))
    y = forward(it, 3 * random(5, 2, 3, 4) + 7, ws=[np.zeros(p.shape) for p in it.params]).arrays["y0"]
    np.testing.assert_allclose(y.mean(axis=(0, 2, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(y.var(axis=(0, 2, 3)), 1, rtol=1e-12)


@pytest.mark.parametrize("settings", ["", "eps: 0.1"])
@pytest.mark.parametrize("shape", THREE_CHANNELS)
def test_batch_norm_gradients(shape, settings):
    for use in ("", "use_global_stats: true"):
        it = layer("BatchNorm", f"{settings} {use}", shape)
        xs, ws = random_for(it)
        check_gradients(it, *xs, ws=ws, wants=("dx0",), tolerance=1e-5)


def test_moving_averages_are_decaying_sums_and_the_last_blob_says_of_how_many():
    it = layer("BatchNorm", "moving_average_fraction: 0.5 eps: 0", (4, 1))
    ws = [np.zeros(p.shape) for p in it.params]
    for batch in ([[1], [2], [3], [6]], [[0], [0], [4], [4]]):
        run = forward(it, np.array(batch, float), ws=ws)
        ws = [run.arrays[f"w{i}"] for i in range(3)]
    # means 3 and 2; biased variances 3.5 and 4, times 4/3
    np.testing.assert_allclose(ws[0], [0.5 * 3 + 2])
    np.testing.assert_allclose(ws[1], [(0.5 * 3.5 + 4) * 4 / 3])
    np.testing.assert_allclose(ws[2], [1.5])
    tested = layer("BatchNorm", "eps: 0", (1, 1), phase=TEST)
    y = forward(tested, np.array([[5.0]]), ws=ws).arrays["y0"]
    np.testing.assert_allclose(y, [[(5 - 3.5 / 1.5) / np.sqrt(23 / 3 / 1.5)]])


def test_one_element_a_channel_is_its_own_unbiased_variance():
    it = layer("BatchNorm", "", (1, 2))
    run = forward(it, random(1, 2), ws=[np.zeros(p.shape) for p in it.params])
    np.testing.assert_array_equal(run.arrays["w1"], [0, 0])
    np.testing.assert_array_equal(run.arrays["y0"], [[0, 0]])


def test_averages_of_no_batch_at_all_count_as_zero():
    it = layer("BatchNorm", "eps: 0.25", (1, 2), phase=TEST)
    y = forward(it, np.array([[1.0, -3.0]]), ws=[np.full(2, 9.0), np.full(2, 9.0), np.zeros(1)]).arrays["y0"]
    np.testing.assert_allclose(y, [[2, -6]])


@pytest.mark.parametrize(
    "settings, phase, moves",
    [
        ("", TRAIN, True),
        ("", TEST, False),
        ("use_global_stats: true", TRAIN, False),
        ("use_global_stats: false", TEST, True),
    ],
)
def test_batches_move_the_averages_unless_the_averages_are_used(settings, phase, moves):
    step = layer("BatchNorm", settings, (4, 2), phase=phase).forward()
    assert step.updates == (("w0", "w1", "w2") if moves else ())
    assert [r for r in step.reads if r[0] == "w"] == ([] if moves else ["w0", "w1", "w2"])


def test_a_recomputation_gives_the_same_bits_and_moves_no_average():
    it = layer("BatchNorm", "", (8, 3, 5, 5))
    assert it.stash["mean"].shape == it.stash["inv_std"].shape == (3,)
    run = forward(it, random(8, 3, 5, 5) * 2 + 1, ws=[np.ones(p.shape) for p in it.params], dtype="float32")
    first, averages = run.arrays["y0"], [run.arrays[f"w{i}"].copy() for i in range(3)]
    run.step(it.recompute())
    assert run.arrays["y0"] is not first
    np.testing.assert_array_equal(run.arrays["y0"], first)
    for i in range(3):
        np.testing.assert_array_equal(run.arrays[f"w{i}"], averages[i])
    assert set(it.recompute().reads) == {"x0", "mean", "inv_std"} and it.recompute().updates == ()


def test_with_global_statistics_a_recomputation_is_just_forward():
    it = layer("BatchNorm", "", (2, 2), phase=TEST)
    assert it.recompute() == it.forward() and it.stash == {}


def test_a_stash_that_no_op_reads_need_not_be_there():
    it = layer("BatchNorm", "", (4, 2))
    (x,), ws = random_for(it)
    full = forward(it, x, ws=ws)
    again = Run(it, {r: full.arrays[r].copy() for r in ("x0", "y0")})
    for i, w in enumerate(ws):
        again.put(f"w{i}", w)
    again.arrays["y0"][...] = np.nan
    REGISTRY.bind(it.record, "forward", ReferenceCall(again.arrays))
    np.testing.assert_array_equal(again.arrays["y0"], full.arrays["y0"])


def test_no_solver_moves_the_averages_whatever_their_learning_rate():
    it = layer("BatchNorm", "", (4, 2), param="param { lr_mult: 1 } param { lr_mult: 1 } param { lr_mult: 1 }")
    assert [(p.shape, p.learned, p.lr_mult, p.decay_mult) for p in it.params] == [
        ((2,), False, 0, 0),
        ((2,), False, 0, 0),
        ((1,), False, 0, 0),
    ]


# ---- Scale and Bias -------------------------------------------------------------------------------------------------

SPANS = [
    ("", (3,), (1, 3, 1, 1)),
    ("axis: 0 num_axes: 1", (2,), (2, 1, 1, 1)),
    ("axis: 1 num_axes: 2", (3, 4), (1, 3, 4, 1)),
    ("axis: -2 num_axes: -1", (4, 5), (1, 1, 4, 5)),
    ("axis: 0 num_axes: 4", (2, 3, 4, 5), (2, 3, 4, 5)),
    ("num_axes: 0", (), (1, 1, 1, 1)),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("settings, shape, view", SPANS)
def test_a_learned_scale_spans_the_axes_it_names(settings, shape, view, bias):
    it = layer("Scale", f"{settings} bias_term: {str(bias).lower()}", (2, 3, 4, 5))
    assert [p.shape for p in it.params] == [shape] * (1 + bias)
    (x,), ws = random_for(it)
    expected = x * ws[0].reshape(view) + (ws[1].reshape(view) if bias else 0)
    np.testing.assert_allclose(check_gradients(it, x, ws=ws).arrays["y0"], expected)


@pytest.mark.parametrize("settings, shape, view", SPANS)
def test_a_learned_bias_spans_the_axes_it_names(settings, shape, view):
    it = layer("Bias", settings, (2, 3, 4, 5))
    assert [p.shape for p in it.params] == [shape]
    (x,), ws = random_for(it)
    np.testing.assert_allclose(check_gradients(it, x, ws=ws).arrays["y0"], x + ws[0].reshape(view))


@pytest.mark.parametrize("type", ["Scale", "Bias"])
@pytest.mark.parametrize(
    "axis, shape, view",
    [(0, (2, 3), (2, 3, 1, 1)), (2, (4, 5), (1, 1, 4, 5)), (0, (2, 3, 4, 5), (2, 3, 4, 5)), (1, (), (1, 1, 1, 1))],
)
def test_a_second_bottom_takes_the_place_of_the_parameter(type, axis, shape, view):
    it = layer(type, f"axis: {axis}", (2, 3, 4, 5), shape)
    assert it.params == ()
    (x, operand), _ = random_for(it)
    y = check_gradients(it, x, operand).arrays["y0"]
    np.testing.assert_allclose(y, x * operand.reshape(view) if type == "Scale" else x + operand.reshape(view))


def test_a_scale_by_a_second_bottom_may_still_learn_a_bias():
    it = layer("Scale", "axis: 0 bias_term: true", (2, 3, 4, 5), (2, 3))
    assert [p.shape for p in it.params] == [(2, 3)]
    (x, operand), (bias,) = random_for(it)
    y = check_gradients(it, x, operand, ws=[bias]).arrays["y0"]
    np.testing.assert_allclose(y, x * operand.reshape(2, 3, 1, 1) + bias.reshape(2, 3, 1, 1))


def test_a_scale_starts_at_1_and_a_bias_at_0_unless_the_net_says_otherwise():
    scale, bias = layer("Scale", "bias_term: true", (2, 3)).params
    assert (scale.filler.type, scale.filler.value) == ("constant", 1)
    assert (bias.filler.type, bias.filler.value) == ("constant", 0)
    filled = layer("Scale", "filler { type: 'gaussian' std: 2 } bias_term: true bias_filler { value: 3 }", (2, 3))
    assert (filled.params[0].filler.std, filled.params[1].filler.value) == (2, 3)


@pytest.mark.parametrize(
    "wants, reads",
    [
        (("dx0",), {"dy0", "w0"}),
        (("dw0",), {"dy0", "x0"}),
        (("dw1",), {"dy0"}),
        (("dx0", "dw1"), {"dy0", "w0"}),
        (("dx0", "dw0", "dw1"), {"dy0", "w0", "x0"}),
    ],
)
def test_scale_reads_what_the_wanted_gradients_need(wants, reads):
    it = layer("Scale", "bias_term: true", (2, 3, 2, 2))
    (step,) = it.backward(wants)
    assert set(step.reads) == reads and set(step.writes) == set(wants)
    (x,), ws = random_for(it)
    check_gradients(it, x, ws=ws, wants=wants)


# ---- overlays -------------------------------------------------------------------------------------------------------

ALONE = [
    ("LRN", ""),
    ("BatchNorm", ""),
    ("BatchNorm", "use_global_stats: true"),
    ("Scale", "bias_term: true"),
    ("Bias", ""),
]


@pytest.mark.parametrize("type, settings", ALONE)
def test_kernels_bear_every_overlay_that_the_layer_permits(type, settings):
    it = layer(type, settings, (3, 4, 2, 2))
    xs, ws = random_for(it)
    run = forward(it, *xs, ws=ws)
    wants = tuple(r for r in WANTS if r == "dx0" or (int(r[2:]) < len(it.params) and it.params[int(r[2:])].learned))
    backward(run, wants, random(3, 4, 2, 2, seed=6))
    for i, w in enumerate(ws):
        run.put(f"w{i}", w)
    for step in (it.forward(), *it.backward(wants)):
        assert step.overlays
        for overlay in step.overlays:
            np.testing.assert_array_equal(lie(run, overlay.out, overlay.over), run.arrays[overlay.out])


def test_within_a_channel_lrn_needs_its_neighbours_and_permits_none():
    it = layer("LRN", "norm_region: WITHIN_CHANNEL", (1, 2, 3, 3))
    assert not it.forward().overlays and not it.backward(("dx0",))[0].overlays


def test_dx_may_lie_over_x_only_where_the_op_reads_x():
    it = layer("Scale", "", (2, 3))
    assert {o.kind for o in it.backward(("dx0",))[0].overlays} == {"gradient"}
    assert {o.kind for o in it.backward(("dx0", "dw0"))[0].overlays} == {"gradient", "intra"}


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "type, settings, shapes, remedy",
    [
        ("LRN", "local_size: 4", [(1, 2, 3, 3)], "use 5"),
        ("LRN", "", [(2, 3)], "N x C x H x W"),
        ("BatchNorm", "", [(3,)], "at least 2"),
        ("Scale", "axis: 2", [(2, 3)], "use -2 to 1"),
        ("Scale", "num_axes: 3", [(2, 3, 4)], "num_axes -1 to 2"),
        ("Bias", "num_axes: -2", [(2, 3, 4)], "num_axes -1 to 2"),
        ("Scale", "axis: 1", [(2, 3, 4), (2, 3)], "change 'axis' or the bottom"),
        ("Bias", "axis: 1", [(2, 3), (3, 4)], "change 'axis' or the bottom"),
        ("Bias", "", [(2, 3), (3,), (3,)], "Bias takes 1 to 2"),
    ],
)
def test_an_impossible_normalization_is_refused_with_a_remedy(type, settings, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        layer(type, settings, *shapes)


# ---- BatchNorm with the scale and bias of NVCaffe --------------------------------------------------------------------


@pytest.mark.parametrize("settings, factor", [("scale_bias: true", 1), ("scale_filler { value: 3 }", 3)])
def test_scale_and_bias_of_nvcaffe_are_blobs_3_and_4(settings, factor):
    it = layer("BatchNorm", f"{settings} bias_filler {{ value: 2 }}", (4, 3))
    assert [(p.shape, p.learned) for p in it.params] == [((3,), False)] * 2 + [((1,), False)] + [((3,), True)] * 2
    values = [np.broadcast_to(fill(p.filler, p.shape, 1), p.shape) for p in it.params]
    assert [set(v.tolist()) for v in values] == [{0.0}, {0.0}, {0.0}, {float(factor)}, {2.0}]
    assert [p.lr_mult for p in it.params] == [0, 0, 0, 1, 1]


def test_it_is_a_batch_norm_and_a_scale_to_the_bit_in_both_phases():
    x = random(8, 3, 5, 5)
    ws = [random(3), np.abs(random(3)) + 1, np.array([1.5]), random(3), random(3)]
    for phase in (TRAIN, TEST):
        it = layer("BatchNorm", "scale_bias: true eps: 0.1", x.shape, phase=phase)
        norm, scale = layer("BatchNorm", "eps: 0.1", x.shape, phase=phase), layer("Scale", "bias_term: true", x.shape)
        run = forward(it, x, ws=ws)
        first = forward(norm, x, ws=ws[:3])
        np.testing.assert_array_equal(run.arrays["y0"], forward(scale, first.arrays["y0"], ws=ws[3:]).arrays["y0"])
        for i in range(3):
            np.testing.assert_array_equal(run.arrays[f"w{i}"], first.arrays[f"w{i}"])


def test_eps_of_nvcaffe_is_at_least_that_of_cudnn_and_averages_do_not_train():
    assert layer("BatchNorm", "scale_bias: true eps: 1e-9", (4, 3)).record.norm.eps == 1e-5
    with pytest.raises(InputError, match="remove use_global_stats, or write a BatchNorm and a Scale layer"):
        layer("BatchNorm", "scale_bias: true use_global_stats: true", (4, 3))
