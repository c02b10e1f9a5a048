"""NET_LAYERS: convolutions of known nets, by the net and the name of the layer, each for one image."""

from __future__ import annotations

from dataclasses import replace

from layermem.ops import ConvProblem
from tests.cases.fused import problem_of


def depthwise_problem(images: int, channels: int, size: int, kernel: int = 3, stride: int = 1) -> ConvProblem:
    return problem_of(images, channels, channels, size, kernel, stride, groups=channels)


NET_LAYERS: dict[str, ConvProblem] = {
    "AlexNet conv1": problem_of(1, 3, 96, 227, 11, 4, pad=0),
    "VGG-16 conv1_1": problem_of(1, 3, 64, 224),
    "VGG-16 conv2_2": problem_of(1, 128, 128, 112),
    "VGG-16 conv3_1": problem_of(1, 128, 256, 56),
    "VGG-16 conv3_2": problem_of(1, 256, 256, 56),
    "VGG-16 conv4_2": problem_of(1, 512, 512, 28),
    "VGG-16 conv5_1": problem_of(1, 512, 512, 14),
    "VGG-16 fc8": problem_of(1, 4096, 1000, 1, 1),
    "GoogLeNet inception_4d/3x3": problem_of(1, 144, 288, 14),
    "GoogLeNet inception_4e/3x3": problem_of(1, 160, 320, 14),
    "GoogLeNet inception_5b/3x3": problem_of(1, 192, 384, 7),
    "ResNet-50 conv1": problem_of(1, 3, 64, 224, 7, 2),
    "ResNet-50 res2a_branch2b": problem_of(1, 64, 64, 56),
    "ResNet-50 res2a_branch2c": problem_of(1, 64, 256, 56, 1),
    "ResNet-50 res2b_branch2a": problem_of(1, 256, 64, 56, 1),
    "ResNet-50 res3b_branch2a": problem_of(1, 512, 128, 28, 1),
    "ResNet-50 res3b_branch2b": problem_of(1, 128, 128, 28),
    "ResNet-50 res4a_branch2c": problem_of(1, 256, 1024, 14, 1),
    "ResNet-50 res4b_branch2a": problem_of(1, 1024, 256, 14, 1),
    "ResNet-50 res5b_branch2a": problem_of(1, 2048, 512, 7, 1),
    "ResNet-50 res5b_branch2b": problem_of(1, 512, 512, 7),
    "MobileNet conv1": problem_of(1, 3, 32, 224, stride=2),
    "MobileNet conv2_1/dw": depthwise_problem(1, 32, 112),
    "MobileNet conv3_1/dw": depthwise_problem(1, 128, 56),
    "MobileNet conv5_1/dw": depthwise_problem(1, 512, 14),
    "MobileNet conv6/dw": depthwise_problem(1, 1024, 7),
}


def net_layer(name: str, images: int) -> ConvProblem:
    """The convolution of NET_LAYERS with this name, for a batch of `images`."""
    return replace(NET_LAYERS[name], n=images)
