"""Scripts that make the calls of public ones written for pycaffe, in their order, with nets and data of our own.

Each is a file that `python -m layermem.caffe` runs; it names the script that it follows.
"""

from __future__ import annotations

import sys
import textwrap

import numpy as np
import pytest

import layermem
from layermem.caffe import modes
from layermem.caffe.__main__ import main
from layermem.graph.net import Net as GraphNet
from layermem.graph.net import NetOptions
from layermem.proto.read import read_net
from tests.caffe.nets import CLASSES, write_files


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a script in a folder with a net, its weights, an image and a mean."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in {"_mode": "cpu", "_number": 0, "_seed": None, "_options": {}, "_noted": set()}.items():
        monkeypatch.setattr(modes, name, value)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))

    def run_script(text, *arguments):
        (tmp_path / "script.py").write_text(textwrap.dedent(text))
        try:
            assert main(["script.py", *arguments]) == 0
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == "caffe"]:
                del sys.modules[name]
        return tmp_path

    return run_script


CLASSIFY = """
    # BVLC/caffe python/classify.py
    import sys
    import numpy as np
    import caffe
    mean = np.load("mean.npy").mean(1).mean(1)
    caffe.set_mode_cpu()
    classifier = caffe.Classifier("deploy.prototxt", "weights.caffemodel", image_dims=[16, 16], mean=mean,
                                  input_scale=None, raw_scale=255.0, channel_swap=[2, 1, 0])
    inputs = [caffe.io.load_image(name) for name in sys.argv[2:]]
    predictions = classifier.predict(inputs, not False)
    np.save(sys.argv[1], predictions)
"""


def test_classify_an_image(run):
    folder = run(CLASSIFY, "out.npy", "cat.png", "cat.png")
    predictions = np.load(folder / "out.npy")
    assert predictions.shape == (2, CLASSES) and np.array_equal(predictions[0], predictions[1])
    np.testing.assert_allclose(predictions.sum(axis=1), 1, rtol=1e-6)


CAFFENET = """
    # BVLC/caffe examples/pycaffe/caffenet.py
    from __future__ import print_function
    from caffe import layers as L, params as P, to_proto
    from caffe.proto import caffe_pb2

    def conv_relu(bottom, ks, nout, stride=1, pad=0, group=1):
        conv = L.Convolution(bottom, kernel_size=ks, stride=stride, num_output=nout, pad=pad, group=group)
        return conv, L.ReLU(conv, in_place=True)

    def net(lmdb, batch_size, include_acc=False):
        data, label = L.Data(source=lmdb, backend=P.Data.LMDB, batch_size=batch_size, ntop=2,
            transform_param=dict(crop_size=12, mean_value=[104, 117, 123], mirror=True))
        conv1, relu1 = conv_relu(data, 3, 8, stride=2)
        pool1 = L.Pooling(relu1, pool=P.Pooling.MAX, kernel_size=3, stride=2)
        norm1 = L.LRN(pool1, local_size=5, alpha=1e-4, beta=0.75)
        conv2, relu2 = conv_relu(norm1, 3, 4, pad=1, group=2)
        fc = L.InnerProduct(L.Dropout(relu2, in_place=True), num_output=10)
        loss = L.SoftmaxWithLoss(fc, label)
        return to_proto(loss, L.Accuracy(fc, label)) if include_acc else to_proto(loss)

    with open("train.prototxt", "w") as f:
        print(net("/path/to/lmdb", 256), file=f)
    with open("test.prototxt", "w") as f:
        print(net("/path/to/lmdb", 50, include_acc=True), file=f)
"""


def test_write_a_net(run):
    folder = run(CAFFENET)
    shapes = {"Data1": (50, 3, 12, 12), "Data2": (50,)}
    net = GraphNet(read_net(folder / "test.prototxt"), 1, NetOptions(inputs=shapes))
    names = (
        "Data1 Convolution1 ReLU1 Pooling1 LRN1 Convolution2 ReLU2 Dropout1 InnerProduct1 SoftmaxWithLoss1 Accuracy1"
    )
    assert [layer.name for layer in net.layers] == names.split()
    assert len(read_net(folder / "train.prototxt").message.layer) == len(net.layers) - 1


INFER = """
    # shelhamer/fcn.berkeleyvision.org infer.py
    import numpy as np
    from PIL import Image
    import caffe
    im = Image.open("cat.png")
    in_ = np.array(im, dtype=np.float32)
    in_ = in_[:, :, ::-1]
    in_ -= np.array((104.00698793, 116.66876762, 122.67891434))
    in_ = in_.transpose((2, 0, 1))
    net = caffe.Net("deploy.prototxt", "weights.caffemodel", caffe.TEST)
    net.blobs["data"].reshape(1, *in_.shape)
    net.blobs["data"].data[...] = in_
    net.forward()
    out = net.blobs["conv1"].data[0].argmax(axis=0)
    np.save("out.npy", out)
"""


def test_infer_an_image_of_another_size(run):
    assert np.load(run(INFER) / "out.npy").shape == (18, 28)


DREAM = """
    # google/deepdream dream.ipynb: make_step and objective_L2
    import numpy as np
    import caffe
    from google.protobuf import text_format

    model = caffe.io.caffe_pb2.NetParameter()
    with open("deploy.prototxt") as f:
        text_format.Merge(f.read(), model)
    model.force_backward = True
    with open("tmp.prototxt", "w") as f:
        f.write(str(model))
    net = caffe.Classifier("tmp.prototxt", "weights.caffemodel", mean=np.float32([104.0, 116.0, 122.0]),
                           channel_swap=(2, 1, 0))

    def preprocess(net, img):
        return np.float32(np.rollaxis(img, 2)[::-1]) - net.transformer.mean["data"]

    def deprocess(net, img):
        return np.dstack((img + net.transformer.mean["data"])[::-1])

    def objective_L2(dst):
        dst.diff[:] = dst.data

    def make_step(net, step_size=1.5, end="pool1", jitter=2, clip=True, objective=objective_L2):
        src = net.blobs["data"]
        dst = net.blobs[end]
        ox, oy = np.random.randint(-jitter, jitter + 1, 2)
        src.data[0] = np.roll(np.roll(src.data[0], ox, -1), oy, -2)
        net.forward(end=end)
        energies.append(float((dst.data ** 2).sum()))
        objective(dst)
        net.backward(start=end)
        g = src.diff[0]
        src.data[:] += step_size / np.abs(g).mean() * g
        src.data[0] = np.roll(np.roll(src.data[0], -ox, -1), -oy, -2)
        bias = net.transformer.mean["data"]
        src.data[:] = np.clip(src.data, -bias, 255 - bias)

    np.random.seed(0)
    energies = []
    image = np.float32(np.random.uniform(size=(14, 14, 3)) + 100.0)
    src = net.blobs["data"]
    src.reshape(1, 3, 14, 14)
    src.data[0] = preprocess(net, image)
    for _ in range(6):
        make_step(net)
    np.savez("out.npz", energies=energies, image=deprocess(net, src.data[0]))
"""


def test_dream(run):
    out = np.load(run(DREAM) / "out.npz")
    assert np.all(np.diff(out["energies"]) > 0) and out["image"].shape == (14, 14, 3)


SURGERY = """
    # BVLC/caffe examples/net_surgery.ipynb: a classifier as a fully convolutional net
    import numpy as np
    import caffe
    from caffe import layers as L
    net = caffe.Net("deploy.prototxt", "weights.caffemodel", caffe.TEST)
    print("blobs {}\\nparams {}".format(net.blobs.keys(), net.params.keys()))
    im = np.array(caffe.io.load_image("cat.png", color=True)).transpose(2, 0, 1)[np.newaxis]
    net.blobs["data"].reshape(*im.shape)
    net.blobs["data"].data[...] = im
    net.params["conv1"][0].data[0, :] = 1.0 / 9
    net.forward()
    before = np.array(net.blobs["conv1"].data[0, 0])
    net.params["conv1"][1].data[0] = 1.0
    net.forward()
    after = np.array(net.blobs["conv1"].data[0, 0])

    n = caffe.NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 3, 20, 30]))
    n.conv1 = L.Convolution(n.data, kernel_size=3, num_output=4)
    n.fc_conv = L.Convolution(n.conv1, kernel_size=1, num_output=5)
    with open("full_conv.prototxt", "w") as f:
        f.write(str(n.to_proto()))
    full = caffe.Net("full_conv.prototxt", "weights.caffemodel", caffe.TEST)
    fc_params = {pr: (net.params[pr][0].data, net.params[pr][1].data) for pr in ["fc"]}
    conv_params = {pr: (full.params[pr][0].data, full.params[pr][1].data) for pr in ["fc_conv"]}
    for pr, pr_conv in zip(["fc"], ["fc_conv"]):
        conv_params[pr_conv][0].flat = fc_params[pr][0].flat
        conv_params[pr_conv][1][...] = fc_params[pr][1]
    full.save("full_conv.caffemodel")
    transformer = caffe.io.Transformer({"data": full.blobs["data"].data.shape})
    transformer.set_mean("data", np.load("mean.npy").mean(1).mean(1))
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_channel_swap("data", (2, 1, 0))
    transformer.set_raw_scale("data", 255.0)
    image = caffe.io.load_image("cat.png")
    out = full.forward_all(data=np.asarray([transformer.preprocess("data", image)]))
    np.savez("out.npz", before=before, after=after, heat=out["fc_conv"][0], weights=net.params["fc"][0].data)
"""


def test_net_surgery(run):
    folder = run(SURGERY)
    out = np.load(folder / "out.npz")
    np.testing.assert_allclose(out["after"], out["before"] + 1, rtol=1e-5)
    assert out["heat"].shape == (CLASSES, 18, 28)
    again = layermem.Net(folder / "full_conv.prototxt", weights=folder / "full_conv.caffemodel")
    assert np.array_equal(again.params["fc_conv"][0].data.ravel(), out["weights"].ravel())


LENET = """
    # BVLC/caffe examples/01-learning-lenet.ipynb
    import numpy as np
    import caffe
    from caffe import layers as L, params as P

    def lenet(batch_size):
        n = caffe.NetSpec()
        n.data = L.DummyData(shape=dict(dim=[batch_size, 1, 8, 8]), data_filler=dict(type="gaussian", std=1))
        n.label = L.DummyData(shape=dict(dim=[batch_size]), data_filler=dict(type="constant", value=3))
        n.conv1 = L.Convolution(n.data, kernel_size=3, num_output=4, weight_filler=dict(type="xavier"))
        n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
        n.ip1 = L.InnerProduct(n.pool1, num_output=10, weight_filler=dict(type="xavier"))
        n.loss = L.SoftmaxWithLoss(n.ip1, n.label)
        return n.to_proto()

    with open("train.prototxt", "w") as f:
        f.write(str(lenet(8)))
    with open("test.prototxt", "w") as f:
        f.write(str(lenet(4)))
    with open("solver.prototxt", "w") as f:
        f.write('train_net: "train.prototxt" test_net: "test.prototxt" test_iter: 2 test_interval: 100 '
                'base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" display: 0 max_iter: 100 random_seed: 5')

    caffe.set_mode_cpu()
    solver = None
    solver = caffe.SGDSolver("solver.prototxt")
    print([(k, v.data.shape) for k, v in solver.net.blobs.items()])
    print([(k, v[0].data.shape) for k, v in solver.net.params.items()])
    solver.net.forward()
    solver.test_nets[0].forward()
    solver.step(1)
    filters = np.array(solver.net.params["conv1"][0].diff[:, 0])
    niter = 8
    train_loss = np.zeros(niter)
    output = np.zeros((niter, 4, 10))
    for it in range(niter):
        solver.step(1)
        train_loss[it] = solver.net.blobs["loss"].data
        solver.test_nets[0].forward(start="conv1")
        output[it] = solver.test_nets[0].blobs["ip1"].data[:4]
        if it % 4 == 0:
            solver.test_nets[0].forward()
            correct = sum(solver.test_nets[0].blobs["ip1"].data.argmax(1) == solver.test_nets[0].blobs["label"].data)
    np.savez("out.npz", filters=filters, loss=train_loss, output=output, iter=solver.iter)
"""


def test_learn_lenet(run):
    out = np.load(run(LENET) / "out.npz")
    assert out["iter"] == 9 and out["loss"][-1] < out["loss"][0] and np.any(out["filters"])
    assert np.all(out["output"][-1].argmax(axis=1) == 3)
