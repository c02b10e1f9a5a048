"""`caffe.classifier`, for scripts that import the class from its module."""

from layermem.caffe.nets import Classifier

__all__ = ["Classifier"]
