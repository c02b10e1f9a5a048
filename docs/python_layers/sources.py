"""A source as a Python layer: points of a parabola, in an order that a seed decides."""

import json

import caffe
import numpy as np


class Parabola(caffe.Layer):
    """tops: x [N, 2], the point and its square, and y [N, 1];  param_str: {"batch": N, "seed": S}"""

    def setup(self, bottom, top):
        settings = json.loads(self.param_str)
        self.draw = np.random.RandomState(settings["seed"] + self.phase)
        top[0].reshape(settings["batch"], 2)
        top[1].reshape(settings["batch"], 1)

    def reshape(self, bottom, top):
        pass

    def forward(self, bottom, top):
        x = self.draw.uniform(-1, 1, top[0].shape[0])
        top[0].data[:, 0], top[0].data[:, 1] = x, x**2
        top[1].data[:, 0] = 1 - 2 * x + 3 * x**2

    def backward(self, top, propagate_down, bottom):
        pass
