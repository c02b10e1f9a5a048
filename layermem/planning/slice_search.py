"""Chooses the slices of a training step, and the bands of its weights, if the user leaves them to the planner.

    1  the step without slices, unless its lower bound exceeds the budget; it is the answer if it is nearly as fast as
       its ops alone
    2  cuts of ranges from the input and of the whole step (planning/slice_candidates.py), each judged in a millisecond:
       the seconds of its ops, the seconds to free the bytes by which keeping everything exceeds the budget, and the
       bytes below which no plan can go (planning/bounds.py)
    3  plans of the strategy for the most promising ones, two at a time (utils/parallel.py); cuts whose ops alone, or
       whose lower bound, take longer than the best plan are skipped
    4  more slices of the whole step, if they may be faster: the estimate for few slices is too low if the step is far
       over the budget
    5  the fastest of these, placed; slices are used only if they make the step faster, or if nothing else fits
    6  if that is far from the time of the ops, and there is memory to offload to: steps 2 to 5 with the weights that
       take much of the budget in bands of rows
    7  finer bands, for the same range and for a shorter one in half as many slices, while one of them is faster; then
       that range with the same bands and half as many slices, because estimates count copies of weights only roughly

If the user names the bands or wants none, steps 1 to 5 search with these.  If the user names the slices or wants none,
the bands of step 6 are planned in these slices, and then finer ones while they are faster.

All limits are counts, so the answer is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf

from layermem.errors import InputError
from layermem.graph.ops import FORWARD, Graph
from layermem.graph.slices import ALL, Cut
from layermem.graph.step_slicer import Slices
from layermem.planning.bounds import least_bytes, least_seconds
from layermem.planning.costs import Costs
from layermem.planning.fused_updates import with_fused_updates
from layermem.planning.fusion_search import Attempt
from layermem.planning.job import Job
from layermem.planning.plan import INTRA, Plan, program_order
from layermem.planning.registry import MINIMUM_MEMORY
from layermem.planning.settings import SETTINGS
from layermem.planning.slice_candidates import counts_of, cuts, in_use_bytes, ranges, row_bands
from layermem.schedule.program import Program
from layermem.utils.parallel import map_beside
from layermem.utils.units import ALIGN, aligned


def choose_slices(attempt: Attempt) -> Attempt:
    """The attempt in the slices that the user names, or, where the planner may choose, in those with the fastest
    program.  If none fits, they are those of the smallest budget, whose minimum every refusal names: a budget that
    fits."""
    job, budget_bytes = attempt.job, attempt.budget_bytes
    if not job.has_auto or budget_bytes is None or job.slicer is None:
        return attempt
    found = _chosen(attempt, budget_bytes)
    if found.seconds < inf or budget_bytes <= ALIGN:
        return found.attempt
    return _chosen(attempt, ALIGN).attempt


def _chosen(attempt: Attempt, budget_bytes: int) -> _Found:
    job = attempt.job
    found = _search(attempt, budget_bytes, job.slices) if job.auto_slices else _unsearched(attempt)
    fast_enough = SETTINGS.unbanded_ratio * ops_seconds(job.graphs[0], job.costs)
    if found.seconds <= fast_enough or job.hints.host_budget_bytes == 0 or not job.auto_bands:
        return found
    if not job.auto_slices:
        return _in_bands(found, budget_bytes)
    rows = _rows(job, budget_bytes)
    if not rows:
        return found
    banded = _search(attempt, budget_bytes, rows, found.seconds)
    return min(found, banded, key=lambda each: each.rank)


@dataclass(frozen=True)
class _Found:
    """The result of a search; `seconds` is infinite if it does not fit."""

    attempt: Attempt
    seconds: float
    live_bytes: int = 0

    @property
    def rank(self) -> tuple[float, int]:
        return self.seconds, self.live_bytes


def _search(attempt: Attempt, budget_bytes: int, rows: str = "", seconds: float = inf) -> _Found:
    """The fastest program below `seconds`, with batch slices or without; if none fits, the one with the fewest live
    bytes.

    rows   bands of rows, in the format of Slices; with those that the planner chose, slices near the fastest are also
           tried
    """
    job = attempt.job
    base = job.in_slices(rows) if rows else job
    whole = attempt.with_job(base) if rows else attempt
    fits = least_bytes(base.graphs[0], job.hints.host_budget_bytes) <= budget_bytes
    best = whole.fitting() if fits and not _is_slower(base, budget_bytes, seconds) else None
    if best is not None:
        seconds = min(seconds, best.program.seconds)
        if seconds <= SETTINGS.unsliced_ratio * ops_seconds(base.graphs[0], job.costs):
            return _Found(best, best.program.seconds)
    planned: list[_Planned] = []
    for thorough in (False, True):
        judged = sorted(_judge(base, rows, budget_bytes, seconds, thorough), key=lambda each: each.rank)
        planned += _plan(judged, attempt, budget_bytes, seconds)
        place = partial(_fastest_near, job) if rows and job.auto_bands else _fastest
        best = place(planned, budget_bytes, seconds) or best
        if best is not None:
            seconds = best.program.seconds
            break
    finer = _plan(_finer(base, rows, budget_bytes, seconds, planned), attempt, budget_bytes, seconds)
    best = _fastest(finer, budget_bytes, seconds) or best
    if best is not None:
        return _Found(best, best.program.seconds)
    if not planned:  # an op of every cut is over the budget
        least = least_bytes(base.graphs[0], job.hints.host_budget_bytes)
        every = _judge(base, rows, least, inf, True, budget_bytes)
        smallest_cut = min(every, key=lambda each: (each.least_bytes, each.live_bytes), default=None)
        planned = _plan([smallest_cut] if smallest_cut else [], attempt, budget_bytes, inf)
    smallest = [(_least_live_bytes(whole), 0, whole), *((each.live_bytes, 1, each.attempt) for each in planned)]
    live_bytes, _, least_attempt = min(smallest, key=lambda each: each[:2])
    return _Found(least_attempt, inf, live_bytes)


def _in_bands(found: _Found, budget_bytes: int) -> _Found:
    """`found`, in its slices, with the bands of rows with the fastest program below its seconds; if nothing fits, with
    those of the fewest live bytes."""
    attempt, job = found.attempt, found.attempt.job
    for doubled in range(SETTINGS.refinements + 1):
        rows = _rows(job, budget_bytes >> doubled)
        banded = _attempt_in(job, _joined(job.slices, rows), attempt) if rows else None
        if banded is None or _is_slower(banded.job, budget_bytes, found.seconds):
            continue
        other = _unsearched(banded)
        if other.rank < found.rank:
            found = other
        elif found.seconds < inf:
            break
    return found


def _unsearched(attempt: Attempt) -> _Found:
    """The result of no search: the program of an attempt."""
    placed = attempt.fitting()
    if placed is None:
        return _Found(attempt, inf, _least_live_bytes(attempt))
    return _Found(placed, placed.program.seconds)


# -- near slices that were planned ---------------------------------------------------------------------------------


def _fastest_near(job: Job, planned: list[_Planned], budget_bytes: int, seconds: float) -> Attempt | None:
    """The fastest program below `seconds` of `planned`, and of slices near the one with the fastest plan, or None."""
    fitting = _fitting(planned, budget_bytes)
    if not fitting:
        return None
    first, best = fitting[0].attempt, None
    centre = first.job.slices
    divisors, slices = {centre: 1}, [centre]

    def place(slices: str) -> tuple[tuple[Graph, ...], Program] | None:
        attempt = first if slices == first.job.slices else _attempt_in(job, slices, first)
        return None if attempt is None else _placed_below(attempt, budget_bytes, seconds)

    for _ in range(SETTINGS.refinements):
        near = _near(job, Slices.parse(centre), divisors[centre], budget_bytes)
        untried = [each for each in near if each not in divisors][:2]
        divisors |= {each: near[each] for each in untried}
        slices += untried
        for name, placed in zip(slices, map_beside(place, slices)):
            if placed is not None and placed[1].seconds < seconds:
                graphs, program = placed
                attempt = first.with_job(job.with_step(graphs))
                best, centre, seconds = replace(attempt, compiled=program), name, program.seconds
        if best is None:
            break
        slices = []
    others = [each for each in fitting[1:] if best is None or each.seconds < seconds]
    return _fastest(others, budget_bytes, seconds) or best


def _near(job: Job, slices: Slices, divisor: int, budget_bytes: int) -> dict[str, int]:
    """Slices to try in addition to these, each with its divisor: their bands of rows are for the budget over it."""
    cut, rows = slices.cut, ",".join(map(str, slices.bands))
    if cut is None:
        return {}
    finer, shorter = _rows(job, budget_bytes // (2 * divisor)), _shorter(job, slices, budget_bytes)
    halved = replace(cut, count=cut.count // 2) if cut.count >= 4 else None
    near = [(cut, finer, 2 * divisor), (shorter, finer, 2 * divisor), (shorter, rows, divisor), (halved, rows, divisor)]
    return {_joined(str(cut), rows): divisor for cut, rows, divisor in near if cut is not None}


def _shorter(job: Job, slices: Slices, budget_bytes: int) -> Cut | None:
    """The next shorter range, in half as many slices; None if there is none."""
    if slices.cut is None or slices.cut.count < 4:
        return None
    bands = ",".join(map(str, slices.bands))
    known = ranges(job.in_slices(bands).graphs[0], budget_bytes)
    place = known.index((slices.cut.first, slices.cut.last)) if (slices.cut.first, slices.cut.last) in known else 0
    return Cut(*known[place - 1], slices.cut.count // 2) if place else None


def _attempt_in(job: Job, slices: str, first: Attempt) -> Attempt | None:
    """The job in these slices, or None if it cannot be cut so."""
    try:
        return first.with_job(job.in_slices(slices))
    except InputError:  # a layer of the range mixes items, or the device cannot sum its slices
        return None


def _placed_below(attempt: Attempt, budget_bytes: int, seconds: float) -> tuple[tuple[Graph, ...], Program] | None:
    """The graphs of `attempt` and its program, if that takes less than `seconds`."""
    if _is_slower(attempt.job, budget_bytes, seconds):
        return None
    placed = attempt.fitting()
    if placed is None or placed.program.seconds >= seconds:
        return None
    return placed.job.graphs, placed.program


def _is_slower(job: Job, budget_bytes: int, seconds: float) -> bool:
    """Whether no program within the budget takes less than `seconds`."""
    if seconds == inf:
        return False
    graph, costs, host_bytes = job.graphs[0], job.costs, job.hints.host_budget_bytes
    return ops_seconds(graph, costs) >= seconds or least_seconds(graph, costs, budget_bytes, host_bytes) >= seconds


def _rows(job: Job, budget_bytes: int) -> str:
    """The bands of rows to try beside the named slices, in the format of Slices, for the weights that take much of the
    budget."""
    possible = []
    for bands in row_bands(job.whole, budget_bytes):
        try:
            job.in_slices(_joined(job.slices, str(bands)))
        except InputError:  # the device has no such bands, or an op reads all rows at once
            continue
        possible.append(str(bands))
    return ",".join(possible)


def can_slice(job: Job) -> bool:
    """Whether a range of layers that `auto` would try can run in slices."""
    if job.slicer is None:
        return False
    for of_range in cuts(job.whole, job.slicer.items, least_bytes(job.whole)):
        for cut in of_range[:1]:
            try:
                job.in_slices(str(cut))
            except InputError:  # a layer of the range mixes items, or the device cannot sum its slices
                continue
            return True
    return False


def may_fit_in_slices(job: Job, budget_bytes: int) -> bool:
    """Whether, for a job that can_slice(), the lower bound of a cut that `auto` would try is within the budget; its
    plans may need more."""
    return any(_judge(job, "", budget_bytes, inf, True))


# -- judging without a plan ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cut:
    """A job in slices, and its quick estimates."""

    job: Job
    live_bytes: int  # if everything is kept
    budget_bytes: int
    seconds_per_byte: float  # to recompute an average byte, or to bring it back

    @property
    def graph(self) -> Graph:
        return self.job.graphs[0]

    @cached_property
    def ops_seconds(self) -> float:
        """Seconds below which no plan can be."""
        return ops_seconds(self.graph, self.job.costs)

    @cached_property
    def least_bytes(self) -> int:
        """Bytes below which no plan can go."""
        return least_bytes(self.graph, self.job.hints.host_budget_bytes)

    @cached_property
    def floor_bytes(self) -> int:
        """The most bytes that an op needs in addition to the persistent buffers, plus these: about the least without
        copies of persistent buffers."""
        graph = with_fused_updates(self.graph)
        persistent_bytes = {b.name: aligned(b.nbytes) for b in graph.persistent()}
        own = (in_use_bytes(graph, op) - sum(persistent_bytes.get(b, 0) for b in op.touches) for op in graph.ops)
        return sum(persistent_bytes.values()) + max(own, default=0)

    @cached_property
    def score(self) -> float:
        """An estimate of the seconds of the best plan."""
        excess = max(0, self.live_bytes - self.budget_bytes)
        moved = max(0.0, self.floor_bytes - SETTINGS.tight_share * self.budget_bytes)
        if moved and self.job.hints.host_budget_bytes == 0:
            return inf
        move_seconds = SETTINGS.state_copies * moved / self.job.costs.rates.h2d
        return self.ops_seconds + excess * self.seconds_per_byte + move_seconds

    @property
    def rank(self) -> tuple[float, int, int]:
        """The sort key: cuts with low ranks are planned first."""
        return self.score, self.floor_bytes if self.score == inf else 0, len(self.graph.ops)


def _judge(
    job: Job, rows: str, budget_bytes: int, seconds: float, thorough: bool, enough_bytes: int | None = None
) -> Iterator[_Cut]:
    """Yield the cuts, of a job with `rows` in bands, that may be faster than `seconds` within the budget.  `thorough`:
    include the unpromising ones; `enough_bytes`: if a range keeps everything in these (default: the budget), more
    slices of it are skipped."""
    assert job.slicer is not None
    per_byte, ops, lowest = _seconds_per_byte(job), 0, seconds
    ranges = [*cuts(job.graphs[0], job.slicer.items, budget_bytes)]
    for of_range in reversed(ranges) if thorough else ranges:
        previous = inf
        for cut in of_range if ops <= SETTINGS.judged_ops else ():
            try:
                sliced = _sliced(job, str(cut), rows)
            except InputError:  # a layer of the range mixes items, or the device cannot sum its slices
                break
            graph = with_fused_updates(sliced.graphs[0])
            ops += len(graph.ops)
            limit = seconds if thorough else lowest
            if ops > SETTINGS.judged_ops or ops_seconds(sliced.graphs[0], job.costs) >= limit:
                break
            found = _cut(sliced, budget_bytes, per_byte)
            if found.least_bytes <= budget_bytes:
                yield found
            lowest = min(lowest, found.score)
            worse = previous < inf and found.score >= previous
            if found.live_bytes <= (enough_bytes or budget_bytes) or (worse and not thorough):
                break  # more slices only take longer
            previous = found.score


def _finer(job: Job, rows: str, budget_bytes: int, seconds: float, planned: Iterable[_Planned]) -> list[_Cut]:
    """Cuts of the whole step that may be faster than `seconds`, the time of a plan, in addition to those `planned`: the
    cut of the lowest score, and the fewest slices that keep everything within the budget; `rows` as in _judge."""
    assert job.slicer is not None
    per_byte, known = _seconds_per_byte(job), {each.attempt.job.graphs[0].slices for each in planned}
    promising: list[_Cut] = []
    is_looked_at = ("", "") in ranges(job.graphs[0], budget_bytes)
    for count in counts_of(job.slicer.items) if is_looked_at else ():
        try:
            cut = _cut(_sliced(job, f"{ALL}/{count}", rows), budget_bytes, per_byte)
        except InputError:  # a layer mixes items, or the device cannot sum its slices
            break
        if cut.ops_seconds >= seconds:
            break
        if cut.score < seconds and cut.least_bytes <= budget_bytes and cut.graph.slices not in known:
            promising.append(cut)
        if cut.live_bytes <= budget_bytes:
            break  # more slices only take longer
    keeping = [cut for cut in promising if cut.live_bytes <= budget_bytes]
    lowest = sorted(promising, key=lambda cut: cut.score)[:1]
    return [*lowest, *(cut for cut in keeping if cut not in lowest)]


def _sliced(job: Job, cut: str, rows: str) -> Job:
    """The job with a cut and bands; InputError if it cannot be cut."""
    return job.in_slices(_joined(cut, rows))


def _joined(cut: str, rows: str) -> str:
    """A cut and bands of rows, "" for none, in the format of Slices."""
    return ",".join(filter(None, (cut, rows)))


def _cut(sliced: Job, budget_bytes: int, seconds_per_byte: float) -> _Cut:
    keep_all = Plan("auto", program_order(with_fused_updates(sliced.graphs[0])), {}, INTRA)
    return _Cut(sliced, sliced.arena.live_bytes(keep_all), budget_bytes, seconds_per_byte)


def ops_seconds(graph: Graph, costs: Costs) -> float:
    """Seconds of all ops, each once, with the fused updates that save memory."""
    return sum(costs.op(op) for op in with_fused_updates(graph).ops)


def _seconds_per_byte(job: Job) -> float:
    """Seconds to recompute an average byte of activations, or to prefetch it if that is quicker."""
    forward = [op for op in job.whole.ops if op.kind == FORWARD]
    nbytes = sum(job.whole.buffers[b].nbytes for op in forward for b in op.writes)
    recompute = sum(job.costs.op(op) for op in forward) / max(1, nbytes)
    return recompute if job.hints.host_budget_bytes == 0 else min(recompute, 1 / job.costs.rates.h2d)


# -- plans ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Planned:
    """A cut with the strategy's plan."""

    attempt: Attempt
    live_bytes: int
    seconds: float  # never below those of the placed plan


def _plan(judged: list[_Cut], like: Attempt, budget_bytes: int, seconds: float) -> list[_Planned]:
    """Plan the first cuts of `judged` that may be below `seconds` with the strategy of `like`, two at a time; more of
    them while nothing fits."""
    planned: list[_Planned] = []
    waiting, ops, slower = list(judged), 0, 0
    while waiting:
        fitting = _fitting(planned, budget_bytes)
        limit = min((each.seconds for each in fitting), default=seconds)
        pair: list[_Cut] = []
        while waiting and len(pair) < 2:
            is_enough = len(planned) + len(pair) + slower >= SETTINGS.planned_cuts or ops > SETTINGS.planned_ops
            if (is_enough and (fitting or pair or slower)) or ops > SETTINGS.most_planned_ops:
                break
            cut = waiting.pop(0)
            if cut.ops_seconds < limit:
                pair.append(cut)
                ops += len(cut.graph.ops)
        if not pair:
            break
        attempts = [like.with_job(cut.job) for cut in pair]
        plans = map_beside(partial(_plan_below, budget_bytes, limit), attempts)
        for attempt, plan in zip(attempts, plans):
            if plan is None:
                slower += 1
                continue
            attempt.compiler.search.know(budget_bytes, plan)
            arena = attempt.job.arena
            planned.append(_Planned(attempt, arena.live_bytes(plan), arena.estimate_seconds(plan)))
    return planned


def _plan_below(budget_bytes: int, seconds: float, attempt: Attempt) -> Plan | None:
    """The plan of the strategy; None if no plan can take less than `seconds`."""
    if _is_slower(attempt.job, budget_bytes, seconds):
        return None
    return attempt.compiler.search.own_plan(budget_bytes)


def _fitting(planned: list[_Planned], budget_bytes: int) -> list[_Planned]:
    """The plans within the budget, the fastest first."""
    return sorted((each for each in planned if each.live_bytes <= budget_bytes), key=lambda each: each.seconds)


def _fastest(planned: list[_Planned], budget_bytes: int, seconds: float) -> Attempt | None:
    """The fastest program below `seconds`; None if there is none."""
    best: Attempt | None = None
    for each in _fitting(planned, budget_bytes):
        if best is not None and each.seconds >= seconds:
            break
        placed = each.attempt.fitting()
        if placed is not None and placed.program.seconds < seconds:
            best, seconds = placed, placed.program.seconds
    return best


def _least_live_bytes(attempt: Attempt) -> int:
    search = attempt.compiler.search
    return attempt.job.arena.live_bytes(search.plan_of(search.entry, MINIMUM_MEMORY))
