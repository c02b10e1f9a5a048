#include "cpu/bindings/kernel_docs.h"

#include "cpu/microkernels/pointwise_kinds.h"

namespace layermem::cpu {

#define LAYERMEM_KIND_DOC(name, formula, value) "        " #name ": " formula "\n"

const char* const kKernelDocs =
    R"(Kernels of the cpu device, in float32, on addresses.

A kernel's function takes addresses (ints, 0 for none) and geometry and returns a launch.  A launch can be called any
number of times and runs without the GIL.  Buffers begin at multiples of 256 bytes.  4-D tensors are channels-last,
[n][h][w][c]; weights are [k][kh][kw][c / groups].  `workspace` has the bytes that NAME_workspace_bytes returns for the
same geometry, on any number of threads and any ISA; it holds nothing between launches.  `accumulate` adds to the
output.  Results depend on the ISA only: not on threads, addresses or earlier launches.

Where a step runs in slices of a batch, a launch has rows (images, positions, elements) from `first` on, of the `of` rows
of the whole batch, and gives its bits.  Sums over the batch are carried: `carry` has the bytes that NAME_carry_bytes
returns for the whole batch; the first slice writes them, all others update them, in rising order, and the last one alone
writes the result.
`over`: the inputs that an output may share its memory with.

Blobs may be in 16 bits where a function has `storage`, "bf16" or "fp16": of x, y and their gradients.  conv_fprop and
conv_wgrad have one for each side, of_x and of_y (of_dy), of problems for which conv_is_stored(problem) is not 0.
column_sums of a slice, and Channels with inner > 1, are in fp32 only.  Each value is rounded once, where it is stored.

geometry
    ConvProblem(*, n, c, h, w, k, kernel, stride=(1, 1), pad=(0, 0), dilation=(1, 1), groups=1,
                first=0, of=0)                                                                      .ho .wo
    PoolProblem(*, n, c, h, w, out, kernel, stride=(1, 1), pad=(0, 0))      out: (ho, wo), rounded by Caffe's rule
    Channels(outer, channels, inner=1)      x [outer][channels][inner]; an image has outer = n h w, inner = 1
    Axis(outer, size, inner=1)              likewise, for ops along one axis

Convolution, InnerProduct; Deconvolution (its forward is conv_dgrad, its data gradient conv_fprop, and in conv_wgrad x
and dy change places)
    conv_fprop(problem, *, y, x, w, bias=0, accumulate, relu=False, mask=0, largest_zero=0, workspace)      bias [k]
    conv_dgrad(problem, *, dx, dy, w, bias=0, accumulate, workspace)        bias [c], for Deconvolution
    conv_wgrad(problem, *, dw, x, dy, accumulate, workspace, carry=0)       nothing to carry: dw itself is summed, the
        first slice writes it and the others accumulate
    column_sums(rows, columns, *, out, x, accumulate, workspace, first=0, of=0, carry=0)    a bias gradient: rows =
        n ho wo, columns = k
    inner_product_fprop(m, n, k, *, y, x, w, bias=0, relu=False, mask=0, largest_zero=0)    y [m][n], x [m][k], w [n][k]
    inner_product_dgrad(m, n, k, *, dx, dy, w, accumulate, dy_outputs=0)
    inner_product_wgrad(m, n, k, *, dw, x, dy, accumulate, workspace, first=0, of=0, carry=0)       as conv_wgrad
    inner_product_band_wgrad(m, n, k, *, dw, x, dy, dy_outputs, accumulate)
    inner_product_backward_update(rule, m, n, k, *, x, dy, w, h0, h1=0, ..., dy_outputs=0)      wgrad and `update`,
        whose arguments follow, in one pass; the same bits where wgrad takes no workspace
        dy_outputs: w has n rows of a larger one, and dy points to their columns, of so many; bands that accumulate dx
        in their order give the bits of the whole, and so does the dw of a band where wgrad of all carries nothing

Pooling     argmax: r * kw + s, uint8 up to 256 taps, else int32
    max_pool_forward(problem, *, y, x, argmax=0)    max_pool_backward(problem, *, dx, dy, argmax, accumulate)
    average_pool_forward(problem, *, y, x)          average_pool_backward(problem, *, dx, dy, accumulate)
    max_pool_mask(problem, *, mask, argmax)         the index within the plane h x w
    stochastic_pool_forward(problem, *, y, x, argmax=0, seed, stream, first=0)      launch(step); backward is that of
        max_pool
    stochastic_pool_average(problem, *, y, x)

Elements                                                                                        over: any input
    pointwise(kind, count, *, out, a=0, b=0, alpha=0, beta=0, gamma=0, accumulate)
)" LAYERMEM_POINTWISE_KINDS(LAYERMEM_KIND_DOC) R"(    relu_forward(count, *, y, x, slope=0, mask=0, largest_zero=0)
    relu_backward(count, *, dx, dy, mask, slope=0, accumulate)
    clip_forward(count, *, y, x, mask, lowest, highest)             backward is relu_backward with slope 0
        mask: bit i % 8 of byte i // 8, set where x > largest_zero (clip: within bounds)
    prelu_forward(shape, *, y, x, slope)            a shared slope: Channels(1, 1, count)
    prelu_backward(shape, *, dx=0, dslope=0, x, dy, slope=0, accumulate_dx, accumulate_dslope, workspace)
    dropout(count, *, out, x, ratio, seed, stream, accumulate, first=0)     launch(step); its own backward
    eltwise_sum(count, *, y, xs, coefficients, relu=False, mask=0, largest_zero=0)
    eltwise_sum_backward(count, *, dxs, dy, coefficients, accumulate, mask=0, y=0)      of a sum with relu: mask or y
    eltwise_product(count, *, y, xs)                eltwise_product_backward(count, *, dxs, xs, dy, accumulate)
    eltwise_max(count, *, y, xs, argmax=0)          eltwise_max_backward(count, *, dxs, dy, argmax, accumulate)
        dxs: 0 for a gradient that is not wanted; accumulate: a list, one per dx; argmax: uint8
    update(rule, count, *, w, dw, h0=0, h1=0, decay=0, l1=False, momentum=0, momentum2=0, delta=0)    launch(rate, gain=1)
        rule: SGD Nesterov AdaGrad RMSProp AdaDelta Adam, or Accumulate: w += dw; the gradient is gain dw + decay (w, or
        sign w);
        RMSProp's momentum is rms_decay; Adam's rate includes the bias correction
    sum_of_squares(counts, *, out, xs, root=False)
    row_squares(rows, elements, *, out, x)          out [rows]; norm_of_rows(counts, *, out, squares): the root of their sum

Normalization   dx over x or dy, y over x
    scale_forward(shape, *, y, x, factor, bias=0)   bias_forward(shape, *, y, x, bias)
    scale_backward(shape, *, dx=0, dfactor=0, dbias=0, x=0, dy, factor=0, accumulate_dx, accumulate_dfactor,
                   accumulate_dbias, workspace)
    channel_sums(shape, kind, *, out=0, a, x=0, accumulate, first=0, of=0, carry)   the sums of these gradients for a
        slice of a batch; kind: product (sum a x), plain (sum a), prelu (sum a min(x, 0))
    batch_norm_forward(shape, *, y, x, mean, inv_std, w0=0, w1=0, w2=0, fraction=0, eps, workspace)
        w0, w1, w2: the moving averages, updated where given
    batch_norm_recompute(shape, *, y, x, mean, inv_std)
    batch_norm_backward(shape, *, dx, x, dy, mean, inv_std, accumulate, workspace)
    batch_norm_global_forward(shape, *, y, x, w0, w1, w2, eps, workspace)
    batch_norm_global_backward(shape, *, dx, dy, w1, w2, eps, accumulate, workspace)
        workspace of both: batch_norm_global_workspace_bytes
    batch_norm_fused_forward(shape, *, y, x, mean, inv_std, factor, bias, relu, largest_zero=0, w0=0, w1=0, w2=0,
                             fraction=0, eps=0, recompute=False, workspace)            BatchNorm + Scale (+ ReLU); keeps x, mean, inv_std
    batch_norm_fused_global_forward(shape, *, y, x, w0, w1, w2, factor, bias, relu, eps, workspace)
    batch_norm_fused_backward(shape, *, dx=0, dfactor=0, dbias=0, x, dy, mean, inv_std, factor, bias, relu,
                              largest_zero=0, accumulate_dx, accumulate_dfactor, accumulate_dbias, workspace)
        workspace of the three: batch_norm_fused_workspace_bytes
    batch_norm_statistics(shape, *, x, mean=0, inv_std=0, w0=0, w1=0, w2=0, fraction=0, eps, first=0, of=0, carry)
    move_averages(channels, rows, *, w0, w1, w2=0, x0, x1, x2=0, fraction)     w0 .. w2 move by x0, x1 [rows][channels]
        and x2 [rows]
    batch_norm_gradient_sums(shape, *, sums=0, x, dy, mean, inv_std, first=0, of=0, carry)
    batch_norm_input_gradient(shape, *, dx, x, dy, mean, inv_std, sums, accumulate, first=0, of=0, workspace)
        in two passes over slices of a batch, as batch_norm_fused_gradient_sums and batch_norm_fused_input_gradient are;
        carry: moments_carry_bytes, channel_sums_carry_bytes
    lrn_forward(*, n, h, w, c, size, across, alpha, k, beta, y, x, workspace)
    lrn_backward(*, n, h, w, c, size, across, alpha, k, beta, dx, x, dy, accumulate, workspace)
    lrn_workspace_bytes(*, n, h, w, c, size, across, backward)
        scale = k + alpha * sum of squares: alpha is Caffe's, divided by the elements of the window.  Across channels
        y over x, dx over x or dy; within a channel: none

    l2norm_forward(*, pixels, channels, group, shared, eps, y, x, scale, workspace)
    l2norm_backward(*, pixels, channels, group, shared, eps, dx=0, dscale=0, x, dy, scale=0, accumulate_dx,
                    accumulate_dscale, workspace)
    l2norm_workspace_bytes(*, pixels, channels, group, shared)
        y = scale x / sqrt(sum x^2 + eps), the sum over `group` pixels; scale [channels], or one number where shared
    mvn_forward(axis, *, y, x, inv_std=0, normalize=True, eps)      along an axis: means, and deviations, removed
    mvn_backward(axis, *, dx, dy, y=0, inv_std=0, accumulate)       dx over dy or y; without y dy - its mean

Softmax     y over x, dx over any input
    softmax_forward(axis, *, y, x)                  softmax_backward(axis, *, dx, y, dy, accumulate)
    In slices, loss_forward takes first, of and carry, and loss_backward the labels that count: `of`, at `counted`
    softmax_loss_forward(axis, *, loss, y=0, x, label, ignore_label=None, divisor=0, workspace)     y: the softmax
    softmax_loss_backward(axis, *, dx, x, label, dloss, ignore_label=None, divisor=0, accumulate, workspace)
        label [outer][inner]; divisor 0: the number of labels that count; ValueError for a label out of range
    infogain_loss_forward(axis, *, loss, p, label, matrix, ignore_label=None, divisor=0, workspace)
    infogain_loss_backward(axis, *, dx, p, label, matrix, dloss, ignore_label=None, divisor=0, accumulate, workspace)
        p: the softmax; matrix [size][size]
    accuracy(axis, *, y, by_class=0, x, label, ignore_label=None, top_k=1, workspace)
        by_class [size]; accuracy_workspace_bytes(axis, by_class=False)

Reduction
    reduce(axis, term, *, y, x, factor=1, accumulate, workspace)            y [outer][inner] = factor sum term(x)
    reduce_backward(axis, term, *, dx, x=0, dy, factor=1, accumulate)       term: plain absolute square
    top_k(rows, size, k, *, index=0, value=0, x, inner=1, pitch=0, workspace)   the k largest of each row, descending;
        of equal ones the last first.  index, value [rows / inner][k][inner], blocks `pitch` floats apart (0: k inner)

Losses      dx over any input; loss and dloss are one number
    sigmoid_loss_forward(count, *, loss, x, target, ignore_label=None, divisor=0, workspace)
    sigmoid_loss_backward(count, *, dx, x, target, dloss, ignore_label=None, divisor=0, accumulate, workspace)
    euclidean_loss_forward(count, *, loss, a, b, divisor, workspace)        sum (a - b)^2 / divisor
    euclidean_loss_backward(count, *, da=0, db=0, a, b, dloss, divisor, accumulate_da, accumulate_db)
        da = dloss (a - b) / divisor, db = -da
    smooth_l1_loss_forward(count, *, loss, a, b, inside=0, outside=0, sigma, divisor, workspace)
    smooth_l1_loss_backward(count, *, da=0, db=0, a, b, inside=0, outside=0, dloss, sigma, divisor, accumulate_da,
                            accumulate_db)
        workspace: euclidean_loss_workspace_bytes
    contrastive_loss_forward(items, size, *, loss, a, b, same, margin, legacy=False, divisor, workspace)
    contrastive_loss_backward(items, size, *, da=0, db=0, a, b, same, dloss, margin, legacy=False, divisor,
                              accumulate_da, accumulate_db)
    hinge_loss_forward(items, classes, channels, *, loss, x, label, squared=False, workspace)
    hinge_loss_backward(items, classes, channels, *, dx, x, label, dloss, squared=False, accumulate)
    logistic_loss_forward, logistic_loss_backward       likewise; workspace of both:
                                                        item_loss_workspace_bytes(items, classes)
        x [items][classes / channels][channels], whose labels count [channels][classes / channels]

Recurrent   c, next_c, h [items][cells], gates [items][4 cells], cont [items]
    lstm_unit_forward(items, cells, *, next_c, h, c, gates, cont)           next_c over c
    lstm_unit_backward(items, cells, *, dc=0, dgates=0, c, gates, cont, d_next_c, dh, accumulate_dc, accumulate_dgates)
        dc over c, d_next_c or dh, dgates over gates

Regions of interest     regions [rois][5]: item, x1, y1, x2, y2; ValueError for one in no image
    roi_pool_forward(*, n, c, size, rois, out, spatial_scale, y, x, regions, argmax=0)      argmax int32 [rois][out][c]
    roi_pool_backward(*, n, c, size, rois, out, spatial_scale, dx, dy, regions, argmax, accumulate)

    ps_roi_pool_forward(*, n, c, size, rois, out, spatial_scale, y, x, regions)
    ps_roi_pool_backward(*, n, c, size, rois, out, spatial_scale, dx, dy, regions, accumulate)
    prior_box(size, *, widths, heights, step, offset, image, clip, variance, y)     y [2][size][boxes][4]: (h, w) pairs
Pixels at the places of a mask: mask [n][pixels][c], indices of the plane; ValueError for one outside
    unpool_forward(n, c, pixels, plane, *, y, x, mask)      unpool_backward(n, c, pixels, plane, *, dx, dy, mask, ...)

Detection       ValueError for a true box of no item or no class
    MultiBoxProblem(*, items, priors, classes, loc_classes, rows, ...)      code, mining: numbers of caffe.proto
    multibox_loss_workspace_bytes(problem, *, forward, match)
    multibox_loss_forward(problem, *, loss, locations, scores, boxes, truth, match=0, workspace)
    multibox_loss_backward(problem, *, dlocations=0, dscores=0, dloss, locations, scores, boxes, truth, match, ...)
        match int32 [items][loc_classes][priors]: a row of truth, -1 unmatched, -2 ignored, -3 chosen as background
    DetectionProblem(*, items, priors, classes, loc_classes, background, ..., of_item)
    detection_output(problem, *, y, locations, scores, boxes, workspace)    y [items of_item][7], unused rows -1
        workspace: detection_output_workspace_bytes(problem)
    EvaluationProblem(*, detections, truths, classes, background, rows, overlap_threshold, difficult)
    detection_evaluate(problem, *, y, detections, truth, sizes, workspace)  y [rows][5], unused rows -1; sizes
        [sized_items][6]: window and pixels of each image
        workspace: detection_evaluate_workspace_bytes(problem)

Grids of predictions    ValueError for a true box of no cell or no class
    RegionProblem(*, items, side, classes, rows, warm_up, anchors, ...)     launches are called with the step
    region_loss_forward(problem, *, loss, x, truth, workspace)  x [items][side][side][anchors][5 + classes]
    region_loss_backward(problem, *, dx, dloss, x, truth, ...)  workspace: region_loss_workspace_bytes(problem)
    GridLossProblem(*, items, side, classes, rows, anchors, mask, divisor, ...)
    grid_loss_forward grid_loss_backward    likewise, workspace: grid_loss_workspace_bytes(problem)
    GridProblem(*, items, classes, sides, anchors, divisors, softmax, least_score, threshold)
    grid_detections(problem, *, y, xs, workspace)               y [items predictions][7], unused rows -1
        workspace: grid_detections_workspace_bytes(problem)

Rows of a table; index: whole numbers as floats, ValueError for one out of range
    gather_rows(rows, width, *, count, out, table, index, bias=0)       out[i] = table[index[i]] (+ bias [width])
    scatter_rows(rows, width, *, count, out, x, index, accumulate)      out[r] = the sum of x[i] where index[i] is r

Copies
    copy_rows(rows, width, *, out, out_pitch, x, x_pitch, accumulate)       Concat, Slice: in floats, from any address
    copy_bytes(rows, width, *, out, out_pitch, x, x_pitch)                  the same of elements in 16 bits: in bytes
    transpose(n, rows, columns, *, out, x, accumulate)      out [n][columns][rows]; NCHW in: rows c, columns h w
    copy_block(shape, *, out, out_strides, x, x_strides, accumulate)        strides in floats; Crop, Tile, permutations
    interp_forward(*, n, c, size, out, begin, region, y, x)                 the pixels of x that are sampled: `region`
    interp_backward(*, n, c, size, out, begin, region, dx, dy, accumulate)  from `begin` on; size of x, out of y: (h, w)

Blobs in 16 bits
    widen_bf16(count, *, out, x)                            out in fp32 = x in bfloat16
    narrow_bf16(count, *, out, x)                           out in bfloat16 = x in fp32, ties to even
    widen_fp16(count, *, out, x)                            out in fp32 = x in float16
    narrow_fp16(count, *, out, x)                           out in float16 = x in fp32, likewise

machine
    threads() set_threads(n) available_isas() active_isa() set_isa(name or "auto"): for launches made from then on
)";

#undef LAYERMEM_KIND_DOC

}  // namespace layermem::cpu
