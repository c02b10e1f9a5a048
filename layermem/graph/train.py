"""The ops of a training step or a test of a net: roles become buffers, gradients accumulate, updates follow.

    forward    each layer in order; a net output is copied to the host right after it is computed
    backward   layers in reverse; the first reader to run writes a blob's diff, later ones accumulate into it
    update     as soon as a parameter's gradient is final and no later op reads the parameter.  A parameter without a
               gradient is updated too, as in Caffe: it decays, with a gradient filled with zero

With iter_size > 1 gradients are summed over several steps (sharing.py), and the updates form a separate graph
(`update_graph`) that runs once after all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from layermem import ops
from layermem.graph.device import Device
from layermem.graph.fusion import fuse
from layermem.graph.inplace_hazards import inplace_hazards
from layermem.graph.needs import Needs, needs_of, wants_of
from layermem.graph.net import Net
from layermem.graph.nodes import OpNode, op_nodes
from layermem.graph.op_builder import OpBuilder, role_map
from layermem.graph.ops import (
    BACKWARD,
    DATA,
    DIFF,
    FORWARD,
    GRADIENT,
    HISTORY,
    PARAMETER,
    STASH,
    STATE,
    UPDATE,
    Graph,
    Op,
)
from layermem.graph.rewrite import BOTTOM_MASK, offer_updates
from layermem.graph.time_blocks import in_time_blocks
from layermem.graph.warnings import net_warnings
from layermem.layers import Step
from layermem.ops import Tensor

__all__ = ["MOMENTUM", "UpdateRule", "forward_graph", "train_graph", "update_graph"]

HOLD = "hold"  # the op that reads the buffers held to the end of a step
SCALAR = Tensor(())
CLIP = "clip"  # the op that computes the norm of all gradients for clip_gradients
OVERFLOW = "overflow"  # the same op if only finite gradients are checked
ZERO = Step("fill", (), ("y0",), record=ops.Fill(0.0))


@dataclass(frozen=True)
class UpdateRule:
    """An update rule by Caffe's name (ops.RULES), and how many history blobs it has per parameter."""

    name: str
    history_count: int


MOMENTUM = UpdateRule("SGD", 1)  # the update that is planned without a solver


def train_graph(
    net: Net,
    device: Device,
    rule: UpdateRule | None = None,
    *,
    clip: bool = False,
    force_backward: bool = False,
    outputs: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    gradients: Sequence[str] = (),
    unfused: Collection[str] = (),
) -> Graph:
    """One training step of `net`.  Without a rule, gradients are held to the end and nothing is updated.

    keep        names of blobs that are held to the end of the step, data and gradient (diff_buffer)
    gradients   names of parameters whose gradients are held to the end of the step
    unfused     names of layers that are not fused with a layer after them
    """
    warnings = (*net_warnings(net), *inplace_hazards(net, wants_of(net, op_nodes(net), force_backward=force_backward)))
    unfused_blobs = {version for name in keep for version in net.versions[name]}  # computed as they are in Caffe
    unfused_blobs |= {*(outputs or ()), *_tops(net, unfused)}
    nodes = fuse(in_time_blocks(op_nodes(net), unfused_blobs), device.fusions, unfused_blobs)
    needs = needs_of(net, nodes, force_backward=force_backward)
    build = GraphBuilder(net, nodes, device, needs, rule is None)
    build.forward(outputs)
    build.backward()
    if rule is not None:
        build.zero_gradients()
        build.updates(rule, clip)
    build.hold_blobs(keep, UPDATE, gradients)
    return offer_updates(build.graph("train", warnings), device)


def forward_graph(
    net: Net,
    device: Device,
    outputs: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    unfused: Collection[str] = (),
) -> Graph:
    """A forward pass; nothing is stashed for a backward.  `keep` and `unfused` are as for train_graph."""
    unfused_blobs = {*(outputs or ()), *(net.blob_version(name) for name in keep), *_tops(net, unfused)}
    nodes = fuse(in_time_blocks(op_nodes(net), unfused_blobs), device.fusions, unfused_blobs)
    build = GraphBuilder(net, nodes, device, Needs.nothing(nodes), False)
    build.forward(outputs)
    build.hold_blobs(keep, FORWARD)
    return build.graph("test", net_warnings(net))


def update_graph(net: Net, device: Device, rule: UpdateRule, *, clip: bool = False, zeroes: bool = True) -> Graph:
    """The updates alone, over gradients held from earlier steps; each gradient is zeroed for the next ones.  Without
    `zeroes` only parameters and their state change, so that blobs that a step has held stay in the arena."""
    nodes = op_nodes(net)
    build = GraphBuilder(net, nodes, device, needs_of(net, nodes), True)
    build.holds_norm = not zeroes
    for name in build.updated:
        build.ops.buffer(name, PARAMETER, net.params[name].param.tensor, persistent=True)
        build.gradient(name)
    build.updates(rule, clip)
    for name in build.updated if zeroes else ():
        build.ops.add(f"{name}.zero", UPDATE, ZERO, {"y0": f"{name}.diff"})
    return build.graph("update")


def _tops(net: Net, layers: Collection[str]) -> set[str]:
    """The tops of the layers of these names."""
    return {top for node in net.nodes if node.layer.name in layers for top in node.tops}


class GraphBuilder:
    """Builds the ops of the nodes of `net` forward and backward, and the updates of the parameters."""

    def __init__(self, net: Net, nodes: Sequence[OpNode], device: Device, needs: Needs, held: bool):
        self.net, self.nodes, self.device, self.held = net, nodes, device, held
        self.needs = needs
        self.ops = OpBuilder(device, str(net.path))
        self.scaled = device.storage in ops.SCALED
        self.holds_norm = False  # whether the norm of all gradients shares its bytes with no other buffer
        self.seeded: set[str] = set()  # blobs whose gradient the host provides

    def graph(self, name: str, warnings: tuple[str, ...] = ()) -> Graph:
        built = self.ops
        return Graph(f"{self.net.name} {name}", built.buffers, tuple(built.ops), self.device.title, warnings)

    def gradient(self, parameter: str) -> str:
        tensor = self.net.params[parameter].param.tensor
        return self.ops.buffer(f"{parameter}.diff", GRADIENT, tensor, persistent=self.held)

    # -- forward -----------------------------------------------------------------------------------------------

    def forward(self, outputs: Sequence[str] | None) -> None:
        delivered = {*(self.net.outputs if outputs is None else outputs), *self.net.recorded}
        for index, node in enumerate(self.nodes):
            stash = {name: f"{node.emitter.name}.{name}" for name in self.needs.stash[index]}
            for name, buffer in stash.items():
                self.ops.buffer(buffer, STASH, node.emitter.stash[name])
            for blob, tensor in zip(node.tops, node.emitter.tops):
                self.ops.buffer(blob, DATA, tensor)
            for name in node.params:
                param = self.net.params[name].param
                self.ops.buffer(name, STATE if param.carried else PARAMETER, param.tensor, persistent=True)
            self._forward_op(index, node, {**_roles(node), **stash})
            for top in node.tops:
                if top in delivered:
                    step = Step("forward", ("x0",), (), record=ops.CopyOut(top))
                    self.ops.add(f"{top}.output", FORWARD, step, {"x0": top}, node=index)

    def _forward_op(self, index: int, node: OpNode, roles: dict[str, str]) -> None:
        name = f"{node.emitter.name}.forward"
        step, forward = node.emitter.recompute(), node.emitter.forward()
        recompute = None if step is None else self.ops.make_step(name, FORWARD, step, roles, node, index)
        op = self.ops.make_step(name, FORWARD, forward, roles, node, index)
        self.ops.ops.append(replace(op, recompute=recompute))

    # -- backward ----------------------------------------------------------------------------------------------

    def backward(self) -> None:
        for index in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[index]
            for i, weight in enumerate(node.loss_weights):
                if weight and self.needs.flows[index] and node.tops[i] not in self.seeded:
                    self._seed(node.tops[i], weight, index)
            if self.needs.wants[index]:
                self._backward_ops(index, node, self.needs.wants[index])

    def _seed(self, blob: str, weight: float, index: int) -> None:
        """The gradient of the objective with respect to a loss: its weight, times the loss scale if there is one."""
        diff = self.ops.buffer(f"{blob}.diff", DIFF, self.net.blobs[blob])
        step = Step("fill", (), ("y0",), record=ops.Fill(weight, self.scaled))
        self.ops.add(f"{blob}.seed", BACKWARD, step, {"y0": diff}, node=index)

    def _backward_ops(self, index: int, node: OpNode, wants: Collection[str]) -> None:
        emitter = node.emitter
        steps = emitter.backward(wants, self.needs.saved[index])
        read = {role for step in steps for role in step.reads}
        roles = {**_roles(node), **{name: f"{emitter.name}.{name}" for name in self.needs.stash[index]}}
        for i, top in enumerate(node.tops):
            diff = roles[f"dy{i}"] = f"{top}.diff"
            if f"dy{i}" in read and diff not in self.ops.written:  # no gradient reaches this top
                self.ops.buffer(diff, DIFF, emitter.tops[i])
                self.ops.add(f"{top}.zero", BACKWARD, ZERO, {"y0": diff}, node=index)
        for role in wants:
            i = int(role[2:])
            if role.startswith("dx"):
                roles[role] = self.ops.buffer(f"{node.bottoms[i]}.diff", DIFF, emitter.bottoms[i])
            else:
                roles[role] = self.gradient(node.params[i])
        for step in steps:
            self.ops.add_step(BACKWARD, step, roles, node, index)

    # -- updates -----------------------------------------------------------------------------------------------

    @property
    def updated(self) -> tuple[str, ...]:
        """Parameters that an update changes."""
        return (*self.needs.learned, *self.needs.unreached)

    def zero_gradients(self) -> None:
        """Append fills for the gradients of parameters that get none."""
        for name in self.needs.unreached:
            self.ops.add(f"{name}.zero", UPDATE, ZERO, {"y0": self.gradient(name)})

    def updates(self, rule: UpdateRule, clip: bool) -> None:
        """Append the updates, preceded by the norm of all gradients if they are clipped or scaled."""
        norm = self._norm(CLIP if clip else OVERFLOW) if self.needs.learned and (clip or self.scaled) else None
        self.ops.ops = with_updates(self.ops.ops, [self._update(rule, name, norm) for name in self.updated])

    def _norm(self, name: str) -> str:
        """The buffer with the norm of all gradients; it is copied to the host if it indicates an overflow."""
        norm = self.ops.buffer(f"{name}.norm", DIFF, SCALAR, persistent=self.holds_norm)
        diffs = {f"x{i}": f"{name}.diff" for i, name in enumerate(self.needs.learned)}
        step = Step("forward", tuple(diffs), ("y0",), record=ops.GradientNorm())
        self.ops.add(name, UPDATE, step, {**diffs, "y0": norm})
        if self.scaled:
            step = Step("forward", ("x0",), (), record=ops.CopyOut(norm))
            self.ops.add(f"{norm}.output", UPDATE, step, {"x0": norm})
        return norm

    def _update(self, rule: UpdateRule, name: str, norm: str | None) -> Op:
        param = self.net.params[name].param
        blobs = [
            self.ops.buffer(f"{name}.h{i}", HISTORY, param.tensor, persistent=True) for i in range(rule.history_count)
        ]
        state = role_map("h", blobs)
        roles = {"w0": name, "dw0": self.gradient(name), **state, **({} if norm is None else {"norm": norm})}
        scaled = self.scaled and norm is not None
        record = ops.Update(rule.name, name, param.tensor, param.lr_mult, param.decay_mult, scaled=scaled)
        reads = ("dw0",) if norm is None else ("dw0", "norm")
        step = Step("update", reads, (), ("w0", *state), flops=4 * param.tensor.count)
        op = self.ops.make(f"{name}.update", UPDATE, record, step, roles, node=-1)
        return replace(op, joins=rule.name) if ops.JOINED_UPDATES in self.device.fusions else op

    # -- held buffers ------------------------------------------------------------------------------------------

    def hold(self, name: str, kind: str, buffers: Sequence[str], node: int = -1) -> None:
        """Add an op that computes nothing and reads `buffers`, so that a plan has all of them resident there."""
        roles = role_map("x", buffers)
        step = Step("forward", tuple(roles), (), record=ops.Silence())
        self.ops.add(name, kind, step, roles, node=node)
        self.ops.ops[-1] = replace(self.ops.ops[-1], nbytes=0)

    def hold_blobs(self, names: Sequence[str], kind: str, parameters: Sequence[str] = ()) -> None:
        """Hold the data of blobs, and existing gradients of them and of parameters, to the end of the graph."""
        graph = self.graph("")
        gradients = (diff_buffer(self.net, name, graph) for name in names)
        buffers = [*(self.net.blob_version(name) for name in names), *(each for each in gradients if each is not None)]
        buffers += [diff for diff in (f"{name}.diff" for name in parameters) if diff in graph.buffers]
        if buffers:
            self.hold(HOLD, kind, buffers)


def with_updates(ops_: Sequence[Op], updates: Iterable[Op], together: Collection[str] = ()) -> list[Op]:
    """`ops_` with each update after the last op that touches its parameter or its inputs.  If that op belongs to a
    layer, the update follows the layer's last op, because the layer's forward may be recomputed until then.  The ops of
    the names `together` count as one layer: any of them may be recomputed until the last one has run."""
    end = {op.node_run: position for position, op in enumerate(ops_)}
    end_together = max((position for position, op in enumerate(ops_) if op.name in together), default=-1)
    last: dict[str, int] = {}
    for position, op in enumerate(ops_):
        of_layer = end[op.node_run] if op.node >= 0 else position
        last |= dict.fromkeys(op.touches, max(of_layer, end_together if op.name in together else -1))
    after: dict[int, list[Op]] = {}
    for update in updates:
        position = max(last.get(update.roles[role], -1) for role in ("w0", "dw0", "norm") if role in update.roles)
        after.setdefault(position, []).append(update)
    merged = list(after.get(-1, ()))
    for position, op in enumerate(ops_):
        merged += [op, *after.get(position, ())]
    return merged


def with_updates_placed(ops_: Sequence[Op], together: Collection[str] = ()) -> list[Op]:
    """`ops_` in their order, with the updates placed by with_updates() and the held buffers at the end."""
    updates = [op for op in ops_ if isinstance(op.record, ops.Update)]
    others = [op for op in ops_ if not isinstance(op.record, ops.Update) and op.name != HOLD]
    return [*with_updates(others, updates, together), *(op for op in ops_ if op.name == HOLD)]


def diff_buffer(net: Net, name: str, graph: Graph) -> str | None:
    """The buffer with Caffe's diff of `name` after backward, the gradient of its oldest version; None without one.

    Backward of a ReLU in an epilogue turns the gradient of its output into that of its input, on the same bytes.
    """
    first, *later = (f"{version}.diff" for version in net.versions[name])
    if first in graph.buffers:
        return first
    changed = [diff for diff in later[:1] if any(_clears(op, diff) for op in graph.ops)]
    return changed[0] if len(later) == 1 and changed else None


def _clears(op: Op, diff: str) -> bool:
    """Whether `op` turns the gradient `diff` into the one before a ReLU."""
    return (isinstance(op.record, ops.ReluMask) or BOTTOM_MASK in op.roles) and diff in (*op.updates, *op.writes)


def _roles(node: OpNode) -> dict[str, str]:
    return {**role_map("x", node.bottoms), **role_map("y", node.tops), **role_map("w", node.params)}
