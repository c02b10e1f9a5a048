"""Typed op records: what layers emit, fusion rewrites and backends run."""

from layermem.ops.activation import Kind, Pointwise, PReLU, ReluMask
from layermem.ops.affine_norm import AffineNorm
from layermem.ops.axpy import Axpy
from layermem.ops.base import ITEMSIZE, MAX_COUNT, OpRecord, Tensor, Window, roles
from layermem.ops.convolution import Conv, ConvProblem, Deconv
from layermem.ops.dropout import Dropout
from layermem.ops.eltwise import Eltwise, ResidualGrad
from layermem.ops.host import CopyOut, Feed, Fill
from layermem.ops.inner_product import InnerProduct, InnerProductUpdate
from layermem.ops.l2norm import L2Norm
from layermem.ops.loss import (
    ContrastiveLoss,
    EuclideanLoss,
    HingeLoss,
    ItemLoss,
    MultinomialLogisticLoss,
    SigmoidCrossEntropyLoss,
    SmoothL1Loss,
)
from layermem.ops.normalization import LRN, BatchNorm, BatchNormScale, Bias, Scale
from layermem.ops.permute import Permute
from layermem.ops.pooling import Pool
from layermem.ops.prior_box import PriorBox
from layermem.ops.reduction import ArgMax, Reduction
from layermem.ops.resize import Crop, Interp, Resampling
from layermem.ops.roi_pooling import PsRoiPool, RoiPool
from layermem.ops.shape import Concat, Partition, Reshape, Silence, Slice, Split, Tile
from layermem.ops.softmax import Accuracy, Scores, Softmax, SoftmaxLoss
from layermem.ops.update import RULES, GradientNorm, Update
from layermem.ops.upsample import Upsample

__all__ = [
    "ITEMSIZE",
    "LRN",
    "MAX_COUNT",
    "RULES",
    "Accuracy",
    "AffineNorm",
    "ArgMax",
    "Axpy",
    "BatchNorm",
    "BatchNormScale",
    "Bias",
    "Concat",
    "ContrastiveLoss",
    "Conv",
    "ConvProblem",
    "CopyOut",
    "Crop",
    "Deconv",
    "Dropout",
    "Eltwise",
    "EuclideanLoss",
    "Feed",
    "Fill",
    "GradientNorm",
    "HingeLoss",
    "InnerProduct",
    "InnerProductUpdate",
    "Interp",
    "ItemLoss",
    "Kind",
    "L2Norm",
    "MultinomialLogisticLoss",
    "OpRecord",
    "PReLU",
    "Partition",
    "Permute",
    "Pointwise",
    "Pool",
    "PriorBox",
    "PsRoiPool",
    "Reduction",
    "ReluMask",
    "Resampling",
    "Reshape",
    "ResidualGrad",
    "RoiPool",
    "Scale",
    "Scores",
    "SigmoidCrossEntropyLoss",
    "Silence",
    "Slice",
    "SmoothL1Loss",
    "Softmax",
    "SoftmaxLoss",
    "Split",
    "Tensor",
    "Tile",
    "Update",
    "Upsample",
    "Window",
    "roles",
]
