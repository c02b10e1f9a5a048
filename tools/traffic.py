"""Counts the bytes of device memory that a training step on device cuda reads and writes, from its launches.

    python tools/traffic.py resnet50 --batch 128                    a net of prototxt/, without recomputation or
                                                                    offloading
    python tools/traffic.py net.prototxt --batch 64 --budget 4GB    the plan of `auto` within a budget
    python tools/traffic.py resnet50 --batch 128 --capability 90    as on compute capability 9.0, with warpgroups

Nothing runs, and no GPU is needed.  The training graph counts every operand of an op once (`operands`).  A launch moves
the arrays of its arguments (`moved`): BatchNorm reads its input for the statistics and again for the result, the parts
of a weight gradient are written and read, and an op without launches, such as a sum in place, moves nothing.  A launch
counts each array once, as if caches held all repeated reads, and completely, even if a stride skips elements; Concat,
Slice and Crop move as many bytes of each array as the smallest has.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from struct import unpack_from
from types import MappingProxyType

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import layermem  # noqa: E402
from layermem.backends.base import get_device  # noqa: E402
from layermem.backends.cuda.base import CudaCall, cuda_kernels  # noqa: E402
from layermem.backends.cuda.support.launch import Launch  # noqa: E402
from layermem.backends.cuda.support.struct_layout import layout  # noqa: E402
from layermem.backends.cuda.update import update_parameters  # noqa: E402
from layermem.backends.registry import narrow_roles, storage_of  # noqa: E402
from layermem.backends.struct_layout import Scalar, StructLayout  # noqa: E402
from layermem.graph.ops import Op  # noqa: E402
from layermem.ops import ITEMSIZE, Update  # noqa: E402
from layermem.schedule.ir import Instruction, Schedule  # noqa: E402
from layermem.schedule.joined import joined  # noqa: E402
from layermem.utils.units import parse_bytes  # noqa: E402

ARENA = 0x5A5A5A5A << 32  # assumed address of the arena: no two integers of a launch's arguments make such a word
ARENA_BYTES = 1 << 40
WORKSPACE = "workspace"
CHANNEL_SUMS = "channel_sums_"
PARTIAL = ("shape.copy_runs", "shape.crop")  # kernels that move a part of their arrays


@dataclass(frozen=True)
class Traffic:
    """Bytes of one instruction: of its operands in the graph, and moved by launches, in total and by kernel."""

    kernel: str
    operands: int
    moved: int
    launches: tuple[tuple[str, int], ...] = ()


def step_traffic(schedule: Schedule, precision: str = "fp32", capability: str = "") -> list[Traffic]:
    """The traffic of every instruction of the schedule, in order; `capability` as in CudaCall."""
    groups = joined(schedule.instructions)
    return [each for group in groups for each in _group_traffic(schedule, group, precision, capability)]


def _group_traffic(
    schedule: Schedule, group: Sequence[Instruction], precision: str, capability: str
) -> Iterator[Traffic]:
    """Yield the traffic of instructions that are launched together; the first one gets all moved bytes."""
    instruction, *others = group
    op = instruction.op
    if op is None:
        nbytes = schedule.residencies[instruction.reads[0]].nbytes
        yield Traffic(instruction.kind, nbytes, nbytes)
    elif not cuda_kernels.implements(op.record, op.step):  # batches, outputs, Python
        yield Traffic(op.kernel, op.nbytes, op.nbytes)
    else:
        launches, moved = group_launches(schedule, group, precision, capability=capability)
        names = [f"{launch.module}.{launch.function}" for launch in launches]
        yield Traffic(op.kernel, op.nbytes, sum(moved), tuple(zip(names, moved, strict=True)))
    yield from (Traffic(each.op.kernel, each.op.nbytes, 0) for each in others if each.op is not None)


def group_launches(
    schedule: Schedule,
    group: Sequence[Instruction],
    precision: str,
    dtypes: Mapping[str, str] = MappingProxyType({}),
    capability: str = "",
) -> tuple[Sequence[Launch], Sequence[int]]:
    """Bind ops that are launched together like the cuda device; return the launches and the bytes that each moves.
    `dtypes` are the element types of 16-bit buffers."""
    if len(group) == 1:
        op, spans = group[0].op, dict(_spans(schedule, group[0]))
        assert op is not None
        launches = list(cuda_kernels.bind(op.record, op.step, _call(op, spans, precision, dtypes, capability)))
        return launches, launches_bytes(launches, spans, [r for r, buffer in op.roles.items() if buffer in op.updates])
    updates, places, updated = [], {}, []
    for each in group:
        op, spans = each.op, dict(_spans(schedule, each))
        assert op is not None and isinstance(op.record, Update)
        updates.append((op.record, _call(op, spans, precision, dtypes, capability)))
        places |= {f"{role} of {op.name}": span for role, span in spans.items()}
        updated += [f"{role} of {op.name}" for role, buffer in op.roles.items() if buffer in op.updates]
    launches = [update_parameters(updates)]
    return launches, launches_bytes(launches, places, updated)


def _call(op: Op, spans: Mapping[str, range], precision: str, dtypes: Mapping[str, str], capability: str) -> CudaCall:
    by_role = {role: dtypes[buffer] for role, buffer in op.roles.items() if buffer in dtypes}
    return CudaCall(
        addresses={role: span.start for role, span in spans.items()},
        counts={role: len(span) // ITEMSIZE[by_role.get(role, "float32")] for role, span in spans.items()},
        accumulated=frozenset(op.accumulates),
        precision=precision,
        storage=storage_of(set(by_role.values())),
        narrow=narrow_roles(by_role),
        capability=capability,
    )


def launches_bytes(launches: Sequence[Launch], spans: Mapping[str, range], updated: Collection[str]) -> list[int]:
    """The bytes that each launch moves, if roles have the addresses `spans`; roles in `updated` are read and written,
    which arguments do not show if only one names them."""
    pointers = [_pointers(launch) for launch in launches]
    touched = Counter(chain(*pointers))
    read_too = {spans[role].start: len(spans[role]) for role in updated if touched[spans[role].start] == 1}
    return [
        _moved(launch, [min(_bytes_from(at, spans, touched), most) for at, most in zip(each, _most_of(launch))])
        + sum(read_too.get(at, 0) for at in each)
        for launch, each in zip(launches, pointers)
    ]


def _spans(schedule: Schedule, instruction: Instruction) -> Iterator[tuple[str, range]]:
    """Yield the addresses of each role."""
    assert instruction.op is not None
    for role, number in instruction.roles.items():
        residency = schedule.residencies[number]
        if residency.host:
            continue
        begin, end = 0, residency.nbytes
        if role in instruction.op.views:
            begin, end = instruction.op.views[role].span(residency.nbytes)
        yield role, range(ARENA + residency.offset + begin, ARENA + residency.offset + end)


def _pointers(launch: Launch) -> list[int]:
    """All pointers into the arena among the arguments, in order."""
    words = struct.unpack_from(f"<{len(launch.args) // 8}Q", launch.args)
    return [word for word in words if ARENA <= word < ARENA + ARENA_BYTES]


def _moved(launch: Launch, nbytes: Sequence[int]) -> int:
    """Bytes that a launch moves, given the bytes of its arrays."""
    if nbytes and f"{launch.module}.{launch.function}".startswith(PARTIAL):
        return len(nbytes) * min(nbytes)
    return sum(nbytes)


def _bytes_from(address: int, spans: Mapping[str, range], touched: Collection[int]) -> int:
    """Bytes after a pointer: the rest of its role; in the workspace, up to the next pointer."""
    for role, span in spans.items():
        if address in span and role != WORKSPACE:
            return span.stop - address
    workspace = spans[WORKSPACE]  # KeyError: a kernel was given memory that its op does not have
    behind = [other for other in touched if other > address and other in workspace]
    return min(behind, default=workspace.stop) - address


def _most_of(launch: Launch) -> Iterator[int]:
    """Upper bounds of the bytes of a launch's arrays, in the order of its pointers: sums over channels write partial
    sums and read them, in a workspace that may be larger for another launch."""
    if not launch.function.startswith(CHANNEL_SUMS):
        return repeat(ARENA_BYTES)
    members = layout(launch.module, "ChannelSumsArgs").members
    at = next(member for member in members if member.name == "at")
    assert isinstance(at.kind, StructLayout)
    rows, columns = (
        int(unpack_from(member.kind.code, launch.args, at.offset + member.offset)[0])
        for name in ("rows", "columns")
        for member in at.kind.members
        if member.name == name and isinstance(member.kind, Scalar)
    )
    _, parts, frames = launch.grid
    row = ITEMSIZE["float32"] * columns * frames
    return chain([row * parts], repeat(row * rows))


# -- the table ---------------------------------------------------------------------------------------------------------


def table(traffic: Sequence[Traffic]) -> Iterator[str]:
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for each in traffic:
        row = rows[each.kernel]
        for i, value in enumerate((1, len(each.launches), each.operands, each.moved)):
            row[i] += value
    yield f"{'op':34}{'ops':>6}{'launches':>10}{'operands':>12}{'moved':>12}"
    for name, (ops, launches, operands, moved) in sorted(rows.items(), key=lambda row: -row[1][3]):
        yield f"{name:34}{ops:6}{launches:10}{_gb(operands)}{_gb(moved)}"
    ops, launches, operands, moved = map(sum, zip(*rows.values(), strict=True))
    yield f"{'all':34}{ops:6}{launches:10}{_gb(operands)}{_gb(moved)}"


def _gb(nbytes: int) -> str:
    return f"{nbytes / 1e9:9.3f} GB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net", help="a prototxt, or a folder of prototxt/")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--precision", default="tf32", help="of matrix products (default tf32)")
    parser.add_argument("--capability", default="", metavar="90", help="compute capability (default: any)")
    parser.add_argument("--budget", type=parse_bytes)
    args = parser.parse_args()
    net = Path(args.net)
    if not net.suffix:
        net = ROOT / "prototxt" / args.net / "train_val.prototxt"
    strategy = "liveness" if args.budget is None else "auto"
    device = get_device("cuda", precision=args.precision)
    result = layermem.compile(net, device=device, batch=args.batch, strategy=strategy, budget=args.budget)
    print("\n".join(table(step_traffic(result.train, args.precision, args.capability))))


if __name__ == "__main__":
    main()
