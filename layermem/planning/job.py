"""The input of planning: graphs that share one arena, and the user's budget, slices, hints and costs for them.

budget   bytes, "2GiB", "50%" of the bytes of strategy `caffe`, "free" for the device's free bytes, or "80%free"
plan     a plan that `plan --save` wrote for exactly these graphs
slices   none, slices that a user names, or `auto`: the slices with the fastest plan (slice_search.py); so for the bands
         of rows in which large weights are split
hints    the user's hints, and those in the file next to the net
costs    measured times, or a model of the device
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.graph.caffe_bytes import beside, caffe_bytes
from layermem.graph.net import Net
from layermem.graph.ops import COMPUTE, Graph
from layermem.graph.step_slicer import Slices, StepSlicer, title_of_slices
from layermem.planning.costs import Costs, model_costs, read_costs
from layermem.planning.gpus import TargetGpu
from layermem.planning.hints import Hints, check_hints, hints_beside, merge_hints
from layermem.planning.plan import Plan, saved_fingerprint, saved_slices
from layermem.planning.strategies import get_strategy
from layermem.proto.text import decode
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.utils.files import PathName, check_path
from layermem.utils.input_files import TEXT_LIMIT_BYTES, read_bytes
from layermem.utils.units import aligned, bytes_of

Budget = Annotated[int | float | str | None, "checked by bytes_of"]  # as users write it; None is no limit
AUTO, OFF = "auto", "off"  # words of users for slices and for split weights; any other text names them


@dataclass(frozen=True, repr=False)
class Job:
    """`nets` are the nets of `graphs`, the train net first; the first graph trains.

    history_count   blobs of optimizer state per parameter
    free_bytes  returns the bytes of the budget `free`, given the bytes of the host arena
    slicer      makes the training step in slices; None without a training step, as for a net in TEST
    slices      slices of the first graph: a Slices as text; test nets run in the same slices if they have these layers
    auto_slices, auto_bands   whether the planner may choose slices of the batch, and bands of weights, beside these
    ranks       the rank of the graphs, and the number of ranks that train together
    """

    title: str
    nets: tuple[Net, ...]
    graphs: tuple[Graph, ...]
    costs: Costs
    history_count: int = 1
    hints: Hints = field(default_factory=Hints)
    free_bytes: Callable[[int], int] | None = None
    slicer: StepSlicer | None = None
    slices: str = ""
    auto_slices: bool = False
    auto_bands: bool = False
    ranks: Ranks = field(default_factory=Ranks)

    def __getstate__(self) -> dict[str, object]:
        """The pickled state: all but the caches of planners, and no function that reads the free bytes."""
        caches = ("arena", "train_arena", "less_fused")
        return {**{name: value for name, value in vars(self).items() if name not in caches}, "free_bytes": None}

    def __repr__(self) -> str:
        return f"<Job: {self.title} on {self.graphs[0].device}, {len(self.graphs)} graphs>"

    @cached_property
    def arena(self) -> ArenaPlanner:
        """The arena of all graphs; it caches the results of strategies."""
        return ArenaPlanner(self.graphs, self.costs)

    @cached_property
    def train_arena(self) -> ArenaPlanner:
        """The arena of the training step alone."""
        return self.arena if len(self.graphs) == 1 else ArenaPlanner(self.graphs[:1], self.costs)

    @cached_property
    def baseline_bytes(self) -> int:
        """Bytes of the arena under strategy `caffe`, without slices; percentages refer to it.  The strategy has no
        gaps, so its live bytes are its peak."""
        in_slices = self.graphs[0] is not self.whole
        arena = ArenaPlanner(self.unsliced, self.costs) if in_slices else self.arena
        plan = get_strategy("caffe").make(self.whole, self.costs, None, arena, Hints())
        return arena.live_bytes(plan)

    @cached_property
    def baseline_seconds(self) -> float:
        """Seconds of every op once, without slices and copies; communication runs at the same time."""
        return sum(self.costs.op(op) for op in self.whole.ops if op.stream == COMPUTE)

    @property
    def whole(self) -> Graph:
        """The training step without slices."""
        return self.unsliced[0]

    @property
    def has_auto(self) -> bool:
        """Whether the planner may choose slices of the batch, bands of weights, or both."""
        return self.auto_slices or self.auto_bands

    @property
    def wanted_slices(self) -> str:
        """The requested slices and bands, as text; "" for the whole step."""
        autos = ("slices", self.auto_slices), ("bands", self.auto_bands)
        return ",".join(filter(None, (self.slices, *(f"{AUTO} {name}" for name, is_auto in autos if is_auto))))

    @property
    def of_one_machine(self) -> Graph:
        """The training step that costs are measured with, for any number of ranks: of one machine, without slices."""
        return self.graphs[0] if self.slicer is None else self.slicer.of_one_machine

    @property
    def unsliced(self) -> tuple[Graph, ...]:
        """All graphs, without slices."""
        return self.graphs if self.slicer is None else (self.slicer.whole, *self.slicer.beside)

    @property
    def candidate_ops(self) -> int:
        """The number of ops of steps in other slices that a search has considered."""
        own = len(self.graphs[0].ops) if self.graphs[0].slices else 0
        return 0 if self.slicer is None else max(0, self.slicer.ops_made - own)

    @cached_property
    def less_fused(self) -> Job | None:
        """The same job with a step that omits some of its fusions (graph/rewrite.py); None if it has none to omit."""
        less = self.graphs[0].less_fused
        return None if less is None else replace(self, graphs=(less, *self.graphs[1:]))

    @cached_property
    def bvlc_bytes(self) -> int:
        """Bytes that BVLC Caffe itself would take."""
        train = caffe_bytes(self.nets[0], history_count=self.history_count).total
        return train + sum(beside(caffe_bytes(net)) for net in self.nets[1:])

    @property
    def warnings(self) -> list[str]:
        """Warnings for users about the graphs and their costs."""
        graphs = (warning for graph in self.graphs for warning in graph.warnings)
        return [*graphs, *self.costs.warnings(self.graphs[0])]

    # -- options of users --------------------------------------------------------------------------------------

    def resolve_budget(self, budget: Budget) -> int | None:
        """The bytes of a budget; None without a limit.  InputError if the budget has no meaning for this job."""
        if budget is None:
            return None
        ask = self.free_bytes
        free = None if ask is None else lambda: ask(self.most_host_bytes)
        return bytes_of(budget, whole=lambda: self.baseline_bytes, free=free)

    @property
    def most_host_bytes(self) -> int:
        """The most bytes that a host arena can have: all buffers, or the host budget."""
        every = sum(aligned(buffer.nbytes) for graph in self.graphs for buffer in graph.buffers.values())
        budget = self.hints.host_budget_bytes
        return every if budget is None else min(every, budget)

    def with_host_budget(self, budget: Budget) -> Job:
        """The same job with a host budget."""
        if budget is None:
            return self
        nbytes = bytes_of(budget, whole=lambda: self.baseline_bytes)
        return replace(self, hints=replace(self.hints, host_budget_bytes=nbytes))

    def with_slices(self, slices: str | None, split_weights: str | None = None) -> Job:
        """The same job with the user's slices of the batch and split weights.  InputError if the step cannot be cut in
        this way.

        slices          "auto", "off", or layers and a count such as "conv1..pool2/4" or "whole/4"; None is "off"
        split_weights   "auto", "off", or layers and counts of bands such as "fc6/8,fc7/4"; None is "auto" beside slices
                        that are "auto", else "off"
        """
        split_weights = split_weights or (AUTO if slices == AUTO else OFF)
        named = ("" if each in (None, AUTO, OFF) else str(each) for each in (slices, split_weights))
        job = self.in_slices(str(Slices.of(*named)))
        return replace(job, auto_slices=slices == AUTO, auto_bands=split_weights == AUTO)

    def in_slices(self, text: str) -> Job:
        """The same job with its training step in exactly the slices of a Slices as text; InputError as above."""
        chosen = Slices.parse(text)
        if text and self.slicer is None:
            raise InputError("slices are of a training step, and there is none; leave --slices and --split-weights out")
        graphs = self.slicer.graphs(chosen) if text and self.slicer is not None else self.unsliced
        return replace(self, graphs=graphs, slices=str(chosen), auto_slices=False, auto_bands=False)

    def with_step(self, graphs: tuple[Graph, ...]) -> Job:
        """The same job with the graphs of with_slices(), which another process may have made."""
        if self.slicer is not None:
            self.slicer.keep(graphs)
        return replace(self, graphs=graphs, slices=graphs[0].slices, auto_slices=False, auto_bands=False)

    def with_fingerprint(self, fingerprint: str) -> Job:
        """The same job with the step of this fingerprint, which may have fewer fusions; unchanged if there is none."""
        job: Job | None = self
        while job is not None and job.graphs[0].fingerprint != fingerprint:
            job = job.less_fused
        return job or self

    def with_plan(self, plan: Plan | PathName | None) -> tuple[Job, Plan | None]:
        """The job with the slices and fusions of a plan or of its file, and the plan; InputError for another job's."""
        if plan is None:
            return self, None
        if isinstance(plan, Plan):
            return self._in_slices_of(plan.slices, None).with_fingerprint(plan.fingerprint), plan
        check_path(plan, "saved plan")
        text = decode(read_bytes(plan, what="plan", limit=TEXT_LIMIT_BYTES), str(plan), what="plan")
        job = self._in_slices_of(saved_slices(text), str(plan)).with_fingerprint(saved_fingerprint(text))
        saved = Plan.from_json(text, job.graphs[0], str(plan))
        if saved.spill and self.costs.spill is None and self.hints.host_budget_bytes == 0:
            raise InputError(f"offloads to a spill file, on {saved.spill}; give --spill DIR as well", path=str(plan))
        return job, saved

    def _in_slices_of(self, slices: str, path: str | None) -> Job:
        if self.slices not in ("", slices) and not self.has_auto:
            made, here = title_of_slices(slices), title_of_slices(self.slices)
            what = f"the saved plan was made {made}, but this step is planned {here}"
            raise InputError(f"{what}; leave --slices and --split-weights out", path=path)
        try:
            return self.in_slices(slices)
        except InputError:  # a plan of another net has other layers
            return self.in_slices("")


def resolve_hints(hints: Hints, net: Net, host_budget_bytes: int | None = None) -> Hints:
    """`hints` merged with those in the file next to the net; InputError for a hint that names no layer of the net.

    host_budget_bytes   the host budget if neither has one
    """
    merged = merge_hints(hints, hints_beside(net.path))
    check_hints(merged, (node.layer.name for node in net.nodes))
    if merged.host_budget_bytes is None:
        return replace(merged, host_budget_bytes=host_budget_bytes)
    return merged


def resolve_costs(costs: Costs | PathName | None, device: str, gpu: TargetGpu | None = None) -> Costs:
    """`costs`, or the costs in a file; if it is None, the model of the device with this title and of this GPU."""
    if costs is None:
        return model_costs(device, gpu)
    return costs if isinstance(costs, Costs) else read_costs(Path(check_path(costs, "cost file")), device, gpu)


def title_of(net: Net) -> str:
    """ "ResNet-50 x32" for a net whose first blob has 32 items."""
    shape = net.nodes[0].layer.tops[0].shape if net.nodes[0].layer.tops else ()
    return f"{net.name} x{shape[0]}" if shape else net.name


def items_of(net: Net) -> int:
    """The items of a batch: images, or rows of the first blob; 0 for a net without any or with a batch of sequences."""
    shape = net.nodes[0].layer.tops[0].shape if net.nodes[0].layer.tops else ()
    return 0 if not shape or net.shapes_with_streams(1) else shape[0]
