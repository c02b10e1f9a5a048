"""The LMDBs of the digits, and the tools that make LMDBs."""

import gzip
import struct
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from layermem.data.lmdb_database import LmdbSource

ROOT = Path(__file__).resolve().parents[2]


def read_all(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    source = LmdbSource(folder, labels=True)
    images, labels = source.read(source.length)
    source.close()
    return np.stack(images), labels


def run(tool: str, *arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-B", str(ROOT / "tools" / tool), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})


@pytest.fixture(scope="module")
def digits():
    return {name: read_all(ROOT / f"prototxt/digits/digits_{name}_lmdb") for name in ("train", "test")}


def test_the_digits_are_all_there_and_none_is_in_both_parts(digits):
    train, test = digits["train"][0], digits["test"][0]
    assert train.shape == (1437, 1, 8, 8) and test.shape == (360, 1, 8, 8)
    assert train.max() == test.max() == 16
    parts = [{image.tobytes() for image in images} for images in (train, test)]
    assert len(parts[0]) == 1437 and len(parts[1]) == 360 and not parts[0] & parts[1]


def test_each_digit_is_in_each_part_about_as_often(digits):
    for name, least, most in (("train", 130, 156), ("test", 24, 50)):
        counts = np.bincount(digits[name][1].astype(int), minlength=10)
        assert counts.min() >= least and counts.max() <= most


def test_the_digits_are_those_of_scikit_learn(digits, tmp_path):
    pytest.importorskip("sklearn")
    assert run("make_digits.py", "--out", tmp_path).returncode == 0
    for name, (images, labels) in digits.items():
        again = read_all(tmp_path / f"digits_{name}_lmdb")
        assert np.array_equal(again[0], images) and np.array_equal(again[1], labels)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.samples(2)
@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_goes_from_its_files_into_lmdbs(tmp_path, zipped):
    draw = np.random.default_rng(0)
    made = {}
    for stem, count in (("train", 5), ("t10k", 3)):
        images, labels = draw.integers(0, 256, (count, 28, 28), np.uint8), draw.integers(0, 10, count, np.uint8)
        made[stem] = images, labels
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            file = tmp_path / f"{stem}-{kind}-ubyte"
            file.write_bytes(idx(array))
            if zipped:
                file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
                file.unlink()
    assert run("make_mnist.py", tmp_path, "--out", tmp_path / "out").returncode == 0
    for name, stem in (("train", "train"), ("test", "t10k")):
        images, labels = read_all(tmp_path / f"out/mnist_{name}_lmdb")
        assert np.array_equal(images[:, 0], made[stem][0]) and np.array_equal(labels, made[stem][1])
    assert run("make_mnist.py", tmp_path, "--out", tmp_path / "out", "--pairs").returncode == 0
    for name, stem in (("train", "train"), ("test", "t10k")):
        images, labels = read_all(tmp_path / f"out/mnist_siamese_{name}_lmdb")
        known = {image.tobytes(): label for image, label in zip(*made[stem])}
        assert images.shape == (len(known), 2, 28, 28)
        for (first, second), same in zip(images, labels):
            assert (known[first.tobytes()] == known[second.tobytes()]) == same


def cifar(folder: Path, per_file: int = 4) -> np.ndarray:
    """Batches as published; the records [N, 3073] of the five training files."""
    records = np.random.default_rng(0).integers(0, 256, (6 * per_file, 3073), np.uint8)
    records[:, 0] %= 10
    for index in range(6):
        file = f"data_batch_{index + 1}.bin" if index < 5 else "test_batch.bin"
        (folder / file).write_bytes(records[index * per_file : (index + 1) * per_file].tobytes())
    return records


def test_cifar_goes_from_its_files_into_lmdbs_blue_first(tmp_path):
    records = cifar(tmp_path)
    assert run("make_cifar10.py", tmp_path, "--out", tmp_path / "out").returncode == 0
    images, labels = read_all(tmp_path / "out/cifar10_test_lmdb")
    red_green_blue = records[20:, 1:].reshape(-1, 3, 32, 32)
    assert np.array_equal(images, red_green_blue[:, ::-1]) and np.array_equal(labels, records[20:, 0])
    train, _ = read_all(tmp_path / "out/cifar10_train_lmdb")
    expected = records[:20, 1:].reshape(-1, 3, 32, 32)[:, ::-1]
    assert sorted(image.tobytes() for image in train) == sorted(image.tobytes() for image in expected)


def test_cifar_training_images_may_carry_a_border(tmp_path):
    cifar(tmp_path)
    assert run("make_cifar10.py", tmp_path, "--out", tmp_path / "out", "--pad", 4).returncode == 0
    train, _ = read_all(tmp_path / "out/cifar10_train_pad4_lmdb")
    assert train.shape == (20, 3, 40, 40) and not train[:, :, :4].any() and train[:, :, 4:-4, 4:-4].any()
    assert read_all(tmp_path / "out/cifar10_test_lmdb")[0].shape == (4, 3, 32, 32)


@pytest.mark.samples(2)
@pytest.mark.parametrize("tool", ["make_mnist.py", "make_cifar10.py"])
def test_files_that_are_missing_or_junk_are_named_in_a_sentence(tool, tmp_path):
    done = run(tool, tmp_path, "--out", tmp_path / "out")
    assert done.returncode == 1 and "No such file" in done.stderr and "Traceback" not in done.stderr
    for name in ("train-images-idx3-ubyte", "data_batch_1.bin"):
        (tmp_path / name).write_bytes(b"\0\0\1")
    done = run(tool, tmp_path, "--out", tmp_path / "out")
    assert done.returncode == 1 and "Traceback" not in done.stderr and not (tmp_path / "out").exists()


def test_words_are_numbered_by_frequency_and_streams_lie_side_by_side(tmp_path):
    (tmp_path / "train.txt").write_text("b a b\nb a c d\n")  # b 3, a 2, <eos> 2, c, d
    (tmp_path / "test.txt").write_text("a b <unk>\nnew b\n")
    made = run(
        "make_words.py",
        tmp_path / "train.txt",
        tmp_path / "test.txt",
        "--out",
        tmp_path / "out",
        "--words",
        5,
        "--streams",
        2,
    )
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "out/words.txt").read_text().split() == ["<unk>", "b", "a", "<eos>", "c"]
    assert (tmp_path / "out/train.txt").read_text() == f"{tmp_path / 'out/train.h5'}\n"
    with h5py.File(tmp_path / "out/train.h5") as file:  # b a b <eos> b a c d <eos>
        assert file["word"][:].T.tolist() == [[1, 2, 1, 3], [1, 2, 4, 0]]
        assert file["next"][:].T.tolist() == [[2, 1, 3, 1], [2, 4, 0, 3]]
        assert file["cont"][:].tolist() == [[0, 0], [1, 1], [1, 1], [1, 1]]
        assert {file[name].dtype for name in file} == {np.dtype(np.float32)}
    with h5py.File(tmp_path / "out/test.h5") as file:  # a b <unk> <eos> <unk> b <eos>
        assert file["word"][:].T.tolist() == [[2, 1, 0], [3, 0, 1]]
    short = run("make_words.py", tmp_path / "train.txt", tmp_path / "test.txt", "--out", tmp_path / "out")
    assert short.returncode == 1 and "a text of 9 words is too short for 20 streams" in short.stderr
    missing = run("make_words.py", tmp_path / "no.txt", tmp_path / "test.txt")
    assert missing.returncode == 1 and "no.txt cannot be read as text" in missing.stderr
