"""convert_imageset, compute_image_mean and the converters, beside bytes that are written by hand."""

import io
import struct
from contextlib import closing

import lmdb
import numpy as np
import pytest
from PIL import Image

from layermem.data.database import open_database
from layermem.proto.schema import BlobProto, Datum
from tests.data.test_raw_datasets import datum, write_mnist


def records(path):
    with lmdb.open(str(path), readonly=True, lock=False) as env, env.begin() as transaction:
        return [*transaction.cursor()]


@pytest.fixture
def images(tmp_path):
    """Two images of 2 x 3 pixels, one that is no image, and their list."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number, name in enumerate(("a", "b c")):
        Image.new("RGB", (3, 2), (10, 20, 30 + number)).save(folder / f"{name}.png")
    (folder / "bad.png").write_bytes(b"text")
    (tmp_path / "list.txt").write_text("a.png 3\nbad.png 1\nb c.png 0\n")
    return folder


def raw(red, label):
    """The Datum of an image: blue, green and red planes, a label, and `encoded: false`."""
    data = b"".join(bytes([value]) * 6 for value in (red, 20, 10))
    head, _, tail = datum(3, 2, 3, data, label).partition(b"\x28")
    return head + b"\x28" + tail + b"\x38\x00"


def test_images_are_the_records_of_caffes_tool_and_unreadable_ones_are_left_out(caffe, images, tmp_path):
    run = caffe("convert_imageset", f"{images}/", tmp_path / "list.txt", tmp_path / "db")
    assert run.code == 0 and "A total of 3 images." in run.text and "Processed 2 files." in run.text
    assert [text for severity, _, text in run.log if severity == "E"] == [
        f"Could not open or find file {images}/bad.png: holds an image in a format that is not read; convert it to "
        "JPEG or PNG (read: JPEG, PNG, BMP, GIF, TIFF, WEBP, PPM)"
    ]
    assert records(tmp_path / "db") == [(b"00000000_a.png", raw(30, 3)), (b"00000002_b c.png", raw(31, 0))]


def test_a_dash_is_no_file_of_a_program(caffe, images, tmp_path):
    run = caffe("compute_image_mean", tmp_path / "db", "-")
    assert run.code == 134 and "a file cannot be '-'; give /dev/stdin or /dev/stdout" in run.text


def test_the_root_is_text_before_each_path(caffe, images, tmp_path):
    (tmp_path / "list.txt").write_text("/a.png 3\n")
    for number, root in enumerate((str(images), f"{images}/")):
        assert caffe("convert_imageset", root, tmp_path / "list.txt", tmp_path / f"db{number}").code == 0
        assert records(tmp_path / f"db{number}") == [(b"00000000_/a.png", raw(30, 3))]
    (tmp_path / "list.txt").write_text("mages/a.png 3\n")
    assert caffe("convert_imageset", f"{tmp_path}/i", tmp_path / "list.txt", tmp_path / "db").code == 0
    assert records(tmp_path / "db") == [(b"00000000_mages/a.png", raw(30, 3))]


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_flags_choose_size_colour_order_and_kind_of_database(caffe, images, tmp_path, backend):
    pytest.importorskip("lmdb" if backend == "lmdb" else "plyvel")
    (tmp_path / "list.txt").write_text("".join(f"a.png {i}\n" for i in range(20)))
    words = ["-resize_height=4", "--resize_width", "6", "--gray", "-shuffle", "-check_size", f"-backend={backend}"]
    run = caffe("convert_imageset", *words, f"{images}/", tmp_path / "list.txt", tmp_path / "db")
    assert run.code == 0 and "Shuffling data" in run.text
    with closing(open_database(tmp_path / "db", labels=True)) as source:
        read, labels = source.read(20)
    assert {image.shape for image in read} == {(1, 4, 6)}
    assert sorted(labels) == [*range(20)] and [*labels] != [*range(20)]
    assert source.kind.lower() == backend


def test_encoded_images_are_the_files_themselves(caffe, images, tmp_path):
    (tmp_path / "list.txt").write_text("a.png 3\n")
    assert caffe("convert_imageset", "-encoded", f"{images}/", tmp_path / "list.txt", tmp_path / "db").code == 0
    ((_, record),) = records(tmp_path / "db")
    assert Datum.FromString(record) == Datum(data=(images / "a.png").read_bytes(), label=3, encoded=True)
    words = ["--encode_type=jpg", f"{images}/", tmp_path / "list.txt", tmp_path / "jpg"]
    assert caffe("convert_imageset", *words).code == 0
    assert Datum.FromString(records(tmp_path / "jpg")[0][1]).data.startswith(b"\xff\xd8")


def test_a_file_that_is_stored_keeps_its_colours_and_another_format_does_not(caffe, images, tmp_path):
    colours = Image.new("RGB", (3, 2), (10, 20, 30))
    for name in ("c.jpg", "c.jpeg"):
        colours.save(images / name)
    (tmp_path / "list.txt").write_text("a.png 3\nc.jpg 1\nc.jpeg 1\n")
    files = [(images / name).read_bytes() for name in ("a.png", "c.jpg", "c.jpeg")]
    for flags, kept in (("-encoded", [0, 1, 2]), ("-encode_type=JPG", [1, 2]), ("-encode_type=jpeg", [2])):
        words = ["-gray", *flags.split(), f"{images}/", tmp_path / "list.txt", tmp_path / flags]
        assert caffe("convert_imageset", *words).code == 0
        data = [Datum.FromString(record).data for _, record in records(tmp_path / flags)]
        assert [number for number in range(3) if data[number] == files[number]] == kept
        assert all(Image.open(io.BytesIO(data[number])).mode == "L" for number in {0, 1, 2} - {*kept})


def test_lines_of_the_list_are_read_as_by_caffes_tool(caffe, images, tmp_path):
    lines = ["a.png 3", "", "a.png", "a.png  4", "a.png 1.7", "a.png x", " a.png 5", "a.png\t6", "a.png -2\r"]
    (tmp_path / "list.txt").write_text("\n".join([*lines, "b c.png 99999999999", "a.png 7\n"]))
    run = caffe("convert_imageset", f"{images}/", tmp_path / "list.txt", tmp_path / "db")
    assert run.code == 0 and "A total of 11 images." in run.text and "Processed 7 files." in run.text
    labels = {key: Datum.FromString(record).label for key, record in records(tmp_path / "db")}
    assert labels == {
        b"00000000_a.png": 3,
        b"00000002_a.png": 0,
        b"00000004_a.png": 1,
        b"00000005_a.png": 0,
        b"00000008_a.png": -2,
        b"00000009_b c.png": 1215752191,
        b"00000010_a.png": 7,
    }


def test_a_jpeg_that_is_cut_off_is_stored_as_far_as_it_goes(caffe, tmp_path):
    y, x = np.mgrid[0:32, 0:32]
    Image.fromarray((x * 8 + y).astype(np.uint8)).save(tmp_path / "whole.jpg")
    whole = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[:-60])
    (tmp_path / "list.txt").write_text("whole.jpg 0\ncut.jpg 0\n")
    assert caffe("convert_imageset", "-gray", f"{tmp_path}/", tmp_path / "list.txt", tmp_path / "db").code == 0
    first, second = (np.frombuffer(Datum.FromString(record).data, np.uint8) for _, record in records(tmp_path / "db"))
    assert np.array_equal(first[:256], second[:256]) and not np.array_equal(first, second)


def test_an_image_that_cannot_be_encoded_ends_the_tool(caffe, images, tmp_path):
    Image.new("L", (3, 2)).save(images / "a.gif")
    (tmp_path / "list.txt").write_text("a.gif 3\n")
    words = ["-encoded", "-resize_height=2", "-resize_width=2", f"{images}/", tmp_path / "list.txt", tmp_path / "db"]
    assert "image 'a.gif' cannot be encoded as 'gif' again" in caffe("convert_imageset", *words).fatal
    assert not (tmp_path / "db").exists()


def test_one_side_alone_resizes_nothing_and_is_said(caffe, images, tmp_path):
    run = caffe("convert_imageset", "-resize_width=9", f"{images}/", tmp_path / "list.txt", tmp_path / "db")
    assert "only one of resize_height and resize_width is given" in run.text
    assert Datum.FromString(records(tmp_path / "db")[0][1]).width == 3


def test_the_mean_is_a_blob_and_its_channels_in_the_log(caffe, images, tmp_path):
    assert caffe("convert_imageset", f"{images}/", tmp_path / "list.txt", tmp_path / "db").code == 0
    run = caffe("compute_image_mean", "-backend=lmdb", tmp_path / "db", tmp_path / "mean")
    assert run.code == 0 and f"Write to {tmp_path / 'mean'}\n" in run.text
    assert [text for _, _, text in run.log][-4:] == [
        "Number of channels: 3",
        "mean_value channel [0]: 30.5",
        "mean_value channel [1]: 20",
        "mean_value channel [2]: 10",
    ]
    values = struct.pack("<18f", *[30.5] * 6, *[20.0] * 6, *[10.0] * 6)
    head = b"\x08\x01\x10\x03\x18\x02\x20\x03"
    assert (tmp_path / "mean").read_bytes() == head + b"\x2a" + bytes([len(values)]) + values
    assert caffe("compute_image_mean", tmp_path / "db").log[-1][2] == "mean_value channel [2]: 10"


def test_a_channels_mean_is_added_up_in_fp32_pixel_by_pixel(caffe, tmp_path):
    pixels = np.random.default_rng(0).integers(100, 256, (256, 256, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "list.txt").write_text("a.png 0\n")
    assert caffe("convert_imageset", f"{tmp_path}/", tmp_path / "list.txt", tmp_path / "db").code == 0
    run = caffe("compute_image_mean", tmp_path / "db", tmp_path / "mean.binaryproto")
    total = np.float32(0)
    for value in BlobProto.FromString((tmp_path / "mean.binaryproto").read_bytes()).data[:65536]:
        total += np.float32(value)
    assert f"mean_value channel [0]: {total / np.float32(65536):g}\n" in run.text


def test_mnist_and_its_pairs_become_databases(caffe, tmp_path):
    pytest.importorskip("plyvel")
    files = write_mnist(tmp_path, bytes(range(12)), b"\x07\x01")
    run = caffe("convert_mnist_data", *files, tmp_path / "db", "--backend=lmdb")
    assert run.code == 0 and "A total of 2 items." in run.text and "Rows: 2 Cols: 3" in run.text
    assert records(tmp_path / "db") == [
        (b"00000000", datum(1, 2, 3, bytes(range(6)), 7)),
        (b"00000001", datum(1, 2, 3, bytes(range(6, 12)), 1)),
    ]
    assert caffe("convert_mnist_siamese_data", *files, tmp_path / "pairs").code == 0
    with closing(open_database(tmp_path / "pairs", labels=True)) as source:
        read, _ = source.read(2)
    assert source.kind == "LevelDB" and [image.shape for image in read] == [(2, 2, 3)] * 2


def test_cifar_becomes_two_databases(caffe, tmp_path):
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (tmp_path / f"{name}.bin").write_bytes(bytes(3073))
    run = caffe("convert_cifar_data", tmp_path, tmp_path / "out", "lmdb")
    assert run.code == 0 and [path.name for path in sorted((tmp_path / "out").iterdir())] == [
        "cifar10_test_lmdb",
        "cifar10_train_lmdb",
    ]
    assert len(records(tmp_path / "out/cifar10_train_lmdb")) == 5


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["convert_imageset", "{0}/images/", "{0}/none.txt", "{0}/db"], "none.txt: no such file"),
        (["convert_imageset", "{0}/images/", "{0}/list.txt", "{0}"], "exists already"),
        (
            ["convert_imageset", "-backend=sql", "{0}/images/", "{0}/list.txt", "{0}/db"],
            "unknown database backend 'sql'",
        ),
        (["convert_imageset", "-encode_type=gif", "{0}/images/", "{0}/list.txt", "{0}/db"], "cannot encode images as"),
        (["compute_image_mean", "{0}/none", "{0}/mean"], "none"),
        (["convert_mnist_data", "{0}/list.txt", "{0}/list.txt", "{0}/db"], "is no image file of MNIST"),
        (["convert_cifar_data", "{0}", "{0}", "lmdb"], "data_batch_1.bin: no such file"),
        (["convert_cifar_data", "{0}", "{0}", "sql"], "unknown database backend 'sql'"),
    ],
)
def test_what_caffes_tools_refuse_aborts_and_writes_nothing(caffe, images, tmp_path, words, what):
    before = sorted(tmp_path.rglob("*"))
    assert what in caffe(*(word.format(tmp_path) for word in words)).fatal
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("convert_imageset", 1),
        ("compute_image_mean", 1),
        ("convert_mnist_data", 0),
        ("convert_mnist_siamese_data", 0),
        ("convert_cifar_data", 0),
    ],
)
def test_another_number_of_words_prints_the_usage(caffe, name, code):
    run = caffe(name)
    assert (run.code, run.log) == (code, []) and run.out.startswith(f"usage: {name} [FLAGS] ")
