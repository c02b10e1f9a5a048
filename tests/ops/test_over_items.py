"""Steps of ops along the items of the batch and along the rows of weights; ops that mix items."""

from dataclasses import replace

import pytest

from layermem import ops
from layermem.ops import Along, BatchSlice, ConvNdProblem, ConvProblem, Tensor, Window

X, ROWS, SCALAR = Tensor((4, 6, 9, 5)), Tensor((4, 7)), Tensor(())
LABEL = Tensor((4,))
PROBLEM = ConvProblem(4, 6, 8, Window(9, 3), Window(5, 1))
VOLUMES = ConvNdProblem(4, 6, 8, (Window(3, 1),), Window(9, 3), Window(5, 1))
PRODUCT = ops.InnerProduct(Tensor((4, 6)), Tensor((4, 8)), 4, 6, 8)
NORM = ops.BatchNorm(X, eps=1e-5, fraction=0.999)
POOL = ops.Pool("MAX", X, X, Window(9, 1), Window(5, 1))
PER_CHANNEL = {"view": (1, 6, 1, 1), "summed": (0, 2, 3)}
NOTHING: frozenset[str] = frozenset()
WEIGHTS, LOSS = frozenset({"dw0", "dw1"}), frozenset({"y0"})

SUMS = [
    (ops.Conv(PROBLEM), "forward", NOTHING),
    (ops.Conv(PROBLEM), "wgrad", WEIGHTS),
    (ops.Conv(PROBLEM), "dgrad", NOTHING),
    (ops.Deconv(PROBLEM), "wgrad", WEIGHTS),
    (ops.ConvNd(VOLUMES), "forward", NOTHING),
    (ops.ConvNd(VOLUMES), "wgrad", WEIGHTS),
    (ops.DeconvNd(VOLUMES), "wgrad", WEIGHTS),
    (PRODUCT, "forward", NOTHING),
    (PRODUCT, "wgrad", WEIGHTS),
    (ops.Embed(10, 3, LABEL, Tensor((4, 3)), True), "wgrad", WEIGHTS),
    (ops.PReLU(X, False), "forward", NOTHING),
    (ops.PReLU(X, False), "backward", WEIGHTS),
    (ops.L2Norm(X, True, True, 1e-5), "backward", WEIGHTS),
    (ops.Scale(X, "w0", **PER_CHANNEL, bias="w1"), "backward", WEIGHTS),
    (ops.Scale(X, "w0", **PER_CHANNEL), "forward", NOTHING),
    (ops.Scale(X, "x1", (4, 6, 1, 1), (2, 3)), "backward", NOTHING),  # a factor for each item
    (ops.Bias(X, "w0", **PER_CHANNEL), "backward", frozenset({"dw0"})),
    (ops.SoftmaxLoss(ROWS, 1, LABEL, None, 4), "forward", LOSS),
    (ops.SoftmaxLoss(ROWS, 1, LABEL, None, 4), "backward", NOTHING),
    (ops.InfogainLoss(ROWS, 1, LABEL, None, 4), "forward", LOSS),
    (ops.EuclideanLoss(ROWS, ROWS, 4), "forward", LOSS),
    (ops.SmoothL1Loss(ROWS, 4, 1.0, False, False), "forward", LOSS),
    (ops.SigmoidCrossEntropyLoss(ROWS, ROWS, None, 4), "forward", LOSS),
    (ops.HingeLoss(ROWS, False), "forward", LOSS),
    (ops.MultinomialLogisticLoss(ROWS), "backward", NOTHING),
    (ops.ContrastiveLoss(ROWS, ROWS, 4, 1.0, False), "forward", LOSS),
    (ops.Fill(0.0), "fill", NOTHING),
    (ops.Dropout(X, 1, 2.0, 3), "forward", NOTHING),
    (ops.Eltwise("SUM", X, 2, (1.0, 1.0)), "backward", NOTHING),
    (ops.LRN(X, True, 5, 1.0, 0.75, 1.0), "backward", NOTHING),
    (ops.MVN(X, True, True, 1e-9), "forward", NOTHING),  # its means are within an item
    (POOL, "backward", NOTHING),
    (ops.Concat(X, (X,), 1, (0,)), "forward", NOTHING),
    (ops.Softmax(X, 1), "forward", NOTHING),
    (ops.Reduction("SUM", X, LABEL, 1, 1.0), "forward", NOTHING),
    (ops.ArgMax(X, LABEL, None, 1, False), "forward", NOTHING),  # the places of each item
    (ops.Reshape(X, Tensor((4, 270))), "forward", NOTHING),
    (ops.Permute(X, X, X.shape, (0, 2, 3, 1)), "forward", NOTHING),
    (ops.Permute(X, Tensor((24, 9, 1, 5)), X.shape, (0, 1, 2, 3)), "forward", NOTHING),  # images within items
    (ops.Crop(X, X, (0, 0, 1, 1)), "forward", NOTHING),
    (ops.AffineNorm(X, 1e-5, None, True), "backward", NOTHING),  # its statistics are parameters
    (replace(NORM, global_stats=True), "forward", NOTHING),
    (NORM, "statistics", frozenset({"mean", "inv_std", "w0", "w1", "w2"})),
    (NORM, "recompute", NOTHING),
    (NORM, "gradient_sums", frozenset({"sums", "dw3", "dw4"})),
    (NORM, "input_gradient", NOTHING),
]
MIXES = [
    (NORM, "forward"),
    (ops.BatchNormScale(NORM, ops.Scale(X, "w3", **PER_CHANNEL, bias="w4")), "forward"),
    (ops.AffineNorm(X, 1e-5, None), "backward"),
    (ops.Accuracy(ROWS, 1, LABEL, None, 1), "forward"),
    (ops.Concat(X, (X,), 0, (0,)), "forward"),
    (ops.Softmax(ROWS, 0), "forward"),
    (ops.SoftmaxLoss(ROWS, 0, LABEL, None, 4), "forward"),
    (ops.Reduction("SUM", X, SCALAR, 0, 1.0), "backward"),
    (ops.ArgMax(X, X, 0, 1, False), "forward"),
    (ops.Reshape(X, Tensor((24, 45))), "forward"),
    (ops.Permute(X, X, X.shape, (1, 0, 2, 3)), "forward"),
    (ops.Crop(X, Tensor((2, 6, 9, 5)), (1, 0, 0, 0)), "forward"),
    (ops.Tile(ROWS, Tensor((8, 7)), 0, 2), "forward"),
    (ops.Scale(X, "x1", **PER_CHANNEL), "forward"),  # one factor for all items
    (ops.BatchReindex.of(X, LABEL), "forward"),
    (ops.Parameter(X), "wgrad"),
    (ops.Carry(X), "store"),
    (ops.LstmUnit(4, 6), "forward"),
    (ops.Python((X,), (X,)), "forward"),
    (ops.Filter(1), "forward"),
]


@pytest.mark.parametrize(("record", "step", "sums"), SUMS, ids=lambda value: getattr(value, "family", None))
def test_an_op_says_which_of_its_results_sum_over_the_batch(record, step, sums):
    along = record.over_items(step)
    assert along.sums == sums and not along.refusal


@pytest.mark.parametrize(("record", "step"), MIXES, ids=lambda value: getattr(value, "family", None))
def test_an_op_says_that_it_mixes_items(record, step):
    assert record.over_items(step).refusal == "mixes the items of a batch, and cannot be sliced"


CLIPS, FRAMES = Tensor((4, 6, 3, 9, 5)), Tensor((12, 6, 9, 5))
APART = [
    (ops.Permute(CLIPS, FRAMES, CLIPS.shape, (2, 0, 1, 3, 4)), {"y0", "dy0"}),
    (ops.Permute(FRAMES, CLIPS, (3, 4, 6, 9, 5), (1, 2, 0, 3, 4)), {"x0", "dx0"}),
    (ops.Permute(CLIPS, FRAMES, CLIPS.shape, (0, 2, 1, 3, 4)), set()),  # the frames of an item lie together
    (ops.Im2col(FRAMES, FRAMES, Window(9, 1), Window(5, 1), (Window(3, 1),)), {"x0", "y0", "dx0", "dy0"}),
    (ops.ConvNd(VOLUMES, pairs=2), {f"{stem}{i}" for stem in ("x", "y", "dx", "dy") for i in (0, 1)}),
    (ops.DeconvNd(VOLUMES), {"x0", "y0", "dx0", "dy0"}),
    (ops.Conv(PROBLEM), set()),
]


@pytest.mark.parametrize(("record", "roles"), APART, ids=lambda value: getattr(value, "family", None))
def test_items_lie_apart_where_blobs_hold_frame_after_frame(record, roles):
    along = record.over_items("forward")
    assert along.scattered == roles and not along.refusal


def test_a_slice_has_its_share_of_a_blob_and_of_its_bytes():
    batch_slice = BatchSlice(2, 1, 4)
    assert batch_slice.rows_of(X).shape == (1, 6, 9, 5) and batch_slice.rows_of(Tensor((8, 3))).shape == (2, 3)
    assert batch_slice.span(400) == (200, 300) and batch_slice.fraction_of(400) == 100
    assert (batch_slice.is_first, batch_slice.is_last, BatchSlice(2, 2, 4).is_last) == (False, False, True)
    assert str(batch_slice) == "items 2..2 of 4"


@pytest.mark.parametrize(
    ("whole", "small", "field"),
    [
        (ops.EuclideanLoss(ROWS, ROWS, 4), ops.EuclideanLoss(ROWS, ROWS, 2), "items"),
        (ops.SmoothL1Loss(ROWS, 4, 1.0, True, True), ops.SmoothL1Loss(ROWS, 2, 1.0, True, True), "items"),
        (ops.SoftmaxLoss(ROWS, 1, LABEL, None, 4), ops.SoftmaxLoss(ROWS, 1, LABEL, None, 2), "normalizer"),
        (ops.InfogainLoss(ROWS, 1, LABEL, None, 4), ops.InfogainLoss(ROWS, 1, LABEL, None, 2), "normalizer"),
        (
            ops.SigmoidCrossEntropyLoss(ROWS, ROWS, None, 28),
            ops.SigmoidCrossEntropyLoss(ROWS, ROWS, None, 14),
            "normalizer",
        ),
    ],
    ids=lambda value: getattr(value, "family", None),
)
def test_a_slice_of_a_loss_is_divided_by_what_the_whole_loss_is_divided_by(whole, small, field):
    batch_slice = BatchSlice(2, 2, 4)
    assert small.of_slice(batch_slice, whole) == replace(
        small, batch_slice=batch_slice, **{field: getattr(whole, field)}
    )


def test_a_loss_that_is_divided_by_the_labels_that_count_reads_all_of_them():
    assert ops.SoftmaxLoss(ROWS, 1, LABEL, None, None).over_items("backward").counted == ("x1",)
    assert ops.SoftmaxLoss(ROWS, 1, LABEL, None, 4).over_items("forward").counted == ()
    assert ops.Conv(PROBLEM).over_items("wgrad").counted == ()


def test_a_slice_of_a_batch_norm_counts_the_elements_of_the_whole_batch():
    batch_slice = BatchSlice(2, 2, 8)
    assert replace(NORM, batch_slice=batch_slice).per_channel == 4 * NORM.per_channel
    scaled = ops.BatchNormScale(NORM, ops.Scale(X, "w3", **PER_CHANNEL, bias="w4"))
    assert (
        scaled.of_slice(batch_slice, scaled).norm.batch_slice
        == scaled.of_slice(batch_slice, scaled).batch_slice
        == batch_slice
    )


def test_the_passes_of_a_batch_norm_read_what_all_items_sum():
    assert NORM.over_items("recompute").whole == {"mean", "inv_std"}
    assert NORM.over_items("input_gradient").whole == {"mean", "inv_std", "sums"}


# -- rows of weights ---------------------------------------------------------------------------------------------------


def test_the_data_gradient_of_a_product_sums_over_the_rows_of_its_weights():
    assert PRODUCT.over_rows("dgrad") == Along(sums=frozenset({"dx0"}), whole=frozenset({"dy0"}))
    assert not PRODUCT.over_rows("wgrad").sums and "dw0" not in PRODUCT.over_rows("wgrad").whole


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (replace(PRODUCT, by_rows=False), "transposed weights"),
        (replace(PRODUCT, relu=True), "an epilogue"),
        (ops.GradientNorm(), "needs all rows at once"),
    ],
)
def test_records_that_need_all_rows_say_why(record, why):
    assert why in record.over_rows("forward").refusal
