"""Times one step of a net by instruction on all streams, which shows overlaps and idle times.

Events surround every instruction, after its waits.  timeline.json is a trace for Perfetto or chrome://tracing, which
the rows summarize.  The events make the step slightly slower.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from layermem.api import job_of
from layermem.backends.base import Bound, sequence
from layermem.backends.cuda import CudaDevice
from layermem.backends.cuda.device import record_event
from layermem.report.plan_report import evaluate
from layermem.schedule.ir import COMPUTE, Instruction
from layermem.solver.benchmark import Benchmark
from tools.gpu.results import Options, Results, Row
from tools.gpu.whole_nets import MOST, Wanted, wanted, warm_up

BUDGETS = (None, "40%")
GAP_MS = 0.02  # idle time that counts as a gap


class Span(NamedTuple):
    """An instruction on its stream, in milliseconds from the first of the step."""

    stream: str
    name: str
    begin: float
    end: float


class TimedDevice(CudaDevice):
    """A device that records events around every instruction of its schedules."""

    def order_streams(
        self,
        instructions: Sequence[Instruction],
        calls: Sequence[Bound],
        cancel: Bound | None = None,
        free_from: Mapping[str, int] = {},
    ) -> Sequence[Bound]:
        self.timed = [(each, self.driver.event(timed=True), self.driver.event(timed=True)) for each in instructions]
        return super().order_streams(
            instructions, [self._timed(*each) for each in zip(self.timed, calls)], cancel, free_from
        )

    def _timed(self, timed: tuple[Instruction, Any, Any], call: Bound) -> Bound:
        instruction, begin, end = timed
        stream = self.driver.streams[instruction.stream]
        return sequence([record_event(stream, begin), call, record_event(stream, end)])

    def spans(self) -> list[Span]:
        """The spans of the last step."""
        _, origin, _ = self.timed[0]
        return [
            Span(each.stream, each.what, origin.time_till(begin), origin.time_till(end))
            for each, begin, end in self.timed
        ]


def run(results: Results, options: Options) -> None:
    traces: list[Row] = []
    for each in wanted(options)[:MOST]:
        for budget in BUDGETS:
            how = budget or "unlimited"

            def work(each: Wanted = each, budget: str | None = budget, how: str = how) -> None:
                device = TimedDevice(precision=each.precision)
                net = each.build()
                job = each.job(net, device, options) or job_of(net, device=device)
                found = evaluate(job, None, budget)
                if not found.feasible:
                    found = evaluate(job, None, found.minimum_bytes)
                bench = Benchmark(job.nets[0], found.feasible_program(), device)
                warm_up(bench, options)
                bench.step()
                spans = device.spans()
                traces.extend(trace(spans, f"{each.title} {how}"))
                options.call.keep({"timeline.json": json.dumps(traces).encode()})
                results.add(net=each.title, precision=each.precision, how=how, **summary(spans))

            results.attempt(work, most=60, net=each.title, precision=each.precision, how=how)
            gc.collect()


def trace(spans: Iterable[Span], what: str) -> list[Row]:
    """Events of the trace format that Chrome defined, in microseconds."""
    return [
        {
            "ph": "X",
            "pid": what,
            "tid": span.stream,
            "name": span.name,
            "ts": 1e3 * span.begin,
            "dur": 1e3 * (span.end - span.begin),
        }
        for span in spans
    ]


def summary(spans: Sequence[Span]) -> Row:
    """Milliseconds of the step, of each stream's work, of copies that no op hides, and of gaps on the compute
    stream."""
    streams: dict[str, list[Span]] = {}
    for span in spans:
        streams.setdefault(span.stream, []).append(span)
    compute = sorted(streams.get(COMPUTE, []), key=lambda span: span.begin)
    end = max(span.end for span in spans)
    copies = [span for span in spans if span.stream != COMPUTE]
    gaps = [later.begin - span.end for span, later in pairwise(compute)]
    row = {"step ms": end} | {f"{name} ms": sum(s.end - s.begin for s in of) for name, of in streams.items()}
    exposed = sum(span.end - span.begin - overlap(span, compute) for span in copies)
    return row | {
        "exposed copies ms": exposed,
        "gaps ms": sum(max(0.0, gap) for gap in gaps),
        "gaps": sum(gap > GAP_MS for gap in gaps),
        "largest gap ms": max(gaps, default=0.0),
        "behind the largest": compute[gaps.index(max(gaps))].name if gaps else "",
    }


def overlap(span: Span, others: Iterable[Span]) -> float:
    """Duration for which one of `others`, which do not overlap each other, runs at the same time as `span`."""
    return sum(max(0.0, min(span.end, each.end) - max(span.begin, each.begin)) for each in others)
