"""--storage: the verbs that have it, their output, and refusals."""

import json

import pytest

from layermem.backends.base import STORAGES
from layermem.cli.run_job import differences, plan_run
from layermem.ops import NARROW
from layermem.report.read_log import read_records

NET = ("--net", "prototxt/digits/train_val.prototxt", "--batch", "512")
LARGE = ("--net", "prototxt/mnist/train_val.prototxt")  # several parts of 8 MiB
VERBS = {
    "plan": ("plan", *NET),
    "compare": ("compare", *NET, "--strategies", "caffe"),
    "fit": ("fit", *NET[:2], "--budget", "4MiB", "--strategies", "liveness"),
    "time": ("time", *NET[:2], "--batch", "2", "--iterations", "1", "--device", "reference"),
}


@pytest.fixture(params=NARROW)
def storage(request: pytest.FixtureRequest) -> tuple[str, str]:
    return "--storage", request.param


@pytest.mark.exhaustive(16)
@pytest.mark.parametrize("verb", VERBS)
def test_the_first_line_names_a_storage_that_is_not_fp32(layermem, verb, storage):
    narrow, wide = layermem(*VERBS[verb], *storage), layermem(*VERBS[verb], "--storage", "fp32")
    assert narrow.code == wide.code == 0, narrow.err + wide.err
    assert f"storage {storage[1]}" in narrow.out.splitlines()[0] and "storage" not in wide.out.splitlines()[0]


@pytest.mark.parametrize("verb", ["plan", "compare"])
def test_json_has_the_storage_and_fewer_bytes(layermem, verb, storage):
    words = (verb, *LARGE, "--batch", "1024", "--json", *VERBS[verb][5:])
    found = [json.loads(layermem(*words, *each).out) for each in (storage, ())]
    assert [each["storage"] for each in found] == [storage[1], "fp32"]
    peaks = [(each if verb == "plan" else each["strategies"][0])["peak_bytes"] for each in found]
    assert peaks[0] < peaks[1]


@pytest.mark.samples(2)
def test_a_larger_batch_fits(layermem, storage):
    words = ("fit", *LARGE, "--budget", "200MiB", "--strategies", "liveness", "--json")
    narrow, wide = (json.loads(layermem(*words, *each).out) for each in (storage, ()))
    assert narrow["strategies"][0]["batch"] > 1.2 * wide["strategies"][0]["batch"]


@pytest.mark.parametrize("verb", [*VERBS, "train", "test"])
def test_an_unknown_storage_is_refused_with_the_known_ones(layermem, solver, verb):
    words = {
        **VERBS,
        "train": ("train", "--solver", solver()),
        "test": ("test", *NET[:2], "--weights", "gone.caffemodel"),
    }
    ended = layermem(*words[verb], "--storage", "half")
    assert ended.code == 2
    assert f"unknown storage 'half' (choose from {', '.join(STORAGES)})" in ended.sentence


@pytest.mark.parametrize("verb", [("show",), ("predict", "--weights", "w.npz")])
def test_verbs_in_which_it_has_no_effect_do_not_have_it(layermem, verb, storage):
    ended = layermem(*verb, *NET[:2], *storage)
    assert ended.code == 2 and "--storage" in ended.sentence


def test_a_plan_of_another_storage_is_refused(layermem, tmp_path, storage):
    path = tmp_path / "plan.json"
    assert layermem(*VERBS["plan"], "--save", path).code == 0
    ended = layermem(*VERBS["plan"], "--load", path, *storage)
    assert ended.code == 2 and "was made for another net, batch, device, precision or storage" in ended.sentence


def test_training_and_its_test_run_in_it_and_measure_what_was_predicted(layermem, solver, tmp_path, storage):
    log = tmp_path / "run.jsonl"
    ended = layermem("train", "--solver", solver(), "--iterations", 2, "--log", log, *storage)
    assert ended.code == 0, ended.err
    assert f"storage {storage[1]}" in ended.out.splitlines()[0]
    end = read_records(str(log))[-1]
    assert end["measured_peak_bytes"] == end["predicted_peak_bytes"]
    weights = tmp_path / "digits_iter_2.caffemodel"
    tested = layermem("test", *NET[:2], "--weights", weights, "--iterations", "1", *storage)
    assert tested.code == 0 and "accuracy" in tested.out


def test_a_loss_scale_is_one_of_training_in_fp16(layermem, solver, tmp_path):
    words = ("train", "--solver", solver(), "--iterations", 2)
    ended = layermem(*words, "--storage", "fp16", "--loss-scale", 2**32)
    assert ended.code == 0, ended.err
    assert "gradients overflowed at loss scale 4.29497e+09, and the update is skipped" in ended.out
    assert "loss scale 4.29497e+09; 2 of 2 updates were skipped by overflow" in ended.out
    refused = layermem(*words, "--loss-scale", "dynamic")
    assert refused.code == 2 and "a loss scale is for the storage fp16" in refused.sentence
    assert layermem(*words, "--storage", "fp16", "--loss-scale", "1000").code == 2


def test_the_plan_of_a_run_is_made_again_in_its_storage(layermem, solver, tmp_path, monkeypatch, storage):
    log = tmp_path / "run.jsonl"
    assert layermem("train", "--solver", solver(), "--iterations", 1, "--log", log, *storage).code == 0
    monkeypatch.chdir(tmp_path)
    start = read_records(str(log))[0]
    report = plan_run(start, allow_python=False)
    assert report.storage == storage[1] == start["job"]["storage"]
    assert report.job.graphs[0].fingerprint == start["fingerprint"] and list(differences(start, report)) == []


def test_watch_has_it_for_a_job_of_its_own_alone(layermem, tmp_path, storage):
    log = tmp_path / "run.jsonl"
    log.write_text('{"event": "start", "format": 1, "net": "it"}\n')
    ended = layermem("watch", log, *storage)
    assert ended.code == 2 and "--storage" in ended.sentence
