"""Device, seed and options of nets that are made afterwards."""

import warnings

import numpy as np
import pytest

from layermem import caffe
from layermem.caffe import modes
from layermem.errors import DeviceError, InputError
from tests.caffe.nets import deploy


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    for name, value in {"_mode": "cpu", "_number": 0, "_seed": None, "_options": {}, "_noted": set()}.items():
        monkeypatch.setattr(modes, name, value)


class Gpu:
    def describe(self):
        return "a GPU"


def test_without_a_gpu_nets_run_on_cpu_and_a_warning_says_so_once(monkeypatch):
    def missing(name):
        raise DeviceError("no driver")

    monkeypatch.setattr(modes, "get_device", missing)
    caffe.set_mode_gpu()
    caffe.set_device(1)
    with pytest.warns(UserWarning, match=r"no GPU can be used here \(no driver\); nets run on the device cpu") as noted:
        assert modes.options() == {"device": "cpu"}
    assert noted[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert modes.options() == {"device": "cpu"}


def test_with_a_gpu_nets_run_on_it_unless_the_mode_is_cpu(monkeypatch):
    monkeypatch.setattr(modes, "get_device", lambda name: Gpu())
    caffe.set_mode_gpu()
    assert isinstance(modes.options()["device"], Gpu)
    caffe.set_device(2)
    with pytest.warns(UserWarning, match="set CUDA_VISIBLE_DEVICES=2"):
        modes.options()
    caffe.set_mode_cpu()
    assert modes.options() == {"device": "cpu"}


def test_a_seed_decides_initial_values():
    def weights(seed):
        caffe.set_random_seed(seed)
        return np.array(caffe.Net(deploy(), caffe.TEST).params["fc"][0].data)

    assert np.array_equal(weights(1), weights(1)) and not np.array_equal(weights(1), weights(2))


def test_options_are_those_of_nets_and_can_be_removed():
    caffe.configure(budget="1MiB", device="reference")
    caffe.set_mode_gpu()
    assert modes.options() == {"device": "reference", "budget": "1MiB"}
    caffe.configure(budget=None)
    assert modes.options() == {"device": "reference"}
    with pytest.raises(InputError, match=r"no option 'bugdet'; did you mean 'budget'\?"):
        caffe.configure(bugdet="1MiB")
