"""Matches weight files to a net that has no arena yet."""

from __future__ import annotations

from os import PathLike

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.blobs import Blob
from layermem.proto.weights import WHAT, open_weights
from layermem.solver.parameters import match_weights
from layermem.utils.open_file import OpenFile
from layermem.utils.text import shape_text


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


def check_same_parameters(old: Net, new: Net) -> None:
    """InputError unless both nets have parameters of the same shapes."""
    for name, owned in old.params.items():
        there = new.params[name].param
        if not owned.param.carried and there.shape != owned.param.shape:
            raise InputError(
                f"would need a parameter of {shape_text(there.shape)} for these inputs, and has one of "
                f"{shape_text(owned.param.shape)}; change the batch alone, or build another net",
                path=str(old.path),
                layer=owned.layer,
            )
