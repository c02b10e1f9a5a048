"""Selects the tests and the cases that run under `pytest --thin`, as in `make check`.

    @pytest.mark.exhaustive(4)
    @pytest.mark.parametrize("mode", ["asan", "race"])
    @pytest.mark.parametrize("shape", SHAPES)

marks a test whose cases form a matrix in which neighbours run the same code: about one in four of them runs.  Each
value of each parameter occurs in one that runs, but for tests of emulated kernels: others launch every kernel.  A
matrix without a mark is thinned out by MATRIX_RATE, unless it has fewer cases than MATRIX_CASES.

    @pytest.mark.samples(4)
    @pytest.mark.parametrize("seed", range(20))

marks one whose cases differ only in a seed, a size, a net, a number format or a mutation: the first of every four runs.

    @pytest.mark.whole

marks one that takes long, and whose parts other tests run too: it is left out.

The choice depends only on the cases, and so is the same in every run.  Without `--thin` all cases run.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import pytest

MATRIX_CASES, MATRIX_RATE = 8, 2
Key = tuple[Hashable, ...]


def representatives(cases: Sequence[Sequence[int]], one_in: int, *, all_values: bool = True) -> list[int]:
    """Positions of the cases that run, in order.  A case is its index along each axis of the matrix.

    They are those on every `one_in`-th diagonal, where the sum of indices is a multiple of `one_in`, and with
    `all_values`, for values that these lack, the first case with most of them.
    """
    chosen = {place for place, case in enumerate(cases) if sum(case) % one_in == 0}
    if not all_values:
        return sorted(chosen)
    values = [set(enumerate(case)) for case in cases]
    missing = set().union(*values) - set().union(*(values[place] for place in chosen))
    while missing:
        place = max(range(len(cases)), key=lambda each: len(values[each] & missing))
        chosen.add(place)
        missing -= values[place]
    return sorted(chosen)


def axes(cases: Sequence[Mapping[str, object]]) -> list[tuple[int, ...]]:
    """For each case the indices of its parameters' values, in the order of first occurrence.  Parameters that change
    together, as in one `parametrize`, are one axis."""
    columns = {}
    for name in cases[0]:
        places: dict[Hashable, int] = {}
        columns[tuple(places.setdefault(_key(case[name]), len(places)) for case in cases)] = name
    return list(zip(*columns))


def _key(value: object) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return id(value)  # all cases with it share the object
    return type(value), value


def thin(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that run, in order, and those that do not."""
    tests: dict[Key, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            tests.setdefault((item.path, item.cls, item.originalname), []).append(item)
    left_out: set[pytest.Item] = {item for item in items if item.get_closest_marker("whole")}
    for cases in tests.values():
        matrix = axes([case.callspec.params for case in cases])
        all_values = cases[0].get_closest_marker("emulator") is None
        if marker := cases[0].get_closest_marker("samples"):
            chosen = list(range(0, len(cases), *marker.args))
        elif marker := cases[0].get_closest_marker("exhaustive"):
            chosen = representatives(matrix, *marker.args, all_values=all_values)
        elif len(matrix[0]) > 1 and len(matrix) >= MATRIX_CASES:
            chosen = representatives(matrix, MATRIX_RATE, all_values=all_values)
        else:
            continue
        left_out |= {*cases} - {cases[place] for place in chosen}
    return [item for item in items if item not in left_out], [item for item in items if item in left_out]
