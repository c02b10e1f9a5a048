"""A loss as a Python layer: half the mean squared distance of two blobs.  It runs in Caffe and in layermem."""

import caffe
import numpy as np


class EuclideanLoss(caffe.Layer):
    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise ValueError(f"two bottoms have a distance, not {len(bottom)}")

    def reshape(self, bottom, top):
        if bottom[0].count != bottom[1].count:
            raise ValueError(f"bottoms of {bottom[0].count} and {bottom[1].count} values have no distance")
        self.difference = np.zeros(bottom[0].shape, np.float32)
        top[0].reshape(1)

    def forward(self, bottom, top):
        np.subtract(bottom[0].data, bottom[1].data.reshape(bottom[0].shape), out=self.difference)
        top[0].data[0] = np.sum(np.square(self.difference)) / (2 * bottom[0].num)

    def backward(self, top, propagate_down, bottom):
        gradient = top[0].diff[0] / bottom[0].num * self.difference
        for blob, down, sign in zip(bottom, propagate_down, (1, -1)):
            if down:
                blob.diff[...] = (sign * gradient).reshape(blob.shape)
