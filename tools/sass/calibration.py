"""The model's constants from what a GPU has measured: results.json of tools/gpu_check.py.

    ceilings   rates of a copy, of reads from the L2 cache and the host's memory and of mma.sync from registers, and the
               time of a launch take the place of the estimates
    layers     the geometric mean of measured over modelled times scales the pipeline's cycles, by precision and
               operation, and the times of the kernels that memory bounds

The second is by the first: a factor of 1.2 means that the rates alone explain all but a fifth of the time.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from math import exp, log
from pathlib import Path
from typing import Any

from layermem.backends.cuda.base import cuda_kernels
from layermem.utils.units import aligned
from tests.backends.cuda.harness import record_of
from tests.cases import select
from tools.gpu.layers import bound, steps_of
from tools.sass.engine import OPERATIONS
from tools.sass.gpus import SUB_PARTITIONS, Gpu, Model
from tools.sass.net import OWN_ENGINE, OpTime, launches_time
from tools.traffic import ARENA, WORKSPACE, launches_bytes

Row = Mapping[str, Any]


def calibrated(path: Path, gpu: Gpu) -> Model:
    """The model of this GPU by the rows of the file; what was not measured stays as it is."""
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = {step: found.get(step, {}).get("rows", []) for step in ("ceilings", "layers")}
    model = with_ceilings(Model(gpu), rows["ceilings"])
    return with_layers(model, rows["layers"])


def with_ceilings(model: Model, rows: Iterable[Row]) -> Model:
    rates = {row["what"]: float(row["rate"]) for row in rows if "what" in row and "rate" in row}
    gpu = model.gpu
    peak = gpu.tensor * SUB_PARTITIONS * gpu.sm_clock / 1e12
    if rate := rates.get("copy on the GPU"):
        gpu = gpu._replace(dram=1e9 * rate)
    if rate := rates.get("mma tf32 rate"):
        gpu = gpu._replace(mma=min(1.0, rate / peak))
    if rate := rates.get("reading L2 cache"):
        gpu = gpu._replace(l2=1e9 * rate)
    link = 1e9 * rates.get("reading memory of the host", 1e-9 * model.link)
    launch = 1e-6 * rates["launch"] if "launch" in rates else model.launch
    return model._replace(gpu=gpu, launch=launch, link=link)


def with_layers(model: Model, rows: Iterable[Row]) -> Model:
    measured = {(row["layer"], row["op"], row["precision"]): 1e-3 * row["ms"] for row in rows if "ms" in row}
    ratios: dict[str | tuple[str, str], list[float]] = defaultdict(list)
    for key, time in case_times(model, measured):
        product = time.kind in OPERATIONS
        ratios[key[2], time.kind] += [measured[key] / time.seconds] * product
        ratios["memory"] += [measured[key] / time.seconds] * (not product)
    means = {key: exp(sum(map(log, each)) / len(each)) for key, each in ratios.items() if each}
    memory = means.pop("memory", model.memory)
    return model._replace(memory=memory, products={key: mean for key, mean in means.items() if isinstance(key, tuple)})


Key = tuple[str, str, str]  # layer, op, precision: as in a row of the step `layers`


def case_times(model: Model, wanted: Iterable[Key]) -> Iterator[tuple[Key, OpTime]]:
    """Modelled times of the ops that the step `layers` of tools/gpu_check.py measures, without those that run by
    warpgroups: the rates of that engine are not fitted."""
    wanted = set(wanted)
    for case in select("gpu"):
        precisions = {precision for layer, _, precision in wanted if layer == case.name}
        if not precisions:
            continue
        layer = case.layer("gpu")
        for step, tensors in steps_of(layer):
            workspace = cuda_kernels.workspace_bytes(record_of(layer, step), step.step, tuple(tensors))
            sizes = {role: tensor.nbytes for role, tensor in tensors.items()} | {WORKSPACE: workspace}
            spans = {role: range(begin, begin + sizes[role]) for role, begin in addresses_of(sizes).items()}
            addresses = {role: span.start for role, span in spans.items() if span}
            for precision in sorted(precisions):
                key = (case.name, step.step, precision)
                if key in wanted:
                    launches = bound(layer, step, tensors, addresses, precision, model.gpu.architecture)
                    if any(each.module.endswith(OWN_ENGINE) for each in launches):
                        continue
                    moved = launches_bytes(launches, spans, step.updates)
                    yield key, launches_time(case.name, step.step, step.flops, launches, moved, precision, model)


def addresses_of(sizes: Mapping[str, int]) -> dict[str, int]:
    """One behind the other in the arena of tools/traffic.py."""
    ends = accumulate(map(aligned, sizes.values()), initial=ARENA)
    return dict(zip(sizes, ends))
