"""Predictions equal those of layermem.Net, of `layermem test`, and of OpenCV."""

import numpy as np
import pytest
from google.protobuf import text_format
from PIL import Image

import layermem
from layermem.cli.main import main
from layermem.data.items import Item, Unreadable, read_items
from layermem.data.preprocess import Stated
from layermem.errors import InputError
from layermem.graph.net import NetOptions
from layermem.interactive.predictor import Predictor
from layermem.proto.weights import write_weights

DIGITS = "prototxt/digits/train_val.prototxt"
TEST_SET = "prototxt/digits/digits_test_lmdb"
COLOR = """
    name: "color"
    layer { name: "data" type: "ImageData" top: "data" top: "label"
            transform_param { crop_size: 8 mean_value: [104, 117, 123] scale: 0.02 mirror: true }
            image_data_param { source: "list.txt" batch_size: 3 new_height: 12 new_width: 10 } }
    layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 6 kernel_size: 3
            weight_filler { type: "msra" } bias_filler { type: "constant" value: 0.1 } } }
    layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
    layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
    layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc"
            inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights of the digits net after 60 iterations."""
    path = tmp_path_factory.mktemp("digits") / "digits.caffemodel"
    with layermem.Solver("prototxt/digits/solver.prototxt", iterations=60) as solver:
        solver.step(60)
        write_weights(path, "digits", {name: ("", blobs) for name, blobs in solver.parameters().items()})
    return str(path)


@pytest.fixture
def photos(tmp_path, monkeypatch, rng):
    """The color net with weights, and five photos with their list."""
    monkeypatch.chdir(tmp_path)
    for index in range(5):
        Image.fromarray(rng.integers(0, 256, (17 + index, 23, 3)).astype(np.uint8)).save(f"{index}.png")
    (tmp_path / "list.txt").write_text("".join(f"{index}.png {index % 4}\n" for index in range(5)))
    (tmp_path / "net.prototxt").write_text(COLOR)
    layermem.Net("net.prototxt", "TEST", seed=3).save("color.caffemodel")
    return tmp_path


def rows_of(predictor, *paths, blob="prob"):
    return np.stack([each.rows[blob] for each in predictor.images(read_items([*paths], color=predictor.color))])


def test_predictions_of_images_are_those_of_the_data_layer(photos):
    with Predictor("net.prototxt", ["color.caffemodel"], blobs=["fc"]) as predictor:
        rows = rows_of(predictor, "list.txt", blob="fc")
        assert predictor.batch == 3 and predictor.missing == [] and rows.shape == (5, 4)
    text = COLOR.replace("mirror: true", "").replace("batch_size: 3", "batch_size: 5")
    with layermem.Net.from_text(text, "TEST", weights="color.caffemodel") as net:
        net.forward()
        assert np.array_equal(rows, net.blobs["fc"].data)


@pytest.mark.parametrize(("at_most", "batch", "size"), [(2, None, 2), (9, None, 3), (2, 3, 3), (None, None, 3)])
def test_a_batch_is_no_larger_than_the_number_of_items(photos, at_most, batch, size):
    with Predictor("net.prototxt", ["color.caffemodel"], NetOptions(batch), at_most=at_most) as predictor:
        assert predictor.batch == size


def test_the_command_python_and_opencv_give_the_same_for_a_trained_net(weights, tmp_path, capsys):
    cv2 = pytest.importorskip("cv2", reason="needs OpenCV below 5")
    deploy, features = tmp_path / "deploy.prototxt", tmp_path / "f.npz"
    deploy.write_text(text_format.MessageToString(layermem.deploy(DIGITS, batch=60)))
    assert (
        main(
            [
                "predict",
                "--net",
                DIGITS,
                "--weights",
                weights,
                TEST_SET,
                "--blob",
                "ip1",
                "--blob",
                "prob",
                "-o",
                str(features),
            ]
        )
        == 0
    )
    x = np.stack([item.image for item in read_items([TEST_SET], color=False)]).astype(np.float32) * np.float32(0.0625)
    of_command = np.load(features)
    with layermem.Net(deploy, weights=weights) as net:
        for name in ("ip1", "prob"):
            np.testing.assert_array_equal(of_command[name], net.predict(x, name))
    other = cv2.dnn.readNetFromCaffe(str(deploy), weights)
    for begin in range(0, 360, 60):
        other.setInput(x[begin : begin + 60])
        np.testing.assert_allclose(of_command["prob"][begin : begin + 60], other.forward("prob"), atol=1e-4)


def test_predictions_are_those_of_opencv(photos):
    cv2 = pytest.importorskip("cv2", reason="needs OpenCV below 5")
    message = layermem.deploy("net.prototxt", batch=5)
    (photos / "deploy.prototxt").write_text(text_format.MessageToString(message))
    net = cv2.dnn.readNetFromCaffe("deploy.prototxt", "color.caffemodel")
    batch = np.empty((5, 3, 8, 8), np.float32)
    for index in range(5):
        image = cv2.resize(cv2.imread(f"{index}.png"), (10, 12))[2:10, 1:9].astype(np.float32)
        batch[index] = ((image - np.array([104, 117, 123], np.float32)) * 0.02).transpose(2, 0, 1)
    net.setInput(batch)
    wanted = net.forward("prob")
    with Predictor("net.prototxt", ["color.caffemodel"]) as predictor:
        np.testing.assert_allclose(rows_of(predictor, "list.txt"), wanted, atol=1e-4)
    stated = Stated(mean="104,117,123", scale=0.02, size=(12, 10), crop=8)
    with Predictor("deploy.prototxt", ["color.caffemodel"], stated=stated) as predictor:
        np.testing.assert_allclose(rows_of(predictor, "list.txt"), wanted, atol=1e-4)
    with layermem.Net("deploy.prototxt", weights="color.caffemodel") as net:
        np.testing.assert_allclose(net.predict(batch), wanted, atol=1e-4)


def test_accuracy_is_that_of_a_test_phase(weights):
    with layermem.Net(DIGITS, "TEST", weights=weights) as net:
        wanted = [float(net.forward()["accuracy"]) for _ in range(6)]
    with Predictor(DIGITS, [weights]) as predictor:
        results = [*predictor.images(read_items([TEST_SET], color=predictor.color))]
    right = [int(np.argmax(each.rows["prob"])) == each.label for each in results]
    assert len(right) == 360 and np.mean(right) == pytest.approx(np.mean(wanted), abs=1e-6) and np.mean(right) > 0.5


@pytest.mark.parametrize("budget", [None, "100%"])
def test_features_are_those_of_the_blobs_for_any_batch(weights, budget):
    x = np.random.default_rng(0).random((7, 1, 8, 8), np.float32)
    with layermem.Net(layermem.deploy(DIGITS, batch=7), weights=weights) as net:
        net.forward(data=x)
        wanted = {name: np.array(net.blobs[name].data) for name in ("ip1", "prob")}
    for batch in (1, 3, 60):
        with Predictor(DIGITS, [weights], NetOptions(batch), blobs=["ip1", "prob"], budget=budget) as predictor:
            results = [*predictor.arrays((str(i), {"data": each}) for i, each in enumerate(x))]
        assert [each.name for each in results] == [*map(str, range(7))]
        for name, values in wanted.items():
            np.testing.assert_allclose(np.stack([each.rows[name] for each in results]), values, atol=1e-5)


def test_an_image_that_cannot_be_used_is_passed_on_in_its_place(weights):
    good, wide = np.zeros((1, 8, 8), np.uint8), np.zeros((3, 8, 8), np.uint8)
    items = [Item("a", good), Unreadable("b", InputError("is bad")), Item("c", wide), Item("d", good)]
    with Predictor(DIGITS, [weights], NetOptions(2)) as predictor:
        results = [*predictor.images(items)]
    assert [each.name for each in results] == ["a", "b", "c", "d"]
    assert [isinstance(each, Unreadable) for each in results] == [False, True, True, False]
    assert str(results[2].error) == "c: has 3 channels, and the net reads 1; convert it"
    assert np.array_equal(results[0].rows["prob"], results[3].rows["prob"])


def test_impossible_predictions_are_refused(weights, photos):
    with pytest.raises(InputError, match="has no blob 'conv9'; did you mean 'conv'"):
        Predictor("net.prototxt", ["color.caffemodel"], blobs=["conv9"])
    with pytest.raises(InputError, match="use the weights of this net"):
        Predictor("net.prototxt", [weights])
    two = """
        layer { name: "in" type: "Input" top: "a" top: "b" input_param { shape { dim: [2, 3] } shape { dim: [2, 3] } } }
        layer { name: "x" type: "Sigmoid" bottom: "a" top: "x" } layer { name: "y" type: "TanH" bottom: "b" top: "y" }
        layer { name: "z" type: "Sigmoid" bottom: "b" top: "z" }
    """
    (photos / "two.prototxt").write_text(two)
    with pytest.raises(InputError, match="has the outputs x, y, z; choose one with --blob"):
        Predictor("two.prototxt", [])
    with Predictor("two.prototxt", [], blobs=["y"]) as predictor:
        assert predictor.item_shapes == {"a": (3,), "b": (3,)}
        with pytest.raises(InputError, match=r"has the inputs 'a', 'b'; give \.npz files with an array for each"):
            predictor.color  # noqa: B018
