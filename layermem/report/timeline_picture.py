"""The content of the plots of a step, which timeline_image.py paints.

arena_picture    x: time, y: address; one box per residency, coloured by kind
memory_picture   live bytes over time, one line per strategy, and the budget; next to it time over memory
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from layermem.graph.ops import FORWARD
from layermem.report.memory import Span, live_bytes, spans
from layermem.report.plan_report import PlanReport
from layermem.utils.units import format_bytes, format_seconds

EDGED = 0.004  # share of the height above which a box has an edge
MAX_BOXES = 6000  # residencies with a box of their own: the largest ones by bytes times seconds
MERGED_COLUMNS = 200  # intervals of time within which smaller residencies are merged, by kind
MERGED_GAP = 0.002  # largest gap between merged residencies, as a share of the height
FAR_ABOVE = 1.25  # a budget above this multiple of the peak is only named: drawing it would flatten the plot

KIND_NAMES = {  # in the order of the legend, with colours distinct in greyscale too
    "parameter": ("parameters", "#3b4a6b"),
    "history": ("optimizer state", "#8a97b5"),
    "gradient": ("parameter gradients", "#d9a441"),
    "state": ("state of layers", "#4f9d5d"),
    "stash": ("stashes", "#8e5ea2"),
    "data": ("activations", "#3d85c6"),
    "diff": ("gradients", "#cf5c36"),
    "workspace": ("workspace", "#7a7a7a"),
}
INK = "#333333"
LINE_COLOURS = (
    "#1b1b1b",
    "#3d85c6",
    "#cf5c36",
    "#4f9d5d",
    "#8e5ea2",
    "#d9a441",
    "#2a9d9d",
    "#c2185b",
    "#7a7a7a",
    "#795548",
    "#5c6bc0",
    "#9e9d24",
)

Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class ArenaBox:
    """One residency: a box with seconds across and bytes upwards."""

    name: str
    kind: str
    begin: float
    end: float
    offset: int
    nbytes: int

    @property
    def description(self) -> str:
        last = format_seconds(self.end - self.begin)
        return (
            f"{self.name}: {format_bytes(self.nbytes)} at {self.offset:,}, from {format_seconds(self.begin)} for {last}"
        )


@dataclass(frozen=True)
class ArenaPicture:
    title: str
    boxes: tuple[ArenaBox, ...]
    seconds: float
    turn: float | None  # seconds at which the backward pass begins
    peak_bytes: int
    budget_bytes: int | None


@dataclass(frozen=True)
class PlotCurve:
    """One line of a plot; each value holds until the next."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    colour: str


@dataclass(frozen=True)
class MemoryPicture:
    """The content of a memory plot: `memory` over time; `trade` and its lower `bound`: overhead over bytes."""

    title: str
    memory: tuple[PlotCurve, ...]
    trade: tuple[PlotCurve, ...]
    bound: PlotCurve
    budget_bytes: int | None


def arena_picture(report: PlanReport) -> ArenaPicture:
    schedule, timeline = report.program.train, report.timeline
    shown = sorted(spans(schedule, timeline), key=_area, reverse=True)
    small = shown[MAX_BOXES:]
    merged = merge_boxes([_box(span) for span in small], timeline.seconds, schedule.peak_bytes)
    notes = f"; {len(small):,} small residencies merged" if small else ""
    budget, budget_note = _visible_budget(report.budget_bytes, schedule.peak_bytes)
    turn = next((timeline.start[r.tick] for r in schedule.instructions if r.op is not None and r.kind != FORWARD), None)
    return ArenaPicture(
        f"{report.job.title} under {report.strategy}: peak {format_bytes(schedule.peak_bytes)}{budget_note}{notes}",
        (*merged, *(_box(span) for span in shown[:MAX_BOXES])),
        timeline.seconds,
        turn,
        schedule.peak_bytes,
        budget,
    )


def merge_boxes(boxes: Sequence[ArenaBox], seconds: float, top: int) -> list[ArenaBox]:
    """Cover the area of `boxes` with far fewer ones: per interval of time and kind, near addresses are merged."""
    intervals: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for box in boxes:
        first, last = (min(int(t / seconds * MERGED_COLUMNS), MERGED_COLUMNS - 1) for t in (box.begin, box.end))
        for column in range(first, last + 1):
            intervals.setdefault((column, box.kind), []).append((box.offset, box.offset + box.nbytes))
    # By kind and place; equal places in the next interval join the box.
    merged: dict[tuple[str, int, int], list[ArenaBox]] = {}
    width, gap = seconds / MERGED_COLUMNS, int(MERGED_GAP * top)
    for (column, kind), places in sorted(intervals.items()):
        joined: list[list[int]] = []  # begin, end and count of residencies
        for begin, end in sorted(places):
            if joined and begin <= joined[-1][1] + gap:
                joined[-1][1:] = [max(joined[-1][1], end), joined[-1][2] + 1]
            else:
                joined.append([begin, end, 1])
        for begin, end, count in joined:
            same = merged.setdefault((kind, begin, end), [])
            start = same.pop().begin if same and same[-1].end == column * width else column * width
            name = f"{count} small {KIND_NAMES[kind][0]}"
            same.append(ArenaBox(name, kind, start, (column + 1) * width, begin, end - begin))
    return [box for same in merged.values() for box in same]


def _visible_budget(budget_bytes: int | None, peak_bytes: float) -> tuple[int | None, str]:
    """The budget that a plot up to `peak_bytes` draws, or None, and a text that names one far above it."""
    if budget_bytes is None or budget_bytes <= FAR_ABOVE * peak_bytes:
        return budget_bytes, ""
    return None, f" of a budget of {format_bytes(budget_bytes)}"


def _area(span: Span) -> float:
    return span.residency.nbytes * (span.end - span.begin)


def _box(span: Span) -> ArenaBox:
    r = span.residency
    return ArenaBox(r.buffer, span.kind, span.begin, span.end, r.offset, r.nbytes)


def memory_picture(
    reports: Sequence[PlanReport], trade: Mapping[str, Points], bound: Points, *, title: str
) -> MemoryPicture:
    colours = {report.strategy: LINE_COLOURS[i % len(LINE_COLOURS)] for i, report in enumerate(reports)}
    memory = tuple(_memory_curve(report, colours[report.strategy]) for report in reports)
    curves = [_points_curve(name, points, colours[name]) for name, points in trade.items() if points]
    given = next((report.budget_bytes for report in reports if report.budget_bytes is not None), None)
    budget, budget_note = _visible_budget(given, max(max(curve.ys) for curve in memory))
    title += budget_note.replace(" of a budget of", ", budget")
    return MemoryPicture(
        title, merge_equal(memory), merge_equal(curves), _points_curve("lower bound", bound, INK), budget
    )


def merge_equal(curves: Sequence[PlotCurve]) -> tuple[PlotCurve, ...]:
    """Replace equal curves, which would hide each other, by one curve with all their names."""
    merged: dict[tuple[tuple[float, ...], tuple[float, ...]], PlotCurve] = {}
    for curve in curves:
        points = curve.xs, curve.ys
        same = merged.get(points)
        merged[points] = curve if same is None else replace(same, name=f"{same.name} = {curve.name}")
    return tuple(merged.values())


def _points_curve(name: str, points: Points, colour: str) -> PlotCurve:
    xs, ys = zip(*sorted(points)) if points else ((), ())
    return PlotCurve(name, tuple(map(float, xs)), tuple(ys), colour)


def _memory_curve(report: PlanReport, colour: str) -> PlotCurve:
    seconds, counts = live_bytes(spans(report.program.train, report.timeline))
    return PlotCurve(
        f"{report.strategy}  {format_bytes(report.peak_bytes)}", tuple(seconds), tuple(map(float, counts)), colour
    )


def scale_of(largest: float, *, seconds: bool) -> tuple[float, str]:
    """The divisor and the unit for an axis up to `largest` seconds or bytes."""
    if seconds:
        return next(((f, u) for f, u in ((1e-6, "µs"), (1e-3, "ms")) if largest < 1000 * f), (1.0, "s"))
    steps = ((1024.0, "KiB"), (1024.0**2, "MiB"), (1024.0**3, "GiB"))
    return next(((f, u) for f, u in steps if largest < 1000 * f), (1024.0**4, "TiB"))
