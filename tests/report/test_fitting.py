"""The search for the largest size, compared with trying every size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layermem.api import build_net, job_of
from layermem.errors import InputError
from layermem.planning.hints import Hints
from layermem.report import fitting
from layermem.report.comparison import min_live_bytes
from layermem.report.fitting import find_fit, largest
from layermem.report.plan_report import evaluate_if_fits

NET = "prototxt/digits/train_val.prototxt"
STEPS = """
    layer { name: "words" type: "DummyData" top: "x" top: "cont" dummy_data_param {
        shape { dim: 4 dim: 2 dim: 3 } shape { dim: 4 dim: 2 }
        data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 1 } } }
    layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "lstm"
            recurrent_param { num_output: 4 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "Reduction" bottom: "lstm" top: "loss" loss_weight: 1 }
"""


class Jobs:
    """Jobs by batch size."""

    def __init__(self, hints=Hints(), net=NET):
        self.hints, self.net, self.known = hints, net, {}

    def __call__(self, batch):
        if batch not in self.known:
            self.known[batch] = job_of(build_net(self.net, "TRAIN", batch=batch), device="reference", hints=self.hints)
        return self.known[batch]


@given(st.integers(1, 5000), st.data())
def test_the_largest_number_is_that_of_a_look_at_all_in_few_looks(most, data):
    answer, start, looks = data.draw(st.integers(0, most)), data.draw(st.integers(1, most)), []

    def fits(number):
        looks.append(number)
        return number <= answer

    assert largest(fits, most, start) == answer
    assert set(looks) <= set(range(1, most + 1)) and len(looks) <= 2 * most.bit_length() + 2
    assert len(looks) <= 2 or start != answer


@pytest.mark.samples(8)
@pytest.mark.parametrize("budget_bytes", [400_000])
@pytest.mark.parametrize("strategy", ["sublinear", "liveness", "recompute", "recompute-approx", "auto", "nested"])
def test_the_fit_is_the_largest_of_all_sizes_whose_placed_plan_is_within_the_budget(strategy, budget_bytes):
    jobs = Jobs(Hints(host_budget_bytes=0))
    fit = find_fit(jobs, range(1, 10_000), strategy, budget_bytes)
    outcomes = {n: evaluate_if_fits(jobs(n), strategy, budget_bytes) for n in range(1, 2 * fit.size + 20)}
    assert fit.size == max(n for n, outcome in outcomes.items() if not isinstance(outcome, int)) > 1
    assert fit.report.peak_bytes == outcomes[fit.size].peak_bytes <= budget_bytes


@pytest.mark.whole
@pytest.mark.samples(2)
@pytest.mark.parametrize("strategy", ["liveness", "recompute-approx"])
def test_the_fit_is_the_largest_for_a_net_whose_ops_grow_with_its_batch_too(strategy, tmp_path):
    (tmp_path / "steps.prototxt").write_text(STEPS)
    jobs, budget_bytes = Jobs(net=tmp_path / "steps.prototxt"), 8 << 10
    fit = find_fit(jobs, range(1, 40), strategy, budget_bytes)
    fitting = [n for n in range(1, 40) if not isinstance(evaluate_if_fits(jobs(n), strategy, budget_bytes), int)]
    assert fit.size == max(fitting) > 1


@pytest.mark.samples(2)
@pytest.mark.parametrize("start", [0, 2, 40, 9_998])
def test_the_answer_is_the_same_wherever_the_search_begins(start):
    sizes, budget_bytes = range(2, 10_000, 2), 3 << 20
    alone = find_fit(Jobs(), sizes, "recompute", budget_bytes).size
    assert find_fit(Jobs(), sizes, "recompute", budget_bytes, start).size == alone > 0 == alone % 2


def test_plans_that_copy_reach_no_further_than_the_host_budget_lets_them():
    jobs, budget_bytes = Jobs(Hints(host_budget_bytes=60_000)), 1 << 20
    fit = find_fit(jobs, range(1, 10_000), "hybrid", budget_bytes)
    assert fit.report.feasible and 0 < fit.report.program.host_bytes <= 60_000
    assert min_live_bytes(jobs(fit.size + 1), "hybrid") > budget_bytes


@pytest.mark.parametrize("tries, seen", [(64, [200, 199, 198, 197]), (2, [200, 199, 198, 197])])
@pytest.mark.parametrize("last", [197, 3, 0])
def test_smaller_sizes_are_tried_if_placed_plans_are_over_the_budget(monkeypatch, tries, seen, last):
    """Live bytes fit up to 200, placed ones up to `last`."""
    budget_bytes, placed = 3 << 20, []
    report = evaluate_if_fits(Jobs()(1), "liveness", budget_bytes)

    def evaluate(batch, strategy, budget_bytes):
        placed.append(batch)
        return report if batch <= last else budget_bytes + 1

    monkeypatch.setattr(fitting, "TRIES", tries)
    monkeypatch.setattr(fitting, "evaluate_if_fits", evaluate)
    monkeypatch.setattr(fitting, "min_live_bytes", lambda batch, strategy: 0 if batch <= 200 else budget_bytes + 1)
    assert find_fit(lambda batch: batch, range(1, 10_000), "liveness", budget_bytes).size == last
    assert placed[: len(seen)] == seen or last != 197
    assert len(placed) <= tries + 18


def test_a_net_that_cannot_be_built_is_too_large_and_nothing_fits_a_byte():
    jobs = Jobs()

    def make(batch):
        if batch > 77:
            raise InputError("has a blob of too many values")
        return jobs(batch)

    assert find_fit(make, range(1, 10_000), "liveness", 1 << 40).size == 77
    nothing = find_fit(jobs, range(1, 10_000), "liveness", 1)
    assert nothing.size == 0 and nothing.report is None
