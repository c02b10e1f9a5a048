"""Typed op records: what layers emit, fusion rewrites and backends run.  All names below are public."""

from layermem.ops.activation import Kind, Pointwise, PReLU, ReluMask
from layermem.ops.affine_norm import AffineNorm
from layermem.ops.axpy import Axpy
from layermem.ops.base import (
    CARRY,
    FP32,
    ITEMSIZE,
    LARGEST_ZERO,
    MAX_COUNT,
    NARROW,
    OPEN,
    SCALED,
    WHOLE,
    Along,
    Averages,
    BatchSlice,
    EndsInRelu,
    OpRecord,
    ReadsLabels,
    TapRange,
    Tensor,
    Window,
    first_index,
    roles,
)
from layermem.ops.communication import AllGather, Communication, NormOfRows, ReduceScatter, RowSquares
from layermem.ops.convolution import (
    CONV_MOMENTS,
    DGRAD_SUMS_FUSION,
    MASKED_DGRAD,
    MOMENTS_ROWS,
    NORM_OPERANDS,
    Conv,
    ConvNd,
    ConvNdProblem,
    ConvProblem,
    Deconv,
    DeconvNd,
)
from layermem.ops.detection import DetectionEvaluate, DetectionOutput, MultiBoxLoss, Suppression
from layermem.ops.dropout import Dropout
from layermem.ops.eltwise import Eltwise, ResidualGrad
from layermem.ops.fill import Fill
from layermem.ops.filter import Filter
from layermem.ops.gather import BatchReindex, Embed, Gather
from layermem.ops.host import CopyOut, Feed
from layermem.ops.im2col import Im2col
from layermem.ops.images import ByteImages, transformed
from layermem.ops.inner_product import BandRules, InnerProduct, InnerProductUpdate, RowBand
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
from layermem.ops.lrn import LRN
from layermem.ops.mvn import MVN
from layermem.ops.normalization import BatchNorm, BatchNormScale, MovingAverage
from layermem.ops.parameter import Parameter
from layermem.ops.permute import Permute
from layermem.ops.pooling import Pool, StochasticPool
from layermem.ops.prior_box import PriorBox
from layermem.ops.python import Python
from layermem.ops.recurrent import Carry, LstmUnit
from layermem.ops.reduction import ArgMax, Reduction
from layermem.ops.resize import Crop, Interp, Resampling
from layermem.ops.roi_pooling import PsRoiPool, RoiPool
from layermem.ops.scale import Bias, Scale
from layermem.ops.shape import Concat, Partition, Reshape, Silence, Slice, Split, Tile
from layermem.ops.softmax import Accuracy, InfogainLoss, Scores, Softmax, SoftmaxLoss
from layermem.ops.update import ACCUMULATE, JOINED_UPDATES, MAX_JOINED, RULES, GradientNorm, Update
from layermem.ops.upsample import Unpool, Upsample
from layermem.ops.yolo import GridDetections, GridLoss, RegionLoss
