"""Event files, read by TensorBoard itself."""

import os
import resource

import pytest

from layermem.errors import InputError
from layermem.report.tensorboard import EventFiles, check_tensorboard
from tests.report.test_read_log import start, test, train

pytest.importorskip("tensorboardX")


def scalars(folder):
    """{tag: [(step, value)]} of a folder, as TensorBoard shows it."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder)).Reload()
    return {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def write(folder, *records):
    files = EventFiles(str(folder))
    for record in records:
        files(record)
    files.close()


def test_tensorboard_reads_the_curves_of_every_net(tmp_path):
    write(tmp_path, start(), test(0, accuracy=0.5), train(0, 2.0, x=2.0), train(1, 1.0, x=1.0))
    shown = scalars(tmp_path / "train")
    assert shown["loss"] == shown["outputs/x"] == [(0, 2.0), (1, 1.0)]
    assert [step for step, _ in shown["learning_rate"]] == [0, 1]
    assert scalars(tmp_path / "test0") == {"outputs/accuracy": [(0, 0.5)]}


def test_a_run_that_resumes_hides_the_iterations_that_it_makes_again(tmp_path):
    write(tmp_path, start(), *(train(i, 1.0) for i in range(4)))
    write(tmp_path, start(2, "s"), train(2, 9.0))
    assert scalars(tmp_path / "train")["loss"] == [(0, 1.0), (1, 1.0), (2, 9.0)]


def test_a_full_disk_ends_in_one_sentence_with_whole_events(tmp_path):
    files = EventFiles(str(tmp_path))
    files(start())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = next((tmp_path / "train").iterdir()).stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 200, hard))
    try:
        with pytest.raises(InputError, match=r"tfevents.*: cannot be written: no space is left; free some"):
            for i in range(20):  # more than the queue of a writer that has a thread of its own
                files(train(i, 1.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    files.close()
    losses = scalars(tmp_path / "train")["loss"]
    assert losses and losses == [(i, 1.0) for i in range(len(losses))]


def test_events_are_in_the_file_at_once(tmp_path):
    files = EventFiles(str(tmp_path))
    for record in (start(), train(0, 1.0)):
        files(record)
    assert scalars(tmp_path / "train")["loss"] == [(0, 1.0)]  # of a run that may be killed now
    files.close()


def test_a_folder_that_another_run_writes_to_is_refused(tmp_path):
    files = EventFiles(str(tmp_path))
    with pytest.raises(InputError, match="has the event files of a run that goes on; give another folder"):
        EventFiles(str(tmp_path))
    files.close()
    EventFiles(str(tmp_path)).close()
    assert not [*tmp_path.iterdir()]


def test_a_place_where_there_can_be_no_folder_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file; give a folder"):
        check_tensorboard(str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot be made a folder: '.*/file' is not a writable folder; give another"):
        check_tensorboard(str(tmp_path / "file" / "inside"))
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(InputError, match="is not a writable folder"):
        check_tensorboard(str(tmp_path / "new" / "inside"))
