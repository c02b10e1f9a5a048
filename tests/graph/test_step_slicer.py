"""What users write of slices and bands, and the graphs that come of it."""

import pickle

import pytest

from layermem.backends.cpu import CpuDevice
from layermem.data import probe
from layermem.errors import InputError
from layermem.graph.bands import Bands
from layermem.graph.net import Net
from layermem.graph.slices import Cut
from layermem.graph.step_slicer import GraphMakers, Slices, StepSlicer
from layermem.graph.train import UpdateRule, forward_graph, train_graph
from layermem.planning.partition_choices import CHOICES
from layermem.proto.read import read_net_text
from tests.nets import WIDE

DEVICE = CpuDevice()


def wide(text: str = WIDE) -> Net:
    return Net(read_net_text(text), 0, probe=probe)


def step(net, unfused=()):
    return train_graph(net, DEVICE, UpdateRule("SGD", 1), unfused=unfused)


def forward(net, unfused=()):
    return forward_graph(net, DEVICE, unfused=unfused)


def slicer() -> StepSlicer:
    return StepSlicer(GraphMakers(wide(), DEVICE, step, CHOICES))


@pytest.mark.parametrize("written", ["conv1..pool1/2", "fc6/rows/8", "whole/4,fc6/rows/8,fc7/rows/2"])
def test_slices_are_read_as_they_are_written(written):
    assert str(Slices.parse(written)) == written


def test_the_parts_may_have_any_order():
    found = Slices.parse("fc6/rows/8, conv1..pool1/2")
    assert found == Slices(Cut("conv1", "pool1", 2), (Bands("fc6", 8),)) and found.batch_slices == 2
    assert Slices.parse("fc6/rows/8").batch_slices == 1


@pytest.mark.parametrize("written", ["whole/2,whole/4", "fc6/rows/8,fc6/rows/4"])
def test_what_is_given_twice_is_refused(written):
    with pytest.raises(InputError, match="twice"):
        Slices.parse(written)


def test_batch_slices_leave_the_other_graphs_as_they_are():
    net = wide()
    it = StepSlicer(GraphMakers(net, DEVICE, step, CHOICES, update=lambda: forward(net)))
    sliced, *others = it.graphs(Slices.parse("whole/2"))
    assert tuple(others) == it.beside and sliced.slices == "whole/2"


def test_test_nets_run_in_the_same_slices_where_they_have_these_layers():
    net, other = wide(), wide(WIDE.replace('"stem_relu"', '"other_relu"'))
    it = StepSlicer(GraphMakers(net, DEVICE, step, CHOICES, tests=[net, other], test=forward))
    _, same, without = it.graphs(Slices.parse("stem..stem_relu/2"))
    assert same.slices == "stem..stem_relu/2" and without is it.beside[1]


def test_all_graphs_have_the_bands():
    net = wide()
    it = StepSlicer(GraphMakers(net, DEVICE, step, CHOICES, tests=[net], test=forward))
    train, test = it.graphs(Slices.parse("stem..stem_relu/2,wide/rows/3"))
    assert train.slices == "stem..stem_relu/2,wide/rows/3"
    assert any(name.startswith("stem") and name.endswith(".forward@2/2") for name in train.by_name)
    for graph in (train, test):
        assert "wide.w0" not in graph.buffers and "wide.forward.rows3/3" in graph.by_name
    assert it.graphs(Slices.parse("stem..stem_relu/2,wide/rows/3"))[0] is train


def test_an_error_has_the_layer_and_its_line():
    with pytest.raises(InputError, match=r":\d+: layer 'stem' is of type Convolution"):
        slicer().graphs(Slices.parse("stem/rows/2"))


def test_the_net_of_so_many_items_is_made_once_for_all_ranges(monkeypatch):
    made, own = [], Net.with_items
    monkeypatch.setattr(Net, "with_items", lambda net, items: (made.append(items), own(net, items))[1])
    found = slicer()
    for written in ("stem..stem_relu/2", "whole/2", "whole/4", "stem..stem_relu/4"):
        found.graphs(Slices.parse(written))
    assert len(made) == 2 and len(set(made)) == 2


def test_graphs_that_another_process_has_made_are_kept():
    slices = Slices.parse("whole/2")
    found, theirs = (slicer(), pickle.loads(pickle.dumps(slicer().graphs(slices))))
    found.keep(theirs)
    assert found.graphs(slices) is theirs and found.ops_made == len(theirs[0].ops)
