"""Steps in slices of the batch have the bits of the step without slices, in the bytes that their plan predicts."""

from collections.abc import Mapping

import numpy as np
import pytest

from layermem.backends.base import Device
from layermem.backends.cpu import CpuDevice
from layermem.backends.reference import ReferenceDevice
from layermem.data import probe
from layermem.graph.net import Net
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import UpdateRule, train_graph
from layermem.planning.costs import model_costs
from layermem.planning.partition_choices import CHOICES
from layermem.planning.pipeline import Compiler
from layermem.planning.plan import Decision, Gap, Plan, program_order
from layermem.planning.registry import Choice
from layermem.proto.read import read_net_text
from layermem.runtime.runner import Runner
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.check import check
from layermem.solver.build import reported
from layermem.solver.feeds import Feeds
from layermem.utils.units import aligned
from tests.nets import CHAIN, CLIP, DATA, DROPOUT, INCEPTION, LOSS, SHARED, conv, norm, relu
from tests.nets import RESIDUAL as NORMALIZED_RESIDUAL

DEVICES = {"reference": ReferenceDevice, "cpu": CpuDevice}  # by name; each carries sums from slice to slice

RESIDUAL = f"""
    {DATA} {conv("stem", "data", 4, 3)} {relu("stem")} {conv("a", "stem", 4, 1)} {relu("a")} {conv("b", "a", 4, 3)}
    layer {{ name: "sum" type: "Eltwise" bottom: "stem" bottom: "b" top: "sum" }} {relu("sum")}
    {LOSS % "sum"}
"""
UNET = f"""
    {DATA.replace("dim: 6 dim: 5", "dim: 6 dim: 4")} {conv("down1", "data", 4, 3)} {relu("down1")}
    layer {{ name: "pool1" type: "Pooling" bottom: "down1" top: "pool1"
            pooling_param {{ kernel_size: 2 stride: 2 }} }}
    {conv("down2", "pool1", 6, 3)} {relu("down2")}
    layer {{ name: "up" type: "Deconvolution" bottom: "down2" top: "up" convolution_param {{ num_output: 4
            kernel_size: 2 stride: 2 weight_filler {{ type: "msra" }} }} }}
    layer {{ name: "both" type: "Concat" bottom: "up" bottom: "down1" top: "both" }}
    {conv("last", "both", 5, 1)}
    layer {{ name: "pixels" type: "DummyData" top: "pixels" dummy_data_param {{
            shape {{ dim: 4 dim: 6 dim: 4 }} data_filler {{ type: "uniform" max: 4.9 }} }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "last" bottom: "pixels" top: "loss"
            loss_param {{ ignore_label: 2 }} }}
"""
TWO_LOSSES = f"""
    {DATA} {conv("stem", "data", 3, 3)} {relu("stem")}
    layer {{ name: "mean" type: "Pooling" bottom: "stem" top: "mean"
            pooling_param {{ pool: AVE global_pooling: true }} }}
    layer {{ name: "aux" type: "InnerProduct" bottom: "mean" top: "aux"
            inner_product_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "aux_loss" type: "SoftmaxWithLoss" bottom: "aux" bottom: "label" top: "aux_loss"
            loss_weight: 0.3 loss_param {{ ignore_label: 1 }} }}
    layer {{ name: "cut" type: "Slice" bottom: "stem" top: "s1" top: "s2" slice_param {{ slice_point: 1 }} }}
    layer {{ name: "p" type: "PReLU" bottom: "s2" top: "p" }}
    layer {{ name: "scale" type: "Scale" bottom: "p" top: "scale" scale_param {{ bias_term: true }} }}
    layer {{ name: "quiet" type: "Silence" bottom: "s1" }}
    {conv("deep", "scale", 4, 3)}
    {LOSS % "deep"}
"""
NORMALIZED = f"""
    {DATA} {conv("stem", "data", 3, 3)} {relu("stem")}
    layer {{ name: "unit" type: "Normalize" bottom: "stem" top: "unit" }}
    {LOSS % "unit"}
"""


THREE_NORMS = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {norm("conv1")} {relu("conv1")} {conv("conv2", "conv1", 6, 3)}
    layer {{ name: "bn2" type: "BatchNorm" bottom: "conv2" top: "bn2" }}
    {conv("conv3", "bn2", 4, 1)} {norm("conv3")}
    layer {{ name: "pool" type: "Pooling" bottom: "conv3" top: "pool" pooling_param {{ kernel_size: 2 stride: 2 }} }}
    {LOSS % "pool"}
"""
BRANCHES = f"""
    {DATA} {conv("stem", "data", 4, 1)} {norm("stem")} {relu("stem")}
    {conv("one", "stem", 2, 1)} {norm("one")} {relu("one")} {conv("three", "stem", 3, 3)} {norm("three")}
    layer {{ name: "both" type: "Concat" bottom: "one" bottom: "three" bottom: "stem" top: "both" }}
    layer {{ name: "last" type: "BatchNorm" bottom: "both" top: "last" }}
    layer {{ name: "drop" type: "Dropout" bottom: "last" top: "last" }}
    {LOSS % "last"}
"""
FROZEN = THREE_NORMS.replace(
    'type: "BatchNorm" bottom: "conv2"', 'type: "BatchNorm" batch_norm_param { use_global_stats: true } bottom: "conv2"'
)
FIRST_NORM = f"""
    {DATA} layer {{ name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }}
    layer {{ name: "scale" type: "Scale" bottom: "bn" top: "scale" scale_param {{ bias_term: true }} }}
    {conv("conv1", "scale", 4, 3)} {LOSS % "conv1"}
"""
OWN_SCALE = THREE_NORMS.replace(
    'type: "BatchNorm" bottom: "conv2"', 'type: "BatchNorm" batch_norm_param { scale_bias: true } bottom: "conv2"'
)
BATCH_NORMS = {  # net -> cuts of it, with one to three BatchNorms
    "three": (THREE_NORMS, ["..conv1_relu/2", "..bn2/4", "..pool/2", "conv1_bn..conv2/2", "bn2/4", "whole/4"]),
    "residual": (NORMALIZED_RESIDUAL, ["..stem_relu/4", "..sum_relu/2", "a..sum/2", "whole/2"]),
    "branches": (BRANCHES, ["..both/2", "one..last/4", "whole/4"]),
    "frozen": (FROZEN, ["..pool/4"]),
    "first": (FIRST_NORM, ["..conv1/2", "whole/4"]),
    "own scale": (OWN_SCALE, ["..pool/2"]),
}


def loss_net(loss: str, target: str, more: str = "") -> str:
    return f"""
        {DATA} {conv("stem", "data", 4, 3)} {relu("stem")}
        layer {{ name: "score" type: "InnerProduct" bottom: "stem" top: "score"
                inner_product_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
        layer {{ name: "aim" type: "DummyData" top: "aim" dummy_data_param {{ {target} }} }} {more}
        layer {{ name: "loss" type: "{loss}" bottom: "score" bottom: "aim" top: "loss" }}
    """


FIVE = "shape { dim: 4 dim: 5 } data_filler { type: 'uniform' min: 0 max: 1 }"
ONE = "shape { dim: 4 } data_filler { type: 'uniform' max: 4.9 }"
SAME = """
    layer { name: "same" type: "DummyData" top: "same" dummy_data_param {
            shape { dim: 4 } data_filler { type: "uniform" max: 1.9 } } }
"""
SHARES = 'layer { name: "shares" type: "Softmax" bottom: "score" top: "shares" }'
WORDS = f"""
    {DATA}
    layer {{ name: "word" type: "Embed" bottom: "label" top: "word"
            embed_param {{ input_dim: 5 num_output: 3 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "sum" type: "Reduction" bottom: "word" top: "sum" loss_weight: 0.1
            reduction_param {{ axis: 1 operation: SUMSQ }} }}
    {conv("stem", "data", 4, 3)} {relu("stem")}
    layer {{ name: "drawn" type: "Pooling" bottom: "stem" top: "drawn"
            pooling_param {{ pool: STOCHASTIC kernel_size: 2 }} }}
    layer {{ name: "even" type: "MVN" bottom: "drawn" top: "even" }}
    {LOSS % "even"}
"""
ROWS = f"""
    {DATA} {conv("stem", "data", 12, 3)} {relu("stem")}
    layer {{ name: "rows" type: "InnerProduct" bottom: "stem" top: "rows" inner_product_param {{ axis: 2 num_output: 1
            transpose: true weight_filler {{ type: "xavier" }} }} }}
    {LOSS % "rows"}
"""
WIDE = f"""
    {DATA} {conv("stem", "data", 4, 3)} {relu("stem")}
    layer {{ name: "wide" type: "Convolution" bottom: "stem" top: "wide" convolution_param {{ num_output: 8
            kernel_h: 6 kernel_w: 5 weight_filler {{ type: "msra" }} }} }} {relu("wide")}
    layer {{ name: "three" type: "Concat" bottom: "wide" bottom: "wide" bottom: "wide" top: "three"
            concat_param {{ axis: 2 }} }}
    {LOSS % "three"}
"""
AXIS = f"""
    {DATA} {conv("stem", "data", 4, 3)} {relu("stem")}
    layer {{ name: "signal" type: "Reshape" bottom: "stem" top: "signal" reshape_param {{
            shape {{ dim: 0 dim: 6 dim: 20 }} }} }}
    layer {{ name: "axis" type: "Convolution" bottom: "signal" top: "axis" convolution_param {{ axis: 2 num_output: 3
            weight_filler {{ type: "msra" }} }} }}
    layer {{ name: "back" type: "Deconvolution" bottom: "axis" top: "back" convolution_param {{ axis: 2 num_output: 9
            weight_filler {{ type: "msra" }} }} }}
    {LOSS % "back"}
"""
PRODUCTS = f"""
    {DATA}
    layer {{ name: "rows" type: "InnerProduct" bottom: "data" top: "rows" inner_product_param {{ axis: 3 num_output: 7
            weight_filler {{ type: "xavier" }} }} }}
    {LOSS % "rows"}
"""
SHARED_PARAMS = 'param { name: "w" } param { name: "b" }'
VOLUMES = f"""
    {DATA}
    layer {{ name: "volume" type: "Reshape" bottom: "data" top: "volume" reshape_param {{
            shape {{ dim: 0 dim: 3 dim: 3 dim: 2 dim: 5 }} }} }}
    {conv("one", "volume", 4, 3, SHARED_PARAMS)} {relu("one")} {conv("two", "volume", 4, 3, SHARED_PARAMS)}
    layer {{ name: "pair" type: "Convolution" bottom: "one" bottom: "two" top: "p1" top: "p2" convolution_param {{
            num_output: 4 group: 2 kernel_size: 2 stride: 2 stride: 1 stride: 1 pad: 1 dilation: 2 dilation: 1
            dilation: 1 weight_filler {{ type: "msra" }} }} }}
    layer {{ name: "join" type: "Eltwise" bottom: "p1" bottom: "p2" top: "join" }}
    layer {{ name: "up" type: "Deconvolution" bottom: "join" top: "up" convolution_param {{ num_output: 3
            kernel_size: 3 stride: 2 pad: 1 weight_filler {{ type: "msra" }} }} }}
    layer {{ name: "windows" type: "Im2col" bottom: "up" top: "windows" convolution_param {{ kernel_size: 2 }} }}
    layer {{ name: "axes" type: "Reshape" bottom: "windows" top: "axes" reshape_param {{
            shape {{ dim: 0 dim: 2 dim: 2 dim: 6 dim: 2 dim: -1 }} }} }}
    layer {{ name: "last" type: "Convolution" bottom: "axes" top: "last" convolution_param {{ num_output: 3
            kernel_size: 2 kernel_size: 2 kernel_size: 1 kernel_size: 3 stride: 1 stride: 2 stride: 1 stride: 1
            weight_filler {{ type: "msra" }} }} }}
    {LOSS % "last"}
"""
CLASSES = f"""
    {DATA} {conv("stem", "data", 3, 3)}
    layer {{ name: "plane" type: "Reshape" bottom: "stem" top: "plane" reshape_param {{
            shape {{ dim: 0 dim: 1 dim: 18 dim: 5 }} }} }}
    layer {{ name: "shares" type: "Softmax" bottom: "plane" top: "shares" softmax_param {{ axis: 2 }} }}
    {LOSS % "shares"}
"""
NETS = {
    "chain": CHAIN,
    "inception": INCEPTION,
    "dropout": DROPOUT,
    "shared": SHARED,
    "residual": RESIDUAL,
    "unet": UNET,
    "two losses": TWO_LOSSES,
    "normalized": NORMALIZED,
    "words": WORDS,
    "rows": ROWS,
    "wide": WIDE,
    "images within items": AXIS,
    "clip": CLIP,
    "volumes": VOLUMES,
    "classes along the height": CLASSES,
    "Euclidean": loss_net("EuclideanLoss", FIVE),
    "SigmoidCrossEntropy": loss_net("SigmoidCrossEntropyLoss", FIVE),
    "SmoothL1": loss_net("SmoothL1Loss", FIVE),
    "Hinge": loss_net("HingeLoss", ONE),
    "Multinomial": loss_net("MultinomialLogisticLoss", ONE, SHARES).replace(
        '"score" bottom: "aim"', '"shares" bottom: "aim"'
    ),
    "Contrastive": loss_net("ContrastiveLoss", FIVE, SAME).replace('"aim" top', '"aim" bottom: "same" top'),
}


class Step:
    """A training step of a net on a device, in a poisoned arena, with parameters and batch from fixed seeds.

    least   in the fewest bytes that the strategy finds
    """

    def __init__(
        self,
        text: str,
        device: Device,
        cut: str | None,
        strategy: Choice = "liveness",
        *,
        held: bool = False,
        clip: bool = False,
        least: bool = False,
    ) -> None:
        net = Net(read_net_text(text), 0, probe=probe)

        def make(each: Net):
            wanted = [r.version for r in reported(each)]
            return train_graph(each, device, None if held else UpdateRule("SGD", 1), clip=clip, outputs=wanted)

        self.graph = make(net) if cut is None else sliced_graph(net, make, Cut.parse(cut), device, CHOICES)
        compiler = Compiler(ArenaPlanner([self.graph], model_costs(device.title)), strategy)
        self.program = compiler.search.min_memory_program if least else compiler.compile(None)
        check(*self.program.schedules)
        context = {
            "seed": 11, "step": 4, "batch": Feeds([net], 3).next(0), "rate": 0.1, "momentum": 0.9, "weight_decay": 0.01,
            "momentum2": 0.99, "delta": 1e-8, "rms_decay": 0.9, "regularization": "L2", "clip": 0.5, "iter_size": 1,
        }  # fmt: skip
        self.runner = Runner(self.program, device, context, poison=True)
        rng = np.random.default_rng(0)
        for name, owned in net.params.items():
            value = rng.standard_normal(owned.param.shape) * 0.4
            self.runner.write(name, value if owned.param.learned else abs(value))  # averages of variances

    def results(self, steps: int = 2) -> dict[str, np.ndarray]:
        """The outputs of `steps` steps on the host, and the persistent buffers after them."""
        outputs: Mapping[str, np.ndarray] = {}
        for _ in range(steps):
            outputs = self.runner.run()
        return {**outputs, **{name: self.runner.read(name) for name in self.runner.persistent}}


def assert_same_bits(step: Step, whole: Step) -> None:
    wanted, found = whole.results(), step.results()
    assert wanted.keys() == found.keys()
    for name, value in wanted.items():
        assert np.isfinite(value).all() and value.tobytes() == found[name].tobytes(), name
    assert step.runner.measured_peak_bytes == aligned(step.program.arena_bytes)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    return DEVICES[request.param]()


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", NETS)
def test_a_step_in_slices_has_the_bits_of_the_whole_step(device, name, count):
    assert_same_bits(Step(NETS[name], device, f"whole/{count}"), Step(NETS[name], device, None))


@pytest.mark.parametrize("cut", ["..pool1/2", "conv1..conv1_relu/4", "pool1..conv2/4", "conv2../2"])
def test_a_range_of_layers_in_slices_has_the_bits_of_the_whole_step(device, cut):
    assert_same_bits(Step(CHAIN, device, cut), Step(CHAIN, device, None))


@pytest.mark.parametrize(
    ("cut", "strategy"),
    [
        ("..pool/2", "caffe"),
        ("..pool/2", "hybrid"),
        ("..pool/2", "recompute"),
        ("whole/2", "hybrid"),
        ("whole/2", "intra"),
    ],
)
def test_slices_have_the_same_bits_under_every_plan(device, cut, strategy):
    assert_same_bits(Step(INCEPTION, device, cut, strategy), Step(INCEPTION, device, None))


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("strategy", ["caffe", "recompute-approx", "hybrid"])
@pytest.mark.parametrize("cut", ["..wide_relu/2", "..three/4", "wide../2", "whole/4"])
def test_gradients_behind_the_slices_have_the_same_bits_under_every_plan(device, cut, strategy):
    """The gradient of `wide` has more bytes than its operands; three roles of one op add to the gradient of its top."""
    step = Step(WIDE, device, cut.replace("wide_relu", "wide" if device.name == "cpu" else "wide_relu"), strategy)
    assert any(op.step == "wgrad" and op.layers[0] == "wide" and op.record.batch_slice is None for op in step.graph.ops)
    assert_same_bits(step, Step(WIDE, device, None))


def test_an_update_fused_behind_the_slices_comes_before_that_of_its_bias(device):
    """The bias of `score` is updated before its weights, which slices of the backward still read."""
    step = Step(PRODUCTS, device, "..score/2", "nested")
    if "InnerProductUpdate" in device.fusions:
        assert "score.backward_update" in step.program.schedules[0].plan.order
    assert_same_bits(step, Step(PRODUCTS, device, None))


@pytest.mark.parametrize("cut", ["..pool1/2", "whole/2"])
@pytest.mark.parametrize("form", ["held", "clip"])
def test_held_and_clipped_gradients_of_slices_have_the_same_bits(device, cut, form):
    assert_same_bits(Step(CHAIN, device, cut, **{form: True}), Step(CHAIN, device, None, **{form: True}))


def test_a_buffer_that_some_slices_have_written_is_offloaded_and_comes_back(device):
    """A copy between two slices takes the existing part of the blob in which slices write their items."""
    whole, step = Step(CHAIN, device, None), Step(CHAIN, device, "..pool1/2")
    order = program_order(step.graph)
    plan = Plan("by hand", order, {Gap("pool1", 0): Decision.OFFLOAD}, slices=step.graph.slices)
    offloading = Step(CHAIN, device, "..pool1/2", plan)
    assert offloading.program.host_bytes == aligned(step.graph.buffers["pool1"].nbytes)
    assert_same_bits(offloading, whole)


# -- BatchNorm in two passes -------------------------------------------------------------------------------------------


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("strategy", ["liveness", "hybrid", "recompute", "nested"])
@pytest.mark.parametrize(("name", "cut"), [(name, cut) for name, (_, cuts) in BATCH_NORMS.items() for cut in cuts])
def test_slices_with_batch_norms_have_the_bits_of_the_whole_step(device, name, cut, strategy):
    net, _ = BATCH_NORMS[name]
    assert_same_bits(Step(net, device, cut, strategy), Step(net, device, None))


@pytest.mark.parametrize("form", ["held", "clip"])
def test_held_and_clipped_gradients_of_slices_with_batch_norms_have_the_same_bits(device, form):
    step, whole = (Step(THREE_NORMS, device, cut, "nested", **{form: True}) for cut in ("..pool/2", None))
    assert_same_bits(step, whole)


def test_a_gradient_that_both_passes_read_may_be_made_twice(device):
    """Under the smallest budget of `nested`, dy of a BatchNorm is recomputed for the second pass."""
    large = THREE_NORMS.replace("dim: 6 dim: 5", "dim: 32 dim: 32")
    step = Step(large, device, "..pool/4", "nested", least=True)
    order = step.program.plan.order
    again = {name for name in order if order.count(name) > 1 and step.graph.by_name[name].kind == "backward"}
    assert any(name.startswith("conv3.dgrad@") for name in again)
    whole = Step(large, device, None, "nested", least=True)
    assert step.program.arena_bytes < 0.75 * whole.program.arena_bytes
    assert_same_bits(step, whole)
