"""Single layers on the clock, in turns with cuDNN through PyTorch where it is here: channels_last, benchmark mode, the
same precision.  In bf16 PyTorch's tensors are bf16 in memory too; ours stay fp32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from layermem.backends.cuda.kernels import KERNELS, WORKSPACES
from layermem.backends.cuda.launch import Addresses
from layermem.layers.base import Layer
from tests.cuda.harness import Run, first_step, wants_of
from tests.cuda.small import joined
from tools.gpu.card import Card
from tools.gpu.results import Options, Results, Row, in_short, median_seconds

Peers = dict[str, Callable[[], float]]

CONTEXT = {"seed": 1, "step": 0}
PRECISIONS = ("fp32", "fp32x3", "tf32", "bf16")


class Shape(NamedTuple):
    """A convolution: x [n, c, size, size], k outputs, a square window; maybe its ReLU in the same op."""

    name: str
    n: int
    c: int
    size: int
    k: int
    window: int
    stride: int = 1
    relu: bool = False

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
    Shape("VGG conv3_2 and ReLU", 64, 256, 56, 256, 3, relu=True),
    Shape("VGG conv5_2", 64, 512, 14, 512, 3),
    Shape("ResNet conv1", 128, 3, 224, 64, 7, 2),
    Shape("ResNet res2 1x1", 128, 64, 56, 256, 1),
    Shape("ResNet res3 3x3", 128, 128, 28, 128, 3),
    Shape("ResNet res4 1x1", 128, 1024, 14, 256, 1),
    Shape("ResNet res4 down", 128, 256, 28, 256, 3, 2),
    Shape("ResNet res5 3x3", 128, 512, 7, 512, 3),
)
TINY = (Shape("tiny 3x3", 1, 4, 6, 8, 3), Shape("tiny 3x3 and ReLU", 1, 4, 6, 8, 3, relu=True))


class Mover(NamedTuple):
    """A layer that memory bounds: its text, how many bottoms, and what joins it (tests.cuda.small.joined)."""

    text: str
    bottoms: int = 1
    relu: bool = False
    added: bool = False
    normalized: bool = False

    def layer(self, shape: Sequence[int]) -> Layer:
        return joined(self.text, [shape] * self.bottoms, self.relu, self.added, self.normalized)


MOVERS = {
    "BatchNorm": Mover('type: "BatchNorm"'),
    "ReLU": Mover('type: "ReLU"'),
    "max pooling": Mover('type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }'),
    "Eltwise sum": Mover('type: "Eltwise"', 2),
    "Eltwise sum and ReLU": Mover('type: "Eltwise"', 2, relu=True),
    "BatchNorm, sum and ReLU": Mover("", relu=True, added=True, normalized=True),
    "LRN": Mover('type: "LRN" lrn_param { local_size: 5 alpha: 1e-4 beta: 0.75 }'),
    "Dropout": Mover('type: "Dropout"'),
}
MOVED, TINY_MOVED = (128, 256, 56, 56), (1, 4, 6, 6)


def run(results: Results, options: Options) -> None:
    card, torch = Card(), peers_of(results)
    for name in list(MOVERS)[: 2 if options.brief else None]:
        moved = TINY_MOVED if options.small else MOVED
        layer, peers = MOVERS[name].layer(moved), partial(torch.mover, name, moved) if torch else dict
        results.attempt(partial(measured, card, results, name, "fp32", layer, peers), layer=name, precision="fp32")
    shapes = TINY if options.small else SHAPES
    for shape in shapes[: 1 if options.brief else None]:
        layer = joined(shape.text, [(shape.n, shape.c, shape.size, shape.size)], shape.relu)
        for precision in PRECISIONS if int(card.driver.card.capability) >= 80 else PRECISIONS[:1]:
            beside = torch is not None and precision != "fp32x3"
            peers = partial(torch.convolution, shape, precision) if beside else dict
            work = partial(measured, card, results, shape.name, precision, layer, peers)
            results.attempt(work, layer=shape.name, precision=precision)
    card.driver.close()


def peers_of(results: Results) -> Any:
    """tools.gpu.torch_layers, or None where there is no PyTorch that sees the card."""
    try:
        return import_module("tools.gpu.torch_layers")
    except Exception as error:  # whatever a package of that size may meet
        results.add(layer="", op="", says=f"PyTorch is not here, so nothing stands beside: {in_short(error)}")
        return None


def measured(
    card: Card, results: Results, name: str, precision: str, layer: Layer, peers_of_step: Callable[[], Peers]
) -> None:
    """A row for each op of the layer: seconds, FLOPs and bytes a second, and seconds of the peer of the same step."""
    rounds, peers = results.options.rounds, prepared(peers_of_step, results, layer=name, precision=precision)
    for step, launches, flops, nbytes in ops(card, layer, precision):
        start = card.starter(launches, CONTEXT)
        ours = median_seconds(start, card.seconds, rounds)
        row = {"layer": name, "op": step, "precision": precision, "ms": 1e3 * ours}
        row |= {"TFLOP/s": flops / ours / 1e12, "GB/s": nbytes / ours / 1e9}
        if step in peers:
            row |= beside(peers[step], ours, rounds)
        results.add(**row)


def prepared(make: Callable[[], Peers], results: Results, **key: str) -> Peers:
    """The peers, or none and a row if PyTorch cannot make them."""
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
        yield step.step, launches, step.flops, sum(sizes.values()) + sum(sizes[role] for role in step.updates)
