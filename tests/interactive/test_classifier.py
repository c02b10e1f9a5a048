"""Classes of images: resizing, crops and means, against the net itself."""

import inspect

import numpy as np
import pytest

import layermem
from layermem.errors import InputError
from layermem.io import resize_image
from tests.caffe.nets import CLASSES, SIZE, deploy

MEAN = np.array([10.0, 20.0, 30.0])


@pytest.fixture
def classifier():
    return layermem.Classifier(deploy(), None, (SIZE + 4, SIZE + 2), MEAN, 0.5, 255, (2, 1, 0), seed=3)


def prepared(crop):
    """The input of the net for a crop [H,W,3]: blue, green, red in [0, 255], less the mean, halved."""
    return ((crop[:, :, ::-1].transpose(2, 0, 1) * np.float32(255) - MEAN[:, None, None]) * 0.5).astype(np.float32)


@pytest.fixture
def images(rng):
    return [rng.random(shape).astype(np.float32) for shape in ((20, 30, 3), (9, 9, 3), (SIZE, SIZE, 3))]


def test_without_oversampling_it_is_the_centre(classifier, images):
    net = layermem.Net(deploy(), "TEST", seed=3)
    crops = [resize_image(each, (SIZE + 4, SIZE + 2))[2:-2, 1:-1] for each in images]
    expected = net.predict(np.stack([prepared(each) for each in crops]))
    np.testing.assert_allclose(classifier.predict(images, oversample=False), expected, rtol=1e-5)


def test_oversampling_is_the_mean_of_ten_crops(classifier, images):
    net = layermem.Net(deploy(), "TEST", seed=3)
    predictions = classifier.predict(images)
    assert predictions.shape == (3, CLASSES)
    crops = layermem.io.oversample([resize_image(images[0], (SIZE + 4, SIZE + 2))], (SIZE, SIZE))
    expected = net.predict(np.stack([prepared(each) for each in crops])).mean(axis=0)
    np.testing.assert_allclose(predictions[0], expected, rtol=1e-5)


def test_a_budget_changes_no_bit(images):
    free = layermem.Classifier(deploy(), seed=3)
    small = layermem.Classifier(deploy(), seed=3, budget="16KiB")
    assert np.array_equal(free.predict(images), small.predict(images))
    assert 0 < small.measured_peak_bytes <= small.report.peak_bytes <= 16 * 1024


def test_images_that_cannot_be_classified_are_refused(classifier):
    with pytest.raises(InputError, match="there are no images to classify; give one or more"):
        classifier.predict([])
    with pytest.raises(InputError, match="image_dims 8x8 is smaller than the input of the net; give 12x12 or more"):
        layermem.Classifier(deploy(), image_dims=(8, 8))
    with pytest.raises(InputError, match=r"has no Input layer with a blob of shape \[N,K,H,W\]; use a deploy net"):
        layermem.Classifier("prototxt/mnist/train_val.prototxt", inputs={"data": (2, 1, 28, 28)})


def test_its_arguments_are_those_of_pycaffe():
    names = [*inspect.signature(layermem.Classifier).parameters]
    assert names[:3] == ["model_file", "pretrained_file", "image_dims"] and "raw_scale" in names
