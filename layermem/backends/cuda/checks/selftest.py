"""The self-test of a GPU, in a separate process (checked.py): compares kernels with implementations known to be right.

    python -m layermem.backends.cuda.checks.selftest '{"index": 0, "precision": "tf32", ..}'

Each op of the step of a small net runs alone, on integers from -2 to 2.  They and their sums are exact in every
precision, so a product must have the bits of the reference device (NumPy, on the host), whatever the order of its sums;
or the bits of naive kernels (check.py), if the host would take too long.  Results of an epilogue for a BatchNorm have
the bits of the standalone kernel for them.  Other ops may differ from the reference by roundings.

Lines of JSON go to standard output: {"begin": kernels, "of": key} before launches, for which the reader has a time
limit, {"ran": op} after them, and {"key": .., "result": ".."} with "" if all is right.  The shapes fill tiles, wrap the
rings of stages, and give each block of warpgroups, which computes tiles in turn, a second tile.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import layermem.backends.reference  # noqa: F401  (registers the reference)
from layermem.backends.cuda.checks import check
from layermem.backends.cuda.checks.recorded import LaunchRecorder, family_of_key, keys_of, spans_of
from layermem.backends.cuda.device import CudaDevice
from layermem.backends.cuda.driver.context import Gpu
from layermem.backends.cuda.products import warpgroup
from layermem.backends.cuda.support import families
from layermem.backends.cuda.support.families import FAMILIES
from layermem.backends.cuda.support.launch import Launch
from layermem.backends.narrow import BITS, narrowed, widened
from layermem.backends.reference.base import REGISTRY, ReferenceCall, axes_of_caffe
from layermem.backends.registry import StepContext, storage_of
from layermem.backends.storage import bind_op
from layermem.graph.net import Net
from layermem.graph.ops import DATA, DIFF, PARAMETER, Graph, Op
from layermem.graph.step_slicer import GraphMakers, StepSlicer
from layermem.graph.train import MOMENTUM, train_graph
from layermem.ops import CONV_MOMENTS, DGRAD_SUMS_FUSION, Conv, OpRecord, ReadsLabels
from layermem.planning.partition_choices import CHOICES
from layermem.proto.read import read_net_text
from layermem.utils.units import aligned

Array = npt.NDArray[Any]

# Fusions that the reference runs, or a pair of its ops.
COMPARED_FUSIONS = {"BatchNormScale", CONV_MOMENTS, DGRAD_SUMS_FUSION}
CONTEXT = StepContext(
    seed=1,
    step=0,
    iteration=0,
    rate=0.5,
    momentum=0.5,
    momentum2=0.5,
    rms_decay=0.5,
    delta=1.0,
    weight_decay=0.5,
    regularization="L2",
    loss_scale=1.0,
    iter_size=1,
    clip=-1.0,
)
OF_SM90 = "_sm90a"  # suffix of modules with kernels of warpgroups
BLOBS = ("x0", "y0", "dx0", "dy0")  # roles of blobs of a convolution
NAIVE_MACS = 1 << 24  # from which on a convolution takes too long on the host
TILE_ROWS = 256  # of the largest tile of warpgroups whose blocks take tiles in turn
PIXELS = 14  # side of the maps of the largest convolutions
ROUNDINGS = {"float32": 2e-5, "bfloat16": 2.0**-7, "float16": 2.0**-10}  # relative tolerance of ops that are not exact


# -- the net -----------------------------------------------------------------------------------------------------------


def net_text(multiprocessors: int) -> str:
    """The net: branches with separate losses."""
    items = TILE_ROWS * multiprocessors // PIXELS**2 + 1
    return "\n".join([
        _data("a", items, 3, PIXELS, PIXELS), _conv("a0", "a", 32, 1), _conv("a1", "a0", 160, 3, bias=False),
        _norm("a1"), _conv("a2", "a1", 64, 3, bias=False), _norm("a2"), _relu("a2"), _pool("a2", "AVE", PIXELS),
        _loss("a2_pool"),
        _data("b", 2, 3, 21, 19), _conv("b1", "b", 64, 5, stride=2), _conv("b2", "b1", 30, 1), _loss("b2"),
        _data("c", 2, 3, 17, 19), _conv("c1", "c", 96, 3), _pool("c1", "AVE", 3), _norm("c1_pool"),
        _pool("c1_pool", "MAX", 2), _conv("c2", "c1_pool_pool", 36, 3, stride=2), _loss("c2"),
        _data("d", 3, 16, 12, 12), _conv("d1", "d", 64, 3), _pool("d1", "MAX", 2), _relu("d1_pool"),
        _conv("d2", "d1_pool", 32, 1), _conv("d3", "d1_pool", 32, 3), _sum("d4", "d2", "d3"),
        _conv("d5", "d4", 64, 3), _pool("d5", "MAX", 2), _conv("d6", "d5_pool", 32, 1, stride=2),
        _conv("d7", "d5_pool", 32, 3, stride=2), _sum("d8", "d6", "d7"), _loss("d8"),
        _data("e", 3, 32, 11, 13), _conv("e1", "e", 32, 1), _conv("e2", "e1", 32, 3, group=32),
        _conv("e3", "e2", 32, 3, group=32, stride=2), _conv("e4", "e3", 32, 3, group=8),
        _conv("e5", "e4", 32, 3, group=4, stride=2), _conv("e6", "e5", 16, 1, more=FROZEN), _loss("e6"),
    ])  # fmt: skip


FROZEN = "param { lr_mult: 0 } param { lr_mult: 1 }"  # frozen weights: the sums of the bias become a separate op


def _data(name: str, *shape: int) -> str:
    dims, label = " ".join(f"dim: {size}" for size in shape), f"dim: {shape[0]}"
    return f"""layer {{ name: "{name}" type: "DummyData" top: "{name}" top: "{name}_label" dummy_data_param {{
        shape {{ {dims} }} shape {{ {label} }} }} }}"""


def _conv(
    name: str,
    bottom: str,
    outputs: int,
    kernel: int,
    *,
    stride: int = 1,
    group: int = 1,
    bias: bool = True,
    more: str = "",
) -> str:
    return f"""layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" {more} convolution_param {{
        num_output: {outputs} kernel_size: {kernel} pad: {kernel // 2} stride: {stride} group: {group}
        bias_term: {str(bias).lower()} }} }}"""


def _norm(blob: str) -> str:
    return f"""layer {{ name: "{blob}_bn" type: "BatchNorm" bottom: "{blob}" top: "{blob}" }}
        layer {{ name: "{blob}_scale" type: "Scale" bottom: "{blob}" top: "{blob}"
            scale_param {{ bias_term: true }} }}"""


def _relu(blob: str) -> str:
    return f'layer {{ name: "{blob}_relu" type: "ReLU" bottom: "{blob}" top: "{blob}" }}'


def _pool(bottom: str, method: str, kernel: int) -> str:
    return f"""layer {{ name: "{bottom}_pool" type: "Pooling" bottom: "{bottom}" top: "{bottom}_pool"
        pooling_param {{ pool: {method} kernel_size: {kernel} stride: 2 }} }}"""


def _sum(name: str, first: str, second: str) -> str:
    return f'layer {{ name: "{name}" type: "Eltwise" bottom: "{first}" bottom: "{second}" top: "{name}" }}'


def _loss(bottom: str) -> str:
    label = f"{bottom[0]}_label"
    return f"""layer {{ name: "{bottom}_ip" type: "InnerProduct" bottom: "{bottom}" top: "{bottom}_ip"
            inner_product_param {{ num_output: 8 }} }}
        layer {{ name: "{bottom}_loss" type: "SoftmaxWithLoss" bottom: "{bottom}_ip" bottom: "{label}"
            top: "{bottom}_loss" }}"""


def graph_on(device: CudaDevice, multiprocessors: int) -> Graph:
    """The step of the net, with fusions whose results are known."""
    net = Net(read_net_text(net_text(multiprocessors)), 0)

    def step(net: Net, unfused: Any = ()) -> Graph:
        return train_graph(net, device, MOMENTUM, unfused=unfused)

    return StepSlicer(GraphMakers(net, device, step, CHOICES)).whole


# -- one op alone ------------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """Runs the ops of a graph, each on separate operands; no buffers share bytes."""

    device: CudaDevice
    graph: Graph
    before_launch: Callable[[Op], None]
    stashes: dict[str, Array] = field(default_factory=dict)  # results of ops for later ops

    def __post_init__(self) -> None:
        nbytes, self.places = 0, {}
        for name, buffer in self.graph.buffers.items():
            self.places[name], nbytes = nbytes, nbytes + aligned(buffer.nbytes)
        products = [op.record.problem for op in self.graph.ops if isinstance(op.record, Conv)]
        most = max(*(op.workspace_bytes for op in self.graph.ops), *map(check.naive_wgrad_workspace_bytes, products))
        self.arena = self.device.arena(nbytes + aligned(most))
        self.addresses = {name: self.arena.address + place for name, place in self.places.items()}
        self.workspace = self.arena.address + nbytes
        self.makers = {buffer: op for op in reversed(self.graph.ops) for buffer in op.writes}

    def operand(self, op: Op, role: str) -> Array:
        """Integers, or the result of an earlier op, in the order and the type of memory."""
        name = op.roles[role]
        buffer = self.graph.buffers[name]
        maker = self.maker_of(name, op)
        if maker is not None:
            if name not in self.stashes:
                self.on_gpu(maker)
            return self.stashes[name]
        rng = np.random.default_rng(list(name.encode()))
        numbers = rng.integers(-2, 3, buffer.tensor.stored).astype(np.float32)
        if isinstance(op.record, ReadsLabels) and role == "x1":
            numbers = np.abs(numbers)
        return narrowed(numbers, buffer.tensor.dtype) if buffer.tensor.dtype in BITS else numbers

    def maker_of(self, name: str, op: Op) -> Op | None:
        """The op whose result in the buffer `name` `op` reads: a stash, or a buffer next to partial sums that were
        computed from that result; None if it reads integers."""
        sums = (op.roles[role] for role in ROLES if op.roles.get(role) in op.reads)
        is_stash = self.graph.buffers[name].kind not in (DATA, DIFF, PARAMETER)
        is_beside = any(name in self.makers[each].writes for each in sums)
        return self.makers.get(name) if is_stash or is_beside else None

    def operands(self, op: Op) -> dict[str, Array]:
        read = (*op.reads, *op.updates)
        return {role: self.operand(op, role) for role, name in op.roles.items() if name in read}

    def on_gpu(self, op: Op) -> dict[str, Array]:
        """The results of the op on the GPU, by role."""
        for role, value in self.operands(op).items():
            self.device.driver.write(self.addresses[op.roles[role]], np.ascontiguousarray(value))
        call = bind_op(self.device, op, spans_of(op, self.graph, self.addresses, self.workspace), CONTEXT)
        self.device.load()  # this may compile, and the following has a time limit
        self.before_launch(op)
        self.device.run([call])
        say(ran=op.name)
        results = self._results(op)
        self.stashes |= {op.roles[role]: value for role, value in results.items()}
        return results

    def expected(self, op: Op) -> dict[str, Array]:
        """The expected results of the op, without partial sums: from naive kernels if the host would take too long."""
        naive = [*self._naive(op)]
        if not naive:
            return self.on_host(op)
        for role, value in self.operands(op).items():
            self.device.driver.write(self.addresses[op.roles[role]], np.ascontiguousarray(value))
        self.device.run([self.device._bind_launches(naive, CONTEXT)])
        return {role: value for role, value in self._results(op).items() if role not in ROLES}

    def _naive(self, op: Op) -> Iterator[Launch]:
        """The launches of naive kernels for a convolution without an epilogue, with blobs of one type."""
        record, at = op.record, {role: self.addresses[name] for role, name in op.roles.items()}
        if not isinstance(record, Conv) or record.problem.macs < NAIVE_MACS or record.bias or op.part_passes:
            return
        dtypes = {self.graph.buffers[op.roles[role]].tensor.dtype for role in BLOBS if role in op.roles}
        problem, storage = record.problem, storage_of(dtypes)
        if len(dtypes) > 1:
            return
        if op.step == "forward":
            yield check.naive_fprop(problem, at["y0"], at["x0"], at["w0"], storage=storage)
        elif op.step == "dgrad":
            yield check.naive_dgrad(problem, at["dx0"], at["dy0"], at["w0"], storage=storage)
        else:
            yield from check.naive_wgrad(problem, at["dw0"], at["dy0"], at["x0"], self.workspace, storage=storage)

    def _results(self, op: Op) -> dict[str, Array]:
        results = {}
        for role, name in op.roles.items():
            if name in (*op.writes, *op.updates):
                tensor = self.graph.buffers[name].tensor
                results[role] = np.empty(tensor.stored, BITS.get(tensor.dtype, tensor.dtype))
                self.device.driver.read(results[role], self.addresses[name])
        return results

    def on_host(self, op: Op) -> dict[str, Array]:
        """The results of the reference, by role, without partial sums that it does not compute."""
        given, arrays = self.operands(op), {}
        for role, name in op.roles.items():
            tensor = self.graph.buffers[name].tensor
            kind = "float32" if tensor.dtype in BITS else tensor.dtype
            value = given.get(role)
            if value is not None and tensor.dtype in BITS:
                value = widened(value, tensor.dtype)
            arrays[role] = np.zeros(tensor.stored, kind) if value is None else np.array(value)
        before = {role: arrays[role].copy() for role in op.accumulates}
        reference(op.record, op.step, {role: axes_of_caffe(each) for role, each in arrays.items()})
        results = {}
        for role, name in op.roles.items():
            if name in (*op.writes, *op.updates) and role not in ROLES:
                dtype = self.graph.buffers[name].tensor.dtype
                value = arrays[role] + before[role] if role in before else arrays[role]
                results[role] = narrowed(value, dtype) if dtype in BITS else value
        return results


ROLES = {family.role: name for name, family in FAMILIES.items() if family.role}


def reference(record: OpRecord, step: str, arrays: Mapping[str, Array]) -> None:
    """Run the kernels of the reference, one after the other if the op is several of its ops."""
    REGISTRY.bind(record, step, ReferenceCall(arrays, CONTEXT))


# -- verdicts ----------------------------------------------------------------------------------------------------------


class Unjudged(Exception):
    """An op needs kernels that are known to be wrong."""


class SelfTest:
    """The ops of a graph by the keys that judge them (recorded.keys_of): each op judges its most specific key."""

    def __init__(self, device: CudaDevice, graph: Graph, gpu: Gpu):
        self.bench = bench = Bench(device, graph, self._announce)
        recorder = LaunchRecorder(device, gpu)
        self.launches = {op.name: recorder.launched_by(op, graph) for op in graph.ops}
        self.keys = {op.name: keys_of(op, self.launches[op.name]) for op in graph.ops}
        self.needs: dict[str, frozenset[str]] = {}  # including the keys of the ops whose results an op reads
        for op in graph.ops:
            makers = (bench.maker_of(name, op) for name in op.reads)
            self.needs[op.name] = self.keys[op.name].union(*(self.needs[each.name] for each in makers if each))
        self.distrusted: set[str] = set()
        self.uses = Counter(key for each in self.keys.values() for key in each)
        self.judged: dict[str, list[Op]] = {}
        for op in bench.graph.ops:
            if self.keys[op.name]:
                self.judged.setdefault(min(self.needs[op.name], key=self._rank), []).append(op)

    def _rank(self, key: str) -> tuple[int, int, str]:
        """The sort key, most specific first: table order, then products, then the fewest launching ops."""
        names, family = list(FAMILIES), family_of_key(key)
        kind = names.index(family) if family in FAMILIES else len(names) + (not is_product(key))
        return kind, self.uses[key], key

    @property
    def order(self) -> list[str]:
        """The keys, with kernels that run alone before those that run with others."""
        return sorted(self.judged, key=lambda key: min(len(self.needs[op.name]) for op in self.judged[key]))

    def verdicts(self, wanted: set[str], wrong: set[str]) -> Iterator[tuple[str, str]]:
        """Yield each key of `wanted` with its error, or "".  Ops that launch or read results of kernels in `wrong`, or
        of kernels found to be wrong, judge no other kernel."""
        for key in self.order:
            if key in wanted:
                self.distrusted = wrong - {key}
                text = next(filter(None, map(self._difference, self.judged[key])), "")
                wrong |= {key} if text else set()
                yield key, text
        beside = {key for keys in self.keys.values() for key in keys} - self.judged.keys()
        yield from ((key, "") for key in sorted(beside & wanted))

    def _announce(self, op: Op) -> None:
        keys = self.keys[op.name]
        if keys & self.distrusted:
            raise Unjudged
        say(begin=self._kernels(op), of=min(keys, key=self._rank) if keys else "")

    def _kernels(self, op: Op) -> str:
        return ", ".join(f"{each.module}.{each.function}" for each in self.launches[op.name])

    def _difference(self, op: Op) -> str:
        """A description of the wrong results of the op."""
        try:
            wanted, got = self.bench.expected(op), self.bench.on_gpu(op)
        except Unjudged:
            return ""
        sums = {ROLES[role] for role in ROLES if role in got}
        if sums:
            kept = dict(self.bench.stashes)
            with families.without(sums):
                wanted |= {role: each for role, each in self.bench.on_gpu(op).items() if role in ROLES}
            self.bench.stashes = kept
        is_exact = any(is_product(key) for key in self.keys[op.name])
        for role, value in wanted.items():
            dtype = self.bench.graph.buffers[op.roles[role]].tensor.dtype
            count = int(np.count_nonzero(differing(got[role], value, dtype, is_exact=is_exact or role in ROLES)))
            if count:
                return f"{self._kernels(op)}: {count} of {value.size} elements of {role} differ, {op.name}"
        return ""


def is_product(key: str) -> bool:
    """Whether these kernels multiply integers."""
    return family_of_key(key) in FAMILIES or key.startswith("convolution")


def differing(got: Array, wanted: Array, dtype: str, *, is_exact: bool) -> Array:
    """A mask of the elements of this type that differ, by more than roundings if the op is not exact."""
    if dtype in BITS:
        got, wanted = widened(got, dtype), widened(wanted, dtype)
    if is_exact or dtype not in ROUNDINGS:
        return ~np.equal(got, wanted)  # also where both are NaN
    scale = float(np.abs(wanted).max(initial=0.0))
    return np.asarray(~(np.abs(got - wanted) <= ROUNDINGS[dtype] * scale))


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


def run(index: int, precision: str, storage: str, keys: list[str] | None, skip: list[str], wrong: list[str]) -> None:
    """Judge `keys`, or all keys that this GPU can run except those of `skip`."""
    device = CudaDevice(index, precision, storage=storage)
    device.fusions, device.reports_progress = device.fusions & COMPARED_FUSIONS, False
    gpu, left, known_wrong = device.driver.gpu, None if keys is None else set(keys), set(wrong)
    for by_warpgroups in (True, False) if gpu.capability == warpgroup.CAPABILITY else (False,):
        warpgroup.THRESHOLDS = warpgroup.NO_THRESHOLDS if by_warpgroups else THRESHOLDS
        with families.without(() if by_warpgroups else ("warpgroups",)):
            test = SelfTest(device, graph_on(device, gpu.multiprocessors), gpu)
            own = {
                key for key in test.uses if not by_warpgroups or key.startswith("warpgroups") or key.endswith(OF_SM90)
            }
            wanted = own.difference(skip) if left is None else own & left
            for key, result in test.verdicts(wanted, known_wrong):
                say(key=key, result=result)
            left = None if left is None else left - own
    for key in sorted(left or ()):
        say(key=key, result="")  # no op of the net launches it


THRESHOLDS = warpgroup.THRESHOLDS

if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
