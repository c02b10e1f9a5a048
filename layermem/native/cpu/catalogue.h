// The kernels and their arguments on one page: the docstring of layermem._native.cpu.
#pragma once

namespace layermem::cpu {

constexpr const char* CATALOGUE = R"(Kernels of the cpu device, in float32, on addresses.

A kernel's function takes addresses (ints, 0 for none) and geometry and returns a launch; a launch is called, as often
as wanted, and runs without the GIL.  Buffers begin on multiples of 256 bytes.  4-D tensors are channels-last,
[n][h][w][c]; weights [k][kh][kw][c / groups].  `scratch` has the bytes that NAME_workspace says for the same geometry,
whatever the number of threads and the vector unit; it holds nothing between launches.  `accumulate` adds to what is
there.  Results depend on the vector unit, and on nothing else: not on threads, addresses or what ran before.
`over`: inputs that an output may lie on, element for element.

geometry
    Conv(*, n, c, h, w, k, kernel, stride=(1, 1), pad=(0, 0), dilation=(1, 1), groups=1)   .ho .wo
    Pool(*, n, c, h, w, out, kernel, stride=(1, 1), pad=(0, 0))                            out: (ho, wo), rounded by Caffe's rule
    Channels(outer, channels, inner=1)         x [outer][channels][inner]; an image has outer = n h w, inner = 1
    Axis(outer, size, inner=1)                 likewise, for ops along one axis

Convolution, InnerProduct, Deconvolution (its forward is conv_backward_data, its data gradient conv_forward, and in the
weight gradient x and dy change places)
    conv_forward(g, *, y, x, w, bias=0, accumulate, relu=False, mask=0, scratch)        bias [k]
    conv_backward_data(g, *, dx, dy, w, bias=0, accumulate, scratch)    bias [c], for Deconvolution
    conv_backward_weights(g, *, dw, x, dy, accumulate, scratch)
    column_sums(rows, columns, *, out, x, accumulate, scratch)          a bias gradient: rows = n ho wo, columns = k
    inner_product_forward(m, n, k, *, y, x, w, bias=0, relu=False, mask=0)      y [m][n], x [m][k], w [n][k]
    inner_product_backward_data(m, n, k, *, dx, dy, w, accumulate)
    inner_product_backward_weights(m, n, k, *, dw, x, dy, accumulate, scratch)
    inner_product_learn(rule, m, n, k, *, x, dy, w, h0, h1=0, ...)      the last one and `update`, whose arguments follow,
                                                                        in one; the same bits where it takes no scratch

Pooling     argmax: r * kw + s, uint8 up to 256 taps, else int32
    max_pool_forward(g, *, y, x, argmax=0)          max_pool_backward(g, *, dx, dy, argmax, accumulate)
    average_pool_forward(g, *, y, x)                average_pool_backward(g, *, dx, dy, accumulate)

Elements                                                                                        over: any input
    map(op, count, *, out, a=0, b=0, p=0, q=0, r=0, accumulate)
        fill p | scale p a | sigmoid | tanh | elu p | absolute | exponential q exp(p a) | logarithm r log(p a + q)
        power (q a + r)^p | softplus (BNLL) | clip p q | swish p | threshold p | add p a + q b | multiply a b
        and for backward, with a = dy: relu_slope p, elu_slope p, absolute_slope, logarithm_slope p q r, power_slope p q r,
        softplus_slope, clip_slope p q, swish_slope p (b = x); sigmoid_slope, tanh_slope, exponential_slope p (b = y)
    relu_forward(count, *, y, x, slope=0, mask=0)   relu_backward(count, *, dx, dy, mask, slope=0, accumulate)
    clip_forward(count, *, y, x, mask, lowest, highest)            backward is relu_backward with slope 0
        mask: bit i % 8 of byte i // 8, set where x > 0 (clip: within bounds)
    dropout(count, *, out, x, ratio, seed, stream, accumulate)     launch(step); its own backward
    eltwise_sum(count, *, y, xs, coefficients, relu=False, mask=0)
    eltwise_sum_backward(count, *, dxs, dy, coefficients, accumulate, mask=0, y=0)      of a rectified sum: mask or y
    eltwise_product(count, *, y, xs)                eltwise_product_backward(count, *, dxs, xs, dy, accumulate)
    eltwise_max(count, *, y, xs, winner=0)          eltwise_max_backward(count, *, dxs, dy, winner, accumulate)
        dxs: 0 where not wanted; accumulate: a list, one for each; winner: uint8
    update(rule, count, *, w, dw, h0, h1=0, decay=0, l1=False, momentum=0, momentum2=0, delta=0)    launch(rate, gain=1)
        rule: SGD Nesterov AdaGrad RMSProp AdaDelta Adam; the gradient is gain dw + decay (w, or sign w);
        RMSProp's momentum is rms_decay; Adam's rate has the bias correction in it
    sum_of_squares(counts, *, out, xs, root=False)

Channels    dx over x or dy, y over x
    scale_forward(s, *, y, x, factor, bias=0)       bias_forward(s, *, y, x, bias)
    scale_backward(s, *, dx=0, dfactor=0, dbias=0, x=0, dy, factor=0, accumulate_dx, accumulate_dfactor,
                   accumulate_dbias, scratch)
    batch_norm_forward(s, *, y, x, mean, inv_std, w0=0, w1=0, w2=0, fraction=0, eps, scratch)   w*: moved where given
    batch_norm_replay(s, *, y, x, mean, inv_std)
    batch_norm_backward(s, *, dx, x, dy, mean, inv_std, accumulate, scratch)
    batch_norm_global_forward(s, *, y, x, w0, w1, w2, eps, scratch)              workspace: batch_norm_global_workspace
    batch_norm_global_backward(s, *, dx, dy, w1, w2, eps, accumulate, scratch)   the same
    batch_norm_fused_forward(s, *, y, x, mean, inv_std, factor, bias, relu, w0=0, w1=0, w2=0, fraction=0, eps=0,
                             replay=False, scratch)             BatchNorm + Scale (+ ReLU); keeps x, mean, inv_std
    batch_norm_fused_global_forward(s, *, y, x, w0, w1, w2, factor, bias, relu, eps, scratch)
    batch_norm_fused_backward(s, *, dx=0, dfactor=0, dbias=0, x, dy, mean, inv_std, factor, bias, relu,
                              accumulate_dx, accumulate_dfactor, accumulate_dbias, scratch)
        workspace of the three: batch_norm_fused_workspace
    prelu_forward(s, *, y, x, slope)                a shared slope: Channels(1, 1, count)
    prelu_backward(s, *, dx=0, dslope=0, x, dy, slope=0, accumulate_dx, accumulate_dslope, scratch)

Axis        y over x, dx over any input
    softmax_forward(s, *, y, x)                     softmax_backward(s, *, dx, y, dy, accumulate)
    softmax_loss_forward(s, *, loss, y=0, x, label, ignore_label=None, divisor=0, scratch)       y: the softmax
    softmax_loss_backward(s, *, dx, x, label, dloss, ignore_label=None, divisor=0, accumulate, scratch)
        label [outer][inner]; divisor 0: the labels that count; ValueError for a label that is no class
    accuracy(s, *, share, by_class=0, x, label, ignore_label=None, top_k=1, scratch)     by_class [size]; also of its workspace
    reduce(s, term, *, y, x, factor=1, accumulate, scratch)                 y [outer][inner] = factor sum term(x)
    reduce_backward(s, term, *, dx, x=0, dy, factor=1, accumulate)          term: plain absolute square
    largest(rows, size, count, *, place=0, value=0, x, inner=1, pitch=0, scratch)    the top `count` of each row, falling; of
        equals the last first.  place, value [rows / inner][count][inner], blocks `pitch` floats apart (0: count inner)

Losses      dx over any input; loss and dloss are one number
    sigmoid_loss_forward(count, *, loss, x, target, ignore_label=None, divisor=0, scratch)
    sigmoid_loss_backward(count, *, dx, x, target, dloss, ignore_label=None, divisor=0, accumulate, scratch)
    euclidean_loss_forward(count, *, loss, a, b, divisor, scratch)          sum (a - b)^2 / divisor
    euclidean_loss_backward(count, *, da=0, db=0, a, b, dloss, divisor, accumulate_da, accumulate_db)
        da = dloss (a - b) / divisor, db = -da
    contrastive_loss_forward(items, size, *, loss, a, b, same, margin, legacy=False, divisor, scratch)
    contrastive_loss_backward(items, size, *, da=0, db=0, a, b, same, dloss, margin, legacy=False, divisor, accumulate_da,
                              accumulate_db)
    hinge_loss_forward(items, classes, channels, *, loss, x, label, squared=False, scratch)
    hinge_loss_backward(items, classes, channels, *, dx, x, label, dloss, squared=False, accumulate)
    logistic_loss_forward, logistic_loss_backward       likewise; workspace of both: item_loss_workspace(items, classes)
        x [items][classes / channels][channels], whose labels count [channels][classes / channels]

LRN         scale = shift + share * sum of squares; across channels: y over x, dx over x or dy; within: none
    lrn_forward(*, n, h, w, c, size, across, share, shift, beta, y, x, scratch)
    lrn_backward(*, n, h, w, c, size, across, share, shift, beta, dx, x, dy, accumulate, scratch)
    lrn_workspace(*, n, h, w, c, size, across, backward)

Moves
    interp_forward(*, n, c, size, out, first, part, y, x)                   part: pixels from `first` on that are sampled
    interp_backward(*, n, c, size, out, first, part, dx, dy, accumulate)    size: of x, out: of y, all (h, w)
    copy_rows(rows, width, *, out, out_pitch, x, x_pitch, accumulate)       concat, slice: floats, from any address
    transpose(n, rows, columns, *, out, x, accumulate)                      out [n][columns][rows]; NCHW in: rows c, columns h w
    copy_block(shape, *, out, out_strides, x, x_strides, accumulate)        strides in floats; crop, tile, permutations

machine
    threads() set_threads(n) vector_units() vector_unit() set_vector_unit(name or "auto"): for launches made from then on
)";

}  // namespace layermem::cpu
