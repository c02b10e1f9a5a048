"""Graphs with weights in bands of rows: what becomes a band, in which order they run, and what is refused."""

from dataclasses import replace

import pytest

from layermem.backends.cpu import CpuDevice
from layermem.backends.reference import ReferenceDevice
from layermem.data import probe
from layermem.errors import InputError
from layermem.graph.bands import BandedWeights, Bands
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD, FORWARD, GRADIENT, HISTORY, PARAMETER, UPDATE
from layermem.graph.train import UpdateRule, forward_graph, train_graph, update_graph
from layermem.ops import BandRules, RowBand
from layermem.planning.costs import MODELS, Costs
from layermem.proto.read import read_net_text
from layermem.schedule.check import violations
from layermem.schedule.text import parse, text
from tests.compiling import compile
from tests.graph.test_slices import mirrors_forward
from tests.nets import DATA, LOSS, WIDE, conv, relu

MOMENTUM = UpdateRule("SGD", 1)


def net_of(source: str) -> Net:
    return Net(read_net_text(source), 0, probe=probe)


def banded(rows: str, device=None, source: str = WIDE, **options):
    device, bands = device or CpuDevice(), Bands.parse(rows)
    graph = train_graph(net_of(source), device, MOMENTUM, unfused=[bands.layer], **options)
    weights = BandedWeights.of(graph, bands, device)
    return weights.in_bands(graph, device)


def names(graph, kind, layer="wide"):
    return [op.name for op in graph.of_kind(kind) if op.name.startswith(f"{layer}.")]


def test_bands_are_read_as_they_are_written():
    assert str(Bands.parse(" inception/fc6/rows/8 ")) == "inception/fc6/rows/8"
    assert Bands.parse("fc6/rows/8") == Bands("fc6", 8)


@pytest.mark.parametrize("written", ["fc6/rows", "/rows/8", "fc6/rows/x", "fc6/rows/1"])
def test_bands_without_a_layer_or_a_count_are_refused(written):
    with pytest.raises(InputError, match="name no layer and a count of 2 or more"):
        Bands.parse(written)


# -- order and names ---------------------------------------------------------------------------------------------------


def test_forward_runs_the_bands_in_falling_and_backward_in_rising_order_each_with_its_update():
    graph = banded("wide/rows/2")
    assert names(graph, FORWARD) == ["wide.forward.rows2/2", "wide.forward.rows1/2", "wide.join"]
    order = [name for i in (1, 2) for name in (f"wide.wgrad.rows{i}/2", f"wide.dgrad.rows{i}/2")]
    assert names(graph, BACKWARD) == ["wide.wgrad", *order]
    position = graph.position
    assert position["wide.w0.rows1/2.update"] == position["wide.dgrad.rows1/2"] + 1 < position["wide.wgrad.rows2/2"]
    assert mirrors_forward(graph)


def test_each_band_of_a_parameter_has_its_gradient_and_its_optimizer_state():
    graph = banded("wide/rows/3")
    for kind, name in ((PARAMETER, "wide.w0"), (GRADIENT, "wide.w0.diff"), (HISTORY, "wide.w0.h0")):
        bands = [graph.buffers[f"{name}.rows{i}/3"] for i in (1, 2, 3)]
        assert name not in graph.buffers and {band.kind for band in bands} == {kind}
        assert [band.tensor.shape for band in bands] == [(33, 4, 6, 5), (33, 4, 6, 5), (34, 4, 6, 5)]
        assert [(band.band_of.whole.name, band.band_of.first) for band in bands] == [(name, 0), (name, 33), (name, 66)]
    band = graph.by_name["wide.wgrad.rows2/3"]
    assert band.record.band == RowBand(33, 100) and band.record.outputs == 33
    assert dict(band.roles) == {"x0": "stem'", "dy0": "wide.diff", "dw0": "wide.w0.diff.rows2/3"}
    assert dict(graph.by_name["wide.wgrad"].roles) == {"dy0": "wide.diff", "dw1": "wide.w1.diff"}


def test_later_bands_go_on_with_the_sum_of_those_before():
    graph = banded("wide/rows/2")
    first, second = (graph.by_name[f"wide.dgrad.rows{i}/2"] for i in (1, 2))
    assert first.writes == ("stem'.diff",) and not first.accumulates
    assert second.updates == ("stem'.diff",) and second.accumulates == ("dx0",)


def test_where_a_device_has_no_such_sum_one_dgrad_reads_all_bands():
    graph = banded("wide/rows/2", ReferenceDevice())
    dgrad = graph.by_name["wide.dgrad"]
    assert dgrad.step == "gathered_dgrad" and set(dgrad.reads) == {"wide.diff", "wide.w0.rows1/2", "wide.w0.rows2/2"}
    assert graph.position["wide.dgrad"] < graph.position["wide.wgrad.rows1/2"]


def test_rows_of_a_band_are_multiples_of_what_the_device_needs():
    class Stages(CpuDevice):
        def row_bands(self, record):
            return BandRules(32)

    sizes = [banded("wide/rows/3", Stages()).buffers[f"wide.w0.rows{i}/3"].tensor.shape[0] for i in (1, 2, 3)]
    assert sizes == [32, 32, 36]
    with pytest.raises(InputError, match="has 100 outputs, too few for 5 bands of 32 rows; give 2 to 4 bands"):
        banded("wide/rows/5", Stages())


def test_the_work_of_all_bands_is_that_of_the_whole():
    whole, graph = train_graph(net_of(WIDE), CpuDevice(), MOMENTUM, unfused=["wide"]), banded("wide/rows/4")
    for name in ("wide.forward", "wide.dgrad", "wide.w0.update"):
        bands = [op for op in graph.ops if op.share_of is not None and op.share_of[0] == name]
        assert sum(op.flops for op in bands) == whole.by_name[name].flops


def test_a_band_takes_its_share_of_the_measured_whole():
    costs = Costs(MODELS["cpu"], {"wide.dgrad": 1.0, "wide.dgrad.rows2/4": 0.5})
    graph = banded("wide/rows/4")
    assert costs.op(graph.by_name["wide.dgrad.rows1/4"]) == pytest.approx(0.25, rel=1e-4)
    assert costs.op(graph.by_name["wide.dgrad.rows2/4"]) == 0.5


def test_each_band_may_be_learned_while_its_gradient_is_computed():
    graph = banded("wide/rows/2")
    fused = {op.name: op.covers for op in graph.fused_updates}
    assert fused["wide.backward_update.rows2/2"] == ("wide.wgrad.rows2/2", "wide.w0.rows2/2.update")


def test_other_graphs_of_the_arena_have_the_same_bands():
    device, net = CpuDevice(), net_of(WIDE)
    graph = train_graph(net, device, None, unfused=["wide"])
    weights = BandedWeights.of(graph, Bands("wide", 2), device)
    trained, updates = (weights.in_bands(each, device) for each in (graph, update_graph(net, device, MOMENTUM)))
    tested = weights.in_bands(forward_graph(net, device, unfused=["wide"]), device)
    assert names(tested, FORWARD) == names(trained, FORWARD)
    assert trained.buffers["wide.w0.diff.rows1/2"].persistent and not names(trained, UPDATE)
    changes = [op.name for op in updates.ops if op.name.startswith("wide.w0")]
    assert changes == [f"wide.w0.rows{i}/2.{what}" for what in ("update", "zero") for i in (1, 2)]
    other = train_graph(net_of(f"{DATA} {LOSS % 'data'}"), device, MOMENTUM)
    assert weights.in_bands(other, device) is other


def test_a_schedule_with_bands_prints_and_reads_back():
    program = compile([banded("wide/rows/3")], strategy="hybrid")
    schedule = program.train
    assert "wide.forward.rows2/3" in text(schedule)
    assert parse(text(schedule), schedule.graph, schedule.plan) == schedule and not violations(schedule)


def test_a_band_that_goes_on_before_the_one_before_it_is_unsafe():
    schedule = compile([banded("wide/rows/2")], strategy="liveness").train
    ticks = {each.what: each.tick for each in schedule.instructions}
    one, two = ticks["wide.dgrad.rows1/2"], ticks["wide.dgrad.rows2/2"]
    rows = list(schedule.instructions)
    rows[one], rows[two] = rows[two]._replace(tick=one), rows[one]._replace(tick=two)
    assert violations(replace(schedule, instructions=tuple(rows)))


# -- refusals ----------------------------------------------------------------------------------------------------------

TRANSPOSED = f"""
    {DATA} layer {{ name: "wide" type: "InnerProduct" bottom: "data" top: "wide" inner_product_param {{ num_output: 40
            transpose: true weight_filler {{ type: "xavier" }} }} }}
    {LOSS % "wide"}
"""
REFUSED = {
    "transposed": ("wide/rows/2", TRANSPOSED, {}, "layer 'wide' has transposed weights"),
    "no product": ("stem/rows/2", WIDE, {}, "layer 'stem' is of type Convolution"),
    "no layer": ("wise/rows/2", WIDE, {}, "has no layer 'wise' whose rows could be in bands; did you mean 'wide'"),
    "clipped": ("wide/rows/2", WIDE, {"clip": True}, "where clip_gradients reads all rows of them at once"),
    "held": ("wide/rows/2", WIDE, {"gradients": ["wide.w0"]}, "where 'hold' reads all rows"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_in_bands_is_refused_by_name(why):
    rows, source, options, message = REFUSED[why]
    with pytest.raises(InputError, match=message):
        banded(rows, None, source, **options)


def wide(name: str, bottom: str) -> str:
    """An InnerProduct whose weights are called `w`."""
    return f"""
        layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" param {{ name: "w" }}
                inner_product_param {{ num_output: 40 bias_term: false weight_filler {{ type: "xavier" }} }} }}
    """


def test_shared_weights_are_refused():
    stem = f"{DATA} {conv('stem', 'data', 4, 3)} {relu('stem')} {wide('one', 'stem')}"
    both = f"""
        {stem} {wide("two", "stem")}
        layer {{ name: "sum" type: "Eltwise" bottom: "one" bottom: "two" top: "sum" }} {LOSS % "sum"}
    """
    with pytest.raises(InputError, match="layer 'one' shares its weights with 'two'"):
        banded("one/rows/2", None, both)
    device = CpuDevice()
    graph = train_graph(net_of(stem + LOSS % "one"), device, MOMENTUM, unfused=["one"])
    weights = BandedWeights.of(graph, Bands("one", 2), device)
    with pytest.raises(InputError, match="layer 'one' shares its weights with 'two'"):
        weights.in_bands(forward_graph(net_of(both), device), device)


def test_a_device_that_sums_the_gradient_in_parts_refuses_the_layer():
    batch = WIDE.replace("dim: 4 dim: 3", "dim: 1200 dim: 3").replace("shape { dim: 4 }", "shape { dim: 1200 }")
    with pytest.raises(InputError, match="cannot have row bands on device cpu, which sums its gradient in parts"):
        banded("wide/rows/2", None, batch)


def test_a_device_that_cannot_go_on_from_other_gradients_refuses_the_layer():
    class NoAdding(CpuDevice):
        def row_bands(self, record):
            return BandRules(adds_dx=False)

    forked = WIDE.replace('bottom: "flat" top: "score"', 'bottom: "stem" top: "score"')
    more = 'layer { name: "r" type: "Reduction" bottom: "flat" top: "r" loss_weight: 1 }'
    assert banded("wide/rows/2", NoAdding()).by_name["wide.dgrad.rows2/2"]
    with pytest.raises(InputError, match=r"adds to 'stem'\.diff' what other layers gave it, which row bands on device"):
        banded("wide/rows/2", NoAdding(), forked + more)
