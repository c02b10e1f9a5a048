"""Times the cases of tests/cases that have a size for a GPU, alternately with PyTorch's cuDNN if it is installed:
channels_last, benchmark mode, the same precision.  In bf16 PyTorch's tensors are bf16 in memory too; layermem's are
fp32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.support.launch import Launch
from layermem.layers.base import Layer, Step
from layermem.ops import Conv, Tensor
from tests.backends.cuda.harness import Run, first_step, record_of, wants_of
from tests.cases import select
from tests.op_case import OpCase
from tools.gpu.gpu import Gpu
from tools.gpu.results import Options, Results, Row, all_seconds, in_short, median_seconds, times

Peers = dict[str, Callable[[], float]]

CONTEXT = {"seed": 1, "step": 0}
PRECISIONS = ("fp32", "fp32x3", "tf32", "bf16")


TINY = (1, 4, 6, 6)  # shape of every bottom on an emulated GPU


def run(results: Results, options: Options) -> None:
    gpu, torch = Gpu(options.small, results.launching), peers_of(results)
    layers = {case.name: layer_of_case(case, options.small) for case in select("gpu")}
    products = {name: layer for name, layer in layers.items() if isinstance(layer.record, Conv)}
    memory_bound = [name for name in layers if name not in products]
    for name in memory_bound[: 2 if options.brief else None]:
        layer = layers[name]
        peers = partial(torch.memory_bound, name, layer.bottoms[0].shape) if torch else dict
        results.attempt(partial(measured, gpu, results, name, "fp32", layer, peers), layer=name, precision="fp32")
    for name, layer in list(products.items())[: 1 if options.brief else None]:
        for precision in PRECISIONS if int(gpu.driver.gpu.capability) >= 80 else PRECISIONS[:1]:
            beside = torch is not None and precision != "fp32x3"
            peers = partial(torch.convolution, layer.record, precision) if beside else dict
            work = partial(measured, gpu, results, name, precision, layer, peers)
            results.attempt(work, layer=name, precision=precision)
    gpu.driver.close()


def layer_of_case(case: OpCase, small: bool) -> Layer:
    layer = case.layer("gpu")
    if not small:
        return layer
    n, channels, *sides = TINY
    if isinstance(layer.record, Conv) and layer.record.problem.groups < layer.record.problem.c:
        channels = max(channels, layer.record.problem.groups)  # the layer's number of groups
    return case.at(*[(n, channels, *sides)] * len(case.shapes("gpu"))).layer()


def peers_of(results: Results) -> Any:
    """Return tools.gpu.torch_layers, or None without a PyTorch that has the GPU."""
    try:
        return import_module("tools.gpu.torch_layers")
    except Exception as error:  # a package of that size may raise anything
        results.add(layer="", op="", says=f"PyTorch is not here, so nothing stands beside: {in_short(error)}")
        return None


def measured(
    gpu: Gpu, results: Results, name: str, precision: str, layer: Layer, peers_of_step: Callable[[], Peers]
) -> None:
    """Add a row for each op of the layer: seconds, FLOPs and bytes per second, and seconds of the peer of the same
    step."""
    rounds, peers = results.options.rounds, prepared(peers_of_step, results, layer=name, precision=precision)
    for step, launches, flops, nbytes in ops(gpu, layer, precision):
        start = gpu.starter(launches, CONTEXT)
        seconds = all_seconds(start, gpu.cold_seconds, rounds)
        ours = median(seconds)
        row = {"layer": name, "op": step, "precision": precision, **times(seconds)}
        row |= {"TFLOP/s": flops / ours / 1e12, "GB/s": nbytes / ours / 1e9}
        if step in peers:
            row |= beside(peers[step], ours, rounds)
        results.add(**row)


def prepared(make: Callable[[], Peers], results: Results, **key: str) -> Peers:
    """Return the peers, or add a row and return none if PyTorch cannot make them."""
    try:
        return make()
    except Exception as error:
        results.add(**key, op="", says=f"PyTorch: {in_short(error)}")
        return {}


def beside(peer: Callable[[], float], ours: float, rounds: int) -> Row:
    try:
        theirs = median_seconds(lambda: None, lambda run: peer(), rounds)
    except Exception as error:
        return {"says": f"PyTorch: {in_short(error)}"}
    return {"cuDNN ms": 1e3 * theirs, "ratio": ours / theirs}


def ops(gpu: Gpu, layer: Layer, precision: str) -> Iterator[tuple[str, list[Any], int, int]]:
    """Yield each op of the layer on its own buffers: name, launches, FLOPs, bytes that must move."""
    for step, tensors in steps_of(layer):
        sizes = {role: tensor.nbytes for role, tensor in tensors.items()}
        workspace = cuda_kernels.workspace_bytes(record_of(layer, step), step.step, tuple(tensors))
        addresses = gpu.filled({**sizes, **({"workspace": workspace} if workspace else {})})
        chip, scalars = gpu.driver.gpu, gpu.step_scalars.address
        launches = bound(layer, step, tensors, addresses, precision, chip.capability, scalars, chip.multiprocessors)
        yield step.step, launches, step.flops, moved_bytes(step, tensors)


def steps_of(layer: Layer) -> Iterator[tuple[Step, dict[str, Tensor]]]:
    """Yield each op of the layer with its tensors by role."""
    wants = wants_of(layer)
    for step in (first_step(layer, wants), *layer.backward(wants)):
        roles = (*step.reads, *step.writes, *step.updates)
        yield step, {role: Run(layer).tensor(role) for role in roles}


def bound(
    layer: Layer,
    step: Step,
    tensors: Mapping[str, Tensor],
    addresses: Mapping[str, int],
    precision: str,
    capability: str,
    step_scalars: int = 0,
    multiprocessors: int = 0,
) -> list[Launch]:
    """Bind an op like a device on a GPU of this capability, which determines the kernels of products."""
    counts = {role: tensor.count for role, tensor in tensors.items()}
    call = CudaCall(
        addresses,
        counts,
        precision=precision,
        capability=capability,
        multiprocessors=multiprocessors,
        step_scalars=step_scalars,
    )
    return list(cuda_kernels.bind(record_of(layer, step), step.step, call))


def moved_bytes(step: Step, tensors: Mapping[str, Tensor]) -> int:
    """Bytes that must move; updated operands are both read and written."""
    return sum(tensor.nbytes for tensor in tensors.values()) + sum(tensors[role].nbytes for role in step.updates)
