"""Launches about twenty kernels once each, for Nsight Compute: python -m tools.gpu.ncu_target [--small] RESULTS ..

They come from the training steps of NETS, bound as for a run without a budget on this GPU: for each kind of product the
launch that moves the most bytes, then the memory-bound kernels that move the most bytes in total.  So they include
products of packed operands, by warpgroups, of patches of images, and with moments or sums, in the chosen tiles.  An
arena of zeros holds all operands: indices are in range, and of all counters only power depends on values.  Kernels in
quarantine by the results of this call and of earlier ones are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from layermem.api import job_of
from layermem.backends.cuda import CudaDevice
from layermem.backends.cuda.base import cuda_kernels
from layermem.backends.cuda.support.launch import Launch
from layermem.ops import FP32, NARROW
from layermem.report.plan_report import evaluate
from layermem.schedule.ir import COMPUTE, Schedule
from layermem.schedule.joined import joined
from tools import traffic
from tools.gpu.gpu import Gpu
from tools.gpu.kept import Call
from tools.gpu.layers import CONTEXT
from tools.gpu.quarantine import Quarantine
from tools.gpu.results import Options
from tools.gpu.whole_nets import Wanted

NETS = (
    ("resnet50", 128, "tf32", FP32),
    ("resnet50", 128, "bf16", "bf16"),
    ("vgg16", 64, "tf32", FP32),
    ("vgg16", 64, "bf16", "bf16"),
)
SMALL = (("mnist", 8, "fp32", FP32),)
PRODUCT = re.compile(r"conv_(fprop|dgrad|wgrad)")
TILE = re.compile(r"_\d+x\d+_v\d+$")
MEMORY_BOUND = 4  # memory-bound kernels of each net
WITH_SCALARS = ("update", "dropout")  # modules whose kernels read per-step scalars


class Moved(NamedTuple):
    launch: Launch
    nbytes: int


def main(small: bool, quarantine: Quarantine) -> None:
    gpu = Gpu(small=True)  # no warm-up, whose kernels would be profiled too
    seen: set[str] = set()
    for name, batch, precision, storage in SMALL if small else NETS:
        schedule, dtypes = step_of(Wanted(name, batch, precision), storage)
        nbytes = schedule.peak_bytes
        arena = gpu.driver.allocate(nbytes)
        gpu.driver.fill(int(arena), 0, nbytes, COMPUTE)
        with patch.multiple(traffic, ARENA=int(arena), ARENA_BYTES=nbytes):
            found = chosen(launches(schedule, precision, dtypes, gpu.driver.gpu.capability), seen)
        for each in found:
            if quarantine.reason(f"{each.module}.{each.function}"):
                continue
            gpu.starter([each], CONTEXT)()
            gpu.driver.synchronize()
        del arena
    gpu.driver.close()


def step_of(each: Wanted, storage: str) -> tuple[Schedule, Mapping[str, str]]:
    """A training step without a budget, and the element types of its 16-bit buffers."""
    job = job_of(each.build(), device=CudaDevice(precision=each.precision, storage=storage))
    dtypes = {name: buffer.tensor.dtype for name, buffer in job.graphs[0].buffers.items()}
    narrow = {name: dtype for name, dtype in dtypes.items() if dtype in NARROW.values()}
    return evaluate(job, "liveness").program.train, narrow


def launches(schedule: Schedule, precision: str, dtypes: Mapping[str, str], capability: str) -> Iterator[Moved]:
    """Yield all launches of kernels of cuda/."""
    for group in joined(schedule.instructions):
        op = group[0].op
        if op is not None and not op.part_passes and cuda_kernels.implements(op.record, op.step):
            yield from map(Moved, *traffic.group_launches(schedule, group, precision, dtypes, capability))


def chosen(found: Iterable[Moved], seen: set[str]) -> list[Launch]:
    """Choose launches of kinds that are not yet in `seen`, and add the kinds to it."""
    by_kind: dict[str, list[Moved]] = {}
    for each in found:
        if each.launch.module not in WITH_SCALARS:
            by_kind.setdefault(kind_of(each.launch), []).append(each)
    new = [kind for kind in by_kind if kind not in seen]
    products = [kind for kind in new if PRODUCT.search(kind)]
    others = sorted((kind for kind in new if kind not in products), key=lambda kind: total(by_kind[kind]), reverse=True)
    kinds = [*products, *others[:MEMORY_BOUND]]
    seen.update(kinds)
    return [max(by_kind[kind], key=lambda each: each.nbytes).launch for kind in kinds]


def kind_of(launch: Launch) -> str:
    """The module and function, without the tile of a product."""
    return f"{launch.module}.{TILE.sub('', launch.function)}"


def total(found: Sequence[Moved]) -> int:
    return sum(each.nbytes for each in found)


if __name__ == "__main__":
    is_small, (path, *folders) = "--small" in sys.argv, [Path(word) for word in sys.argv[1:] if word != "--small"]
    how = Options(is_small, brief=False, seconds=0.0, call=Call(path), earlier=folders)
    main(is_small, Quarantine(how.rows_of_same_sources()))
