"""Fields and layer types that forks of Caffe added to its schema.

HARMLESS    fields that have no effect here: they are removed before the text is parsed, with a note
REFUSED     fields that determine sizes or arithmetic: an error with the alternative
TYPES, LAYER_FIELDS     types and fields of forks, for errors about those that layermem lacks

A field of the schema is in none of these tables: remove its line when it gets a meaning.

source  the caffe.proto of each fork: weiliu89/caffe (SSD), NVIDIA/caffe (NVCaffe), intel/caffe, pmgysel/caffe
        (Ristretto), yjxiong/caffe, hszhao/PSPNet, alexgkendall/caffe-segnet, rbgirshick/caffe-fast-rcnn (Fast and
        Faster R-CNN), eric612/MobileNet-YOLO, naibaf7/caffe (OpenCL Caffe), MyCaffe/MyCaffe,
        junhyukoh/caffe-lstm, facebook/C3D, jolibrain/caffe
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from layermem.proto.blanking import FieldText
from layermem.proto.outline import Field, Outline
from layermem.proto.schema import Message


class Harmless(NamedTuple):
    fork: str
    reason: str
    values: tuple[str, ...] = ()  # the only values without effect; none: all values


_OWN_KERNELS = "layermem has kernels of its own"
_OWN_PRECISION = "number formats are chosen by the option --precision"
_OWN_PLAN = "memory is planned for every net"
_ONE_PROCESS = "a net runs in one process"
_OWN_READER = "records are read ahead by one thread, in the order of the database"

_TRANSFORM = "TransformationParameter"
_SWITCHES = {  # of transform_param, by fork: each augments images where it is true, and is false by default
    "yjxiong/caffe": "fix_crop more_fix_crop multi_scale is_flow original_image rand_crop_test",
    "SSD": "vertical_mirror random_90_deg_rot",
    "MobileNet-YOLO": "enable_classf_aug contrast_brightness_adjustment smooth_filtering cvt_bgr2rgb",
    "LRCN and Intel": "flow bgr2rgb",
}

HARMLESS: dict[tuple[str, str], Harmless] = {
    **{
        (_TRANSFORM, name): Harmless(fork, "false is the default", ("false",))
        for fork, words in _SWITCHES.items()
        for name in words.split()
    },
    ("NetParameter", "engine"): Harmless("Intel Caffe", _OWN_KERNELS),
    ("NetParameter", "compile_net_state"): Harmless("Intel Caffe", "layermem fuses layers where bits stay equal"),
    ("NetParameter", "default_forward_type"): Harmless("NVCaffe", _OWN_PRECISION),
    ("NetParameter", "default_backward_type"): Harmless("NVCaffe", _OWN_PRECISION),
    ("NetParameter", "default_forward_math"): Harmless("NVCaffe", _OWN_PRECISION),
    ("NetParameter", "default_backward_math"): Harmless("NVCaffe", _OWN_PRECISION),
    ("NetParameter", "default_cudnn_math_override"): Harmless("NVCaffe", _OWN_PRECISION),
    ("NetParameter", "default_conv_algos_override"): Harmless("NVCaffe", _OWN_KERNELS),
    ("NetParameter", "global_grad_scale"): Harmless("NVCaffe", "gradients are sums in fp32, which need no scale"),
    ("NetParameter", "global_grad_scale_adaptive"): Harmless("NVCaffe", "gradients are sums in fp32, without a scale"),
    ("NetParameter", "reduce_buckets"): Harmless("NVCaffe", _ONE_PROCESS),
    ("NetParameter", "eltwise_mem_sharing"): Harmless("NVCaffe", _OWN_PLAN),
    ("NetParameter", "mem_param"): Harmless("yjxiong/caffe", _OWN_PLAN),
    ("NetParameter", "richness"): Harmless("yjxiong/caffe", _OWN_PLAN),
    ("NetParameter", "optimize_mem"): Harmless("yjxiong/caffe", _OWN_PLAN),
    ("NetParameter", "reduced_memory_inference"): Harmless("OpenCL Caffe", _OWN_PLAN),
    ("NetParameter", "autotune"): Harmless("OpenCL Caffe", _OWN_KERNELS),
    ("NetParameter", "multinode"): Harmless("Intel Caffe", _ONE_PROCESS),
    ("NetParameter", "bn_stats_batch_size"): Harmless("Intel Caffe", "0 is the default", ("0",)),
    ("NetParameter", "profile_info"): Harmless("SegNet", "`layermem time` measures layers"),
    ("LayerParameter", "engine"): Harmless("Intel Caffe", _OWN_KERNELS),
    ("LayerParameter", "quantization_param"): Harmless(
        "Ristretto and Intel Caffe", "it states ranges for integer arithmetic, and this type of layer computes in fp32"
    ),
    ("LayerParameter", "multinode"): Harmless("Intel Caffe", _ONE_PROCESS),
    ("LayerParameter", "forward_type"): Harmless("NVCaffe", _OWN_PRECISION),
    ("LayerParameter", "backward_type"): Harmless("NVCaffe", _OWN_PRECISION),
    ("LayerParameter", "forward_math"): Harmless("NVCaffe", _OWN_PRECISION),
    ("LayerParameter", "backward_math"): Harmless("NVCaffe", _OWN_PRECISION),
    ("LayerParameter", "cudnn_math_override"): Harmless("NVCaffe", _OWN_PRECISION),
    ("LayerParameter", "debug"): Harmless("NVCaffe", "it only prints"),
    ("LayerParameter", "reshape_every_iter"): Harmless("FlowNet", "shapes do not change between iterations"),
    ("ConvolutionParameter", "cudnn_convolution_algo_seeker"): Harmless("NVCaffe", _OWN_KERNELS),
    ("ConvolutionParameter", "conv_algos_override"): Harmless("NVCaffe", _OWN_KERNELS),
    ("ConvolutionParameter", "conv_algorithm"): Harmless("Intel Caffe", _OWN_KERNELS),
    ("BatchNormParameter", "use_weight_bias"): Harmless("Intel Caffe", "false is BVLC Caffe's", ("false",)),
    ("BatchNormParameter", "relu"): Harmless("Intel Caffe", "false is the default", ("false",)),
    ("BatchNormParameter", "stats_batch_size"): Harmless("Intel Caffe", "0 is the default", ("0",)),
    ("BNParameter", "rebn"): Harmless("caffe_mpi (lxx1991)", "false is the default", ("false",)),
    ("ConvolutionParameter", "relu"): Harmless("Intel Caffe", "false is the default", ("false",)),
    ("LossParameter", "weight_by_label_freqs"): Harmless("SegNet", "false is Caffe's loss", ("false",)),
    ("DropoutParameter", "scale_train"): Harmless("Faster R-CNN", "true is Caffe's scaling", ("true",)),
    ("DropoutParameter", "sample_weights_test"): Harmless("SegNet", "false is Caffe's dropout", ("false",)),
    ("DataParameter", "shuffle"): Harmless("NVCaffe and Intel Caffe", _OWN_READER),
    ("DataParameter", "cache"): Harmless("NVCaffe", _OWN_READER),
    ("DataParameter", "threads"): Harmless("NVCaffe", _OWN_READER),
    ("DataParameter", "parser_threads"): Harmless("NVCaffe", _OWN_READER),
    ("DataParameter", "precache"): Harmless("NVCaffe", _OWN_READER),
    ("DataParameter", "rand_permute"): Harmless("FlowNet", _OWN_READER),
    ("DataParameter", "rand_permute_order"): Harmless("FlowNet", _OWN_READER),
    ("DataParameter", "rand_permute_seed"): Harmless("FlowNet", _OWN_READER),
    ("DataParameter", "permute_every_iter"): Harmless("FlowNet", _OWN_READER),
    ("DataParameter", "block_size"): Harmless("FlowNet", _OWN_READER),
    ("DataParameter", "disk_reader_threads"): Harmless("FlowNet", _OWN_READER),
    ("DataParameter", "verbose"): Harmless("FlowNet", "it only prints"),
    ("DenseImageDataParameter", "mean_file"): Harmless("SegNet", "that of transform_param is subtracted"),
    ("ImageDataParameter", "cache"): Harmless("NVCaffe", "images are decoded when they are read"),
    ("ImageDataParameter", "precache"): Harmless("NVCaffe", "images are decoded when they are read"),
    ("ImageDataParameter", "threads"): Harmless("NVCaffe", "images are read ahead by one thread"),
    ("TransformationParameter", "use_gpu_transform"): Harmless("NVCaffe", "images are transformed on the host"),
    ("TransformationParameter", "interpolation_algo_up"): Harmless("NVCaffe", "images are not resized at random"),
    ("TransformationParameter", "interpolation_algo_down"): Harmless("NVCaffe", "images are not resized at random"),
    ("TransformationParameter", "allow_upscale"): Harmless("NVCaffe", "images are not resized at random"),
    ("TransformationParameter", "forward_packing"): Harmless("NVCaffe", _OWN_PLAN),
    ("TransformationParameter", "debug_params"): Harmless("MobileNet-YOLO", "it only prints"),
    ("TransformationParameter", "display"): Harmless("NVCaffe", "it only prints"),
    ("TransformationParameter", "random_seed"): Harmless("NVCaffe", "random numbers follow the solver's random_seed"),
    ("ResizeParameter", "center_object"): Harmless("SSD", "false is the default", ("false",)),
    ("ResizeParameter", "max_angle"): Harmless("SSD", "0 is the default", ("0", "0.0")),
    ("RecurrentParameter", "use_cudnn_rnn8_if_supported"): Harmless("MyCaffe", _OWN_KERNELS),
    ("DetectionOutputParameter", "save_output_param"): Harmless("SSD", "the top has the boxes, no file is written"),
    ("DetectionOutputParameter", "visualize"): Harmless("SSD", "the top has the boxes, nothing is drawn"),
    ("DetectionOutputParameter", "visualize_threshold"): Harmless("SSD", "the top has the boxes, nothing is drawn"),
    ("DetectionOutputParameter", "save_file"): Harmless("SSD", "the top has the boxes, no file is written"),
    ("RegionLossParameter", "side"): Harmless("MobileNet-YOLO", "that of the bottom counts"),
    ("RegionLossParameter", "softmax"): Harmless("MobileNet-YOLO", "classes have a softmax", ("1",)),
    ("RegionLossParameter", "jitter"): Harmless("MobileNet-YOLO", "no loss reads it"),
    ("RegionLossParameter", "absolute"): Harmless("MobileNet-YOLO", "no loss reads it"),
    ("RegionLossParameter", "random"): Harmless("MobileNet-YOLO", "no loss reads it"),
    ("Yolov3Parameter", "side"): Harmless("MobileNet-YOLO", "that of the bottom counts"),
    ("Yolov3Parameter", "noobject_scale"): Harmless("MobileNet-YOLO", "its loss does not read it"),
    ("Yolov3Parameter", "use_focal_loss"): Harmless("MobileNet-YOLO", "false is the default", ("false",)),
    ("YoloDetectionOutputParameter", "side"): Harmless("MobileNet-YOLO", "that of the bottom counts"),
    ("YoloDetectionOutputParameter", "coords"): Harmless("MobileNet-YOLO", "a box has 4", ("4",)),
    ("YoloDetectionOutputParameter", "label_map_file"): Harmless("MobileNet-YOLO", "the top has labels, not names"),
    ("SolverParameter", "show_per_class_result"): Harmless("SSD", "it only prints"),
    ("SolverParameter", "engine"): Harmless("Intel Caffe", _OWN_KERNELS),
    ("SolverParameter", "richness"): Harmless("yjxiong/caffe", _OWN_PLAN),
    ("SolverParameter", "debug_display"): Harmless("yjxiong/caffe", "it only prints"),
    ("SolverParameter", "multinode_param"): Harmless("Intel Caffe", _ONE_PROCESS),
    ("SolverParameter", "optimize_mem"): Harmless("yjxiong/caffe", _OWN_PLAN),
    ("SolverParameter", "solver_data_type"): Harmless("NVCaffe", _OWN_PRECISION),
    ("SolverParameter", "per_parameter_reduce"): Harmless("NVCaffe", _ONE_PROCESS),
    ("SolverParameter", "reduce_buckets"): Harmless("NVCaffe", _ONE_PROCESS),
    ("SolverParameter", "store_blobs_in_old_format"): Harmless("NVCaffe", "files have the format of BVLC Caffe"),
}

_WITH_SCALE = "write a Scale layer with bias_term: true behind the BatchNorm, or scale_bias: true in it"
_WEIGHTS = "write an InfogainLoss whose matrix has the weights on its diagonal"
_PRE_FIXED = "write normalization: NONE and a loss_weight, 1 / pre_fixed_normalizer"
_RESIZED = "resize the images before they are stored, and remove it"
_BEFOREHAND = "apply it to the images before they are stored, or remove it"
_RENORM = "batch renormalization is not supported: set rebn to false, or train with the statistics of the batch"
_EXPOSED = "write expose_hidden, with the states both as bottoms and as tops"
_WARMUP = "write warmup_iter and warmup_start_lr"
_POLICY = 'write the rates as lr_policy: "multistep" or another policy of BVLC Caffe'

_AUGMENTING = {  # other fields of transform_param that change pixels before the crop, by fork
    "yjxiong/caffe": "scale_ratios max_distort original_min_scale eigs eigs_channels",
    "MobileNet-YOLO": "min_scaling_factor max_scaling_factor max_rotation_angle min_contrast max_contrast "
    "max_brightness_shift max_smooth max_color_shift min_side min_side_min min_side_max apply_probability",
    "Intel Caffe": "pad",
}
_STATED = "remove it, and resize the images to one size before they are stored"

REFUSED: dict[tuple[str, str], tuple[str, str]] = {  # (owner, field) -> (fork, remedy)
    **{
        (_TRANSFORM, name): (fork, _BEFOREHAND)
        for fork, names in (*_SWITCHES.items(), *_AUGMENTING.items())
        for name in names.split()
    },
    (_TRANSFORM, "stride"): ("yjxiong/caffe", _STATED),
    (_TRANSFORM, "upper_size"): ("yjxiong/caffe", _STATED),
    (_TRANSFORM, "upper_height"): ("yjxiong/caffe", _STATED),
    (_TRANSFORM, "upper_width"): ("yjxiong/caffe", _STATED),
    (_TRANSFORM, "short_edge"): ("yjxiong/caffe", _STATED),
    (_TRANSFORM, "var_sz_img_enabled"): ("NVCaffe", _STATED),
    (_TRANSFORM, "var_sz_img_rand_crop"): ("NVCaffe", "write crop_size, which does it"),
    (_TRANSFORM, "var_sz_img_center_crop"): ("NVCaffe", "write crop_size, which does it"),
    (_TRANSFORM, "num_labels"): ("NVCaffe", "read the labels from a second database, or from HDF5Data"),
    ("NetParameter", "bn_stats_batch_size"): ("Intel Caffe", "remove it: statistics are those of the batch"),
    ("BatchNormParameter", "use_weight_bias"): ("Intel Caffe", _WITH_SCALE),
    ("BatchNormParameter", "bias_term"): ("Intel Caffe", _WITH_SCALE),
    ("BatchNormParameter", "filler"): ("Intel Caffe", _WITH_SCALE),
    ("BatchNormParameter", "relu"): ("Intel Caffe", "write a ReLU layer behind it, which layermem fuses"),
    ("BatchNormParameter", "stats_batch_size"): ("Intel Caffe", "remove it: statistics are those of the batch"),
    ("BatchNormParameter", "statistics_batch_size"): ("Intel Caffe", "remove it: statistics are those of the batch"),
    ("ConvolutionParameter", "relu"): ("Intel Caffe", "write a ReLU layer behind it, which layermem fuses"),
    ("ConvolutionParameter", "negative_slope"): ("Intel Caffe", "write a ReLU layer behind it, which layermem fuses"),
    ("BNParameter", "rebn"): ("caffe_mpi (lxx1991)", _RENORM),
    ("BNParameter", "relax_iter"): ("caffe_mpi (lxx1991)", _RENORM),
    ("BNParameter", "max_r"): ("caffe_mpi (lxx1991)", _RENORM),
    ("BNParameter", "max_d"): ("caffe_mpi (lxx1991)", _RENORM),
    ("LossParameter", "weight_by_label_freqs"): ("SegNet", _WEIGHTS),
    ("LossParameter", "class_weighting"): ("SegNet", _WEIGHTS),
    ("LossParameter", "pre_fixed_normalizer"): ("Intel Caffe", _PRE_FIXED),
    ("LossParameter", "label_smoothing"): ("Intel Caffe", "remove it: labels are taken as they are"),
    ("ConvolutionParameter", "fusion_type"): ("Intel Caffe", "write the fused layers one by one; layermem fuses them"),
    ("DropoutParameter", "scale_train"): ("Faster R-CNN", "use true, with weights trained that way"),
    ("DropoutParameter", "sample_weights_test"): ("SegNet", "remove it: the TEST phase drops nothing"),
    ("RecurrentParameter", "num_layers"): ("MyCaffe", "write as many layers, each over the one before"),
    ("RecurrentParameter", "dropout_ratio"): ("MyCaffe", "write a Dropout layer behind it"),
    ("RecurrentParameter", "batch_first"): ("MyCaffe", "put the steps on the first axis with a Permute layer"),
    ("RecurrentParameter", "expose_hidden_input"): ("MyCaffe", _EXPOSED),
    ("RecurrentParameter", "expose_hidden_output"): ("MyCaffe", _EXPOSED),
    ("RecurrentParameter", "auto_repeat_hidden_states_across_layers"): ("MyCaffe", "name the states of each layer"),
    ("TransformationParameter", "random_resize_param"): ("Intel Caffe", _RESIZED),
    ("TransformationParameter", "random_aspect_ratio_param"): ("Intel Caffe", _RESIZED),
    ("TransformationParameter", "crop_h"): ("SSD", "write crop_size, or crop the images before they are stored"),
    ("TransformationParameter", "crop_w"): ("SSD", "write crop_size, or crop the images before they are stored"),
    ("TransformationParameter", "noise_param"): ("SSD", _BEFOREHAND),
    ("TransformationParameter", "img_rand_resize_lower"): ("NVCaffe", _RESIZED),
    ("TransformationParameter", "img_rand_resize_upper"): ("NVCaffe", _RESIZED),
    ("TransformationParameter", "rand_resize_ratio_lower"): ("NVCaffe", _RESIZED),
    ("TransformationParameter", "rand_resize_ratio_upper"): ("NVCaffe", _RESIZED),
    ("TransformationParameter", "vertical_stretch_lower"): ("NVCaffe", _RESIZED),
    ("TransformationParameter", "vertical_stretch_upper"): ("NVCaffe", _RESIZED),
    ("TransformationParameter", "horizontal_stretch_lower"): ("NVCaffe", _RESIZED),
    ("TransformationParameter", "horizontal_stretch_upper"): ("NVCaffe", _RESIZED),
    ("TransformationParameter", "var_sz_img_rand_resize_lower"): ("NVCaffe", _RESIZED),
    ("TransformationParameter", "var_sz_img_rand_resize_upper"): ("NVCaffe", _RESIZED),
    ("TransformationParameter", "var_sz_img_enable_random_crop"): ("NVCaffe", "write crop_size, which does it"),
    ("TransformationParameter", "var_sz_img_enable_center_crop"): ("NVCaffe", "write crop_size, which does it"),
    ("ResizeParameter", "center_object"): ("SSD", _BEFOREHAND),
    ("ResizeParameter", "max_angle"): ("SSD", _BEFOREHAND),
    ("SolverParameter", "rampup_interval"): ("NVCaffe", _WARMUP),
    ("SolverParameter", "rampup_lr"): ("NVCaffe", _WARMUP),
    ("SolverParameter", "min_lr"): ("NVCaffe", _POLICY),
    ("SolverParameter", "plateau_winsize"): ("SSD", _POLICY),
    ("SolverParameter", "stagelr"): ("Intel Caffe", _POLICY),
    ("SolverParameter", "stageiter"): ("Intel Caffe", _POLICY),
    ("SolverParameter", "local_lr_auto"): ("Intel Caffe", "remove it, and state lr_mult of each parameter"),
    ("SolverParameter", "local_gw_ratio"): ("Intel Caffe", "remove it, and state lr_mult of each parameter"),
    ("SolverParameter", "larc"): ("NVCaffe", "remove it, and state lr_mult of each parameter"),
    ("SolverParameter", "larc_policy"): ("NVCaffe", "remove it, and state lr_mult of each parameter"),
    ("SolverParameter", "larc_eta"): ("NVCaffe", "remove it, and state lr_mult of each parameter"),
    ("SolverParameter", "momentum_policy"): ("NVCaffe", "remove it: momentum does not change"),
    ("SolverParameter", "max_momentum"): ("NVCaffe", "remove it: momentum does not change"),
    ("SolverParameter", "momentum_power"): ("NVCaffe", "remove it: momentum does not change"),
    ("SolverParameter", "max_epoch"): ("NVCaffe", "write max_iter, the batches of so many epochs"),
    ("RegionLossParameter", "softmax"): ("MobileNet-YOLO", "use 1: classes have a softmax there too, whatever it is"),
    ("RegionLossParameter", "softmax_tree"): ("YOLO9000", "remove it: a softmax is over all classes"),
    ("RegionLossParameter", "class_map"): ("YOLO9000", "remove it: labels are numbers of classes"),
    ("Yolov3Parameter", "use_focal_loss"): ("MobileNet-YOLO", "remove it: classes have cross entropies"),
    ("YoloDetectionOutputParameter", "coords"): ("MobileNet-YOLO", "use 4: a box has 4 coordinates"),
}

# Blocks that a fork made repeated, by the fork; the schema has one of each.
REPEATED = {("TransformationParameter", "resize_param"): "MobileNet-YOLO"}

# Blocks of LayerParameter, by the fork that defines them.
_BLOCKS = {
    "C3D, yjxiong/caffe and SSD": "video_data_param",
    "R-FCN": "box_annotator_ohem_param",
    "PSPNet": "seg_accuracy_param",
    "yjxiong/caffe": "batch_reduction_param seg_data_param",
    "caffe-lstm": "lstm_param",
    "SENet": "axpy_param",
    "FlowNet": "augmentation_param correlation_param flow_warp_param resample_param downsample_param l1_loss_param "
    "writer_param reader_param mean_param accum_param black_augmentation_param lpq_loss_param coeff_schedule_param",
    "OpenPose": "cpm_transform_param",
    "Intel Caffe": "mn_activation_param mn_grad_compress_param eval_detection_param spatial_dropout_param",
    "DetectNet": "detectnet_groundtruth_param detectnet_augmentation_param",
    "triplet-loss forks": "triplet_loss_param",
    "center-loss forks": "center_loss_param",
    "SphereFace": "margin_inner_product_param",
}
# Types of layers by the fork that defines them; a type of several forks is listed under the first.
_TYPE_NAMES = {
    "C3D, yjxiong/caffe and SSD": "VideoData",
    "R-FCN": "BoxAnnotatorOHEM SmoothL1LossOHEM SoftmaxWithLossOHEM",
    "MNC": "ROIWarping ROIMerging MaskResize MaskPooling",
    "PSPNet": "SegAccuracy SyncBN",
    "yjxiong/caffe": "BatchReduction SegData",
    "DeepLab": "ImageSegData MatWrite DenseCRF",
    "MobileNet": "ConvolutionDepthWise DepthwiseConv DeconvolutionDepthwise",
    "MobileNet-YOLO": "Region YoloV3Loss UpsampleDarknet Concat2 Mish",
    "Ristretto": "ConvolutionRistretto DeconvolutionRistretto FcRistretto LRNRistretto",
    "caffe-lstm": "Lstm",
    "FlowNet": "DataAugmentation GenerateAugmentationParameters Correlation FlowWarp Resample Downsample L1Loss "
    "LpqLoss CustomData Mean ChannelNorm FlowAugmentation Accum",
    "OpenPose": "CPMData CPMBottomUp ImResize Nms",
    "DetectNet": "DetectNetTransformation",
    "triplet-loss forks": "TripletLoss TripletSelect",
    "center-loss forks": "CenterLoss",
    "SphereFace": "MarginInnerProduct",
    "ND-convolution forks": "NdConvolution NdPooling Pooling3D Convolution3D NdDeconvolution",
    "C3D": "VideoData3D",
    "DeconvNet": "Unpooling",
    "Deformable ConvNets": "DeformableConvolution DeformablePSROIPooling",
    "Spatial Transformer forks": "SpatialTransformer",
    "Mask R-CNN forks": "ROIAlign PSROIAlign",
    "focal-loss forks": "FocalLoss SoftmaxWithFocalLoss SoftmaxFocalLoss",
    "CTC forks": "WarpCTC WarpCTCLoss CTCLoss CTCGreedyDecoder LabelsequenceAccuracy",
    "normalization forks": "GroupNorm InstanceNorm LayerNorm BatchRenorm",
    "MobileNet v3 forks": "HSwish HardSwish HSigmoid HardSigmoid",
    "heatmap forks": "DataHeatmap EuclideanLossHeatmap",
    "Intel Caffe": "MnActivation MnParamGradCompress SimplerNMS Proposal ReLUMKL EvalDetection SpatialDropout",
    "jolibrain": "BroadcastMul",
}

# Values of fields, by the fork that defines them.
_VALUES = {("normalization", "PRE_FIXED"): ("Intel Caffe", _PRE_FIXED)}

LAYER_FIELDS = {name: fork for fork, names in _BLOCKS.items() for name in names.split()}
TYPES = {name: fork for fork, names in _TYPE_NAMES.items() for name in names.split()}

ENGINE = "engine"
_REMOVED = {ENGINE, *(name for _, name in HARMLESS)}
_CANDIDATE = re.compile(rf"\b(?:{'|'.join(sorted(_REMOVED))})\b")
_ENGINES = Harmless("several forks", _OWN_KERNELS)


def owner_name(descriptor: Message) -> str:
    """The name of a message in the tables: fields of an old `layers` block count as fields of a `layer`."""
    name = str(descriptor.name)
    return "LayerParameter" if name == "V1LayerParameter" else name


def augments(owner: str, name: str) -> bool:
    """Whether a field of a fork changes pixels of images before they are cropped, and no shape that is stated."""
    return (owner, name) in REPEATED or REFUSED.get((owner, name), ("", ""))[1] in (_BEFOREHAND, _RESIZED)


def repeated_refusal(owner: str, name: str) -> str:
    """The reason why a second block of a field that a fork made repeated is an error."""
    return f"several are from {_the(REPEATED[owner, name])}, which draws one of them from time to time; keep one"


def refusal(owner: str, name: str) -> str | None:
    """The reason why a known field of a fork is an error, with a remedy; None for any other field."""
    if (owner, name) in REFUSED:
        fork, remedy = REFUSED[owner, name]
        return f"it is from {_the(fork)}, and it is not obeyed here; {remedy}"
    if owner == "LayerParameter" and name in LAYER_FIELDS:
        return f"it is from {_the(LAYER_FIELDS[name])}, which is not supported"
    return None


def fork_of_type(name: str) -> str | None:
    """The text for the fork that defines a layer type; None for other types."""
    return _the(TYPES[name]) if name in TYPES else None


def fork_of_old_type(name: str) -> str | None:
    """The text for the fork that defines a type in capitals, as in old `layers` blocks (SEG_ACCURACY), or None."""
    return next((_the(fork) for each, fork in TYPES.items() if each.upper() == name.replace("_", "").upper()), None)


def fork_of_value(field: str, value: str) -> tuple[str, str] | None:
    """The text for the fork that defines a value of a field with named values, and what to write instead; None for
    other values."""
    if (field, value) not in _VALUES:
        return None
    fork, remedy = _VALUES[field, value]
    return _the(fork), remedy


def _the(fork: str) -> str:
    """The text for a fork: "the SSD fork of Caffe", "Intel Caffe", "several forks of Caffe"."""
    if " and " in fork:
        return f"the {fork} forks of Caffe"
    if fork.endswith("Caffe"):
        return fork
    return f"{fork} of Caffe" if fork.endswith("forks") else f"the {fork} fork of Caffe"


# -- removal ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """A text whose harmless fields of forks are replaced by blanks, so that lines and columns stay."""

    text: str
    notes: tuple[str, ...] = ()


def without_fork_fields(text: str, root: Message, layout: Outline, path: str) -> Plain:
    """Return `text`, which should hold a message of the type of `root`, without harmless fields of forks.

    `path` is the path of the file, for the notes.
    """
    if not _CANDIDATE.search(text):
        return Plain(text)
    return _Removal(text, root.DESCRIPTOR, layout, path).run()


class _Removal:
    def __init__(self, text: str, root: Message, layout: Outline, path: str):
        self.fields, self.layout, self.path = FieldText(text, root, layout), layout, path
        # Lines of removed fields by (field, value, fork, reason).
        self.lines: dict[tuple[str, str, str, str], list[int]] = {}

    def run(self) -> Plain:
        spans: list[tuple[int, int]] = []
        end = 0
        for field in self.layout.fields:
            if self.fields.offset(*field.value) < end or field.path[-1] not in _REMOVED:
                continue
            known = self._harmless(field)
            if known is None:
                continue
            begin, end = self.fields.span(field)
            spans.append((begin, end))
            block = owner_name(self.fields.owner(field.path[:-1]))
            self.lines.setdefault((block, field.path[-1], known.fork, known.reason), []).append(field.line)
        return Plain(self.fields.blanked(spans), tuple(self._notes()))

    def _harmless(self, field: Field) -> Harmless | None:
        owner, name = self.fields.owner(field.path[:-1]), field.path[-1]
        if owner is None:
            return None
        if name in owner.fields_by_name:
            return _ENGINES if name == ENGINE and self.fields.has_unknown_name(field) else None
        entry = HARMLESS.get((owner_name(owner), name))
        if entry is None and name == ENGINE and owner.name.endswith("Parameter"):
            return _ENGINES
        return entry if entry is None or not entry.values or self.fields.word(field) in entry.values else None

    def _notes(self) -> list[str]:
        notes = []
        for (owner, name, fork, reason), lines in self.lines.items():
            more = f" (and on {len(lines) - 1} more lines)" if len(lines) > 1 else ""
            where = f"{self.path}:{lines[0]}"
            notes.append(f"{where}: '{name}' of {owner}, from {_the(fork)}, has no effect here: {reason}{more}")
        return notes
