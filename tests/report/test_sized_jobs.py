"""Jobs by size: the last ones are kept, and that of the largest size that fits."""

from layermem.api import build_net, job_of
from layermem.backends.base import get_device
from layermem.report.plan_report import evaluate_if_fits
from layermem.report.sized_jobs import JOBS_KEPT, SizedJobs


class Counting:
    """Stands for jobs; counts those that are made."""

    def __init__(self):
        self.made = []

    def __call__(self, size):
        self.made.append(size)
        return f"job of {size}"


def test_a_job_is_made_once_while_it_is_one_of_the_last():
    make = Counting()
    jobs = SizedJobs(make)
    assert [jobs(2), jobs(3), jobs(2)] == ["job of 2", "job of 3", "job of 2"]
    assert make.made == [2, 3]


def test_the_jobs_of_the_last_sizes_are_kept():
    make = Counting()
    jobs = SizedJobs(make)
    for size in (*range(JOBS_KEPT), 0, JOBS_KEPT, 0, 1):  # 0 is in use again before the oldest is dropped
        jobs(size)
    assert make.made == [*range(JOBS_KEPT + 1), 1]


def test_the_job_of_the_largest_size_that_fits_is_kept():
    make = Counting()
    jobs = SizedJobs(make)
    for size in (700, 500):
        jobs.keep(size)
    for size in range(2 * JOBS_KEPT):
        jobs(size)
    del make.made[:]
    jobs(700)
    jobs(500)
    assert make.made == [500]


def test_jobs_of_two_sizes_are_built_and_those_of_others_plan_as_if_they_were():
    made = []

    def make(size):
        made.append(size)
        return job_of(build_net("prototxt/digits/train_val.prototxt", "TRAIN", batch=size), device="cpu")

    jobs = SizedJobs(make, get_device("cpu"))
    resized = [jobs(size) for size in (1, 9, 4, 30)]
    assert made == [1, 9]
    for size, job in zip((4, 30), resized[2:]):
        built = make(size)
        assert (job.title, job.graphs, job.baseline_bytes) == (built.title, built.graphs, built.baseline_bytes)
        budget_bytes = built.baseline_bytes * 9 // 10
        for strategy in ("nested", "recompute"):
            a, b = (evaluate_if_fits(each, strategy, budget_bytes) for each in (job, built))
            assert (a.peak_bytes, a.seconds, a.overhead) == (b.peak_bytes, b.seconds, b.overhead)


def test_larger_sizes_than_fit_under_a_strategy_rule_it_out_within_that_budget():
    jobs = SizedJobs(lambda size: job_of(build_net("prototxt/digits/train_val.prototxt", "TRAIN", batch=size)))
    jobs.rule_out("inter", 3, 1000)
    assert not jobs(3).arena.is_ruled_out("inter", 1000) and not jobs(4).arena.is_ruled_out("inter", 1001)
    assert jobs(4).arena.is_ruled_out("inter", 1000) and not jobs(4).arena.is_ruled_out("hybrid", 1000)
