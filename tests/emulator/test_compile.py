"""The header and the demonstration kernels compile for every generation of GPUs, where nvcc is installed."""

from __future__ import annotations

import re
import subprocess

import pytest

from layermem.backends.cuda.kernel_images.toolkit import program
from tests.emulator.build import ROOT, CompileError, build

KERNELS = ROOT / "tests/emulator/kernels"
NVCC = program("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="nvcc is not here: pip install nvidia-cuda-nvcc")


@needs_nvcc
@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("architecture", ["75", "80", "90", "120"])
@pytest.mark.parametrize("source", ["primitives", "gemm_mma"])
def test_nvcc_compiles_without_stack_or_spills(source, architecture, tmp_path):
    cubin = tmp_path / "out.cubin"
    flags = ["-std=c++17", "-O3", f"-arch=sm_{architecture}", "-cubin", "-Xptxas", "-v", "-I", str(ROOT / "cuda")]
    done = subprocess.run(
        [str(NVCC), *flags, str(KERNELS / f"{source}.cu"), "-o", cubin], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr)
    assert frames and set(frames) == {("0", "0", "0")}


REFUSED = {
    "an atomic on floats": ("float* y;", "atomicAdd(p.y, 1.0f);", "atomicAdd"),
    "CUDA's own barrier": ("float* y;", "__syncthreads();", "__syncthreads"),
    "arguments that are not plain": ("float* y; A(const A&) {}", "", "one plain struct by value"),
    "more arguments than CUDA takes": ("char bytes[5000];", "", "exceed 4096 bytes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_host_build_refuses(what, tmp_path):
    members, body, words = REFUSED[what]
    source = tmp_path / "refused.cu"
    source.write_text(f'#include "primitives.cuh"\nstruct A {{ {members} }};\nLM_KERNEL(k, A, p, 32) {{ {body} }}\n')
    with pytest.raises(CompileError, match=words):
        build(source)
