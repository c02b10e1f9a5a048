"""Normalization, scales and biases."""

from typing import Any

from tests.cases.base import BATCH, BIG, CLIP, IMAGE, MAPS, ODD, PICTURES, QUADS, SLIVER, add

LOOSE = {"tolerance": 1e-5}
add("LRN", 'type: "LRN"', timing=BATCH)
add("LRN of five", 'type: "LRN" lrn_param { local_size: 5 alpha: 0.3 }', medium=IMAGE)
add("LRN of three", 'type: "LRN" lrn_param { local_size: 3 alpha: 1 }', small=ODD)
add("LRN by quads", 'type: "LRN" lrn_param { local_size: 7 alpha: 1 }', small=QUADS)
add("LRN, another beta", 'type: "LRN" lrn_param { local_size: 5 alpha: 1 beta: 0.6 }', small=ODD)
add("LRN of AlexNet", 'type: "LRN" lrn_param { local_size: 5 alpha: 1e-4 beta: 0.75 }', gpu=MAPS)
add("LRN within", 'type: "LRN" lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL }', timing=BATCH)
add("LRN within by quads", 'type: "LRN" lrn_param { local_size: 3 alpha: 1 norm_region: WITHIN_CHANNEL }', small=QUADS)
add(
    "LRN within, alpha 0.3",
    'type: "LRN" lrn_param { local_size: 3 alpha: 0.3 norm_region: WITHIN_CHANNEL }',
    medium=IMAGE,
)
add("LRN within, alpha 1", 'type: "LRN" lrn_param { local_size: 3 alpha: 1 norm_region: WITHIN_CHANNEL }', small=ODD)
add("BatchNorm", 'type: "BatchNorm"', small=(4, 3, 12, 17), gpu=MAPS, **BIG, **LOOSE)
add("BatchNorm by quads", 'type: "BatchNorm"', small=QUADS, **LOOSE)
add("BatchNorm of rows", 'type: "BatchNorm"', medium=(9, 4), **LOOSE)
add("BatchNorm of pictures", 'type: "BatchNorm"', timing=PICTURES)
add("BatchNorm of averages", 'type: "BatchNorm" batch_norm_param { use_global_stats: true }', small=ODD, medium=IMAGE)
SCALED = 'type: "BatchNorm" batch_norm_param { scale_bias: true }'
add("BatchNorm of NVCaffe", SCALED, small=QUADS, medium=IMAGE, **LOOSE)
add("BatchNorm of NVCaffe, in TEST", SCALED, small=ODD, medium=IMAGE, phase=1)
NORMALIZED = {"normalized": True, **LOOSE}
add("BatchNorm + Scale", "", medium=IMAGE, **NORMALIZED)
add("BatchNorm + Scale + ReLU", "", medium=IMAGE, relu=True, **NORMALIZED)
add("BatchNorm + Scale + residual", "", medium=SLIVER, residual=True, **NORMALIZED)
add("BatchNorm + Scale + residual from y", "", medium=SLIVER, saved="y0", residual=True, **NORMALIZED)
add("BatchNorm + Scale + residual + ReLU", "", small=ODD, gpu=MAPS, residual=True, relu=True, **NORMALIZED)
add("BatchNorm + Scale + residual + ReLU from y", "", small=QUADS, saved="y0", residual=True, relu=True, **NORMALIZED)
add("MVN", 'type: "MVN"', small=ODD, medium=IMAGE, timing=BATCH, **LOOSE)
add("MVN by quads", 'type: "MVN"', small=(2, 36, 3, 3), **LOOSE)
add("MVN of maps larger than a run", 'type: "MVN"', medium=(1, 70, 17, 19), small=(1, 1, 24, 17))
add("MVN across channels", 'type: "MVN" mvn_param { across_channels: true }', small=ODD, medium=IMAGE, **LOOSE)
add("MVN of rows", 'type: "MVN" mvn_param { across_channels: true }', medium=(4, 37), **LOOSE)
add("MVN, mean only", 'type: "MVN" mvn_param { normalize_variance: false }', small=ODD, medium=IMAGE)
add(
    "MVN, mean only, across channels",
    'type: "MVN" mvn_param { normalize_variance: false across_channels: true }',
    medium=IMAGE,
)
add("MVN of eps 0.1", 'type: "MVN" mvn_param { eps: 0.1 }', medium=SLIVER, tolerance=0.3)  # Caffe's gradient: eps 0


def scale(name: str, settings: str, kind: str = "Scale", **more: Any) -> None:
    add(name, f'type: "{kind}" {kind.lower()}_param {{ {settings} }}', **more)


scale("Scale without bias", "", timing=BATCH)
scale("Scale", "bias_term: true", small=ODD, medium=IMAGE)
scale("Scale by quads", "bias_term: true", small=QUADS)
scale("Scale of C x H", "bias_term: true num_axes: 2", small=ODD)
scale("Scale of C x H x W", "axis: 1 num_axes: -1", **BIG)
scale("Scale by C", "axis: 1", medium=[IMAGE, (6,)])
scale("Scale by N x C", "axis: 0", medium=[IMAGE, IMAGE[:2]], timing=[BATCH, BATCH[:2]])
scale("Scale by N", "axis: 0", medium=[IMAGE, IMAGE[:1]])
scale("Scale by all axes", "axis: 0", medium=[IMAGE, IMAGE])
scale("Scale of one number", "num_axes: 0 bias_term: true", medium=IMAGE)
scale("Scale of N", "axis: 0 num_axes: 1 bias_term: true", medium=IMAGE)
scale("Scale of C x H, from axis 1", "axis: 1 num_axes: 2 bias_term: true", medium=IMAGE)
scale("Scale of N x C x H", "axis: 0 num_axes: 3 bias_term: true", medium=IMAGE)
scale("Scale of H", "axis: 2 num_axes: 1 bias_term: true", medium=IMAGE)
scale("Scale of H x W", "axis: 2 num_axes: 2", medium=IMAGE)
scale("Scale of everything", "axis: 0 num_axes: -1 bias_term: true", medium=IMAGE)
scale("Scale of three axes", "axis: 2 bias_term: true", medium=(3, 4, 5))
scale("Scale of four axes of five", "axis: 1 num_axes: 4 bias_term: true", small=(2, 2, 3, 2, 3), medium=CLIP)
scale("Scale by four axes of five", "axis: 0", medium=[CLIP, CLIP[:4]])
scale("Bias", "", "Bias", **BIG)
scale("Bias by N x C", "axis: 0", "Bias", medium=[IMAGE, (2, 6)])
scale("Bias by N", "axis: 0", "Bias", medium=[IMAGE, IMAGE[:1]])
scale("Bias of C x H x W", "axis: 1 num_axes: -1", "Bias", medium=IMAGE)


def batch_norm(name: str, settings: str, **more: Any) -> None:
    add(name, f'type: "BN" bn_param {{ {settings} }}', **{**LOOSE, **more})


batch_norm("BN of yjxiong", "momentum: 0.8", small=ODD, **BIG)
batch_norm("BN of yjxiong by quads", "slope_filler { value: 1 }", small=QUADS)
batch_norm("BN of yjxiong, frozen", "frozen: true", small=ODD, medium=IMAGE)
batch_norm("BN of rows", "eps: 0.01", medium=(9, 4))
batch_norm("BN of PSPNet", "var_eps: 1e-5 decay: 0.1", small=ODD)
batch_norm("BN of SegNet", "bn_mode: LEARN", small=QUADS, medium=IMAGE)
batch_norm("BN of SegNet, inference", "bn_mode: INFERENCE", small=ODD, medium=IMAGE)


def normalize(name: str, settings: str, **more: Any) -> None:
    add(name, f'type: "Normalize" norm_param {{ {settings} }}', **more)


normalize("Normalize", "", medium=IMAGE)
normalize("Normalize of items", "", small=ODD)
normalize("Normalize of items, by blocks", "channel_shared: false", small=(2, 3, 17, 13))
normalize("Normalize of items by channel", "channel_shared: false", medium=IMAGE)
normalize("Normalize of pixels", "across_spatial: false channel_shared: false", small=ODD, medium=IMAGE, timing=BATCH)
normalize("Normalize of pixels by quads", "across_spatial: false channel_shared: false", small=QUADS)
normalize("Normalize of pixels, one scale", "across_spatial: false eps: 0.01", small=ODD)
normalize("Normalize of rows", "channel_shared: false", medium=(9, 4))
normalize("Normalize of many channels", "across_spatial: false channel_shared: false", medium=(2, 300, 13, 9))
