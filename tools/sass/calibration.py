"""The model's constants from what a GPU has measured: results of tools/gpu_check.py, of one call or several.

    ceilings   rates of a copy, of reads from the L2 cache and the host's memory, of mma.sync and wgmma from
               registers, and the time of a launch take the place of the estimates
    layers     the geometric mean of measured over modelled times scales the pipeline's cycles, by precision and
               operation, and the times of the kernels that memory bounds
    tiles      so do those of each product's fastest tile of every shape, of both engines where there are two

The last two are by the first: a factor of 1.2 means that the rates alone explain all but a fifth of the time.  Of each
step the last call that has rows of it counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from math import exp, log
from pathlib import Path
from typing import Any

from layermem.backends.cuda.base import cuda_kernels
from layermem.ops import ITEMSIZE
from layermem.utils.units import aligned
from tests.backends.cuda.harness import record_of
from tests.cases import select
from tools.gpu import fit_tiles, tiles
from tools.gpu.kept import last_rows
from tools.gpu.layers import bound, steps_of
from tools.sass.direct import GROUPS, MODULE
from tools.sass.engine import OPERATIONS
from tools.sass.gpus import SUB_PARTITIONS, WARPGROUPS, Gpu, Model
from tools.sass.net import OWN_ENGINE, OpTime, launches_time
from tools.traffic import ARENA, WORKSPACE, launches_bytes

Row = Mapping[str, Any]
Ratios = dict[tuple[str, str], list[float]]  # measured over modelled, by precision and operation; ("", "memory")
MEMORY = ("", "memory")


def calibrated(paths: Sequence[Path], gpu: Gpu) -> Model:
    """The model of this GPU by the results in files and folders; what was not measured stays as it is."""
    model = with_ceilings(Model(gpu), last_rows(paths, "ceilings"))
    ratios: Ratios = defaultdict(list)
    for key, ratio in chain(layer_ratios(model, last_rows(paths, "layers")),
                            tile_ratios(model, fit_tiles.read_lines(paths))):  # fmt: skip
        ratios[key].append(ratio)
    means = {key: exp(sum(map(log, each)) / len(each)) for key, each in ratios.items()}
    memory = means.pop(MEMORY, model.memory)
    return model._replace(memory=memory, products=means)


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
    shares = (
        min(1.0, rates[name] / (peak * times)) if name in rates else share
        for name, times, share in zip(("wgmma tf32 rate", "wgmma bf16 rate"), (1, 2), gpu.wgmma)
    )
    of_four, of_two = shares
    gpu = gpu._replace(wgmma=(of_four, of_two))
    link = 1e9 * rates.get("reading memory of the host", 1e-9 * model.link)
    launch = 1e-6 * rates["launch"] if "launch" in rates else model.launch
    return model._replace(gpu=gpu, launch=launch, link=link)


# -- layers ------------------------------------------------------------------------------------------------------------


def layer_ratios(model: Model, rows: Iterable[Row]) -> Iterator[tuple[tuple[str, str], float]]:
    measured = {(row["layer"], row["op"], row["precision"]): 1e-3 * row["ms"] for row in rows if "ms" in row}
    for key, time, own in case_times(model, measured):
        kind = (key[2] + own, time.kind) if time.kind in OPERATIONS else MEMORY
        if time.kernel.startswith(MODULE):  # in all precisions alike
            kind = (GROUPS, time.kind)
        yield kind, measured[key] / time.seconds


Key = tuple[str, str, str]  # layer, op, precision: as in a row of the step `layers`


def case_times(model: Model, wanted: Iterable[Key]) -> Iterator[tuple[Key, OpTime, str]]:
    """Modelled times of the ops that the step `layers` of tools/gpu_check.py measures, and WARPGROUPS where these
    compute them."""
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
                    own = WARPGROUPS if any(each.module.endswith(OWN_ENGINE) for each in launches) else ""
                    moved = launches_bytes(launches, spans, step.updates)
                    time = launches_time(case.name, step.step, step.flops, launches, moved, precision, model)
                    yield key, time, own


def addresses_of(sizes: Mapping[str, int]) -> dict[str, int]:
    """One behind the other in the arena of tools/traffic.py."""
    ends = accumulate(map(aligned, sizes.values()), initial=ARENA)
    return dict(zip(sizes, ends))


# -- tiles -------------------------------------------------------------------------------------------------------------


def tile_ratios(model: Model, lines: Iterable[Row]) -> Iterator[tuple[tuple[str, str], float]]:
    """Of the fastest candidate of each engine, for every product of every shape; without inner products in parts."""
    fastest: dict[tuple[str, str, str, bool], Row] = {}
    for line in lines:
        key = line["precision"], line["shape"], line["op"], line["tile"].startswith(fit_tiles.WARPGROUPS)
        if line["op"] == "wgrad" or line["parts"] == 1:
            fastest[key] = min(fastest.get(key, line), line, key=lambda each: float(each["ms"]))
    for (precision, _, op, own), line in fastest.items():
        time = tile_time(model, line)
        if time is not None:
            yield (precision + WARPGROUPS * own, op), 1e-3 * line["ms"] / time.seconds


def tile_time(model: Model, line: Row) -> OpTime | None:
    """Modelled, of a line of tile_times.jsonl; None if the kernels of today have no such candidate."""
    problem, precision, op = fit_tiles.problem_of(line), line["precision"], line["op"]
    engine = fit_tiles.engine_of(precision)
    narrow = ITEMSIZE["bfloat16"] if engine.is_packed else ITEMSIZE["float32"]
    sizes = {role: narrow * blob.count for role, blob in (("maps", problem.maps), ("image", problem.image))}
    sizes |= {"filter": narrow * problem.filter.count, "wide": problem.filter.nbytes}
    sizes[WORKSPACE] = problem.filter.nbytes * line["parts"]
    spans = {role: range(begin, begin + sizes[role]) for role, begin in addresses_of(sizes).items()}
    places = {role: span.start for role, span in spans.items()} | {"parts": spans[WORKSPACE].start}
    engines = [engine, *tiles.by_warpgroups(precision, problem, model.gpu.architecture)]
    candidates = (each for make in (tiles.candidates, tiles.further) for its in engines
                  for each in make(its, problem, places, op))  # fmt: skip
    wanted = line["function"], line["parts"], line["split"]
    found = next((each for each in candidates if (each.function, each.parts, list(each.split or ())) == wanted), None)
    if found is None:
        return None
    moved = launches_bytes(found.launches, spans, [])
    return launches_time(line["shape"], op, tiles.work_of(problem), found.launches, moved, precision, model)
