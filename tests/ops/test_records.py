"""Op records: values that compare, hash and name their fused form."""

from dataclasses import FrozenInstanceError, replace

import pytest

from layermem import ops
from layermem.ops import Conv, ConvProblem, Tensor, Window

# 2 images of 6 channels, 9 x 5; 3 x 1 windows with stride 2 x 1; 8 outputs in 2 groups
PROBLEM = ConvProblem(2, 6, 8, Window(9, 3, stride=2, pad=1), Window(5, 1), groups=2)
X = Tensor((2, 6, 9, 5))
NORM = ops.BatchNorm(X, eps=1e-5, fraction=0.999)
SCALE = ops.Scale(X, "w0", (1, 6, 1, 1), (0, 2, 3), "w1")
PRODUCT = ops.InnerProduct(Tensor((2, 6)), Tensor((2, 8)), 2, 6, 8)


def test_a_convolution_problem_has_one_image_its_maps_and_its_filter():
    assert PROBLEM.image.shape == (2, 6, 9, 5)
    assert PROBLEM.maps.shape == (2, 8, 5, 5)
    assert PROBLEM.filter.shape == (8, 3, 3, 1)
    assert PROBLEM.positions == 2 * 5 * 5
    assert PROBLEM.macs == 50 * 8 * 3 * 3


def test_records_are_frozen_values():
    record = Conv(PROBLEM)
    assert record == Conv(PROBLEM) and hash(record) == hash(Conv(PROBLEM))
    with pytest.raises(FrozenInstanceError):
        record.relu = True


@pytest.mark.parametrize(
    "record, fusion",
    [
        (Conv(PROBLEM), None),
        (Conv(PROBLEM, relu=True), "Conv+relu"),
        (Conv(PROBLEM, residual=True), "Conv+residual"),
        (Conv(PROBLEM, residual=True, relu=True), "Conv+residual+relu"),
        (replace(PRODUCT, relu=True), "InnerProduct+relu"),
        (ops.Eltwise("SUM", X, 2, (1.0, 1.0), relu=True), "Eltwise+relu"),
        (NORM, None),
        (ops.BatchNormScale(NORM, SCALE), "BatchNormScale"),
        (ops.BatchNormScale(NORM, SCALE, relu=True), "BatchNormScale"),
        (ops.BatchNormScale(NORM, SCALE, residual=True), "BatchNormScale+residual"),
        (ops.InnerProductUpdate(PRODUCT, ops.Update("SGD", "w", Tensor((8, 6)))), "InnerProduct+update"),
    ],
)
def test_a_record_names_its_fused_form(record, fusion):
    assert record.fusion == fusion


def test_statistics_are_per_channel():
    assert (NORM.channels, NORM.per_channel) == (6, 2 * 9 * 5)


def test_scores_lie_along_one_axis():
    scores = ops.Softmax(X, along=2)
    assert (scores.outer, scores.classes, scores.inner) == (2, 9, 30)
    assert scores.positions.shape == (2, 6, 1, 5)


def test_a_resampled_axis_takes_its_corners_from_the_corners():
    axis = ops.Resampling(offset=1, size=3, out=5)
    assert [axis.tap(i) for i in range(5)] == [(1, 1, 0.0), (1, 2, 0.5), (2, 2, 0.0), (2, 3, 0.5), (3, 3, 0.0)]
    assert ops.Resampling(2, 3, 1).tap(0) == (2, 2, 0.0)


def test_a_concat_of_one_and_a_reshape_in_order_are_views():
    assert ops.Concat(X, (X,), 1, (0,)).view
    assert not ops.Concat(X, (Tensor((2, 3, 9, 5)),) * 2, 1, (0, 3)).view
    assert ops.Reshape(Tensor((2, 6)), Tensor((12,))).view
    assert not ops.Reshape(X, Tensor((2, 270))).view
