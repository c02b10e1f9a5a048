// conv_fprop_*, conv_dgrad_*, conv_wgrad_*: Convolution, Deconvolution and InnerProduct as implicit GEMMs
// (implicit_gemm.cuh), by tile, and by elements of an access.
//
// Notation: image [N,H,W,C], out [N,Ho,Wo,K], weights [K,kh,kw,C/g]; p(o,t) is the image pixel under tap t of output
// pixel o, outside the image it reads as zero.  Channels of both sides are cut into g groups; group i of one meets
// group i of the other.  An InnerProduct is an image of one pixel with a kernel of one tap.
//      conv_fprop   out[o,k] = sum_tc image[p,c] w[k,t,c] + bias[k], then residual, ReLU and its mask
//                   Convolution and InnerProduct fprop, Deconvolution dgrad
//      conv_dgrad   image[p,c] = sum_ok out[o,k] w[k,t,c] + bias[c]        Convolution dgrad, Deconvolution fprop
//                   zero where a ReLU set image[p,c] to zero
//      conv_wgrad   dw[k,t,c] = sum_o out[o,k] image[p,c]                  all weight gradients
//
//   launch   grid (tiles of C, 1, groups x phases or groups x splits), block T::THREADS, dynamic shared memory
//            Product::STAGES stages of T::STAGE_FLOATS floats; tiles along N come first, so that tiles that read the
//            same rows of A run together and find them in L2
//   moments  of a channel, for the BatchNorm after it, are stored by the block whose tile has the unit of rows
//   traffic  each operand once per tile of the other side, through L2; bound by arithmetic from about 50 FLOP/byte on
//   assumes  tensors below 2^31 elements; _v4, _v8: channel runs are multiples of 4 elements, or 8 of 16 bits, and so
//            their addresses of 16 bytes, and images with their padding are below 2^14 pixels a side
//   weights  are in fp32, except for _v8, where they are rounded to bfloat16 first
//   ties     none; every sum runs in the order of k, whatever the tile
//   source   Caffe base_conv_layer.cpp (im2col and gemm), with the gather done on the way into shared memory
#pragma once
#include "conv_dgrad.cuh"
#include "conv_fprop.cuh"
#include "conv_wgrad.cuh"

namespace lm {

// Blobs of E, with weights in fp32 or in E; DATA: the image is in fp32, like the input data of a net.
template <class E>
using FpropArgs = ConvFpropArgs<E, E, float>;
template <class E>
using DgradArgs = ConvDgradArgs<E, float>;
template <class E>
using WgradArgs = ConvWgradArgs<E, E>;
template <class E>
using DataFpropArgs = ConvFpropArgs<float, E, float>;
template <class E>
using DataWgradArgs = ConvWgradArgs<float, E>;
template <class E>
using PackedFpropArgs = ConvFpropArgs<E, E, E>;
template <class E>
using PackedDgradArgs = ConvDgradArgs<E, E>;

#define LM_CONV_ROWS_OF(Fprop, Dgrad, tile, T, Product, V, E)                 \
    LM_KERNEL(conv_fprop_##tile##_v##V, Fprop<E>, p, T::THREADS, T::BLOCKS) { \
        conv_fprop<T, Product<T, true, true>, V>(p);                          \
    }                                                                         \
    LM_KERNEL(conv_dgrad_##tile##_v##V, Dgrad<E>, p, T::THREADS, T::BLOCKS) { \
        conv_dgrad<T, Product<T, true, false>, V>(p);                         \
    }
#define LM_WGRAD(tile, T, Product, V, E)                                          \
    LM_KERNEL(conv_wgrad_##tile##_v##V, WgradArgs<E>, p, T::THREADS, T::BLOCKS) { \
        conv_wgrad<T, Product<T, false, false>, V, V>(p);                         \
    }
#define LM_CONV_OF(Fprop, Dgrad, tile, T, Product, V, E)  \
    LM_CONV_ROWS_OF(Fprop, Dgrad, tile, T, Product, V, E) \
    LM_WGRAD(tile, T, Product, V, E)

// For weight gradients of few outputs.
#define LM_WGRAD_WIDE(Product, V, E)           \
    LM_WGRAD(128x256, T128x256, Product, V, E) \
    LM_WGRAD(128x192, T128x192, Product, V, E) \
    LM_WGRAD(64x192, T64x192, Product, V, E)

#define LM_CONV(tile, T, Product, V, E) LM_CONV_OF(FpropArgs, DgradArgs, tile, T, Product, V, E)
#define LM_CONV_PACKED(tile, T, Product, E) LM_CONV_OF(PackedFpropArgs, PackedDgradArgs, tile, T, Product, 8, E)

#define LM_CONV_DATA(tile, T, Product, V, E)                                               \
    LM_KERNEL(conv_fprop_data_##tile##_v##V, DataFpropArgs<E>, p, T::THREADS, T::BLOCKS) { \
        conv_fprop<T, Product<T, true, true>, V>(p);                                       \
    }                                                                                      \
    LM_KERNEL(conv_wgrad_data_##tile##_v##V, DataWgradArgs<E>, p, T::THREADS, T::BLOCKS) { \
        conv_wgrad<T, Product<T, false, false>, V, V>(p);                                  \
    }

#define LM_CONV_NARROW(tile, T, Product, V, E) \
    LM_CONV(tile, T, Product, V, E)            \
    LM_CONV_DATA(tile, T, Product, V, E)

// For weight gradients of images of few channels: accesses of four elements of the maps and of single elements of the
// image, in small tiles for their few columns.
#define LM_WGRAD_FEW(name, tile, T, Product, Args)                             \
    LM_KERNEL(conv_wgrad_##name##tile##_v41, Args, p, T::THREADS, T::BLOCKS) { \
        conv_wgrad<T, Product<T, false, false>, 4, 1>(p);                      \
    }
#define LM_WGRAD_FEW_TILES(name, Product, Args)      \
    LM_WGRAD_FEW(name, 64x64, T64x64, Product, Args) \
    LM_WGRAD_FEW(name, 64x32, T64x32, Product, Args)

// All four tiles, for operands in runs of four elements (V = 4) and for any operands (V = 1), such as fp32 data.
#define LM_TILES(CONV4, CONV1, Product, E)  \
    CONV4(128x128, T128x128, Product, 4, E) \
    CONV4(128x64, T128x64, Product, 4, E)   \
    CONV4(64x64, T64x64, Product, 4, E)     \
    CONV4(128x32, T128x32, Product, 4, E)   \
    CONV1(128x128, T128x128, Product, 1, E) \
    CONV1(128x64, T128x64, Product, 1, E)   \
    CONV1(64x64, T64x64, Product, 1, E)     \
    CONV1(128x32, T128x32, Product, 1, E)

#define LM_CONV_TILES(Product)                 \
    LM_TILES(LM_CONV, LM_CONV, Product, float) \
    LM_WGRAD_FEW_TILES(, Product, WgradArgs<float>)
#define LM_CONV_NARROW_TILES(Product, E)          \
    LM_TILES(LM_CONV, LM_CONV_NARROW, Product, E) \
    LM_WGRAD_FEW_TILES(data_, Product, DataWgradArgs<E>)

}  // namespace lm
