"""`caffe.io`: the functions of layermem.io, one of them also under its name in releases of Caffe, and caffe_pb2."""

from layermem.caffe.proto import caffe_pb2
from layermem.io import (
    Transformer,
    array_to_blobproto,
    array_to_datum,
    arraylist_to_blobprotovector_str,
    blobproto_to_array,
    blobprotovector_str_to_arraylist,
    datum_to_array,
    load_image,
    oversample,
    resize_image,
)

arraylist_to_blobprotovecor_str = arraylist_to_blobprotovector_str

__all__ = [
    "Transformer",
    "array_to_blobproto",
    "array_to_datum",
    "arraylist_to_blobprotovecor_str",
    "arraylist_to_blobprotovector_str",
    "blobproto_to_array",
    "blobprotovector_str_to_arraylist",
    "caffe_pb2",
    "datum_to_array",
    "load_image",
    "oversample",
    "resize_image",
]
