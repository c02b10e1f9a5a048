"""`layermem setup-cuda` builds and installs what is missing, and says each step; `make test` runs the build itself."""

from pathlib import Path

import pytest

from layermem.backends.cuda.driver import context
from layermem.backends.cuda.driver.context import PYCUDA_MISSING
from layermem.backends.cuda.kernel_images import ahead, cuda_version
from layermem.backends.cuda.kernel_images.cuda_version import CudaVersion
from layermem.cli import pycuda_wheel
from layermem.errors import InputError


@pytest.fixture
def machine(monkeypatch):
    """A machine without PyCUDA, NVRTC or nvcc; the list of what is installed on it."""
    done = []

    def build(cache, toolkit, say):
        say("compiling PyCUDA")
        return Path(cache) / "pycuda-2026.1-cp311.whl"

    monkeypatch.setattr(pycuda_wheel, "installed", lambda: "2026.1" if done else None)
    monkeypatch.setattr(pycuda_wheel, "suits_driver", lambda: True)
    monkeypatch.setattr(pycuda_wheel, "compiles_kernels", lambda: any("nvrtc" in each for each in done))
    monkeypatch.setattr(cuda_version, "driver_version", lambda: None)
    monkeypatch.setattr(context, "gpus", list)
    monkeypatch.setattr(pycuda_wheel, "cached_wheel", build)
    monkeypatch.setattr(pycuda_wheel, "install", done.append)
    return done


def test_missing_packages_are_installed_once(layermem, machine, tmp_path):
    first = layermem("setup-cuda", "--cache", tmp_path)
    assert first.code == 0 and "compiling PyCUDA" in first.out and "PyCUDA 2026.1 is installed" in first.out
    assert machine == [str(tmp_path / "pycuda-2026.1-cp311.whl"), "nvidia-cuda-nvrtc==13.0.88"]
    again = layermem("setup-cuda", "--cache", tmp_path)
    assert again.code == 0 and again.out.startswith("PyCUDA 2026.1 is installed") and len(machine) == 2


@pytest.mark.parametrize(
    "driver, nvrtc",
    [
        ((12, 4), "nvidia-cuda-nvrtc-cu12==12.9.86"),
        ((12, 0), "nvidia-cuda-nvrtc-cu12==12.9.86"),
        ((13, 1), "nvidia-cuda-nvrtc==13.0.88"),
    ],
)
def test_the_compiler_of_kernels_suits_the_driver(layermem, machine, monkeypatch, driver, nvrtc):
    monkeypatch.setattr(cuda_version, "driver_version", lambda: CudaVersion(*driver))
    assert layermem("setup-cuda").code == 0 and machine[-1] == nvrtc


def test_a_driver_that_is_too_old_is_one_sentence(layermem, machine, monkeypatch):
    monkeypatch.setattr(cuda_version, "driver_version", lambda: CudaVersion(11, 8))
    ended = layermem("setup-cuda")
    assert ended.code == 4 and "the driver supports CUDA 11.8" in ended.sentence
    assert "update the driver to branch 525 or later" in ended.sentence


def test_a_pycuda_that_was_built_for_a_newer_driver_is_built_again(layermem, machine, monkeypatch):
    machine.append("nvrtc")
    monkeypatch.setattr(pycuda_wheel, "suits_driver", lambda: False)
    assert layermem("setup-cuda").code == 0 and machine[-1].endswith("pycuda-2026.1-cp311.whl")


@pytest.mark.parametrize("words, is_all", [([], False), (["--kernels", "common"], False), (["--kernels", "all"], True)])
def test_kernels_are_compiled_for_the_gpus_that_are_here(layermem, machine, monkeypatch, words, is_all):
    compiled = []
    monkeypatch.setattr(context, "gpus", lambda: [context.Gpu(n, "", "90", 0, 0) for n in range(2)])
    monkeypatch.setattr(ahead, "compile_missing", lambda modules, capability: compiled.append((modules, capability)))
    ended = layermem("setup-cuda", *words)
    assert ended.code == 0 and "kernels for sm_90 are compiled" in ended.out
    assert compiled == [(ahead.modules_of("90", is_all=is_all), "90")]
    assert layermem("setup-cuda", "--kernels", "none").code == 0 and len(compiled) == 1


def test_modules_are_those_that_a_gpu_runs():
    common, every = (ahead.modules_of("90", is_all=is_all) for is_all in (False, True))
    assert {"convolution", "convolution_tf32", "convolution_tf32_sm90a", "pooling"} <= set(common) < set(every)
    assert "convolution_bf16" in every and "convolution_bf16" not in common
    assert not [module for module in ahead.modules_of("89", is_all=True) if module.endswith("sm90a")]
    assert [module for module in ahead.modules_of("75", is_all=True) if module.startswith("convolution")] == [
        "convolution",
        "convolution_on_bf16",
        "convolution_on_fp16",
    ]


def test_a_wheel_only_is_built_and_not_installed(layermem, machine, tmp_path):
    ended = layermem("setup-cuda", "--wheel-only", "--cache", tmp_path)
    assert ended.out.splitlines()[-1] == str(tmp_path / "pycuda-2026.1-cp311.whl") and not machine


def test_a_step_that_fails_is_one_sentence(layermem, machine, monkeypatch):
    def build(cache, toolkit, say):
        raise InputError("PyCUDA is compiled, which needs a C and a C++ compiler; install gcc and g++")

    monkeypatch.setattr(pycuda_wheel, "cached_wheel", build)
    ended = layermem("setup-cuda")
    assert ended.code == 2 and "install gcc and g++" in ended.sentence and not machine


def test_the_cuda_device_names_the_verb():
    assert "`layermem setup-cuda`" in PYCUDA_MISSING
