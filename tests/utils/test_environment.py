import pytest

from layermem.errors import InputError
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


@pytest.mark.parametrize(
    ("name", "text"), [("budget", "foo"), ("budget", "50"), ("host-budget", "50%"), ("budget", "xfree")]
)
def test_a_variable_that_holds_no_amount_of_memory_is_named(monkeypatch, name, text):
    variable = f"LAYERMEM_{name.upper().replace('-', '_')}"
    monkeypatch.setenv(variable, text)
    with pytest.raises(InputError, match=f"^{variable}: '{text}' is "):
        stated_options([name])
    for right in ("2GiB", *(["50%", "80%free", "free"] if name == "budget" else [])):
        monkeypatch.setenv(variable, right)
        assert stated_options([name]) == {name: right}


@pytest.mark.parametrize("name", ["allow_python", "allow-python"])
def test_a_switch_is_on_or_off_and_nothing_else(monkeypatch, name):
    for text, stated in {"1": {name: True}, "0": {}, "": {}}.items():
        monkeypatch.setenv("LAYERMEM_ALLOW_PYTHON", text)
        assert stated_options([name]) == stated
    monkeypatch.setenv("LAYERMEM_ALLOW_PYTHON", "no")
    with pytest.raises(InputError, match="LAYERMEM_ALLOW_PYTHON=no is neither on nor off; use LAYERMEM_ALLOW_PYTHON=1"):
        stated_options([name])
