"""A layer whose code is not here, or may not run: it can be planned, and is refused when the net runs.

x{i} -> y{i}     of the shapes that the user gives, without parameters
memory  opaque: backward reads all bottoms and tops, and forward runs once a step
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import MAX_COUNT, Layer, Message, Step, Tensor, roles


class OpaqueLayer(Layer):
    """Tops of given shapes, which a plan keeps or offloads; `why` is the reason why it cannot run, with a remedy."""

    bottom_range = (0, None)
    top_range = (0, None)
    recompute_kind = "never"

    def __init__(
        self, param: Message, phase: int, bottoms: Sequence[Tensor], shapes: Sequence[tuple[int, ...]], why: str
    ):
        self.type, self.shapes, self.why = param.type, shapes, why
        super().__init__(param, phase, bottoms)

    def setup(self) -> None:
        self.tops = tuple(Tensor(shape) for shape in self.shapes)
        self.record = ops.Python(self.bottoms, self.tops, why=self.why)

    def forward(self) -> Step:
        return Step("forward", roles("x", len(self.bottoms)), roles("y", len(self.tops)))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        bottoms, tops = len(self.bottoms), len(self.tops)
        reads = (*roles("x", bottoms), *roles("y", tops), *roles("dy", tops))
        return (Step("backward", reads, tuple(wants)),) if wants else ()


def given_shapes(param: Message, inputs: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The shapes of the tops of `param` if `inputs` has them all, else none."""
    if not all(top in inputs for top in param.top):
        return []
    for top in param.top:
        shape = Tensor(inputs[top])
        if min(shape.shape, default=1) < 1 or shape.count > MAX_COUNT:
            raise InputError(f"is given the shape {shape} for '{top}'; give positive sizes, at most 2^31-1 in all")
    return [inputs[top] for top in param.top]
