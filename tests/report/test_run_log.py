"""Log files: whole lines, appended."""

import csv
import errno
import json
import os

import pytest

from layermem.errors import InputError
from layermem.report.read_log import read_records
from layermem.report.run_log import FIRST_COLUMNS, check_log, open_log, output_column

START = {"event": "start", "format": 1, "net": 'a, "b"', "iteration": 0, "resumed_from": None}
TRAIN = {
    "event": "train",
    "iteration": 3,
    "loss": 0.5,
    "average_loss": 0.5,
    "learning_rate": 0.1,
    "outputs": {"loss": 0.5},
    "seconds": 1.5,
}
TEST = {"event": "test", "iteration": 4, "test_net": 0, "loss": None, "outputs": {"each": [1.0, 2.0]}, "seconds": 2.0}
END = {"event": "end", "status": "done", "iteration": 4, "seconds": 3.0}
RECORDS = [START, TRAIN, TEST, END]
COLUMNS = (output_column(None, "loss"), output_column(0, "each"))


def write(path, *records, columns=COLUMNS):
    with open_log(str(path), columns) as log:
        for record in records:
            log(record)
    return path


@pytest.mark.parametrize("name", ["run.jsonl", "run.csv", "RUN.JSONL"])
def test_written_records_are_read_after_a_second_run_too(tmp_path, name):
    path = tmp_path / name
    write(path, *RECORDS)
    write(path, *RECORDS)
    assert read_records(str(path)) == RECORDS * 2


def test_each_line_of_a_jsonl_file_is_the_record(tmp_path):
    lines = write(tmp_path / "run.jsonl", *RECORDS).read_text().splitlines()
    assert [json.loads(line) for line in lines] == RECORDS


def test_a_csv_file_has_the_documented_columns(tmp_path):
    with open(write(tmp_path / "run.csv", *RECORDS)) as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == (*FIRST_COLUMNS, "train/loss", "test0/each", "details")
    assert rows[1]["train/loss"] == rows[1]["loss"] == "0.5" and rows[1]["test0/each"] == ""
    assert json.loads(rows[2]["test0/each"]) == [1, 2] and json.loads(rows[3]["details"]) == {"status": "done"}


@pytest.mark.parametrize("name", ["run.jsonl", "run.csv"])
def test_a_torn_last_line_is_left_out_and_removed_by_the_next_run(tmp_path, name):
    path = write(tmp_path / name, *RECORDS)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[1][:9])
    assert read_records(str(path)) == RECORDS
    write(path, *RECORDS)
    assert read_records(str(path)) == RECORDS * 2


@pytest.mark.parametrize("name", ["run.txt", "run.json", "run", "run.jsonl.gz"])
def test_a_name_of_no_log_is_refused(name):
    with pytest.raises(InputError, match=r"is not a log by its name; use a name that ends in \.jsonl or \.csv"):
        check_log(name)


@pytest.mark.parametrize(("name", "content"), [("a.jsonl", "{}\n"), ("a.jsonl", "text\n"), ("a.csv", "a,b\n1,2\n")])
def test_another_file_is_not_appended_to(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError, match=r"is no log of `layermem train`; give another name"):
        check_log(str(path))
    assert path.read_text() == content


def test_a_csv_file_of_another_net_is_not_appended_to(tmp_path):
    path = write(tmp_path / "run.csv", *RECORDS)
    with pytest.raises(InputError, match="has columns of another net"):
        open_log(str(path), ("train/other",))


@pytest.mark.parametrize("name", ["run.jsonl", "run.csv"])
def test_a_log_that_another_run_has_open_is_refused_and_stays_as_it_is(tmp_path, name):
    path = tmp_path / name
    with open_log(str(path), COLUMNS) as log:
        log(START)
        before = path.read_bytes()
        with open(path, "ab") as torn:
            torn.write(b"{")
        with pytest.raises(InputError, match="is the log of a run that goes on; give another name for this one"):
            open_log(str(path), COLUMNS)
        assert path.read_bytes() == before + b"{"
    write(path, *RECORDS)
    assert read_records(str(path)) == [START, *RECORDS]


def test_a_file_system_without_locks_has_logs_too(tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", flock)
    assert read_records(str(write(tmp_path / "run.csv", *RECORDS))) == RECORDS


def test_a_csv_file_that_an_editor_gave_other_line_ends_is_appended_to(tmp_path):
    path = write(tmp_path / "run.csv", *RECORDS)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    write(path, *RECORDS)
    assert read_records(str(path)) == RECORDS * 2
    with pytest.raises(InputError, match="has columns of another net"):
        open_log(str(path), ("train/other",))


def test_a_folder_and_one_that_is_missing_or_takes_no_files_are_refused(tmp_path, monkeypatch):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        check_log(str(tmp_path / "a.csv"))
    with pytest.raises(InputError, match="there is no folder"):
        check_log(str(tmp_path / "none" / "a.csv"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match="is not a writable folder; use another path"):
        check_log(str(tmp_path / "b.csv"))
