"""The types that a net may have."""

from layermem.layers.known_types import known_types


def test_they_are_layers_input_layers_and_layers_of_several_without_what_no_net_may_name():
    types = known_types()
    assert {"Convolution", "Data", "Input", "Python", "SPP", "LSTM"} <= set(types) and types == sorted(types)
    assert not {"InfogainMatrix", "DetectionSizes", "AsImages", "StateRead", "Exposed"} & set(types)
