"""One iteration, and one test, of the nets of a solver in one arena."""

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.solver.build import build_nets
from layermem.solver.engine import Engine
from layermem.solver.jobs import StepOptions, solver_job
from tests.compiling import compile
from tests.nets import solver_file


@pytest.fixture
def make_engine(tmp_path):
    engines = []

    def make(net="chain", seed=7, **fields) -> Engine:
        file, device = solver_file(net, tmp_path, **fields), get_device("reference")
        nets = build_nets(file)
        graphs = [*solver_job(file, nets, StepOptions(device=device)).graphs]
        engine = Engine(nets, file.message, graphs, compile(graphs, strategy="hybrid"), device, poison=True)
        engines.append(engine)
        engine.begin(seed)
        return engine

    yield make
    for engine in engines:
        engine.close()


def test_an_iteration_returns_its_loss_and_the_outputs_of_the_net(make_engine):
    loss, outputs = make_engine().train(0)
    assert [output.name for output in outputs] == ["loss"]
    assert loss == pytest.approx(outputs[0].weight * float(outputs[0].values)) and np.isfinite(loss)


def test_an_iteration_changes_parameters_and_optimizer_state(make_engine):
    engine = make_engine()
    before = engine.parameters.layers()["conv1"][0].copy()
    engine.train(0)
    assert not np.array_equal(before, engine.parameters.layers()["conv1"][0])
    assert any(np.any(blob) for blob in engine.parameters.history())


def test_beginning_again_with_a_seed_repeats_the_bits(make_engine):
    engine = make_engine()
    first = [engine.train(iteration)[0] for iteration in range(3)]
    engine.begin(8)
    engine.begin(7)
    assert [engine.train(iteration)[0] for iteration in range(3)] == first


def test_with_iter_size_the_loss_is_the_mean_of_the_batches(make_engine):
    single, double = make_engine(base_lr=0.0), make_engine(base_lr=0.0, iter_size=2)
    losses = [single.train(iteration)[0] for iteration in range(2)]
    assert double.train(0)[0] == pytest.approx(sum(losses) / 2)


def test_the_context_has_the_counts_and_the_rate_of_the_iteration(make_engine):
    engine = make_engine(iter_size=3, base_lr=0.5, lr_policy="step", gamma=0.1, stepsize=4)
    engine.train(4)
    assert engine.context["iteration"] == 4 and engine.context["step"] == 4 * 3 + 2
    assert engine.context["rate"] == pytest.approx(0.05)


def test_a_test_is_the_mean_over_its_batches_and_moves_no_parameter(make_engine):
    engine = make_engine()
    before = {name: [blob.copy() for blob in blobs] for name, blobs in engine.parameters.layers().items()}
    loss, outputs = engine.test(0, lambda: False)
    assert {output.name for output in outputs} == {"accuracy", "loss"} and np.isfinite(loss)
    for name, blobs in engine.parameters.layers().items():
        assert all(map(np.array_equal, blobs, before[name]))


def test_a_test_that_stops_leaves_its_data_where_they_were(make_engine):
    whole = make_engine().test(0, lambda: False)
    engine = make_engine()
    answers = iter([False, True])
    before = engine.open_feeds.position(1)
    assert engine.test(0, lambda: next(answers)) is None
    assert engine.open_feeds.position(1) == before
    assert engine.test(0, lambda: False)[0] == whole[0]


def test_a_test_that_stops_early_leaves_the_states_of_its_layers_as_they_were(make_engine):
    engine = make_engine("recurrent")
    engine.train(0)
    engine.test(0, lambda: False)
    before = engine.parameters.states()
    answers = iter([False, True])
    assert engine.test(0, lambda: next(answers)) is None
    after = engine.parameters.states()
    assert {name: value.tobytes() for name, value in after.items()} == {n: v.tobytes() for n, v in before.items()}
    assert len(before) == 6 and all(map(np.any, before.values()))
