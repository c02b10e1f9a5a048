"""Which buffers are stored in 16 bits, and the passes of the ops that touch them."""

from collections.abc import Collection, Iterator, Mapping

import pytest

from layermem.backends.base import Device
from layermem.backends.cpu import CpuDevice
from layermem.backends.cuda import CudaDevice
from layermem.backends.reference import ReferenceDevice
from layermem.data import probe
from layermem.distributed.ranks import Ranks
from layermem.graph.net import Net
from layermem.graph.ops import Graph, Op
from layermem.graph.rewrite import rewrite
from layermem.graph.sharing import shared_graphs
from layermem.graph.slices import Cut, sliced_graph, whole_name
from layermem.graph.storage import Storage
from layermem.graph.train import UpdateRule, forward_graph, train_graph
from layermem.ops import CARRY, NARROW, BatchNormScale, BatchSlice, Communication, OpRecord
from layermem.planning.partition_choices import CHOICES
from layermem.proto.read import read_net_text
from layermem.solver.build import reported
from layermem.utils.units import aligned
from tests.nets import CHAIN, DATA, LOSS, NETS, RESIDUAL, conv, norm, relu

EVEN = DATA.replace("dim: 6 dim: 5", "dim: 6 dim: 4")  # an item has 288 bytes: parts begin at multiples of 16
SMALL = f"{EVEN} {conv('conv1', 'data', 4, 3)} {conv('conv2', 'conv1', 2, 1)} {LOSS % 'conv2'}"
IN_32 = {"parameter", "history", "gradient", "state"}  # kinds of buffers


class Converting(CpuDevice):
    """A cpu device on which copies alone take 16 bits: all other ops run in passes over parts."""

    def takes(
        self, record: OpRecord, step: str, dtypes: Mapping[str, str], accumulates: Collection[str]
    ) -> frozenset[str]:
        return ReferenceDevice.takes(self, record, step, dtypes, accumulates)


@pytest.fixture(params=NARROW)
def device(request: pytest.FixtureRequest) -> Device:
    return Converting(storage=request.param)


def limit_parts(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Parts of so many bytes, or of one item, in graphs that are made from now on."""
    monkeypatch.setattr(Device, "part_bytes", nbytes)
    monkeypatch.setattr(Device, "least_parts", 1)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one item."""
    limit_parts(monkeypatch, 1)


def net_of(text: str, phase: int = 0) -> Net:
    return Net(read_net_text(text), phase, probe=probe)


def stored(text: str, device: Device, cut: str | None = None, outputs: tuple[str, ...] = (), phase: int = 0) -> Graph:
    """The step of a net, or its forward in TEST, as the device stores it."""
    net = net_of(text, phase)

    def make(each: Net) -> Graph:
        if phase:
            return forward_graph(each, device)
        return train_graph(each, device, UpdateRule("SGD", 1), outputs=outputs or [r.version for r in reported(each)])

    graph = make(net) if cut is None else sliced_graph(net, make, Cut.parse(cut), device, CHOICES)
    return Storage(net, make, device, CHOICES).of(graph)


def narrow_names(graph: Graph) -> set[str]:
    return {b.name for b in graph.buffers.values() if b.tensor.dtype in NARROW.values()}


def all_ops(graph: Graph) -> Iterator[Op]:
    for op in (*graph.ops, *graph.fused_updates):
        yield op
        if op.recompute is not None:
            yield op.recompute


# -- which buffers -----------------------------------------------------------------------------------------------------


def test_activations_and_their_gradients_are_in_16_bits(device):
    graph = stored(SMALL, device)
    assert narrow_names(graph) == {"conv1", "conv2", "score", "conv1.diff", "conv2.diff", "score.diff"}
    assert graph.storage == device.storage
    assert graph.buffers["conv1"].nbytes == 4 * 4 * 6 * 4 * 2 == graph.buffers["conv1.diff"].nbytes


def test_of_fp32_the_graph_is_the_one_that_is_given(device):
    graph = stored(SMALL, CpuDevice())
    assert narrow_names(graph) == set() and graph.storage == "fp32" and not any(op.part_passes for op in graph.ops)


@pytest.mark.parametrize("name", NETS)
def test_inputs_labels_losses_and_what_outlives_a_step_are_in_32_bits(device, name):
    graph = stored(NETS[name], device)
    names, buffers = narrow_names(graph), graph.buffers
    inputs = {b for op in graph.ops if op.record.family == "Feed" for b in op.writes}
    assert names and names.isdisjoint({*inputs, "label", "loss", "loss.diff"})
    assert all(b.name not in names for b in buffers.values() if b.kind in IN_32 or b.persistent)
    assert all(len(buffers[b].tensor.shape) >= 2 for b in names)
    copied = {b for op in graph.ops if op.record.family == "CopyOut" for b in op.touches}
    assert copied and names.isdisjoint(copied)


def test_statistics_of_a_batch_norm_are_in_32_bits(device):
    graph = stored(RESIDUAL, device)
    statistics = [b for b in graph.buffers.values() if b.name.endswith((".mean", ".inv_std"))]
    assert statistics and {b.tensor.dtype for b in statistics} == {"float32"}


def test_the_mask_of_a_pooling_is_in_32_bits(device):
    """Its indices have more bits than 16-bit types have, as have the labels in the next test."""
    text = NETS["segnet"]
    assert "mask" not in narrow_names(stored(text, device, outputs=("loss",)))
    assert {"pool", "up"} <= narrow_names(stored(text, device, outputs=("loss",)))


def test_labels_stay_in_32_bits_whatever_their_name(device):
    text = SMALL.replace('"label"', '"score@label"').replace('"score"', '"score@it"')
    assert narrow_names(stored(text, device)) >= {"score@it", "conv1"}
    assert "score@label" not in narrow_names(stored(text, device))


def test_what_layers_without_a_backward_make_is_in_32_bits(device):
    best = 'layer { name: "best" type: "ArgMax" bottom: "conv1" top: "best" argmax_param { axis: 1 } }'
    flat = 'layer { name: "flat" type: "Flatten" bottom: "best" top: "flat" }'
    names = narrow_names(stored(f"{SMALL} {best} {flat}", device, phase=1))
    assert {"conv1", "conv2", "score"} <= names and names.isdisjoint({"best", "flat", "accuracy", "loss"})


def test_what_is_handed_to_the_host_is_in_32_bits(device):
    assert "conv1" not in narrow_names(stored(SMALL, device, outputs=("conv1", "loss")))


def test_the_sign_of_a_relu_is_of_the_type_in_which_its_top_is_stored(device):
    """Also of that whose gradient an op clears; what is handed to the host is in 32 bits."""
    text = f"{EVEN} {conv('conv1', 'data', 4, 3)} {norm('conv1')} {relu('conv1')} {LOSS % 'conv1'}"
    for outputs, dtype in ((), NARROW[device.storage]), (("conv1'''", "loss"), "float32"):
        records = [op.record for op in all_ops(stored(text, device, outputs=outputs))]
        assert {record.relu_dtype for record in records if isinstance(record, BatchNormScale)} == {dtype}


def test_what_ranks_exchange_is_in_32_bits(device):
    """Such as the statistics of all batches, which have two axes."""
    net = net_of(RESIDUAL)
    (step,) = shared_graphs([train_graph(net, device, UpdateRule("SGD", 1))], net, device, Ranks(0, 2, 2))
    graph = Storage(net, lambda each: train_graph(each, device, UpdateRule("SGD", 1)), device, CHOICES).of(step)
    exchanged = {b for op in graph.ops if isinstance(op.record, Communication) for b in op.touches}
    assert any(name.endswith(".batches") for name in exchanged) and exchanged.isdisjoint(narrow_names(graph))
    assert "stem" in {name.partition("_")[0] for name in narrow_names(graph)}


@pytest.mark.parametrize("cut", ["whole/2", "..conv2/4"])
def test_slices_store_what_the_whole_step_does(device, cut):
    text = CHAIN.replace("dim: 6 dim: 5", "dim: 6 dim: 4")
    whole, sliced = narrow_names(stored(text, device)), narrow_names(stored(text, device, cut))
    assert {whole_name(name) for name in sliced} == whole and sliced - whole


def test_slices_with_batch_norms_store_what_the_whole_step_does(device):
    whole, sliced = (narrow_names(stored(RESIDUAL, device, cut)) for cut in (None, "..sum_relu/2"))
    names = {whole_name(name) for name in sliced}
    assert whole <= names and not any("sums" in name for name in names)


# -- partial sums for BatchNorms ---------------------------------------------------------------------------------------

NORMED = f"{DATA} {conv('a', 'data', 8, 3)} {norm('a')} {relu('a')} {conv('b', 'a', 8, 3)} {norm('b')} {LOSS % 'b'}"
ALL_SUMS = {"a.moments", "b.moments", "b.norm_sums"}


def rewritten(text: str, device: Device) -> Graph:
    return rewrite(stored(text, device), device)


def partial_sums(graph: Graph) -> set[str]:
    return {b for b in graph.buffers if b.endswith((".moments", ".norm_sums"))}


@pytest.mark.parametrize(("precision", "word"), [("fp32", "bf16"), ("tf32", "fp16"), ("bf16", "bf16")])
def test_ops_that_take_16_bits_leave_partial_sums_in_32_bits(precision, word):
    graph = rewritten(NORMED, CudaDevice(precision=precision, storage=word))
    assert partial_sums(graph) == ALL_SUMS and ALL_SUMS.isdisjoint(narrow_names(graph))
    pairs = [op for op in graph.ops if ALL_SUMS.intersection(op.touches)]
    assert len(pairs) == 2 * len(ALL_SUMS) and not any(op.part_passes for op in pairs)
    (dgrad,) = (op for op in pairs if op.step == "dgrad")
    assert graph.buffers[dgrad.roles["norm_x"]].tensor.dtype == NARROW[word]


@pytest.mark.parametrize(("precision", "word"), [("fp32x3", "bf16"), ("bf16", "fp16")])
def test_ops_in_passes_leave_no_partial_sums(precision, word):
    graph = rewritten(NORMED, CudaDevice(precision=precision, storage=word))
    assert partial_sums(graph) == set()
    assert any(op.part_passes for op in graph.ops if op.name.startswith("b.")) and "norm_x" not in {
        role for op in graph.ops for role in op.roles
    }


def test_a_pair_leaves_partial_sums_unless_one_of_its_ops_has_passes():
    """The channels of `a` are no runs of 16 bytes, so the product of `b` is converted; that of the data is not."""
    few = NORMED.replace("num_output: 8", "num_output: 4", 1)
    graph = rewritten(few, CudaDevice(precision="bf16", storage="bf16"))
    assert partial_sums(graph) == {"a.moments"}
    converted = {op.name for op in graph.ops if op.part_passes and op.name.startswith(("a", "b"))}
    assert converted == {"b.forward", "b.wgrad", "b.dgrad"}


def test_sums_of_an_input_in_32_bits_are_left_to_the_batch_norm():
    """Its dgrad would read x in fp32 beside gradients in 16 bits."""
    text = f"{DATA} {norm('data')} {conv('a', 'data', 8, 3)} {norm('a')} {LOSS % 'a'}"
    graph = rewritten(text, CudaDevice(storage="bf16"))
    assert partial_sums(graph) == {"a.moments"}
    assert not any(op.part_passes for op in graph.ops if op.name.startswith("a."))


def test_bytes_of_partial_sums_are_those_of_the_step_in_fp32():
    narrow, wide = (rewritten(NORMED, CudaDevice(storage=word)) for word in ("bf16", "fp32"))
    assert {b: narrow.buffers[b].nbytes for b in ALL_SUMS} == {b: wide.buffers[b].nbytes for b in ALL_SUMS}


# -- ops ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_every_op_whose_kernel_does_not_take_16_bits_has_passes_and_no_other_one(device, name):
    graph = stored(NETS[name], device)
    names = narrow_names(graph)
    for op in all_ops(graph):
        dtypes = {role: graph.buffers[b].tensor.dtype for role, b in op.roles.items()}
        taken = {op.roles[role] for role in device.takes(op.record, op.step, dtypes, op.accumulates)}
        converts = not names.intersection(op.touches) <= taken and op.record.family != "Silence"
        assert bool(op.part_passes) == converts, op.name
        assert op.workspace_bytes == max((each.workspace_end for each in op.part_passes), default=op.workspace_bytes)
        for overlay in op.overlays:
            assert graph.buffers[overlay.out].nbytes == graph.buffers[overlay.over].nbytes


def test_what_is_in_16_bits_is_not_placed_over_what_is_in_32():
    """The first layer behind the data writes half of its bytes."""
    text = f"""
        {EVEN} layer {{ name: "scale" type: "Scale" bottom: "data" top: "scale" }} {relu("scale")} {LOSS % "scale"}
    """
    wide, narrow = (stored(text, CpuDevice(storage=word), outputs=("loss",)) for word in ("fp32", "bf16"))
    over = {(each.out, each.over) for op in wide.ops for each in op.overlays}
    kept = {(each.out, each.over) for op in narrow.ops for each in op.overlays}
    names = narrow_names(narrow)
    assert kept == {(out, under) for out, under in over if (out in names) == (under in names)} and kept < over


def test_parts_are_an_eighth_of_the_largest_op_at_most(device):
    text = SMALL.replace("dim: 6 dim: 4", "dim: 60 dim: 40")
    graph = stored(text, device)
    passes = [made for op in graph.ops for made in op.part_passes if len(list(made.parts())) > 1]
    assert passes and max(made.workspace_place for made in passes) < graph.by_name["conv1.forward"].nbytes // 4


def test_an_op_of_few_bytes_is_one_part(device, monkeypatch):
    limit_parts(monkeypatch, 1 << 30)
    (one,) = stored(SMALL, device).by_name["conv2.forward"].part_passes
    assert one.count == 1 and [part.views for part in one.parts()] == [{}]
    # x [4,4,6,4] and y [4,2,6,4] in fp32, each a multiple of 256 bytes
    assert (one.operands["x0"].place, one.operands["y0"].place, one.workspace_place) == (0, 1536, 1536 + 768)
    assert one.operands["w0"].place is None


def test_a_part_has_its_items_of_each_operand(device, small_parts):
    (made,) = stored(SMALL, device).by_name["conv1.forward"].part_passes
    assert made.count == 4 and made.operands["y0"].tensor.shape == (1, 4, 6, 4)
    assert made.operands["x0"].place is None and made.operands["y0"].place == 0
    items = [BatchSlice(i, 1, 4) for i in range(4)]
    assert [part.views for part in made.parts()] == [{"x0": each, "y0": each} for each in items]
    assert [str(part.record.batch_slice) for part in made.parts()] == [f"items {i}..{i} of 4" for i in range(4)]
    assert made.workspace_place == aligned(4 * 6 * 4 * 4)


def test_the_last_part_makes_what_is_summed_over_the_items(device, small_parts):
    (made,) = stored(SMALL, device).by_name["conv2.wgrad"].part_passes
    parts = list(made.parts())
    assert ["dw0" in part.roles for part in parts] == [False, False, False, True]
    assert all("dw0" + CARRY in part.roles for part in parts)
    carry = made.operands["dw0" + CARRY]
    assert carry.source == "" and carry.place is not None


def test_a_part_of_a_slice_is_one_of_its_items(device, small_parts):
    op = stored(SMALL, device, "whole/2").by_name["conv2.forward@2/2"]
    parts = list(op.part_passes[0].parts())
    assert [str(part.record.batch_slice) for part in parts] == ["items 2..2 of 4", "items 3..3 of 4"]
    assert [part.views["x0"] for part in parts] == [BatchSlice(0, 1, 2), BatchSlice(1, 1, 2)]  # of what the slice has


def test_the_last_slice_writes_what_is_carried_where_it_has_parts(device, small_parts, monkeypatch):
    """As one part it only reads that, and makes the gradient of it."""
    parts = stored(SMALL, device, "whole/2").by_name["conv2.wgrad@2/2"]
    limit_parts(monkeypatch, 1 << 20)
    one = stored(SMALL, device, "whole/2").by_name["conv2.wgrad@2/2"]
    carries = {"conv2.wgrad.dw0.carry", "conv2.wgrad.dw1.carry"}
    assert (
        len(list(parts.part_passes[0].parts())) == 2
        and carries <= set(parts.updates)
        and len(set(parts.touches)) == len(parts.touches)
    )
    assert (
        len(list(one.part_passes[0].parts())) == 1
        and not carries <= set(one.updates)
        and parts.overlays == one.overlays
    )


def test_a_batch_norm_in_parts_takes_its_two_passes(device, small_parts):
    text = f"""
        {EVEN.replace("dim: 6 dim: 4", "dim: 60 dim: 40")} {conv("conv1", "data", 4, 3)} {norm("conv1")}
        {LOSS % "conv1"}
    """
    graph = stored(text, device)
    norms = [op for op in graph.ops if op.record.family.startswith("BatchNorm")]
    steps = [[each.ends[0].step for each in op.part_passes] for op in norms]
    assert steps == [["statistics", "recompute"], ["gradient_sums", "input_gradient"]]
    assert all(each.count == 4 for op in norms for each in op.part_passes)
    wide = graph.buffers["conv1"].tensor.of("float32").nbytes
    assert all(op.workspace_bytes < wide for op in norms)


@pytest.mark.parametrize(("items", "parts"), [(9, 3), (10, 5), (12, 4), (7, 7), (3, 1)])
def test_the_items_of_a_part_are_the_most_that_fit_of_those_that_divide_the_batch(device, items, parts, monkeypatch):
    limit_parts(monkeypatch, 3 * (4 + 2) * 6 * 4 * 4)  # three items of conv1 and conv2
    text = SMALL.replace("dim: 4 dim: 3", f"dim: {items} dim: 3").replace("{ dim: 4 }", f"{{ dim: {items} }}")
    (made,) = stored(text, device).by_name["conv2.forward"].part_passes
    assert len(list(made.parts())) == parts == made.count
    assert {part.record.batch_slice.count for part in made.parts() if parts > 1} <= {items // parts}


def test_a_net_of_fixed_items_is_in_one_part(device, small_parts):
    fixed = """layer { name: "fixed" type: "Reshape" bottom: "conv2" top: "fixed"
                       reshape_param { shape { dim: 4 dim: 48 } } }"""
    graph = stored(SMALL.replace(LOSS % "conv2", fixed + LOSS % "fixed"), device)
    assert {len(list(each.parts())) for op in graph.ops for each in op.part_passes} == {1}


def test_parts_that_carry_more_than_they_spare_are_one_part(device, small_parts):
    """The weights of `score` have more bytes than an item of what it reads."""
    (made,) = stored(SMALL.replace("num_output: 5", "num_output: 500"), device).by_name["score.wgrad"].part_passes
    assert len(list(made.parts())) == 1


def test_parts_spare_workspace(device, small_parts, monkeypatch):
    text = SMALL.replace("dim: 6 dim: 4", "dim: 60 dim: 40")
    small = stored(text, device).by_name["conv1.forward"]
    limit_parts(monkeypatch, 1 << 30)
    large = stored(text, device).by_name["conv1.forward"]
    assert large.workspace_bytes - small.workspace_bytes >= 3 * 4 * 60 * 40 * 4


CONCAT = f"""
    {EVEN} {conv("a", "data", 4, 1)} {conv("b", "data", 2, 1)}
    layer {{ name: "both" type: "Concat" bottom: "a" bottom: "b" top: "both" }} {LOSS % "both"}
"""


def test_an_op_that_takes_16_bits_runs_as_it_is_and_moves_half_the_bytes(device):
    """No workspace, no passes: a Concat copies elements."""
    (wide, wide_back), (narrow, back) = (
        [stored(CONCAT, each).by_name[name] for name in ("both.forward", "both.backward")]
        for each in (CpuDevice(), device)
    )
    assert not narrow.part_passes and narrow.workspace_bytes == 0 and narrow.launches == 1
    assert wide.nbytes == 2 * narrow.nbytes and wide_back.nbytes == 2 * back.nbytes and not back.part_passes


def test_where_one_operand_is_in_fp32_the_others_are_converted(device):
    text = CONCAT.replace('bottom: "b" top', 'bottom: "data" top')
    (made,) = stored(text, device).by_name["both.forward"].part_passes
    places = {role: operand.place is not None for role, operand in made.operands.items()}
    assert places == {"x0": True, "x1": False, "y0": True}


class Partly(CpuDevice):
    """Takes what a Conv reads in 16 bits, and converts what it writes."""

    def takes(self, record, step, dtypes, accumulates):  # type: ignore[no-untyped-def]
        return frozenset({"x0"} if record.family == "Conv" and step == "forward" else ())


def test_an_op_of_which_some_operands_are_taken_converts_the_rest(device, small_parts):
    partly = Partly(storage=device.storage)
    op, converted = (stored(SMALL, each).by_name["conv2.forward"] for each in (partly, device))
    (made,) = op.part_passes
    x, y = made.operands["x0"], made.operands["y0"]
    assert x.place is None and x.tensor == x.source_tensor and x.tensor.dtype == NARROW[device.storage]
    assert y.place == 0 and y.tensor.dtype == "float32" and op.workspace_bytes < converted.workspace_bytes
    wide = 4 * 4 * 24 * 4
    assert converted.nbytes - op.nbytes == (wide + wide // 2) + wide // 2  # no conversion, and half to read


def test_a_buffer_that_is_written_under_two_roles_is_converted(device):
    """A kernel that takes 16 bits would round it twice."""
    shape = "eltwise_param { operation: SUM }"
    text = f"""
        {EVEN} {conv("a", "data", 4, 1)}
        layer {{ name: "sum" type: "Eltwise" bottom: "a" bottom: "a" top: "sum" {shape} }} {LOSS % "sum"}
    """
    graph = stored(text, device)
    for op in graph.ops:
        roles = [b for b in op.roles.values() if b in op.writes or b in op.updates]
        assert op.part_passes or len(roles) == len(set(roles))


def test_conversions_count_as_traffic(device):
    wide, narrow = (stored(SMALL, each).by_name["conv2.forward"] for each in (CpuDevice(), device))
    assert narrow.nbytes == wide.nbytes + (4 * 4 * 24 + 4 * 2 * 24) * (4 + 2)
