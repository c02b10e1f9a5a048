"""One net or solver in several threads: each call has the result of the same call alone."""

import signal
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import pytest

import layermem
from layermem import caffe
from layermem.caffe.nets import Pycaffe
from layermem.caffe.solvers import HandNet, TrainNet
from layermem.interactive.net import Net
from layermem.interactive.solver import Solver
from layermem.interactive.solver_net import SolverNet
from layermem.utils.exclusive import exclusive, made_once

THREADS, CALLS = 4, 48
NET = """
    layer { name: "d" type: "Input" top: "d" input_param { shape { dim: 4 dim: 3 dim: 12 dim: 12 } } }
    layer { name: "c" type: "Convolution" bottom: "d" top: "c"
            convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "xavier" } } }
    layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { pool: AVE global_pooling: true } }
"""
SOLVER = """
    base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" max_iter: 100 test_iter: 2 test_interval: 1000 random_seed: 1
    test_initialization: false snapshot_prefix: "%s/run" snapshot_after_train: false
    net_param {
        layer { name: "d" type: "DummyData" top: "d" top: "t"
                dummy_data_param { shape { dim: 4 dim: 6 } shape { dim: 4 }
                                   data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "d" top: "y"
                inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "y" bottom: "t" top: "loss" }
    }
"""


@pytest.fixture(autouse=True)
def many_switches():
    """Threads take turns after a microsecond instead of 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(call, jobs) -> list:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(call, jobs))


def inputs(shape, count: int = 6) -> list[np.ndarray]:
    return [np.random.default_rng(seed).normal(size=shape).astype(np.float32) for seed in range(count)]


BATCHES, ROWS, IMAGES = inputs((4, 3, 12, 12)), inputs((6, 3, 12, 12)), inputs((12, 12, 3))


def both(pair) -> np.ndarray:
    return np.concatenate([array.ravel() for arrays in pair for array in arrays.values()])


OF_NETS = {
    "forward": lambda net, i: net.forward(d=BATCHES[i])["p"],
    "forward with other blobs": lambda net, i: net.forward(["c"], d=BATCHES[i])["c"],
    "forward_all": lambda net, i: net.forward_all(d=ROWS[i])["p"],
    "predict": lambda net, i: net.predict(ROWS[i], blob="c"),
    "forward_backward_all": lambda net, i: both(net.forward_backward_all(d=BATCHES[i], p=np.full((4, 8, 1, 1), i + 1))),
    "outputs_of": lambda net, i: net.outputs_of([IMAGES[i]]),
    "Classifier.predict": lambda net, i: net.predict([IMAGES[i]]),
    "detect_windows": lambda net, i: net.detect_windows([(IMAGES[i], [(0, 0, 9, 9)])])[0]["prediction"],
}
CLASSES = {
    "layermem.Net": lambda path: layermem.Net(path, budget="1MiB"),
    "kept": lambda path: layermem.Net(path),
    "caffe.Net": lambda path: caffe.Net(path, caffe.TEST),
    "Classifier": lambda path: layermem.Classifier(path, image_dims=(16, 16)),
    "caffe.Classifier": lambda path: caffe.Classifier(path, None),
    "Detector": lambda path: layermem.Detector(path, None),
}
# Methods of a single class.
OWN = {"Classifier.predict": "lassifier", "detect_windows": "Detector", "outputs_of": "tor"}


def methods_of(maker: str) -> list[str]:
    if maker.endswith(("Classifier", "Detector")):
        return ["outputs_of", "detect_windows" if maker == "Detector" else "Classifier.predict"]
    return [name for name in OF_NETS if name not in OWN]


@pytest.mark.parametrize(("maker", "method"), [(maker, method) for maker in CLASSES for method in methods_of(maker)])
def test_a_call_of_a_net_gives_in_threads_what_it_gives_alone(maker, method, tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    net, call = CLASSES[maker](tmp_path / "net.prototxt"), OF_NETS[method]
    right = [call(net, i).copy() for i in range(6)]
    got = in_threads(lambda job: call(net, job % 6), range(CALLS))
    assert [job for job, value in enumerate(got) if not np.array_equal(value, right[job % 6])] == []


def test_different_calls_of_one_net_do_not_disturb_each_other(tmp_path):
    """The calls include reshapes, which make another arena, and reads of blobs that are recomputed."""
    net = layermem.Net.from_text(NET, budget="1MiB")
    alone = layermem.Net.from_text(NET)
    calls = {
        "predict": (lambda: net.predict(ROWS[0]), alone.predict(ROWS[0])),
        "inputs": (lambda: net.forward_all(["c"], d=ROWS[1])["c"], alone.forward_all(["c"], d=ROWS[1])["c"]),
        "weights": (lambda: net.params["c"][0].data.copy(), alone.params["c"][0].data.copy()),
    }

    def run(job: int) -> bool:
        if job % 5 == 4:
            net.reshape(d=(2 + job % 3, 3, 12, 12))
            return True
        call, right = list(calls.values())[job % 3]
        return np.array_equal(call(), right)

    assert all(in_threads(run, range(CALLS)))


def test_weights_are_loaded_and_saved_whole(tmp_path):
    net = layermem.Net.from_text(NET)
    for value in (1, 2):
        for blob in net.params["c"]:
            blob.data[...] = value
        net.save(tmp_path / f"{value}.caffemodel")

    def run(job: int) -> bool:
        net.load(tmp_path / f"{1 + job % 2}.caffemodel")
        net.save(tmp_path / f"saved{job}.npz")
        blobs = layermem.Net.from_text(NET, weights=tmp_path / f"saved{job}.npz").params["c"]
        return len({float(value) for blob in blobs for value in blob.data.ravel()}) == 1

    assert all(in_threads(run, range(CALLS)))


def test_nets_that_share_parameters_run_in_threads_as_alone(tmp_path):
    one, other = layermem.Net.from_text(NET), layermem.Net.from_text(NET)
    other.share_with(one)
    right = [one.forward(d=batch)["p"] for batch in BATCHES]
    got = in_threads(lambda job: (one, other)[job % 2].forward(d=BATCHES[job % 6])["p"], range(CALLS))
    assert all(np.array_equal(value, right[job % 6]) for job, value in enumerate(got))


def weights_of(folder, count: int = 2) -> tuple[list, list]:
    """Weight files of different values, and the answers for each to each of BATCHES."""
    paths = [folder / f"{seed}.caffemodel" for seed in range(count)]
    for seed, path in enumerate(paths):
        layermem.Net.from_text(NET, seed=seed + 10).save(path)
    nets = [layermem.Net.from_text(NET, weights=path) for path in paths]
    return paths, [[net.forward(d=batch)["p"] for batch in BATCHES] for net in nets]


def test_a_pass_has_all_shared_parameters_of_one_moment(tmp_path):
    """Those of its owner are loaded meanwhile, and its owner is replaced."""
    paths, right = weights_of(tmp_path)
    owners = [layermem.Net.from_text(NET, weights=path) for path in paths]
    net = layermem.Net.from_text(NET, weights=paths[0])
    net.share_with(owners[0])

    def run(job: int) -> bool:
        if job % 4 == 0:
            owners[0].load(paths[job // 4 % 2])
            return True
        if job % 4 == 1:
            net.share_with(owners[job // 4 % 2])
            return True
        value = net.forward(d=BATCHES[job % 6])["p"]
        return any(np.array_equal(value, answers[job % 6]) for answers in right)

    assert all(in_threads(run, range(6 * CALLS)))


def test_nets_that_share_with_each_other_have_the_parameters_of_one_of_them(tmp_path):
    paths, right = weights_of(tmp_path, 3)
    nets = [layermem.Net.from_text(NET, weights=path) for path in paths]
    for one, other in ((0, 1), (1, 2), (2, 0)):
        nets[one].share_with(nets[other])
    got = in_threads(lambda job: nets[job % 3].forward(d=BATCHES[job % 6])["p"], range(CALLS))
    assert all(np.array_equal(value, right[2][job % 6]) for job, value in enumerate(got))


def test_a_net_that_shares_with_a_solver_runs_in_its_callbacks_and_in_other_threads(tmp_path):
    with solver_of(layermem.Solver, tmp_path) as solver:
        net = layermem.Net.from_text(SOLVER.partition("net_param {")[2].rpartition("}")[0])
        net.share_with(solver.net)
        ran = []
        solver.add_callback(on_iteration=lambda: ran.append(net.forward()))
        pool = ThreadPoolExecutor(THREADS)
        jobs = [pool.submit(solver.step, 10), *(pool.submit(net.forward) for _ in range(CALLS))]
        for job in jobs:
            job.result(timeout=60)
        pool.shutdown()
        assert len(ran) == 10


def interrupt(handler, call, count: int = 300) -> list:
    """What `call` gives, `count` times, while a timer calls `handler` in this thread."""
    signal.signal(signal.SIGALRM, lambda number, frame: handler())
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0011)
    try:
        return [call() for _ in range(count)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_a_signal_handler_does_not_disturb_the_call_that_it_interrupts():
    net, got, refused = layermem.Net.from_text(NET), [], []
    one, other = (net.forward(d=batch)["p"] for batch in BATCHES[:2])

    def handler() -> None:
        try:
            got.append(net.forward(d=BATCHES[1])["p"])
        except layermem.InputError as error:
            refused.append(str(error))

    assert all(np.array_equal(value, one) for value in interrupt(handler, lambda: net.forward(d=BATCHES[0])["p"]))
    assert all(np.array_equal(value, other) for value in got)
    assert refused and all("'forward' was called within another call of this net" in each for each in refused)


def test_a_signal_handler_does_not_save_half_an_iteration(tmp_path):
    with solver_of(layermem.Solver, tmp_path) as solver:
        refused = []

        def handler() -> None:
            try:
                solver.snapshot()
            except layermem.InputError as error:
                refused.append(str(error))

        interrupt(handler, lambda: solver.step(20), 5)
        assert refused and all("call solver.request" in each for each in refused)
        for path in tmp_path.glob("*.solverstate"):
            solver.restore(path)


def test_a_net_goes_on_after_an_exception_of_a_signal_handler():
    net = layermem.Net.from_text(NET)
    right, armed = net.forward(d=BATCHES[0])["p"], []

    def handler() -> None:
        if armed:
            armed.clear()
            raise TimeoutError

    def call() -> bool:
        try:
            armed.append(True)
            value = net.forward(d=BATCHES[0])["p"]
            armed.clear()
            return np.array_equal(value, right)
        except TimeoutError:
            return True

    assert all(interrupt(handler, call))
    assert in_threads(lambda job: np.array_equal(net.forward(d=BATCHES[0])["p"], right), [0, 1]) == [True, True]


def test_an_override_of_a_method_calls_the_overridden_one():
    class Mine(layermem.Net):
        def reshape(self, **shapes) -> None:
            super().reshape(**shapes)

    net = layermem.Net.from_text(NET)
    assert np.array_equal(Mine.from_text(NET).forward(d=BATCHES[0])["p"], net.forward(d=BATCHES[0])["p"])


def test_two_nets_run_in_threads_as_alone():
    nets = [layermem.Net.from_text(NET, seed=seed) for seed in range(THREADS)]
    right = [net.predict(ROWS[0]) for net in nets]
    got = in_threads(lambda job: nets[job % THREADS].predict(ROWS[0]), range(CALLS))
    assert all(np.array_equal(value, right[job % THREADS]) for job, value in enumerate(got))


def solver_of(kind, folder):
    path = folder / "solver.prototxt"
    path.write_text(SOLVER % folder)
    return kind(path, **({"log": None} if kind is not layermem.Solver else {}))


OF_SOLVERS = {
    "step": lambda solver: solver.step(1),
    "test": lambda solver: solver.test(0)["loss"].tobytes(),
    "forward of the train net": lambda solver: solver.net.forward()["loss"].tobytes(),
    "forward of a test net": lambda solver: solver.test_nets[0].forward()["loss"].tobytes(),
    "parameters": lambda solver: solver.parameters()["ip"][0].tobytes(),
}


@pytest.mark.parametrize("kind", [layermem.Solver, caffe.SGDSolver], ids=["layermem", "caffe"])
@pytest.mark.parametrize("method", OF_SOLVERS)
def test_calls_of_a_solver_give_in_threads_what_they_give_one_after_the_other(kind, method, tmp_path):
    """Results match some sequential order, because each call takes the next batch."""
    call = OF_SOLVERS[method]
    with solver_of(kind, tmp_path) as alone, solver_of(kind, tmp_path) as shared:
        right = [call(alone) for _ in range(20)]
        got = in_threads(lambda job: call(shared), range(20))
        assert Counter(got) == Counter(right)
        assert alone.iteration == shared.iteration
        assert all(
            np.array_equal(one, other)
            for one, other in zip(alone.parameters()["ip"], shared.parameters()["ip"], strict=True)
        )


def test_a_snapshot_is_of_one_iteration(tmp_path):
    with solver_of(layermem.Solver, tmp_path) as solver:
        pool = ThreadPoolExecutor(THREADS)
        steps = [pool.submit(solver.step, 1) for _ in range(30)]
        saved = [pool.submit(solver.snapshot) for _ in range(5)]
        pool.shutdown()
        assert all(each.exception() is None for each in steps)
        for path in {each.result() for each in saved}:
            solver.restore(path)  # its hashes fit


def test_a_net_of_a_solver_is_made_once(tmp_path):
    with solver_of(caffe.SGDSolver, tmp_path) as solver:
        assert len({id(net) for net in in_threads(lambda job: solver.net, range(CALLS))}) == 1
        assert len({id(net.separate) for net in in_threads(lambda job: solver.net, range(CALLS))}) == 1


FREE = {  # methods without a lock: they read one value that never changes or changes at once, or call one with a lock
    Net: set(),
    Net.__mro__[1]: {"reshape"},
    Net.__mro__[2]: {"backward"},
    Net.__mro__[3]: {"share_with"},
    Net.__mro__[4]: {"definition", "name", "phase"},
    SolverNet: {"report", "backward", "share_with", "close"},
    TrainNet: set(),
    Pycaffe: {"before_forward", "after_forward", "before_backward", "after_backward"},
    HandNet: {"set_input_arrays"},
    layermem.Classifier: {"predict"},
    layermem.Detector: {"configure_crop", "crop", "detect_windows"},
    Solver.__mro__[1]: {"request", "iteration", "resumed_from", "loss", "seed", "graphs", "set_base_lr", "runner"},
    Solver: {"iter", "base_lr", "rate", "budget", "add_callback"},
    caffe.SGDSolver.__mro__[1]: {"kind", "lr", "add_callback", "share_weights"},
    layermem.Classifier.__mro__[1]: {"image_input", "outputs_of"},
}


@pytest.mark.parametrize("kind", FREE, ids=lambda kind: kind.__module__ + "." + kind.__name__)
def test_every_public_method_holds_the_lock_or_needs_none(kind):
    without = set()
    for name, value in vars(kind).items():
        if (name.startswith("_") and name != "_repr_html_") or isinstance(value, classmethod):
            continue
        function = value.fget if isinstance(value, property) else value
        assert not isinstance(value, cached_property) or isinstance(value, made_once), name
        is_exclusive = getattr(function, "__globals__", {}).get("__name__") == exclusive.__module__
        if not is_exclusive and not isinstance(value, made_once):
            without.add(name)
    assert without - {"copy_from", "_repr_html_"} == FREE[kind]
