"""Old nets and solvers are read like nets written today."""

import pytest
from google.protobuf import text_format

from layermem.errors import InputError
from layermem.proto import read_net_text, read_solver_text
from layermem.proto.schema import LayerParameter, NetParameter, message_class
from layermem.proto.upgrade import v2_type


def the_same_net(old, new):
    """Whether both texts are read as one message; the notes of the old one."""
    upgraded, written = read_net_text(old), read_net_text(new)
    assert text_format.MessageToString(upgraded.message) == text_format.MessageToString(written.message)
    assert not written.notes
    return upgraded


TYPES = """
    ABSVAL AbsVal  ACCURACY Accuracy  ARGMAX ArgMax  BNLL BNLL  CONCAT Concat  CONTRASTIVE_LOSS ContrastiveLoss
    CONVOLUTION Convolution  DECONVOLUTION Deconvolution  DATA Data  DROPOUT Dropout  DUMMY_DATA DummyData
    EUCLIDEAN_LOSS EuclideanLoss  ELTWISE Eltwise  EXP Exp  FLATTEN Flatten  HDF5_DATA HDF5Data
    HDF5_OUTPUT HDF5Output  HINGE_LOSS HingeLoss  IM2COL Im2col  IMAGE_DATA ImageData  INFOGAIN_LOSS InfogainLoss
    INNER_PRODUCT InnerProduct  LRN LRN  MEMORY_DATA MemoryData
    MULTINOMIAL_LOGISTIC_LOSS MultinomialLogisticLoss  MVN MVN  POOLING Pooling  POWER Power  RELU ReLU
    SIGMOID Sigmoid  SIGMOID_CROSS_ENTROPY_LOSS SigmoidCrossEntropyLoss  SILENCE Silence  SOFTMAX Softmax
    SOFTMAX_LOSS SoftmaxWithLoss  SPLIT Split  SLICE Slice  TANH TanH  WINDOW_DATA WindowData
    THRESHOLD Threshold"""
LATER = """
    AXPY Axpy  BATCH_NORM BatchNorm  BIAS Bias  BN BN  CROP Crop  DENSE_IMAGE_DATA DenseImageData  ELU ELU
    EMBED Embed  INTERP Interp  LOG Log  NORMALIZE Normalize  PERMUTE Permute  PRELU PReLU  PRIOR_BOX PriorBox
    PSROI_POOLING PSROIPooling  REDUCTION Reduction  RELU6 ReLU6  REORG Reorg  RESHAPE Reshape
    ROI_POOLING ROIPooling  SCALE Scale  SHUFFLE_CHANNEL ShuffleChannel  SMOOTH_L1_LOSS SmoothL1Loss  SPP SPP
    TILE Tile  UPSAMPLE Upsample"""


def test_every_old_type_has_its_word():
    each = (TYPES + LATER).split()
    words = dict(zip(each[::2], each[1::2]))
    enum = message_class("V1LayerParameter").DESCRIPTOR.enum_types_by_name["LayerType"]
    assert {value.name: v2_type(value.name) for value in enum.values} == {"NONE": "", **words}


def test_an_old_layer_may_have_what_forks_and_later_versions_added():
    old = 'layers { name: "a" type: %s bottom: "x" top: "y" blobs_lr: 2 %s }'
    new = 'layer { name: "a" type: "%s" bottom: "x" top: "y" param { lr_mult: 2 } %s }'
    for before, after, block in (
        ("BN", "BN", "bn_param { bn_mode: INFERENCE shift_filler { value: 1 } }"),
        ("INTERP", "Interp", "interp_param { zoom_factor: 8 }"),
        ("CROP", "Crop", ""),
        ("ROI_POOLING", "ROIPooling", "roi_pooling_param { pooled_h: 6 pooled_w: 6 }"),
    ):
        the_same_net(old % (before, block), new % (after, block))
    names = message_class("LayerParameter").DESCRIPTOR.fields_by_name
    v1 = message_class("V1LayerParameter").DESCRIPTOR.fields_by_name
    assert {name for name in names if name.endswith("_param")} <= {*v1}


def test_an_old_type_of_a_fork_is_refused_by_its_fork():
    with pytest.raises(InputError, match=r"n:1: type .SEG_ACCURACY. .+ is from the PSPNet fork of"):
        read_net_text("layers { type: SEG_ACCURACY }", "n")


V1 = """name: "old"
layers {
  name: "data" type: DATA top: "data" top: "label"
  data_param { source: "db" backend: LMDB batch_size: 8 scale: 0.5 mean_file: "m" crop_size: 20 mirror: true }
  include: { phase: TRAIN }
}
layers {
  bottom: "data" top: "conv" name: "conv" type: CONVOLUTION
  blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0 param: "w" blob_share_mode: PERMISSIVE
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } }
  exclude { stage: "no" }
}
layers { name: "loss" type: SOFTMAX_LOSS bottom: "conv" bottom: "label" top: "loss" loss_weight: 0.25 }
"""
V2_OF_V1 = """name: "old"
layer {
  name: "data" type: "Data" top: "data" top: "label"
  data_param { source: "db" backend: LMDB batch_size: 8 }
  transform_param { scale: 0.5 mean_file: "m" crop_size: 20 mirror: true }
  include: { phase: TRAIN }
}
layer {
  bottom: "data" top: "conv" name: "conv" type: "Convolution"
  param { name: "w" share_mode: PERMISSIVE lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } }
  exclude { stage: "no" }
}
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "conv" bottom: "label" top: "loss" loss_weight: 0.25 }
"""


def test_layers_of_2014_become_layers_of_today_and_keep_their_lines():
    net = the_same_net(V1, V2_OF_V1)
    assert net.lines == (2, 7, 13)
    assert net.notes[0] == "layer 'data': moved data_param.scale to transform_param"
    assert net.notes[-1] == "rewrote 3 old 'layers' blocks as 'layer'"


def test_every_block_of_an_old_layer_is_carried():
    v1 = message_class("V1LayerParameter").DESCRIPTOR
    blocks = [field for field in v1.fields if field.name.endswith("_param")]
    assert len(blocks) >= 60
    for field in blocks:
        assert LayerParameter.DESCRIPTOR.fields_by_name[field.name].message_type is field.message_type
        inside = "min: 0 max: 1" if field.name == "clip_param" else ""
        net = read_net_text(f"layers {{ type: POWER name: 'x' {field.name} {{ {inside} }} }}")
        assert net.message.layer[0].HasField(field.name)


V0 = """name: "older"
layers { layer { name: "data" type: "data" source: "db" meanfile: "mean" batchsize: 256 cropsize: 227 mirror: true }
  top: "data" top: "label" }
layers { layer { name: "pad1" type: "padding" pad: 2 } bottom: "data" top: "pad1" }
layers {
  layer { name: "conv1" type: "conv" num_output: 96 kernelsize: 11 stride: 4 group: 2 biasterm: false
    weight_filler { type: "gaussian" std: 0.01 } blobs_lr: 1. blobs_lr: 2. weight_decay: 1. weight_decay: 0. }
  bottom: "pad1" top: "conv1"
}
layers { layer { name: "relu1" type: "relu" } bottom: "conv1" top: "conv1" }
layers { layer { name: "pool1" type: "pool" pool: AVE kernelsize: 3 stride: 2 } bottom: "conv1" top: "pool1" }
layers { layer { name: "norm1" type: "lrn" local_size: 3 alpha: 0.1 beta: 0.5 k: 2 } bottom: "pool1" top: "norm1" }
layers { layer { name: "ip" type: "innerproduct" num_output: 10 bias_filler { value: 1 } } bottom: "norm1" top: "ip" }
layers { layer { name: "drop" type: "dropout" dropout_ratio: 0.2 alpha: 3 } bottom: "ip" top: "ip" }
layers { layer { name: "win" type: "window_data" det_fg_threshold: 0.6 det_context_pad: 16 det_crop_mode: "square" }
  top: "w" }
layers { layer { name: "img" type: "images" shuffle_images: true new_height: 8 rand_skip: 3 scale: 2 } top: "i" }
layers { layer { name: "cat" type: "concat" concat_dim: 0 } bottom: "w" bottom: "i" top: "cat" }
layers { layer { name: "out" type: "hdf5_output" hdf5_output_param { file_name: "f" } } bottom: "cat" bottom: "ip" }
layers { layer { name: "gain" type: "infogain_loss" source: "H" } bottom: "ip" bottom: "label" }
"""
REFUSED = {
    "a padding that no convolution reads": (
        "layers { layer { name: 'p' type: 'padding' pad: 1 } bottom: 'd' top: 'p' }\n"
        "layers { layer { name: 'r' type: 'relu' } bottom: 'p' top: 'r' }",
        "n:2: layer 'r' reads a padding layer; only a conv or pool layer with a single bottom may",
    ),
    "a type of no year": (
        "layers { layer { name: 'p' type: 'perceptron' } }",
        "n:1: layer 'p' has type 'perceptron', which is not in the format of 2013; it has: accuracy, bnll,",
    ),
    "both formats in one net": (
        "layer { type: 'ReLU' }\n\nlayers { type: RELU }",
        "n:3: the net has both 'layer' and 'layers' blocks; rename them all to 'layer'",
    ),
    "an old layer without a type": ("layers { name: 'x' }", "n:1: layer 'x' has no type;"),
    "an input without a shape beside one with": (
        "name: 'n'\ninput: 'a'\ninput: 'b' input_shape { dim: 3 } layer { type: 'ReLU' }",
        "n:2: the net has 2 'input' fields; give each an 'input_shape', or each four 'input_dim'",
    ),
    "three dims for an input": (
        "input: 'a' input_dim: 1 input_dim: 2 input_dim: 3 layer { type: 'ReLU' }",
        "n:1: the net has 1 'input' fields; give each an 'input_shape', or each four 'input_dim'",
    ),
    "an input of no extent": (
        "input: 'a' input_shape { dim: 0 } layer { type: 'ReLU' }",
        "n:1: layer 'input' asks for shape 0: every extent must be at least 1",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_fields_that_cannot_be_upgraded_are_refused_at_their_line(case):
    text, sentence = REFUSED[case]
    with pytest.raises(InputError) as caught:
        read_net_text(text, "n")
    assert str(caught.value).startswith(sentence)


def test_inputs_of_any_rank_become_a_layer_and_inputs_without_shapes_vanish():
    shaped = the_same_net(
        "input: 'a' input_shape { dim: 5 } input: 'b' input_shape { dim: 2 dim: 3 dim: 4 } layer { type: 'ReLU' }",
        "layer { name: 'input' type: 'Input' top: 'a' top: 'b'\n"
        "  input_param { shape { dim: 5 } shape { dim: 2 dim: 3 dim: 4 } } } layer { type: 'ReLU' }",
    )
    assert shaped.lines == (1, 1)
    bare = the_same_net("input: 'a' layer { type: 'ReLU' }", "layer { type: 'ReLU' }")
    assert bare.notes == ()


def test_statistics_of_batch_norm_are_frozen_as_its_old_form_asked():
    net = read_net_text(
        "layer { name: 'bn' type: 'BatchNorm' param { } param { lr_mult: 0 } param { decay_mult: 0 name: 'f' } }\n"
        "layer { name: 'new' type: 'BatchNorm' }"
    )
    specs = net.message.layer[0].param
    assert [(spec.lr_mult, spec.decay_mult) for spec in specs] == [(0, 0)] * 3 and specs[2].name == "f"
    assert net.notes == ("layer 'bn': set lr_mult and decay_mult of its statistics to 0",)


def test_old_transform_fields_in_a_layer_of_today_are_mentioned_and_stay_without_effect():
    net = read_net_text("layer { name: 'd' type: 'Data' data_param { source: 'x' crop_size: 7 } }")
    assert not net.message.layer[0].HasField("transform_param")
    assert net.notes == ("layer 'd': data_param.crop_size has no effect; move it to transform_param",)


def test_reading_an_upgraded_net_changes_nothing_more():
    for text in (V0, V1):
        once = read_net_text(text).message
        again = read_net_text(text_format.MessageToString(once)).message
        assert again == once and isinstance(again, NetParameter)


SOLVER_TYPES = {
    "SGD": "SGD",
    "NESTEROV": "Nesterov",
    "ADAGRAD": "AdaGrad",
    "RMSPROP": "RMSProp",
    "ADADELTA": "AdaDelta",
    "ADAM": "Adam",
}


@pytest.mark.parametrize("old, new", SOLVER_TYPES.items())
def test_a_solver_type_by_number_becomes_one_by_name(old, new):
    solver = read_solver_text(f"solver_type: {old}", "s.prototxt")
    assert solver.message.type == new and not solver.message.HasField("solver_type")


def test_two_solver_types_are_refused():
    with pytest.raises(InputError) as caught:
        read_solver_text("type: 'SGD'\n\nsolver_type: SGD", "s")
    assert str(caught.value) == "s:3: the solver has both 'type' and the old 'solver_type'; keep 'type'"


def test_snapshots_are_named_after_the_solver_unless_it_names_them(tmp_path):
    assert read_solver_text("", "a/lenet.prototxt").message.snapshot_prefix == "a/lenet"
    assert read_solver_text("snapshot_prefix: 'b/x'", "a/lenet.prototxt").message.snapshot_prefix == "b/x"
    inside = read_solver_text(f"snapshot_prefix: '{tmp_path}'", "a/lenet.prototxt")
    assert inside.message.snapshot_prefix == str(tmp_path / "lenet") and len(inside.notes) == 1


@pytest.mark.parametrize("text", ["", "snapshot_prefix: '.'"])
def test_snapshots_cannot_have_the_name_of_a_solver_file_that_is_not_utf8(text):
    with pytest.raises(InputError, match="which is not UTF-8; add a snapshot_prefix"):
        read_solver_text(text, "a/l\udce9.prototxt")
    assert read_solver_text("snapshot_prefix: 's'", "a/l\udce9.prototxt").message.snapshot_prefix == "s"
