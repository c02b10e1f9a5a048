"""The types that a net may have."""

from layermem.layers.known_types import known_types


def test_known_types_are_all_layer_types_that_a_net_may_name():
    types = known_types()
    assert {"Convolution", "Data", "Input", "Python", "SPP", "LSTM"} <= set(types) and types == sorted(types)
    assert not {"InfogainMatrix", "DetectionSizes", "AsImages", "StateRead", "Exposed"} & set(types)
