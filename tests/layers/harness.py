"""Runs the ops of a single layer on the reference device, and compares its gradients with central differences.

Every op gets the arrays of the roles it declared and nothing else; outputs start as NaN, so a kernel that leaves an
element unwritten, or reads what it did not declare, cannot pass.  Every op then runs again for each overlay that it
permits, with the two roles in the same memory, and must give the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from google.protobuf import text_format

from layermem.backends.reference.base import REGISTRY, ReferenceCall, axes_of_caffe, stored
from layermem.graph.fusion import BatchNormScaleEmitter, EpilogueEmitter
from layermem.layers.base import LAYERS, Layer, Overlay, Step, Tensor, make_layer, roles
from layermem.ops import ITEMSIZE
from layermem.proto import schema

TRAIN, TEST = 0, 1
DIFFERENCE_ELEMENTS = 8  # elements of an input that are each moved alone for a central difference


def layer_of(text: str, *shapes: Sequence[int], phase: int = TRAIN) -> Layer:
    """The layer written in `text` (the inside of `layer { }`; bottoms and tops are named for you if you do not)."""
    param = text_format.Parse(text, schema.LayerParameter())
    param.name = param.name or "it"
    if not param.bottom:
        param.bottom.extend(roles("x", len(shapes)))
    if not param.top:
        param.top.extend(roles("y", LAYERS[param.type].top_range[0]))
    return make_layer(param, phase, [Tensor(tuple(s)) for s in shapes])


def with_saved(layer: Layer, saved: Collection[str]) -> Layer:
    """`layer`, whose backward may read the roles in `saved`, which other ops keep in any case."""
    layer.backward = partial(layer.backward, saved=frozenset(saved))  # type: ignore[method-assign]
    return layer


def batch_norm_scale(shape: Sequence[int], *, relu: bool = False) -> BatchNormScaleEmitter:
    """A BatchNorm and its Scale with bias as one op, optionally with the ReLU after them."""
    norm = layer_of('type: "BatchNorm" name: "norm"', shape)
    scale = layer_of('type: "Scale" name: "scale" scale_param { bias_term: true }', shape)
    return BatchNormScaleEmitter(norm, scale, layer_of('type: "ReLU" name: "relu"', shape) if relu else None)


def with_epilogue(inner: Layer, *, residual: bool, relu: bool) -> Layer:
    """`inner` fused with the sum of its top and another bottom, and with the ReLU after it."""
    shape = inner.tops[0].shape
    after = layer_of('type: "ReLU" name: "relu"', shape) if relu else None
    if residual:
        return EpilogueEmitter(inner, layer_of('type: "Eltwise" name: "sum"', shape, shape), 1, after)
    return EpilogueEmitter(inner, None, 0, after)


def wants_of(layer: Layer) -> tuple[str, ...]:
    """All gradients that the layer can compute, as roles."""
    learned = [f"dw{i}" for i, p in enumerate(layer.params) if p.learned]
    every = (*roles("dx", len(layer.bottoms)), *learned)
    written = {role for step in layer.backward(every) for role in step.writes}
    return tuple(role for role in every if role in written)


def first_step(layer: Layer, wants: Sequence[str]) -> Step:
    """Forward without a stash that no op reads, as in a training graph."""
    forward, recompute = layer.forward(), layer.recompute()
    later = [*layer.backward(wants), *([recompute] if recompute else [])]
    read = {role for step in later for role in step.reads}
    return replace(forward, writes=tuple(r for r in forward.writes if r not in layer.stash or r in read))


def steps_of(layer: Layer) -> list[Step]:
    """The first step and those of backward, with all gradients."""
    wants = wants_of(layer)
    return [first_step(layer, wants), *layer.backward(wants)]


def logical(tensor: Tensor, dtype: str = "float64") -> np.ndarray:
    """Channels-last memory filled with NaN (or 0xFF), viewed with Caffe's axes."""
    kind = dtype if tensor.dtype.startswith("float") else tensor.dtype
    fill = np.nan if kind.startswith("float") else np.iinfo(kind).max if kind == "uint8" else -1
    return axes_of_caffe(np.full(tensor.stored, fill, kind))


@dataclass
class Run:
    """A layer with the arrays of all its roles, filled op by op."""

    layer: Layer
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    dtype: str = "float64"
    context: dict = field(default_factory=lambda: {"seed": 1701, "step": 3})
    overlaid: bool = True  # run each op again for every overlay that it permits

    def tensor(self, role: str) -> Tensor:
        it = self.layer
        if role in it.stash:
            return it.stash[role]
        stem, index = role.rstrip("0123456789"), int(role[len(role.rstrip("0123456789")) :])
        table = {"x": it.bottoms, "y": it.tops, "w": [p.tensor for p in it.params]}
        return table[stem.removeprefix("d")][index]

    def put(self, role: str, value: np.ndarray) -> None:
        array = logical(self.tensor(role), self.dtype)
        array[...] = np.asarray(value).reshape(array.shape)
        self.arrays[role] = array

    def step(self, step: Step) -> None:
        assert not set(step.reads) & set(step.writes)
        for role in step.writes:
            self.arrays[role] = logical(self.tensor(role), self.dtype)
        declared = (*step.reads, *step.writes, *step.updates)
        before = {role: self.arrays[role].copy() for role in step.reads}
        self.run({role: self.arrays[role] for role in declared}, step)
        for role, value in before.items():
            np.testing.assert_array_equal(self.arrays[role], value, err_msg=f"{step.step} changed its input {role}")
        for role in step.writes:
            if self.arrays[role].dtype.kind == "f":
                assert not np.isnan(self.arrays[role]).any(), f"{step.step} left part of {role} unwritten"
        for overlay in step.overlays if self.overlaid and not step.updates else ():
            self.step_overlaid(step, overlay)

    def run(self, arrays: dict[str, np.ndarray], step: Step) -> None:
        """Run the reference kernel of `step` on these arrays."""
        call = ReferenceCall(arrays, self.context, op=f"{self.layer.name}.{step.step}", layer=self.layer.name)
        REGISTRY.bind(step.record or self.layer.record, step.step, call)

    def step_overlaid(self, step: Step, overlay: Overlay) -> None:
        """Run the op again with its output `overlay.out` in the memory of its input `overlay.over`."""
        assert overlay.out in step.writes and overlay.over in step.reads, f"{overlay} names roles the op has not"
        again = Run(self.layer, dtype=self.dtype)
        for role in step.reads:
            again.put(role, self.arrays[role])
        for role in step.writes:
            again.arrays[role] = logical(self.tensor(role), self.dtype)
        under = stored(again.arrays[overlay.over])
        again.arrays[overlay.out] = axes_of_caffe(under.reshape(self.tensor(overlay.out).stored))
        self.run(again.arrays, step)
        for role in step.writes:
            why = f"{step.step} with {overlay.out} on {overlay.over} gives another {role}"
            np.testing.assert_array_equal(again.arrays[role], self.arrays[role], err_msg=why)


def forward(
    layer: Layer, *xs: np.ndarray, ws: Sequence[np.ndarray] = (), dtype: str = "float64", overlaid: bool = True
) -> Run:
    """Run the layer's forward op; `run.arrays["y0"]` is its first top."""
    run = Run(layer, dtype=dtype, overlaid=overlaid)
    for role, value in zip(roles("x", len(xs)), xs, strict=True):
        run.put(role, value)
    for role, value in zip(roles("w", len(layer.params)), ws, strict=True):
        run.put(role, value)
    run.step(layer.forward())
    return run


def backward(run: Run, wants: Sequence[str], *dys: np.ndarray) -> Run:
    """Run the backward ops for `wants`, which get only the roles that they declare."""
    for role, value in zip(roles("dy", len(run.layer.tops)), dys, strict=True):
        run.put(role, value)
    for step in run.layer.backward(tuple(wants)):
        run.step(step)
    return run


def directions(shape: Sequence[int], rng: np.random.Generator, few: int = DIFFERENCE_ELEMENTS) -> Iterator[np.ndarray]:
    """Displacements of an input: of single elements if they are few, otherwise of all elements, each randomly up or
    down. A wrong derivative of an element shows in each of these."""
    count = int(np.prod(shape))
    for number in range(min(count, few)):
        move = np.eye(count)[number] if count <= few else rng.choice((-1.0, 1.0), count)
        yield move.reshape(shape)


def check_gradients(
    layer: Layer,
    *xs: np.ndarray,
    ws: Sequence[np.ndarray] = (),
    wants: Sequence[str] | None = None,
    epsilon: float = 1e-6,
    tolerance: float = 1e-6,
) -> Run:
    """Compare with central differences in float64 of sum(y * random), over the tops with gradients, in `directions`."""
    rng = np.random.default_rng(7)
    xs = tuple(np.array(x, np.float64) for x in xs)
    ws = tuple(np.array(w, np.float64) for w in ws)
    if wants is None:
        wants = (*roles("dx", len(xs)), *(r for r, p in zip(roles("dw", len(ws)), layer.params) if p.learned))
    run = forward(layer, *xs, ws=ws)
    weights = [rng.standard_normal(top.shape) for top in layer.tops]
    through = {role for step in layer.backward(tuple(wants)) for role in (*step.reads, *step.updates)}

    step, again = layer.forward(), forward(layer, *xs, ws=ws, overlaid=False)

    def objective() -> float:
        """Evaluate in the arrays of one run, which `forward` has checked, so that only the ops take time."""
        for updated in step.updates:
            again.put(updated, ws[int(updated[1:])])
        again.run({role: again.arrays[role] for role in (*step.reads, *step.writes, *step.updates)}, step)
        tops = ((again.arrays[f"y{i}"], w) for i, w in enumerate(weights) if f"dy{i}" in through)
        return sum(float((y * weight).sum()) for y, weight in tops)

    backward(run, wants, *weights)
    for role in wants:
        value, gradient = again.arrays[role[1:]], run.arrays[role]
        center = value.copy()
        for direction in directions(value.shape, rng):
            value[...] = center + epsilon * direction
            up = objective()
            value[...] = center - epsilon * direction
            numeric = (up - objective()) / (2 * epsilon)
            along = gradient * direction
            worst = abs(along.sum() - numeric) / max(1, abs(numeric), float(np.linalg.norm(along)))
            assert worst <= tolerance, f"{role} is off by {worst:.2e}"
        value[...] = center
    return run


def nbytes(layer: Layer) -> int:
    """Bytes that forward keeps for backward besides its bottoms and tops."""
    return sum(t.count * ITEMSIZE[t.dtype] for t in layer.stash.values())
