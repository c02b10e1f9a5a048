"""Every kernel, in every way that the emulator runs it; and none that no layer launches."""

from __future__ import annotations

import pytest

from layermem.runtime.cuda.kernels import KERNELS, convolution
from layermem.runtime.cuda.kernels.convolution import TILES
from layermem.runtime.cuda.launch import Addresses
from layermem.runtime.cuda.sources import modules
from tests.cuda.harness import Way, first_step, kernel_names, wants_of
from tests.cuda.small import SMALL, Small
from tests.emulator.emulate import WAYS

STRICT = [Way(*way) for way in WAYS if way[0] != "plain"]  # with sanitizers, with the race checker
ORDERS = [Way(*way) for way in WAYS if way[0] == "plain"]


BESIDE = {"fill", "square_sums", "square_root"}  # and update rules: test_update.py


def launched(small: Small) -> set[str]:
    """The kernels of a layer's ops."""
    layer = small.case(Way()).layer
    wants = wants_of(layer)
    steps = [first_step(layer, wants), layer.replay(), *layer.backward(wants)]
    found = set()
    for step in filter(None, steps):
        addresses = Addresses({r: 256 * (i + 1) for i, r in enumerate((*step.reads, *step.writes, *step.updates))})
        found |= {launch.function for launch in KERNELS[f"{layer.type}.{step.step}"](layer, addresses)}
    return found


def test_the_small_layers_launch_every_kernel(monkeypatch):
    found = set()
    for tile in TILES:
        monkeypatch.setattr(convolution, "TILES", (tile,))
        found |= set().union(*(launched(small) for small in SMALL.values()))
    declared = {name for module in modules() for name in kernel_names(module)}
    rules = {name for name in declared if name.startswith("update_")}
    assert len(rules) == 6
    assert found | rules | BESIDE == declared


@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", ["convolution by fours", "convolution", "a wide odd product"])
def test_every_tile_stays_in_bounds_and_has_no_races(name, tile, way, monkeypatch):
    monkeypatch.setattr(convolution, "TILES", (tile,))
    SMALL[name].case(way).check()


@pytest.mark.parametrize("way", ORDERS, ids=lambda way: f"{way.order}-{way.copies}")
@pytest.mark.parametrize("name", SMALL)
def test_a_kernel_is_right_in_any_order_of_its_threads(name, way):
    SMALL[name].case(way).check()


@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
@pytest.mark.parametrize("name", SMALL)
def test_a_kernel_stays_in_bounds_and_has_no_races(name, way):
    SMALL[name].case(way).check()
