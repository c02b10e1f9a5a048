"""Compares training steps that the planner's model of GPUs predicts with published measurements.  Nothing runs.

    python tools/published.py            the table of docs/benchmarks/published.md, from tools/published.tsv
    python tools/published.py "RTX 3090"      the rows of one GPU

The published steps are PyTorch's, which runs a net layer by layer, and so does the predicted step: its only fused ops
are BatchNorm with its Scale, which is one layer in PyTorch, and updates of several parameters in one launch.  A
BatchNorm reads its input twice forward, and its input and the gradient of its output twice backward, as cuDNN's does;
the training graph counts each operand once.  `fused` is the step of layermem itself, with all its fusions.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from layermem import api  # noqa: E402
from layermem.backends.cuda.device import CudaDevice  # noqa: E402
from layermem.graph.ops import Graph, Op  # noqa: E402
from layermem.ops import JOINED_UPDATES  # noqa: E402
from layermem.planning.costs import Costs, model_costs  # noqa: E402

PUBLISHED = Path(__file__).with_suffix(".tsv")
LAYER_BY_LAYER = frozenset({"BatchNormScale", JOINED_UPDATES})  # fusions that PyTorch also has
WAYS = {"fp32": ("fp32", "fp32"), "tf32": ("tf32", "fp32"), "amp": ("bf16", "bf16")}  # precision, storage of blobs
BATCH, BATCH_OF_VGG = 128, 64
COLUMNS = ("GPU", "net", "precision", "layout", "source", "published", "predicted", "ratio", "fused")


@dataclass(frozen=True)
class Published:
    """A row of published.tsv."""

    gpu: str
    net: str
    way: str
    layout: str
    batch: str
    images_s: str
    source: str

    @property
    def step_batch(self) -> int:
        """The batch of the compared step: time is assumed to be proportional to the batch."""
        return BATCH_OF_VGG if self.net.startswith("vgg") else BATCH

    @property
    def seconds(self) -> float:
        return self.step_batch / float(self.images_s)


def rows() -> list[Published]:
    lines = [line for line in PUBLISHED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [Published(**row) for row in csv.DictReader(lines, delimiter="\t")]


@cache
def graph_of(net: str, batch: int, way: str, *, fused: bool) -> Graph:
    precision, storage = WAYS[way]
    device = CudaDevice(precision=precision, storage=storage)
    if not fused:
        device.fusions &= LAYER_BY_LAYER
    return api.job_of(ROOT / "prototxt" / net / "train_val.prototxt", device=device, batch=batch).graphs[0]


def layer_by_layer_seconds(graph: Graph, costs: Costs) -> float:
    return sum(costs.op(replace(op, nbytes=op.nbytes + second_read_bytes(graph, op))) for op in graph.ops)


def second_read_bytes(graph: Graph, op: Op) -> int:
    """Bytes that a BatchNorm reads again once its statistics, or the sums of its gradient, are known."""
    if not op.kernel.startswith("BatchNorm"):
        return 0
    return sum(graph.buffers[buffer].nbytes for role, buffer in op.roles.items() if role in ("x0", "dy0"))


def cells(row: Published) -> list[str]:
    precision, storage = WAYS[row.way]
    device = CudaDevice(precision=precision, storage=storage, planned_gpu=row.gpu)
    costs = model_costs(device.title, device.gpu)
    predicted = layer_by_layer_seconds(graph_of(row.net, row.step_batch, row.way, fused=False), costs)
    fused = sum(map(costs.op, graph_of(row.net, row.step_batch, row.way, fused=True).ops))
    times = (f"{1e3 * seconds:.1f}" for seconds in (row.seconds, predicted))
    return [
        row.gpu,
        f"{row.net} x{row.step_batch}",
        row.way,
        row.layout,
        row.source,
        *times,
        f"{predicted / row.seconds:.2f}",
        f"{1e3 * fused:.1f}",
    ]


def table(chosen: Sequence[Published]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    yield from (f"| {' | '.join(cells(row))} |" for row in chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpu", nargs="?", metavar="GPU", help="rows of this one (default: all)")
    gpu = parser.parse_args().gpu
    for line in table([row for row in rows() if gpu in (None, row.gpu)]):
        print(line, flush=True)


if __name__ == "__main__":
    main()
