"""LARGE: layers, as text and shape of a bottom, for kernels of the cpu backend that load and store 16 bits."""

from tests.op_case import Shape

CONV = 'type: "Convolution" convolution_param {{ num_output: {} {} }}'
# Of several blocks, panels, parts and slabs of channels.
LARGE: dict[str, tuple[str, Shape]] = {
    "winograd": (CONV.format(40, "kernel_size: 3 pad: 1"), (4, 36, 17, 15)),
    "small winograd": (CONV.format(33, "kernel_size: 3 pad: 1"), (2, 32, 12, 12)),
    "winograd of groups": (CONV.format(64, "kernel_size: 3 pad: 1 group: 2"), (4, 64, 9, 9)),
    "pixelwise": (CONV.format(530, "kernel_size: 1"), (2, 400, 9, 7)),
    "strided": (CONV.format(70, "kernel_size: 3 pad: 1 stride: 2"), (2, 130, 15, 11)),
    "rows as taps": (CONV.format(24, "kernel_size: 7 pad: 3 stride: 2"), (2, 3, 33, 31)),
    "windows of four channels": (CONV.format(5, "kernel_size: 5 pad: 2"), (2, 4, 13, 11)),
    "groups": (CONV.format(30, "kernel_size: 3 pad: 1 group: 3"), (2, 12, 9, 8)),
    "deconvolution": (CONV.replace("Conv", "Deconv", 1).format(20, "kernel_size: 4 stride: 2"), (2, 34, 7, 9)),
    "max pooling": ('type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }', (2, 70, 13, 12)),
    "relu": ('type: "ReLU"', (2, 70, 31, 17)),
    "batch norm": ('type: "BatchNorm"', (3, 70, 23, 19)),
    "sum": ('type: "Eltwise" bottom: "a" bottom: "b"', (2, 70, 23, 19)),
}
