"""`caffe.detector`, for scripts that import the class from its module."""

from layermem.caffe.nets import Detector

__all__ = ["Detector"]
