"""Turns the steps of layers, which speak of roles, into ops over named buffers.

A gradient with several parts is written by the first op to run and accumulated by the later ones; an op lists such a
buffer under `updates`, and the role under `accumulates`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from layermem.errors import InputError
from layermem.graph.device import Device
from layermem.graph.nodes import OpNode
from layermem.graph.ops import BACKWARD, DIFF, GRADIENT, Buffer, BufferOverlay, Op, unique
from layermem.layers import Overlay, Step
from layermem.ops import OpRecord, Tensor


class OpBuilder:
    """Makes the buffers and ops of a graph one by one.  `path` is the net's, for errors."""

    def __init__(self, device: Device, path: str):
        self.device, self.path = device, path
        self.buffers: dict[str, Buffer] = {}
        self.ops: list[Op] = []
        self.written: set[str] = set()  # gradients that an op has written in this step

    def buffer(self, name: str, kind: str, tensor: Tensor, persistent: bool = False) -> str:
        """Declare a buffer, if it is new, and return its name; InputError if the name is in use for another kind."""
        known = self.buffers.setdefault(name, Buffer(name, kind, tensor, self.device.nbytes(tensor), persistent))
        if known.kind != kind:
            raise InputError(
                f"needs the name '{name}' twice, for its {known.kind} and its {kind}; rename the blob or the layer",
                path=self.path,
            )
        return name

    def add(self, name: str, kind: str, step: Step, roles: Mapping[str, str], *, node: int = -1) -> None:
        """Append an op that belongs to no layer; `step` carries its record."""
        assert step.record is not None
        self.ops.append(self.make(name, kind, step.record, step, roles, node=node))

    def add_step(self, kind: str, step: Step, roles: Mapping[str, str], node: OpNode, index: int) -> None:
        """Append an op of node number `index`."""
        self.ops.append(self.make_step(f"{node.emitter.name}.{step.step}", kind, step, roles, node, index))

    def make_step(self, name: str, kind: str, step: Step, roles: Mapping[str, str], node: OpNode, index: int) -> Op:
        return self.make(name, kind, step.record or node.emitter.record, step, roles, node=index, of=node)

    def make(
        self,
        name: str,
        kind: str,
        record: OpRecord,
        step: Step,
        roles: Mapping[str, str],
        *,
        node: int,
        of: OpNode | None = None,
    ) -> Op:
        """Make the op of `step`; roles that are missing in `roles` are left out.  `of` is its node, if it has one."""
        used = {r: roles[r] for r in (*step.reads, *step.updates, *step.writes) if r in roles}
        accumulates, continued = self._accumulates(used, step) if kind == BACKWARD else ((), ())
        updates = unique((*(used[r] for r in step.updates if r in used), *continued))
        reads = tuple(b for b in unique(used[r] for r in step.reads if r in used) if b not in updates)
        writes = unique(used[r] for r in step.writes if r in used and used[r] not in updates)
        op = Op(
            name,
            kind,
            record,
            step.step,
            used,
            reads,
            writes,
            updates,
            accumulates,
            flops=step.flops,
            node=node,
            overlays=self._overlays(step, used, accumulates, of) if of is not None else (),
            layer_name=of.emitter.name if of is not None else "",
            layer_type=of.emitter.type if of is not None else "",
            layers=tuple(layer.name for layer in of.layers) if of is not None else (),
        )
        return priced(op, self.buffers, self.device)

    def _accumulates(self, used: Mapping[str, str], step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the roles whose buffer holds an earlier part of the same gradient, from another reader, role or step;
        and the buffers of these roles that held one before this op."""
        held = {b for b in used.values() if b in self.written or self.buffers[b].persistent}
        accumulates = []
        for role in step.writes:
            buffer = used.get(role)
            if buffer is None or self.buffers[buffer].kind not in (DIFF, GRADIENT):
                continue
            if buffer in self.written or buffer in held:
                accumulates.append(role)
            self.written.add(buffer)
        return tuple(accumulates), unique(used[role] for role in accumulates if used[role] in held)

    def _overlays(
        self, step: Step, used: Mapping[str, str], accumulates: Collection[str], node: OpNode
    ) -> tuple[BufferOverlay, ...]:
        """The permissions of `step` whose two buffers have one size, are transient, and have one role each."""
        if not step.overlays:
            return ()
        buffers = list(used.values())
        named_once = {b for b in buffers if buffers.count(b) == 1}
        overlays = []
        for permission in step.overlays:
            out, over = used.get(permission.out), used.get(permission.over)
            if out is None or over is None or permission.out in accumulates or not {out, over} <= named_once:
                continue
            a, b = self.buffers[out], self.buffers[over]
            if a.nbytes == b.nbytes and not a.persistent and not b.persistent:
                overlays.append(BufferOverlay(out, over, _overlay_kind(permission, node)))
        return tuple(overlays)


def priced(op: Op, buffers: Mapping[str, Buffer], device: Device) -> Op:
    """`op` with the bytes of memory that it moves, counting updated operands twice, and with its workspace sizes."""
    roles = op.roles.keys()
    return replace(
        op,
        nbytes=sum(buffers[b].nbytes for b in op.accesses),
        workspace_bytes=device.workspace_bytes(op.record, op.step, roles),
        host_workspace_bytes=device.host_workspace_bytes(op.record, op.step, roles),
    )


def on_roles(
    op: Op, roles: Mapping[str, str], buffers: Mapping[str, Buffer], device: Device, made: Collection[str] = ()
) -> Op:
    """`op` with exactly these operands: it updates and writes as before, also writes `made`, and reads the rest."""
    used = unique(roles.values())
    updates = tuple(b for b in op.updates if b in used)
    writes = tuple(b for b in used if b not in updates and (b in op.writes or b in made))
    changed = replace(
        op,
        roles=dict(roles),
        reads=tuple(b for b in used if b not in updates and b not in writes),
        writes=writes,
        updates=updates,
        accumulates=tuple(role for role in op.accumulates if role in roles),
        overlays=(),
        recompute=None,
    )
    return priced(changed, buffers, device)


def _overlay_kind(permission: Overlay, node: OpNode) -> str:
    """Return 'inplace' if the user gave one blob both names, otherwise the layer's kind."""
    if permission.kind == "intra":
        return permission.kind
    digits = [role[len(role.rstrip("0123456789")) :] for role in (permission.out, permission.over)]
    top, bottom = digits if permission.out.startswith("y") else reversed(digits)
    same = node.emitter.top_names[int(top)] == node.emitter.bottom_names[int(bottom)]
    return "inplace" if same else permission.kind


def role_map(stem: str, names: Sequence[str]) -> dict[str, str]:
    """role_map("x", ("data", "label")) -> {"x0": "data", "x1": "label"}"""
    return {f"{stem}{i}": name for i, name in enumerate(names)}
