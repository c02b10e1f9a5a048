"""InnerProductUpdate: a weight gradient consumed band by band gives the bits of the whole one and its update."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.cuda import inner_product_update
from layermem.backends.cuda.inner_product import conv_problem
from layermem.backends.cuda.products.gemm_tiles import ENGINES
from layermem.ops import InnerProductUpdate, Update
from layermem.solver.rules import HISTORY_COUNTS
from tests.backends.cuda.harness import PLAIN, Memory, Way, layer_of, run_op
from tests.backends.cuda.test_update import SETTINGS
from tests.cases.inner_product import BANDS
from tests.emulator.emulate import WAYS


def learned(rows, inner, outputs, rule):
    layer = layer_of(f'type: "InnerProduct" inner_product_param {{ num_output: {outputs} }}', (rows, inner))
    update = Update(rule, "w", layer.params[0].tensor, lr_mult=2.0, decay_mult=0.5)
    return InnerProductUpdate(layer.record, update)


def both_ways(it, rng, monkeypatch, way=PLAIN):
    """What the two ops leave in w, its optimizer state and the bias gradient; and what the one leaves."""
    product, update = it.product, it.update
    monkeypatch.setattr(inner_product_update, "BAND_BYTES", 1)
    given = {"x0": product.x.shape, "dy0": product.y.shape, "w0": update.tensor.shape}
    given |= {f"h{i}": update.tensor.shape for i in range(HISTORY_COUNTS[update.rule])}
    values = {role: rng.random(shape) for role, shape in given.items()}
    found = []
    for joined in (False, True):
        memory = Memory()
        arrays = {role: memory.stored(value, np.float32) for role, value in values.items()}
        arrays["dw1"] = memory.stored(np.full(product.outputs, np.nan), np.float32)
        reads = {role: arrays[role] for role in ("x0", "dy0", "dw1")}
        moves = {role: array for role, array in arrays.items() if role not in reads}
        if joined:
            run_op(it, "backward_update", arrays, context=SETTINGS, way=way)
        else:
            dw = memory.stored(np.full(update.tensor.shape, np.nan), np.float32)
            run_op(product, "wgrad", {**reads, "dw0": dw}, way=way)
            run_op(update, "update", {**moves, "dw0": dw}, context=SETTINGS, way=way)
        memory.check()
        found.append({**moves, "dw1": arrays["dw1"]})
    assert (found[0]["w0"] != np.float32(values["w0"])).all()
    return found


@pytest.mark.parametrize("precision", ENGINES)
@pytest.mark.parametrize("shape", BANDS)
def test_bands_give_the_bits_of_the_whole(shape, precision, rng, monkeypatch):
    apart, joined = both_ways(learned(*shape, "SGD"), rng, monkeypatch, replace(PLAIN, precision=precision))
    assert len(inner_product_update.bands(conv_problem(learned(*shape, "SGD").product))) > 1
    for role, value in apart.items():
        assert value.tobytes() == joined[role].tobytes(), role


@pytest.mark.parametrize("rule", HISTORY_COUNTS)
def test_every_update_rule_runs_by_bands(rule, rng, monkeypatch):
    apart, joined = both_ways(learned(5, 12, 131, rule), rng, monkeypatch)
    for role, value in apart.items():
        assert value.tobytes() == joined[role].tobytes(), role


@pytest.mark.samples(2)
@pytest.mark.parametrize("way", [Way(*way) for way in WAYS if way[0] != "plain"], ids=lambda way: way.mode)
def test_bands_stay_in_bounds_and_have_no_races(way, rng, monkeypatch):
    both_ways(learned(3, 7, 131, "SGD"), rng, monkeypatch, way)


def test_a_gradient_that_is_summed_in_parts_is_so_band_by_band(rng, monkeypatch):
    it = learned(600, 8, 131, "SGD")
    assert inner_product_update.split_of(conv_problem(it.product)).parts > 1
    apart, joined = both_ways(it, rng, monkeypatch)
    assert apart["w0"].tobytes() == joined["w0"].tobytes()
