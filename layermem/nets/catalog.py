"""Generated nets by name: "resnet50", "vgg16", "densenet161", "googlenet", ..."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from layermem.errors import InputError
from layermem.nets import (
    alexnet,
    autoencoder,
    densenet,
    faster_rcnn,
    googlenet,
    inception,
    lstm_lm,
    mobilenet,
    pspnet,
    resnet,
    resnext,
    segnet,
    siamese,
    squeezenet,
    ssd,
    unet,
    vgg,
    wrn,
)
from layermem.nets.prototext import NetFiles

NETS: dict[str, Callable[[], NetFiles]] = {
    "alexnet": partial(alexnet.net_files, "alexnet"),
    "autoencoder": autoencoder.net_files,
    "caffenet": partial(alexnet.net_files, "caffenet"),
    "faster_rcnn": faster_rcnn.net_files,
    "googlenet": googlenet.net_files,
    "inception_v3": inception.net_files,
    "lstm1000": lstm_lm.long_net_files,
    "lstm_lm": lstm_lm.net_files,
    "pspnet": pspnet.net_files,
    "segnet": segnet.net_files,
    "siamese": siamese.net_files,
    "unet": unet.net_files,
    "unet256": partial(unet.padded_net_files, "unet256"),
    "unetpp256": partial(unet.padded_net_files, "unetpp256"),
    "wrn28_10": wrn.net_files,
}
FAMILIES: dict[str, Callable[[int], NetFiles]] = {  # names with a depth or version: "vgg16", "mobilenet2"
    "densenet": densenet.net_files,
    "mobilenet": mobilenet.net_files,
    "resnet": resnet.net_files,
    "resnext": resnext.net_files,
    "squeezenet": squeezenet.net_files,
    "ssd": ssd.net_files,
    "vgg": vgg.net_files,
}
# Nets of tens of thousands of lines, or for comparison with one other planner: `layermem examples` writes them, and
# prototxt/ has none of their files.
WRITTEN_ON_REQUEST = ("resnet1001", "resnet1517", "resnet2504", "unet256", "unetpp256")


def net_files(name: str) -> NetFiles:
    """The prototxt files of the net `name`; InputError for an unknown name or depth."""
    if name in NETS:
        return NETS[name]()
    match = re.fullmatch(r"([a-z]+)([0-9]+)", name)
    if match is None or match[1] not in FAMILIES:
        known = ", ".join([*NETS, *(f"{family}NUMBER" for family in FAMILIES)])
        raise InputError(f"unknown net '{name}' (choose from {known})")
    return FAMILIES[match[1]](int(match[2]))
