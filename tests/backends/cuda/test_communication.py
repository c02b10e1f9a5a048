"""What ranks do together on the cuda device: kernels, staging on the host, and whole steps on the fake driver."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from layermem._native import add_parts
from layermem.backends.cuda import CudaDevice
from layermem.backends.cuda.communication import Staging, ordered_sum, reduce_workspace_bytes
from layermem.distributed.collectives import PIECE_BYTES
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.ops import AllGather, NormOfRows, ReduceScatter, RowSquares, Tensor
from tests.backends.cuda import on_fake_driver
from tests.backends.cuda.harness import Memory, Way, close, run_op
from tests.cases.records import NORMS_OF_ROWS
from tests.emulator import emulate, fake_driver
from tests.emulator.emulate import WAYS
from tests.graph.test_sharing import NORMS

needs_pycuda = pytest.mark.skipif(not fake_driver.pycuda_is_installed(), reason="needs PyCUDA")

# -- kernels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_parts_are_added_on_the_gpu_as_on_the_host(rank, continues, way, rng):
    ranks, count, pitch = 4, 517, 600
    memory = Memory()
    total, own = (memory.stored(rng.standard_normal(count), np.float32) for _ in range(2))
    received = memory.stored(rng.standard_normal((ranks - 1) * pitch), np.float32)
    want, addresses = total.copy(), [received[i * pitch :].ctypes.data for i in range(ranks - 1)]
    add_parts([want.ctypes.data], [own.ctypes.data], [count], addresses, rank, continues)
    op = ReduceScatter(Ranks(rank, ranks, ranks), 0, (Tensor((ranks, count)),), continues)
    launch = ordered_sum(op, total.ctypes.data, own.ctypes.data, received.ctypes.data, count, pitch)
    mode, order, copies = way
    kernels = emulate.load(f"cuda/{launch.module}.cu", mode, order=order, copies=copies)
    arrays = [total, own, received]
    kernels.launch(launch.function, launch.grid, launch.block, launch.args, launch.shared, buffers=arrays)
    memory.check()
    np.testing.assert_array_equal(total, want)


@pytest.mark.parametrize("way", [Way(*way) for way in WAYS], ids=str)
def test_the_squares_of_a_row_depend_on_the_row_alone(way, rng):
    shape = (7, 3, 300)
    memory = Memory()
    x = memory.stored(rng.standard_normal(shape), np.float32)
    whole, some = (memory.stored(np.full(rows, np.nan), np.float32) for rows in (7, 2))
    run_op(RowSquares(Tensor(shape)), "forward", {"x0": x, "y0": whole}, way=way)
    rows = memory.stored(x[3:5], np.float32)
    run_op(RowSquares(Tensor((2, *shape[1:]))), "forward", {"x0": rows, "y0": some}, way=way)
    memory.check()
    np.testing.assert_array_equal(some, whole[3:5])
    close("y0", whole, np.sum(np.float64(x) ** 2, axis=(1, 2)), 2e-6)


@pytest.mark.parametrize("counts", NORMS_OF_ROWS)
def test_the_norm_of_rows_is_the_root_of_their_sum(counts, rng):
    memory = Memory()
    arrays = {f"x{i}": memory.stored(rng.random(n), np.float32) for i, n in enumerate(counts)}
    arrays["y0"] = memory.stored(np.array(np.nan), np.float32)
    run_op(NormOfRows(sum(counts)), "forward", arrays)
    memory.check()
    total = sum(np.sum(np.float64(a)) for role, a in arrays.items() if role != "y0")
    close("y0", arrays["y0"], np.sqrt(total), 2e-6)


# -- bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("rows", [3, 8, 1 << 20])
@pytest.mark.parametrize("size", [2, 4])
def test_places_on_the_host_are_apart_and_fill_the_workspace(size, rows, continues):
    tensors = (Tensor((rows, 3)), Tensor((5,)))
    for rank in range(size):
        ranks = Ranks(rank, size, size)
        for op in (ReduceScatter(ranks, 0, tensors, continues), AllGather(ranks, 0, tensors)):
            staging = Staging(op)
            begins = []
            for number in range(min(2, staging.rounds)):
                places = staging.places(number)
                assert places == staging.places(number + 2)
                begins += [places.own, *places.to, *places.of]
                assert (places.sums == places.own) == (not (isinstance(op, ReduceScatter) and continues))
            assert begins == sorted(begins) and begins[-1] <= staging.nbytes
            copies = 4 if isinstance(op, ReduceScatter) else 2  # of at most PIECE_BYTES: two sets of them
            assert staging.nbytes <= copies * PIECE_BYTES
    assert Staging(ReduceScatter(Ranks(0, 2, 2), 0, (Tensor((2, 4)),))).nbytes == 3 * 16  # own, to, of


def test_the_transport_decides_where_the_workspace_is():
    op = ReduceScatter(Ranks(1, 4, 4), 0, (Tensor((8, 3)),))
    mpi, nccl = CudaDevice(transport="mpi"), CudaDevice(transport="nccl")
    assert mpi.workspace_bytes(op, "reduce", ()) == nccl.host_workspace_bytes(op, "reduce", ()) == 0
    assert mpi.host_workspace_bytes(op, "reduce", ()) == Staging(op).nbytes
    assert nccl.workspace_bytes(op, "reduce", ()) == reduce_workspace_bytes(op) == 3 * 2 * 3 * 4
    with pytest.raises(InputError, match="unknown transport 'tcp'"):
        CudaDevice(transport="tcp")


# -- steps on the fake driver ------------------------------------------------------------------------------------------

NETS = {
    "norms, dropout and clip": (NORMS, {"type": "Adam", "clip_gradients": 0.05}),
    "shared weights": ("shared", {"type": "Nesterov", "clip_gradients": 0.05}),
    "residual": ("residual", {"type": "Adam"}),
}


def trained(job: dict, **settings: object) -> dict:
    """The answer of programs/ranks.py: a process for each job, since a rank maps all kernels of its own."""
    done = on_fake_driver.run(on_fake_driver.PROGRAMS / "ranks.py", json.dumps([job]), **settings)
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)
    assert answer["threads"] == 1, "a thread is left"
    return answer


@functools.cache
def trained_by_two(net: str) -> dict:
    """The answer that others of the same net are compared with."""
    return trained({"net": net, "size": 2})


def results(answer: dict) -> tuple[str, str]:
    for arena in ("arena", "host"):
        for predicted, measured in answer.get(arena, ()):
            assert predicted == measured, answer
    return answer["parameters"], answer["state"]


@needs_pycuda
@pytest.mark.samples(4)
@pytest.mark.parametrize("name", NETS)
def test_every_number_of_ranks_and_transport_gives_the_same_bits(name):
    net, fields = NETS[name]
    one = results(trained({"net": net, "fields": fields, "size": 1}))
    for size in (2, 4):
        for transport in ("mpi", "nccl"):
            job = {"net": net, "fields": fields, "size": size, "transport": transport}
            assert results(trained(job, streams="random", seed=size)) == one, job


@pytest.mark.exhaustive(4)
@needs_pycuda
@pytest.mark.parametrize("streams", ["eager", "awaited-first", "awaited-last"])
@pytest.mark.parametrize("transport", ["mpi", "nccl"])
def test_streams_in_any_order_give_the_same_bits(transport, streams):
    job = {"net": "chain", "size": 2}
    assert results(trained({**job, "transport": transport}, streams=streams)) == results(trained_by_two("chain"))


@needs_pycuda
@pytest.mark.parametrize("transport", ["mpi", "nccl"])
def test_freed_bytes_are_not_read(transport):
    job = {"net": "chain", "size": 2, "transport": transport}
    poisoned = trained({**job, "poison": True})
    usual = trained(job)
    assert (poisoned["parameters"], poisoned["state"]) == results(usual)
    assert poisoned["arena"] == usual["arena"]


@needs_pycuda
def test_offloads_and_pieces_share_the_host_arena():
    net, fields = NETS["norms, dropout and clip"]
    job = {"net": net, "fields": fields, "size": 2}
    free = trained({**job, "strategy": "hybrid"})
    usual = trained(job)
    assert results(free) == results(usual)
    most = max(predicted for predicted, _ in free["host"])
    assert most > max(predicted for predicted, _ in usual["host"])
    within = trained({**job, "strategy": "hybrid", "host_budget": most - 256})
    assert max(predicted for predicted, _ in within["host"]) <= most - 256
    assert results(within) == results(free)
    assert "BudgetError" in trained({**job, "host_budget": 256})["error"]


@needs_pycuda
def test_a_step_that_communicates_is_not_captured():
    job = {"net": "chain", "graph": True}
    assert trained({**job, "size": 1})["captured"][0] > 0
    for transport in ("mpi", "nccl"):
        assert trained({**job, "size": 2, "transport": transport})["captured"] == [0, 0]


@needs_pycuda
@pytest.mark.parametrize("number", [0, 3])
def test_an_error_of_the_network_ends_the_step_on_all_ranks(number):
    answer = trained({"net": "chain", "size": 2, "fail": number})
    assert answer["error"] == "DeviceError: the network of rank 1 has failed"


@needs_pycuda
def test_an_error_of_nccl_is_one_sentence():
    answer = trained({"net": "chain", "size": 2, "transport": "nccl"}, nccl_fail=4)
    assert answer["error"] == "DeviceError: NCCL failed: remote process exited or there was a network error (6)"


@needs_pycuda
def test_what_nccl_takes_of_the_gpu_is_measured():
    taken = trained({"net": "chain", "size": 1, "transport": "nccl"}, nccl_bytes=5 << 20)["nccl"]
    assert taken == [6 << 20]  # in steps of 2 MiB, as the driver allocates
