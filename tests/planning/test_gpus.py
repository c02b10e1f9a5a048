"""The table of GPUs: what its rows must keep to, figures that are known, and names."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import layermem
from layermem.errors import InputError
from layermem.planning.gpus import TABLE, find_gpu, gpus, recognize_gpu, spec_by_driver

ALL = list(gpus().values())
# By compute capability: fp32 of a multiprocessor; KiB of a block
LANES = {60: 64, 61: 128, 70: 64, 75: 64, 80: 64, 86: 128, 89: 128, 90: 128, 100: 128, 103: 128, 120: 128, 121: 128}
SHARED = {60: 48, 61: 48, 70: 96, 75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99}
PCIE = {60: 3, 61: 3, 70: 3, 75: 3, 80: 4, 86: 4, 89: 4, 90: 5, 100: 5, 103: 5, 120: 5, 121: 5}


def test_the_table_has_gpus_of_ten_years():
    assert len(ALL) >= 10 and {"GTX 1080", "T4", "A100 40GB", "H100 SXM", "RTX 5090", "B200"} <= set(gpus())
    assert len({spec.driver_name for spec in ALL}) == len(ALL)


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
def test_a_row_is_of_one_gpu(spec):
    """Figures of one document agree with those of another: arithmetic with lanes and clock, limits with the
    architecture."""
    assert spec.fp32 == pytest.approx(2 * LANES[spec.capability] * spec.multiprocessors * spec.clock, rel=0.015)
    assert (spec.shared_bytes >> 10, spec.pcie) == (SHARED[spec.capability], PCIE[spec.capability])
    assert 4 << 30 <= spec.free_bytes < spec.memory_bytes and spec.free_bytes % (2 << 20) == 0
    assert 1e9 < spec.clock < 3e9 and 2.5e11 <= spec.memory < 1e13
    assert spec.memory > 4 * spec.link and spec.source and "NVIDIA" not in spec.source


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
def test_tensor_cores_come_with_compute_capability_80_and_bf16_is_twice_as_fast(spec):
    if spec.capability < 80:
        assert spec.tf32 == spec.bf16 == 0
    else:
        assert spec.tf32 >= 0.99 * spec.fp32 and spec.bf16 == pytest.approx(2 * spec.tf32, rel=0.03)


def test_a_later_data_centre_gpu_is_no_slower():
    row = [find_gpu(name) for name in ("V100 SXM2 16GB", "A100 40GB", "A100 80GB", "H100 SXM", "H200", "B200")]
    for one, other in pairwise(row):
        for what in ("memory_bytes", "memory", "fp32", "tf32", "bf16", "link", "shared_bytes"):
            assert getattr(one, what) <= getattr(other, what), (one.name, what)


@pytest.mark.parametrize(
    "name, memory_gib, memory, fp32, bf16, link",
    [
        ("GTX 1080", 8, 320e9, 8.87e12, 0, 15.76e9),
        ("T4", 16, 320e9, 8.1e12, 0, 15.76e9),
        ("A100 80GB", 80, 2039e9, 19.5e12, 312e12, 31.5e9),
        ("RTX 4090", 24, 1008e9, 82.6e12, 165.2e12, 31.5e9),
        ("RTX 4060", 8, 272e9, 15.1e12, 30.2e12, 15.75e9),  # 8 lanes
        ("H100 SXM", 80, 3350e9, 66.9e12, 989.4e12, 63.0e9),
        ("RTX 5090", 32, 1792e9, 104.8e12, 209.5e12, 63.0e9),
    ],
)
def test_known_figures(name, memory_gib, memory, fp32, bf16, link):
    spec = find_gpu(name)
    assert (spec.memory_bytes, spec.memory, spec.fp32, spec.bf16) == (memory_gib << 30, memory, fp32, bf16)
    assert spec.link == pytest.approx(link, rel=1e-3)


@pytest.mark.parametrize(
    "name, known",
    [
        ("rtx 4090", "RTX 4090"),
        ("RTX4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("t4", "T4"),
        ("Tesla T4", "T4"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("a100-pcie-40gb", "A100 PCIe 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2 16GB"),
    ],
)
def test_a_name_is_matched_in_any_case_and_as_the_driver_has_it(name, known):
    assert find_gpu(name).name == known


@pytest.mark.parametrize(
    "name, near",
    [
        ("A100", "A100 40GB or A100 PCIe 40GB or A100"),
        ("H10", "H100 PCIe or H100 SXM"),
        ("RTX 4050", "RTX 4090 or RTX 4080"),
        ("gtx1080ti!x", "GTX 1080 Ti"),
    ],
)
def test_an_unknown_name_is_answered_with_near_ones(name, near):
    with pytest.raises(InputError, match=f"unknown GPU '{name}' .did you mean {near}.*devices --gpus"):
        find_gpu(name)


@pytest.mark.parametrize("name", ["", "nvidia", "potato"])
def test_a_name_that_is_near_nothing_is_answered_with_where_to_look(name):
    assert recognize_gpu(name) is None
    with pytest.raises(
        InputError, match=r"unknown GPU '\w*' \(give one that `layermem devices --gpus` lists, or numbers such as 8GiB"
    ):
        find_gpu(name)


def test_an_old_gpu_has_no_tensor_cores_to_plan_for():
    assert find_gpu("T4").peak("fp32") == 8.1e12
    with pytest.raises(InputError, match=r"T4 has compute capability 7\.5; --precision tf32 needs 8\.0 or later"):
        find_gpu("T4").peak("tf32")


def test_a_wheel_carries_the_table():
    setuptools = pytest.importorskip("tomllib").loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]
    name = TABLE.relative_to(Path(layermem.__file__).parent)
    assert any(name.match(pattern) for pattern in setuptools["package-data"]["layermem"])


def test_the_table_is_beside_its_reader_and_its_rows_are_whole():
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    assert {line.count("\t") for line in lines} == {13} and not any("\t\t" in line for line in lines)


@pytest.mark.parametrize("name", ["A100 80GB", "RTX 3090", "RTX 4090", "H100 NVL", "RTX 5090"])
def test_what_a_driver_states_gives_the_rates_that_are_published(name):
    """Some of the same architecture have twice their tensor cores, and H20 has a seventh of them."""
    spec = find_gpu(name)
    found = spec_by_driver(
        "new", spec.capability, 1 << 34, spec.multiprocessors, spec.clock, spec.memory, spec.shared_bytes
    )
    assert found is not None and found.stated != "published" == spec.stated
    assert (found.memory, found.memory_bytes, found.link) == (spec.memory, 1 << 34, spec.link)
    assert found.fp32 == pytest.approx(spec.fp32, rel=0.01)
    assert found.tf32 == pytest.approx(spec.tf32, rel=0.1) and found.bf16 == pytest.approx(spec.bf16, rel=0.1)


def test_gpus_outside_of_the_table_need_known_clocks():
    assert spec_by_driver("new", 87, 1 << 30, 16, 1.3e9, 2e11, 163 << 10).tf32 > 0
    assert spec_by_driver("new", 90, 1 << 30, 132, 0.0, 3e12, 227 << 10) is None
    assert spec_by_driver("new", 90, 1 << 30, 132, 2e9, 0.0, 227 << 10) is None
    assert spec_by_driver("old", 52, 1 << 30, 132, 2e9, 3e11, 48 << 10) is None


@pytest.mark.parametrize(
    "text", ["8GiB,448GB/s,20TFLOPs", " 20 tflop/s , 0.448 TB/s, 8192MiB", "448gb/s,20000GFLOPS,8589934592B"]
)
def test_a_gpu_is_known_by_its_numbers_in_any_order(text):
    spec = find_gpu(text)
    assert (spec.memory_bytes, spec.memory, spec.fp32) == (8 << 30, 448e9, 20e12)
    assert spec.tf32 == pytest.approx(20e12) and spec.bf16 == pytest.approx(40e12) and spec.capability == 86
    assert find_gpu(spec.name) == replace(spec, driver_name=spec.name) and spec.stated == "as given"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("8GiB,448GB/s", "FLOPs is missing"),
        ("8GiB", "memory a second and FLOPs are missing"),
        ("8GiB,448GB/s,20TFLOPs,4GiB", "two of them say the memory"),
        ("8GiB,448GB/s,fast", "'fast' is none of these"),
        ("8GiB,448GB/s,20TFLOPs,", "'' is none of these"),
        ("0GiB,448GB/s,20TFLOPs", "'0GiB' is 0"),
        ("8GiB,448GB/h,20TFLOPs", "'448GB/h' is none of these"),
    ],
)
def test_numbers_that_are_no_gpu_are_refused_with_an_example(text, what):
    with pytest.raises(InputError, match=f"{what}; give its memory, bandwidth and FLOPs, such as 8GiB,448GB/s"):
        find_gpu(text)


def test_a_gpu_of_the_numbers_of_another_has_its_rates():
    known = find_gpu("RTX 3090")
    same = find_gpu("24GiB,936GB/s,35.6TFLOPs")
    for name in ("memory_bytes", "memory", "fp32", "tf32", "bf16", "multiprocessors", "free_bytes", "link"):
        assert getattr(same, name) == pytest.approx(getattr(known, name)), name
