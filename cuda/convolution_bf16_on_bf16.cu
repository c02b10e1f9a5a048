// The sums over windows of conv.cuh on tensor cores; blobs in bfloat16, whose operands are copied unchanged, with
// weights rounded before; of an image in fp32, operands are rounded to bfloat16 from fp32 tiles.  For sm_80 and later.
#include "mma.cuh"
#include "conv_patch.cuh"
#include "conv_sums.cuh"

using namespace lm;

LM_CONV_PACKED(256x128, T256x128, MmaBf16Packed, Bf16)
LM_WGRAD_WIDE(MmaBf16Packed, 8, Bf16)
LM_CONV_PACKED(128x128, T128x128, MmaBf16Packed, Bf16)
LM_CONV_PACKED(128x64, T128x64, MmaBf16Packed, Bf16)
LM_CONV_PACKED(64x64, T64x64, MmaBf16Packed, Bf16)
LM_CONV_DATA(128x128, T128x128, MmaBf16, 1, Bf16)
LM_CONV_DATA(128x64, T128x64, MmaBf16, 1, Bf16)
LM_CONV_DATA(64x64, T64x64, MmaBf16, 1, Bf16)
LM_WGRAD_FEW_TILES(data_, MmaBf16, DataWgradArgs<Bf16>)
LM_DGRAD_SUMS_PACKED(256x128, T256x128, MmaBf16Packed, Bf16)
LM_DGRAD_SUMS_PACKED(128x128, T128x128, MmaBf16Packed, Bf16)
LM_DGRAD_SUMS_PACKED(128x64, T128x64, MmaBf16Packed, Bf16)
LM_CONV_PATCH_TILES(data_, MmaBf16OfPatch, Bf16)
