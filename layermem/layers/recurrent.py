"""LSTM and RNN, unrolled over time, and LSTMUnit: one step of an LSTM after its inner products.

    x [T,N,K..], cont [T,N] (0 where a sequence begins, else 1), maybe a static input [N,S..]  ->  h [T,N,D] of an LSTM,
    o [T,N,D] of an RNN, D = num_output
    LSTM  gates_t = W_hc (cont_t h_{t-1}) + W_xc x_t + b_c [+ W_xc_static x_static],  c_t and h_t as in ops.LstmUnit
          parameters W_xc (4D,K), b_c (4D), [W_xc_static (4D,S)], W_hc (4D,D); the gates in the order i, f, o, g
    RNN   h_t = tanh(W_hh (cont_t h_{t-1}) + W_xh x_t + b_h [+ W_xh_static x_static]),  o_t = tanh(W_ho h_t + b_o)
          parameters W_xh (D,K), b_h (D), [W_xh_static (D,S)], W_hh (D,D), W_ho (D,D), b_o (D)

The layers of Caffe's unrolled net replace an LSTM or RNN, named `lstm/unit_1`, `lstm/gate_input_1` and so on, so that
planners see every time step.

blocks    W_xc x of a block of consecutive steps is one inner product: `lstm/W_xc_x` of the first block,
          `lstm/W_xc_x_from_9` of the block that begins with step 9.  There are as many blocks as have BLOCK_ROWS rows
          each, so the sums of a gradient depend on shapes alone.  Backward adds the gradient of W_xc up from the
          last block to the first, as that of W_hc from the last step to the first.  TimeSlice cuts x into blocks;
          where x is the top of another LSTM or RNN, graph/time_blocks.py removes it

state     h_0 and c_0 come from the previous step of the net, zeros at first.  StateRead copies the state to a blob,
          which the step keeps (it is not recomputed), and StateWrite sets it as soon as h_T is computed, once a step
exposed   with expose_hidden h_0 (and c_0) are bottoms, h_T (and c_T) are tops.  No gradient flows through them: Caffe
          shares their data only
memory    LSTMUnit stashes nothing: backward recomputes its gates, where Caffe keeps them
source    Caffe recurrent_layer.cpp, lstm_layer.cpp, lstm_unit_layer.cpp, rnn_layer.cpp
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from layermem import ops
from layermem.errors import InputError
from layermem.layers.activation import elementwise_overlays
from layermem.layers.base import Y_OVER_X, Layer, Message, Step, Tensor, layer
from layermem.layers.composite import composite
from layermem.layers.shape import Slice
from layermem.proto import schema

MAX_STEPS = 10_000  # of a sequence, each of which is several ops: planning these takes half a minute
BLOCK_ROWS = 1024  # of an inner product of x: with fewer, reading the weights and adding up their gradient take longer
RECURRENT = ("LSTM", "RNN")  # layers unrolled here: axis 0 of their bottoms is time, axis 1 the items


@layer("LSTMUnit")
class LSTMUnit(Layer):
    """c [1,N,D], gates [1,N,4D], cont [1,N] -> c and h of the next step, [1,N,D] both."""

    caffe_reads = "xy"
    record: ops.LstmUnit
    bottom_range = (3, 3)
    top_range = (2, 2)

    def setup(self) -> None:
        c, gates, cont = self.bottoms
        items, cells = c.shape[1:] if len(c.shape) == 3 else (0, 0)
        if (c.shape, gates.shape, cont.shape) != ((1, items, cells), (1, items, 4 * cells), (1, items)):
            raise InputError(f"has bottoms of {c}, {gates} and {cont}; give 1 x N x D, 1 x N x 4D and 1 x N")
        self.tops = (c, c)
        self.record = ops.LstmUnit(items, cells)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the gates and their diffs."""
        return 2 * self.bottoms[1].nbytes

    def index_limit(self, bottom: int) -> int | None:
        return 2 if bottom == 2 else None  # cont is 0 or 1

    def forward(self) -> Step:
        overlays = (Y_OVER_X,)
        return Step("forward", ("x0", "x1", "x2"), ("y0", "y1"), overlays=overlays, flops=30 * self.record.count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(role for role in ("dx0", "dx1") if role in wants)
        if not writes:
            return ()
        overlays = elementwise_overlays("dx0", "x0", "dy0", "dy1") if "dx0" in writes else ()
        overlays += elementwise_overlays("dx1", "x1") if "dx1" in writes else ()
        reads = ("x0", "x1", "x2", "dy0", "dy1")
        return (Step("backward", reads, writes, overlays=overlays, flops=50 * self.record.count),)


# -- state from step to step -------------------------------------------------------------------------------------------


class StateLayer(Layer):
    """A layer with one parameter, the state, which no solver updates."""

    recompute_kind = "never"

    def carry(self, x: Tensor) -> None:
        param = self.make_param(0, x.shape, schema.FillerParameter())
        self.params = (replace(param, lr_mult=0.0, decay_mult=0.0, learned=False, carried=True),)
        self.record = ops.Carry(x)


@layer("StateRead", part=True)
class StateRead(StateLayer):
    """y = state.  A recomputation might read the next step's state, so y is kept instead."""

    bottom_range = (0, 0)

    def setup(self) -> None:
        (shape,) = self.param.input_param.shape
        self.tops = (Tensor(tuple(shape.dim)),)
        self.carry(self.tops[0])

    def forward(self) -> Step:
        return Step("load", ("w0",), ("y0",))


@layer("StateWrite", part=True)
class StateWrite(StateLayer):
    """state = x, once per step of the net."""

    shares_data = shares_diff = True
    in_caffe = False
    top_range = (0, 0)

    def setup(self) -> None:
        self.carry(self.bottoms[0])

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the copy of c_T that Caffe's net makes: a Split, whose top has a diff."""
        return self.bottoms[0].nbytes if self.name.endswith("/c_T") else 0

    def forward(self) -> Step:
        return Step("store", ("x0",), (), ("w0",))


@layer("Exposed", part=True)
class Exposed(Layer):
    """y = x, without a gradient."""

    shares_data = shares_diff = True
    in_caffe = has_gradient = False

    def setup(self) -> None:
        self.tops = self.bottoms
        self.record = ops.Split(self.bottoms[0], 1)

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the copy of c_T that Caffe's net makes: a Split, whose top has a diff."""
        return self.bottoms[0].nbytes if self.name.endswith("/c_T") else 0

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",), overlays=(Y_OVER_X,))


@layer("TimeSlice", part=True)
class TimeSlice(Slice):
    """x [T,N,K..] cut into blocks of time steps, each of which an inner product reads."""

    def setup(self) -> None:
        super().setup()
        self.shares_data = self.shares_diff = True  # Caffe's inner product reads x itself


# -- unrolling ---------------------------------------------------------------------------------------------------------


class Unrolled:
    """Makes the parts of a layer that is unrolled over time.

    states   names of the blobs that pass from step to step, without the time index
    gates    number of inner products that make the input of one step: 4 in an LSTM
    """

    def __init__(self, whole: Message, bottoms: Sequence[Tensor], states: Sequence[str], gates: int):
        self.whole, self.bottoms, self.states = whole, bottoms, states
        p = whole.recurrent_param
        self.exposed = len(states) if p.expose_hidden else 0
        self._check_counts()
        if p.num_output < 1:
            raise InputError("has num_output 0; set recurrent_param { num_output } to at least 1")
        self.static = len(bottoms) - self.exposed == 3
        self.steps, self.items, self.outputs = self._sizes(bottoms)
        self.times = range(1, self.steps + 1)
        count = max(1, self.steps // -(-BLOCK_ROWS // self.items))
        ends = [self.steps * number // count for number in range(count + 1)]
        self.blocks = [self.times[begin:end] for begin, end in pairwise(ends)]
        self.gates, self.p = gates * p.num_output, p
        self.propagate = list(whole.propagate_down) or [True] * len(bottoms)

    def _check_counts(self) -> None:
        least, tops = 2 + self.exposed, 1 + self.exposed
        kind = self.whole.type + " with expose_hidden" * bool(self.exposed)
        for side, names, most, wanted in (
            ("bottom", self.whole.bottom, least + 1, f"{least} or {least + 1}"),
            ("top", self.whole.top, tops, f"{tops}"),
        ):
            if not (least if side == "bottom" else tops) <= len(names) <= most:
                count = f"{len(names)} {side}{'s' * (len(names) != 1)}"
                raise InputError(f"has {count}; {kind} takes {wanted}: add or remove '{side}:' lines")
        for field, values, names in (
            ("propagate_down", self.whole.propagate_down, self.whole.bottom),
            ("loss_weight", self.whole.loss_weight, self.whole.top),
        ):
            if len(values) not in (0, len(names)):
                raise InputError(f"gives {len(values)} {field} values for {len(names)} blobs; give one each, or none")

    def _sizes(self, bottoms: Sequence[Tensor]) -> tuple[int, int, int]:
        """Numbers of steps, items and outputs."""
        x, cont = bottoms[:2]
        if len(x.shape) < 3 or cont.shape != x.shape[:2]:
            raise InputError(
                f"has bottoms of {x} and {cont}; give T x N x K, steps first, and T x N numbers that say where a "
                "sequence continues (1) or begins (0)"
            )
        steps, items = cont.shape
        if steps < 1 or items < 1:
            raise InputError(f"has a first bottom of {x}; give at least one step and one item")
        if steps > MAX_STEPS:
            raise InputError(
                f"has {steps:,} time steps, each of which is planned; give at most {MAX_STEPS:,} at a time"
            )
        if self.static and (not bottoms[2].shape or bottoms[2].shape[0] != items):
            raise InputError(f"has a static bottom of {bottoms[2]} beside one of {x}; give {items} x S")
        hidden = (1, items, self.whole.recurrent_param.num_output)
        for name, bottom in zip(self.states, bottoms[len(bottoms) - self.exposed :] if self.exposed else ()):
            if bottom.shape != hidden:
                raise InputError(f"has a bottom {name}_0 of {bottom}; give {Tensor(hidden)}")
        return steps, items, hidden[2]

    # -- parts -------------------------------------------------------------------------------------------------

    def name(self, name: str) -> str:
        return f"{self.whole.name}/{name}"

    def part(self, name: str, kind: str, bottoms: Sequence[str], *tops: str) -> Message:
        """A layer `name`; its top has that name too unless `tops` names others."""
        name = self.name(name)
        return schema.LayerParameter(name=name, type=kind, bottom=bottoms, top=tops or (name,), phase=self.whole.phase)

    def product(
        self,
        name: str,
        bottom: str,
        first: int,
        shared: str,
        *,
        axis: int = 2,
        bias: bool = False,
        propagate: bool = True,
    ) -> Message:
        """An inner product with parameter `first` of the layer and, as its bias, the next one.

        shared   name of the first if several parts share it, optionally a blank and the name of the bias; or ""
        """
        part = self.part(name, "InnerProduct", [bottom])
        q = part.inner_product_param
        q.num_output, q.bias_term, q.axis = self.gates, bias, axis
        q.weight_filler.CopyFrom(self.p.weight_filler)
        if bias:
            q.bias_filler.CopyFrom(self.p.bias_filler)
        for index in range(first, first + 1 + bias):
            block = part.param.add()
            if index < len(self.whole.param):
                block.CopyFrom(self.whole.param[index])
            if shared and not block.name:
                block.name = self.name(shared.split()[index - first])
        part.propagate_down.append(propagate)
        return part

    def check_params(self, count: int) -> None:
        given = len(self.whole.param)
        if given > count:
            raise InputError(f"has {given} 'param' blocks for {count} parameters; remove some")

    def hidden(self) -> Iterator[Message]:
        """Yield the parts that make h_0 and c_0, unless they are bottoms."""
        for name in self.states[self.exposed :]:
            read = self.part(f"{name}_0", "StateRead", ())
            read.input_param.shape.add(dim=(1, self.items, self.outputs))
            read.param.add(name=self.name(name))
            yield read

    def at(self, name: str, step: int) -> str:
        """The blob `name` after `step` steps."""
        if step == 0 and self.exposed:
            return str(self.whole.bottom[len(self.bottoms) - self.exposed + self.states.index(name)])
        return self.name(f"{name}_{step}")

    def parts(
        self, product: str, static: str, blob: str, step: Callable[[int], Iterator[Message]]
    ) -> Iterator[Message]:
        """Yield all parts: `step` yields those of a time step; its `blob` is the step's part of the top.  The product
        cont_t h_{t-1} follows step t-1, so that every other reader of h_{t-1} comes behind it."""
        yield from self.hidden()
        yield self.cut("cont_slice", "Slice", self.whole.bottom[1], [f"cont_{t}" for t in self.times], propagate=False)
        if len(self.blocks) > 1:
            yield self.cut_into_blocks()
        yield self.continued(1)
        for block in self.blocks:
            yield from self.block_input(product, block)
            if self.static and block is self.blocks[0]:
                yield from self.static_input(static)
            for t in block:
                yield from step(t)
                if t < self.steps:
                    yield self.continued(t + 1)
        yield from self.results(blob)

    def cut_into_blocks(self) -> Message:
        tops = [f"x_from_{block[0]}" for block in self.blocks]
        part = self.cut("x_slice", "TimeSlice", self.whole.bottom[0], tops, propagate=self.propagate[0])
        part.slice_param.slice_point.extend(block[0] - 1 for block in self.blocks[1:])
        return part

    def static_input(self, name: str) -> Iterator[Message]:
        flat = self.product(f"{name}_flat", self.whole.bottom[2], 2, "", axis=1, propagate=self.propagate[2])
        yield flat
        shaped = self.part(name, "Reshape", flat.top)
        shaped.reshape_param.shape.dim.extend((1, -1, self.gates))
        yield shaped

    def block_input(self, product: str, block: range) -> Iterator[Message]:
        """Yield the inner product of x for a block of steps, and a part that cuts it into steps."""
        first = block[0]
        name = product if first == 1 else f"{product}_from_{first}"
        x = self.whole.bottom[0] if len(self.blocks) == 1 else self.name(f"x_from_{first}")
        weights = product.removesuffix("_x")
        shared = f"{weights} b_{weights[-1]}"  # W_xc and b_c, W_xh and b_h
        yield self.product(name, x, 0, shared, bias=True, propagate=self.propagate[0])
        yield self.cut(f"{name}_slice", "Slice", self.name(name), [f"{product}_{t}" for t in block])

    def cut(self, name: str, kind: str, bottom: str, tops: Sequence[str], *, propagate: bool = True) -> Message:
        """A part that splits a blob along the time steps, into equal parts unless the caller names others."""
        part = self.part(name, kind, [bottom], *(self.name(top) for top in tops))
        part.slice_param.axis = 0
        part.propagate_down.append(propagate)
        return part

    def continued(self, step: int) -> Message:
        """The product cont_t h_{t-1}."""
        part = self.part(f"h_conted_{step - 1}", "Scale", [self.at("h", step - 1), self.name(f"cont_{step}")])
        part.scale_param.axis = 0
        part.propagate_down.extend((step > 1, False))  # h_0 comes from an earlier step of the net
        return part

    def total(self, name: str, bottoms: Sequence[str]) -> Message:
        return self.part(name, "Eltwise", [self.name(each) for each in bottoms])

    def results(self, blob: str) -> Iterator[Message]:
        """Yield the parts after the last step: the state, or the tops that expose it, and the joined blobs of all
        steps."""
        weights = list(self.whole.loss_weight)
        for index, name in enumerate(self.states):
            last = self.at(name, self.steps)
            if self.exposed:
                part = self.part(f"{name}_T", "Exposed", [last], self.whole.top[1 + index])
                part.loss_weight.extend(weights[1 + index : 2 + index])
            else:
                part = self.part(f"{name}_T", "StateWrite", [last])
                part.ClearField("top")
                part.param.add(name=self.name(name))
            yield part
        joined = self.part("joined", "Concat", [self.name(f"{blob}_{t}") for t in self.times])
        joined.concat_param.axis = 0
        joined.name = self.whole.name
        joined.top[:] = self.whole.top[:1]
        joined.loss_weight.extend(weights[:1])
        yield joined


@composite("LSTM")
def lstm(whole: Message, bottoms: Sequence[Tensor], makers: Sequence[Layer]) -> Iterator[Message]:
    net = Unrolled(whole, bottoms, ("h", "c"), gates=4)
    net.check_params(3 + net.static)
    static = ["W_xc_x_static"] * net.static

    def step(t: int) -> Iterator[Message]:
        yield net.product(f"W_hc_h_{t - 1}", net.name(f"h_conted_{t - 1}"), 2 + net.static, "W_hc")
        yield net.total(f"gate_input_{t}", [f"W_hc_h_{t - 1}", f"W_xc_x_{t}", *static])
        before = [net.at("c", t - 1), net.name(f"gate_input_{t}"), net.name(f"cont_{t}")]
        unit = net.part(f"unit_{t}", "LSTMUnit", before, net.name(f"c_{t}"), net.name(f"h_{t}"))
        unit.propagate_down.extend((t > 1, True, False))
        yield unit

    return net.parts("W_xc_x", "W_xc_x_static", "h", step)


@composite("RNN")
def rnn(whole: Message, bottoms: Sequence[Tensor], makers: Sequence[Layer]) -> Iterator[Message]:
    net = Unrolled(whole, bottoms, ("h",), gates=1)
    net.check_params(5 + net.static)
    static = ["W_xh_x_static"] * net.static

    def step(t: int) -> Iterator[Message]:
        yield net.product(f"W_hh_h_{t - 1}", net.name(f"h_conted_{t - 1}"), 2 + net.static, "W_hh")
        yield net.total(f"h_neuron_input_{t}", [f"W_hh_h_{t - 1}", f"W_xh_x_{t}", *static])
        yield net.part(f"h_{t}", "TanH", [net.name(f"h_neuron_input_{t}")])
        yield net.product(f"W_ho_h_{t}", net.name(f"h_{t}"), 3 + net.static, "W_ho b_o", bias=True)
        yield net.part(f"o_{t}", "TanH", [net.name(f"W_ho_h_{t}")])

    return net.parts("W_xh_x", "W_xh_x_static", "o", step)
