"""`caffe._caffe`: the names of pycaffe's C++ module that scripts use."""

from layermem.caffe.nets import Net
from layermem.caffe.solvers import SGDSolver
from layermem.interactive.blob import Blob
from layermem.python_layers import PythonLayer as Layer

BlobVec = list  # the type of net.params[name]

__all__ = ["Blob", "BlobVec", "Layer", "Net", "SGDSolver"]
