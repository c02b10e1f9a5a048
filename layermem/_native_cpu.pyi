"""Types of the native kernels of the cpu backend; layermem._native.cpu.__doc__ explains them.

Written by tools/native_stub.py.
"""

from collections.abc import Sequence

class Axis:
    def __init__(self, outer: int, size: int, inner: int = 1) -> None: ...

class Channels:
    def __init__(self, outer: int, channels: int, inner: int = 1) -> None: ...

class ConvProblem:
    def __init__(
        self,
        *,
        n: int,
        c: int,
        h: int,
        w: int,
        k: int,
        kernel: tuple[int, int],
        stride: tuple[int, int] = (1, 1),
        pad: tuple[int, int] = (0, 0),
        dilation: tuple[int, int] = (1, 1),
        groups: int = 1,
        first: int = 0,
        of: int = 0,
    ) -> None: ...
    @property
    def ho(self) -> int: ...
    @property
    def wo(self) -> int: ...

class DetectionProblem:
    def __init__(
        self,
        *,
        items: int,
        priors: int,
        classes: int,
        loc_classes: int,
        background: int,
        code: int,
        in_target: bool,
        least_score: float,
        threshold: float,
        eta: float,
        candidates: int,
        of_item: int,
    ) -> None: ...

class EvaluationProblem:
    def __init__(
        self,
        *,
        detections: int,
        truths: int,
        classes: int,
        background: int,
        rows: int,
        overlap_threshold: float,
        difficult: bool,
        sized_items: int,
    ) -> None: ...

class GridLossProblem:
    def __init__(
        self,
        *,
        items: int,
        side: int,
        classes: int,
        rows: int,
        anchors: Sequence[float],
        mask: Sequence[int],
        divisor: float,
        object_scale: float,
        class_scale: float,
        coord_scale: float,
        threshold: float,
        logistic: bool,
    ) -> None: ...

class GridProblem:
    def __init__(
        self,
        *,
        items: int,
        classes: int,
        sides: Sequence[int],
        anchors: Sequence[Sequence[float]],
        divisors: Sequence[float],
        softmax: bool,
        least_score: float,
        threshold: float,
    ) -> None: ...

class Launch:
    def __call__(self) -> None: ...

class MultiBoxProblem:
    def __init__(
        self,
        *,
        items: int,
        priors: int,
        classes: int,
        loc_classes: int,
        rows: int,
        background: int,
        code: int,
        in_target: bool,
        mining: int,
        sample_size: int,
        top_k: int,
        overlap_threshold: float,
        neg_pos_ratio: float,
        neg_overlap: float,
        nms_threshold: float,
        loc_weight: float,
        normalizer: float,
        prior_matching: bool,
        prior_suppression: bool,
        difficult: bool,
        agnostic: bool,
        ignore_crossing: bool,
        bp_inside: bool,
        l2: bool,
        logistic: bool,
        loc: bool,
        conf: bool,
    ) -> None: ...

class PoolProblem:
    def __init__(
        self,
        *,
        n: int,
        c: int,
        h: int,
        w: int,
        out: tuple[int, int],
        kernel: tuple[int, int],
        stride: tuple[int, int] = (1, 1),
        pad: tuple[int, int] = (0, 0),
    ) -> None: ...

class RegionProblem:
    def __init__(
        self,
        *,
        items: int,
        side: int,
        classes: int,
        rows: int,
        warm_up: int,
        anchors: Sequence[float],
        object_scale: float,
        noobject_scale: float,
        class_scale: float,
        coord_scale: float,
        threshold: float,
        rescore: bool,
        bias_match: bool,
    ) -> None: ...

class StepLaunch:
    def __call__(self, step: int) -> None: ...

class UpdateLaunch:
    def __call__(self, rate: float, gain: float = 1.0) -> None: ...

def accuracy(
    axis: Axis,
    *,
    y: int,
    by_class: int = 0,
    x: int,
    label: int,
    ignore_label: int | None = None,
    top_k: int = 1,
    workspace: int,
) -> Launch: ...
def accuracy_workspace_bytes(axis: Axis, by_class: bool = False) -> int: ...
def active_isa() -> str: ...
def available_isas() -> list[str]: ...
def average_pool_backward(
    problem: PoolProblem, *, dx: int, dy: int, accumulate: bool = False, storage: str = ""
) -> Launch: ...
def average_pool_forward(problem: PoolProblem, *, y: int, x: int, storage: str = "") -> Launch: ...
def batch_norm_backward(
    shape: Channels,
    *,
    dx: int,
    x: int,
    dy: int,
    mean: int,
    inv_std: int,
    accumulate: bool = False,
    workspace: int,
    storage: str = "",
) -> Launch: ...
def batch_norm_backward_workspace_bytes(shape: Channels) -> int: ...
def batch_norm_forward(
    shape: Channels,
    *,
    y: int,
    x: int,
    mean: int,
    inv_std: int,
    w0: int = 0,
    w1: int = 0,
    w2: int = 0,
    fraction: float = 0,
    eps: float,
    workspace: int,
    storage: str = "",
) -> Launch: ...
def batch_norm_forward_workspace_bytes(shape: Channels) -> int: ...
def batch_norm_fused_backward(
    shape: Channels,
    *,
    dx: int = 0,
    dfactor: int = 0,
    dbias: int = 0,
    x: int,
    dy: int,
    mean: int,
    inv_std: int,
    factor: int,
    bias: int,
    relu: bool,
    largest_zero: float = 0,
    accumulate_dx: bool = False,
    accumulate_dfactor: bool = False,
    accumulate_dbias: bool = False,
    workspace: int,
    storage: str = "",
) -> Launch: ...
def batch_norm_fused_forward(
    shape: Channels,
    *,
    y: int,
    x: int,
    mean: int,
    inv_std: int,
    factor: int,
    bias: int,
    relu: bool,
    residual: int = 0,
    mask: int = 0,
    largest_zero: float = 0,
    w0: int = 0,
    w1: int = 0,
    w2: int = 0,
    fraction: float = 0,
    eps: float = 0,
    recompute: bool = False,
    workspace: int,
    storage: str = "",
) -> Launch: ...
def batch_norm_fused_global_forward(
    shape: Channels,
    *,
    y: int,
    x: int,
    w0: int,
    w1: int,
    w2: int,
    factor: int,
    bias: int,
    relu: bool,
    eps: float,
    workspace: int,
    storage: str = "",
) -> Launch: ...
def batch_norm_fused_gradient_sums(
    shape: Channels,
    *,
    sums: int = 0,
    dfactor: int = 0,
    dbias: int = 0,
    x: int,
    dy: int,
    mean: int,
    inv_std: int,
    factor: int,
    bias: int,
    relu: bool,
    largest_zero: float = 0,
    accumulate_dfactor: bool = False,
    accumulate_dbias: bool = False,
    first: int = 0,
    of: int = 0,
    carry: int,
    workspace: int,
) -> Launch: ...
def batch_norm_fused_input_gradient(
    shape: Channels,
    *,
    dx: int,
    x: int,
    dy: int,
    mean: int,
    inv_std: int,
    sums: int,
    factor: int,
    bias: int,
    relu: bool,
    largest_zero: float = 0,
    accumulate: bool = False,
    first: int = 0,
    of: int = 0,
    workspace: int,
) -> Launch: ...
def batch_norm_fused_workspace_bytes(shape: Channels) -> int: ...
def batch_norm_global_backward(
    shape: Channels,
    *,
    dx: int,
    dy: int,
    w1: int,
    w2: int,
    eps: float,
    accumulate: bool = False,
    workspace: int,
    storage: str = "",
) -> Launch: ...
def batch_norm_global_forward(
    shape: Channels, *, y: int, x: int, w0: int, w1: int, w2: int, eps: float, workspace: int, storage: str = ""
) -> Launch: ...
def batch_norm_global_workspace_bytes(shape: Channels) -> int: ...
def batch_norm_gradient_sums(
    shape: Channels, *, sums: int = 0, x: int, dy: int, mean: int, inv_std: int, first: int = 0, of: int = 0, carry: int
) -> Launch: ...
def batch_norm_input_gradient(
    shape: Channels,
    *,
    dx: int,
    x: int,
    dy: int,
    mean: int,
    inv_std: int,
    sums: int,
    accumulate: bool = False,
    first: int = 0,
    of: int = 0,
    workspace: int,
) -> Launch: ...
def batch_norm_input_gradient_workspace_bytes(shape: Channels) -> int: ...
def batch_norm_recompute(shape: Channels, *, y: int, x: int, mean: int, inv_std: int, storage: str = "") -> Launch: ...
def batch_norm_statistics(
    shape: Channels,
    *,
    x: int,
    mean: int = 0,
    inv_std: int = 0,
    w0: int = 0,
    w1: int = 0,
    w2: int = 0,
    fraction: float = 0,
    eps: float,
    first: int = 0,
    of: int = 0,
    carry: int,
) -> Launch: ...
def bias_forward(shape: Channels, *, y: int, x: int, bias: int) -> Launch: ...
def channel_sums(
    shape: Channels,
    kind: str,
    *,
    out: int = 0,
    a: int,
    x: int = 0,
    accumulate: bool = False,
    first: int = 0,
    of: int = 0,
    carry: int,
) -> Launch: ...
def channel_sums_carry_bytes(shape: Channels, each: int) -> int: ...
def clip_forward(
    count: int, *, y: int, x: int, mask: int, lowest: float, highest: float, storage: str = ""
) -> Launch: ...
def column_sums(
    rows: int,
    columns: int,
    *,
    out: int,
    x: int,
    accumulate: bool = False,
    workspace: int = 0,
    first: int = 0,
    of: int = 0,
    carry: int = 0,
    storage: str = "",
) -> Launch: ...
def column_sums_carry_bytes(each: int, rows: int, columns: int) -> int: ...
def column_sums_workspace_bytes(rows: int, columns: int) -> int: ...
def contrastive_loss_backward(
    items: int,
    size: int,
    *,
    da: int = 0,
    db: int = 0,
    a: int,
    b: int,
    same: int,
    dloss: int,
    margin: float,
    legacy: bool = False,
    divisor: float,
    accumulate_da: bool = False,
    accumulate_db: bool = False,
) -> Launch: ...
def contrastive_loss_carry_bytes(items: int, size: int) -> int: ...
def contrastive_loss_forward(
    items: int,
    size: int,
    *,
    loss: int,
    a: int,
    b: int,
    same: int,
    margin: float,
    legacy: bool = False,
    divisor: float,
    workspace: int,
    first: int = 0,
    of: int = 0,
    carry: int = 0,
) -> Launch: ...
def contrastive_loss_workspace_bytes(items: int, size: int) -> int: ...
def conv_dgrad(
    problem: ConvProblem,
    *,
    dx: int,
    dy: int,
    w: int,
    bias: int = 0,
    accumulate: bool = False,
    workspace: int = 0,
    storage: str = "",
) -> Launch: ...
def conv_dgrad_workspace_bytes(problem: ConvProblem) -> int: ...
def conv_fprop(
    problem: ConvProblem,
    *,
    y: int,
    x: int,
    w: int,
    bias: int = 0,
    accumulate: bool = False,
    relu: bool = False,
    mask: int = 0,
    largest_zero: float = 0,
    workspace: int = 0,
    of_x: str = "",
    of_y: str = "",
) -> Launch: ...
def conv_fprop_workspace_bytes(problem: ConvProblem) -> int: ...
def conv_is_stored(problem: ConvProblem) -> int: ...
def conv_wgrad(
    problem: ConvProblem,
    *,
    dw: int,
    x: int,
    dy: int,
    accumulate: bool = False,
    workspace: int = 0,
    carry: int = 0,
    of_x: str = "",
    of_dy: str = "",
) -> Launch: ...
def conv_wgrad_carry_bytes(problem: ConvProblem) -> int: ...
def conv_wgrad_workspace_bytes(problem: ConvProblem) -> int: ...
def conv_winograd_tile(problem: ConvProblem) -> int: ...
def copy_block(
    shape: Sequence[int],
    *,
    out: int,
    out_strides: Sequence[int],
    x: int,
    x_strides: Sequence[int],
    accumulate: bool = False,
) -> Launch: ...
def copy_bytes(rows: int, width: int, *, out: int, out_pitch: int, x: int, x_pitch: int) -> Launch: ...
def copy_rows(
    rows: int, width: int, *, out: int, out_pitch: int, x: int, x_pitch: int, accumulate: bool = False
) -> Launch: ...
def detection_evaluate(
    problem: EvaluationProblem, *, y: int, detections: int, truth: int, sizes: int, workspace: int
) -> Launch: ...
def detection_evaluate_workspace_bytes(problem: EvaluationProblem) -> int: ...
def detection_output(
    problem: DetectionProblem, *, y: int, locations: int, scores: int, boxes: int, workspace: int
) -> Launch: ...
def detection_output_workspace_bytes(problem: DetectionProblem) -> int: ...
def dropout(
    count: int, *, out: int, x: int, ratio: float, seed: int, stream: int, accumulate: bool = False, first: int = 0
) -> StepLaunch: ...
def eltwise_max(count: int, *, y: int, xs: Sequence[int], argmax: int = 0) -> Launch: ...
def eltwise_max_backward(
    count: int, *, dxs: Sequence[int], dy: int, argmax: int, accumulate: Sequence[bool]
) -> Launch: ...
def eltwise_product(count: int, *, y: int, xs: Sequence[int]) -> Launch: ...
def eltwise_product_backward(
    count: int, *, dxs: Sequence[int], xs: Sequence[int], dy: int, accumulate: Sequence[bool]
) -> Launch: ...
def eltwise_sum(
    count: int,
    *,
    y: int,
    xs: Sequence[int],
    coefficients: Sequence[float],
    relu: bool = False,
    mask: int = 0,
    largest_zero: float = 0,
    storage: str = "",
) -> Launch: ...
def eltwise_sum_backward(
    count: int,
    *,
    dxs: Sequence[int],
    dy: int,
    coefficients: Sequence[float],
    accumulate: Sequence[bool],
    mask: int = 0,
    y: int = 0,
    storage: str = "",
) -> Launch: ...
def euclidean_loss_backward(
    count: int,
    *,
    da: int = 0,
    db: int = 0,
    a: int,
    b: int,
    dloss: int,
    divisor: float,
    accumulate_da: bool = False,
    accumulate_db: bool = False,
) -> Launch: ...
def euclidean_loss_carry_bytes(count: int) -> int: ...
def euclidean_loss_forward(
    count: int,
    *,
    loss: int,
    a: int,
    b: int,
    divisor: float,
    workspace: int,
    first: int = 0,
    of: int = 0,
    carry: int = 0,
) -> Launch: ...
def euclidean_loss_workspace_bytes(count: int) -> int: ...
def gather_rows(rows: int, width: int, *, count: int, out: int, table: int, index: int, bias: int = 0) -> Launch: ...
def grid_detections(problem: GridProblem, *, y: int, xs: Sequence[int], workspace: int) -> Launch: ...
def grid_detections_workspace_bytes(problem: GridProblem) -> int: ...
def grid_loss_backward(
    problem: GridLossProblem, *, dx: int, dloss: int, x: int, truth: int, accumulate: bool = False, workspace: int
) -> Launch: ...
def grid_loss_forward(problem: GridLossProblem, *, loss: int, x: int, truth: int, workspace: int) -> Launch: ...
def grid_loss_workspace_bytes(problem: GridLossProblem) -> int: ...
def hinge_loss_backward(
    items: int,
    classes: int,
    channels: int,
    *,
    dx: int,
    x: int,
    label: int,
    dloss: int,
    squared: bool = False,
    accumulate: bool = False,
    of: int = 0,
) -> Launch: ...
def hinge_loss_forward(
    items: int,
    classes: int,
    channels: int,
    *,
    loss: int,
    x: int,
    label: int,
    squared: bool = False,
    workspace: int,
    first: int = 0,
    of: int = 0,
    carry: int = 0,
) -> Launch: ...
def infogain_loss_backward(
    axis: Axis,
    *,
    dx: int,
    p: int,
    label: int,
    matrix: int,
    dloss: int,
    ignore_label: int | None = None,
    divisor: float = 0,
    accumulate: bool = False,
    workspace: int,
    counted: int = 0,
    of: int = 0,
) -> Launch: ...
def infogain_loss_carry_bytes(axis: Axis) -> int: ...
def infogain_loss_forward(
    axis: Axis,
    *,
    loss: int,
    p: int,
    label: int,
    matrix: int,
    ignore_label: int | None = None,
    divisor: float = 0,
    workspace: int,
    first: int = 0,
    of: int = 0,
    carry: int = 0,
) -> Launch: ...
def infogain_loss_workspace_bytes(axis: Axis) -> int: ...
def inner_product_backward_update(
    rule: str,
    m: int,
    n: int,
    k: int,
    *,
    x: int,
    dy: int,
    w: int,
    h0: int = 0,
    h1: int = 0,
    decay: float = 0,
    l1: bool = False,
    momentum: float = 0,
    momentum2: float = 0,
    delta: float = 0,
    dy_outputs: int = 0,
) -> UpdateLaunch: ...
def inner_product_band_wgrad(
    m: int, n: int, k: int, *, dw: int, x: int, dy: int, dy_outputs: int, accumulate: bool = False
) -> Launch: ...
def inner_product_dgrad(
    m: int, n: int, k: int, *, dx: int, dy: int, w: int, accumulate: bool = False, dy_outputs: int = 0
) -> Launch: ...
def inner_product_fprop(
    m: int,
    n: int,
    k: int,
    *,
    y: int,
    x: int,
    w: int,
    bias: int = 0,
    relu: bool = False,
    mask: int = 0,
    largest_zero: float = 0,
) -> Launch: ...
def inner_product_wgrad(
    m: int,
    n: int,
    k: int,
    *,
    dw: int,
    x: int,
    dy: int,
    accumulate: bool = False,
    workspace: int = 0,
    first: int = 0,
    of: int = 0,
    carry: int = 0,
) -> Launch: ...
def inner_product_wgrad_carry_bytes(m: int, n: int, k: int) -> int: ...
def inner_product_wgrad_workspace_bytes(m: int, n: int, k: int, first: int = 0, of: int = 0) -> int: ...
def interp_backward(
    *,
    n: int,
    c: int,
    size: tuple[int, int],
    out: tuple[int, int],
    begin: tuple[int, int],
    region: tuple[int, int],
    dx: int,
    dy: int,
    accumulate: bool = False,
) -> Launch: ...
def interp_forward(
    *,
    n: int,
    c: int,
    size: tuple[int, int],
    out: tuple[int, int],
    begin: tuple[int, int],
    region: tuple[int, int],
    y: int,
    x: int,
) -> Launch: ...
def item_loss_carry_bytes(items: int, classes: int) -> int: ...
def item_loss_workspace_bytes(items: int, classes: int) -> int: ...
def l2norm_backward(
    *,
    pixels: int,
    channels: int,
    group: int,
    shared: bool,
    eps: float,
    dx: int = 0,
    dscale: int = 0,
    x: int,
    dy: int,
    scale: int = 0,
    accumulate_dx: bool = False,
    accumulate_dscale: bool = False,
    workspace: int,
    first: int = 0,
    of: int = 0,
    carry: int = 0,
) -> Launch: ...
def l2norm_carry_bytes(pixels: int, channels: int) -> int: ...
def l2norm_forward(
    *, pixels: int, channels: int, group: int, shared: bool, eps: float, y: int, x: int, scale: int, workspace: int
) -> Launch: ...
def l2norm_workspace_bytes(*, pixels: int, channels: int, group: int, shared: bool, is_slice: bool = False) -> int: ...
def logistic_loss_backward(
    items: int,
    classes: int,
    channels: int,
    *,
    dx: int,
    x: int,
    label: int,
    dloss: int,
    squared: bool = False,
    accumulate: bool = False,
    of: int = 0,
) -> Launch: ...
def logistic_loss_forward(
    items: int,
    classes: int,
    channels: int,
    *,
    loss: int,
    x: int,
    label: int,
    squared: bool = False,
    workspace: int,
    first: int = 0,
    of: int = 0,
    carry: int = 0,
) -> Launch: ...
def lrn_backward(
    *,
    n: int,
    h: int,
    w: int,
    c: int,
    size: int,
    across: bool,
    alpha: float,
    k: float,
    beta: float,
    dx: int,
    x: int,
    dy: int,
    accumulate: bool = False,
    workspace: int,
) -> Launch: ...
def lrn_forward(
    *,
    n: int,
    h: int,
    w: int,
    c: int,
    size: int,
    across: bool,
    alpha: float,
    k: float,
    beta: float,
    y: int,
    x: int,
    workspace: int,
) -> Launch: ...
def lrn_workspace_bytes(*, n: int, h: int, w: int, c: int, size: int, across: bool, backward: bool) -> int: ...
def lstm_unit_backward(
    items: int,
    cells: int,
    *,
    dc: int = 0,
    dgates: int = 0,
    c: int,
    gates: int,
    cont: int,
    d_next_c: int,
    dh: int,
    accumulate_dc: bool = False,
    accumulate_dgates: bool = False,
) -> Launch: ...
def lstm_unit_forward(items: int, cells: int, *, next_c: int, h: int, c: int, gates: int, cont: int) -> Launch: ...
def max_pool_backward(
    problem: PoolProblem, *, dx: int, dy: int, argmax: int, accumulate: bool = False, storage: str = ""
) -> Launch: ...
def max_pool_forward(problem: PoolProblem, *, y: int, x: int, argmax: int = 0, storage: str = "") -> Launch: ...
def max_pool_mask(problem: PoolProblem, *, mask: int, argmax: int) -> Launch: ...
def moments_carry_bytes(shape: Channels, each: int) -> int: ...
def move_averages(
    channels: int, rows: int, *, w0: int, w1: int, w2: int = 0, x0: int, x1: int, x2: int = 0, fraction: float
) -> Launch: ...
def multibox_loss_backward(
    problem: MultiBoxProblem,
    *,
    dlocations: int = 0,
    dscores: int = 0,
    dloss: int,
    locations: int,
    scores: int,
    boxes: int,
    truth: int,
    match: int,
    accumulate_dlocations: bool = False,
    accumulate_dscores: bool = False,
    workspace: int,
) -> Launch: ...
def multibox_loss_forward(
    problem: MultiBoxProblem,
    *,
    loss: int,
    locations: int,
    scores: int,
    boxes: int,
    truth: int,
    match: int = 0,
    workspace: int,
) -> Launch: ...
def multibox_loss_workspace_bytes(problem: MultiBoxProblem, *, forward: bool, match: bool) -> int: ...
def mvn_backward(axis: Axis, *, dx: int, dy: int, y: int = 0, inv_std: int = 0, accumulate: bool = False) -> Launch: ...
def mvn_forward(axis: Axis, *, y: int, x: int, inv_std: int = 0, normalize: bool = True, eps: float) -> Launch: ...
def narrow_bf16(count: int, *, out: int, x: int) -> Launch: ...
def narrow_fp16(count: int, *, out: int, x: int) -> Launch: ...
def norm_of_rows(counts: Sequence[int], *, out: int, squares: Sequence[int]) -> Launch: ...
def pointwise(
    kind: str,
    count: int,
    *,
    out: int,
    a: int = 0,
    b: int = 0,
    alpha: float = 0,
    beta: float = 0,
    gamma: float = 0,
    accumulate: bool = False,
    storage: str = "",
) -> Launch: ...
def prelu_backward(
    shape: Channels,
    *,
    dx: int = 0,
    dslope: int = 0,
    x: int,
    dy: int,
    slope: int = 0,
    accumulate_dx: bool = False,
    accumulate_dslope: bool = False,
    workspace: int = 0,
) -> Launch: ...
def prelu_backward_workspace_bytes(shape: Channels) -> int: ...
def prelu_forward(shape: Channels, *, y: int, x: int, slope: int) -> Launch: ...
def prior_box(
    size: tuple[int, int],
    *,
    widths: Sequence[float],
    heights: Sequence[float],
    step: tuple[float, float],
    offset: float,
    image: tuple[int, int],
    clip: bool,
    variance: Sequence[float],
    y: int,
) -> Launch: ...
def ps_roi_pool_backward(
    *,
    n: int,
    c: int,
    size: tuple[int, int],
    rois: int,
    out: tuple[int, int],
    spatial_scale: float,
    dx: int,
    dy: int,
    regions: int,
    accumulate: bool = False,
) -> Launch: ...
def ps_roi_pool_forward(
    *,
    n: int,
    c: int,
    size: tuple[int, int],
    rois: int,
    out: tuple[int, int],
    spatial_scale: float,
    y: int,
    x: int,
    regions: int,
) -> Launch: ...
def reduce(
    axis: Axis, term: str, *, y: int, x: int, factor: float = 1.0, accumulate: bool = False, workspace: int = 0
) -> Launch: ...
def reduce_backward(
    axis: Axis, term: str, *, dx: int, x: int = 0, dy: int, factor: float = 1.0, accumulate: bool = False
) -> Launch: ...
def reduce_workspace_bytes(axis: Axis) -> int: ...
def region_loss_backward(
    problem: RegionProblem, *, dx: int, dloss: int, x: int, truth: int, accumulate: bool = False, workspace: int
) -> StepLaunch: ...
def region_loss_forward(problem: RegionProblem, *, loss: int, x: int, truth: int, workspace: int) -> StepLaunch: ...
def region_loss_workspace_bytes(problem: RegionProblem) -> int: ...
def relu_backward(
    count: int, *, dx: int, dy: int, mask: int, slope: float = 0, accumulate: bool = False, storage: str = ""
) -> Launch: ...
def relu_forward(
    count: int, *, y: int, x: int, slope: float = 0, mask: int = 0, largest_zero: float = 0, storage: str = ""
) -> Launch: ...
def roi_pool_backward(
    *,
    n: int,
    c: int,
    size: tuple[int, int],
    rois: int,
    out: tuple[int, int],
    spatial_scale: float,
    dx: int,
    dy: int,
    regions: int,
    argmax: int,
    accumulate: bool = False,
) -> Launch: ...
def roi_pool_forward(
    *,
    n: int,
    c: int,
    size: tuple[int, int],
    rois: int,
    out: tuple[int, int],
    spatial_scale: float,
    y: int,
    x: int,
    regions: int,
    argmax: int = 0,
) -> Launch: ...
def row_squares(rows: int, elements: int, *, out: int, x: int) -> Launch: ...
def scale_backward(
    shape: Channels,
    *,
    dx: int = 0,
    dfactor: int = 0,
    dbias: int = 0,
    x: int = 0,
    dy: int,
    factor: int = 0,
    accumulate_dx: bool = False,
    accumulate_dfactor: bool = False,
    accumulate_dbias: bool = False,
    workspace: int = 0,
) -> Launch: ...
def scale_backward_workspace_bytes(shape: Channels) -> int: ...
def scale_forward(shape: Channels, *, y: int, x: int, factor: int, bias: int = 0) -> Launch: ...
def scatter_rows(
    rows: int, width: int, *, count: int, out: int, x: int, index: int, accumulate: bool = False
) -> Launch: ...
def set_isa(name: str) -> None: ...
def set_threads(count: int) -> None: ...
def sigmoid_loss_backward(
    count: int,
    *,
    dx: int,
    x: int,
    target: int,
    dloss: int,
    ignore_label: int | None = None,
    divisor: float = 0,
    accumulate: bool = False,
    workspace: int,
    counted: int = 0,
    of: int = 0,
) -> Launch: ...
def sigmoid_loss_carry_bytes(count: int) -> int: ...
def sigmoid_loss_forward(
    count: int,
    *,
    loss: int,
    x: int,
    target: int,
    ignore_label: int | None = None,
    divisor: float = 0,
    workspace: int,
    first: int = 0,
    of: int = 0,
    carry: int = 0,
) -> Launch: ...
def sigmoid_loss_workspace_bytes(count: int) -> int: ...
def smooth_l1_loss_backward(
    count: int,
    *,
    da: int = 0,
    db: int = 0,
    a: int,
    b: int,
    inside: int = 0,
    outside: int = 0,
    dloss: int,
    sigma: float,
    divisor: float,
    accumulate_da: bool = False,
    accumulate_db: bool = False,
) -> Launch: ...
def smooth_l1_loss_carry_bytes(count: int) -> int: ...
def smooth_l1_loss_forward(
    count: int,
    *,
    loss: int,
    a: int,
    b: int,
    inside: int = 0,
    outside: int = 0,
    sigma: float,
    divisor: float,
    workspace: int,
    first: int = 0,
    of: int = 0,
    carry: int = 0,
) -> Launch: ...
def softmax_backward(axis: Axis, *, dx: int, y: int, dy: int, accumulate: bool = False) -> Launch: ...
def softmax_forward(axis: Axis, *, y: int, x: int) -> Launch: ...
def softmax_loss_backward(
    axis: Axis,
    *,
    dx: int,
    x: int,
    label: int,
    dloss: int,
    ignore_label: int | None = None,
    divisor: float = 0,
    accumulate: bool = False,
    workspace: int,
    counted: int = 0,
    of: int = 0,
) -> Launch: ...
def softmax_loss_carry_bytes(axis: Axis) -> int: ...
def softmax_loss_forward(
    axis: Axis,
    *,
    loss: int,
    y: int = 0,
    x: int,
    label: int,
    ignore_label: int | None = None,
    divisor: float = 0,
    workspace: int,
    first: int = 0,
    of: int = 0,
    carry: int = 0,
) -> Launch: ...
def softmax_loss_workspace_bytes(axis: Axis) -> int: ...
def stochastic_pool_average(problem: PoolProblem, *, y: int, x: int) -> Launch: ...
def stochastic_pool_forward(
    problem: PoolProblem, *, y: int, x: int, argmax: int = 0, seed: int, stream: int, first: int = 0
) -> StepLaunch: ...
def sum_of_squares(counts: Sequence[int], *, out: int, xs: Sequence[int], root: bool = False) -> Launch: ...
def threads() -> int: ...
def top_k(
    rows: int,
    size: int,
    k: int,
    *,
    index: int = 0,
    value: int = 0,
    x: int,
    inner: int = 1,
    pitch: int = 0,
    workspace: int,
) -> Launch: ...
def top_k_workspace_bytes(k: int) -> int: ...
def transpose(n: int, rows: int, columns: int, *, out: int, x: int, accumulate: bool = False) -> Launch: ...
def unpool_backward(
    n: int, c: int, pixels: int, plane: int, *, dx: int, dy: int, mask: int, accumulate: bool = False
) -> Launch: ...
def unpool_forward(n: int, c: int, pixels: int, plane: int, *, y: int, x: int, mask: int) -> Launch: ...
def update(
    rule: str,
    count: int,
    *,
    w: int,
    dw: int,
    h0: int = 0,
    h1: int = 0,
    decay: float = 0,
    l1: bool = False,
    momentum: float = 0,
    momentum2: float = 0,
    delta: float = 0,
) -> UpdateLaunch: ...
def widen_bf16(count: int, *, out: int, x: int) -> Launch: ...
def widen_fp16(count: int, *, out: int, x: int) -> Launch: ...
