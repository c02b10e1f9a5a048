"""What the compiler makes of the kernels: the report of ptxas is up to date and holds no spills, and main loops
consist of the instructions that they were written for."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Mapping

import pytest

from layermem.backends.cuda import warpgroup
from layermem.backends.cuda.depthwise import ANY, FORMS
from layermem.backends.cuda.implicit_gemm import ENGINES, PACKED_BF16
from layermem.backends.cuda.kernel_images import build
from layermem.backends.cuda.kernel_images.build import Nvcc, whole_source
from layermem.backends.cuda.kernel_images.sources import SOURCES, modules
from layermem.backends.cuda.kernel_images.toolkit import program
from tests.backends.cuda.first_tile import first_tile
from tools import ptxas_report
from tools.ptxas_report import digest_of, read_report
from tools.sass import engine, record
from tools.sass.code import _code, disassembled
from tools.sass.disassembly import disassembler
from tools.sass.record import ISSUED, Facts, facts_of

# ---- the report -----------------------------------------------------------------------------------------------------


WITHOUT_KERNELS = {"step_scalars"}  # a variable alone


@pytest.fixture(scope="module")
def report() -> tuple[Mapping[str, str], list[ptxas_report.Row]]:
    return read_report()


def test_products_of_warpgroups_that_ptxas_serializes_are_in_no_report():
    said = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to {}"
    with pytest.raises(SystemExit, match=r"C7510.* ill formed pipeline stage"):
        list(ptxas_report._kernels("", said.format("ill formed pipeline stage in the function 'f'")))


def test_the_report_is_that_of_the_sources(report):
    digests, rows = report
    stale = [module for module in modules() if digests.get(module) != digest_of(module)]
    assert not stale and digests.keys() == set(modules()), f"{stale}: run python tools/ptxas_report.py"
    assert {row.module for row in rows} == set(modules()) - WITHOUT_KERNELS


def test_no_kernel_spills_on_any_architecture(report):
    assert not [(row.module, row.name, a) for row in report[1] for a, nbytes in row.spilled.items() if nbytes]


def test_registers_suffice_for_the_blocks_that_the_source_promises(report):
    """On sm_75 it promises fewer of large blocks, since shared memory holds no more."""
    for row in report[1]:
        assert max(n for a, n in row.registers.items() if a != "75") <= row.most_registers, row.name


def test_static_shared_memory_is_what_every_gpu_has(report):
    assert all(row.shared <= 48 * 1024 for row in report[1])


def without_element(name: str) -> str:
    """The name of the kernel on floats."""
    return re.sub("_(bf16|fp16)$", "", name)


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


def test_the_catalogue_names_every_kernel_and_no_other(report):
    kernels, named = {(row.module, row.name) for row in report[1]}, catalogue()

    def means(entry: tuple[str, str], kernel: tuple[str, str]) -> bool:
        """For blobs in 16 bits it is the same, with the type behind its name."""
        return entry[0] == kernel[0] and fnmatch.fnmatchcase(without_element(kernel[1]), entry[1])

    assert not [kernel for kernel in kernels if not any(means(entry, kernel) for entry in named)]
    assert not [entry for entry in named if not any(means(entry, kernel) for kernel in kernels)]


@pytest.mark.skipif(
    not (program("nvcc") and program("ptxas")),
    reason="nvcc and ptxas are not here: pip install nvidia-cuda-nvcc",
)
@pytest.mark.samples(3)
@pytest.mark.parametrize("architecture", ["75", "90", "120"])
def test_the_compiler_still_says_what_the_report_states(architecture, report):
    known = {row.name: row for row in report[1] if row.module == "pooling"}
    found = ptxas_report.compiled("pooling", architecture)
    assert {kernel.name for kernel in found} == known.keys()
    for kernel in found:
        assert kernel.spilled == 0
        assert kernel.registers <= known[kernel.name].registers[architecture] + 8


# ---- main loops -----------------------------------------------------------------------------------------------------

PRODUCTS = {"fp32": "FFMA", "fp32x3": "HMMA.1688.F32.TF32", "tf32": "HMMA.1688.F32.TF32", "bf16": "HMMA.16816.F32.BF16"}
COPY = "LDGSTS"
COPIES = {  # by elements of an access
    "v4": {"LDGSTS.E.BYPASS.128"}, "v1": {"LDGSTS.E"}, "v41": {"LDGSTS.E.BYPASS.128", "LDGSTS.E"},
}  # fmt: skip
RECORD = functools.cache(record.read_record)


def code(module: str) -> Mapping[str, Facts]:
    """What docs/benchmarks/machine_code.tsv has of the kernels of a module."""
    return RECORD().modules[module]


def test_the_record_of_machine_code_is_that_of_the_sources():
    stale = [module for module in record.MODULES if RECORD().digests.get(module) != record.digest_of(module)]
    assert not stale and RECORD().digests.keys() == set(record.MODULES), f"{stale}: run python tools/machine_code.py"


@pytest.mark.skipif(
    not (Nvcc.find() and disassembler()),
    reason="it takes nvcc and nvdisasm: pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm",
)
@pytest.mark.parametrize(
    ("module", "source"),
    [("convolution_tf32", first_tile), ("convolution_tf32_sm90a", first_tile), ("pooling", whole_source)],
)
def test_the_compiler_makes_the_machine_code_of_the_record(module, source, monkeypatch):
    """Every way to read it: main loops of one role and of two, loops that load, and none."""
    nvcc, known = Nvcc.find(), code(module)
    if nvcc is None or nvcc.version != RECORD().compiler:
        pytest.skip(f"the record is of {RECORD().compiler}")
    monkeypatch.setattr(build, "whole_source", source)
    found = disassembled(engine.cubin_of(module, record.ARCHITECTURE))
    assert len(found) == (len(known) if source is whole_source else 3)
    for name, each in found.items():
        assert facts_of(name, each, known[name].a_product) == known[name], name


def test_a_record_that_is_written_is_read_and_what_changed_is_compiled_again(tmp_path):
    path, old, asked = tmp_path / "record.tsv", RECORD(), []
    other = old._replace(digests={**old.digests, "update": "another"})
    path.write_text(record.written(other), encoding="utf-8")
    assert record.read_record(path) == other

    def compile(module: str) -> Mapping[str, Facts]:
        asked.append(module)
        return old.modules[module]

    assert record.updated(record.read_record(path), old.compiler, compile) == old._replace(
        digests={module: record.digest_of(module) for module in record.MODULES}
    )
    assert asked == ["update"]


def engine_kernels(found: Mapping[str, Facts]) -> dict[str, Facts]:
    return {name: each for name, each in found.items() if name.startswith(("conv_fprop", "conv_dgrad", "conv_wgrad"))}


@pytest.mark.parametrize("precision", ENGINES)
def test_main_loops_are_copies_that_do_not_wait_and_products(precision):
    product, kernels = PRODUCTS[precision], engine_kernels(code(ENGINES[precision].module))
    assert len(kernels) == {"fp32": 33, "fp32x3": 32, "tf32": 47, "bf16": 47}[precision]
    for name, each in kernels.items():
        whole = each.copies
        copies = {opcode for opcode in whole if opcode.startswith(COPY)}
        assert copies == COPIES[name.rpartition("_")[2]], name
        assert not each.has_local_memory, f"{name} has local memory"
        assert not any(o.startswith(("I2F", "MUFU.RCP")) for o in whole), f"{name} divides in its loop"
        assert any(o.startswith("DEPBAR") for o in whole) and whole["BAR.SYNC.DEFER_BLOCKING"] == 1, name
        products = sum(n for o, n in each.products.items() if o.startswith(product))
        if "_patch_" in name:
            _reads_a_patch(name, whole, precision, products)
        elif precision == "fp32":
            _reads_as_an_fp32_product(name, each.products, products)
        else:
            _reads_as_a_tensor_core_product(name, whole, precision, products)


def _reads_as_an_fp32_product(name: str, loop: Mapping[str, int], products: int) -> None:
    """How the inner loop gets its operands, and how many instructions there are for each product."""
    large, issued = "128x128" in name, loop[ISSUED] / products
    reads = sum(n * {"LDS.128": 1, "LDS.64": 0.5}[o] for o, n in loop.items() if o.startswith("LDS"))
    assert products >= (16 if large else 10) * reads, name
    assert issued < (1.3 if large else 1.6), (name, issued)


MOST_ISSUED_OF_PATCH = {"tf32": 6.0, "bf16": 9.0, "fp32x3": 4.4, "fp32": 1.9}


def _reads_a_patch(name: str, loop: Mapping[str, int], precision: str, products: int) -> None:
    """Elements of A by single reads, places of taps two words at a time, B as in other kernels."""
    assert loop["LDS"] and loop["LDS.64"] + loop["LDS.128"], name
    assert loop["LDS.128"] if precision == "fp32" else loop["LDSM.16.M88.4"], name
    assert loop[ISSUED] / products <= MOST_ISSUED_OF_PATCH[precision], name


MOST_ISSUED = {  # instructions a product of a whole stage, copies and all, of 128 x 128
    "tf32": {"fprop": 4.5, "dgrad": 6.2, "wgrad": 6.2},
    "fp32x3": {"fprop": 4.5, "dgrad": 4.7, "wgrad": 4.4},
    "bf16": {"fprop": 6.3, "dgrad": 7.2, "wgrad": 6.6},
}


def _reads_as_a_tensor_core_product(name: str, loop: Mapping[str, int], precision: str, products: int) -> None:
    """The whole main loop is one: a stage of products, and the copies of a later one between them."""
    _, product, tile, vectors = re.sub("_(sums|merged|pool)", "", name).split("_")
    if product != "wgrad":  # an operand in rows comes by ldmatrix
        assert loop["LDSM.16.M88.4"], name
    if vectors == "v1":
        return
    if product == "fprop":  # where rows are not in registers a copy reads theirs from a table
        from_table = precision == "fp32x3" or tile == "512x64"
        assert from_table or not any(o.startswith("LDS.") or o == "LDS" for o in loop), name
    else:  # one in columns in runs of four or two; a dgrad also reads the taps of its phase, once a stage
        few = 5 if "_merged_" in name else 4
        assert loop["LDS.128"] and loop["LDS"] <= few and (product == "dgrad" or loop["LDS.64"]), name
    if tile in ("128x128", "256x128"):
        issued = loop[ISSUED] / products
        assert issued <= MOST_ISSUED[precision][product], (name, issued)


MOST_ISSUED_PACKED = {"fprop": 3.3, "dgrad": 3.9, "wgrad": 3.7}


def test_packed_tiles_are_copied_and_multiplied_as_they_are():
    """No register holds an operand between memory and its product, and no instruction converts one."""
    product, found = PRODUCTS["bf16"], engine_kernels(code(PACKED_BF16.module))
    kernels = {name: each for name, each in found.items() if name.endswith("v8")}
    assert len(kernels) == 23
    for name, each in kernels.items():
        whole = each.copies
        assert {o for o in whole if o.startswith(COPY)} == {"LDGSTS.E.BYPASS.128"}, name
        assert not any(o.startswith(("LDG.", "F2F", "STS", "LDL", "STL")) for o in whole), name
        assert any(o.startswith("LDSM") for o in whole) and whole["BAR.SYNC.DEFER_BLOCKING"] == 1, name
        _, operation, tile, _ = re.sub("_(sums|merged|pool)", "", name).split("_")
        if tile in ("128x128", "256x128"):
            products = sum(n for o, n in whole.items() if o.startswith(product))
            assert whole[ISSUED] / products <= MOST_ISSUED_PACKED[operation], name


@pytest.mark.parametrize("precision", warpgroup.PRECISIONS)
def test_producers_copy_and_consumers_multiply_in_loops_of_their_own(precision):
    """16 bytes a copy, products of a whole warpgroup, nothing in local memory."""
    found = code(f"convolution_{precision}_sm90a")
    assert len(found) == 10
    for name, each in found.items():
        loads, products = each.copies, each.products
        columns = 128 if "256x128" in name else 64
        multiplied = {opcode: n for opcode, n in products.items() if opcode.startswith("HGMMA")}
        shape = f"HGMMA.64x{columns}x8.F32.TF32" if precision == "tf32" else f"HGMMA.64x{columns}x16.F32.BF16"
        assert multiplied == {shape: 8 if precision == "tf32" else 4}, name
        assert loads["LDGSTS.E.BYPASS.128"] == (16 if columns == 128 else 8), name
        assert loads["LDG.E.128"] == (4 if "fprop" in name and columns == 64 else 8), name
        assert loads["STS.128"] == loads["LDG.E.128"] // (1 if precision == "tf32" else 2), name
        assert products["LDSM.16.M88.4"] == 8 or products["LDS.64"] == 16, name
        assert not each.has_local_memory, f"{name} has local memory"
        assert not any(o.startswith(("I2F", "MUFU.RCP")) for o in (*loads, *products)), f"{name} divides in a loop"


def test_packed_operands_are_copied_and_multiplied_where_they_lie():
    found = code("convolution_bf16_on_bf16_sm90a")
    expected = {  # copies of a thread, bulk copies and products of a warp in a stage, and columns of a product
        "conv_fprop_192x256_v8": (12, 1, 12, 128), "conv_dgrad_192x256_v8": (12, 1, 12, 128),
        "conv_wgrad_256x192_v8": (28, 0, 8, 192), "conv_wgrad_256x128_v8": (24, 0, 8, 128),
    }  # fmt: skip
    assert found.keys() == expected.keys()
    for name, (copies, of_weights, multiplied, columns) in expected.items():
        loads, products = found[name].copies, found[name].products
        assert loads["LDGSTS.E.BYPASS.128"] == copies and loads.get("UBLKCP.S.G", 0) == of_weights, name
        of_warpgroup = {opcode: n for opcode, n in products.items() if opcode.startswith("HGMMA")}
        assert of_warpgroup == {f"HGMMA.64x{columns}x16.F32.BF16": multiplied}, name
        assert not any(o.startswith(("LDG.", "LDSM", "LDS", "F2F")) for o in products), name
        assert not any(o.startswith("LDG.") for o in loads), name
        assert not found[name].has_local_memory, f"{name} has local memory"


MEMORY_BOUND = (
    "activation", "channel_sums", "depthwise", "dropout", "eltwise", "normalization", "pooling", "resize", "shape",
    "update", "weight_tiles",
)  # fmt: skip
SCALAR = {
    "transpose", "reorder", "eltwise_product_backward", "batch_statistics", "global_statistics", "square_sums",
    "move_averages",
    "square_root", "permute", "pool_max_mask", "pool_stochastic_average", "pool_stochastic_forward",
} | {f"depthwise_wgrad_{form.name}" for form in [*FORMS.values(), ANY[4]]}  # of which dw is a few floats  # fmt: skip


@pytest.mark.parametrize("module", MEMORY_BOUND)
def test_kernels_that_memory_bounds_move_four_elements_at_a_time(module):
    """Which are 16 bytes, or 8 of a blob in 16 bits: parts of sums are floats there too."""
    for name, each in code(module).items():
        of_floats = without_element(name)
        if of_floats.endswith("_v1") or of_floats in SCALAR:
            continue
        counts = each.memory
        if name == of_floats:
            assert counts["LDG.E.128"] or counts["LDGSTS.E.BYPASS.128"], name
            assert counts["STG.E.128"], name
        else:
            assert counts["LDG.E.64"] and (counts["STG.E.64"] or counts["STG.E.128"]), name
        assert not each.has_local_memory, f"{name} has local memory"


REDUCTIONS = {  # kernels that read large blobs to add them up, by module
    "channel_sums": "channel_sums*_v[14]",
    "communication": "ordered_sum",
    "depthwise": "depthwise_wgrad_*",
    "inner_product": "sum_parts_v[14]",
    "l2norm": "norm_*sums*",
    "loss": "euclidean_forward|sigmoid_cross_entropy_forward|smooth_l1_forward|hinge_forward|contrastive_*",
    "mvn": "mvn_*",
    "normalization": "batch_statistics|gradient_sums_v[14]|pooled_gradient_sums_v4",
    "pooling": "pool_average_*ward_v[14]|pool_max_backward_v[14]",
    "reduction": "reduce_sum|reduce_sum_product|reduce_sum_absolute|reduce_sum_square",
    "softmax": "softmax_*",
    "update": "square_sums",
}


@pytest.mark.parametrize("module", REDUCTIONS)
def test_reductions_have_four_loads_in_flight(module):
    """Of blobs in 16 bits too."""
    named = REDUCTIONS[module].split("|")
    found = {
        name: each for name, each in code(module).items()
        if any(fnmatch.fnmatchcase(without_element(name), pattern) for pattern in named)
    }  # fmt: skip
    assert len(found) >= len(named)
    for name, each in found.items():
        assert each.in_loops >= 4, name


@pytest.mark.parametrize(
    "module, kernel, copies", [("channel_sums", "sum_splits", 4), ("normalization", "lrn_across", 1)]
)
def test_copies_to_shared_memory_do_not_wait(module, kernel, copies):
    """No register holds what they bring, so all of a thread's copies up to the wait are in flight."""
    found = {name: each for name, each in code(module).items() if name.startswith(kernel) and name.endswith("_v4")}
    assert found
    for name, each in found.items():
        assert each.memory["LDGSTS.E.BYPASS.128"] >= copies, name
        assert each.memory["LDG.E.128"] <= 3, name  # of what is added to, and others that one thread alone reads


def test_batch_norm_has_four_loads_in_flight_where_it_has_no_loop():
    found = code("normalization")
    launches = ("normalize", "batch_norm_backward", "batch_moments")
    for name in (f"{launch}_v{v}" for launch in launches for v in (1, 4)):
        assert found[name].in_flight >= 4, name


SEQUENCE = """
.text.loads:
.L_x_1:
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0010*/               @P0 LDG.E.128 R8, desc[UR4][R2.64+0x10] ;
        /*0020*/                   LDG.E R12, desc[UR4][R2.64+0x20] ;
        /*0030*/                   FADD R13, R13, R10 ;
        /*0040*/                   LDG.E.128 R16, desc[UR4][R2.64+0x30] ;
        /*0050*/                   FADD R13, R13, R4 ;
        /*0060*/                   FADD R13, R13, R16 ;
        /*0070*/               @P0 BRA `(.L_x_1) ;
        /*0080*/                   EXIT ;
"""


def test_loads_in_flight_are_those_whose_registers_nothing_has_named():
    """The second is waited for when the third of as many bytes begins, and the one of 4 bytes does not count."""
    found = _code(SEQUENCE)
    assert found.loading_loops == [(0, 8)]
    assert found.loads_in_flight() == found.loads_in_flight((0, 8)) == 2
