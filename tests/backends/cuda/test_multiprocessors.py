"""Grids of products by warpgroups are those of the GPU at hand, and no number of multiprocessors changes a bit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from layermem.backends.cuda.products.warpgroup import PACKED_TILES, WARPGROUP_TILES
from tests.backends.cuda.on_fake_driver import run
from tests.emulator import fake_driver

pytestmark = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)

AT_ONCE = {tile.name: tile.blocks for tile in (*WARPGROUP_TILES, *PACKED_TILES)}  # blocks of a multiprocessor
STEP = """
import json, sys, tempfile
from pathlib import Path
from layermem.backends.base import get_device
from layermem.backends.cuda.products import warpgroup
from layermem.backends.cuda.driver.context import Driver
from layermem.interactive.solver import Solver
from tests.nets import DATA, LOSS, conv, solver_file

size, storage, runs = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "run"
warpgroup.THRESHOLDS = warpgroup.NO_THRESHOLDS
grids, launcher = {}, Driver.launcher

def noted(self, wanted, args, stream):
    if wanted.module.endswith("_sm90a"):
        grids[wanted.function] = wanted.grid
    return launcher(self, wanted, args, stream) if runs else (lambda: None)

Driver.launcher = noted
data = DATA.replace("dim: 3 dim: 6 dim: 5", f"dim: 64 dim: {size} dim: {size}")
with tempfile.TemporaryDirectory() as folder:
    file = solver_file(data + conv("a", "data", 64, 1) + conv("b", "a", 64, 1) + LOSS % "b", Path(folder))
    device = get_device("cuda", precision="bf16" if storage == "bf16" else "tf32", storage=storage)
    with Solver(file, device=device, allow_nan=not runs) as solver:
        solver.step(1)
        blobs = [blob.tobytes().hex() for blobs in solver.parameters().values() for blob in blobs]
device.driver.close()
print(json.dumps([grids, blobs]))
"""


def step(size: int, storage: str, what: str, multiprocessors: int) -> tuple[dict[str, list[int]], Any]:
    """The grids of a training step, and the parameters after it."""
    done = run(STEP, str(size), storage, what, multiprocessors=multiprocessors)
    assert done.returncode == 0, done.stderr
    grids, blobs = json.loads(done.stdout)
    return grids, blobs


@pytest.mark.samples(4)
@pytest.mark.parametrize("storage", ["fp32", "bf16"])
@pytest.mark.parametrize("multiprocessors", [78, 114])
def test_as_many_blocks_run_as_the_gpu_takes_at_once(multiprocessors, storage):
    grids, _ = step(96, storage, "bind", multiprocessors)
    products = {function for function in grids if not function.startswith("conv_wgrad")}
    assert len(products) >= 2 and len(grids) > len(products)
    for function in products:
        assert grids[function] == [AT_ONCE[function.split("_")[-2]] * multiprocessors, 1, 1]


@pytest.mark.whole
@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("storage", ["fp32", "bf16"])
def test_no_number_of_multiprocessors_changes_a_bit(storage):
    (few, first), (many, second) = (step(12, storage, "run", count) for count in (1, 132))
    assert few.keys() == many.keys() and few != many
    assert first == second
