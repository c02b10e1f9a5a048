"""Files of MNIST and CIFAR-10 as records, byte for byte: the expected bytes are written by hand."""

import gzip
import struct
from pathlib import Path

import lmdb
import pytest

from layermem.data.databases import write_database
from layermem.data.raw_datasets import cifar_records, mnist_records, read_mnist, siamese_records
from layermem.errors import InputError
from layermem.proto.schema import Datum


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def datum(channels, height, width, data, label) -> bytes:
    """A Datum as Caffe serializes it: field numbers 1 to 5, all of them present."""
    head = b"\x08" + varint(channels) + b"\x10" + varint(height) + b"\x18" + varint(width)
    return head + b"\x22" + varint(len(data)) + data + b"\x28" + varint(label % 2**64)


def write_mnist(folder: Path, pixels: bytes, labels: bytes, rows=2, columns=3) -> tuple[Path, Path]:
    images, answers = folder / "images", folder / "labels"
    images.write_bytes(struct.pack(">4I", 2051, len(labels), rows, columns) + pixels)
    answers.write_bytes(struct.pack(">2I", 2049, len(labels)) + labels)
    return images, answers


def test_images_of_mnist_are_the_records_of_caffes_converter(tmp_path):
    files = write_mnist(tmp_path, bytes(range(12)), b"\x07\xff")
    write_database(tmp_path / "db", mnist_records(read_mnist(*files)))
    with lmdb.open(str(tmp_path / "db"), readonly=True, lock=False) as env, env.begin() as records:
        assert [*records.cursor()] == [
            (b"00000000", datum(1, 2, 3, bytes(range(6)), 7)),
            (b"00000001", datum(1, 2, 3, bytes(range(6, 12)), -1)),  # labels are signed, as in Caffe
        ]


def test_pairs_of_images_are_two_channels_and_whether_their_labels_agree(tmp_path):
    labels = bytes(i % 3 for i in range(60))
    items = read_mnist(*write_mnist(tmp_path, bytes(i for i in range(60) for _ in range(6)), labels))
    found = [(key, record.SerializeToString()) for key, record in siamese_records(items, 0)]
    assert [key for key, _ in found] == [b"%08d" % i for i in range(60)]
    agreeing = 0
    for _, raw in found:
        record = Datum.FromString(raw)
        i, j = record.data[0], record.data[6]
        assert raw == datum(2, 2, 3, bytes([i] * 6 + [j] * 6), int(i % 3 == j % 3))
        agreeing += record.label
    assert 0 < agreeing < 60
    assert found == [(key, record.SerializeToString()) for key, record in siamese_records(items, 0)]
    assert found != [(key, record.SerializeToString()) for key, record in siamese_records(items, 1)]


def test_batches_of_cifar_are_the_records_of_caffes_converter(tmp_path):
    def batch(name, labels):
        records = [bytes([label]) + bytes([label]) * 3072 for label in labels]
        (tmp_path / name).write_bytes(b"".join(records))

    for number in range(1, 6):
        batch(f"data_batch_{number}.bin", [number, 200] if number == 2 else [number])
    batch("test_batch.bin", [0])
    train = [(key, record.SerializeToString()) for key, record in cifar_records(tmp_path, train=True)]
    assert [key for key, _ in train] == [b"00000", b"10000", b"10001", b"20000", b"30000", b"40000"]
    assert train[1][1] == datum(3, 32, 32, bytes([2]) * 3072, 2)
    assert train[2][1] == datum(3, 32, 32, bytes([200]) * 3072, -56)
    ((key, record),) = cifar_records(tmp_path, train=False)
    assert (key, record.SerializeToString()) == (b"00000", datum(3, 32, 32, bytes(3072), 0))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda images, labels: images.write_bytes(images.read_bytes()[:-1]), "images: is cut off: it states 12 bytes"),
        (lambda images, labels: labels.write_bytes(labels.read_bytes()[:-1]), "labels: is cut off: it states 2 bytes"),
        (
            lambda images, labels: images.write_bytes(labels.read_bytes()),
            "is no image file of MNIST, which begins with",
        ),
        (lambda images, labels: labels.write_bytes(b""), "is no label file of MNIST"),
        (lambda images, labels: images.write_bytes(gzip.compress(b"x")), "begins with 2051; decompress it"),
        (lambda images, labels: labels.write_bytes(struct.pack(">2I", 2049, 1) + b"1"), "has 1 labels of 2 images"),
        (lambda images, labels: labels.unlink(), "labels: no such file"),
    ],
)
def test_files_that_are_not_those_of_mnist_are_refused(tmp_path, change, what):
    images, labels = write_mnist(tmp_path, bytes(12), b"\x00\x01")
    change(images, labels)
    with pytest.raises(InputError, match=what):
        read_mnist(images, labels)


@pytest.mark.parametrize(("nbytes", "what"), [(0, "has 0 bytes"), (3072, "has 3,072 bytes"), (3074, "has 3,074 bytes")])
def test_batches_of_other_sizes_are_refused(tmp_path, nbytes, what):
    (tmp_path / "test_batch.bin").write_bytes(bytes(nbytes))
    with pytest.raises(InputError, match=what):
        [*cifar_records(tmp_path, train=False)]
