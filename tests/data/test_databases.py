"""LMDBs of images and mean images: the records of convert_imageset, the sums of compute_image_mean."""

import os

import lmdb
import numpy as np
import pytest
from PIL import Image

from layermem.data.database import open_database
from layermem.data.databases import ImageOptions, image_records, label_records, mean_content, mean_image, write_database
from layermem.data.images import decode
from layermem.data.transform import read_mean
from layermem.errors import InputError
from layermem.proto.schema import BlobProto, Datum


@pytest.fixture
def listing(tmp_path):
    """A list of three images of 5 x 7 pixels in two folders."""
    draw = np.random.default_rng(1)
    names = ["a/one.png", "a/two of them.png", "three.jpg"]
    (tmp_path / "a").mkdir()
    for name in names:
        Image.fromarray(draw.integers(0, 256, (5, 7, 3), np.uint8)).save(tmp_path / name)
    path = tmp_path / "list.txt"
    path.write_text("".join(f"{name} {label}\n" for label, name in enumerate(names, start=4)))
    return path


def records(folder):
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return [(bytes(key), bytes(value)) for key, value in transaction.cursor()]


def made(listing, **options):
    folder = listing.parent / "db"
    assert write_database(folder, image_records(listing, ImageOptions(**options))) == 3
    return records(folder)


def test_a_record_has_the_key_and_the_bytes_of_convert_imageset(listing):
    keys, values = zip(*made(listing))
    assert keys == (b"00000000_a/one.png", b"00000001_a/two of them.png", b"00000002_three.jpg")
    for value, name, label in zip(values, ("a/one.png", "a/two of them.png", "three.jpg"), (4, 5, 6)):
        image = np.asarray(Image.open(listing.parent / name).convert("RGB"))[:, :, ::-1]
        pixels = np.ascontiguousarray(image.transpose(2, 0, 1)).tobytes()
        # fields 1 to 5 and 7 of Datum: channels, height, width, data, label, encoded: false, as Caffe writes it
        assert value == bytes([8, 3, 16, 5, 24, 7, 34, 105]) + pixels + bytes([40, label, 56, 0])


@pytest.mark.parametrize("as_caffe", [False, True])
def test_the_key_of_an_image_has_the_bytes_of_its_name(listing, as_caffe):
    name = b"l\xe9.jpg"
    (listing.parent / "three.jpg").rename(listing.parent / os.fsdecode(name))
    listing.write_bytes(listing.read_bytes().replace(b"three.jpg", name))
    assert [key for key, _ in made(listing, as_caffe=as_caffe)][2] == b"00000002_" + name
    assert [key for key, _ in label_records(listing, 1, None)][2] == b"00000002_" + name


def test_sizes_gray_and_encoded_files(listing):
    resized = Datum.FromString(made(listing, size=(4, 9), gray=True)[0][1])
    assert (resized.channels, resized.height, resized.width, len(resized.data)) == (1, 4, 9, 36)
    folder = listing.parent / "encoded"
    write_database(folder, image_records(listing, ImageOptions(encoded=True)))
    stored = Datum.FromString(records(folder)[2][1])
    assert stored.encoded and stored.data == (listing.parent / "three.jpg").read_bytes() and not stored.channels
    with pytest.raises(InputError, match="cannot encode images as 'gif'; use --encode-type png, jpg"):
        ImageOptions(encode="gif")


def test_opencv_reads_and_resizes_the_same_bytes(listing):
    cv2 = pytest.importorskip("cv2")
    image = cv2.resize(cv2.imread(str(listing.parent / "a/one.png")), (6, 3))
    assert Datum.FromString(made(listing, size=(3, 6))[0][1]).data == image.transpose(2, 0, 1).tobytes()


def test_an_order_by_a_seed_has_every_image_once(listing):
    labels = [Datum.FromString(value).label for _, value in made(listing, shuffle=3)]
    assert sorted(labels) == [4, 5, 6] != labels
    again = listing.parent / "again"
    write_database(again, image_records(listing, ImageOptions(shuffle=3)))
    assert records(again) == records(listing.parent / "db")


def test_a_mean_is_the_sequential_sum_in_float32(tmp_path):
    images = np.random.default_rng(2).integers(0, 256, (150, 3, 4, 5), np.uint8)
    datums = (Datum(channels=3, height=4, width=5, data=image.tobytes(), label=0) for image in images)
    write_database(tmp_path / "db", ((f"{number:08d}".encode(), datum) for number, datum in enumerate(datums)))
    total = np.zeros((3, 4, 5), np.float32)
    for image in images:
        total += image
    mean = mean_image(tmp_path / "db")
    assert (mean == total / np.float32(150)).all()
    (tmp_path / "mean.binaryproto").write_bytes(mean_content(mean))
    assert (read_mean(tmp_path / "mean.binaryproto") == mean).all()
    blob = BlobProto.FromString(mean_content(mean))
    assert (blob.num, blob.channels, blob.height, blob.width) == (1, 3, 4, 5) and not blob.HasField("shape")


def test_images_of_several_sizes_have_no_mean(tmp_path):
    datums = [Datum(channels=1, height=2, width=width, data=bytes(2 * width)) for width in (2, 3)]
    write_database(tmp_path / "db", zip((b"0", b"1"), datums))
    with pytest.raises(InputError, match="images of 1x2x2 and 1x2x3"):
        mean_image(tmp_path / "db")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("none.png 1", "image 'none.png' "),
        ("list.txt 1", "image 'list.txt' holds an image in a format that is not read"),
        ("x" * 600 + " 1", "above the 511 of an LMDB key"),
        ("a/one.png", "not an image path followed by a label"),
    ],
)
def test_a_line_that_gives_no_image_is_named_and_nothing_is_left(listing, line, what):
    listing.write_text(f"three.jpg 0\n{line}\n")
    with pytest.raises(InputError) as caught:
        write_database(listing.parent / "db", image_records(listing, ImageOptions()))
    assert str(caught.value).startswith(f"{listing}:2: ") and what in str(caught.value)
    assert {path.name for path in listing.parent.iterdir()} == {"a", "three.jpg", "list.txt"}


def test_a_database_that_exists_is_kept(listing):
    made(listing)
    with pytest.raises(InputError, match="exists already"):
        write_database(listing.parent / "db", [])
    assert len(records(listing.parent / "db")) == 3
    write_database(listing.parent / "db", [(b"1", Datum(label=1))], replace=True)
    assert len(records(listing.parent / "db")) == 1


def test_stored_images_are_those_that_an_image_layer_would_read(listing):
    raw = (listing.parent / "three.jpg").read_bytes()
    assert Datum.FromString(made(listing)[2][1]).data == decode(raw, color=True).tobytes()


@pytest.mark.parametrize("ending", ["png", "jpg"])
@pytest.mark.parametrize("gray", [False, True])
def test_images_are_encoded_again_as_opencv_does(listing, ending, gray):
    cv2 = pytest.importorskip("cv2")
    image = cv2.imread(str(listing.parent / "a/one.png"), cv2.IMREAD_GRAYSCALE if gray else cv2.IMREAD_COLOR)
    theirs = cv2.imencode(f".{ending}", cv2.resize(image, (6, 3)))[1].tobytes()
    stored = Datum.FromString(made(listing, size=(3, 6), gray=gray, encode=ending)[0][1])
    assert stored.encoded and (stored.data == theirs or ending == "png")
    assert (decode(stored.data) == decode(theirs)).all() and decode(theirs).shape == (1 if gray else 3, 3, 6)


def test_a_file_whose_format_stays_is_stored_as_it_is(listing):
    (listing.parent / "three.jpg").rename(listing.parent / "three.JPEG")
    listing.write_text("three.JPEG 1\n")
    raw = (listing.parent / "three.JPEG").read_bytes()
    for folder, options in (("c", {"encode": "jpg"}), ("d", {"encoded": True})):
        write_database(listing.parent / folder, image_records(listing, ImageOptions(**options)))
        assert Datum.FromString(records(listing.parent / folder)[0][1]).data == raw


def test_images_of_different_sizes_are_refused_where_sizes_are_checked(listing):
    Image.new("RGB", (7, 6)).save(listing.parent / "a/two of them.png")
    with pytest.raises(InputError, match="is of 3x6x7 after images of 3x5x7; resize them to one size") as caught:
        made(listing, check_size=True)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    "text, labels, what",
    [
        ("a.png 1 2\nb.png 3\n", None, "followed by 2 labels; write it as `path/to/image.jpg 0.5 0.5`"),
        ("a.png 1\n", 2, "followed by 2 labels"),
        ("a.png\n", None, "followed by a label"),
        ("a.png nan\n", None, "has the labels nan, which are not all finite"),
        ("a.png 1e39 2\n", None, "not all finite in fp32"),
    ],
)
def test_labels_that_cannot_be_are_named_with_their_line(tmp_path, text, labels, what):
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(InputError, match=what) as caught:
        [*label_records(tmp_path / "list.txt", labels, None)]
    assert caught.value.line == text.count("\n")


def test_a_path_may_end_in_numbers_where_the_count_of_labels_is_given(tmp_path):
    (tmp_path / "list.txt").write_text("image 7 0.5\n")
    ((key, datum),) = label_records(tmp_path / "list.txt", 1, None)
    assert key == b"00000000_image 7" and list(datum.float_data) == [0.5]


@pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
def test_a_database_may_have_a_name_that_is_not_utf_8(listing, backend):
    folder = listing.parent / os.fsdecode(b"db\xff")
    assert write_database(folder, image_records(listing, ImageOptions()), backend=backend) == 3
    source = open_database(folder, labels=True)
    assert source.read(3)[1].tolist() == [4, 5, 6]
    source.close()


def test_a_folder_that_cannot_be_written_is_named_with_the_reason_of_the_system(listing, monkeypatch):
    def refused(path, *arguments, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.mkdir", refused)
    with pytest.raises(InputError, match="db: cannot be written: Permission denied; use another path"):
        write_database(listing.parent / "db", image_records(listing, ImageOptions()))
