"""Costs: a roofline of hand-picked rates, measured times in its place, and the file that holds them."""

from dataclasses import replace

import pytest

from layermem.errors import InputError
from layermem.graph.ops import BACKWARD, FORWARD
from layermem.planning.costs import (
    MAX_OF_PEAK,
    MODELLED_GPU,
    MODELS,
    PRODUCTS_OF_TF32,
    Costs,
    Rates,
    gpu_rates,
    model_costs,
    precision_of,
    read_costs,
    write_costs,
)
from layermem.planning.gpus import TargetGpu, find_gpu, gpus
from tests.schedule.small_graphs import op

RATES = Rates(flops=100.0, memory=10.0, d2h=4.0, h2d=8.0, launch=0.5)


@pytest.mark.parametrize(
    ("flops", "nbytes", "seconds"),
    [(1000, 20, 10.5), (1000, 200, 20.5), (0, 0, 0.5)],
    ids=["arithmetic", "memory", "launch alone"],
)
def test_an_op_takes_the_longer_of_arithmetic_and_traffic_and_a_launch(flops, nbytes, seconds):
    assert Costs(RATES).op(op("a", FORWARD, flops=flops, nbytes=nbytes)) == seconds


def test_a_measured_time_stands_in_place_of_the_model():
    costs = Costs(RATES, {"a": 3.0})
    assert costs.op(op("a", FORWARD, flops=1000)) == 3.0
    assert costs.op(op("b", FORWARD, flops=1000)) == 10.5


def test_a_fused_op_takes_the_times_of_all_that_it_covers_or_else_the_model():
    fused = op("ab", BACKWARD, covers=("a", "b"), flops=1000)
    assert Costs(RATES, {"a": 3.0, "b": 4.0}).op(fused) == 7.0
    assert Costs(RATES, {"a": 3.0}).op(fused) == 10.5
    assert Costs(RATES, {"a": 3.0, "b": 4.0, "ab": 5.0}).op(fused) == 5.0


def test_each_way_of_the_link_has_its_rate():
    assert (Costs(RATES).offload(32), Costs(RATES).prefetch(32)) == (8.5, 4.5)


def test_what_is_written_reads_back_and_the_model_gives_the_rest(tmp_path):
    file = tmp_path / "costs.csv"
    file.write_text(write_costs({"conv, 1.forward": 0.125, "b.backward": 3e-7}, d2h=1.5e9, h2d=2.5e9))
    costs = read_costs(file, "cpu")
    assert costs.measured == {"conv, 1.forward": 0.125, "b.backward": 3e-7}
    assert costs.rates == replace(MODELS["cpu"], d2h=1.5e9, h2d=2.5e9)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,soon\n", ":2: is not 'op,seconds' with a number"),
        ("a,1\nb\n", ":3: is not 'op,seconds' with a number"),
        ("a,1\nb,-1\n", ":3: gives 'b' -1 seconds; give a time from 0"),
        ("link.up,1\n", ":2: should give link.d2h, link.h2d or link.net"),
        ("link.d2h,0\n", ":2: should give link.d2h, link.h2d or link.net, from 1 to"),
    ],
)
def test_a_line_that_is_no_cost_is_refused_with_its_number(tmp_path, text, says):
    file = tmp_path / "costs.csv"
    file.write_text("op,seconds\n" + text)
    with pytest.raises(InputError) as error:
        read_costs(file, "cpu")
    assert str(error.value).startswith(f"{file}{says}")


def test_a_file_without_its_heading_and_one_that_is_absent_are_refused(tmp_path):
    (tmp_path / "costs.csv").write_text("a,1\nb,2\n")
    with pytest.raises(InputError, match="make the file with `layermem time --out`"):
        read_costs(tmp_path / "costs.csv", "cpu")
    with pytest.raises(InputError, match="no such file; give an existing cost file"):
        read_costs(tmp_path / "none.csv", "cpu")


def test_every_precision_of_a_gpu_differs_in_its_arithmetic_alone():
    assert {name for name in MODELS if name.startswith("cuda ")} == {"cuda fp32x3", "cuda tf32", "cuda bf16"}
    for name in ("cuda fp32x3", "cuda tf32", "cuda bf16"):
        assert replace(MODELS[name], flops=MODELS["cuda"].flops) == MODELS["cuda"] != MODELS[name]


def test_costs_of_another_precision_are_refused_by_name(tmp_path):
    file = tmp_path / "costs.csv"
    file.write_text("# device cuda\nop,seconds\na,1\n")
    assert read_costs(file, "cuda").measured == {"a": 1.0}
    with pytest.raises(InputError, match="was measured in precision fp32, and the precision is tf32; measure this"):
        read_costs(file, "cuda tf32")


def test_an_empty_fact_at_the_head_of_a_file_is_none(tmp_path):
    file = tmp_path / "costs.csv"
    file.write_text("# device\n# \n#\nop,seconds\na,1\n")
    costs = read_costs(file, "cuda tf32")
    assert costs.measured == {"a": 1.0} and costs.fingerprint is None


# -- GPUs --------------------------------------------------------------------------------------------------------------


def target(name: str) -> TargetGpu:
    return TargetGpu(name, find_gpu(name))


@pytest.mark.parametrize("device", ["cuda", "cuda fp32x3", "cuda tf32", "cuda bf16"])
def test_the_modelled_gpu_has_the_rates_of_the_model(device):
    assert model_costs(device, target(MODELLED_GPU)).rates == MODELS[device]


@pytest.mark.parametrize("device", ["cuda", "cuda fp32x3", "cuda tf32", "cuda bf16"])
def test_every_gpu_reaches_a_share_of_what_is_published(device):
    """Of memory and link the same, and of arithmetic in fp32; of tensor cores at most MAX_OF_PEAK."""
    of, precision, base = find_gpu(MODELLED_GPU), precision_of(device), MODELS[device]
    for spec in gpus().values():
        if precision != "fp32" and not spec.tf32:
            continue
        rates = gpu_rates(device, spec)
        share = rates.flops * PRODUCTS_OF_TF32.get(precision, 1) / spec.peak(precision)
        assert 0.15 < share < MAX_OF_PEAK and rates.memory < spec.memory and rates.d2h < spec.link
        if precision == "fp32":
            assert share == pytest.approx(base.flops / of.peak(precision))
        assert rates.memory / spec.memory == pytest.approx(base.memory / of.memory)
        assert (rates.launch, rates.net, rates.latency) == (base.launch, base.net, base.latency)


@pytest.mark.parametrize("device, tflops", [("cuda tf32", 27.1), ("cuda bf16", 52.1), ("cuda fp32x3", 9.10)])
def test_tensor_cores_that_are_slow_for_their_multiprocessors_reach_more_of_their_peak(device, tflops):
    """An RTX 3090 by hand, in tf32: 1 / (0.9 x 35.6) + (1 / 190 - 1 / (0.9 x 494.7)) x (132 x 1,980) / (82 x 1,695)
    is 1 / 27.1."""
    spec, of = find_gpu("RTX 3090"), find_gpu(MODELLED_GPU)
    assert gpu_rates(device, spec).flops / 1e12 == pytest.approx(tflops, rel=5e-3)
    precision = precision_of(device)
    assert gpu_rates(device, spec).flops / spec.peak(precision) > 1.5 * MODELS[device].flops / of.peak(precision)


def test_a_gpu_that_the_table_lacks_has_the_rates_of_the_model():
    costs = model_costs("cuda", TargetGpu("Some GPU 1", None))
    assert costs.rates == MODELS["cuda"]
    says = "Some GPU 1 is not in the table of GPUs, and its driver does not state its clocks: modelled as a typical "
    assert costs.source("cuda") == f"{says}data-centre GPU"


def test_the_gpu_stands_in_the_file_and_another_one_is_refused(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("# gpu T4\nop,seconds\na,1\n")
    assert read_costs(path, "cuda").gpu == target("T4")
    costs = read_costs(path, "cuda", target("T4"))
    assert costs.rates.flops == gpu_rates("cuda", find_gpu("T4")).flops and costs.measured == {"a": 1.0}
    with pytest.raises(InputError, match="was measured on T4, and the GPU is L4; measure"):
        read_costs(path, "cuda", target("L4"))
    path.write_text("op,seconds\na,1\n")  # by hand, or by an earlier version
    assert read_costs(path, "cuda", target("L4")).gpu == target("L4")


@pytest.mark.parametrize("device", ["cuda", "cuda tf32", "cuda bf16"])
def test_without_a_gpu_the_output_names_the_one_whose_rates_are_taken(device):
    assert model_costs(device).source(device) == "modelled with the rates of H200; name another GPU with --card"
    assert model_costs("cpu").source("cpu") is None
