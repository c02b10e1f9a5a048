"""Coverage of each kernel of products by the checks on a GPU (tests/tools/test_large_products.py requires all of it).

A launch covers a kernel completely if its matrices have full and partial tiles, in rows and in columns; if it sums more
stages than the ring of shared memory holds, with a partial last one; and, by warpgroups, if there are more tiles than
blocks, so that a block takes a second one.  Checks are bound without running, so no GPU is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from layermem.backends.cuda.products import conv_patch
from layermem.backends.cuda.products.gemm_tiles import SMS, GemmEngine
from layermem.backends.cuda.products.warpgroup import WarpgroupEngine, tiles_of
from layermem.backends.cuda.support.launch import Launch, ceil_div
from tools.gpu.every_kernel import Check

SMALL_GPU = 1  # multiprocessors of an emulated GPU whose blocks take a second tile
KERNEL = re.compile(r"conv_\w*?_(\d+)x(\d+)_v\d+$")


class Met(NamedTuple):
    """A launch: rows and columns of its matrices and of its tile, k in all and per stage, stages of the ring, tiles and
    blocks."""

    kernel: str
    matrices: tuple[int, int]
    tile: tuple[int, int]
    depth: int
    stage: int
    ring: int
    tiles: int
    blocks: int

    @property
    def lacks(self) -> tuple[str, ...]:
        """The aspects of the kernel that it does not cover."""
        whole_stages = ".conv_dgrad" in self.kernel and self.kernel.endswith("_v8") and self.is_by_warpgroups
        found = {
            "full tile": all(size > own for size, own in zip(self.matrices, self.tile, strict=True)),
            "tail": all(size % own for size, own in zip(self.matrices, self.tile, strict=True)),
            "ring": ceil_div(self.depth, self.stage) > self.ring,
            "tail of k": whole_stages or self.depth % self.stage != 0,  # outputs may be multiples of a stage
            "second tile": not self.is_by_warpgroups or self.tiles > self.blocks,
        }
        return tuple(name for name, is_met in found.items() if not is_met)

    @property
    def is_by_warpgroups(self) -> bool:
        return "_sm90a." in self.kernel


def met(wanted: Iterable[Check], multiprocessors: int = SMS) -> list[Met]:
    """The launches of these checks on a GPU with this number of multiprocessors, without those that are made and not
    launched."""
    found: list[Met] = []
    for each in wanted:
        made: list[Met] = []
        recorder = Recorder(multiprocessors)
        with noting(made.append), each.tiles(), suppress(AssertionError):  # results are not computed
            each.make(each.way(recorder)).run_once()
        found += (launch for launch in made if launch.kernel in recorder.launched)
    return found


@contextmanager
def noting(note: Callable[[Met], None]) -> Iterator[None]:
    """A context that notes launches by engines."""
    of_every_gpu, by_warpgroups, of_patch = GemmEngine.launch, WarpgroupEngine.launch, GemmEngine.of_patch

    def launch(
        engine: GemmEngine, product: str, vector: int, args: str, matrices: Any, depth: int, **more: Any
    ) -> Launch:
        made = of_every_gpu(engine, product, vector, args, matrices, depth, **more)
        note(_met(made, matrices, depth, engine.depth, engine.stages))
        return made

    def launch_by_warpgroups(
        engine: WarpgroupEngine, product: str, vector: int, args: str, matrices: Any, depth: int, **more: Any
    ) -> Launch:
        made = by_warpgroups(engine, product, vector, args, matrices, depth, **more)
        if made.module.endswith("_sm90a"):  # others were noted when they were made
            (ring,) = {tile.stages for tile in tiles_of(engine)}
            note(_met(made, matrices, depth, engine.depth, ring))
        return made

    def launch_of_patch(engine: GemmEngine, plain: Launch, problem: Any, matrices: Any) -> Launch:
        made = of_patch(engine, plain, problem, matrices)
        if made is not plain:
            depth = prod(problem.kernel) * problem.c // problem.groups
            note(_met(made, matrices, depth, conv_patch.DEPTH, conv_patch.STAGES))
        return made

    with (
        patch.object(GemmEngine, "launch", launch),
        patch.object(WarpgroupEngine, "launch", launch_by_warpgroups),
        patch.object(GemmEngine, "of_patch", launch_of_patch),
    ):
        yield


def _met(launch: Launch, matrices: tuple[int, int, int], depth: int, stage: int, ring: int) -> Met:
    tile = KERNEL.match(launch.function)
    assert tile is not None, launch.function
    m, n = int(tile[1]), int(tile[2])
    rows, columns, repeat = matrices
    tiles = ceil_div(rows, m) * ceil_div(columns, n) * repeat
    return Met(
        f"{launch.module}.{launch.function}", (rows, columns), (m, n), depth, stage, ring, tiles, prod(launch.grid)
    )


class Recorder:
    """Stands for a GPU and its driver: everything has an address, and nothing runs."""

    def __init__(self, multiprocessors: int) -> None:
        self.driver, self._next = self, 4096
        self.gpu = SimpleNamespace(multiprocessors=multiprocessors)
        self.launched: set[str] = set()  # names as module.function

    def placed(self, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
        return {role: array.ctypes.data for role, array in arrays.items()}

    def launch(self, launch: Launch, context: Mapping[str, Any]) -> None:
        self.launched.add(f"{launch.module}.{launch.function}")

    def bring_back(self) -> None: ...

    def allocate(self, nbytes: int) -> int:
        self._next += nbytes
        return self._next - nbytes

    def fill(self, address: int, byte: int, nbytes: int, stream: str) -> None: ...

    def read(self, into: np.ndarray, address: int) -> None:
        into[...] = 0

    def copy_within(self, target: int, source: int, nbytes: int, stream: str) -> Callable[[], None]:
        return lambda: None

    def synchronize(self) -> None: ...


def best(launches: Iterable[Met]) -> dict[str, Met]:
    """For each kernel, the launch that lacks the fewest aspects."""
    found: dict[str, Met] = {}
    for each in launches:
        if each.kernel not in found or len(each.lacks) < len(found[each.kernel].lacks):
            found[each.kernel] = each
    return found
