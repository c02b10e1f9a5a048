"""Images and messages with the API of pycaffe's `caffe.io`: load_image, Transformer, oversample, blobproto_to_array,
..."""

from layermem.io.images import load_image, oversample, resize_image
from layermem.io.messages import (
    array_to_blobproto,
    array_to_datum,
    arraylist_to_blobprotovector_str,
    blobproto_to_array,
    blobprotovector_str_to_arraylist,
    datum_to_array,
)
from layermem.io.transformer import Transformer

__all__ = [
    "Transformer",
    "array_to_blobproto",
    "array_to_datum",
    "arraylist_to_blobprotovector_str",
    "blobproto_to_array",
    "blobprotovector_str_to_arraylist",
    "datum_to_array",
    "load_image",
    "oversample",
    "resize_image",
]
