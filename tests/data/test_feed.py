import numpy as np
import pytest

from layermem.data import open_feed
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.proto.schema import TEST, TRAIN
from tests.data.makers import datum, digits_like, images, layer, make_lmdb

DATA = (
    'name: "data" type: "Data" top: "data" top: "label" data_param {{ source: "{}" batch_size: {} backend: LMDB {} }}'
)
NOISE = """
    name: "noise" type: "DummyData" top: "a" top: "b"
    dummy_data_param {
        shape { dim: 2 dim: 3 } shape { dim: 2 }
        data_filler { type: "gaussian" } data_filler { type: "constant" value: 4 }
    }
"""


def opened(text: str, phase: int = TRAIN, seed: int = 1, prefetch: bool = False, path: str = "net.prototxt"):
    return open_feed(layer(text), phase, seed, path=path, prefetch=prefetch)


def data(folder, batch: int = 3, more: str = "", rest: str = "") -> str:
    return DATA.format(folder, batch, more) + rest


def test_a_data_layer_states_its_shapes_and_yields_images_and_labels(tmp_path):
    folder, pixels = digits_like(tmp_path / "db")
    feed = opened(data(folder))
    assert feed.shapes == ((3, 3, 6, 5), (3,))
    feed.next()
    x, label = feed.next()
    assert x.dtype == label.dtype == np.float32 and label.tolist() == [3, 4, 5]
    assert np.array_equal(x, pixels[3:6].astype(np.float32))
    feed.close()


def test_a_data_layer_with_one_top_yields_no_labels(tmp_path):
    folder = make_lmdb(tmp_path / "db", [datum(images(1)[0], None)])
    feed = opened(data(folder).replace('top: "label"', ""))
    assert feed.shapes == ((3, 3, 6, 5),) and len(feed.next()) == 1
    feed.close()


def test_a_random_skip_belongs_to_the_seed(tmp_path):
    folder, _ = digits_like(tmp_path / "db", count=40)
    starts = []
    for seed in (1, 1, 2, 3, 4):
        feed = opened(data(folder, more="rand_skip: 30"), seed=seed)
        starts.append(feed.next()[1][0])
        feed.close()
    assert starts[0] == starts[1] and len(set(starts)) > 2 and max(starts) < 30


def image_list(tmp_path) -> str:
    from PIL import Image

    for index, image in enumerate(images(5, height=8, width=8)):
        Image.fromarray(image.transpose(1, 2, 0).copy()).save(tmp_path / f"{index}.png")
    (tmp_path / "list.txt").write_text("".join(f"{tmp_path}/{i}.png {i}\n" for i in range(5)))
    return f"""name: "data" type: "ImageData" top: "data" top: "label" transform_param {{ crop_size: 6 mirror: true }}
               image_data_param {{ source: "{tmp_path}/list.txt" batch_size: 3 shuffle: true }}"""


def hdf5(tmp_path) -> str:
    import h5py

    with h5py.File(tmp_path / "a.h5", "w") as h5:
        h5["x"], h5["y"] = images(7), np.arange(7)
    (tmp_path / "list.txt").write_text("a.h5\n")
    return f"""name: "h" type: "HDF5Data" top: "x" top: "y"
               hdf5_data_param {{ source: "{tmp_path}/list.txt" batch_size: 3 shuffle: true }}"""


def lmdb(tmp_path) -> str:
    return data(digits_like(tmp_path / "db")[0], rest="transform_param { crop_size: 4 mirror: true }")


KINDS = {"lmdb": lmdb, "images": image_list, "hdf5": hdf5, "noise": lambda tmp_path: NOISE}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefetch", [False, True])
def test_a_feed_goes_past_batches_as_if_it_had_read_them(tmp_path, kind, prefetch):
    text = KINDS[kind](tmp_path)
    feed, other = opened(text, prefetch=prefetch), opened(text, prefetch=False)
    for batches in (1, 0, 4, 2):
        feed.next(), other.next()
        feed.skip(batches)
        for _ in range(batches):
            other.next()
        assert feed.state() == other.state()
        assert all(map(np.array_equal, feed.next(), other.next()))
    feed.close(), other.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_share_the_batches_of_one_feed_and_have_its_positions(tmp_path, kind, prefetch, size):
    text = KINDS[kind](tmp_path)
    alone = opened(text)
    feeds = [
        open_feed(layer(text), TRAIN, 1, path="net.prototxt", prefetch=prefetch, ranks=Ranks(rank, size, size))
        for rank in range(size)
    ]
    for _ in range(4):
        for feed in feeds:
            assert all(map(np.array_equal, feed.next(), alone.next()))
        assert all(feed.state() == alone.state() for feed in feeds)
    for feed in (alone, *feeds):
        feed.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_resumed_feed_yields_the_same_bits(tmp_path, kind, prefetch, taken):
    text = KINDS[kind](tmp_path)
    feed = opened(text, prefetch=prefetch)
    for _ in range(taken):
        feed.next()
    state = feed.state()
    expected = [feed.next() for _ in range(4)]
    feed.close()
    other = opened(text, prefetch=not prefetch)
    other.next()
    other.restore(state)
    for batch in expected:
        assert all(np.array_equal(a, b) for a, b in zip(other.next(), batch))
    other.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_feed_is_its_seed_its_layer_and_its_phase(tmp_path, kind):
    text = KINDS[kind](tmp_path)

    def first(phase: int, seed: int, name: str = "") -> list[np.ndarray]:
        param = layer(text)
        param.name = name or param.name
        feed = open_feed(param, phase, seed, path="net.prototxt", prefetch=False)
        batches = [array for _ in range(4) for array in feed.next()]
        feed.close()
        return batches

    def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
        return all(np.array_equal(x, y) for x, y in zip(a, b))

    once = first(TRAIN, 1)
    assert same(once, first(TRAIN, 1))
    assert not same(once, first(TRAIN, 2))
    assert not same(once, first(TEST, 1))
    assert not same(once, first(TRAIN, 1, "other"))


def test_dummy_data_refills_what_is_not_constant():
    feed = opened(NOISE)
    (a1, b1), (a2, b2) = feed.next(), feed.next()
    assert feed.shapes == ((2, 3), (2,)) and not np.array_equal(a1, a2)
    assert b1.tolist() == b2.tolist() == [4, 4]
    with pytest.raises(ValueError, match="read-only"):
        b1[0] = 1


def test_dummy_data_may_state_four_numbers_and_no_filler():
    feed = opened('name: "d" type: "DummyData" top: "a" dummy_data_param { num: 2 channels: 3 height: 4 width: 5 }')
    assert feed.shapes == ((2, 3, 4, 5),) and not feed.next()[0].any()


def test_arrays_given_to_an_input_are_cut_into_batches_round_and_round():
    feed = opened('name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } }')
    x, y = np.arange(12).reshape(4, 3), np.arange(4)
    feed.give(x, y)
    assert feed.next()[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    state = feed.state()
    assert feed.next()[1].tolist() == [2, 3]
    assert feed.next()[1].tolist() == [0, 1]
    feed.restore(state)
    assert feed.next()[1].tolist() == [2, 3]


def test_memory_data_takes_images_and_labels():
    size = "batch_size: 2 channels: 3 height: 6 width: 5"
    feed = opened(f'name: "m" type: "MemoryData" top: "d" top: "l" memory_data_param {{ {size} }}')
    assert feed.shapes == ((2, 3, 6, 5), (2,))
    feed.give(images(4), np.arange(4).reshape(4, 1, 1, 1))
    assert feed.next()[1].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ([np.zeros((2, 3))], "takes 2 arrays"),
        ([np.zeros((3, 3)), np.zeros(2)], "whole batches of .* for 'x'"),
        ([np.zeros((0, 3)), np.zeros(2)], "whole batches"),
        ([np.zeros((3, 2)), np.zeros(2)], "whole batches"),
        ([np.zeros((4, 3)), np.zeros(2)], "2 for 'x', 1 for 'y'"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays, words):
    feed = opened('name: "in" type: "Input" top: "x" top: "y" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } }')
    with pytest.raises(InputError, match=words):
        feed.give(*arrays)


def test_an_input_without_arrays_says_so():
    feed = opened('name: "in" type: "Input" top: "x" input_param { shape { dim: 2 } }')
    with pytest.raises(InputError, match=r"layer 'in' has no data yet; give arrays in Python, solver.give\(x=...\)"):
        feed.next()


def test_sizes_that_change_from_batch_to_batch_are_refused(tmp_path):
    pixels = [*images(3), *images(3, height=7)]
    feed = opened(data(make_lmdb(tmp_path / "db", map(datum, pixels))))
    feed.next()
    with pytest.raises(InputError, match=r"net.prototxt: layer 'data' has an image of 3x7x5 after images of 3x6x5"):
        feed.next()
    feed.close()


def test_an_error_of_a_record_names_the_data_set_and_the_layer(tmp_path):
    folder = make_lmdb(tmp_path / "db", [datum(images(1)[0]), datum(images(1)[0], None)])
    feed = opened(data(folder))
    with pytest.raises(InputError, match=f"{folder}: layer 'data' .*has no label"):
        feed.next()
    feed.close()
