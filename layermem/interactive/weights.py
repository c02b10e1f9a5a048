"""Matches weight files to a net that has no arena yet."""

from __future__ import annotations

from os import PathLike

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.blobs import Blob
from layermem.proto.weights import WHAT, open_weights
from layermem.solver.parameters import match_weights
from layermem.utils.open_file import OpenFile


def matched_weights(net: Net, file: str | PathLike[str] | OpenFile) -> dict[str, Blob]:
    """Return the values in a weight file for the parameters of `net`, by parameter; InputError if it has none, or they
    do not fit.  They are read on demand from the file, which stays open."""
    file = file if isinstance(file, OpenFile) else OpenFile(file, what=WHAT)
    try:
        values, unknown = match_weights((net,), open_weights(file))
    except InputError as error:
        raise error.at(path=file.path) from None
    if not values and any(layer.params for layer in net.layers):
        named = f"its layers are {', '.join(unknown[:4])}" if unknown else "it holds no weights"
        raise InputError(f"has no layer of net '{net.name}' ({named}); use the weights of this net", path=file.path)
    return values
