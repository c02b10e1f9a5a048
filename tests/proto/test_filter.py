"""Layers that a state includes: Caffe's rules, case by case, and each compared with a simple oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layermem.errors import InputError
from layermem.proto import filter_by_state, filter_net, read_net_text
from layermem.proto.filter import has_level_rules, meets, stages_of_rules
from layermem.proto.schema import TEST, TRAIN, NetState, NetStateRule

# rules of the layer | phase | level | stages | included?
CASES = """
                                                                  | TRAIN |  0 |            | in
                                                                  | TEST  |  3 | mystage    | in
include: { phase: TRAIN }                                         | TRAIN |  0 |            | in
include: { phase: TRAIN }                                         | TEST  |  0 |            | out
include: { phase: TEST }                                          | TEST  |  0 | mystage    | in
exclude: { phase: TRAIN }                                         | TRAIN |  0 |            | out
exclude: { phase: TRAIN }                                         | TEST  |  0 |            | in
include: { stage: "mystage" }                                     | TRAIN |  0 |            | out
include: { stage: "mystage" }                                     | TRAIN |  0 | mystage    | in
exclude: { stage: "mystage" }                                     | TRAIN |  0 | mystage    | out
exclude: { stage: "mystage" }                                     | TRAIN |  0 | other      | in
include: { stage: "a" stage: "b" }                                | TRAIN |  0 | a          | out
include: { stage: "a" stage: "b" }                                | TRAIN |  0 | c b a      | in
include: { stage: "a" } include: { stage: "b" }                   | TRAIN |  0 | b          | in
exclude: { stage: "a" stage: "b" }                                | TRAIN |  0 | a          | in
exclude: { stage: "a" } exclude: { stage: "b" }                   | TRAIN |  0 | b          | out
include: { not_stage: "mystage" }                                 | TRAIN |  0 |            | in
include: { not_stage: "mystage" }                                 | TRAIN |  0 | mystage    | out
include: { not_stage: "a" not_stage: "b" }                        | TRAIN |  0 | b          | out
exclude: { not_stage: "mystage" }                                 | TRAIN |  0 |            | out
exclude: { not_stage: "mystage" }                                 | TRAIN |  0 | mystage    | in
include: { stage: "a" not_stage: "b" }                            | TRAIN |  0 | a b        | out
include: { min_level: 3 }                                         | TRAIN |  2 |            | out
include: { min_level: 3 }                                         | TRAIN |  3 |            | in
include: { min_level: 0 }                                         | TRAIN |  0 |            | in
include: { max_level: -3 }                                        | TRAIN | -2 |            | out
include: { max_level: -3 }                                        | TRAIN | -3 |            | in
include: { max_level: 0 }                                         | TRAIN |  0 |            | in
include: { min_level: 1 max_level: 2 }                            | TRAIN |  3 |            | out
include: { min_level: 2 phase: TRAIN }                            | TRAIN |  2 |            | in
include: { min_level: 2 phase: TRAIN }                            | TEST  |  2 |            | out
include: { min_level: 2 phase: TRAIN } include: { phase: TEST }   | TEST  |  0 |            | in
include: { min_level: 2 phase: TRAIN } include: { phase: TEST }   | TRAIN |  0 |            | out
exclude: { min_level: 2 phase: TRAIN } exclude: { phase: TEST }   | TEST  |  0 |            | out
exclude: { min_level: 2 phase: TRAIN } exclude: { phase: TEST }   | TRAIN |  1 |            | in
include: { }                                                      | TEST  |  9 | any        | in
exclude: { }                                                      | TEST  |  9 | any        | out
"""


def rows():
    return [[cell.strip() for cell in line.split("|")] for line in CASES.strip("\n").split("\n")]


def net_with(rules):
    return read_net_text(
        f'name: "n"\nforce_backward: true\nlayer {{ name: "first" type: "Input" }}\n'
        f'layer {{ name: "probe" type: "ReLU"\n {rules} }}\n'
        'layer { name: "last" type: "Silence" }\n',
        "net",
    )


@pytest.mark.parametrize("rules, phase, level, stages, answer", rows())
def test_a_layer_is_in_when_its_rules_say_so(rules, phase, level, stages, answer):
    net = filter_net(net_with(rules), phase, int(level), stages.split())
    names, lines = ("first", "last"), (3, 6)
    if answer == "in":
        names, lines = ("first", "probe", "last"), (3, 4, 6)
    assert tuple(layer.name for layer in net.message.layer) == names
    assert net.lines == lines
    assert net.message.name == "n" and net.message.force_backward


def test_filtering_twice_is_filtering_once_and_leaves_the_source_alone():
    source = net_with("include { phase: TEST }")
    before = source.message.SerializeToString()
    once = filter_net(source, "TRAIN")
    assert filter_net(once, "TRAIN").message == once.message
    assert source.message.SerializeToString() == before and len(source.lines) == 3


def test_include_and_exclude_together_are_refused_even_where_neither_matters():
    net = net_with("include { phase: TRAIN } exclude { phase: TEST }")
    with pytest.raises(InputError) as caught:
        filter_net(net, "TRAIN")
    assert str(caught.value) == "net:4: layer 'probe' has both include and exclude rules; keep one kind"


def test_stages_of_the_file_count_and_its_phase_and_level_do_not():
    net = read_net_text(
        "state { phase: TEST level: 7 stage: 'deploy' }\n"
        "layer { type: 'Input' name: 'a' include { stage: 'deploy' stage: 'more' } }\n"
        "layer { type: 'Input' name: 'b' include { phase: TEST } }\n"
        "layer { type: 'Input' name: 'c' include { min_level: 1 } }\n"
    )
    filtered = filter_net(net, "TRAIN", 0, ["more"])
    assert [layer.name for layer in filtered.message.layer] == ["a"]
    assert list(filtered.message.state.stage) == ["deploy", "more"]
    assert filtered.message.state.phase == TRAIN


def test_a_phase_has_a_name_and_a_number_and_no_other_is_known():
    net = net_with("include { phase: TEST }")
    assert filter_net(net, TEST).message == filter_net(net, "TEST").message != filter_net(net, TRAIN).message
    assert filter_net(net, "test").message == filter_net(net, "TEST").message
    with pytest.raises(InputError) as caught:
        filter_net(net_with(""), "tests")
    assert str(caught.value) == "unknown phase 'tests' (choose from TRAIN, TEST)"


NAMES = st.lists(st.sampled_from("abc"), max_size=3, unique=True)
STATES = st.builds(NetState, phase=st.sampled_from([TRAIN, TEST]), level=st.integers(-2, 2), stage=NAMES)
RULES = st.builds(
    NetStateRule,
    phase=st.sampled_from([None, TRAIN, TEST]),
    min_level=st.none() | st.integers(-2, 2),
    max_level=st.none() | st.integers(-2, 2),
    stage=NAMES,
    not_stage=NAMES,
)


def broken_because(state, rule):
    """The oracle: every reason why the state breaks the rule."""
    if rule.HasField("phase") and rule.phase != state.phase:
        yield "phase"
    if rule.HasField("min_level") and state.level < rule.min_level:
        yield "min_level"
    if rule.HasField("max_level") and state.level > rule.max_level:
        yield "max_level"
    for stage in rule.stage:
        if not any(stage == has for has in state.stage):
            yield "stage"
    for stage in rule.not_stage:
        if any(stage == has for has in state.stage):
            yield "not_stage"


@given(STATES, RULES)
def test_a_rule_is_met_when_nothing_breaks_it(state, rule):
    assert meets(state, rule) == (not list(broken_because(state, rule)))


@given(STATES, st.lists(RULES, max_size=3))
def test_include_is_any_and_exclude_is_none(state, rules):
    met = any(not list(broken_because(state, rule)) for rule in rules)
    net = net_with("")
    net.message.layer[1].include.extend(rules)
    assert (len(filter_by_state(net, state).lines) == 3) == (met or not rules)
    net.message.layer[1].ClearField("include")
    net.message.layer[1].exclude.extend(rules)
    assert (len(filter_by_state(net, state).lines) == 3) == (not met)


@pytest.mark.parametrize("level", [10**30, 2**31, -(2**31) - 1])
def test_a_level_beyond_32_bits_is_refused(level):
    with pytest.raises(InputError, match=f"level {level} is not a number of 32 bits"):
        filter_net(net_with(""), "TRAIN", level=level)


def test_a_stage_with_an_undecodable_byte_is_refused():
    with pytest.raises(InputError, match=r"stage 'a.udcff' has characters that are not UTF-8"):
        filter_net(net_with(""), "TRAIN", stages=[b"a\xff".decode("utf-8", "surrogateescape")])


def test_the_stages_and_levels_that_rules_name_are_known():
    net = read_net_text("""
        layer { name: "a" type: "ReLU" include { stage: "x" not_stage: "y" } include { stage: "x" } }
        layer { name: "b" type: "ReLU" exclude { stage: "z" } }
    """)
    assert stages_of_rules(net) == ["x", "y", "z"] and not has_level_rules(net)
    assert has_level_rules(read_net_text('layer { name: "a" type: "ReLU" include { max_level: 2 } }'))
