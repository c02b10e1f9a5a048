"""Python: a class of the user's, by Caffe's contract (layermem/python_layers).

    x{i}, w{i} -> y{i}      of the shapes that its setup and reshape give, run when the net is built
    memory  opaque: backward reads all bottoms and tops, or those that the class declares (backward_reads), and forward
            runs once a step unless the class declares that it may run again (recomputable).  Memory that the
            code itself allocates is in no plan
    source  Caffe python_layer.hpp

Code runs only where the user allows it.  Otherwise the user may give its shapes: a source then becomes an Input layer,
and a layer in the middle can be planned but is refused when the net runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Message, Step, Tensor, layer, roles
from layermem.layers.data import FEED_LAYERS, as_input, shape_options
from layermem.ops.base import MAX_COUNT
from layermem.proto.schema import FillerParameter
from layermem.python_layers import UserLayer

Inputs = Mapping[str, tuple[int, ...]]
ALLOW = "--allow-python (allow_python=True in Python)"


@layer("Python")
class Python(Layer):
    """A layer that runs its class."""

    right_in_place = True
    bottom_range = (0, None)
    top_range = (0, None)
    record: ops.Python

    def __init__(
        self,
        param: Message,
        phase: int,
        bottoms: Sequence[Tensor],
        *,
        path: str = "",
        allowed: bool = False,
        code: UserLayer | None = None,
    ):
        if not allowed:
            raise InputError(f"{_what(param)}; if you trust it, add {ALLOW}")
        self.path, self._earlier = path, code
        super().__init__(param, phase, bottoms)

    def setup(self) -> None:
        tops, bottoms = list(self.param.top), list(self.param.bottom)
        self.in_place = [(i, bottoms.index(top)) for i, top in enumerate(tops) if top in bottoms]
        block = self.param.python_param
        self.code = self._earlier or UserLayer(self.name, block, self.phase, self.path, inplace=self.in_place)
        self.code.prepare([x.shape for x in self.bottoms], len(tops))
        self.tops = tuple(Tensor(shape) for shape in self.code.top_shapes)
        self.recompute_kind = "exact" if self.code.recomputable else "never"
        self._reads = self.code.backward_reads
        values = self.code.initial_values
        params = (self.make_param(i, value.shape, FillerParameter()) for i, value in enumerate(values))
        self.params = tuple(replace(param, initial=value) for param, value in zip(params, values, strict=True))
        self.record = ops.Python(self.bottoms, self.tops, tuple(p.tensor for p in self.params), self.code)

    def forward(self) -> Step:
        reads = (*roles("x", len(self.bottoms)), *roles("w", len(self.params)))
        return Step("forward", reads, roles("y", len(self.tops)))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if not wants:
            return ()
        if not self.code.has_backward:
            raise InputError(
                f"is part of the gradient, and its Python class {self.code.class_name} has no backward; define it, or "
                "set propagate_down: false",
                path=self.path or None,
                layer=self.name,
            )
        overwritten = {f"x{bottom}": f"y{top}" for top, bottom in self.in_place}
        reads = roles("x", len(self.bottoms)) if "bottom" in self._reads else ()
        reads = tuple(overwritten.get(role, role) for role in reads)
        reads += roles("y", len(self.tops)) if "top" in self._reads else ()
        reads += (*roles("dy", len(self.tops)), *roles("w", len(self.params)))
        return (Step("backward", tuple(dict.fromkeys(reads)), tuple(wants)),)


class UnloadedPython(Layer):
    """A layer whose class may not run: tops of given shapes, which a plan keeps or offloads, and no parameters."""

    type = "Python"
    bottom_range = (0, None)
    top_range = (0, None)
    recompute_kind = "never"

    def __init__(self, param: Message, phase: int, bottoms: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]):
        self.shapes = shapes
        super().__init__(param, phase, bottoms)

    def setup(self) -> None:
        self.tops = tuple(Tensor(shape) for shape in self.shapes)
        why = f"{_what(self.param)}; it is planned with the shapes given, and runs with {ALLOW}"
        self.record = ops.Python(self.bottoms, self.tops, why=why)

    def forward(self) -> Step:
        return Step("forward", roles("x", len(self.bottoms)), roles("y", len(self.tops)))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        bottoms, tops = len(self.bottoms), len(self.tops)
        reads = (*roles("x", bottoms), *roles("y", tops), *roles("dy", tops))
        return (Step("backward", reads, tuple(wants)),) if wants else ()


def make_python_layer(
    param: Message,
    phase: int,
    bottoms: Sequence[Tensor],
    inputs: Inputs,
    *,
    path: str,
    allowed: bool,
    batch: int | None = None,
    sources: bool = True,
    takes_inputs: bool = True,
    code: UserLayer | None = None,
) -> Layer:
    """The Python layer of `param` in the net at `path`: with its class, or replaced by the shapes in `inputs`.

    sources  whether layers without bottoms run; otherwise they only give their shapes
    batch    the batch size that the user gives to all inputs, which a Python source cannot obey
    takes_inputs   whether an error may advise to give `inputs`
    code     the user's layer, where another net of the same file has made it
    """
    given = [inputs[top] for top in param.top if top in inputs]
    if as_input(param, inputs):
        return FEED_LAYERS[param.type](param, phase, given)
    if not allowed and param.top and len(given) == len(param.top):
        _check_shapes(param, inputs)
        return UnloadedPython(param, phase, bottoms, given)
    if not allowed:
        remedy = f", or give the shapes of its tops, {shape_options(param)}" if takes_inputs and param.top else ""
        raise InputError(f"{_what(param)}; if you trust it, add {ALLOW}{remedy}")
    if batch is not None and not bottoms:
        what = f"has the batch size that its Python class {param.python_param.layer} gives it, and no other"
        raise InputError(f"{what}; leave --batch out, or give all shapes: {shape_options(param)}")
    made = Python(param, phase, bottoms, path=path, allowed=True, code=code)
    for name, top in zip(param.top, made.tops):
        if inputs.get(name, top.shape) != top.shape:
            what = f"is given the shape {Tensor(inputs[name])} for '{name}', which its Python class makes {top}"
            raise InputError(f"{what}; leave one of --input and --allow-python out")
    if bottoms or sources or not made.tops:
        return made
    param.type = "Input"
    return FEED_LAYERS[param.type](param, phase, [top.shape for top in made.tops])


def _what(param: Message) -> str:
    block = param.python_param
    return f"runs the class '{block.layer}' of the Python module '{block.module}', and a net executes no code unasked"


def _check_shapes(param: Message, inputs: Inputs) -> None:
    for top in param.top:
        shape = Tensor(inputs[top])
        if min(shape.shape, default=1) < 1 or shape.count > MAX_COUNT:
            raise InputError(f"is given the shape {shape} for '{top}'; give positive sizes, at most 2^31-1 in all")
