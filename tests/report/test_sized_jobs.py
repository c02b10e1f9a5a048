"""Jobs by size: the last ones are kept, and that of the largest size that fits."""

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
