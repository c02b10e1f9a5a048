"""Interactive nets on the fake driver: the numbers of the reference, and the same bits with held and freed blobs."""

import json

import pytest

from tests.backends.cuda.on_fake_driver import run
from tests.emulator import fake_driver
from tests.nets import NETS

pytestmark = pytest.mark.skipif(
    not fake_driver.pycuda_is_installed(),
    reason="PyCUDA is not installed: `layermem setup-cuda` builds it without CUDA",
)
PROGRAM = """
import json, sys, warnings
import numpy as np
import layermem
from layermem import caffe

warnings.simplefilter("ignore", UserWarning)
text, found = json.loads(sys.argv[1]), {}
lean = {"device": "cuda", "keep": [], "strategy": "hybrid"}
for key, options in {"reference": {"device": "reference"}, "cuda": {"device": "cuda"}, "lean": lean}.items():
    with layermem.Net.from_text(text, **options) as net:
        net.forward()
        net.params["score"][0].data[...] *= 2
        net.blobs["conv1"].data[...] = 1
        net.forward(start="pool1")
        net.backward()
        arrays = {name: np.array(blob.data) for name, blob in net.blobs.items() if name != "data"}
        arrays |= {f"{name}.diff": np.array(net.blobs[name].diff) for name in ("pool1", "conv2")}
        for layer, blobs in net.params.items():
            arrays |= {f"{layer}.{i}": np.array(b.data) for i, b in enumerate(blobs)}
            arrays |= {f"{layer}.{i}.diff": np.array(b.diff) for i, b in enumerate(blobs)}
        found[key] = arrays
        assert net.measured_peak_bytes <= net.report.peak_bytes
same = [name for name, value in found["cuda"].items() if value.tobytes() != found["lean"][name].tobytes()]
near = [n for n, v in found["cuda"].items() if not np.allclose(v, found["reference"][n], rtol=1e-3, atol=1e-4)]
with layermem.Solver.from_text(json.loads(sys.argv[2]), device="cuda", keep="conv2") as solver:
    weight = solver.net.params["conv1"][0].data
    before = weight.copy()
    solver.step(1)
    live = not np.array_equal(before, weight) and np.array_equal(weight, solver.parameters()["conv1"][0])
    kept = solver.net.blobs["conv2"].data.shape
hand = []
for device in ("reference", "cuda"):
    with caffe.SGDSolver.from_text(json.loads(sys.argv[2]), device=device, log=None) as solver:
        solver.add_callback(lambda: None, lambda: solver.net.params["score"][0].diff.__imul__(2))
        solver.net.blobs["label"].data[...] = [0, 1, 2, 3]
        solver.step(1)
        solver.net.clear_param_diffs()
        solver.net.forward()
        solver.net.backward()
        solver.net.params["conv1"][0].diff[...] *= 3
        solver.apply_update()
        hand.append([np.array(blob.data) for blobs in solver.net.params.values() for blob in blobs])
by_hand = [np.allclose(one, other, rtol=1e-3, atol=1e-4) for one, other in zip(*hand)]
print(json.dumps([same, near, live, kept, all(by_hand)]))
"""


def test_a_net_and_a_solver_on_cuda():
    solver = f"""base_lr: 0.1 lr_policy: "fixed" max_iter: 2 random_seed: 1 snapshot_after_train: false
                 net_param {{ {NETS["chain"].replace('type: "uniform" min: 0 max: 5', 'type: "constant"')} }}"""
    done = run(PROGRAM, json.dumps(NETS["chain"]), json.dumps(solver))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], [], True, [4, 6, 3, 3], True]
