"""Python layers on the fake driver: the numbers of the cpu device, and the same bits whatever order streams take."""

import json

import pytest

from layermem.backends.cuda.device import CudaDevice
from layermem.graph.net import Net, NetOptions
from layermem.graph.train import train_graph
from layermem.proto.read import read_net_text
from tests.backends.cuda.on_fake_driver import run
from tests.emulator import fake_driver
from tests.nets import solver_text
from tests.python_layers.modules import NET, net_of

pytestmark = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)
PROGRAM = """
import json, sys
from layermem.errors import InputError
from layermem.solver.process_memory import expected_memory
from layermem.interactive.solver import Solver
from layermem.backends.base import get_device

answers = []
for device, settings in json.loads(sys.argv[2]):
    try:
        options = {"graph": True} if settings.pop("graph", False) else {}
        with Solver(sys.argv[1], allow_python=True, device=get_device(device, **options), **settings) as solver:
            solver.step(2)
            bits = [blob.tobytes().hex() for blobs in solver.parameters().values() for blob in blobs]
            same = solver.runner.measured_peak_bytes == solver.program.arena_bytes
            staging = expected_memory(solver.nets.all, solver.program, solver.device).staging_bytes
            answers.append([solver.loss, bits, same, staging])
    except InputError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def solver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("python")
    path = folder / "solver.prototxt"
    text = solver_text(base_lr=0.001, test_iter=None, test_interval=None)
    path.write_text(f"{text} net_param {{ name: 'python' {net_of(folder)} }}\n")
    return path


def trained(solver, jobs, **settings):
    done = run(PROGRAM, str(solver), json.dumps(jobs), **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_net_learns_what_it_learns_on_the_cpu_and_no_strategy_changes_a_bit(solver):
    strategies = ("caffe", "hybrid", "sublinear", "auto")
    jobs = [["cpu", {}], *(["cuda", {"strategy": name, "poison": True}] for name in strategies)]
    cpu, *cuda = trained(solver, jobs, streams="random")
    assert all(answer[0] == pytest.approx(cpu[0], rel=1e-5) for answer in cuda)
    assert len({(answer[0], *answer[1]) for answer in cuda}) == 1 and all(answer[2] for answer in cuda)
    image = 4 * 8 * 36 * 4
    assert cpu[3] == 0 and {answer[3] for answer in cuda} == {4 * image}  # of ten: x, y and their gradients


def test_a_cuda_graph_is_refused_by_the_name_of_the_layer_before_anything_runs(solver):
    (answer,) = trained(solver, [["cuda", {"graph": True}]])
    assert answer == "layer 'data' runs Python code on the host, which a CUDA graph cannot hold; leave --cuda-graph out"


def test_planning_for_a_gpu_needs_none(tmp_path):
    net = Net(read_net_text(net_of(tmp_path, NET), str(tmp_path / "net.prototxt")), 0, NetOptions(allow_python=True))
    graph = train_graph(net, CudaDevice())
    assert all(CudaDevice().implements(op.record, op.step) for op in graph.ops if op.layer_type == "Python")
