"""The ops of a training step, or of a test, of a net: roles become buffers, gradients meet, updates follow.

    forward    each layer in order; a net output is handed to the host right after it is made
    backward   layers in reverse; the first reader to run writes a blob's diff, later ones add to it
    update     as soon as a parameter's gradient is final and no op reads the parameter any more

With `held` gradients (iter_size > 1) every gradient is added to a persistent buffer, and the updates form a graph of
their own (`update_graph`), run once for several steps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from layermem import ops
from layermem.errors import InputError
from layermem.graph.fused_update import offer_fused_updates
from layermem.graph.fusion import fused
from layermem.graph.inplace_hazards import traps
from layermem.graph.needs import Needs, needs_of
from layermem.graph.net import Net, Node
from layermem.graph.ops import (
    BACKWARD,
    DATA,
    DIFF,
    FORWARD,
    GRADIENT,
    HISTORY,
    PARAMETER,
    STASH,
    UPDATE,
    Buffer,
    BufferOverlay,
    Graph,
    Op,
    unique,
)  # fmt: skip
from layermem.layers import Overlay, Step, Tensor
from layermem.ops import OpRecord


class Device(Protocol):
    """What a graph asks of a device: a plan is made for one."""

    fuses: frozenset[str]

    @property
    def title(self) -> str: ...

    def nbytes(self, tensor: Tensor) -> int: ...

    def workspace(self, kernel: str, layer: object, roles: Collection[str], accumulates: Collection[str]) -> int: ...


@dataclass(frozen=True)
class Rule:
    """An update rule: its kernel and how many history blobs it keeps per parameter."""

    kernel: str
    histories: int


@dataclass(frozen=True)
class Parameter:
    """What an update kernel needs to know beside its buffers."""

    name: str
    tensor: Tensor
    lr_mult: float
    decay_mult: float


SCALAR = Tensor(())
CLIP = "clip.norm"
STEP_OF = {ops.Fill: "fill", ops.CopyOut: "forward", ops.GradientNorm: "forward"}


def train_graph(
    net: Net, device: Device, rule: Rule | None = None, *, held: bool = False, clip: bool = False,
    force_backward: bool = False, outputs: Sequence[str] | None = None,
) -> Graph:  # fmt: skip
    """One training step of `net`.  Without a rule, gradients are made and kept to the end but nothing is updated."""
    warnings = traps(net, needs_of(net, force_backward=force_backward))
    net = fused(net, device.fuses, outputs or ())
    build = _Builder(net, device, needs_of(net, force_backward=force_backward), held or rule is None)
    build.forward(outputs)
    build.backward()
    if rule is not None and not held:
        build.updates(rule, clip)
    return offer_fused_updates(build.graph("train", warnings), device)


def forward_graph(net: Net, device: Device, outputs: Sequence[str] | None = None) -> Graph:
    """A forward pass; nothing is left for a backward."""
    net = fused(net, device.fuses, outputs or ())
    build = _Builder(net, device, Needs.nothing(net), False)
    build.forward(outputs)
    return build.graph("test")


def update_graph(net: Net, device: Device, rule: Rule, *, clip: bool = False) -> Graph:
    """The updates alone, over gradients held from earlier steps; each gradient is zeroed for the next ones."""
    build = _Builder(net, device, needs_of(net), True)
    for name in build.needs.learned:
        build.buffer(name, PARAMETER, net.params[name].param.tensor, persistent=True)
        build.gradient(name)
    build.updates(rule, clip)
    for name in build.needs.learned:
        build.op(f"{name}.zero", UPDATE, "Fill.zero", None, ops.Fill(0.0), {"y0": f"{name}.diff"}, writes=("y0",))
    return build.graph("update")


class _Builder:
    def __init__(self, net: Net, device: Device, needs: Needs, held: bool):
        self.net, self.device, self.needs, self.held = net, device, needs, held
        self.buffers: dict[str, Buffer] = {}
        self.ops: list[Op] = []
        self.written: set[str] = set()  # diffs that some op has written in this step

    def graph(self, name: str, warnings: tuple[str, ...] = ()) -> Graph:
        return Graph(f"{self.net.name} {name}", self.buffers, tuple(self.ops), self.device.title, warnings)

    def buffer(self, name: str, kind: str, tensor: Tensor, persistent: bool = False) -> str:
        known = self.buffers.setdefault(name, Buffer(name, kind, tensor, self.device.nbytes(tensor), persistent))
        if known.kind != kind:
            raise InputError(
                f"needs the name '{name}' twice, for its {known.kind} and its {kind}; rename the blob or the layer",
                path=str(self.net.path),
            )
        return name

    def gradient(self, parameter: str) -> str:
        tensor = self.net.params[parameter].param.tensor
        return self.buffer(f"{parameter}.diff", GRADIENT, tensor, persistent=self.held)

    # -- forward -----------------------------------------------------------------------------------------------

    def forward(self, outputs: Sequence[str] | None) -> None:
        wanted = set(self.net.outputs if outputs is None else outputs)
        for index, node in enumerate(self.net.nodes):
            stash = {name: f"{node.layer.name}.{name}" for name in self.needs.stash[index]}
            for name, buffer in stash.items():
                self.buffer(buffer, STASH, node.layer.stash[name])
            for blob, tensor in zip(node.tops, node.layer.tops):
                self.buffer(blob, DATA, tensor)
            for name in node.params:
                self.buffer(name, PARAMETER, self.net.params[name].param.tensor, persistent=True)
            roles = {**_roles("x", node.bottoms), **_roles("y", node.tops), **_roles("w", node.params), **stash}
            self._forward_op(index, node, roles)
            for top in node.tops:
                if top in wanted:
                    self.op(
                        f"{top}.output",
                        FORWARD,
                        "Net.output",
                        top,
                        ops.CopyOut(top),
                        {"x0": top},
                        reads=("x0",),
                        node=index,
                    )

    def _forward_op(self, index: int, node: Node, roles: dict[str, str]) -> None:
        layer = node.layer
        name = f"{layer.name}.forward"
        recompute_step = layer.recompute()
        recompute = None
        if recompute_step is not None:
            recompute = self._make(name, FORWARD, layer, recompute_step, roles, index, node)
        op = self._make(name, FORWARD, layer, layer.forward(), roles, index, node)
        self.ops.append(replace(op, recompute=recompute))

    # -- backward ----------------------------------------------------------------------------------------------

    def backward(self) -> None:
        for index in range(len(self.net.nodes) - 1, -1, -1):
            node = self.net.nodes[index]
            for i, weight in enumerate(node.loss_weights):
                if weight and self.needs.flows[index]:
                    self._seed(node.tops[i], weight, index)
            wants = self.needs.wants[index]
            if wants:
                self._backward_ops(index, node, wants)

    def _seed(self, blob: str, weight: float, index: int) -> None:
        diff = self.buffer(f"{blob}.diff", DIFF, self.net.blobs[blob])
        self.op(
            f"{blob}.seed", BACKWARD, "Fill.seed", weight, ops.Fill(weight), {"y0": diff}, writes=("y0",), node=index
        )

    def _backward_ops(self, index: int, node: Node, wants: Collection[str]) -> None:
        layer = node.layer
        steps = layer.backward(wants, self.needs.saved[index])
        read = {role for step in steps for role in step.reads}
        roles = {**_roles("x", node.bottoms), **_roles("y", node.tops), **_roles("w", node.params)}
        roles |= {name: f"{layer.name}.{name}" for name in self.needs.stash[index]}
        for i, top in enumerate(node.tops):
            diff = roles[f"dy{i}"] = f"{top}.diff"
            if f"dy{i}" in read and diff not in self.written:  # nobody's gradient reaches this top
                self.buffer(diff, DIFF, layer.tops[i])
                self.op(
                    f"{top}.zero", BACKWARD, "Fill.zero", None, ops.Fill(0.0), {"y0": diff}, writes=("y0",), node=index
                )
        for role in wants:
            i = int(role[2:])
            if role.startswith("dx"):
                roles[role] = self.buffer(f"{node.bottoms[i]}.diff", DIFF, layer.bottoms[i])
            else:
                roles[role] = self.gradient(node.params[i])
        for step in steps:
            self.ops.append(self._make(f"{layer.name}.{step.step}", BACKWARD, layer, step, roles, index, node))

    # -- updates -----------------------------------------------------------------------------------------------

    def updates(self, rule: Rule, clip: bool) -> None:
        """Append the updates, each right after the last op that touches its parameter or its gradient; or after the
        last one of that op's layer, since until then the layer's forward may have to run again."""
        if clip:
            norm = self.buffer(CLIP, DIFF, SCALAR)
            diffs = {f"x{i}": f"{name}.diff" for i, name in enumerate(self.needs.learned)}
            self.op(
                "clip",
                UPDATE,
                "Clip.norm",
                None,
                ops.GradientNorm(),
                {**diffs, "y0": norm},
                reads=tuple(diffs),
                writes=("y0",),
            )
        end = {op.node: position for position, op in enumerate(self.ops)}
        last = {buffer: end[op.node] for op in self.ops for buffer in op.touches}
        after: dict[int, list[Op]] = {}
        for name in self.needs.learned:
            op = self._update(rule, name, clip)
            after.setdefault(max(last.get(b, -1) for b in (name, f"{name}.diff")), []).append(op)
        merged = list(after.get(-1, ()))
        for position, op in enumerate(self.ops):
            merged += [op, *after.get(position, ())]
        self.ops = merged

    def _update(self, rule: Rule, name: str, clip: bool) -> Op:
        param = self.net.params[name].param
        history = [self.buffer(f"{name}.h{i}", HISTORY, param.tensor, persistent=True) for i in range(rule.histories)]
        roles = {"w0": name, "dw0": self.gradient(name), **_roles("h", history), **({"norm": CLIP} if clip else {})}
        what = Parameter(name, param.tensor, param.lr_mult, param.decay_mult)
        reads = ("dw0", "norm") if clip else ("dw0",)
        record = ops.Update(rule.kernel, name, param.tensor, param.lr_mult, param.decay_mult)
        updates, flops = ("w0", *_roles("h", history)), 4 * param.tensor.count
        step = Step("update", reads, (), updates, flops=flops, record=record)
        return self._make(f"{name}.update", UPDATE, what, step, roles, -1, None, kernel=f"{rule.kernel}.update")

    # -- ops ---------------------------------------------------------------------------------------------------

    def op(self, name: str, kind: str, kernel: str, layer: object, record: OpRecord, roles: dict[str, str], *,
           reads: tuple[str, ...] = (), writes: tuple[str, ...] = (), node: int = -1) -> None:  # fmt: skip
        step = Step(STEP_OF[type(record)], reads, writes, record=record)
        self.ops.append(self._make(name, kind, layer, step, roles, node, None, kernel=kernel))

    def _make(self, name: str, kind: str, layer: object, step: Step, roles: dict[str, str], index: int,
              node: Node | None, kernel: str = "") -> Op:  # fmt: skip
        """An op of `step`, with roles that nobody reads left out and gradients that exist already added to."""
        used = {r: roles[r] for r in (*step.reads, *step.updates, *step.writes) if r in roles}
        kernel = kernel or f"{layer.type}.{step.step}"  # type: ignore[attr-defined]
        record = step.record or layer.record  # type: ignore[attr-defined]
        accumulates, added_to = self._accumulates(used, step) if kind == BACKWARD else ((), ())
        reads = unique(used[r] for r in step.reads if r in used)
        updates = unique((*(used[r] for r in step.updates if r in used), *added_to))
        writes = unique(used[r] for r in step.writes if r in used and used[r] not in updates)
        reads = tuple(b for b in reads if b not in updates)
        overlays = () if node is None else self._overlays(step, used, accumulates, node)
        return Op(
            name, kind, kernel, layer, used, reads, writes, updates, accumulates, overlays,
            self.device.workspace(kernel, layer, used.keys(), accumulates),
            step.flops, sum(self.buffers[b].nbytes for b in (*reads, *updates, *updates, *writes)), node=index,
            record=record, step=step.step, layer_name="" if node is None else node.layer.name,
        )  # fmt: skip

    def _accumulates(self, used: dict[str, str], step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Roles whose buffer holds an earlier part of the same gradient, from another reader, role or step; and
        those of the buffers that held one before this op."""
        held = {b for b in used.values() if b in self.written or self.buffers[b].persistent}
        found = []
        for role in step.writes:
            buffer = used.get(role)
            if buffer is None or self.buffers[buffer].kind not in (DIFF, GRADIENT):
                continue
            if buffer in self.written or buffer in held:
                found.append(role)
            self.written.add(buffer)
        return tuple(found), unique(used[role] for role in found if used[role] in held)

    def _overlays(
        self, step: Step, used: dict[str, str], accumulates: Collection[str], node: Node
    ) -> tuple[BufferOverlay, ...]:
        named_once = {b for b in used.values() if list(used.values()).count(b) == 1}
        found = []
        for permission in step.overlays:
            out, over = used.get(permission.out), used.get(permission.over)
            if out is None or over is None or permission.out in accumulates or not {out, over} <= named_once:
                continue
            a, b = self.buffers[out], self.buffers[over]
            if a.nbytes == b.nbytes and not a.persistent and not b.persistent:
                found.append(BufferOverlay(out, over, _kind(permission, node)))
        return tuple(found)


def _kind(permission: Overlay, node: Node) -> str:
    """'inplace' where the user named one blob for both sides, else the layer's word."""
    if permission.kind == "intra":
        return permission.kind
    digits = [role[len(role.rstrip("0123456789")) :] for role in (permission.out, permission.over)]
    top, bottom = digits if permission.out.startswith("y") else reversed(digits)
    same = node.layer.param.top[int(top)] == node.layer.param.bottom[int(bottom)]
    return "inplace" if same else permission.kind


def _roles(stem: str, names: Sequence[str]) -> dict[str, str]:
    return {f"{stem}{i}": name for i, name in enumerate(names)}
