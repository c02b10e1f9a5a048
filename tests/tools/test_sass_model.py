"""tools/sass_model.py: machine code is read and followed as a GPU runs it, and the model keeps to sums made by hand."""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.conv_pool import conv_fprop_pool
from layermem.backends.cuda.implicit_gemm import (
    DEPTH,
    ENGINES,
    WGRAD,
    DgradPart,
    conv_dgrad,
    conv_dgrad_merged,
    conv_fprop,
    conv_wgrad,
    split_of,
)
from layermem.backends.cuda.kernel_images import build
from layermem.backends.cuda.kernel_images.build import Nvcc
from layermem.backends.cuda.launch import Launch, launch
from layermem.backends.cuda.warpgroup import (
    CAPABILITY,
    PACKED_PRECISION,
    PACKED_TILES,
    PRECISIONS,
    WARPGROUP_TILES,
    engine_of,
)
from layermem.ops import ConvProblem, Feed, Window
from layermem.planning.costs import MODELS
from tests.backends.cuda.first_tile import first_tile
from tools.gpu import tiles
from tools.ptxas_report import read_report
from tools.sass.calibration import calibrated, case_times, tile_time
from tools.sass.direct import GROUPS, MODULE
from tools.sass.disassembly import Control, Instruction, Kernel, disassembler, parse
from tools.sass.documents import DOCUMENTS, SAVED, with_tables
from tools.sass.engine import MODELLED, NAME, can_run, kernels_of, parts_of, pooled
from tools.sass.gpus import GPUS, LAUNCH, SHARE, Model, blocks_at_once
from tools.sass.loads import bytes_in_flight, launch_bytes, share_of, thread_bytes
from tools.sass.loops import Loop, loops, main_loop, product_of
from tools.sass.net import (
    OpTime,
    blocks_of,
    by_kind,
    feed_time,
    fields,
    host_gap,
    launches_time,
    stages_of,
    step_of,
    tiles_of,
)
from tools.sass.pipeline import GLOBAL_LATENCY, duration, issues_of, simulate, waiting_for_copies, wavefronts
from tools.sass.record import digest_of, read_record
from tools.sass.table import COLUMNS, read_digests, read_rows, written
from tools.sass.trace import Step, followed, traced, written_by
from tools.sass.warpgroup import PORT, TilesOf, issues_of_loads, launch_seconds, loop_with, module_of, rows_of

ROOT = Path(__file__).resolve().parents[2]
SMALL = Path(__file__).with_name("small_loop.sass")
H200 = GPUS["90"]

nvcc_is_here = pytest.mark.skipif(
    Nvcc.find() is None or disassembler() is None,
    reason="nvcc or nvdisasm is not here: pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm",
)
compiles = pytest.mark.skipif(not can_run(), reason="it takes a CUDA compiler and nvdisasm")

# -- control bits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("upper", "control"),
    [
        (0x000FE20000000800, Control(1, False, None, None, ())),  # LDC R1, c[0x0][0x28]
        (0x000E6E0000002100, Control(7, False, 1, None, ())),  # S2R R0, SR_TID.X
        (0x002FC80003F04270, Control(4, True, None, None, (1,))),  # ISETP.GT.AND P0, PT, R0, 0xff, PT
        (0x0003F4000B92184A, Control(10, False, None, 1, ())),  # LDGSTS.E [R9], desc[UR10][R2.64]
        (0x000FEA0003800000, Control(5, False, None, None, ())),  # @P1 BRA
        (0x002FD600078E00FF, Control(11, True, None, None, (1,))),  # IMAD.MOV.U32 R3, RZ, RZ, RZ
    ],
)
def test_control_bits_are_those_of_known_instructions(upper, control):
    assert Control.decode(upper) == control


def test_every_scoreboard_has_its_bit_in_the_mask_of_waits():
    for scoreboard in range(6):
        assert Control.decode(1 << 52 + scoreboard).wait == (scoreboard,)


# -- a stored disassembly: two stages of 256 floats, 8 rows copied by 64 threads, 32 products a thread -----------------


@pytest.fixture(scope="module")
def small() -> Kernel:
    code, labels = parse(SMALL.read_text(encoding="utf-8"))["small"]
    return Kernel("small", code, labels, threads=64, parameters=0x210)


def small_args(steps: int = 8) -> bytes:
    """struct Args { float* y; const float* x; int steps; }"""
    return struct.pack("<QQi", 1 << 32, 2 << 32, steps)


def test_an_instruction_has_its_guard_opcode_and_operands(small):
    copy = next(each for each in small.code if each.name == "LDGSTS")
    assert (copy.address, copy.guard, copy.opcode) == (0x1E0, "", "LDGSTS.E")
    assert copy.operands == ("[R9]", "desc[UR10][R2.64]")
    dummy = small.code[0x1B0 // 16]
    assert (dummy.guard, dummy.opcode, dummy.operands) == ("!PT", "LDS", ("RZ", "[RZ]"))
    assert [each.address for each in small.code] == [16 * i for i in range(len(small.code))]


def test_a_branch_names_the_label_that_it_leads_to(small):
    back = small.code[0x610 // 16]
    assert (back.guard, back.opcode, back.target) == ("!P1", "BRA", ".L_x_8")
    assert small.code[small.labels[".L_x_8"]].address == 0x300


def test_loops_are_those_of_the_branches_back(small):
    addresses = [(small.code[a].address, small.code[b - 1].address) for a, b in loops(small)]
    assert addresses == [(0x110, 0x1F0), (0x420, 0x4E0), (0x560, 0x5F0), (0x300, 0x610), (0x680, 0x680)]


def test_the_main_loop_copies_waits_and_multiplies(small):
    assert product_of(small) == "FFMA"
    assert main_loop(small) == Loop(0x300 // 16, 0x620 // 16)


def test_a_kernel_without_such_a_loop_has_no_main_loop(small):
    with pytest.raises(ValueError, match="no loop"):
        main_loop(Kernel("none", small.code[: 0x300 // 16], small.labels))


def test_a_trace_runs_inner_loops_as_often_as_a_gpu_does(small):
    trace = traced(small, small_args(), (4, 1, 1))
    names = Counter(step.instruction.name for step in trace.loop)
    # 9 and 9 before the copies, 13 in each of 4, 7 up to the products, 10 in each of 8, 2 behind them
    assert len(trace.loop) == 9 + 9 + 4 * 13 + 7 + 8 * 10 + 2
    assert (names["LDGSTS"], names["FFMA"], names["BAR"]) == (4, 32, 2)
    assert sum(step.off for step in trace.loop) == 4 * 3 + 1 + 1 + 1  # dummy loads; branches not taken, or out of loops


def test_a_trace_has_what_comes_before_and_after_the_loop(small):
    trace = traced(small, small_args(), (4, 1, 1))
    assert sum(step.instruction.name == "LDGSTS" for step in trace.before) == 4
    assert [step.instruction.name for step in trace.after] == ["S2R", "LDC", "IMAD", "IMAD", "STG", "EXIT"]


def test_the_last_stage_copies_nothing(small):
    names = Counter(step.instruction.name for step in traced(small, small_args(steps=1), (4, 1, 1)).loop)
    assert (names["LDGSTS"], names["FFMA"]) == (0, 32)


def test_a_kernel_that_ends_early_is_not_followed(small):
    with pytest.raises(ValueError, match="small"):
        traced(small, small_args(steps=0), (4, 1, 1))


def test_an_inner_loop_of_unknown_length_is_an_error(small):
    code = [*small.code]
    code[0x480 // 16] = instruction("ISETP.GE.AND", "P2", "PT", "R8", "R200", "PT")
    with pytest.raises(ValueError, match="how often its loop"):
        traced(Kernel("small", code, small.labels, threads=64, parameters=0x210), small_args(), (4, 1, 1))


@pytest.mark.parametrize(
    ("opcode", "operands", "written"),
    [
        ("IADD3", "R4 P0 R2 R3 RZ", ["R4", "P0"]),
        ("LOP3.LUT", "P1 R4 R2 0x3 RZ 0xc0 !PT", ["P1", "R4"]),
        ("ISETP.LT.AND", "P2 PT R4 R5 P1", ["P2"]),
        ("SEL", "R4 R2 R3 P0", ["R4"]),
        ("SHFL.BFLY", "PT R5 R4 0x1 0x1f", ["R5"]),
        ("LDS.128", "R8 [R2+0x10]", ["R8", "R9", "R10", "R11"]),
        ("IMAD.WIDE.U32", "R2 R4 0x4 R6", ["R2", "R3"]),
        ("UISETP.NE.U32.AND", "UP0 UPT UR4 URZ UPT", ["UP0"]),
    ],
)
def test_results_are_known_from_the_operands(opcode, operands, written):
    assert written_by(instruction(opcode, *operands.split())) == written


PACKED = [  # a load is unknown, but bits 2 and 3 of the register that it fills are set to what is known
    ("LDG.E", "R3 [R2.64]"), ("LOP3.LUT", "R3 R3 0xfffffff3 RZ 0xc0 !PT"), ("LOP3.LUT", "R3 R3 0x8 RZ 0xfc !PT"),
    ("ISETP.EQ.AND", "P5 PT RZ RZ PT"), ("P2R", "R4 PR R3 0x20"), ("IMAD.MOV.U32", "R6 RZ RZ R4"),
    ("LOP3.LUT", "P0 RZ R6 0x4 RZ 0xc0 !PT"), ("LOP3.LUT", "P1 RZ R6 0x8 RZ 0xc0 !PT"), ("R2P", "PR R6 0x3c"),
    ("LOP3.LUT", "P6 RZ R6 0x10 RZ 0xc0 !PT"), ("EXIT", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("predicate", "off"), [("P0", True), ("P1", False), ("P2", True), ("P3", False), ("P5", False), ("P6", False)]
)
def test_predicates_are_known_that_the_compiler_keeps_in_bits_of_a_register(predicate, off):
    """P6 is unknown, so what it guards is taken to be executed; so is what its opposite guards."""
    code = [instruction(opcode, *operands.split()) for opcode, operands in PACKED]
    for guard, is_off in ((predicate, off), (f"!{predicate}", False if predicate == "P6" else not off)):
        guarded = replace(instruction("MOV", "R9", "RZ"), guard=guard)
        kernel = Kernel("packed", [*code[:-1], guarded, code[-1]], {}, threads=32)
        *_, step, _ = followed(kernel, b"", (1, 1, 1), 100)
        assert (step.instruction.guard, step.off) == (guard, is_off)


def test_an_argument_is_known_whose_offset_is_in_a_register():
    """The second of two numbers at 0x210, which says that what follows is not executed."""
    code = [("MOV", "R2 0x4"), ("LDC", "R4 c[0x0][R2+0x210]"), ("ISETP.NE.AND", "P0 PT R4 0x7 PT"), ("EXIT", "")]
    first, second, compare, end = (instruction(opcode, *operands.split()) for opcode, operands in code)
    guarded = replace(instruction("MOV", "R9", "RZ"), guard="P0")
    kernel = Kernel("indexed", [first, second, compare, guarded, end], {}, threads=32, parameters=0x210)
    *_, step, _ = followed(kernel, struct.pack("<2I", 5, 7), (1, 1, 1), 100)
    assert step.instruction.guard == "P0" and step.off


@pytest.mark.parametrize(("bound", "off"), [("PT", True), ("!PT", False)])
def test_the_smaller_or_larger_of_a_sum_and_a_number_is_known(bound, off):
    """-2 or 5: what follows is executed if it is positive."""
    code = [("MOV", "R2 -0x3"), ("MOV", "R3 0x5"), ("VIADDMNMX", f"R4 R2 0x1 R3 {bound}"),
            ("ISETP.GT.AND", "P0 PT R4 RZ PT"), ("EXIT", "")]  # fmt: skip
    *before, end = (instruction(opcode, *operands.split()) for opcode, operands in code)
    guarded = replace(instruction("MOV", "R9", "RZ"), guard="P0")
    *_, step, _ = followed(Kernel("least", [*before, guarded, end], {}, threads=32), b"", (1, 1, 1), 100)
    assert step.instruction.guard == "P0" and step.off == off


# -- the pipeline, against sums made by hand ---------------------------------------------------------------------------


def instruction(
    opcode: str, *operands: str, stall: int = 1, wait: tuple[int, ...] = (), written: int | None = None
) -> Instruction:
    return Instruction(0, "", opcode, operands, Control(stall, False, written, None, wait))


def cycles(*code: Instruction, warps: int = 1, off: bool = False) -> float:
    """Of one iteration, in the steady state."""
    return simulate(issues_of([Step(each, off) for each in code], H200), warps, 32).cycles


def test_stall_counts_of_one_warp_add_up():
    assert cycles(*[instruction("FFMA", stall=4)] * 10) == 40


def test_other_warps_issue_during_a_stall_up_to_one_a_cycle():
    assert cycles(*[instruction("FFMA", stall=4)] * 10, warps=3) == 40
    assert cycles(*[instruction("FFMA", stall=4)] * 10, warps=8) == 80


def test_integers_take_two_cycles_and_multiplications_have_a_pipe_of_their_own():
    assert cycles(*[instruction("VIADD")] * 10) == 20
    assert cycles(*[instruction("IMAD")] * 10) == 20
    assert cycles(*[instruction("VIADD"), instruction("IMAD")] * 5) == 10


def test_an_instruction_whose_guard_is_false_takes_its_issue_slot_alone():
    assert cycles(*[instruction("VIADD")] * 10, off=True) == 10


def test_products_come_at_the_rate_of_the_tensor_cores():
    tf32, bf16 = instruction("HMMA.1688.F32.TF32"), instruction("HMMA.16816.F32.BF16")
    assert cycles(*[tf32] * 10, warps=2) == pytest.approx(2 * 10 * 2048 / (512 * 0.625), rel=0.02)
    assert cycles(*[bf16] * 10, warps=2) == pytest.approx(2 * 10 * 4096 / (1024 * 0.625), rel=0.02)


def test_four_other_instructions_fit_beside_each_product():
    loop = [instruction("HMMA.1688.F32.TF32"), *[instruction("VIADD", stall=1)] * 3]
    assert cycles(*loop * 8, warps=2) == pytest.approx(2 * 8 * 6.4, rel=0.05)
    assert cycles(*[*loop, *loop[1:]] * 8, warps=2) == pytest.approx(2 * 8 * 12, rel=0.05)


def test_shared_memory_has_a_port_for_four_schedulers():
    assert [wavefronts(each) for each in ("LDS", "LDS.64", "LDS.128", "LDSM.16.M88.4", "LDGSTS.E.BYPASS.128")] == [
        1, 2, 4, 4, 4,
    ]  # fmt: skip
    assert cycles(*[instruction("LDS.128")] * 8) == pytest.approx(8 * 4 * 4, rel=0.02)


def test_a_warp_waits_for_the_scoreboard_of_its_load():
    load, use = instruction("LDS", written=0), instruction("FFMA", wait=(0,))
    # the load at 0, its wavefront until 4, the value at 29; the product then, and the next load a cycle later
    assert cycles(load, use) == 30
    assert cycles(load, use, warps=7) == pytest.approx(30, abs=1)


def test_behind_the_main_loop_a_wait_is_for_all_groups_of_copies_but_the_newest():
    copy = [instruction("LDGSTS.E.BYPASS.128", "[R4]", "desc[UR4][R2.64]"), instruction("LDGDEPBAR")]

    def cycles_until(newest: str) -> float:
        code = [
            *copy,
            *[instruction("FADD", "R8", "R8", "R8", stall=4)] * 50,
            *copy,
            instruction("DEPBAR.LE", "SB0", newest),
        ]
        steps = [Step(each, False) for each in code]
        return duration([waiting_for_copies(steps, issues_of(steps, H200))])

    assert cycles_until("0x2") == pytest.approx(200, abs=20)
    assert cycles_until("0x1") == pytest.approx(GLOBAL_LATENCY, abs=20)
    assert cycles_until("0x0") == pytest.approx(GLOBAL_LATENCY + 200, abs=20)


# -- occupancy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (128, 188, 101376, 2),  # 192 registers a thread: 2 warps a scheduler
        (128, 78, 64512, 3),  # shared memory: four would take 252 KiB of 228
        (256, 128, 68608, 2),
        (64, 128, 34816, 6),
        (1024, 32, 0, 2),
        (32, 16, 0, 32),
    ],
)
def test_blocks_share_registers_shared_memory_and_threads(threads, registers, shared, blocks):
    assert blocks_at_once(H200, threads, registers, shared) == blocks


# -- launches and nets -------------------------------------------------------------------------------------------------

WINDOW = Window(size=28, kernel=3, stride=1, pad=1)
STRIDED = Window(size=28, kernel=4, stride=2, pad=1)


def test_stages_of_a_block_are_those_of_the_launch():
    engine = ENGINES["tf32"]
    problem, strided = (ConvProblem(32, 128, 256, axis, axis) for axis in (WINDOW, STRIDED))
    assert stages_of(conv_fprop(engine, problem, 0, 0, 0), 32) == 9 * 128 // 32
    assert stages_of(conv_dgrad(engine, problem, 0, 0, 0), 32) == 9 * 256 // 32
    assert stages_of(conv_dgrad(engine, strided, 0, 0, 0), 32) == 4 * 256 // 32  # of 16 taps each phase meets 4
    assert stages_of(conv_fprop_pool(engine, pooled(problem), 0, 0, 0, 0), 32) == 9 * 128 // 32
    split = split_of(problem)
    wgrad = next(iter(conv_wgrad(engine, problem, 0, 0, 0, False, 0)))
    assert stages_of(wgrad, 32) == -(-split.images_each * 28 * 28 // 32)


def test_blocks_of_merged_dgrads_compute_both_or_clear_pixels():
    axis = Window(size=56, kernel=1, stride=2)
    parts = (DgradPart(ConvProblem(32, 256, k, axis, axis), 0, 0) for k in (128, 512))
    launch = conv_dgrad_merged(ENGINES["tf32"], 0, *parts)
    both, cleared = blocks_of(launch, 32)
    assert (both.stages, both.products, cleared.stages, cleared.products) == ((128 + 512) // 32, 2, 0, 0)
    assert cleared.count == 3 * both.count and both.count + cleared.count == launch.grid[0] * launch.grid[2]


def relu(count: int = 1 << 20) -> Launch:
    return launch("fill", "fill", "FillArgs", count // 256, y=1 << 32, count=count, value=0.0, accumulate=False)


@compiles
def test_a_kernel_that_memory_bounds_takes_the_bytes_of_each_launch_and_a_launch():
    gbytes = 3_900_000_000  # a millisecond of DRAM; a fill reads nothing
    time = launches_time("relu", "forward", 0, [relu()], [gbytes], "tf32", Model(H200))
    assert time.seconds == pytest.approx(1e-3 + LAUNCH)
    assert (time.limit, time.kernel, time.kind, time.launches) == ("DRAM", "fill", "forward", 1)
    twice = launches_time("relu", "forward", 0, [relu(), relu(256)], [gbytes, gbytes // 2], "tf32", Model(H200))
    assert twice.seconds == pytest.approx(1.5e-3 + 2 * LAUNCH)


LOADS = [  # two loads of 16 bytes in flight; the third begins when the first has been used
    ("LDG.E.128", "R4 desc[UR4][R2.64]"), ("LDG.E.128", "R8 desc[UR4][R2.64+0x10]"), ("FADD", "R20 R20 R4"),
    ("LDG.E.64", "R12 desc[UR4][R2.64+0x20]"), ("FADD", "R20 R20 R8"), ("EXIT", ""),
]  # fmt: skip
COPIES = [("LDGSTS.E.BYPASS.128", "[R4] desc[UR4][R2.64]")] * 3 + [("DEPBAR.LE", "SB0 0x0"), ("LDG.E", "R6 [R2.64]")]


@pytest.mark.parametrize(("code", "nbytes"), [(LOADS, 32), ([*COPIES, ("EXIT", "")], 48), ([("EXIT", "")], 0)])
def test_bytes_in_flight_are_those_of_loads_that_nothing_has_used(code, nbytes):
    kernel = Kernel("loads", [instruction(opcode, *operands.split()) for opcode, operands in code], {}, threads=256)
    assert bytes_in_flight(kernel, b"", (1, 1, 1)) == nbytes


@compiles
def test_the_share_of_the_rate_of_dram_is_that_of_the_threads_that_a_gpu_holds():
    norm = launch("fill", "fill", "FillArgs", 1056, y=1 << 32, count=1 << 20, value=0.0, accumulate=True)
    of_thread, half = thread_bytes(norm, H200), 3.9e12 * GLOBAL_LATENCY / H200.clock / 2
    assert of_thread == 16
    in_flight = 16 * 256 * 132 * 8  # 2048 threads a multiprocessor
    assert launch_bytes(norm, H200) == in_flight
    assert share_of(norm, H200) == pytest.approx(in_flight / (in_flight + half))
    assert launch_bytes(replace(norm, grid=(2, 1, 1)), H200) == 2 * 256 * 16


def op_time(kind: str, seconds: float, launches: int = 1) -> OpTime:
    return OpTime(kind, kind, seconds, "", "", 0, launches)


def test_totals_are_of_the_three_products_and_the_rest():
    totals = by_kind([op_time("fprop", 1.0), op_time("update", 2.0)])
    assert totals["fprop"] == 1.0 and totals["dgrad"] == 0.0 and 2.0 < totals["rest"] < 2.01


def test_a_gpu_waits_for_the_first_launch_alone_where_others_run_ahead():
    host = MODELS["cuda"].launch
    assert host_gap([op_time("fprop", 1.0), op_time("update", 2.0, 100)], captured=False) == pytest.approx(2 * host)
    assert host_gap([op_time("fprop", 1.0)], captured=True) == pytest.approx(2 * host)


def test_a_gpu_that_is_faster_than_its_launches_waits_for_all_of_them():
    host = MODELS["cuda"].launch
    times = [op_time("update", host / 4)] * 100
    assert host_gap(times, captured=False) == pytest.approx(101 * host - 99 * host / 4, rel=1e-2)
    assert host_gap(times, captured=True) == pytest.approx(2 * host)


def test_a_step_waits_for_what_its_images_in_bytes_take_longer_than_the_step_before():
    """227 x 227 x 3 bytes an image, and the labels; nothing of the images where the ops before take long enough."""
    step, model = step_of("alexnet", 4, "tf32"), Model(H200)
    (feed,) = (each for each in step.schedule.instructions if each.op is not None and isinstance(each.op.record, Feed))
    bare = [0.0] * len(step.schedule.instructions)
    images, labels = 4 * 3 * 227 * 227 / model.link, 4 * 4 / model.link
    assert feed_time(step.schedule, feed, bare, model).seconds == pytest.approx(images + labels, rel=0.01)
    slow = [1.0] * len(bare)
    assert feed_time(step.schedule, feed, slow, model).seconds == pytest.approx(labels, rel=0.01)


def test_bytes_of_parts_are_charged_to_the_launch_that_adds_them():
    """Not the op's again: those of the weight gradient are read and written by conv_wgrad."""
    step = step_of("resnet20", 128, "tf32")
    *_, (_, launches, moved) = (each for each in step.launches() if each[0][0].op.step == "wgrad")
    (added,) = (i for i, each in enumerate(launches) if each.function.startswith("sum_splits"))
    sums = fields(launches[added], "SplitsArgs")
    assert sums["splits"] > 1 and moved[added] == 4 * sums["count"] * (sums["splits"] + 1)


# -- calibration -------------------------------------------------------------------------------------------------------


def results(tmp_path: Path, ceilings: list, layers: list) -> list[Path]:
    """A folder with those of two calls, of which the second has no ceilings."""
    for name, date, found in (("A", "2026-01-01", {"ceilings": ceilings}), ("B", "2026-01-02", {"layers": layers})):
        steps = {step: {"rows": rows} for step, rows in found.items()} | {"preparation": {"date": date}}
        (tmp_path / f"results-{name}.json").write_text(json.dumps(steps), encoding="utf-8")
    return [tmp_path]


CEILINGS = [
    {"part": "copies", "what": "copy on the GPU", "rate": 4200.0, "unit": "GB/s read and written"},
    {"part": "arithmetic", "what": "mma tf32 rate", "rate": 300.0, "unit": "TFLOP/s, registers only"},
    {"part": "arithmetic", "what": "wgmma bf16 rate", "rate": 600.0, "unit": "TFLOP/s, registers only"},
    {"part": "launches", "what": "launch", "rate": 2.5, "unit": "us"},
    {"part": "reads", "what": "reading L2 cache", "rate": 6100.0, "unit": "GB/s"},
    {"part": "reads", "what": "reading memory of the host", "rate": 41.0, "unit": "GB/s"},
    {"part": "copies", "passed": False, "says": "stopped"},
]


def test_measured_ceilings_take_the_place_of_estimates(tmp_path):
    model = calibrated(results(tmp_path, CEILINGS, []), H200)
    assert (model.gpu.dram, model.memory, dict(model.products)) == (4.2e12, 1.0, {})
    assert (model.gpu.l2, model.link) == pytest.approx((6.1e12, 4.1e10))
    assert model.launch == pytest.approx(2.5e-6)
    assert model.gpu.mma == pytest.approx(300 / (512 * 4 * 132 * 1.755e-3))
    assert model.gpu.wgmma == (SHARE, pytest.approx(600 / (1024 * 4 * 132 * 1.755e-3)))


def test_measured_layers_scale_what_memory_bounds(tmp_path):
    plain = calibrated(results(tmp_path, CEILINGS, []), H200)
    key = ("Pooling MAX 3/2", "forward", "fp32")  # whose module test_machine_code.py compiles too
    ((_, time, _),) = case_times(plain, [key])
    modelled = time.seconds
    row = {"layer": key[0], "op": key[1], "precision": key[2], "ms": 1.5e3 * modelled}
    rows = [row, {"layer": "", "op": "", "says": "PyTorch is not here"}]
    model = calibrated(results(tmp_path, CEILINGS, rows), H200)
    assert model == plain._replace(memory=pytest.approx(1.5), products={})


# -- the real main loops -----------------------------------------------------------------------------------------------


def test_the_report_is_that_of_the_sources():
    stale = [module for module, digest in read_digests(SAVED).items() if digest != digest_of(module)]
    assert not stale, f"{stale}: run python tools/sass_model.py --tsv docs/benchmarks/sass.tsv, and --documents"


def test_the_report_has_every_kernel_of_a_convolution():
    """By the table of ptxas; those of sm_90a under a precision of their own.  Weight gradients of blobs that are
    widened copy through registers, which the model does not follow."""
    modules = {name: engine.module for name, engine in MODELLED.items()}
    modules |= {GROUPS: MODULE}
    modules |= {f"{name}, warpgroups": module_of(name) for name in (*PRECISIONS, PACKED_PRECISION)}
    found = {(modules[precision], kernel) for precision, kernel in read_rows(SAVED)}
    widened = {engine.module for engine in MODELLED.values() if engine.storage and not engine.is_packed}
    known = {(row.module, row.name) for row in read_report()[1] if row.name.startswith(("conv_", MODULE))}
    left_out = {(module, name) for module, name in known if module in widened and name.startswith("conv_wgrad_")}
    assert {(module, name) for module, name in left_out if "_data_" in name} <= found <= known
    assert known - found == {(module, name) for module, name in left_out if "_data_" not in name}
    assert read_digests(SAVED).keys() == set(modules.values())


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_tables_of_main_loops_are_those_of_the_report(path):
    text, rows = path.read_text(encoding="utf-8"), read_rows(SAVED)
    assert with_tables(text, rows) == text, "run python tools/sass_model.py --documents"
    slower = {key: {**row, "tflops": "1.0"} for key, row in rows.items()}
    assert with_tables(text, slower).count(" | 1 |") > text.count(" | 1 |")  # so tables were found


@pytest.mark.parametrize("precision", [*ENGINES, PACKED_PRECISION])
def test_a_whole_main_loop_issues_no_more_than_the_report_states(precision):
    """Every kernel, as tools/machine_code.py found it in code of the present source, which
    tests/backends/cuda/test_machine_code.py checks."""
    saved, known = read_rows(SAVED), read_record().modules[MODELLED[precision].module]
    kernels = [name for name in known if NAME.match(name)]
    assert len(kernels) > 30 and any("v41" in name for name in kernels)
    for name in kernels:
        assert 1 < known[name].a_product <= float(saved[precision, name]["per_product"]) + 0.006, name


LEAST = {"fprop": 210, "dgrad": 190, "wgrad": 190}  # TFLOP/s of the pipeline


def test_kernels_of_groups_multiply_as_often_as_their_strips_need():
    """In groups of eight channels: a thread has 4 x 8 products for each tap, of each output of a strip or each cell; a
    lane of a weight gradient those of 4 outputs and 2 inputs in a whole image, 28 rows of 4 or of 7 strips."""
    products = {name: float(row["products"]) for (kind, name), row in read_rows(SAVED).items() if kind == GROUPS}
    of_images = {"s1": 28 * 4 * 7, "s2": 28 * 7 * 4}
    wanted = {"fprop_s1": 7, "fprop_s2": 7, "dgrad_s1": 7, "dgrad_s2": 4}
    for suffix in ("", "_bf16", "_fp16"):
        for name, positions in wanted.items():
            assert products[f"{MODULE}_{name}{suffix}"] == 4 * 8 * 9 * positions
        for stride, positions in of_images.items():
            assert products[f"{MODULE}_wgrad_{stride}{suffix}"] == 4 * 2 * 9 * positions


def test_large_tiles_of_tf32_have_the_rates_that_the_engine_was_built_for():
    rates = {name: float(row["tflops"]) for (precision, name), row in read_rows(SAVED).items() if precision == "tf32"}
    large = 0
    for name, rate in rates.items():
        operation, tile, vector = parts_of(name)
        if tile.m >= 128 and tile.n >= 128 and vector == 4:
            assert rate >= LEAST[operation], name
            large += 1
    assert large >= 8


@nvcc_is_here
@pytest.mark.samples(2)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_warpgroups_take_what_products_and_loads_take(precision):
    """No stage is faster than its products at the rate assumed of tensor cores."""
    gpu, (tile, _) = H200, WARPGROUP_TILES
    rows = {row.kernel: row for row in rows_of(precision, Model(H200))}
    assert len(rows) == 10
    flop = 2 * tile.m * tile.n * DEPTH
    least = flop / (4 * gpu.tensor * SHARE * (1 if precision == "tf32" else 2))
    assert all(row.cycles >= least for name, row in rows.items() if tile.name in name)
    fprop = rows[f"conv_fprop_{tile.name}_v4"]
    assert fprop.bound == pytest.approx(flop / ((tile.m + tile.n) * 128) * gpu.l2 / 1e12)
    assert fprop.tflops > fprop.bound  # so that L2 is what binds
    assert fprop.loads <= 290 and fprop.products <= 125


@nvcc_is_here
def test_packed_operands_of_warpgroups_are_bound_by_l2():
    rows = {row.kernel: row for row in rows_of(PACKED_PRECISION, Model(H200))}
    tiles = {f"{product}_{tile.name}_v8": tile for tile in PACKED_TILES for product in tile.products}
    assert rows.keys() == tiles.keys() and len(rows) == 4
    for name, row in rows.items():
        tile = tiles[name]
        assert row.bound == pytest.approx(2 * tile.m * tile.n * 64 / ((tile.m + tile.n) * 128) * H200.l2 / 1e12)
        assert row.tflops > (1.25 if tile.products == (WGRAD,) else 1) * row.bound
        assert row.loads <= 285 and row.products <= 175


@nvcc_is_here
def test_a_bulk_copy_takes_the_port_of_shared_memory_for_all_that_it_writes():
    kernel = kernels_of(module_of(PACKED_PRECISION), "90")["conv_fprop_192x256_v8"]
    code = loop_with(kernel, "LDGSTS")
    apart = issues_of([Step(each, False) for each in code], H200)
    together = issues_of_loads(kernel, H200)
    assert sum(each.cycles for each in together) - sum(each.cycles for each in apart) == pytest.approx(256 * 128 / PORT)


@nvcc_is_here
def test_a_weight_gradient_by_warpgroups_is_all_of_its_parts():
    problem = ConvProblem(64, 256, 512, Window(28, 3, 1, 1), Window(28, 3, 1, 1))
    call = CudaCall({}, precision="bf16", capability=CAPABILITY, storage="bf16", narrow=("x0",))
    launch, _ = conv_wgrad(engine_of(call, "x0", problem), problem, 0, 0, 0, False, 0)
    parts = split_of(problem).parts
    assert launch.function == "conv_wgrad_256x192_v8" and launch.grid == (2 * 12 * parts, 1, 1) and parts > 1
    work = tiles_of(launch)
    assert work == (2 * 12 * parts, -(-split_of(problem).windows_each(problem) // 64), 1)
    rows = {row.kernel: row for row in rows_of(PACKED_PRECISION, Model(H200))}
    loop = work.stages * rows["conv_wgrad_256x192_v8"].cycles / H200.clock
    assert loop < launch_seconds(launch, work, H200) < 1.2 * loop


@nvcc_is_here
def test_a_launch_by_warpgroups_takes_what_the_tiles_of_a_block_take():
    window = Window(size=56, kernel=3, stride=1, pad=1)

    def seconds(images: int) -> tuple[TilesOf, float]:
        problem = ConvProblem(images, 256, 256, window, window)
        call = CudaCall({}, precision="tf32", capability=CAPABILITY)
        launch = conv_fprop(engine_of(call, "x0", problem), problem, 0, 0, 0)
        assert launch.function == "conv_fprop_256x128_v4" and launch.module.endswith("_sm90a")
        work = tiles_of(launch)
        return work, launch_seconds(launch, work, H200)

    (few, once), (many, twice) = seconds(66), seconds(132)
    assert few == (2 * -(-66 * 56 * 56 // 256), 9 * 256 // 32, 1) and many.tiles == 2 * few.tiles - 2
    row = {row.kernel: row for row in rows_of("tf32", Model(H200))}["conv_fprop_256x128_v4"]
    stages = -(-few.tiles // 132) * few.stages * row.cycles / H200.clock
    assert stages < once < 1.2 * stages
    assert once < twice < 2 * once


@nvcc_is_here
def test_measured_layers_scale_the_products_of_their_precision(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "whole_source", first_tile)  # the layer takes its kernels
    row = {"layer": "VGG conv5_2", "op": "dgrad", "precision": "tf32", "ms": 1.0}
    by_warpgroups = {**row, "op": "forward", "ms": 0.5}
    model = calibrated(results(tmp_path, [], [row, by_warpgroups]), H200)
    assert {*model.products} == {("tf32", "dgrad"), ("tf32, warpgroups", "fprop")} and model.memory == 1.0
    assert 1 < model.products["tf32", "dgrad"] < 5 and 1 < model.products["tf32, warpgroups", "fprop"] < 3


@nvcc_is_here
def test_measured_tiles_scale_the_products_of_their_engine(tmp_path, monkeypatch):
    """By the fastest tile: half again as long as modelled, and twice by warpgroups; a slower one does not count."""
    monkeypatch.setattr(build, "whole_source", first_tile)
    window = Window(size=28, kernel=3, stride=1, pad=1)
    problem = ConvProblem(32, 256, 256, window, window)
    like = {"precision": "tf32", "shape": "x", "op": "fprop", "parts": 1, "split": [], **tiles.describe(problem)}
    modelled = {}
    for engine in (ENGINES["tf32"], *tiles.by_warpgroups("tf32", problem, "90")):
        for each in tiles.candidates(engine, problem, dict.fromkeys(("maps", "image", "filter"), 0), "fprop"):
            if each.tile in ("256x128", "warpgroups 256x128"):
                line = {**like, "function": each.function, "tile": each.tile}
                modelled[each.tile] = {**line, "ms": 1e3 * tile_time(Model(H200), line).seconds}
    plain, own = modelled["256x128"], modelled["warpgroups 256x128"]
    slower = {**plain, "function": "convolution_tf32.conv_fprop_64x64_v4", "tile": "64x64", "ms": 1e9}
    lines = [slower, {**plain, "ms": 1.5 * plain["ms"]}, {**own, "ms": 2 * own["ms"]}]
    (tmp_path / "tile_times.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = calibrated([tmp_path / "tile_times.jsonl"], H200)
    assert model.products == pytest.approx({("tf32", "fprop"): 1.5, ("tf32, warpgroups", "fprop"): 2.0})


def test_a_table_that_is_written_is_read(tmp_path):
    text = SAVED.read_text(encoding="utf-8")
    saved = read_rows(SAVED)
    assert all(set(row) == set(COLUMNS) for row in saved.values())
    assert text.startswith("# modelled for sm_90")
    empty = tmp_path / "empty.tsv"
    empty.write_text(written([], H200), encoding="utf-8")
    assert read_rows(empty) == {}
