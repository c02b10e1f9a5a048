"""A module in the style of Caffe's users, and nets of its layers."""

from __future__ import annotations

import itertools
from pathlib import Path

_numbers = itertools.count()

MODULE = '''
import caffe
import numpy as np


class Ten(caffe.Layer):
    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = 10 * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 10 * top[0].diff


class Cubes(Ten):
    """y = factor w x^3 + x, in the type of its blobs."""

    recomputable = True
    backward_reads = ("bottom",)

    def setup(self, bottom, top):
        self.factor = float(self.param_str or 1)
        self.blobs.add_blob(1)
        self.blobs[0].data[...] = 0.5

    def forward(self, bottom, top):
        x = bottom[0].data
        top[0].data[...] = self.factor * self.blobs[0].data * x**3 + x

    def backward(self, top, propagate_down, bottom):
        x, dy = bottom[0].data, top[0].diff
        if propagate_down[0]:
            bottom[0].diff[...] = (3 * self.factor * self.blobs[0].data * x**2 + 1) * dy
        self.blobs[0].diff[...] += np.sum(self.factor * x**3 * dy)


class Loss(caffe.Layer):
    """Half the sum of squared differences per item; the differences stay between forward and backward."""

    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise Exception("needs two bottoms")

    def reshape(self, bottom, top):
        if bottom[0].count != bottom[1].count:
            raise Exception("bottoms differ in size")
        self.diff = np.zeros_like(bottom[0].data)
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.diff[...] = bottom[0].data - bottom[1].data.reshape(bottom[0].shape)
        top[0].data[...] = np.sum(self.diff**2) / bottom[0].num / 2

    def backward(self, top, propagate_down, bottom):
        for i in range(2):
            if propagate_down[i]:
                sign = 1 if i == 0 else -1
                bottom[i].diff[...] = (sign * top[0].diff[0] * self.diff / bottom[i].num).reshape(bottom[i].shape)


class Numbers(caffe.Layer):
    """A source: images of batch b, and their targets."""

    def setup(self, bottom, top):
        self.batch = 0
        top[0].reshape(4, 3, 6, 6)
        top[1].reshape(4, 5)

    def reshape(self, bottom, top):
        pass

    def forward(self, bottom, top):
        draw = np.random.RandomState(self.batch + 100 * self.phase)
        for top in top:
            top.data[...] = draw.standard_normal(top.shape)
        self.batch += 1

    def backward(self, top, propagate_down, bottom):
        pass
'''

NET = """
    layer { name: "data" type: "Python" top: "data" top: "t" python_param { module: "$M" layer: "Numbers" } }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
            convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
    layer { name: "cubes" type: "Python" bottom: "conv" top: "cubes"
            python_param { module: "$M" layer: "Cubes" param_str: "0.25" } }
    layer { name: "sum" type: "Eltwise" bottom: "cubes" bottom: "conv" top: "sum" }
    layer { name: "relu" type: "ReLU" bottom: "sum" top: "sum" }
    layer { name: "ten" type: "Python" bottom: "sum" top: "ten" python_param { module: "$M" layer: "Ten" } }
    layer { name: "pool" type: "Pooling" bottom: "ten" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
    layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
            inner_product_param { num_output: 5 weight_filler { type: "gaussian" std: 0.001 } } }
    layer { name: "loss" type: "Python" bottom: "ip" bottom: "t" top: "loss" loss_weight: 1
            python_param { module: "$M" layer: "Loss" } }
"""
SHAPES = {"data": (4, 3, 6, 6), "t": (4, 5), "cubes": (4, 8, 6, 6), "ten": (4, 8, 6, 6), "loss": (1,)}


def write_module(folder: Path, text: str = MODULE) -> str:
    """Write `text` as a module with a new name into `folder`; return the name."""
    name = f"user_layers_{next(_numbers)}"
    (folder / f"{name}.py").write_text(text)
    return name


def net_of(folder: Path, net: str = NET, text: str = MODULE) -> str:
    """`net` over a module of that text in `folder`."""
    return net.replace("$M", write_module(folder, text))
