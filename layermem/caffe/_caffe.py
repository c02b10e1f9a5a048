"""`caffe._caffe`: the names of pycaffe's C++ module that scripts ask for."""

from layermem.caffe.nets import Net
from layermem.caffe.solvers import SGDSolver
from layermem.interactive.blob import Blob
from layermem.python_layers import PythonLayer as Layer

BlobVec = list  # net.params[name] is one

__all__ = ["Blob", "BlobVec", "Layer", "Net", "SGDSolver"]
