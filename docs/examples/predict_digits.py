"""From data to a prediction: train on the digits, save the weights, and classify the test images.

python docs/examples/predict_digits.py [iterations]
"""

import sys
import tempfile
from pathlib import Path

import lmdb
import numpy as np

import layermem
from layermem.proto.schema import Datum

FOLDER = Path(__file__).parents[2] / "prototxt/digits"
# The layers of train_val.prototxt between the data and the loss, with an input and probabilities.
DEPLOY = """
name: "digits"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 32 dim: 1 dim: 8 dim: 8 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
        convolution_param { num_output: 20 kernel_size: 3 pad: 1 } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
        convolution_param { num_output: 50 kernel_size: 3 pad: 1 } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool2" top: "ip1" inner_product_param { num_output: 100 } }
layer { name: "relu3" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 10 } }
layer { name: "prob" type: "Softmax" bottom: "ip2" top: "prob" }
"""


def test_images() -> tuple[np.ndarray, np.ndarray]:
    """The images [N,1,8,8], grey levels of 0 to 16, and their labels."""
    images, labels = [], []
    with lmdb.open(str(FOLDER / "digits_test_lmdb"), readonly=True, lock=False) as database, database.begin() as reader:
        for _, value in reader.cursor():
            datum = Datum.FromString(value)
            images.append(layermem.io.datum_to_array(datum))
            labels.append(datum.label)
    return np.stack(images), np.array(labels)


def main(iterations: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "digits.npz"
        with layermem.Solver(FOLDER / "solver.prototxt", budget="50%") as solver:
            solver.step(iterations)
            values = solver.parameters()
        np.savez(weights, **{f"{layer}/{i}": blob for layer, blobs in values.items() for i, blob in enumerate(blobs)})

        net = layermem.Net.from_text(DEPLOY, weights=weights)
        images, labels = test_images()
        scores = net.predict(images * 0.0625)  # the scale of the data layer; any number of items, in batches
    print(f"scores {scores.shape}, accuracy {np.mean(scores.argmax(axis=1) == labels):.3f}")
    for number in range(3):
        print(f"image {number}: digit {scores[number].argmax()}, really {labels[number]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
