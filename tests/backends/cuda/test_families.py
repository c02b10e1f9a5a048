"""Families of kernels: which kernel is of which, and what a step does without one."""

from __future__ import annotations

import pytest

from layermem.backends.cuda.device import CudaDevice
from layermem.backends.cuda.support import families
from layermem.backends.cuda.support.families import FAMILIES, VARIABLE, families_off, family_of, is_on, remedy_of
from layermem.errors import InputError
from layermem.planning.costs import model_costs, precision_of


@pytest.mark.parametrize(
    "kernel, family",
    [
        ("convolution_tf32_sm90a.conv_fprop_256x128_v4", "warpgroups"),
        ("convolution_bf16_sm90a.conv_dgrad_sums_128x64_v4", "warpgroups"),
        ("convolution_bf16_on_bf16_sm90a.conv_wgrad_256x192_v8", "warpgroups"),
        ("weight_tiles.tile_rows", "warpgroups"),
        ("convolution.conv_dgrad_sums_128x64_v4", "sums"),
        ("convolution_tf32.conv_fprop_patch_128x96_v1", "patch"),
        ("convolution_tf32_on_bf16.conv_fprop_data_patch_128x64_v1", "patch"),
        ("convolution_bf16_on_bf16.conv_fprop_data_128x64_v1", "packed"),
        ("convolution_bf16_on_bf16.conv_wgrad_128x64_v8", "packed"),
        ("convolution_bf16.conv_wgrad_128x64_v4", "convolution_bf16"),
        ("depthwise.depthwise_fprop_3x3_s1", "depthwise"),
        ("grouped.grouped_wgrad_s1_bf16", "grouped"),
        ("normalization.batch_moments_v4", "normalization"),
        ("pooling.max_pool_forward", "pooling"),
    ],
)
def test_a_kernel_is_of_one_family(kernel, family):
    assert family_of(*kernel.split(".")) == family


def test_families_are_switched_off_by_name(monkeypatch):
    monkeypatch.setenv(VARIABLE, " patch, sums,")
    assert families_off() == ("sums", "patch")  # in the order of the table
    assert not is_on("patch") and is_on("moments")
    monkeypatch.setattr(families, "_failed", frozenset())
    families.switch_off(["moments"])
    assert families_off() == ("sums", "patch", "moments")


def test_an_unknown_family_is_an_error_that_lists_all(monkeypatch):
    monkeypatch.setenv(VARIABLE, "patch,warpgroup")
    with pytest.raises(InputError, match=r"unknown family of kernels 'warpgroup' .choose from warpgroups, sums"):
        CudaDevice()


def test_plans_and_costs_name_what_is_off(monkeypatch):
    assert CudaDevice(precision="tf32").title == "cuda tf32"
    monkeypatch.setenv(VARIABLE, "patch,sums")
    title = CudaDevice(precision="tf32").title
    assert title == "cuda tf32 without sums, patch"
    assert precision_of(title) == "tf32" and precision_of("cuda without patch") == "fp32"
    assert model_costs(title).rates == model_costs("cuda tf32").rates


def test_a_remedy_is_the_precision_or_the_device_that_works():
    assert {
        name: remedy_of(name) for name in ("convolution_tf32", "convolution_bf16", "convolution_fp32x3_on_bf16")
    } == (dict.fromkeys(("convolution_tf32", "convolution_bf16", "convolution_fp32x3_on_bf16"), "use --precision fp32"))
    assert remedy_of("convolution") == remedy_of("normalization") == "use --device cpu"
    assert all(family.fallback for family in FAMILIES.values())
