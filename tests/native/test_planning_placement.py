"""Placement in C++ (layermem._native.place), compared with a brute-force oracle, and its guarantees."""

from __future__ import annotations

import itertools
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layermem import _native


def place(intervals, align=1, **options):
    begin, end, size = columns(intervals)
    return _native.place(begin, end, size, align=align, **options)


def columns(intervals):
    table = np.array(intervals, dtype=np.int64).reshape(-1, 3)
    return tuple(np.ascontiguousarray(column) for column in table.T)


def collisions(intervals, placement, align=1):
    """Pairs that share a tick and a byte, found in quadratic time."""
    reach = [
        (b, e, o, o + -(-s // align) * align)
        for (b, e, s), o in zip(intervals, placement.offsets.tolist())
        if s > 0 and b < e
    ]
    return [
        (p, q)
        for p, q in itertools.combinations(reach, 2)
        if p[0] < q[1] and q[0] < p[1] and p[2] < q[3] and q[2] < p[3]
    ]


def collisions_at(ticks, intervals, placement, align=1):
    """Ticks, of those given, at which two intervals share a byte."""
    begin, end, size = columns(intervals)
    bottom = placement.offsets
    top = bottom + -(-size // align) * align
    bad = []
    for tick in ticks:
        alive = np.flatnonzero((begin <= tick) & (tick < end) & (size > 0))
        alive = alive[np.argsort(bottom[alive])]
        if (top[alive][:-1] > bottom[alive][1:]).any():
            bad.append(int(tick))
    return bad


def live_bytes(intervals, align=1):
    """The most aligned bytes alive at one tick, computed tick by tick."""
    ticks = {b for b, _, _ in intervals}
    return max((sum(-(-s // align) * align for b, e, s in intervals if b <= t < e) for t in ticks), default=0)


def least_height(intervals):
    """The optimum of a few intervals: the best order in which each is placed as low as the earlier ones permit."""
    best = sum(s for _, _, s in intervals)
    for order in itertools.permutations(intervals):
        placed = []
        for b, e, s in order:
            offset = max((top for pb, pe, top in placed if pb < e and b < pe), default=0)
            placed.append((b, e, offset + s))
        best = min(best, max(top for _, _, top in placed))
    return best


some_intervals = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 9)).map(lambda t: (t[0], t[0] + t[1], t[2])),
    max_size=24,
)


@given(some_intervals, st.sampled_from([1, 4, 256]))
def test_intervals_that_meet_in_time_never_meet_in_address(intervals, align):
    assert not collisions(intervals, place(intervals, align=align), align)


@given(some_intervals, st.sampled_from([1, 4, 256]))
def test_offsets_are_aligned_and_the_height_is_the_highest_byte_reached(intervals, align):
    p = place(intervals, align=align)
    assert all(offset % align == 0 and offset >= 0 for offset in p.offsets.tolist())
    tops = [o + -(-s // align) * align for (b, e, s), o in zip(intervals, p.offsets.tolist()) if s > 0 and b < e]
    assert p.height == max(tops, default=0)


@given(some_intervals, st.sampled_from([1, 4, 256]))
def test_max_live_is_the_peak_and_bounds_the_height(intervals, align):
    p = place(intervals, align=align)
    assert p.max_live == live_bytes(intervals, align) == p.bound
    assert p.height >= p.max_live


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 7)), min_size=1, max_size=6))
def test_a_few_intervals_get_the_least_height_there_is(drawn):
    intervals = [(b, b + d, s) for b, d, s in drawn]
    assert place(intervals).height == least_height(intervals)


def test_nothing_to_place_has_no_height():
    p = place([])
    assert (p.height, p.max_live, p.offsets.tolist()) == (0, 0, [])


def test_an_interval_that_begins_where_another_ends_takes_its_bytes():
    p = place([(0, 2, 5), (2, 4, 5)])
    assert p.offsets.tolist() == [0, 0]
    assert p.height == 5


def test_sizes_are_rounded_up_to_the_alignment_before_they_are_added():
    p = place([(0, 2, 1), (0, 2, 257), (0, 2, 256)], align=256)
    assert p.height == p.max_live == 256 + 512 + 256


def test_size_zero_and_an_empty_stay_conflict_with_nothing():
    p = place([(0, 9, 8), (3, 3, 100), (2, 5, 0)])
    assert p.height == p.max_live == 8


def test_no_free_interval_lies_below_the_floor():
    p = place([(0, 2, 5), (1, 3, 5)], align=4, floor=10)
    assert min(p.offsets.tolist()) == 12
    assert p.height == p.bound == 12 + 16
    assert p.max_live == 16


def test_a_fixed_interval_keeps_its_offset_and_others_go_around_it():
    intervals = [(0, 4, 4), (0, 2, 2), (1, 4, 3)]
    p = place(intervals, fixed=np.array([2, -1, -1]))
    assert p.offsets.tolist()[:2] == [2, 0]
    assert p.height == 9
    assert not collisions(intervals, p)


def test_fixed_intervals_alone_are_reported_where_they_are():
    p = place([(0, 4, 4), (0, 4, 4)], fixed=np.array([8, 0]))
    assert p.offsets.tolist() == [8, 0]
    assert p.height == p.bound == 12


@given(some_intervals, st.data())
def test_a_placement_with_some_offsets_fixed_is_still_one_without_collisions(intervals, data):
    first = place(intervals)
    keep = data.draw(st.lists(st.booleans(), min_size=len(intervals), max_size=len(intervals)))
    fixed = np.array([o if k else -1 for o, k in zip(first.offsets.tolist(), keep)], dtype=np.int64)
    again = place(intervals, fixed=fixed)
    assert not collisions(intervals, again)
    assert all(o == f for o, f in zip(again.offsets.tolist(), fixed.tolist()) if f >= 0)
    assert again.height >= again.bound >= again.max_live


def test_a_hole_that_every_greedy_rule_leaves_is_closed_by_the_search():
    # largest first: 5 high    least: 4 high
    #   . . . d d .
    #   b b b b . .            . e e d d .
    #   . e e . c c            a e e . c c
    #   a e e . c c            a e e . c c
    #   a e e . c c            b b b b c c
    a, b, c, d, e = (0, 1, 2), (0, 4, 1), (4, 6, 3), (3, 5, 1), (1, 3, 3)
    intervals = [a, b, c, d, e]
    p = place(intervals)
    assert (p.height, p.method) == (4, "search")
    assert place(intervals, step_seconds=0).height == 5
    assert not collisions(intervals, p)


def dissection(count, seed, side=1024):
    """A square cut at random into `count` intervals: few of their placements, if more than one, are `side` high."""
    random = np.random.default_rng(seed)
    pieces = [(0, side, 0, side)]
    while len(pieces) < count:
        area = np.array([(b - a) * (d - c) for a, b, c, d in pieces], dtype=float)
        a, b, c, d = pieces[(k := random.choice(len(pieces), p=area / area.sum()))]
        if random.random() < 0.5 and b - a > 1:
            cut = random.integers(a + 1, b)
            pieces[k : k + 1] = [(a, cut, c, d), (cut, b, c, d)]
        elif d - c > 1:
            cut = random.integers(c + 1, d)
            pieces[k : k + 1] = [(a, b, c, cut), (a, b, cut, d)]
    random.shuffle(pieces)
    return [(int(a), int(b), int(d - c)) for a, b, c, d in pieces]


@pytest.mark.parametrize("seed", range(4))
def test_a_square_cut_into_a_hundred_intervals_is_put_together_again_without_a_gap(seed):
    intervals = dissection(100, seed)
    greedy = place(intervals, step_seconds=0)
    p = place(intervals)
    assert p.height == p.max_live == 1024 < greedy.height
    assert not collisions(intervals, p)


def training_step(layers, seed):
    """Weights, activations that pile up in forward and go in backward, their diffs, and a workspace for each op."""
    random = np.random.default_rng(seed)
    size = (random.integers(1, 400, layers) * 4096).tolist()
    end = 2 * layers
    intervals = [(0, end, int(s)) for s in random.integers(1, 2_000_000, layers)]
    for i in range(layers):
        back = end - 1 - i
        intervals += [(i, back + 1, size[i]), (back - 1 if i < layers - 1 else back, back + 1, size[i])]
        intervals += [(t, t + 1, int(random.integers(1, 3_000_000))) for t in (i, back)]
    return intervals


@pytest.mark.parametrize("layers", [50, 300, 3000])
def test_a_training_step_with_all_its_activations_kept_needs_no_byte_above_max_live(layers):
    intervals = training_step(layers, seed=layers)
    p = place(intervals, align=256)
    assert p.height == p.max_live
    assert not collisions_at(np.linspace(0, 2 * layers - 1, 100).astype(int), intervals, p, 256)


def test_a_thousand_intervals_of_any_length_do_not_collide_either():
    random = np.random.default_rng(3)
    begin = random.integers(0, 5000, 1000)
    end = begin + np.where(random.random(1000) < 0.7, random.integers(1, 60, 1000), random.integers(1, 5000, 1000))
    intervals = list(zip(begin.tolist(), end.tolist(), random.integers(1, 1000, 1000).tolist()))
    for limit in (0, 0.1):
        p = place(intervals, step_seconds=limit)
        assert not collisions_at(begin, intervals, p)
        assert p.height >= p.max_live == live_bytes(intervals)


def test_short_intervals_far_from_the_peak_tick_fit_around_those_that_are_alive_there():
    crowded = [(1000 + b, 1000 + e, s) for b, e, s in dissection(100, seed=0)]
    random = np.random.default_rng(4)
    starts = random.permutation(np.r_[0:1000, 2024:3024]).tolist()
    sparse = [(t, t + 1, int(s)) for t in starts for s in random.integers(1, 250, 4)]
    p = place(crowded + sparse)
    assert p.height == p.max_live == 1024
    assert not collisions_at(np.arange(0, 3024, 7), crowded + sparse, p)


def test_the_same_intervals_get_the_same_offsets_every_time():
    intervals = dissection(150, seed=9)
    first, second = place(intervals, step_seconds=0.3), place(intervals, step_seconds=0.3)
    assert first.offsets.tolist() == second.offsets.tolist()
    assert first.method == second.method


def test_a_target_ends_the_search_as_soon_as_it_is_met():
    intervals = dissection(100, seed=1)
    p = place(intervals, target=10**9)
    assert p.height > p.max_live
    assert p.method == "greedy by size"


def test_the_search_starts_above_intervals_that_are_fixed_at_the_bottom():
    intervals = dissection(60, seed=2)
    whole_life = [(0, 1024, 50), (0, 1024, 30)]
    fixed = np.array([-1] * len(intervals) + [0, 50])
    p = place(intervals + whole_life, fixed=fixed)
    assert p.height == p.max_live == 1024 + 80
    assert min(p.offsets.tolist()[: len(intervals)]) == 80


def hard_to_place():
    """Intervals whose search takes longer than any test, so that it can be interrupted."""
    return dissection(3200, seed=0)


def test_ctrl_c_ends_a_search_at_once():
    def interrupt(signum, frame):
        raise KeyboardInterrupt

    intervals = hard_to_place()
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            place(intervals, step_seconds=60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - started < 50


@pytest.mark.whole
def test_other_threads_run_while_one_searches():
    done = threading.Event()
    intervals = hard_to_place()
    worker = threading.Thread(target=lambda: (place(intervals, step_seconds=0.5), done.set()))
    worker.start()
    turns = 0
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    worker.join()
    assert turns > 10


@pytest.mark.parametrize(
    ("intervals", "options", "reason"),
    [
        ([(3, 2, 1)], {}, "interval 0 ends before it begins"),
        ([(0, 1, -1)], {}, "interval 0 has a negative size"),
        ([(0, 1, 2**62)], {}, "overflow"),
        ([(0, 1, 1)], {"align": 0}, "align must be positive"),
        ([(0, 1, 1)], {"floor": -1}, "floor must not be negative"),
        ([(0, 1, 1)], {"fixed": np.array([0, 0])}, "one entry per interval"),
        ([(0, 1, 1)], {"fixed": np.array([3]), "align": 2}, "no multiple of 2"),
        ([(0, 2, 4), (1, 3, 4)], {"fixed": np.array([0, 2])}, "interval 1 is fixed on top of interval 0"),
    ],
)
def test_intervals_that_make_no_sense_are_refused_with_the_reason(intervals, options, reason):
    with pytest.raises(ValueError, match=reason):
        place(intervals, **options)


def test_the_profile_is_a_step_function_of_aligned_live_bytes():
    tick, live = _native.peak_profile(*columns([(0, 4, 10), (2, 6, 5), (4, 5, 1)]), align=4)
    assert tick.tolist() == [0, 2, 4, 5, 6]
    assert live.tolist() == [12, 20, 12, 8, 0]
    assert _native.max_live(*columns([(0, 4, 10), (2, 6, 5), (4, 5, 1)]), align=4) == 20
