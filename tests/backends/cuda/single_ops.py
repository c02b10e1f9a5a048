"""Ops of no layer, against the reference device, and launches of no op, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from unittest.mock import patch

import numpy as np

import layermem.backends.reference  # noqa: F401  (registers the reference)
from layermem.backends.cuda.communication import ordered_sum
from layermem.backends.cuda.images import ImageBlock, transform_images
from layermem.backends.cuda.support.launch import Launch, launch
from layermem.backends.reference.base import REGISTRY, ReferenceCall
from layermem.distributed.ranks import Ranks
from layermem.ops import (
    ACCUMULATE,
    NARROW,
    ByteImages,
    Feed,
    Fill,
    GradientNorm,
    MovingAverage,
    OpRecord,
    ReduceScatter,
    Tensor,
    Update,
)
from layermem.solver.rules import HISTORY_COUNTS
from tests.backends.cuda.harness import CONTEXT, Memory, Way, run_op
from tests.backends.cuda.naive import differences, product_and_sums
from tests.backends.cuda.slices import SPLITTING, Slices, splits_of
from tests.cases import records
from tests.cases.fused import FUSED
from tests.cases.slices import sliced
from tests.emulator import emulate

Triple = tuple[str, np.ndarray, np.ndarray]  # what it is, as kernels leave it, as it must be but for rounding
SETTINGS = {**CONTEXT, **records.SETTINGS, "loss_scale": 8.0}
COUNT = 1500


def op(record: OpRecord, step: str, roles: Collection[str], written: Collection[str], way: Way) -> Iterator[Triple]:
    """One step of a record over arrays of COUNT numbers, where sizes_of() has no others."""
    rng, memory, shapes = np.random.default_rng(3), Memory(), sizes_of(record)
    truth = {role: np.array(np.float32(rng.random(shapes.get(role, (COUNT,)))), np.float64) for role in roles}
    got = {role: memory.stored(array, np.float32) for role, array in truth.items()}
    REGISTRY.bind(record, step, ReferenceCall(truth, SETTINGS))
    run_op(record, step, got, context=SETTINGS, way=way)
    memory.check()
    for role in written:
        yield role, got[role], truth[role]


def sizes_of(record: OpRecord) -> Mapping[str, tuple[int, ...]]:
    if isinstance(record, GradientNorm):
        return {"y0": ()}
    if isinstance(record, MovingAverage):
        return {"w0": (6,), "w1": (6,), "w2": (1,), "x0": (2, 6), "x1": (2, 6), "x2": (2, 1)}
    return {}


def updates() -> Iterator[tuple[str, OpRecord, list[str], list[str]]]:
    for rule, count in {**HISTORY_COUNTS, ACCUMULATE: 0}.items():
        own = [f"h{i}" for i in range(count)]
        yield f"update by {rule}", Update(rule, "w", Tensor((COUNT,))), ["w0", "dw0", *own], ["w0", *own]


def sums_of_ranks(way: Way) -> Iterator[Triple]:
    rng, memory, ranks, pitch = np.random.default_rng(3), Memory(), 4, COUNT + 4
    total, own = (memory.stored(rng.standard_normal(COUNT), np.float32) for _ in range(2))
    received = memory.stored(rng.standard_normal((ranks - 1) * pitch), np.float32)
    record = ReduceScatter(Ranks(0, ranks, ranks), 0, (Tensor((ranks, COUNT)),), False)
    parts = [own, *(received[i * pitch :][:COUNT] for i in range(ranks - 1))]
    want = np.sum(np.float64(parts), axis=0)
    arrays = {"sum": total, "own": own, "received": received}
    alone(way, arrays, lambda at: ordered_sum(record, at["sum"], at["own"], at["received"], COUNT, pitch))
    yield "sum", total, want


def images_in_bytes(way: Way) -> Iterator[Triple]:
    rng, memory, shape = np.random.default_rng(3), Memory(), (2, 3, 5, 7)
    pixels, corners = rng.integers(0, 256, shape).astype(np.uint8), np.zeros((2, 2), np.int32)
    images = ByteImages(pixels, corners, np.array([True, False]), np.float32(rng.random((3, 1, 1))), 0.5)
    feed = Feed("data", 1, Tensor(shape))
    at = ImageBlock(feed)
    block, y = memory.bytes(at.nbytes), memory.stored(np.full(shape, np.nan), np.float32)
    block[at.pixels :][: pixels.size] = pixels.reshape(-1)
    block[at.settings :][: 4 * 4].view(np.float32)[...] = [images.scale, *images.mean.reshape(-1)]
    block[at.corners :][: corners.nbytes] = 0
    block[at.mirrored :][:2] = images.mirrored
    alone(way, {"y": y, "block": block}, lambda at: transform_images(feed, at["y"], at["block"]))
    yield "images", y, np.ascontiguousarray(np.float64(images).transpose(0, 2, 3, 1))


def naive_products(word: str, way: Way) -> Iterator[Triple]:
    """Of whole numbers; and the comparison of what they leave."""
    for name in ("fprop", "dgrad", "wgrad"):
        got, want = product_and_sums(name, FUSED["naive products"]["groups, strides, pads and dilations"], word, way)
        yield name, got, want
        yield f"{name} compared", np.float32(differences(got, want, way)), np.float32([0, -1])
    narrow = np.arange(1000, dtype=np.uint16)
    yield "16 bits compared", np.float32(differences(narrow, narrow[::-1].copy(), way)), np.float32([1000, 0])


def delay(way: Way) -> Iterator[Triple]:
    alone(way, {}, lambda at: launch("delay", "delay", "DelayArgs", 1, 32, cycles=1000))
    yield from ()


def alone(way: Way, arrays: Mapping[str, np.ndarray], bind: Callable[[Mapping[str, int]], Launch]) -> None:
    """A launch that works on these."""
    at = way.gpu.placed(arrays) if way.gpu else {name: array.ctypes.data for name, array in arrays.items()}
    one = bind(at)
    if way.gpu:
        way.gpu.launch(one, SETTINGS)
        way.gpu.bring_back()
        return
    kernels = emulate.load(f"cuda/{one.module}.cu", way.mode, order=way.order, copies=way.copies)
    kernels.launch(one.function, one.grid, one.block, one.args, one.shared, buffers=[*arrays.values()])


def in_slices(word: str, way: Way) -> Iterator[Triple]:
    """Slices that leave windows to each other, which are gathered."""
    text = 'type: "Convolution" convolution_param { num_output: 8 kernel_size: 3 bias_term: false }'
    with ExitStack() as patches:
        for module in SPLITTING:
            patches.enter_context(patch.object(module, "split_of", splits_of(4)))
        yield from Slices(sliced(text, [(6, 8, 7, 9)]), (3, 3), way=way, storage=word).pairs()


def single_ops() -> Iterator[tuple[str, Callable[[Way], Iterator[Triple]]]]:
    """Names, and what runs the op and says what it leaves."""
    for name, record, roles, written in updates():
        yield name, partial(op, record, "update", roles, written)
    yield "norm of gradients", partial(op, GradientNorm(), "forward", ["x0", "x1", "y0"], ["y0"])
    yield "Fill, scaled", partial(op, Fill(2.0, scaled=True), "fill", ["y0"], ["y0"])
    yield "Fill", partial(op, Fill(2.0), "fill", ["y0"], ["y0"])
    averages = [f"{stem}{i}" for stem in "wx" for i in range(3)]
    yield "moving averages", partial(op, MovingAverage(0.9, 6, 2), "average", averages, averages[:3])
    yield "sums of ranks", sums_of_ranks
    yield "images in bytes", images_in_bytes
    yield "delay", delay
    for word in ("", *NARROW):
        yield f"naive products{f' in {word}' if word else ''}", partial(naive_products, word)
        yield f"weight gradient in slices{f' in {word}' if word else ''}", partial(in_slices, word)
