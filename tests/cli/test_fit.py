"""`layermem fit`."""

import json

NET = "prototxt/digits/train_val.prototxt"
CIFAR = "prototxt/resnet20/train_val.prototxt"


def test_the_largest_batch_fits_and_one_more_does_not(layermem):
    words = ("--budget", "2MiB", "--strategies", "liveness,caffe,hybrid", "--json")
    for each in json.loads(layermem("fit", "--net", NET, *words).out)["strategies"]:
        for batch, fits in ((each["batch"], 0), (each["batch"] + 1, 3)):
            budget = ("--budget", "2MiB", "--strategy", each["strategy"])
            assert layermem("plan", "--net", NET, "--batch", batch, *budget).code == fits


def test_the_deepest_net_fits_and_a_deeper_one_does_not(layermem, prototxt):
    from layermem.nets.resnet import cifar

    words = ("--batch", "8", "--budget", "30MiB", "--strategies", "liveness", "--grow", "depth")
    ended = layermem("fit", "--net", CIFAR, *words, "--json")
    depth = json.loads(ended.out)["strategies"][0]["depth"]
    assert depth % 6 == 2 and depth > 20
    for size, fits in ((depth, 0), (depth + 6, 3)):
        net = prototxt(str(cifar(size, 8, 1)), "deep.prototxt")
        words = ("--stage", "dummy", "--strategy", "liveness", "--budget", "30MiB")
        assert layermem("plan", "--net", net, *words).code == fits


def test_a_search_that_ends_at_its_limit_says_so(layermem):
    ended = layermem("fit", "--net", NET, "--budget", "1GiB", "--max", "16", "--strategies", "liveness")
    assert ended.code == 0 and ">= 16" in ended.out


def test_a_budget_that_holds_nothing_is_reported(layermem):
    ended = layermem("fit", "--net", NET, "--budget", "1KiB", "--strategies", "liveness")
    assert ended.code == 0 and ended.out.splitlines()[-1].split() == ["liveness", "none"]
