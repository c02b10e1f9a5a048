"""`caffe.proto`: the messages of Caffe's schema, in caffe_pb2."""

from layermem.caffe.proto import caffe_pb2

__all__ = ["caffe_pb2"]
