"""Cases for checks of a GPU (tools/gpu), by name: which run first, in brief, and in every tile of matrix products."""

from tests.cases.convolution import conv_case

# They reach a kernel of every module, so that modules that do not load, hang or fail are known early.  The last line
# names ops of tests/backends/cuda/single_ops.py.
FIRST = {
    "ReLU", "PReLU", "Dropout", "DepthwiseConvolution by two", "Convolution, groups of 4", "Convolution of two bottoms",
    "Convolution + residual + ReLU", "Deconvolution of clips with gaps, of two bottoms", "Im2col of clips",
    "InnerProduct in parts", "Pooling MAX 3/2", "ROIPooling 2x3", "Eltwise a + 2 b", "LRN of three", "MVN",
    "BatchNorm by quads", "Scale of C x H", "Normalize of items", "PriorBox", "Interp to 7 x 2", "Embed",
    "LSTMUnit", "Softmax", "EuclideanLoss",
    "update by SGD", "naive products", "sums of ranks", "images in bytes", "delay",
}  # fmt: skip
BRIEF = (
    "Convolution by quads",
    "ReLU",
    "BatchNorm by quads",
    "Pooling MAX 3/2",
    "SoftmaxWithLoss and its softmax",
    "Dropout",
)
BY_WARPGROUPS = ("Convolution by quads", "InnerProduct by quads")  # on GPUs of compute capability 9.0
BY_WIDTH = ("Convolution by quads", "Convolution, wide and odd", "Convolution")  # accesses of 16 bytes; of 4; both
OF_FEW = conv_case(("kernel_size: 3", 8, (2, 3, 9, 7)), "Convolution of few channels")
OF_WORDS = conv_case(("kernel_size: 3", 64, (2, 32, 7, 6)), "Convolution of 32 channels")
