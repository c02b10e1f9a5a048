"""The nets that a solver names: Caffe's rules for one train net and any number of test nets."""

import pytest

from layermem.errors import InputError
from layermem.proto import filter_net, read_solver_text
from layermem.proto import test_nets as nets_tested  # pytest would take its own name for a test
from layermem.proto import train_net as net_trained
from layermem.proto.schema import TEST, TRAIN

LAYERS = """
layer { name: "%s" type: "Input" top: "data" }
layer { name: "both" type: "ReLU" include { phase: TRAIN } include { phase: TEST } }
layer { name: "staged" type: "ReLU" include { stage: "deep" } }
layer { name: "high" type: "ReLU" include { min_level: 2 } }
"""


@pytest.fixture
def solver(tmp_path):
    """A function from the text of a solver, in a folder with nets a and b, to its SolverFile."""
    for name in "ab":
        (tmp_path / f"{name}.prototxt").write_text(LAYERS % name)
    return lambda text: read_solver_text(text, str(tmp_path / "solver.prototxt"))


def inside(name):
    return "{ " + LAYERS % name + " }"


def layers(choice):
    net = filter_net(choice.net, choice.phase, choice.level, choice.stages)
    return [layer.name for layer in net.message.layer]


@pytest.mark.parametrize("named", ["net: 'a.prototxt'", "train_net: 'a.prototxt'"])
def test_the_train_net_is_found_beside_the_solver(solver, named, tmp_path):
    choice = net_trained(solver(named))
    assert choice.net.path == str(tmp_path / "a.prototxt")
    assert (choice.phase, choice.level, choice.stages, choice.iterations) == (TRAIN, 0, (), 0)
    assert layers(choice) == ["a", "both"]


@pytest.mark.parametrize("field", ["net_param", "train_net_param"])
def test_the_train_net_may_stand_inside_the_solver(solver, field):
    assert layers(net_trained(solver(f"{field} {inside('c')}"))) == ["c", "both"]


def test_every_test_iter_without_a_net_of_its_own_tests_the_common_net(solver):
    read = solver(
        f"net: 'a.prototxt' test_net: 'b.prototxt' test_net_param {inside('c')} test_interval: 1\n"
        "test_iter: 1 test_iter: 2 test_iter: 3 test_iter: 4"
    )
    chosen = nets_tested(read)
    assert [layers(choice)[0] for choice in chosen] == ["c", "b", "a", "a"]
    assert [choice.iterations for choice in chosen] == [1, 2, 3, 4]
    assert {choice.phase for choice in chosen} == {TEST}


def test_a_solver_without_test_iter_tests_nothing(solver):
    assert nets_tested(solver("net: 'a.prototxt'")) == []


def test_states_of_the_solver_choose_stages_and_levels_for_each_net(solver):
    read = solver(
        "net: 'a.prototxt' train_state { stage: 'deep' } test_interval: 9\n"
        "test_iter: 1 test_state { level: 2 } test_iter: 1 test_state { stage: 'deep' level: 1 }"
    )
    assert layers(net_trained(read)) == ["a", "both", "staged"]
    assert [layers(choice) for choice in nets_tested(read)] == [["a", "both", "high"], ["a", "both", "staged"]]


def test_the_state_of_the_net_goes_before_the_phase_and_behind_the_solver(solver):
    own = "state { phase: TEST level: 5 stage: 'deep' }"
    choice = net_trained(solver(f"net_param {{ {own} {LAYERS % 'c'} }}"))
    assert (choice.phase, choice.level, choice.stages) == (TEST, 5, ())
    assert layers(choice) == ["c", "both", "staged", "high"]
    choice = net_trained(solver(f"net_param {{ {own} {LAYERS % 'c'} }} train_state {{ phase: TRAIN level: 1 }}"))
    assert (choice.phase, choice.level) == (TRAIN, 1)
    assert layers(choice) == ["c", "both", "staged"]


REFUSED = {
    "no net at all": ("base_lr: 1", "the solver has no train net; give exactly one of net, net_param, train_net,"),
    "two train nets": (
        "net: 'a.prototxt'\ntrain_net: 'b.prototxt'",
        ":2: the solver has 2 train nets (net, train_net); give exactly one of net,",
    ),
    "a net that is not there": ("\nnet: 'c.prototxt'", ":2: there is no 'c.prototxt' in the working directory"),
    "a test net without test_iter": (
        "train_net: 'a.prototxt'\ntest_net: 'b.prototxt'",
        ":2: the solver has 1 test nets and 0 test_iter; give one",
    ),
    "a test_iter without a net": (
        "train_net: 'a.prototxt'\n\ntest_iter: 5",
        ":3: the solver has 0 test nets and 1 test_iter; give one",
    ),
    "too few test_iter": (
        "net: 'a.prototxt' test_net: 'a.prototxt' test_net: 'b.prototxt'\ntest_iter: 1",
        ":2: the solver has 2 test nets and 1 test_iter; give one",
    ),
    "one state for two test nets": (
        "net: 'a.prototxt' test_iter: 1 test_iter: 1\ntest_interval: 1\ntest_state { }",
        ":3: the solver has 2 test nets and 1 test_state; give one for each, or none",
    ),
    "no interval": ("net: 'a.prototxt' test_iter: 1", ": the solver has test nets but no test_interval; set it"),
    "a test of nothing": (
        "net: 'a.prototxt' test_interval: 1\ntest_iter: 1\ntest_iter: -1",
        ":3: test_iter -1 is too few; give 1 or more, or 0 for no test",
    ),
}


def test_a_net_whose_test_iter_is_0_is_not_tested(solver):
    assert nets_tested(solver("net: 'a.prototxt' test_iter: 0")) == []
    read = solver("train_net: 'a.prototxt' test_net: 'a.prototxt' test_net: 'b.prototxt' test_interval: 1 "
                  "test_iter: 0 test_iter: 3")  # fmt: skip
    (tested,) = nets_tested(read)
    assert tested.iterations == 3 and tested.net.path.endswith("b.prototxt")


@pytest.mark.parametrize("case", REFUSED)
def test_a_solver_that_does_not_add_up_is_refused_at_its_line(solver, case):
    text, sentence = REFUSED[case]
    with pytest.raises(InputError) as caught:
        read = solver(text)
        net_trained(read)
        nets_tested(read)
    assert sentence in str(caught.value) and str(caught.value).startswith(caught.value.path)
