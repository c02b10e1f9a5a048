"""The examples in the help of every verb, run as they stand, in the order of the verbs."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from layermem.cli import (
    caffe,
    compare,
    completion,
    convert,
    curves,
    data,
    docs,
    draw,
    examples,
    fit,
    init,
    plan,
    plan_graph,
    predict,
    pycuda_wheel,
    report,
    setup_caffe,
    setup_cuda,
    show,
    test,
    time,
    train,
    watch,
)
from layermem.nets.catalog import WRITTEN_ON_REQUEST
from tests.images import write_shapes

EXAMPLES = {
    "train": train.TRAIN_EXAMPLE,
    "test": test.TEST_EXAMPLE,
    "init": init.EXAMPLE,
    "data": data.EXAMPLE,
    "predict": predict.EXAMPLE,
    "curves": curves.EXAMPLE,
    "plan": plan.EXAMPLE,
    "plan-graph": plan_graph.EXAMPLE,
    "compare": compare.COMPARE_EXAMPLE,
    "fit": fit.EXAMPLE,
    "report": report.REPORT_EXAMPLE,
    "show": show.EXAMPLE,
    "draw": draw.EXAMPLE,
    "time": time.TIME_EXAMPLE,
    "devices": time.DEVICES_EXAMPLE,
    "convert": convert.EXAMPLE,
    "examples": examples.EXAMPLE,
    "docs": docs.EXAMPLE,
    "setup-cuda": setup_cuda.EXAMPLE,
    "caffe": caffe.EXAMPLE,
    "setup-caffe": setup_caffe.EXAMPLE,
    "completion": completion.EXAMPLE,
    "watch": watch.EXAMPLE,  # of the log that `train` writes
}


def commands(text: str) -> list[list[str]]:
    return [words for line in text.replace("\\\n", " ").splitlines() if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("verb", EXAMPLES)
def test_the_help_of_every_verb_shows_its_example(layermem, verb):
    ended = layermem(verb, "--help")
    assert ended.code == 0 and ended.out.split("example:\n")[1].startswith(EXAMPLES[verb])
    assert all(len(line) <= 100 for line in ended.out.splitlines())
    assert any(command[:2] == ["layermem", verb] for command in commands(EXAMPLES[verb]))


@pytest.mark.whole
def test_every_example_works(layermem, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("igraph")
    write_shapes(tmp_path / "photos", 2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pycuda_wheel, "installed", lambda: "2026.1")  # or `setup-cuda` would compile it
    monkeypatch.setattr(pycuda_wheel, "compiles_kernels", lambda: True)
    monkeypatch.setattr("layermem.integrations.page.server.Server.serve_forever", lambda server: None)
    trained = False
    for text in EXAMPLES.values():
        for name, *words in commands(text):
            assert name == "layermem"
            if words[:2] == ["caffe", "train"]:  # 700 iterations; tests/cli/caffe_tools/test_brew.py trains for 3
                continue
            if words[0] == "train" and "--iterations" not in words and "--allow-python" not in words:
                if trained:  # 700 iterations, and some of four batches
                    words += ["--iterations", "10"]
                trained = True
            ended = layermem(*words)
            assert ended.code == 0, (words, ended.err)
    written = (
        "arena.html step.json unet.txt memory.html costs.csv caffenet.prototxt digits.svg features.npz deploy.prototxt"
    )
    assert set(written.split()) <= set(os.listdir())


@pytest.mark.parametrize("page", ["prototxt/README.md"])
def test_every_command_of_a_page_works_without_a_data_set(layermem, tmp_path, monkeypatch, page):
    blocks = re.findall(r"```\n(layermem .*?)```", Path(page).read_text(), re.DOTALL)
    (tmp_path / "prototxt").symlink_to(Path("prototxt").resolve())
    monkeypatch.chdir(tmp_path)
    lines = [words for block in blocks for words in commands(block)]
    assert lines
    for _, *words in lines:
        if words[0] == "train":  # 700 iterations of the digits, and three of ResNet-50
            words += ["--iterations", "1"]
        ended = layermem(*words)
        assert ended.code == 0, (words, ended.err)


def test_the_readme_says_where_the_command_is_after_make():
    start = Path("README.md").read_text().split("## Start")[1].split("The commands")[0]
    assert "`.venv/bin/layermem`" in start and "`source .venv/bin/activate`" in start


# -- the verb `examples` --------------------------------------------------------------------------------------------


def test_every_folder_of_nets_is_an_example_that_says_what_it_is():
    known = examples.read_examples()
    folders = {path.parent.name for path in Path("prototxt").glob("*/*.prototxt")}
    assert set(known) == folders | {"python_layers", *WRITTEN_ON_REQUEST}
    assert all(each.what and each.parameters and each.files for each in known.values())
    assert [name for name, each in known.items() if each.data == "included"] == ["digits", "python_layers"]


def test_the_list_of_examples_is_a_table_or_json(layermem):
    rows = json.loads(layermem("examples", "--json").out)["examples"]
    assert rows[0] == {
        "name": "digits",
        "what": "LeNet (LeCun et al. 1998), reduced to 8x8",
        "parameters": "30,360",
        "data": "included",
    }
    table = layermem("examples").out
    assert all(re.search(rf"^{row['name']} ", table, re.MULTILINE) for row in rows)
    assert layermem("examples", "digits", "--json").code == 2


def test_the_command_that_is_printed_after_a_copy_trains_it(layermem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("digits", "python_layers", "mnist"):
        *_, last = layermem("examples", name, "--to", "nets").out.splitlines()
        words = shlex.split(last.removeprefix("train it: "))
        ended = layermem(*words[1:], "--iterations", 2)
        assert ended.code == 0, ended.err
    assert sorted(os.listdir()) == ["nets", "out"]


def test_a_deep_net_is_generated_beside_the_others(layermem, tmp_path):
    def copied():
        return " ".join(layermem("examples", "resnet1001", "--to", tmp_path).out.split())

    assert "resnet1001: 3 files; data random" in copied()
    (tmp_path / "resnet1001/solver_dummy.prototxt").unlink()
    assert "resnet1001: 1 file;" in copied()
    assert "here already, unchanged" in copied()


def test_a_copy_is_completed_but_never_overwritten(layermem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert layermem("examples", "digits").code == 0
    assert "here already, unchanged" in layermem("examples", "digits").out
    Path("digits/train_val.prototxt").unlink()
    assert "digits: 1 file;" in layermem("examples", "digits").out
    Path("digits/solver.prototxt").write_text("base_lr: 1")
    Path("digits/train_val.prototxt").unlink()
    refused = layermem("examples", "digits")
    assert refused.code == 2 and "--to DIR" in refused.sentence and "'digits/solver.prototxt'" in refused.sentence
    assert Path("digits/solver.prototxt").read_text() == "base_lr: 1" and not Path("digits/train_val.prototxt").exists()


def test_an_unknown_example_is_refused_with_the_nearest_name(layermem):
    assert "did you mean vgg16?" in layermem("examples", "vgg-16").sentence


def test_a_folder_that_cannot_be_made_is_refused(layermem, tmp_path):
    (tmp_path / "file").touch()
    assert "choose another with --to DIR" in layermem("examples", "digits", "--to", tmp_path / "file").sentence
