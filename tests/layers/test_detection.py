"""Layers of detectors: matches, losses and gradients by hand, and refusals."""

import math

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.read import read_net_text
from tests.layers.harness import backward, forward, layer_of

PRIORS = [[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1], [0, 0, 0.5, 0.25], [0.6, 0, 1, 0.4]]
VARIANCES = [0.1, 0.1, 0.2, 0.2]
SCORES = [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 2.0]]


def row(item, label, box, difficult=0):
    return [item, label, 0, *box, difficult]


def multibox(settings, truth, locations=None, scores=SCORES, *, priors=PRIORS, classes=2, items=1, each=1):
    """The run of a MultiBoxLoss over `items` items with the same scores and, unless given, locations of zeros."""
    count = len(priors)
    layer = layer_of(
        f'type: "MultiBoxLoss" multibox_loss_param {{ num_classes: {classes} {settings}',
        (items, count * each * 4),
        (items, count * classes),
        (1, 2, count * 4),
        (1, 1, len(truth), 8),
    )
    zeros = np.zeros((items, count * each * 4))
    table = np.array([priors, [VARIANCES] * count], float)
    return forward(layer, zeros if locations is None else locations, np.array([scores] * items), table, np.array(truth))


def matches(run):
    return run.arrays["match"].tolist()


def test_priors_match_true_boxes_by_overlap():
    truth = [row(0, 1, (0, 0, 0.5, 0.5))]  # overlaps of the priors: 1, 0, 1/2, 0
    assert matches(multibox("mining_type: NONE }", truth)) == [[[0, -1, 0, -1]]]
    assert matches(multibox("mining_type: NONE match_type: BIPARTITE }", truth)) == [[[0, -1, -1, -1]]]
    assert matches(multibox("mining_type: NONE overlap_threshold: 0.6 }", truth)) == [[[0, -1, -1, -1]]]


def test_the_best_pair_goes_first_and_a_box_left_over_takes_the_best_free_prior():
    truth = [
        row(0, 1, (0, 0, 0.5, 0.4)),
        row(0, 1, (0, 0, 0.5, 0.5)),
    ]  # with prior 0: 4/5 and 1; with prior 2: 5/8, 1/2
    assert matches(multibox("mining_type: NONE match_type: BIPARTITE }", truth)) == [[[1, -1, 0, -1]]]


def test_rows_without_an_item_never_match_and_difficult_boxes_only_if_the_net_allows_it():
    truth = [row(-1, 9, (0, 0, 0.5, 0.5)), row(1, 1, (0.5, 0.5, 1, 1), difficult=1)]
    settings = "mining_type: NONE match_type: BIPARTITE"
    assert matches(multibox(f"{settings} }}", truth, items=2)) == [[[-1] * 4], [[-1, 1, -1, -1]]]
    assert matches(multibox(f"{settings} use_difficult_gt: false }}", truth, items=2)) == [[[-1] * 4]] * 2


def test_the_negatives_of_the_largest_loss_count_as_many_times_the_matches():
    truth = [row(0, 1, (0.5, 0.5, 1, 1))]
    run = multibox("neg_pos_ratio: 2 code_type: CENTER_SIZE }", truth)
    assert matches(run) == [[[-3, 1 - 1, -1, -3]]]  # prior 3 has a score for class 1; of priors 0 and 2 the first
    positive = math.log(1 + math.e)  # scores 1, 0 of a box of class 1
    background = math.log(1 + math.exp(2)) + math.log(2)  # scores 0, 2 and 0, 0
    assert run.arrays["y0"] == pytest.approx(positive + background)  # the location of zeros is the prior: its code
    backward(run, ("dx0", "dx1"), np.array(2.0))
    share = math.e / (1 + math.e)
    expected = [[-1, 1], [2 * share, -2 * share], [0, 0], [-2 / (1 + math.exp(-2)), 2 / (1 + math.exp(-2))]]
    np.testing.assert_allclose(run.arrays["dx1"].reshape(4, 2), expected)
    assert not run.arrays["dx0"].any()


@pytest.mark.parametrize(
    "code, box, codes",
    [
        ("CORNER", (0, 0, 0.5, 0.4), (0, 0, 0, -0.5)),
        ("CENTER_SIZE", (0, 0, 0.5, 0.4), (0, -1, 0, math.log(0.8) / 0.2)),
        ("CORNER_SIZE", (0, 0, 0.5, 0.4), (0, 0, 0, -1)),
    ],
)
def test_the_loss_of_locations_is_smooth_l1_of_the_difference_to_the_code(code, box, codes):
    settings = f"mining_type: NONE match_type: BIPARTITE code_type: {code} loc_weight: 3 }}"
    run = multibox(f"{settings} propagate_down: [true, false, false, false]", [row(0, 1, box)])
    each = [c * c / 2 if abs(c) < 1 else abs(c) - 0.5 for c in codes]
    assert run.arrays["y0"] == pytest.approx(3 * sum(each))
    backward(run, ("dx0", "dx1"), np.array(1.0))
    np.testing.assert_allclose(run.arrays["dx0"].reshape(4, 4)[0], [-3 * np.clip(c, -1, 1) for c in codes], atol=1e-12)
    assert not run.arrays["dx0"].reshape(4, 4)[1:].any() and not run.arrays["dx1"].any()


def test_hard_examples_are_the_priors_of_the_largest_loss_and_other_matches_are_dropped():
    truth = [row(0, 1, (0, 0, 0.5, 0.5))]  # matches priors 0 and 2
    far = np.zeros((1, 16))
    far[0, 8] = 5  # the location of prior 2 is far off
    run = multibox("mining_type: HARD_EXAMPLE sample_size: 2 }", truth, far)
    assert matches(run) == [[[-1, -1, 0, -3]]]


def test_suppression_leaves_one_of_the_candidates_that_overlap():
    truth = [row(0, 1, (0.5, 0.5, 1, 1))]
    settings = "neg_overlap: 1 neg_pos_ratio: 3 use_prior_for_nms: true nms_param { nms_threshold: 0.4 top_k: 9 } }"
    assert matches(multibox(settings, truth)) == [[[-3, 0, -1, -3]]]  # prior 2 overlaps prior 0 by 1/2


@pytest.mark.parametrize("mode, divisor", [("VALID", 2), ("BATCH_SIZE", 2), ("FULL", 8), ("NONE", 1)])
def test_the_loss_is_divided_by_matches_items_or_priors(mode, divisor):
    truth = [row(0, 1, (0, 0, 0.5, 0.5)), row(1, 1, (0.5, 0.5, 1, 1))]
    settings = "mining_type: NONE match_type: BIPARTITE"
    run = multibox(f"{settings} }} loss_param {{ normalization: {mode} }}", truth, items=2, scores=[[0, 0]] * 4)
    assert run.arrays["y0"] == pytest.approx(8 * math.log(2) / divisor)


def test_without_any_match_the_loss_of_mined_priors_is_zero():
    run = multibox("}", [row(-1, -1, (0, 0, 0, 0))])
    backward(run, ("dx0", "dx1"), np.array(1.0))
    assert run.arrays["y0"] == 0 and not run.arrays["dx1"].any()


@pytest.mark.parametrize(
    "bad, words",
    [
        (row(1, 1, (0, 0, 1, 1)), "reads a true box of item 1 from 0, 0 to 1, 1, but has 1 items: 0 to 0, or -1 for"),
        (row(0, 2, (0, 0, 1, 1)), "reads a true box of label 2, but has 2 classes: 0 to 1 without the background, 0"),
        (row(0, 0, (0, 0, 1, 1)), "reads a true box of label 0"),
        (row(0, 1, (0, 0, 1, math.inf)), "reads a true box of item 0 from 0, 0 to 1, inf"),
    ],
)
def test_a_true_box_of_no_item_or_class_is_refused(bad, words):
    with pytest.raises(InputError, match=words):
        multibox("}", [bad])


@pytest.mark.parametrize(
    "settings, words",
    [
        ("share_location: false", "mines negatives without share_location"),
        ("background_label_id: 2", "needs one from 0 to 1"),
        ("do_neg_mining: false mining_type: MAX_NEGATIVE", "contradict each other"),
        ("map_object_to_agnostic: true background_label_id: 1", "write 2 and 0"),
        ("mining_type: HARD_EXAMPLE sample_size: 0", "sample_size 0"),
        ("nms_param { nms_threshold: 0.4 }", "give its top_k"),
        ("neg_overlap: -1", "neg_overlap -1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        multibox(settings + " }", [row(0, 1, (0, 0, 1, 1))], each=2 if "share" in settings else 1)


def test_shapes_that_do_not_go_together_are_refused():
    shapes = [(2, 16), (2, 8), (1, 2, 16), (1, 1, 3, 8)]
    for i, shape, words in (
        (0, (2, 15), "give 16 numbers"),
        (1, (3, 8), "make them equal"),
        (2, (1, 16), "priors"),
        (3, (3, 7), "true boxes"),
    ):
        with pytest.raises(InputError, match=words):
            layer_of(
                'type: "MultiBoxLoss" multibox_loss_param { num_classes: 2 }', *shapes[:i], shape, *shapes[i + 1 :]
            )


def test_a_device_without_a_kernel_refuses_the_layer_by_name_before_anything_runs():
    shapes = {"loc": (2, 16), "conf": (2, 8), "priors": (1, 2, 16), "truth": (1, 1, 3, 8)}
    inputs = "".join(
        f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ '
        + " ".join(f"dim: {d}" for d in shape)
        + " } } }\n"
        for name, shape in shapes.items()
    )
    loss = 'layer { name: "loss" type: "MultiBoxLoss" bottom: "loc" bottom: "conf" bottom: "priors" bottom: "truth" '
    net = Net(read_net_text(inputs + loss + 'top: "loss" multibox_loss_param { num_classes: 2 } }'), 0)
    cpu, cuda = get_device("cpu"), get_device("cuda")
    net.check_runnable(cpu.name, cpu.implements)
    with pytest.raises(InputError, match=r":5: layer 'loss' has type 'MultiBoxLoss', for which device cuda has no"):
        net.check_runnable(cuda.name, cuda.implements)


# -- DetectionOutput ---------------------------------------------------------------------------------------------------

SHOWN = [[0.1, 0.9], [0.4, 0.6], [0.2, 0.8], [0.7, 0.3]]  # of background and class 1; priors 0 and 2 overlap by 1/2


def detected(settings, scores=SHOWN, *, classes=2, items=1, locations=None):
    count = len(PRIORS)
    layer = layer_of(
        f'type: "DetectionOutput" detection_output_param {{ num_classes: {classes} {settings} }}',
        (items, count * 4),
        (items, count * classes),
        (1, 2, count * 4),
    )
    zeros = np.zeros((items, count * 4))
    table = np.array([PRIORS, [VARIANCES] * count], float)
    return forward(layer, zeros if locations is None else locations, np.array([scores] * items), table).arrays["y0"][
        0, 0
    ]


def test_the_images_on_which_the_fork_draws_are_not_read():
    layer = layer_of(
        'type: "DetectionOutput" detection_output_param { num_classes: 2 }', (1, 16), (1, 8), (1, 2, 16), (1, 3, 9, 9)
    )
    assert layer.forward().reads == ("x0", "x1", "x2") and layer.tops[0].shape == (1, 1, 4, 7)


def test_boxes_above_the_threshold_come_by_score_without_those_that_a_better_one_overlaps():
    rows = detected("confidence_threshold: 0.35 nms_param { nms_threshold: 0.45 }")
    assert rows.shape == (4, 7)
    np.testing.assert_allclose(rows[0], [0, 1, 0.9, 0, 0, 0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(rows[1], [0, 1, 0.6, 0.5, 0.5, 1, 1], rtol=1e-6)
    assert (rows[2:] == -1).all()  # unused
    rows = detected("nms_param { nms_threshold: 0.5 top_k: 2 }")
    np.testing.assert_allclose(rows[:, 2], [0.9, 0.8], rtol=1e-6)  # an overlap of the threshold stays


def test_an_item_keeps_its_best_boxes_of_all_classes_in_as_many_rows_as_planned():
    scores = [[0.1, 0.9, 0.2], [0.1, 0.3, 0.7], [0, 0, 0], [0.1, 0.6, 0.5]]
    rows = detected("keep_top_k: 3 confidence_threshold: 0.1", scores, classes=3, items=2)
    assert rows.shape == (6, 7)
    np.testing.assert_allclose(
        rows[:, :3], np.array([[n, *row] for n in (0, 1) for row in ((1, 0.9), (1, 0.6), (2, 0.7))]), rtol=1e-6
    )


def test_eta_lowers_a_threshold_above_a_half_after_each_box():
    assert (detected("nms_param { nms_threshold: 0.6 }")[:, 0] == 0).all()
    assert (detected("nms_param { nms_threshold: 0.6 eta: 0.8 }")[:, 0] == -1).sum() == 1


def test_locations_move_the_boxes_by_their_code():
    locations = np.zeros((1, 16))
    locations[0, :4] = 1, -1, math.log(2) / 0.2, 0
    settings = "code_type: CENTER_SIZE keep_top_k: 1"
    np.testing.assert_allclose(detected(settings, locations=locations)[0, 3:], [-0.2, -0.05, 0.8, 0.45], atol=1e-6)
    rows = detected(f"{settings} variance_encoded_in_target: true", locations=np.eye(1, 16) / 4)
    np.testing.assert_allclose(rows[0, 3:], [0.125, 0, 0.625, 0.5], atol=1e-6)


def test_clipped_boxes_end_at_the_borders_before_they_are_compared():
    locations = np.zeros((1, 16))
    locations[0, :4] = -1, -1, 0, 0  # at 0.1 above and left of the image
    settings = "code_type: CENTER_SIZE nms_param { nms_threshold: 0.42 }"
    free, clipped = (detected(f"{settings} clip: {on}", locations=locations) for on in ("false", "true"))
    assert (free[0, 3:5] < 0).all() and (clipped[0, 3:5] == 0).all()
    np.testing.assert_array_equal(free[0, 5:], clipped[0, 5:])
    assert ((clipped[:, 0] == -1) | ((clipped[:, 3:] >= 0) & (clipped[:, 3:] <= 1)).all(axis=1)).all()


def test_settings_that_keep_no_box_are_refused():
    for settings in (
        "keep_top_k: 0",
        "nms_param { top_k: 0 }",
        "nms_param { eta: 0 }",
        "nms_param { nms_threshold: -1 }",
    ):
        with pytest.raises(InputError, match=r"keeps no box|has eta 0|nms_threshold -1"):
            detected(settings)


# -- DetectionEvaluate -------------------------------------------------------------------------------------------------

TRUE = [
    row(0, 1, (0, 0, 0.5, 0.5)),
    row(0, 2, (0.5, 0.5, 1, 1)),
    row(1, 1, (0, 0, 1, 1), difficult=1),
    row(-1, 0, (0,) * 4),
]
FOUND = [
    (0, 1, 0.6, 0, 0, 0.5, 0.4),
    (0, 1, 0.9, 0, 0, 0.5, 0.5),
    (0, 2, 0.8, 0, 0, 0.5, 0.5),
    (1, 1, 0.7, 0, 0, 1, 0.9),
    (-1,) * 7,
    (1, 2, 0.3, 0, 0, 1, 1),
]


def evaluated(settings=""):
    layer = layer_of(
        f'type: "DetectionEvaluate" detection_evaluate_param {{ num_classes: 3 {settings} }}',
        (1, 1, 6, 7),
        (1, 1, 4, 8),
    )
    return forward(layer, np.array(FOUND), np.array(TRUE)).arrays["y0"][0, 0].round(3).tolist()


def test_the_first_detection_of_a_true_box_is_right_and_the_others_are_wrong():
    assert evaluated() == [
        [-1, 1, 2, -1, -1],
        [-1, 2, 1, -1, -1],
        [0, 1, 0.9, 1, 0],
        [0, 1, 0.6, 0, 1],
        [0, 2, 0.8, 0, 1],
        [1, 1, 0.7, 1, 0],
        [1, 2, 0.3, 0, 1],
        [-1] * 5,
    ]


def test_difficult_boxes_and_their_detections_need_not_count():
    rows = evaluated("evaluate_difficult_gt: false overlap_threshold: 0.85")
    assert rows[:2] == [[-1, 1, 1, -1, -1], [-1, 2, 1, -1, -1]] and [1, 1, 0.7, 0, 0] in rows


def in_pixels(sizes, found, true):
    layer = layer_of(
        'type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3 }',
        (1, 1, len(found), 7),
        (1, 1, len(true), 8),
        (len(sizes), 6),
    )
    return forward(layer, np.array(found), np.array(true), np.array(sizes)).arrays["y0"][0, 0, 2:].tolist()


def test_with_sizes_boxes_are_compared_in_pixels_both_of_whose_ends_count():
    """Boxes of 2 x 5 and 4 x 5 pixels of an image of 8 x 4, with both ends included: intersection over union 10 /
    20."""
    found, true = [(0, 1, 0.5, 0, 0, 1 / 8, 1)], [row(0, 1, (0, 0, 3 / 8, 1))]
    whole = (0, 0, 1, 1)
    assert in_pixels([(*whole, 8, 4)], found, true) == [[0, 1, 0.5, 1, 0]]  # in fractions it is 1 / 3
    assert in_pixels([(*whole, 16, 4)], found, true) == [[0, 1, 0.5, 0, 1]]  # 3 x 5 of 7 x 5
    padded = [(0, 1, 0.5, 0, 0.25, 1 / 8, 0.8)], [row(0, 1, (0, 0.25, 3 / 8, 0.75))]
    assert in_pixels([(0, 0.25, 1, 0.75, 8, 4)], *padded) == [[0, 1, 0.5, 1, 0]]  # clipped to the image
    assert in_pixels([(*whole, 8, 4)] * 2, [(1, 1, 0.5, *whole)], [row(0, 1, whole)]) == [[1, 1, 0.5, 0, 1]]
    with pytest.raises(InputError, match="reads a detection outside of its 1 items"):
        in_pixels([(*whole, 8, 4)], [(1, 1, 0.5, *whole)], true)


def test_a_detection_of_no_class_is_refused():
    layer = layer_of(
        'type: "DetectionEvaluate" detection_evaluate_param { num_classes: 1 }', (1, 1, 6, 7), (1, 1, 4, 8)
    )
    with pytest.raises(InputError, match=r"reads a detection of label 1 .*, but has 1 classes: 0 to 0 without"):
        forward(layer, np.array(FOUND), np.array(TRUE))
