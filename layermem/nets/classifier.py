"""A net and a solver that classify the images of the user's data set, written by `layermem init`.

    train_val.prototxt    reads the databases of `layermem data folder`
    deploy.prototxt       the same layers after an Input, with probabilities at the end
    solver.prototxt       epochs, batches and learning rates for the number of images

source  lenet: LeCun et al. 1998, as in Caffe's examples/mnist/lenet.prototxt
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from layermem.errors import InputError
from layermem.nets.prototext import MSRA, WEIGHT_AND_BIAS, NetText, Value, Word, filler, solver
from layermem.nets.resnet import cifar_blocks, cifar_layers
from layermem.nets.squeezenet import LAST, squeezenet_layers

XAVIER = filler("xavier")
MAX_BATCH = 64
SCALE = 0.017  # factor of pixels after the mean: about one over their standard deviation
TESTS = 10  # tests in a training
MAX_DISPLAY = 100  # batches between displays, one epoch if that has fewer


@dataclass(frozen=True)
class ImageSet:
    """The data: paths of the databases, numbers of images in them, and properties of an image.

    shape         [C,H,W]                mean_values   of each channel
    mirror        flip training images at random
    """

    train: str
    test: str
    train_count: int
    test_count: int
    shape: tuple[int, int, int]
    classes: int
    mean_values: tuple[float, ...]
    mirror: bool = False

    @property
    def classes_text(self) -> str:
        return f"{self.classes} class{'' if self.classes == 1 else 'es'}"


@dataclass(frozen=True)
class NetFamily:
    """A kind of net: its layers from "data" to the scores, and suitable image sizes and learning rate."""

    name: str
    layers: Callable[[NetText, int], str]  # (net, number of classes) -> blob of the scores
    least: int  # smallest shorter side, in pixels
    largest: int  # largest longer side, in pixels
    base_lr: float
    initial_test: bool = True  # False: before the first batch, its BatchNorm has no statistics, and the loss is NaN


def _lenet(net: NetText, classes: int) -> str:
    x = "data"
    for number, outputs in ((1, 20), (2, 50)):
        x = net.conv(f"conv{number}", x, param=WEIGHT_AND_BIAS, num_output=outputs, kernel_size=5, weight_filler=XAVIER)
        x = net.pool(f"pool{number}", net.relu(f"relu{number}", x), "MAX", kernel_size=2, stride=2)
    x = net.fc("ip1", x, param=WEIGHT_AND_BIAS, num_output=500, weight_filler=XAVIER)
    return net.fc("scores", net.relu("relu3", x), param=WEIGHT_AND_BIAS, num_output=classes, weight_filler=XAVIER)


def _squeezenet(net: NetText, classes: int) -> str:
    x = squeezenet_layers(net, 11)
    x = net.conv("scores_map", x, num_output=classes, kernel_size=1, weight_filler=LAST)
    return net.pool("scores", x, "AVE", global_pooling=True)


def family_of(name: str) -> NetFamily:
    """The family of lenet, squeezenet, or resnetN with N = 6n + 2."""
    if match := re.fullmatch(r"resnet([0-9]{1,4})", name):
        depth = int(match[1])
        cifar_blocks(depth)

        def layers(net: NetText, classes: int) -> str:
            x = cifar_layers(net, depth)
            return net.fc("scores", x, param=WEIGHT_AND_BIAS, num_output=classes, weight_filler=MSRA)

        return NetFamily(f"ResNet-{depth}", layers, 16, 512, 0.05, initial_test=False)
    return {
        "lenet": NetFamily("LeNet", _lenet, 16, 96, 0.01),
        "squeezenet": NetFamily("SqueezeNet 1.1", _squeezenet, 48, 1024, 0.01),
    }[name]


def classifier_files(name: str, images: ImageSet, *, epochs: int, batch: int | None, folder: str) -> dict[str, str]:
    """The three files by name; the solver saves snapshots in `folder`."""
    family = family_of(name)
    _check(name, family, images)
    batch = min(batch or MAX_BATCH, images.train_count)
    test_batch = largest_divisor(images.test_count, MAX_BATCH * 2) if images.test_count else 0
    return {
        "train_val.prototxt": str(_train_val(family, images, batch, test_batch)),
        "deploy.prototxt": str(_deploy(family, images)),
        "solver.prototxt": _solver(family, images, epochs, batch, test_batch, folder),
    }


def _check(name: str, family: NetFamily, images: ImageSet) -> None:
    _, height, width = images.shape
    if min(height, width) < family.least:
        what = f"--net {name} needs images of {family.least}x{family.least} or more, and these are {height}x{width}"
        raise InputError(f"{what}; make the data set with a larger --resize, or use another net")
    if max(height, width) > family.largest:
        what = f"--net {name} is for images up to {family.largest}x{family.largest}, and these are {height}x{width}"
        raise InputError(f"{what}; make the data set with a smaller --resize, or use another net")


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of `number` up to `most`: test batches then contain every image exactly once."""
    return next(size for size in range(min(number, most), 0, -1) if number % size == 0)


def _train_val(family: NetFamily, images: ImageSet, batch: int, test_batch: int) -> NetText:
    net = NetText(f"{family.name} ({images.classes_text})", notes=[f"{family.name} for {images.classes_text}."])
    for phase, source, size in (("TRAIN", images.train, batch), ("TEST", images.test, test_batch)):
        if size:
            fields: dict[str, Value] = {"source": source, "batch_size": size, "backend": Word("LMDB")}
            net.layer(
                "data",
                "Data",
                [],
                ["data", "label"],
                include={"phase": Word(phase)},
                transform_param=_transform(images, phase),
                data_param=fields,
            )
    scores = family.layers(net, images.classes)
    net.accuracy("accuracy", scores)
    if images.classes > 10:
        net.accuracy("accuracy_top5", scores, top_k=5)
    net.loss("loss", scores)
    return net


def _transform(images: ImageSet, phase: str) -> Mapping[str, Value]:
    mirror: dict[str, Value] = {"mirror": True} if images.mirror and phase == "TRAIN" else {}
    return {**mirror, "mean_value": list(images.mean_values), "scale": SCALE}


def _deploy(family: NetFamily, images: ImageSet) -> NetText:
    channels, height, width = images.shape
    colours = "blue, green, red" if channels == 3 else "gray"
    means = " ".join(f"{value:g}" for value in images.mean_values)
    net = NetText(
        f"{family.name} ({images.classes_text})",
        notes=[
            f"Reads {height}x{width} images, {colours}, as (pixel - mean) * {SCALE}, with pixels of 0 to 255,",
            f"and mean {means}.  Its output is the probability of each class of labels.txt.",
        ],
    )
    shape: dict[str, Value] = {"shape": {"dim": [1, channels, height, width]}}
    net.layer("data", "Input", [], "data", input_param=shape)
    scores = family.layers(net, images.classes)
    net.layer("prob", "Softmax", scores, "prob")
    return net


def _solver(family: NetFamily, images: ImageSet, epochs: int, batch: int, test_batch: int, folder: str) -> str:
    epoch = -(-images.train_count // batch)
    every = max(1, epochs // TESTS) * epoch
    tests: dict[str, Value] = {}
    if test_batch:
        tests = {"test_iter": images.test_count // test_batch, "test_interval": every}
        if not family.initial_test:
            tests["test_initialization"] = False
    return solver(
        [f"{epochs} epochs of {epoch} {'batch' if epoch == 1 else 'batches'}; the learning rate falls linearly to 0."],
        net="train_val.prototxt",
        **tests,
        base_lr=family.base_lr,
        lr_policy="poly",
        power=1,
        max_iter=epochs * epoch,
        momentum=0.9,
        weight_decay=0.0005,
        display=min(epoch, MAX_DISPLAY),
        random_seed=1,
        snapshot_prefix=f"{folder}/snapshot",
    )
