"""The expected memory of the process compared with its resident set."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
from google.protobuf import text_format

import layermem
from layermem.backends import base
from layermem.backends.base import get_device
from layermem.cli.main import main
from layermem.data.datum_source import pages_bytes
from layermem.data.images import decoding_bytes
from layermem.data.opening import held_bytes
from layermem.interactive.solver import Solver
from layermem.proto.schema import AnnotatedDatum, Datum, LayerParameter, SolverParameter
from layermem.solver import process_memory
from layermem.solver.process_memory import (
    CANDIDATE_OP_BYTES,
    COMPILER_BYTES,
    HDF5_BYTES,
    INSTRUCTION_BYTES,
    RUNTIME_BYTES,
    ProcessMemory,
    compiles_imports,
    expected_memory,
    uses_files,
    uses_hdf5,
)
from layermem.utils.free_memory import FreeMemory
from tests.data.makers import datum, images, make_lmdb
from tests.data.test_images import encoded
from tests.nets import solver_file

MIB = 2**20


def test_all_parts_count_and_nonzero_ones_are_named():
    assert ProcessMemory(10 * MIB, 0, 3 * MIB, 5 * MIB, 7 * MIB).total_bytes == 25 * MIB
    assert str(ProcessMemory(10 * MIB, 0, 3 * MIB, 5 * MIB, 7 * MIB)) == (
        "arena 10.0 MiB, batches 3.00 MiB, largest parameter 5.00 MiB, runtime 7.00 MiB"
    )
    assert str(ProcessMemory(0, MIB, 6 * MIB, 0, 7 * MIB)) == "host memory 1.00 MiB, batches 6.00 MiB, runtime 7.00 MiB"


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("snapshot_after_train: false", False),
        ("", True),
        ("snapshot_after_train: false snapshot: 5", True),
        ('snapshot_after_train: false weights: "w.caffemodel"', True),
    ],
)
def test_a_run_that_saves_or_loads_parameters_holds_the_largest_once_more(text, files):
    param = text_format.Parse(text, SolverParameter())
    assert uses_files(param) == files and uses_files(param, loads=True)


@pytest.mark.parametrize(
    ("text", "hdf5"),
    [
        ("snapshot_format: HDF5", True),
        ("snapshot_format: HDF5 snapshot_after_train: false", False),
        ("", False),
        ('weights: "a.caffemodel,b.caffemodel.h5"', True),
    ],
)
def test_a_run_whose_files_are_hdf5_loads_h5py(text, hdf5, tmp_path):
    assert uses_hdf5(text_format.Parse(text, SolverParameter())) == hdf5
    with Solver(solver_file("chain", tmp_path), device="cpu") as solver:
        parts = solver.nets.all, solver.program, solver.device
        more = expected_memory(*parts, hdf5=hdf5).runtime_bytes - expected_memory(*parts).runtime_bytes
    assert more == HDF5_BYTES * hdf5


def test_batches_that_wait_are_counted_with_the_one_that_is_read_and_the_one_in_use():
    noise = LayerParameter(type="DummyData", top=["x"])
    noise.dummy_data_param.data_filler.add(type="gaussian")
    assert held_bytes(noise, ((2, 3),)) == 24 * (4 + 2)
    assert held_bytes(noise, ((4, 1024, 1024),)) == 16 * MIB * (4 + 2)
    assert held_bytes(noise, ((32, 1024, 1024),)) == 128 * MIB * (1 + 2)
    assert held_bytes(LayerParameter(type="DummyData"), ((2, 3),)) == 24  # constant
    assert held_bytes(LayerParameter(type="Input"), ((2, 3), (2,))) == 32


def test_a_database_holds_pages_and_the_record_that_is_decoded(tmp_path):
    pixels = images(1, height=300, width=400)[0]
    raw = encoded(pixels.transpose(1, 2, 0), "JPEG")
    stored = Datum(encoded=True, data=raw, label=1)
    for name, record in (("encoded", stored), ("raw", datum(pixels, 1)), ("floats", datum(pixels / 2, 1))):
        folder = make_lmdb(tmp_path / name, [record])
        param = LayerParameter(type="Data", top=["x", "y"])
        param.data_param.source, param.data_param.batch_size = str(folder), 2
        batches = 4 * (2 * 3 * 4 * 4 + 2) * (4 + 2)
        decoding = decoding_bytes(raw) if name == "encoded" else 0
        grown = 8 * 2**19 if name == "floats" else 0  # 360,000 floats, in an array of 2^19 after one of 2^18 and so on
        read = pages_bytes(folder) + 4 * record.ByteSize() + decoding + grown
        assert held_bytes(param, ((2, 3, 4, 4), (2,))) == read + batches


def test_noise_and_arrays_take_one_batch_in_place_of_data(tmp_path):
    batch = 4 * (64 * 64 + 64)
    net = layermem.Net("prototxt/digits/train_val.prototxt")
    definition = layermem.plan(net).job.nets[0]
    assert process_memory._batch_bytes(definition) >= 6 * batch
    arrays = {"data": np.zeros((9, 1, 8, 8), np.float32), "label": np.zeros(9, np.float32)}
    for options in (replace(definition.options, noise=True), replace(definition.options, arrays=arrays)):
        definition.options = options
        assert process_memory._batch_bytes(definition) == batch


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the numbers of the runtime are those of Linux")
@pytest.mark.samples(2)
@pytest.mark.parametrize("kind", ["Data", "AnnotatedData"])
def test_a_run_on_large_photos_takes_what_was_expected(tmp_path, kind):
    """Photos of which one, decoded, is larger than a batch, and batches larger than the reading of them."""
    y, x = np.mgrid[:1600, :1600].astype(np.uint8)
    stored = Datum(encoded=True, data=encoded(np.stack([x, y, x], -1), "JPEG"), label=1)
    records = [stored if kind == "Data" else AnnotatedDatum(type=0, datum=stored)] * 8
    resize = "resize_param { prob: 1 resize_mode: WARP height: 256 width: 256 }"
    transform = "crop_size: 256" if kind == "Data" else resize
    make_lmdb(tmp_path / "db", records)
    (tmp_path / "net.prototxt").write_text(
        f'layer {{ name: "d" type: "{kind}" top: "data" transform_param {{ {transform} }}\n'
        f'  data_param {{ source: "{tmp_path / "db"}" backend: LMDB batch_size: 8 }} }}\n'
        'layer { name: "p" type: "Pooling" bottom: "data" top: "p" pooling_param { global_pooling: true } }\n'
        'layer { name: "ip" type: "InnerProduct" bottom: "p" top: "ip" inner_product_param { num_output: 2 } }\n'
        'layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }\n'
    )
    solver = tmp_path / "solver.prototxt"
    solver.write_text('net: "net.prototxt" base_lr: 1e-6 lr_policy: "fixed" max_iter: 4 snapshot_after_train: false\n')
    _check_run("--solver", str(solver))


def test_the_parts_are_those_of_the_program(tmp_path):
    with Solver(solver_file("chain", tmp_path), device="cpu", strategy="inter", spill=tmp_path) as solver:
        expected = expected_memory(solver.nets.all, solver.program, solver.device)
        spilled = expected_memory(solver.nets.all, solver.program, solver.device, spill=True)
        without_files = expected_memory(solver.nets.all, solver.program, solver.device, files=False)
        on_gpu = expected_memory(solver.nets.all, solver.program, get_device("cuda"))
    assert expected.arena_bytes == solver.program.arena_bytes and expected.host_bytes == solver.program.host_bytes > 0
    assert spilled.host_bytes == 0 and on_gpu.arena_bytes == 0
    instructions = sum(len(schedule.instructions) for schedule in solver.program.schedules)
    assert expected.runtime_bytes == (
        RUNTIME_BYTES + INSTRUCTION_BYTES * instructions + COMPILER_BYTES * compiles_imports()
    )
    largest = max(solver.runner.persistent.values(), key=lambda b: b.nbytes)
    assert expected.blob_bytes == largest.nbytes and without_files.blob_bytes == 0


def test_steps_in_slices_that_were_looked_at_and_not_taken_count_by_their_ops(tmp_path):
    file = solver_file("chain", tmp_path)
    with Solver(file, device="cpu", slices="whole/2") as named, Solver(file, device="cpu") as whole:
        assert named.job.candidate_ops == whole.job.candidate_ops == 0
        named.job.with_slices("whole/4")
        other = named.job.with_slices("whole/4").graphs[0]
        assert named.job.candidate_ops == len(other.ops)
        without = expected_memory(named.nets.all, named.program, named.device)
        beside = expected_memory(named.nets.all, named.program, named.device, candidate_ops=named.job.candidate_ops)
    assert beside.runtime_bytes == without.runtime_bytes + CANDIDATE_OP_BYTES * len(other.ops)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the system's figure is taken as it is")
def test_memory_of_the_parent_does_not_count():
    ballast = bytearray(300 * MIB)
    ballast[::4096] = b"1" * len(ballast[::4096])
    program = "from layermem.solver.process_memory import max_resident_bytes; print(max_resident_bytes())"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0 < int(ended.stdout) < 200 * MIB < len(ballast)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the numbers of the runtime are those of Linux")
@pytest.mark.samples(4)
@pytest.mark.parametrize(
    ("net", "budget"), [("resnet20/solver_dummy", "100%"), ("resnet20/solver_dummy", "30%"), ("digits/solver", "60%")]
)
def test_a_run_takes_what_was_expected(tmp_path, net, budget):
    """In a separate process the resident set is within a tenth of the expected one."""
    words = ("--solver", f"prototxt/{net}.prototxt", "--batch", "128", "--iterations", "2", "--budget", budget)
    _check_run(*words)


@pytest.mark.whole
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the numbers of the runtime are those of Linux")
def test_a_run_without_bytecode_in_files_takes_what_was_expected(tmp_path):
    words = "--solver", "prototxt/digits/solver.prototxt", "--iterations", "2"
    _check_run(*words, PYTHONPYCACHEPREFIX=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the numbers of the runtime are those of Linux")
def test_a_run_that_reads_hdf5_files_takes_what_was_expected(tmp_path):
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["data"], file["label"] = np.zeros((8, 3), np.float32), np.zeros((8, 2), np.float32)
    (tmp_path / "files.txt").write_text("rows.h5\n")
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "rows" type: "HDF5Data" top: "data" top: "label"\n'
        '  hdf5_data_param { source: "files.txt" batch_size: 4 } }\n'
        'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }\n'
        'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" }\n'
    )
    solver = tmp_path / "solver.prototxt"
    solver.write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 2 snapshot_after_train: false\n')
    _check_run("--solver", str(solver))


@pytest.mark.parametrize("data", ["arrays.npz", "noise"])
def test_a_plan_expects_what_the_run_on_the_same_data_expects(tmp_path, monkeypatch, data, capsys):
    solver = Path("prototxt/digits/solver.prototxt").resolve()
    monkeypatch.chdir(tmp_path)
    np.savez("arrays.npz", data=np.zeros((5000, 1, 8, 8), np.float32), label=np.zeros(5000, np.uint8))
    words = "--solver", str(solver), "--data", data
    lines = []
    for verb in (("plan",), ("train", "--iterations", "1")):
        assert main([*verb, *words]) == 0
        text = " ".join(capsys.readouterr().out.split())
        lines.append(re.search(r"expected ([^(]*runtime [\d.]+ MiB)", text)[1])
    assert lines[0] == lines[1] and ("arrays 1.23 MiB" in lines[0]) == (data != "noise")


@cache
def _write_bytecode() -> None:
    """Write bytecode with a run, which takes more memory than later runs."""
    _train("--solver", "prototxt/digits/solver.prototxt", "--iterations", "1")


def _train(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "layermem", "train", *words]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **variables}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)


def _check_run(*words: str, **variables: str) -> None:
    """Train in a process that finds bytecode, unless `variables` of its environment prevent that."""
    if not variables:
        _write_bytecode()
    ended = _train(*words, **variables)
    [line] = [line for line in ended.stdout.splitlines() if line.startswith("process ")]
    measured, expected = (_bytes(line, word) for word in ("max RSS ", "expected "))
    assert abs(measured - expected) < 0.1 * measured, line


def _bytes(line: str, word: str) -> float:
    number, unit = line.split(word)[1].replace(",", " ").replace(":", " ").split()[:2]
    return float(number) * {"MiB": MIB, "GiB": 2**30}[unit]


def test_the_budget_free_leaves_what_the_process_will_take_beside_its_arena(monkeypatch):
    monkeypatch.setattr(base, "free_memory", lambda: FreeMemory(10**9, "free memory of this machine"))
    monkeypatch.setattr(process_memory, "max_resident_bytes", lambda: 20 * MIB)
    net = layermem.Net("prototxt/digits/train_val.prototxt")
    report = layermem.plan(net, budget="free", device="cpu")
    batches = process_memory._batch_bytes(report.job.nets[0])
    beside = 10**9 - report.budget_bytes
    assert batches > 0 and 59 * MIB - 20 * MIB + batches < beside < 59 * MIB - 20 * MIB + batches + 4 * MIB
    assert layermem.plan(net, budget="50%free", device="cpu").budget_bytes == report.budget_bytes // 2
