"""Layers folded into stages and blocks."""

import pytest

from layermem.integrations.page.stages import MANY, UNFOLDED_LAYERS, LayerGroup, fold


def labels(groups):
    return [group.label for group in groups]


def resnet(blocks: int) -> list[str]:
    kinds = ("res{}_branch2a", "bn{}_branch2a", "scale{}_branch2a", "res{}_branch2b", "res{}", "res{}_relu")
    return [kind.format(f"2b{block}") for block in range(blocks) for kind in kinds]


def test_a_net_of_few_layers_is_not_folded():
    assert fold([f"conv1_{i}" for i in range(UNFOLDED_LAYERS)]) == ()


def test_layers_with_one_number_are_a_stage_and_its_blocks_have_the_letters_behind():
    names = ["data", "conv1", "bn_conv1", *resnet(3), "conv3_1", "relu3_1", "fc1000", "loss"]
    stages = fold(names)
    assert labels(stages) == ["conv1", "res2", "conv3"]
    assert (stages[1].begin, stages[1].end) == (3, 21)
    assert labels(stages[1].members) == ["res2b0", "res2b1", "res2b2"]


@pytest.mark.parametrize(
    ("names", "stages"),
    [
        (
            ["in", *(f"inception_3{b}/{i}x1" for b in "ab" for i in range(14)), "inception_4a/1x1", "inception_4a/3x3"],
            ["inception_3", "inception_4"],
        ),
        ([*(f"conv_d0{a}" for a in "abcdefg"), *(f"conv_u1{a}" for a in "abcdefg")], ["conv_d0", "conv_u1"]),
        ([*(f"encoder/{a}" for a in "abcdefgh"), *(f"decoder/{a}" for a in "abcdefgh")], ["encoder", "decoder"]),
        ([f"{a}{b}" for a in "abcd" for b in "efgh"], []),
    ],
)
def test_stages_have_the_names_that_people_give_them(names, stages):
    assert labels(fold(names)) == stages


def walk(groups):
    for group in groups:
        yield group
        yield from walk(group.members)


@pytest.mark.parametrize("names", [resnet(900), [f"layer{i}" for i in range(5000)], ["same"] * 3000])
def test_no_group_has_more_members_than_a_picture_can_show(names):
    stages = fold(names)
    inside = LayerGroup("net", 0, len(names), stages)
    for group in (inside, *walk(stages)):
        position, members = group.begin, 0
        for member in group.members:
            assert position <= member.begin < member.end <= group.end  # in order, and none in two
            members += member.begin - position + 1
            position = member.end
        assert members + group.end - position <= max(MANY, UNFOLDED_LAYERS)


def test_a_range_is_named_after_its_first_and_last_member():
    (stage,) = fold(["data", *resnet(100), "loss"])
    assert labels(stage.members)[0] == "res2b0 … res2b24" and len(stage.members) == 4
