"""The products that take 16-bit blobs, by precision, and the workspace of weights that are rounded for them.

fp32, tf32   all products whose kernels can; operands are widened when they are loaded
bf16         products of bfloat16 blobs whose channels form accesses of 16 bytes, without conversion; and products with
             an fp32 image
fp32x3       none

Direct convolutions (direct_problems.py) compute in fp32 in all precisions, so they take the same types as fp32, except
an fp32 image with 16-bit maps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from layermem.backends.cuda.base import cuda_kernels
from layermem.backends.cuda.inner_product import conv_problem, is_in_parts
from layermem.backends.cuda.products.direct_problems import is_direct
from layermem.backends.cuda.products.gemm_tiles import DGRAD, FPROP, takes_narrow
from layermem.backends.cuda.products.weight_tiles import rounded_weights_bytes
from layermem.backends.cuda.support.half import WORDS
from layermem.backends.registry import NO_ROLES
from layermem.ops import NARROW, Conv, ConvProblem, Deconv, InnerProduct, InnerProductUpdate, OpRecord


def takes(
    precision: str, record: OpRecord, step: str, dtypes: Mapping[str, str], accumulates: Collection[str]
) -> frozenset[str]:
    """The roles, of those with these element types, that the kernels of this precision take in 16 bits."""
    taken = cuda_kernels.takes(record, step, dtypes, accumulates)
    problems = _problems_of(record)
    if not problems or not taken:
        return taken
    (word,) = {WORDS[dtypes[role]] for role in taken if dtypes[role] in WORDS}
    wide_image = "x0" in dtypes and "x0" not in taken
    if any(_is_direct(record, step, each, precision) for each in problems):
        return NO_ROLES if wide_image else taken
    are_taken = all(takes_narrow(precision, each, step, word, wide_image=wide_image) for each in problems)
    return taken if are_taken else NO_ROLES


def rounding_bytes(precision: str, record: OpRecord, step: str, storage: str) -> int:
    """Bytes of the workspace for the rounded weights of a product of blobs in this storage."""
    if storage not in NARROW or (isinstance(record, InnerProduct) and is_in_parts(record, step)):
        return 0
    product = {"forward": FPROP, "dgrad": DGRAD}.get(step)
    if product is None:
        return 0
    has_bias = False
    if isinstance(record, Deconv):
        product, has_bias = (DGRAD, record.bias) if product == FPROP else (FPROP, False)
    problems = (each for each in _problems_of(record) if not _is_direct(record, step, each, precision))
    return sum(rounded_weights_bytes(precision, each, product, storage, has_bias=has_bias) for each in problems)


def _is_direct(record: OpRecord, step: str, problem: ConvProblem, precision: str) -> bool:
    return is_direct(step, problem, precision, transposed=isinstance(record, Deconv))


def _problems_of(record: OpRecord) -> tuple[ConvProblem, ...]:
    if isinstance(record, (Conv, Deconv)):
        return (record.problem,)
    if isinstance(record, InnerProductUpdate):
        return (conv_problem(record.product),)
    return (conv_problem(record),) if isinstance(record, InnerProduct) else ()
