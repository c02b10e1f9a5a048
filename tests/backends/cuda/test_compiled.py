"""What the compiler makes of the kernels: none spills, and each keeps to its launch bounds and to static shared memory
that every GPU has."""

from __future__ import annotations

import fnmatch
import re

import pytest

from layermem.backends.cuda.device import TENSOR_CORES
from layermem.backends.cuda.driver.context import SHARED_BYTES
from layermem.backends.cuda.kernel_images.sources import SOURCES, modules
from layermem.backends.cuda.products.gemm_tiles import ENGINES, PRODUCTS, VECTOR
from tests.backends.cuda.compiled import CompiledKernel, CompileError, can_compile, compiled, read_reports
from tests.backends.cuda.harness import kernel_names
from tests.emulator.test_driver_rules import OPT_IN

needs_nvcc = pytest.mark.skipif(not can_compile(), reason="nvcc is not here: pip install nvidia-cuda-nvcc")

# For compute capability 9.0: kernels bound by memory, products of every GPU, products of warpgroups.
MAIN = ("normalization", "convolution", "convolution_tf32_sm90a")
OTHERS = [
    (module, capability)
    for capability in ("90", "86")
    for module in modules()
    if (module, capability) not in {(each, "90") for each in MAIN} and not (capability == "86" and "_sm90a" in module)
]


@pytest.mark.samples(len(MAIN))
@needs_nvcc
@pytest.mark.parametrize("module", MAIN)
def test_kernels_keep_to_what_their_launches_rely_on(module):
    hold(module, "90")


@pytest.mark.whole
@needs_nvcc
@pytest.mark.samples(len(OTHERS))
@pytest.mark.parametrize("module, capability", OTHERS)
def test_other_kernels_keep_to_what_their_launches_rely_on(module, capability):
    hold(module, capability)


def hold(module: str, capability: str) -> None:
    kernels = compiled(module, capability)
    assert {each.name for each in kernels} == set(kernel_names(module))
    for each in kernels:
        assert each.spilled == 0, each
        assert each.registers <= each.promised_registers, each
        assert each.static_shared <= SHARED_BYTES, each


@pytest.mark.whole
@needs_nvcc
@pytest.mark.samples(len(ENGINES))
@pytest.mark.parametrize("precision", ENGINES)
def test_every_product_has_a_tile_that_fits_every_gpu(precision):
    """Dynamic and static shared memory of its smallest tile, on the GPUs whose tensor cores have the precision."""
    engine = ENGINES[precision]
    static = {each.name: each.static_shared for each in compiled(engine.module, "90")}
    for product in PRODUCTS:
        tiles = engine.own_tiles(product, VECTOR)
        least = min(engine.shared_bytes(tile) + static[f"{product}_{tile.name}_v4"] for tile in tiles)
        for capability, kib in OPT_IN.items():
            assert least <= kib << 10 or (capability < TENSOR_CORES and precision != "fp32"), (product, capability)


# ---- reading the compiler's reports ----------------------------------------------------------------------------------

PTX = """
.visible .entry scale(.param .align 8 .b8 scale_param_0[24])
.maxntid 256
.minnctapersm 3
{
"""
SAID = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'scale' for 'sm_90'
ptxas info    : Function properties for scale
    {stack} bytes stack frame, 4 bytes spill stores, 2 bytes spill loads
ptxas info    : Used 90 registers, used 1 barriers, 1024 bytes smem, 376 bytes cmem[0]
"""


def test_a_report_has_bounds_registers_static_memory_and_spills():
    found = list(read_reports(PTX, SAID.format(stack=8)))
    assert found == [CompiledKernel("scale", threads=256, blocks=3, registers=90, static_shared=1024, spilled=14)]
    assert found[0].promised_registers == 80  # 65536 / 768 is 85, of which eight are dealt out at a time


@pytest.mark.parametrize("number", ["C7508", "C7510"])
def test_products_of_warpgroups_that_are_serialized_are_an_error(number):
    said = (
        f"ptxas info    : ({number}) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x"
    )
    with pytest.raises(CompileError, match=f"{number}.* due to x"):
        list(read_reports(PTX, SAID.format(stack=0) + said))


# ---- the catalogue ---------------------------------------------------------------------------------------------------


def catalogue() -> set[tuple[str, str]]:
    """Module and pattern of each name in the catalogue of cuda/README.md; V stands for 1 and 4."""
    text = (SOURCES / "README.md").read_text(encoding="utf-8")
    found: set[tuple[str, str]] = set()
    known: list[str] = []
    for line in text[text.index("| module ") :].splitlines()[2:]:
        if not line.startswith("|"):
            break
        _, of, names, *_ = line.split("|")
        known = re.findall(r"`(\w+)`", of) or known
        patterns = [name.replace("_vV", "_v[14]") for name in re.findall(r"`([\w*]+)`", names)]
        found |= {(module, pattern) for module in known for pattern in patterns}
    return found


def test_the_catalogue_names_every_kernel_and_no_other():
    kernels = {(module, name) for module in modules() for name in kernel_names(module)}
    named = catalogue()

    def means(entry: tuple[str, str], kernel: tuple[str, str]) -> bool:
        """For blobs in 16 bits it is the same, with the type behind its name."""
        return entry[0] == kernel[0] and fnmatch.fnmatchcase(re.sub("_(bf16|fp16)$", "", kernel[1]), entry[1])

    assert not [kernel for kernel in kernels if not any(means(entry, kernel) for entry in named)]
    assert not [entry for entry in named if not any(means(entry, kernel) for kernel in kernels)]
