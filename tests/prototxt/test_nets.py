"""The nets of `layermem examples`: complete, consistent with the numbers that Caffe prints, and reproducible."""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format

from layermem.data import probe
from layermem.nets.catalog import WRITTEN_ON_REQUEST
from layermem.nets.prototext import NetFiles
from layermem.proto.read import read_net, read_solver, resolve_path
from layermem.proto.schema import TEST, TRAIN, SolverParameter
from tests.prototxt.calculator import layers, memory_required, parameters, walk

ROOT = Path(__file__).resolve().parents[2]
PROTOTXT = ROOT / "prototxt"
FILES = {path.relative_to(PROTOTXT).as_posix() for path in PROTOTXT.glob("*/*.prototxt")}
FILES |= {f"{net}/{file}" for net in WRITTEN_ON_REQUEST for file in NetFiles.names}
NETS = sorted(name for name in FILES if name.endswith("train_val.prototxt"))
SOLVERS = sorted(FILES - {*NETS})


@pytest.fixture
def path(request, example_nets) -> Path:
    return example_nets / request.param


def net(folder: str, phase: int = TRAIN, root: Path = PROTOTXT) -> list:
    return layers(root / folder / "train_val.prototxt", phase)


@pytest.mark.parametrize(
    ("folder", "phase", "batch", "expected"),
    [
        ("caffenet", TEST, None, 343607608),  # printed by Caffe: BVLC issue 2809
        ("caffenet", TRAIN, None, 1757220868),
        ("alexnet", TRAIN, None, 2129727492),
        ("googlenet", TRAIN, None, 1795091980),
        ("vgg16", TRAIN, None, 7373187332),
        ("resnet50", TRAIN, None, 7418410116),
        ("resnet152", TRAIN, None, 16204428420),
        ("resnet50", TRAIN, 64, 2 * 7418410116 - 4),
    ],
)
def test_the_memory_that_caffe_prints_is_computed_to_the_byte(folder, phase, batch, expected):
    assert memory_required(net(folder, phase), batch) == expected


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("mnist", 431080),
        ("alexnet", 60965224),
        ("vgg16", 138357544),
        ("vgg19", 143667240),
        ("resnet50", 25557032 + 64),  # as everywhere, and the bias of conv1 in the published weights
        ("resnet101", 44549160),
        ("resnet152", 60192808),
        ("densenet121", 7978856),
        ("densenet161", 28681000),
        ("squeezenet10", 1248424),
        ("mobilenet1", 4231976),
        ("mobilenet2", 3504872),
        ("inception_v3", 27161264),
        ("resnext50", 25028904),
        ("siamese", 431102),
        ("lstm_lm", 19775200),
        ("autoencoder", 2837314),
        ("ssd300", 26285486),
        ("ssd512", 27188676),
        ("faster_rcnn", 137078239),
        ("wrn28_10", 36479194),  # as the authors' program counts
        ("segnet", 29449355),
        ("lstm1000", 43815816),
    ],
)
def test_parameters_are_as_many_as_published(folder, expected):
    assert sum(parameters(net(folder)).values()) == expected


def test_googlenet_has_the_published_parameters_without_its_auxiliary_losses():
    counts = parameters(net("googlenet"))
    assert sum(count for name, count in counts.items() if not name.startswith(("loss1/", "loss2/"))) == 6998552


@pytest.mark.samples(4)
@pytest.mark.parametrize("depth", [20, 50, 101, 152, 1001, 1517, 2504])
def test_a_residual_net_is_as_deep_as_its_name_says(depth, example_nets):
    chosen = net(f"resnet{depth}", root=example_nets)
    weighted = [each for each in chosen if each.type in ("Convolution", "InnerProduct")]
    shortcuts = [each for each in weighted if each.name.endswith("branch1")]
    assert len(weighted) - len(shortcuts) == depth


def shapes_of(folder: str) -> dict:
    return {each.name: tops[0] for each, _, tops in walk(net(folder))}


def test_unet_has_the_sizes_of_its_figure():
    shapes = shapes_of("unet")
    assert shapes["conv_d4b-c"] == (1, 1024, 28, 28)
    assert shapes["concat_d0cc_u0a-b"] == (1, 192, 392, 392)
    assert shapes["conv_u0d-score"] == (1, 2, 388, 388)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("unet256", {"conv_d4b": (32, 1024, 16, 16), "concat_u0": (32, 192, 256, 256), "score": (32, 1, 256, 256)}),
        (
            "unetpp256",
            {"conv_4_0": (16, 1024, 16, 16), "concat_0_4": (16, 384, 256, 256), "conv_0_4": (16, 64, 256, 256)},
        ),
    ],
)
def test_the_padded_unets_keep_the_size_of_their_image(name, shapes, example_nets):
    tops = {each.name: tops[0] for each, _, tops in walk(net(name, root=example_nets))}
    assert {layer: tops[layer] for layer in shapes} == shapes


def test_unet_crops_the_middle_of_each_skip():
    rows = {each.name: (each, bottoms) for each, bottoms, _ in walk(net("unet"))}
    for level in range(4):
        crop, (skip, up) = rows[f"crop_d{level}c-d{level}cc"]
        assert skip[2] - up[2] == 2 * crop.crop_param.offset[0] > 0


def test_pspnet_has_the_sizes_of_the_planned_graph():
    shapes = shapes_of("pspnet")
    assert shapes["pool1_3x3_s2"] == (2, 128, 179, 179)
    assert shapes["conv3_1"] == (2, 512, 90, 90) and shapes["conv5_3"] == (2, 2048, 90, 90)
    assert [shapes[f"conv5_3_pool{cells}"][2:] for cells in (1, 2, 3, 6)] == [(1, 1), (2, 2), (3, 3), (6, 6)]
    assert shapes["conv5_3_concat"] == (2, 4096, 90, 90)
    assert shapes["conv6_interp"] == (2, 17, 713, 713)


def test_densenet_has_the_sizes_of_its_table():
    shapes = shapes_of("densenet161")
    assert [shapes[f"pool{i}"] for i in (1, 2, 3, 4)] == [
        (32, 96, 56, 56),
        (32, 192, 28, 28),
        (32, 384, 14, 14),
        (32, 1056, 7, 7),
    ]
    assert shapes["conv5_blk/bn"] == (32, 2208, 7, 7)


def test_inception_has_the_sizes_of_its_table():
    shapes = shapes_of("inception_v3")
    assert shapes["pool3"] == (32, 64, 73, 73) and shapes["pool5"] == (32, 192, 35, 35)
    assert [shapes[f"mixed35_{i}"][1] for i in (1, 2, 3)] == [256, 288, 288]
    assert shapes["mixed17_4"] == (32, 768, 17, 17) and shapes["aux/5x5"] == (32, 768, 1, 1)
    assert shapes["reduction17"] == (32, 1280, 8, 8) and shapes["mixed8_2"] == (32, 2048, 8, 8)


def test_ssd_has_the_boxes_of_its_paper():
    shapes = shapes_of("ssd300")
    assert shapes["mbox_priorbox"] == (1, 2, 4 * 8732) and shapes["mbox_loc"] == (32, 4 * 8732)
    assert [shapes[name][2] for name in ("conv4_3", "fc7", "conv6_2", "conv7_2", "conv8_2", "conv9_2")] == [
        38,
        19,
        10,
        5,
        3,
        1,
    ]
    assert {each.name: tops[0] for each, _, tops in walk(net("ssd300", TEST))}["detection_out"] == (1, 1, 1600, 7)


def test_the_larger_ssd_has_the_boxes_of_its_paper():
    shapes = shapes_of("ssd512")
    assert shapes["mbox_priorbox"] == (1, 2, 4 * 24564)
    maps = ("conv4_3", "fc7", "conv6_2", "conv7_2", "conv8_2", "conv9_2", "conv10_2")
    assert [shapes[name][2] for name in maps] == [64, 32, 16, 8, 4, 2, 1]


def test_faster_rcnn_has_nine_anchors_for_each_place_and_a_box_for_each_class():
    shapes = shapes_of("faster_rcnn")
    assert shapes["conv5_3"] == (1, 512, 38, 63) and shapes["rpn_cls_score"] == (1, 18, 38, 63)
    assert shapes["rpn_cls_score_reshape"] == (1, 2, 342, 63)
    assert shapes["roi_pool5"] == (128, 512, 7, 7) and shapes["bbox_pred"] == (128, 84)


def test_segnet_comes_back_to_the_sizes_of_its_poolings():
    shapes = shapes_of("segnet")
    assert [shapes[f"pool{i}"][2:] for i in (1, 2, 3, 4, 5)] == [(180, 240), (90, 120), (45, 60), (23, 30), (12, 15)]
    assert [shapes[f"upsample{i}"][2:] for i in (5, 4, 3, 2, 1)] == [
        (23, 30),
        (45, 60),
        (90, 120),
        (180, 240),
        (360, 480),
    ]
    assert shapes["conv1_1_D"] == (4, 11, 360, 480)


def test_a_wide_residual_net_is_as_deep_and_as_wide_as_its_name_says():
    weighted = [each for each in net("wrn28_10") if each.type in ("Convolution", "InnerProduct")]
    assert len([each for each in weighted if not each.name.endswith("shortcut")]) == 28 - 2
    assert shapes_of("wrn28_10")["conv4_4"] == (128, 640, 8, 8)


def test_mobilenets_end_in_seven_by_seven_pixels():
    assert shapes_of("mobilenet1")["conv14/sep"] == (32, 1024, 7, 7)
    assert shapes_of("mobilenet2")["conv18/project"] == (32, 320, 7, 7)


DEEP = [name for name in NETS if name.startswith(WRITTEN_ON_REQUEST)]


@pytest.mark.samples(3)
@pytest.mark.parametrize("path", [name for name in NETS if name not in DEEP], indirect=True)
def test_a_net_is_one_to_the_reader(path):
    read_net(path)


@pytest.mark.samples(6)
@pytest.mark.parametrize("path", DEEP, indirect=True)
def test_so_are_those_that_have_no_files(path):
    read_net(path)


@pytest.mark.parametrize("path", NETS, indirect=True)
@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_a_net_feeds_itself_and_ends_in_a_loss(path, phase):
    chosen = layers(path, phase)
    assert chosen[0].type in ("AnnotatedData", "Data", "DummyData")
    assert len({each.name for each in chosen}) == len(chosen)
    images, *labels = probe(chosen[0], phase, str(path))
    axes = 2 if path.parent.name in ("lstm_lm", "lstm1000") else 4  # of steps and streams; of images
    assert len(images) == axes and min(images) > 0
    boxes = chosen[0].type == "AnnotatedData"
    assert all(label == (1, 1, 8 * images[0], 8) if boxes else label[0] == images[0] for label in labels)
    kinds = {each.type for each in chosen}
    if boxes:
        assert ("DetectionEvaluate" in kinds) == (phase == TEST) != ("MultiBoxLoss" in kinds)
    elif "SoftmaxWithLoss" in kinds:
        assert ("Accuracy" in kinds) == (phase == TEST)
    else:
        assert kinds & {"SigmoidCrossEntropyLoss", "ContrastiveLoss", "EuclideanLoss"}


OTHERWISE = ("digits", "faster_rcnn", "unet", "pspnet", "segnet", "siamese", "lstm1000", "lstm_lm", "ssd300", "ssd512")
WITH_NOISE = [name for name in NETS if not name.startswith(OTHERWISE)]


@pytest.mark.parametrize("path", WITH_NOISE, indirect=True)
@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_noise_takes_the_place_of_the_data_set_in_the_stage_dummy(path, phase):
    plain, staged = (layers(path, phase, stages) for stages in ((), ("dummy",)))
    assert (plain[0].type, staged[0].type) == ("Data", "DummyData") and plain[1:] == staged[1:]
    real, noise = (probe(each[0], phase, str(path)) for each in (plain, staged))
    assert [shape[1:] for shape in real] == [shape[1:] for shape in noise]


@pytest.mark.parametrize("folder", ["ssd300", "ssd512"])
def test_noise_takes_the_place_of_images_and_boxes(folder):
    plain, staged = (layers(PROTOTXT / folder / "train_val.prototxt", TRAIN, stages) for stages in ((), ("dummy",)))
    assert plain[0].type == "AnnotatedData" and plain[1:] == staged[3:]
    assert [each.type for each in staged[:3]] == ["DummyData", "DummyData", "Concat"]


@pytest.mark.parametrize("path", SOLVERS, indirect=True)
def test_a_solver_finds_its_net_from_anywhere(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    solver = read_solver(path).message
    beside = resolve_path(solver.net, path)
    assert beside.parent == path.parent
    states = [solver.train_state, *(solver.test_state or [solver.train_state])]
    assert not solver.test_iter or len(states) == 2
    for phase, state in zip((TRAIN, TEST), states):
        data = layers(beside, phase, tuple(state.stage))[0]
        assert data.type == "DummyData" if "dummy" in path.name else data.type != "DummyData"
    assert solver.base_lr > 0 and solver.max_iter > 0 and solver.snapshot_prefix.startswith("out/")


def test_every_net_has_a_row_in_the_readme_with_the_right_numbers(example_nets):
    text = (PROTOTXT / "README.md").read_text()
    rows = {row[0]: row for row in re.findall(r"^\| `(\w+)`(.*?)\| ([\d,]+) \| ([\d,]+) \|$", text, re.MULTILINE)}
    for path in (example_nets / name for name in NETS):
        if path.parent.name == "cifar10":  # two nets in one row, checked as text
            for result in (memory_required(layers(path, TRAIN)), sum(parameters(layers(path, TRAIN)).values())):
                assert f"{result:,}" in text
            continue
        _, _, count, size = rows[path.parent.name]
        chosen = layers(path, TRAIN)
        assert int(count.replace(",", "")) == sum(parameters(chosen).values())
        assert int(size.replace(",", "")) == memory_required(chosen)


GENERATED = {
    **{
        name: [name]
        for name in (
            "alexnet",
            "autoencoder",
            "caffenet",
            "densenet121",
            "densenet161",
            "googlenet",
            "inception_v3",
            "faster_rcnn",
            "lstm1000",
            "lstm_lm",
            "mobilenet1",
            "mobilenet2",
            "pspnet",
            "resnext50",
            "siamese",
            "squeezenet10",
            "segnet",
            "ssd300",
            "ssd512",
            "unet",
            "wrn28_10",
            "vgg16",
            "vgg19",
        )
    },
    **{f"resnet{depth}": [f"resnet{depth}"] for depth in (50, 101, 152)},
    "resnet20": ["resnet20", "--cifar"],
}


def test_every_net_is_generated_or_written_by_hand():
    made = {*GENERATED, *WRITTEN_ON_REQUEST}
    assert {name.partition("/")[0] for name in NETS} == {*made, "digits", "mnist", "cifar10"}


@pytest.fixture(scope="module")
def copied_tools(tmp_path_factory) -> Path:
    """tools/ beside an empty prototxt/."""
    place = tmp_path_factory.mktemp("made")
    shutil.copytree(ROOT / "tools", place / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    return place


def run(place: Path, *command: str) -> subprocess.CompletedProcess:
    command = (sys.executable, "-B", str(place / "tools" / "make_net.py"), *command)
    return subprocess.run(command, capture_output=True, text=True, cwd=place, env={"PYTHONPATH": str(ROOT)})


@pytest.mark.samples(3)
@pytest.mark.parametrize("folder", GENERATED)
def test_a_generated_net_has_the_very_bytes_of_its_files(folder, copied_tools):
    assert run(copied_tools, *GENERATED[folder]).returncode == 0
    for file in sorted((PROTOTXT / folder).glob("*.prototxt")):
        assert (copied_tools / "prototxt" / folder / file.name).read_text() == file.read_text()


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("resnet1001", "ed1195ad6a6914544b555ad4a2961779d5552571a29929213cf64c3165f76e4d"),
        ("resnet1517", "a25a5daa3f560836842980b94afdf2b431f4a46322bdc26b18f25d9b9af5aee2"),
        ("resnet2504", "479bb5d484114239a44a0a10cfaf88a28d48e875a1d85f23f1ba66520f969016"),
        ("unet256", "c6a96e234250057f2a626e9c72e8174dc4974dabf8468a0e4027f49dc8025697"),
        ("unetpp256", "3782bba87282a76f98d941454cf2d33e400eda44486f13c4da048dfe43fde73d"),
    ],
)
def test_a_net_that_has_no_files_keeps_its_bytes(name, digest, example_nets):
    content = b"".join((example_nets / name / file).read_bytes() for file in NetFiles.names)
    assert hashlib.sha256(content).hexdigest() == digest


@pytest.mark.parametrize(
    "arguments",
    [
        ["resnet51"],
        ["resnet20"],
        ["resnet21", "--cifar"],
        ["resnet50", "--blocks", "3,4,6,4"],
        ["vgg11"],
        ["magic"],
        ["mobilenet3"],
        ["squeezenet12"],
        ["resnext20"],
    ],
)
def test_a_depth_that_cannot_be_is_refused_in_a_sentence(arguments, copied_tools):
    done = run(copied_tools, *arguments)
    assert done.returncode != 0 and "make_net:" in done.stderr and "Traceback" not in done.stderr


def test_other_depths_are_written_too(copied_tools):
    assert run(copied_tools, "resnet110", "--cifar", "--folder", "deep").returncode == 0
    written = text_format.Parse((copied_tools / "prototxt/deep/solver.prototxt").read_text(), SolverParameter())
    assert written.max_iter == 64000
    assert run(copied_tools, "resnet1505", "--folder", "deeper").returncode == 0
    chosen = layers(copied_tools / "prototxt/deeper/train_val.prototxt", TRAIN)
    assert sum(each.type == "Eltwise" for each in chosen) == 501
