"""No option is silently ignored: options without effect in combination with others are refused, with both names."""

import argparse

import pytest

from layermem.cli.main import GROUPS, VERBS, make_parser

NET = ("--net", "prototxt/digits/train_val.prototxt")
MNIST = ("--net", "prototxt/mnist/train_val.prototxt")
RESNET = ("--net", "prototxt/resnet20/train_val.prototxt")
SOLVER = ("--solver", "prototxt/digits/solver.prototxt")
REFUSED = [
    *(
        ("plan", *NET, "--load", "p.json", *words, f"{words[0]} has no effect on the plan of --load")
        for words in (
            ("--strategy", "caffe"),
            ("--keep", "a"),
            ("--recompute", "a"),
            ("--segment-ends", "a"),
            ("--hints", "f"),
        )
    ),
    ("train", *SOLVER, "--load", "p.json", "--strategy", "caffe", "--strategy has no effect on the plan of --load"),
    ("draw", *NET, "-o", "a.svg", "--load", "p.json", "--strategy", "caffe", "has no effect on the plan of --load"),
    *((verb, *SOLVER, "--phase", "TEST", "--phase needs --net") for verb in ("plan", "compare", "show", "time")),
    ("plan", *NET, "--solver", "a", "--solver: not allowed with argument --net"),
    ("plan", *NET, "-q", "-v", "-v/--verbose: not allowed with argument -q/--quiet"),
    ("plan", *NET, "--batch", "8", "--input", "data=64,1,8,8", "--batch 8 has no effect on the shape of 'data'"),
    ("show", *NET, "--device", "cpu", "--device has no effect on the layers of a net; add --fused"),
    ("fit", *NET, "-b", "1MiB", "--batch", "3", "--batch has no effect where the batch grows"),
    ("fit", *RESNET, "-b", "1MiB", "--grow", "depth", "--phase", "TEST", "--phase has no effect where the depth grows"),
    ("compare", *NET, "--threads", "1", "--threads has no effect on predicted times; add --run N"),
    ("plan", *NET, "--precision", "bf16", "--precision needs --device cuda"),
    ("plan", *NET, "--card", "T4", "--card needs --device cuda, and the device is cpu"),
    ("fit", *NET, "--card", "T4", "--device", "reference", "--card needs --device cuda, and the device is reference"),
    ("plan", *NET, "--device", "cuda", "--card", "H10", "unknown GPU 'H10' (did you mean H100 PCIe or H100 SXM"),
    ("plan", *NET, "--device", "cuda", "--card", "T4", "--precision", "tf32", "T4 has compute capability 7.5"),
    ("fit", *NET, "-b", "80%", "--device", "cuda", "--card", "T4", "fit needs an amount of memory"),
    ("train", *SOLVER, "--cuda-graph", "--cuda-graph needs --device cuda"),
    ("train", *SOLVER, "--input", "data=1,1,8,8", "--input needs --data noise"),
    ("plan", *NET, "--data", "noise", "--data needs --solver, whose nets a run trains on the data"),
    ("train", *SOLVER, "--log-every", "5", "--log-every has no effect without --log"),
    ("watch", "run.jsonl", "--budget", "1MiB", "--budget has no effect on the run of a log"),
    ("watch", "run.jsonl", "--device", "cpu", "--device has no effect on the run of a log"),
    ("train", *SOLVER, "--weights", "a.h5", "--snapshot", "s", "only one of them"),
    ("train", *SOLVER, "--restart", "--snapshot", "s", "--restart has no effect beside --snapshot"),
    ("train", *SOLVER, "--ranks", "2", "--measure", "--measure runs the step of one rank alone"),
    ("train", *SOLVER, "--set", "max_iter=3", "--iterations", "5", "--set max_iter=3 has no effect beside"),
    ("train", *SOLVER, "--set", "random_seed = 1", "--seed", "0", "has no effect beside --seed 0; give only one"),
    ("train", *SOLVER, "--set", "iter_size=2", "--iter-size", "3", "has no effect beside --iter-size 3"),
    ("train", *SOLVER, "--set", "base_lr=nan", "--set base_lr=nan: has base_lr nan; use a finite number"),
    ("train", *SOLVER, "--set", "test_interval=0", "--set test_interval=0: "),
    ("train", *SOLVER, "--log", "", "--log has an empty value; give one, or leave it out"),
    ("train", *SOLVER, "--ranks", "0", "--ranks 0 is too few; give 1 or more"),
    ("plan", *NET, "--ranks", "2", "--measure", "--measure runs the step of one rank alone"),
    ("compare", *NET, "--ranks", "2", "--run", "1", "--run measures the steps of one rank alone"),
    ("plan", *NET, "--phase", "TEST", "--ranks", "2", "leave --ranks and --iter-size out"),
    ("plan", *SOLVER, "--ranks", "2", "iter_size 1 cannot be shared by 2 ranks; --iter-size 2 trains as iter_size: 2"),
    ("plan", *NET, "--ranks", "2", "--iter-size", "3", "iter_size 3 cannot be shared by 2 ranks"),
    ("data", "check", "prototxt/digits/digits_train_lmdb", "--root", "a", "--root has no effect without a list"),
    ("plan", *NET, "--save", "p.csv", "p.csv: is not a plan by its name; use a name that ends in .json"),
    ("plan", *NET, "--trace", "p.html", "p.html: is not a trace by its name"),
    ("plan", *NET, "--export-graph", "g.png", "g.png: is not a graph file by its name"),
    ("plan", *NET, "--plot", "p.json", "p.json: "),
    ("plan", *NET, "--load", "p.onnx", "p.onnx: is not a plan by its name"),
    ("plan", *NET, "--costs", "c.json", "c.json: is not a file of costs by its name; use a name that ends in .csv"),
    ("plan", "--net", "a.onnx", "a.onnx: is not a net by its name; use a name that ends in .prototxt"),
    ("time", *NET, "--out", "c.json", "c.json: is not a file of costs by its name"),
    ("train", *SOLVER, "--snapshot", "a.caffemodel", "a.caffemodel: is not a solver state by its name"),
    ("test", *NET, "--weights", "a.png", "a.png: "),
    ("draw", *NET, "-o", "a.png", "a.png: "),
    ("data", "images", "a.txt", "db.h5", "db.h5: is not a database by its name"),
    ("data", "folder", "a", "db.npz", "db.npz: is not a folder by its name"),
    ("data", "check", "a", "--classes", "2", "--labels", "f", "not allowed with argument --classes"),
    ("convert", "a.prototxt", "b.prototxt", "--names", "m", "--names is of weights"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: " ".join(word for word in case[:-1] if "/" not in word))
def test_an_option_without_an_effect_is_refused(layermem, case):
    *words, says = case
    ended = layermem(*words)
    assert ended.code == 2 and ended.out == "" and says in ended.sentence


def test_a_stage_or_a_level_that_no_rule_names_is_a_warning(layermem):
    ended = layermem("show", *RESNET, "--stage", "dumy", "--level", "2")
    assert ended.code == 0 and ended.err.splitlines() == [
        "layermem: warning: no rule of the net names stage 'dumy'; did you mean 'dummy'?",
        "layermem: warning: no rule of the net has a level, so level 2 changes nothing",
    ]


def test_a_batch_beside_an_equal_shape_is_allowed(layermem):
    assert layermem("show", *MNIST, "--batch", "4", "--input", "data=4,1,28,28").code == 0


def test_the_seed_of_a_snapshot_and_an_end_before_it_are_refused(layermem, tmp_path):
    from tests.cli.test_train import SOLVER as digits

    text = digits.read_text().replace('"train_val.prototxt"', f'"{NET[1]}"')
    (tmp_path / "s.prototxt").write_text(text.replace("out/digits", f"{tmp_path}/digits"))
    words = ("train", "--solver", tmp_path / "s.prototxt")
    assert layermem(*words, "--iterations", "2").code == 0
    words = (*words, "--snapshot", tmp_path / "digits_iter_2.solverstate")
    assert "--seed has no effect beside --snapshot" in layermem(*words, "--seed", "1").sentence
    assert "is of iteration 2, after the last one, 1; give more" in layermem(*words, "--iterations", "1").sentence


def parsers(parser=None, name="layermem"):
    parser = parser or make_parser()
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, each in action.choices.items():
                yield from parsers(each, f"{name} {verb}")


def test_a_parser_of_one_verb_is_that_of_all_verbs():
    whole = dict(parsers())
    assert list(VERBS) == [name.split()[1] for name in whole if len(name.split()) == 2]
    for verb in VERBS:
        for name, parser in parsers(make_parser(verb)):
            assert name == "layermem" or parser.format_help() == whole[name].format_help()


def test_the_help_lists_every_verb_below_what_it_is_for():
    lines = make_parser().format_help().split("verbs:")[1].splitlines()
    found = {}
    for line in lines:
        if line.startswith("  ") and line[2] != " ":
            heading, found[line.strip()] = line.strip(), []
        elif line.startswith("    ") and line[4] != " ":
            found[heading].append(line.split()[0])
    assert {heading: verbs for heading, verbs in found.items() if verbs} == {
        heading: list(group) for heading, group in GROUPS.items()
    }


@pytest.mark.parametrize("name, parser", list(parsers()), ids=lambda value: value if isinstance(value, str) else "")
def test_an_option_is_written_the_same_everywhere(name, parser):
    long = {option: action for action in parser._actions for option in action.option_strings}
    assert "--budget" not in long or "-b" in long, name
    has_none = any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)
    has_none |= getattr(parser, "takes_words", False)
    assert has_none or {"-q", "--quiet", "-v", "--verbose"} <= set(long), name
    for action in parser._actions:
        assert action.help or isinstance(action, argparse._SubParsersAction), (name, action)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("trian",), "unknown verb 'trian' (did you mean train?"),
        (("plan", *NET, "--budgte", "1"), "unknown argument '--budgte' (did you mean --budget?)"),
        (("plan", *NET, "--strategy", "hybird"), "unknown strategy 'hybird' (did you mean hybrid?"),
        (("compare", *NET, "--strategies", "caffe,hybird"), "unknown strategy 'hybird' (did you mean hybrid?"),
        (("plan", *NET, "--device", "cud"), "unknown device 'cud' (did you mean cuda?"),
        (("plan", *NET, "--phase", "tets"), "(did you mean TEST?"),
        (("train", *SOLVER, "--sigint-effect", "sotp"), "unknown --sigint-effect 'sotp' (did you mean stop?"),
        (("fit", *NET, "--grow", "bacth"), "unknown --grow 'bacth' (did you mean batch?"),
        (("completion", "bsh"), "unknown shell 'bsh' (did you mean bash?"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_one_that_was_meant(layermem, words, says):
    ended = layermem(*words)
    assert ended.code == 2 and says in ended.sentence
