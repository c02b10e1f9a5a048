"""Layers that move elements, and those that combine or reduce blobs."""

from __future__ import annotations

from layermem import ops
from layermem.integrations.onnx.graph import CASTS, Link, Piece
from layermem.integrations.onnx.registry import exports


@exports("Concat", operators="Concat")
def concat(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.Concat)
    piece.emit("Concat", *piece.inputs, top=0, axis=record.along)


@exports("Slice", "TimeSlice", operators="Split")
def slice_(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.Slice)
    sizes = piece.constant("sizes", [part.shape[record.along] for part in record.parts], "int64")
    piece.emit_many("Split", piece.inputs[0], sizes, outputs=piece.outputs, axis=record.along)


@exports("Split", "Exposed", operators="Identity")
def split(piece: Piece) -> None:
    for top in range(len(piece.outputs)):
        piece.emit("Identity", piece.inputs[0], top=top)


@exports("Flatten", operators="Flatten, Reshape")
def flatten(piece: Piece) -> None:
    x, y = piece.x[0], piece.y[0]
    if len(y) == 2 and x[:1] == y[:1] and len(x) > 1:
        piece.emit("Flatten", piece.inputs[0], top=0, axis=1)
    else:
        piece.chain(piece.inputs[0], *piece.reshape_link(x, y))


@exports("Reshape", operators="Reshape")
def reshape(piece: Piece) -> None:
    piece.chain(piece.inputs[0], *piece.reshape_link(piece.x[0], piece.y[0]))


@exports("Tile", operators="Tile")
def tile(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.Tile)
    repeats = [1] * len(piece.x[0])
    repeats[record.along] = record.tiles
    piece.emit("Tile", piece.inputs[0], piece.constant("repeats", repeats, "int64"), top=0)


@exports("Crop", operators="Slice")
def crop(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.Crop)
    cut = [axis for axis in range(len(piece.x[0])) if piece.x[0][axis] != piece.y[0][axis]]
    starts = [record.offsets[axis] for axis in cut]
    ends = [start + piece.y[0][axis] for start, axis in zip(starts, cut)]
    numbers = (("starts", starts), ("ends", ends), ("axes", cut))
    more = tuple(piece.constant(name, value, "int64") for name, value in numbers)
    piece.chain(piece.inputs[0], *([Link("Slice", more)] if cut else []))


@exports("Permute", "ShuffleChannel", "Reorg", operators="Reshape, Transpose, Reshape")
def permute(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.Permute)
    moved = tuple(record.sizes[axis] for axis in record.order)
    value = piece.reshaped(piece.inputs[0], piece.x[0], record.sizes)
    transpose = [Link("Transpose", (), {"perm": list(record.order)})]
    if list(record.order) == sorted(record.order):
        transpose = []
    piece.chain(value, *transpose, *piece.reshape_link(moved, piece.y[0]))


@exports("Upsample", operators="Resize; with a mask ConstantOfShape, ScatterElements")
def upsample(piece: Piece) -> None:
    record = piece.layer.record
    if isinstance(record, ops.Upsample):
        scales = piece.constant("scales", [1, 1, record.scale, record.scale])
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        piece.emit("Resize", piece.inputs[0], "", scales, top=0, **how)
        return
    n, c, h, w = piece.x[0]
    _, _, ho, wo = piece.y[0]
    x, mask = (piece.reshaped(value, piece.x[0], (n, c, h * w)) for value in piece.inputs)
    zeros = piece.constant("zeros", [[[0.0] * (ho * wo)] * c] * n)
    piece.chain(
        zeros,
        Link("ScatterElements", (piece.cast(mask, "int64"), x), {"axis": 2}),
        *piece.reshape_link((n, c, ho * wo), piece.y[0]),
    )


@exports("Interp", operators="Slice, Resize")
def interp(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.Interp)
    axes = (record.rows, record.columns)
    image = piece.inputs[0]
    if any((axis.offset, axis.size) != (0, size) for axis, size in zip(axes, piece.x[0][2:])):
        starts, ends = [axis.offset for axis in axes], [axis.offset + axis.size for axis in axes]
        numbers = (("starts", starts), ("ends", ends), ("axes", [2, 3]))
        image = piece.emit("Slice", image, *(piece.constant(name, value, "int64") for name, value in numbers))
    sizes = piece.constant("sizes", piece.y[0], "int64")
    how = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    piece.emit("Resize", image, "", "", sizes, top=0, **how)


# -- arithmetic of blobs ---------------------------------------------------------------------------------------------


@exports("Eltwise", operators="Sum, Mul, Max")
def eltwise(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.Eltwise)
    if record.operation == "PROD":
        piece.chain(piece.inputs[0], *(Link("Mul", (each,)) for each in piece.inputs[1:]))
        return
    terms = [
        each if coeff == 1 else piece.emit("Mul", each, piece.constant(f"coeff{i}", coeff))
        for i, (each, coeff) in enumerate(zip(piece.inputs, record.coeffs))
    ]
    op = "Max" if record.operation == "MAX" else "Add" if len(terms) == 2 else "Sum"
    piece.emit(op, *terms, top=0)


@exports("Axpy", operators="Reshape, Mul, Add")
def axpy(piece: Piece) -> None:
    factor = piece.reshaped(piece.inputs[0], piece.x[0], (*piece.x[1][:2], 1, 1))
    piece.chain(piece.inputs[1], Link("Mul", (factor,)), Link("Add", (piece.inputs[2],)))


REDUCTIONS = {"SUM": "ReduceSum", "MEAN": "ReduceMean", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare"}


@exports("Reduction", operators="ReduceSum, ReduceMean, ReduceL1, ReduceSumSquare, Mul")
def reduction(piece: Piece) -> None:
    record, coeff = piece.layer.record, piece.message.reduction_param.coeff
    assert isinstance(record, ops.Reduction)
    axes = list(range(record.along, len(piece.x[0])))
    op = REDUCTIONS[record.operation]
    if op == "ReduceSum":  # the first reduction whose axes became an input
        link = Link(op, (piece.constant("axes", axes, "int64"),), {"keepdims": 0})
    else:
        link = Link(op, (), {"axes": axes, "keepdims": 0})
    factor = [Link("Mul", (piece.constant("coeff", coeff),))] if coeff != 1 else []
    piece.chain(piece.inputs[0], link, *factor)


@exports("ArgMax", operators="Flatten, ArgMax, TopK, Cast, Concat")
def argmax(piece: Piece) -> None:
    """Write ArgMax; among equal elements the last comes first, which TopK does by counting backwards."""
    record = piece.layer.record
    assert isinstance(record, ops.ArgMax)
    x, along = piece.inputs[0], record.along
    size = record.x.shape[along] if along is not None else record.x.count // record.x.shape[0]
    if along is None:
        along, x = 1, piece.emit("Flatten", x, axis=1)
    if record.top_k == 1 and not record.with_values:
        rank = len(piece.x[0]) if record.along is not None else 2
        shape = piece.y[0] if record.along is not None else (piece.x[0][0], 1)
        last = Link("ArgMax", (), {"axis": along, "keepdims": 1, "select_last_index": 1})
        assert len(shape) == rank
        piece.chain(x, last, Link("Cast", (), CASTS["float32"]), *piece.reshape_link(shape, piece.y[0]))
        return
    numbers = (("first", [-1]), ("last", [-size - 1]), ("axis", [along]), ("step", [-1]))
    backwards = piece.emit("Slice", x, *(piece.constant(name, value, "int64") for name, value in numbers))
    values, places = piece.temporary("values"), piece.temporary("places")
    top_k = piece.constant("top_k", [record.top_k], "int64")
    piece.graph.add(piece.temporary("TopK"), "TopK", [backwards, top_k], [values, places], {"axis": along})
    forwards = piece.emit("Sub", piece.constant("end", size - 1, "int64"), places)
    if record.along is not None:
        piece.chain(values if record.with_values else piece.cast(forwards, "float32"))
        return
    both = [piece.cast(forwards, "float32")] + [values] * record.with_values
    joined = piece.emit("Concat", *both, axis=1) if len(both) == 2 else both[0]
    piece.chain(joined, Link("Reshape", (piece.shape_constant(piece.y[0]),)))
