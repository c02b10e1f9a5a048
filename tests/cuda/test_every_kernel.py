"""Every kernel, in every way that the emulator runs it; and none that no layer launches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layermem.backends.cuda import implicit_gemm
from layermem.backends.cuda.implicit_gemm import ENGINES, TILES
from layermem.backends.cuda.kernel_images.sources import modules
from layermem.backends.cuda.kernels import KERNELS
from layermem.backends.cuda.launch import Addresses
from tests.cuda.harness import Way, first_step, kernel_names, wants_of
from tests.cuda.small import SMALL, Small
from tests.emulator.emulate import WAYS

STRICT = [Way(*way) for way in WAYS if way[0] != "plain"]  # with sanitizers, with the race checker
ORDERS = [Way(*way) for way in WAYS if way[0] == "plain"]


BESIDE = {"step.fill", "step.square_sums", "step.square_root"}  # and update rules: test_update.py


def launched(small: Small, precision: str = "fp32") -> set[str]:
    """The kernels of a layer's ops, module and name."""
    layer = small.case(Way()).layer
    wants = wants_of(layer)
    steps = [first_step(layer, wants), layer.recompute(), *layer.backward(wants)]
    found = set()
    for step in filter(None, steps):
        roles = (*step.reads, *step.writes, *step.updates)
        addresses = Addresses({r: 256 * (i + 1) for i, r in enumerate(roles)}, precision=precision)
        launches = KERNELS[f"{layer.type}.{step.step}"](layer, addresses)
        found |= {f"{launch.module}.{launch.function}" for launch in launches}
    return found


def test_the_small_layers_launch_every_kernel(monkeypatch):
    found = set()
    for tile in TILES:
        monkeypatch.setattr(implicit_gemm, "TILES", (tile,))
        for precision in ENGINES:
            found |= set().union(*(launched(small, precision) for small in SMALL.values()))
    declared = {f"{module}.{name}" for module in modules() for name in kernel_names(module)}
    rules = {name for name in declared if name.startswith("update.")}
    assert len(rules) == 6
    assert found | rules | BESIDE == declared


@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", ["convolution by fours", "convolution", "a wide odd product", "convolution in a sum"])
def test_every_tile_stays_in_bounds_and_has_no_races(name, tile, way, monkeypatch):
    monkeypatch.setattr(implicit_gemm, "TILES", (tile,))
    SMALL[name].case(way).check()


@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
@pytest.mark.parametrize("precision", [name for name in ENGINES if name != "fp32"])
@pytest.mark.parametrize("name", ["convolution by fours", "convolution", "inner product", "convolution in a sum"])
def test_products_on_tensor_cores_stay_in_bounds_and_have_no_races(name, precision, way):
    SMALL[name].case(replace(way, precision=precision)).check()


@pytest.mark.parametrize("way", ORDERS, ids=lambda way: f"{way.order}-{way.copies}")
@pytest.mark.parametrize("name", SMALL)
def test_a_kernel_is_right_in_any_order_of_its_threads(name, way):
    SMALL[name].case(way).check()


@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
@pytest.mark.parametrize("name", SMALL)
def test_a_kernel_stays_in_bounds_and_has_no_races(name, way):
    SMALL[name].case(way).check()
