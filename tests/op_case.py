"""The cases of tests/cases: a layer or a record, its operands, and random values for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from layermem.backends.registry import StepContext
from layermem.layers import Layer
from layermem.ops import OpRecord, Tensor
from tests.layers.harness import TRAIN, batch_norm_scale, layer_of, with_epilogue, with_saved

Shape = tuple[int, ...]
Formula = Callable[..., np.ndarray]  # y0 from the bottoms, in double precision
Draw = Callable[[np.random.Generator, Shape], np.ndarray]


@dataclass(frozen=True)
class OpCase:
    """A layer, its bottoms, and their special properties.

    text         the inside of `layer { }`; bottoms and tops are added if it names none
    sizes        size -> shapes of the bottoms
    labels       the bottom that holds labels, drawn from range(classes)
    drawn        bottoms with special random values
    saved        roles that other ops keep in any case, so that backward may read them
    normalized   the layer is a BatchNorm and its Scale with bias; `residual`, `relu`: its epilogue
    positive     bottoms are above zero
    formula      y0 in closed form
    tolerance    tolerance of central differences
    derivative   whether the gradient is the derivative of y; otherwise a test of the layer checks it
    """

    name: str
    text: str
    sizes: Mapping[str, Sequence[Shape]]
    phase: int = TRAIN
    labels: int | None = None
    classes: int = 2
    drawn: Mapping[int, Draw] = field(default_factory=dict)
    saved: frozenset[str] = frozenset()
    normalized: bool = False
    residual: bool = False
    relu: bool = False
    positive: bool = False
    formula: Formula | None = None
    tolerance: float = 1e-6
    derivative: bool = True

    def shapes(self, size: str) -> Sequence[Shape]:
        """The shapes of that size, or of the next smaller or larger one in the case."""
        order = {"small": ("small", "medium"), "medium": ("medium", "small")}.get(size, (size,))
        return next(self.sizes[each] for each in order if each in self.sizes)

    def at(self, *shapes: Shape) -> OpCase:
        """The layer over other bottoms."""
        return replace(self, sizes={"medium": shapes})

    def of_items(self, items: int) -> OpCase | None:
        """The medium case over a batch of `items`; None if a bottom has another first axis, or the text a shape."""
        shapes = self.sizes.get("medium", ())
        batches = {shape[:1] for shape in shapes}
        if len(batches) != 1 or batches <= {(), (1,)} or "dim:" in self.text:
            return None
        return self.at(*((items, *shape[1:]) for shape in shapes))

    def layer(self, size: str = "medium") -> Layer:
        shapes = self.shapes(size)
        if self.normalized:
            layer: Layer = batch_norm_scale(shapes[0], relu=self.relu and not self.residual)
        else:
            layer = layer_of(self.text, *shapes, phase=self.phase)
        if self.residual or (self.relu and not self.normalized):
            layer = with_epilogue(layer, residual=self.residual, relu=self.relu)
        return with_saved(layer, self.saved)

    def inputs(
        self, layer: Layer, rng: np.random.Generator, *, positive: bool = False
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Bottoms and parameters; `positive`: no sum is near zero, except under a ReLU, which needs both signs."""
        if positive:
            xs = [np.abs(rng.standard_normal(x.shape)) + 0.1 for x in layer.bottoms]
            ws = [rng.random(p.tensor.shape) + 0.5 for p in layer.params]
            if self.relu and ws and not self.normalized:
                signs = rng.choice([-1.0, 1.0], ws[0].shape[0])
                ws = [(signs * w.T).T for w in ws]
        else:
            xs = [rng.standard_normal(x.shape) for x in layer.bottoms]
            xs = [np.abs(x) + 0.1 for x in xs] if self.positive else xs
            ws = [rng.standard_normal(p.tensor.shape) for p in layer.params]
            if self.normalized or layer.type in (
                "BatchNorm",
                "BN",
            ):  # averages of an earlier batch: no variance is negative
                ws = [np.abs(w) + 1 for w in ws]
        if self.labels is not None:
            xs[self.labels] = rng.integers(0, self.classes, layer.bottoms[self.labels].shape).astype(float)
        for i, draw in self.drawn.items():
            xs[i] = draw(rng, layer.bottoms[i].shape)
        return xs, ws


@dataclass(frozen=True)
class RecordCase:
    """An op that no layer makes: its record and step, and the tensors of its roles."""

    record: OpRecord
    step: str
    reads: Mapping[str, Tensor] = field(default_factory=dict)
    writes: Mapping[str, Tensor] = field(default_factory=dict)
    updates: Mapping[str, Tensor] = field(default_factory=dict)
    context: StepContext = field(default_factory=StepContext)

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Values of all roles that are read or updated; optimizer state and norms are positive."""
        values = {role: rng.standard_normal(t.shape) for role, t in {**self.reads, **self.updates}.items()}
        return {role: np.abs(value) if role[0] in "hn" else value for role, value in values.items()}
