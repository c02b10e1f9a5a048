"""HDF5Output writes its two bottoms to a file, as the datasets `data` and `label`.

memory  none: the bottoms are copied to the host when they are computed, like outputs of the net
source  Caffe hdf5_output_layer.cpp.  It can write one batch only; here a test writes the rows of all its batches,
        and training the rows of each iteration, which replace those of the last (layermem/solver/recording.py)
"""

from __future__ import annotations

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Step, layer


@layer("HDF5Output")
class HDF5Output(Layer):
    has_gradient = False
    takes_truth = True
    bottom_range = (2, 2)
    top_range = (0, 0)

    def setup(self) -> None:
        data, label = self.bottoms
        if not self.file_name:
            raise InputError("has no file_name; set it in its hdf5_output_param")
        if data.shape[:1] != label.shape[:1] or not data.shape:
            raise InputError(f"writes bottoms of {data} and {label}; give both one batch size")
        self.record = ops.Silence()

    @property
    def file_name(self) -> str:
        name: str = self.param.hdf5_output_param.file_name
        return name

    def forward(self) -> Step:
        return Step("forward", (), ())
