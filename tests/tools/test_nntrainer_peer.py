"""tools/nntrainer_peer.py: a net of Caffe becomes a chain of nntrainer's layers, or is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.bench_cpu import net_of
from tools.cpu.description import describe
from tools.nntrainer_peer import MODES, chain_of, lines_of

ROOT = Path(__file__).resolve().parents[2]
WINDOW = {"kernel": [3, 3], "stride": [2, 2], "pad": [0, 0]}
POOL = {"name": "p", "type": "Pooling", "method": "MAX", **WINDOW}
CONV = {"name": "c", "type": "Convolution", "outputs": 8, "group": 1, "bias": False, "dilation": [1, 2], **WINDOW}

# A nntrainer_steps that prints its arguments and the chain.
FAKE = """#!{python}
import json, os, sys
print(json.dumps([sys.argv[2:], open(sys.argv[1]).read().splitlines(), os.environ["OPENBLAS_NUM_THREADS"]]))
sys.exit(3)
"""


def test_lenet_is_a_chain_with_a_flatten_before_its_first_inner_product():
    assert chain_of(describe(net_of("mnist:2"))) == [
        "input name=data input_shape=1:28:28",
        "conv2d name=conv1 filters=20 kernel_size=5,5 dilation=1,1 stride=1,1 padding=0,0 disable_bias=false",
        "pooling2d name=pool1 pooling=max pool_size=2,2 stride=2,2 padding=0,0",
        "conv2d name=conv2 filters=50 kernel_size=5,5 dilation=1,1 stride=1,1 padding=0,0 disable_bias=false",
        "pooling2d name=pool2 pooling=max pool_size=2,2 stride=2,2 padding=0,0",
        "flatten name=ip1/flatten",
        "fully_connected name=ip1 unit=500 disable_bias=false",
        "activation name=relu1 activation=relu",
        "fully_connected name=ip2 unit=10 disable_bias=false",
        "cross_softmax name=loss",
    ]


def test_vgg16_is_a_chain_whose_last_images_are_7x7():
    description = describe(net_of("vgg16:1"))
    shape = [3, 224, 224]
    images = [list(shape) for layer in description["layers"] if lines_of(layer, shape) and len(shape) == 3]
    assert images[-1] == [512, 7, 7] and shape == [1000]
    assert [line.split()[0] for line in chain_of(description)][-8:] == [
        *("fully_connected", "activation", "dropout"),
        *("fully_connected", "activation", "dropout"),
        *("fully_connected", "cross_softmax"),
    ]


def test_a_convolution_moves_its_dilated_window_while_that_fits():
    shape = [3, 10, 12]
    (line,) = lines_of(CONV, shape)
    assert shape == [8, 4, 4]  # windows of 3 rows and 5 columns: (10 - 3) // 2 + 1, (12 - 5) // 2 + 1
    assert "kernel_size=3,3 dilation=1,2 stride=2,2" in line and line.endswith("disable_bias=true")


def test_a_pool_is_accepted_only_where_caffe_does_not_round_up():
    shape = [3, 7, 9]
    assert lines_of(POOL, shape) and shape == [3, 3, 4]
    with pytest.raises(SystemExit, match="layer 'p' has a window that ends beyond its image"):
        lines_of(POOL, [3, 7, 8])


@pytest.mark.parametrize(
    "layer",
    [
        {**CONV, "group": 2},
        {**POOL, "method": "AVE"},
        {"name": "n", "type": "LRN"},
        {"name": "l", "type": "SoftmaxWithLoss", "weight": 0.5},
    ],
)
def test_a_layer_that_nntrainer_lacks_is_refused(layer):
    with pytest.raises(SystemExit, match=f"layer '{layer['name']}' of type {layer['type']} is not supported"):
        lines_of(layer, [10])


def test_a_net_with_a_branch_is_refused():
    with pytest.raises(SystemExit, match="so the net is no chain"):
        chain_of(describe(net_of("squeezenet10:1")))


def peer(folder, *words, packages):
    """Run the tool with a fake driver, in an environment where pkg-config finds nntrainer or does not."""
    driver, net = folder / "driver", folder / "net.json"
    net.write_text(json.dumps(describe(net_of("mnist:2"))))
    driver.write_text(FAKE.format(python=sys.executable))
    driver.chmod(0o755)
    (folder / "pkg-config").write_text(f"#!/bin/sh\n{'true' if packages else 'false'}\n")
    (folder / "pkg-config").chmod(0o755)
    command = [sys.executable, "tools/nntrainer_peer.py", str(net), "--driver", str(driver), *words]
    return subprocess.run(command, cwd=ROOT, env={"PATH": f"{folder}"}, capture_output=True, text=True)


@pytest.mark.parametrize("mode", MODES)
def test_the_driver_is_given_the_chain_and_the_sizes_and_its_exit_code_is_kept(tmp_path, mode):
    ended = peer(tmp_path, "--mode", mode, "--steps", "4", "--threads", "3", packages=True)
    assert ended.returncode == 3, ended.stderr
    words, chain, threads = json.loads(ended.stdout)
    assert words == ["4", "2", "784", "10", *MODES[mode]] and threads == "3"
    assert chain == chain_of(describe(net_of("mnist:2")))


def test_without_nntrainer_the_tool_says_what_is_missing(tmp_path):
    ended = peer(tmp_path, packages=False)
    assert ended.returncode == 2 and "pkg-config does not find ccapi-ml-training and nntrainer" in ended.stderr
