"""extract_features, beside the values of the net and records that are written by hand."""

import struct
from contextlib import closing

import lmdb
import numpy as np
import pytest

from layermem.data.database import open_database
from layermem.interactive.net import Net

NET = "prototxt/digits/train_val.prototxt"


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "digits.caffemodel"
    with Net(NET, "TEST") as net:
        net.save(path)
    return path


@pytest.fixture
def values(weights):
    """The blobs of two batches."""
    with Net(NET, "TEST", weights=weights) as net:
        batches = [net.forward(blobs=["ip2", "pool2"]) for _ in range(2)]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in ("ip2", "pool2")}


def shape_head(channels, height, width):
    return bytes([0x08, channels, 0x10, height, 0x18, width])


@pytest.mark.parametrize("device", [[], ["CPU"], ["GPU"], ["GPU", "0"]])
def test_each_item_is_a_datum_of_floats(caffe, weights, values, tmp_path, device):
    out = tmp_path / "ip2", tmp_path / "pool2"
    run = caffe("extract_features", weights, NET, "ip2,pool2", ",".join(map(str, out)), "2", "lmdb", *device)
    assert run.code == 0 and "Successfully extracted the features!" in run.text
    for name, path in zip(("ip2", "pool2"), out):
        rows = values[name]
        _, channels, height, width = (*rows.shape, 1, 1)[:4]
        with lmdb.open(str(path), readonly=True, lock=False) as env, env.begin() as records:
            found = [*records.cursor()]
        assert len(found) == len(rows) and [key for key, _ in found] == [b"%010d" % i for i in range(len(rows))]
        for (_, record), row in zip(found, rows):
            floats = b"".join(b"\x35" + struct.pack("<f", value) for value in row.ravel())
            assert record == shape_head(channels, height, width) + floats
        assert f"Extracted features of {len(rows)} query images for feature blob {name}" in run.text


def test_a_leveldb_has_the_same_items(caffe, weights, values, tmp_path):
    pytest.importorskip("plyvel")
    assert caffe("extract_features", weights, NET, "pool2", tmp_path / "db", "1", "leveldb").code == 0
    with closing(open_database(tmp_path / "db", labels=False)) as source:
        read, _ = source.read(source.length)
    assert source.kind == "LevelDB" and np.array_equal(np.stack(read), values["pool2"][: source.length])


def test_its_information_is_in_files_alone_as_in_caffe(caffe, weights, tmp_path, monkeypatch):
    run = caffe("extract_features", weights, NET, "ip2", tmp_path / "db", "1", "lmdb")
    assert run.code == 0 and {severity for severity, *_ in run.log} == {"E"}
    monkeypatch.setenv("GLOG_logtostderr", "1")
    run = caffe("extract_features", weights, NET, "ip2", tmp_path / "more", "1", "lmdb")
    assert {severity for severity, *_ in run.log} == {"I", "E"}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({2: "ip2,pool2"}, "2 blobs and 1 databases are named"),
        ({2: "fc7"}, "fc7"),
        ({3: "{0}"}, "exists already"),
        ({4: "many"}, "many is no number of batches"),
        ({5: "sql"}, "unknown database backend 'sql'"),
        ({0: "none.caffemodel"}, "none.caffemodel: no such file"),
    ],
)
def test_what_caffes_tool_refuses_aborts_and_writes_nothing(caffe, weights, tmp_path, change, what):
    words = [str(weights), NET, "ip2", f"{tmp_path}/db", "1", "lmdb"]
    for index, word in change.items():
        words[index] = word.format(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert what in caffe("extract_features", *words).fatal and sorted(tmp_path.iterdir()) == before


def test_too_few_words_print_the_usage(caffe):
    run = caffe("extract_features", "a", "b")
    assert run.code == 1 and run.log[0][0] == "E" and "WEIGHTS NET BLOB" in run.text
