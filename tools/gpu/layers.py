"""Single layers on the clock, in turns with cuDNN through PyTorch where it is here: channels_last, benchmark mode, the
same precision.  In bf16 PyTorch's tensors are bf16 in memory too; ours stay fp32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from layermem.layers.base import Layer
from layermem.runtime.cuda.kernels import KERNELS, WORKSPACES
from layermem.runtime.cuda.launch import Addresses
from tests.cuda.harness import Run, first_step, layer_of, wants_of
from tools.gpu.card import Card
from tools.gpu.results import Options, Results, median_seconds

CONTEXT = {"seed": 1, "step": 0}
PRECISIONS = ("fp32", "fp32x3", "tf32", "bf16")


class Shape(NamedTuple):
    """A convolution: x [n, c, size, size], k outputs, a square window."""

    name: str
    n: int
    c: int
    size: int
    k: int
    window: int
    stride: int = 1

    @property
    def pad(self) -> int:
        return self.window // 2

    @property
    def text(self) -> str:
        settings = f"num_output: {self.k} kernel_size: {self.window} stride: {self.stride} pad: {self.pad}"
        return f'type: "Convolution" convolution_param {{ {settings} bias_term: false }}'


SHAPES = (
    Shape("VGG conv2_2", 64, 128, 112, 128, 3),
    Shape("VGG conv3_2", 64, 256, 56, 256, 3),
    Shape("VGG conv5_2", 64, 512, 14, 512, 3),
    Shape("ResNet conv1", 128, 3, 224, 64, 7, 2),
    Shape("ResNet res2 1x1", 128, 64, 56, 256, 1),
    Shape("ResNet res3 3x3", 128, 128, 28, 128, 3),
    Shape("ResNet res4 1x1", 128, 1024, 14, 256, 1),
    Shape("ResNet res4 down", 128, 256, 28, 256, 3, 2),
    Shape("ResNet res5 3x3", 128, 512, 7, 512, 3),
)
TINY = (Shape("tiny 3x3", 1, 4, 6, 8, 3),)
MOVERS = {  # bound by memory: text of the layer, shape of every bottom
    "BatchNorm": ('type: "BatchNorm"', 1),
    "ReLU": ('type: "ReLU"', 1),
    "max pooling": ('type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }', 1),
    "Eltwise sum": ('type: "Eltwise"', 2),
    "LRN": ('type: "LRN" lrn_param { local_size: 5 alpha: 1e-4 beta: 0.75 }', 1),
    "Dropout": ('type: "Dropout"', 1),
}
MOVED, TINY_MOVED = (128, 256, 56, 56), (1, 4, 6, 6)


def run(results: Results, options: Options) -> None:
    card, torch = Card(), None
    try:
        from tools.gpu import torch_layers as torch  # type: ignore[no-redef]
    except ImportError as error:
        results.add(layer="", op="", says=f"PyTorch is not here, so nothing stands beside: {error}")
    capability = int(card.driver.card.capability)
    shapes = TINY if options.small else SHAPES
    for precision in PRECISIONS if capability >= 80 else PRECISIONS[:1]:
        for shape in shapes[: 1 if options.brief else None]:
            if results.late:
                return
            peers = torch.convolution(shape, precision) if torch and precision != "fp32x3" else {}
            measured(card, results, shape.name, precision, layer_of(shape.text, (shape.n, shape.c, *[shape.size] * 2)),
                     peers)  # fmt: skip
    for name in list(MOVERS)[: 2 if options.brief else None]:
        text, bottoms = MOVERS[name]
        moved = TINY_MOVED if options.small else MOVED
        if results.late:
            return
        peers = torch.mover(name, moved) if torch else {}
        measured(card, results, name, "fp32", layer_of(text, *[moved] * bottoms), peers)
    card.driver.close()


def measured(
    card: Card, results: Results, name: str, precision: str, layer: Layer, peers: dict[str, Callable[[], float]]
) -> None:
    """A row for each op of the layer: seconds, FLOPs and bytes a second, and seconds of the peer of the same step."""
    rounds = results.options.rounds
    for step, launches, flops, nbytes in ops(card, layer, precision):
        start = card.starter(launches, CONTEXT)
        ours = median_seconds(start, card.seconds, rounds)
        row = {"layer": name, "op": step, "precision": precision, "ms": 1e3 * ours}
        row |= {"TFLOP/s": flops / ours / 1e12, "GB/s": nbytes / ours / 1e9}
        if step in peers:
            theirs = median_seconds(lambda: None, lambda run, peer=peers[step]: peer(), rounds)
            row |= {"cuDNN ms": 1e3 * theirs, "ratio": ours / theirs}
        results.add(**row)


def ops(card: Card, layer: Layer, precision: str) -> Iterator[tuple[str, list[Any], int, int]]:
    """Each op of the layer, over buffers of its own: name, launches, FLOPs, bytes that must move."""
    wants = wants_of(layer)
    for step in (first_step(layer, wants), *layer.backward(wants)):
        kernel, roles = f"{layer.type}.{step.step}", (*step.reads, *step.writes, *step.updates)
        tensors = {role: Run(layer).tensor(role) for role in roles}
        sizes = {role: tensor.nbytes for role, tensor in tensors.items()}
        scratch = WORKSPACES[kernel](layer, roles) if kernel in WORKSPACES else 0
        addresses = card.filled({**sizes, **({"workspace": scratch} if scratch else {})})
        counts = {role: tensor.count for role, tensor in tensors.items()}
        launches = list(KERNELS[kernel](layer, Addresses(addresses, (), counts, precision)))
        yield step.step, launches, step.flops, sum(sizes.values())
