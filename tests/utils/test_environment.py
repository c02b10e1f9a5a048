import pytest

from layermem.utils.environment import stated_options


@pytest.mark.parametrize("name", ["host_budget", "host-budget"])
def test_a_variable_states_the_option_of_its_name(monkeypatch, name):
    monkeypatch.setenv("LAYERMEM_HOST_BUDGET", "2GiB")
    assert stated_options([name]) == {name: "2GiB"}


def test_others_and_empty_ones_state_nothing(monkeypatch):
    monkeypatch.setenv("LAYERMEM_BUDGET", "")
    monkeypatch.setenv("LAYERMEM_SLICES", "off")
    monkeypatch.delenv("LAYERMEM_STRATEGY", raising=False)
    assert stated_options(["budget", "strategy"]) == {}
