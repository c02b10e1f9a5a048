"""A small net, its weights and an image for scripts, as files in a folder."""

# ruff: noqa: C408  dict(..) as scripts for pycaffe write it

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

import layermem
from layermem import L, NetSpec, P

SIZE, CLASSES = 12, 5
XAVIER = dict(type="xavier")


def deploy(batch: int = 4, size: int = SIZE) -> NetSpec:
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[batch, 3, size, size]))
    n.conv1 = L.Convolution(n.data, kernel_size=3, num_output=4, weight_filler=XAVIER)
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    n.pool1 = L.Pooling(n.relu1, pool=P.Pooling.AVE, global_pooling=True)
    n.fc = L.InnerProduct(n.pool1, num_output=CLASSES, weight_filler=XAVIER)
    n.prob = L.Softmax(n.fc)
    return n


def write_files(folder: Path) -> None:
    """deploy.prototxt, weights.caffemodel, cat.png and mean.npy in `folder`."""
    (folder / "deploy.prototxt").write_text(str(deploy().to_proto()))
    layermem.Net(folder / "deploy.prototxt", seed=3).save(folder / "weights.caffemodel")
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 255, (20, 30, 3), dtype=np.uint8)).save(folder / "cat.png")
    np.save(folder / "mean.npy", rng.random((3, 16, 16)).astype(np.float32) * 100)
