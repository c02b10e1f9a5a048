"""`layermem fit`."""

import json

import pytest

NET = "prototxt/digits/train_val.prototxt"
CIFAR = "prototxt/resnet20/train_val.prototxt"


def test_the_largest_batch_fits_and_one_more_does_not(layermem):
    words = ("--budget", "2MiB", "--strategies", "liveness,caffe,hybrid", "--json")
    for each in json.loads(layermem("fit", "--net", NET, *words).out)["strategies"]:
        for batch, fits in ((each["batch"], 0), (each["batch"] + 1, 3)):
            budget = ("--budget", "2MiB", "--strategy", each["strategy"])
            assert layermem("plan", "--net", NET, "--batch", batch, *budget).code == fits


@pytest.mark.whole
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


def test_batches_are_multiples_of_the_number_of_slices(layermem):
    words = ("--strategies", "liveness", "--slices", "..pool1/4", "--split-weights", "ip1/5", "--budget", "1MiB")
    (fit,) = json.loads(layermem("fit", "--net", NET, *words, "--json").out)["strategies"]
    assert fit["batch"] % 4 == 0
    options = ("--strategy", "liveness", *words[2:])
    for batch, fits in ((fit["batch"], 0), (fit["batch"] + 4, 3)):
        assert layermem("plan", "--net", NET, "--batch", batch, *options).code == fits
    for more in (["--max", "3"], ["--slices", "auto"], ["--split-weights", "auto"], ["--split-weights", "pool1/2"]):
        assert layermem("fit", "--net", NET, *words, *more).code == 2


def test_a_search_that_ends_at_its_limit_says_so(layermem):
    ended = layermem("fit", "--net", NET, "--budget", "1GiB", "--max", "16", "--strategies", "liveness")
    assert ended.code == 0 and ">= 16" in ended.out


def test_a_budget_that_holds_nothing_is_reported_and_exits_with_3(layermem):
    ended = layermem("fit", "--net", NET, "--budget", "1KiB", "--strategies", "liveness")
    assert ended.code == 3 and ended.out.splitlines()[-1].split() == ["liveness", "none"]


def test_the_largest_batch_of_a_solvers_train_net_fits_beside_its_test_nets(layermem):
    solver = ("--solver", "prototxt/digits/solver.prototxt")
    words = ("--budget", "4MiB", "--strategies", "liveness", "--json")
    (fit,) = json.loads(layermem("fit", *solver, *words).out)["strategies"]
    for batch, fits in ((fit["batch"], 0), (fit["batch"] + 1, 3)):
        assert layermem("plan", *solver, "--batch", batch, "--budget", "4MiB", "--strategy", "liveness").code == fits
    ended = layermem("fit", *solver, "--net", NET, "--budget", "1MiB")
    assert ended.code == 2 and "not allowed with" in ended.sentence
    ended = layermem("fit", *solver, "--budget", "1MiB", "--grow", "depth")
    assert ended.code == 2 and "--grow depth needs --net" in ended.sentence
    assert "--phase needs --net" in layermem("fit", *solver, "--budget", "1MiB", "--phase", "TEST").sentence


def test_a_terminal_sees_every_size_that_is_planned(layermem, terminal):
    stream = terminal()
    words = ("--budget", "30MiB", "--batch", "8", "--grow", "depth", "--max", "32", "--strategies", "liveness,caffe")
    assert layermem("fit", "--net", CIFAR, *words).code == 0
    for shown in ("liveness: depth 8", "liveness: depth 14", "caffe: depth 20", "0/2", "1/2"):
        assert shown in stream.getvalue()


@pytest.mark.whole
def test_a_strategy_has_the_same_fit_alone_and_after_those_that_it_begins_at(layermem):
    words = ("fit", "--net", NET, "--budget", "3MiB", "--json", "--strategies")
    together = json.loads(layermem(*words, "recompute-approx,recompute,nested,auto").out)["strategies"]
    assert len(together) == 4
    for each in together:
        (alone,) = json.loads(layermem(*words, each["strategy"]).out)["strategies"]
        assert alone["batch"] == each["batch"]


def test_one_strategy_that_fits_is_enough_for_exit_code_0(layermem):
    words = ("--budget", "5000KiB", "--strategies", "caffe,liveness", "--max", "1", "--json")
    ended = layermem("fit", "--net", "prototxt/mnist/train_val.prototxt", *words)
    sizes = {each["strategy"]: each["batch"] for each in json.loads(ended.out)["strategies"]}
    assert ended.code == 0 and sizes == {"caffe": 0, "liveness": 1}


@pytest.mark.samples(2)
@pytest.mark.parametrize("grow", [(), ("--grow", "depth")])
def test_a_stage_that_no_rule_names_is_warned_of_once(layermem, grow):
    words = ("fit", "--net", CIFAR, "--budget", "400MiB", "--strategies", "liveness", "--max", "20", *grow)
    plain, staged = layermem(*words, "--stage", "dummy"), layermem(*words, "--stage", "dummy,foo")
    assert (plain.code, plain.err, staged.code) == (0, "", 0) and staged.err.count("layermem: warning: ") == 1
    assert "no rule of the net names stage 'foo'; its stages are dummy" in " ".join(staged.err.split())


@pytest.mark.whole
def test_each_of_several_ranks_fits_a_larger_batch(layermem):
    words = ("fit", "--net", NET, "--budget", "1MiB", "--strategies", "liveness")
    shared, alone = ("--ranks", "4"), ("--iter-size", "4")
    assert "first of 4 ranks" in layermem(*words, *shared).out
    sizes = [json.loads(layermem(*words, *each, "--json").out) for each in (shared, alone)]
    assert sizes[0]["ranks"] == 4
    assert sizes[0]["strategies"][0]["batch"] > sizes[1]["strategies"][0]["batch"]


@pytest.mark.whole
def test_the_largest_batch_of_a_gpu_fills_its_memory(layermem):
    net = ("--net", "prototxt/vgg16/train_val.prototxt", "--device", "cuda", "--strategies", "liveness")

    def fit(*words):
        return json.loads(layermem("fit", *net, *words, "--json").out)

    small, large = fit("--card", "GTX 1080"), fit("--card", "gtx 1080 ti")
    assert small["budget_bytes"] == 7 << 30 and large["budget_bytes"] > 9 << 30
    assert 8 < small["strategies"][0]["batch"] < large["strategies"][0]["batch"]
    assert fit("--card", "GTX 1080", "-b", "50%free")["budget_bytes"] == 7 << 29
    ended = layermem("fit", *net, "--card", "GTX 1080", "--max", "4")
    text = " ".join(ended.out.split())
    assert "budget 7.00 GiB" in text and "8.87 TFLOP/s" in text and "cannot run there" in text


RECURRENT = """
    layer { name: "words" type: "DummyData" top: "x" top: "cont" dummy_data_param {
        shape { dim: 4 dim: 2 dim: 3 } shape { dim: 4 dim: 2 }
        data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" value: 1 } } }
    layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "lstm"
            recurrent_param { num_output: 8 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "Reduction" bottom: "lstm" top: "loss" loss_weight: 1 }
"""


@pytest.mark.whole
def test_options_that_fit_prints_give_plan_the_same_batch_for_a_recurrent_net(layermem, prototxt):
    net = prototxt(RECURRENT, "steps.prototxt")
    budget = ("--budget", "64KiB", "--strategies", "liveness,nested")
    for fit in json.loads(layermem("fit", "--net", net, *budget, "--json").out)["strategies"]:
        words = ("--strategy", fit["strategy"], "--budget", "64KiB", "--json")
        planned = layermem("plan", "--net", net, *fit["options"], *words)
        assert planned.code == 0 and json.loads(planned.out)["peak_bytes"] == fit["peak_bytes"]
        assert fit["options"] == ["--input", f"x=4,{fit['batch']},3", "--input", f"cont=4,{fit['batch']}"]
        more = ("--input", f"x=4,{fit['batch'] + 1},3", "--input", f"cont=4,{fit['batch'] + 1}")
        assert layermem("plan", "--net", net, *more, *words).code == 3
    printed = layermem("fit", "--net", net, *budget).out.splitlines()
    (options,) = (line.removeprefix("plan with ") for line in printed if line.startswith("plan with "))
    largest = printed[2].split()
    assert options == f"--input x=4,{largest[1]},3 --input cont=4,{largest[1]}"
    assert layermem("plan", "--net", net, *options.split(), "--strategy", largest[0], "--budget", "64KiB").code == 0


@pytest.mark.whole
@pytest.mark.parametrize("which", [("--net", NET), ("--solver", "prototxt/digits/solver.prototxt")])
def test_the_options_of_other_nets_are_their_batch_and_are_not_printed(layermem, which):
    words = ("--budget", "4MiB", "--strategies", "liveness,caffe")
    for fit in json.loads(layermem("fit", *which, *words, "--json").out)["strategies"]:
        assert fit["options"] == ["--batch", str(fit["batch"])]
    assert "plan with" not in layermem("fit", *which, *words).out
    (nothing,) = json.loads(layermem("fit", *which, "--budget", "1KiB", "--strategies", "caffe", "--json").out)[
        "strategies"
    ]
    assert nothing["options"] == []


@pytest.mark.whole
def test_a_smaller_batch_that_takes_less_time_for_each_item_is_named(layermem):
    words = ("fit", "--net", CIFAR, "--budget", "30MiB", "--strategies", "auto,liveness")
    rows = json.loads(layermem(*words, "--json").out)["strategies"]
    largest, other = rows
    assert largest["batch"] > other["batch"] and largest["items_per_second"] < other["items_per_second"]
    plan = ("plan", "--net", CIFAR, "--batch", other["batch"], "--strategy", "liveness", "--budget", "30MiB", "--json")
    assert json.loads(layermem(*plan).out)["items_per_second"] == pytest.approx(other["items_per_second"])
    gain = other["items_per_second"] / largest["items_per_second"] - 1
    said = layermem(*words).out
    assert f"batch {other['batch']} with {other['strategy']}: {gain:.0%} more items/s" in " ".join(said.split())
    assert "more items/s" not in layermem(*words[:-1], "liveness").out
