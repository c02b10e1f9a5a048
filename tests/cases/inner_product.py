"""Sizes of products of an InnerProduct, for tests of single kernels; its layers are cases of convolution.py."""

# Rows of x, outputs, columns of x, on the cpu: one element; fewer rows, outputs or columns than a block, and more with
# a rest; a long sum; many outputs of one row; sums over many rows.
PRODUCTS = [
    (1, 1, 1), (1, 10, 36), (8, 36, 2500), (7, 100, 13), (64, 30, 1030), (100, 130, 300), (13, 257, 4097), (1, 130, 36),
    (200, 25, 1100),
]  # fmt: skip
# Settings and a bottom, for checks of layers: weights that are stored as plain matrices.
PLAIN_WEIGHTS = [("", (2, 6, 1, 1)), ("transpose: true", (2, 3, 2, 1)), ("", (2, 6))]
# Rows and columns that are added up: few, some, in parts of many and of few columns; on cuda, channels of large nets.
COLUMN_SUMS = [(1, 3), (7, 20), (5000, 36), (70000, 3)]
WIDE_SUMS = [(128 * 56 * 56, 256), (128 * 112 * 112, 64), (64 * 224 * 224, 64), (128 * 7 * 7, 2048), (10_000_000, 1)]
# Rows of x, columns of x, outputs, on cuda: more than one band of 128 rows of weights, by fours, with a pitch that is
# no multiple of four, and by ones.
BANDS = [(5, 12, 260), (5, 12, 131), (3, 7, 129)]
BAND_IN_PARTS = (600, 8, 70)  # its gradient is summed in parts
IN_PARTS = [(512, 24), (24, 512)]  # columns of x and outputs: sums in parts of forward, and of the data gradient
