"""Nets from every form of source."""

from pathlib import Path

import pytest
from google.protobuf import text_format

from layermem.errors import InputError
from layermem.interactive.building import build_net, read_source
from layermem.proto.schema import PHASES, NetParameter
from tests.nets import LOSS, NETS

DIGITS = "prototxt/digits/train_val.prototxt"


def test_a_net_is_a_path_a_message_or_what_makes_one():
    message = text_format.Parse(f"name: 'tiny' {NETS['chain']}", NetParameter())

    class Spec:
        def to_proto(self):
            return message

    assert build_net(message).name == build_net(Spec()).name == "tiny"
    assert build_net(DIGITS).name == build_net(Path(DIGITS)).name == "LeNet (digits)"
    file = read_source(DIGITS)
    assert read_source(file) is file


def test_a_net_without_a_loss_is_for_tests():
    deploy = text_format.Parse(NETS["chain"].replace(LOSS % "conv2", ""), NetParameter())
    assert build_net(deploy).phase == PHASES["TEST"]
    assert build_net(text_format.Parse(NETS["chain"], NetParameter())).phase == PHASES["TRAIN"]
    with pytest.raises(InputError, match="unknown phase 'tested'"):
        build_net(deploy, "tested")
