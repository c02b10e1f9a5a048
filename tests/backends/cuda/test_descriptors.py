"""Matrix descriptors name the places where operands of warpgroups lie, by the tables of the PTX ISA.

The functions that place operands in shared memory, and those that make descriptors, are cut out of the sources and
compiled for the host, with tags instead of numbers.  Nothing here is of the emulator, which reads descriptors too.
source  PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Matrix Descriptor Format", "Strides", "Shared
        Memory Matrix Layout", "Register Fragments"
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from layermem.backends.cuda.kernel_images.sources import SOURCES
from tests.emulator.build import CXX

Ints = npt.NDArray[np.int64]

SHARED_BYTES = 232448  # of a block
ATOM_BYTES = 1024  # in which the longest swizzle repeats: stages, and operands in them, begin at multiples
ROW_BYTES, PANEL, STAGE_K = 128, 64, 64  # of packed operands: of a row, columns that lie together, k's of a stage
PANEL_BYTES = PANEL * ROW_BYTES
ROWS, K_OF_16_BITS = 64, 16  # of A in a product; k's of a product
# The k's of eight in bfloat16, as warpgroup_gemm.cuh packs them for both operands: pairs of A are k t and t + 4.
PAIRED = np.array([0, 4, 1, 5, 2, 6, 3, 7])
# Named in the sources, in this order; a template line belongs to what follows it.
PIECES: Mapping[str, tuple[str, ...]] = {
    "implicit_gemm.cuh": (
        "LM_FN int in_rows(int row, int k)",
        "template <int STRIDE>\nLM_FN int in_rows(int row, int i, int k)",
        "template <int WIDTH>\nLM_FN int in_packed_columns",
    ),
    "warpgroup.cuh": (
        "template <int ROW_BYTES>\nLM_FN unsigned long long shared_rows",
        "template <int PANEL_BYTES>\nLM_FN unsigned long long shared_columns",
    ),
    "warpgroup_operands.cuh": ("template <class T>\nLM_FN void place_eight",),
    "warpgroup_gemm.cuh": (
        "template <int WIDTH, int THREADS, int PANEL>\nstruct PanelsOfTile",
        "template <class Panels, class Source>\nstruct PanelCopies",
    ),
    "weight_tiles.cu": ("LM_FN unsigned swizzled",),
}
BEFORE = """
#include <cstdint>
#include <vector>
#define LM_FN static inline
#define LM_MEMBER inline
#define LM_WARPGROUPS 1
constexpr int DEPTH = 32, PACKED = 8, WARP = 32;
constexpr unsigned ROW_CHUNKS = 8;
template <int V> constexpr int STAGE_DEPTH = V == PACKED ? 2 * DEPTH : DEPTH;
template <int V> constexpr int COPY_WORDS = V == PACKED ? V / 2 : V;
enum class Precision { TF32, BF16 };
struct uint4 { unsigned x, y, z, w; };
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static struct { unsigned x; } threadIdx;
static unsigned shared_address(const void* p) { return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(p)); }
static unsigned tf32_round(float tag) { return static_cast<unsigned>(tag); }
static unsigned bf16_pack(float low, float high) { return unsigned(low) | unsigned(high) << 16; }
static int copied_from;
static std::int64_t* copied_to;  // tags by elements of 16 bits
static float* tile_begin;
template <int BYTES> static void async_copy(void* to, const void*, bool) {
    const auto first = (static_cast<char*>(to) - reinterpret_cast<char*>(tile_begin)) / 2;
    for (int e = 0; e < BYTES / 2; ++e) copied_to[first + e] = copied_from + e;
}
"""
BEHIND = """
template <Precision PRECISION_>
struct RoundedTile {
    static constexpr Precision PRECISION = PRECISION_;
    static constexpr int B_ROW_BYTES = PRECISION_ == Precision::BF16 ? 64 : 128;
};
// Of column c and k: the tag k * 1024 + c.
template <class Panels>
struct Tags {
    int k;
    void advance() {}
    void begin_row(int row) { k = Panels::first_k() + row * Panels::STRIDE; }
    const char* at(int panel, bool&) const {
        copied_from = k * 1024 + panel * Panels::COLUMNS + Panels::first_column();
        return nullptr;
    }
};
template <int WIDTH>
static void place_panels(std::int64_t* tags) {
    using Panels = PanelsOfTile<WIDTH, 128, 64>;
    copied_to = tags;
    for (threadIdx.x = 0; threadIdx.x < 128; ++threadIdx.x) {
        PanelCopies<Panels, Tags<Panels>> copies(Tags<Panels>{});
        for (int i = 0; i < copies.COPIES; ++i) copies.copy(tile_begin, i);
    }
}
template <Precision P>
static void place_rounded(unsigned char* tile, int rows) {
    for (int row = 0; row < rows; ++row)
        for (int eight = 0; eight < DEPTH / 8; ++eight) {
            float tags[8];
            for (int k = 0; k < 8; ++k) tags[k] = row * DEPTH + 8 * eight + k;
            place_eight<RoundedTile<P>>(tile, row, eight, tags);
        }
}
extern "C" {
std::uint64_t rows_of_128(unsigned a, int n) { return shared_rows<128>((const void*)(std::uintptr_t)a, n); }
std::uint64_t rows_of_64(unsigned a, int n) { return shared_rows<64>((const void*)(std::uintptr_t)a, n); }
std::uint64_t columns(unsigned a, int n) { return shared_columns<64 * 128>((const void*)(std::uintptr_t)a, n); }
void rounded(int bf16, unsigned char* tile, int rows) {
    bf16 ? place_rounded<Precision::BF16>(tile, rows) : place_rounded<Precision::TF32>(tile, rows);
}
// As TapRows places chunks of a row, by 128 threads.
void packed_rows(std::int64_t* tags, int rows) {
    for (int row = 0; row < 16; ++row)
        for (int i = 0; i < rows / 16; ++i)
            for (int chunk = 0; chunk < 8; ++chunk)
                for (int e = 0; e < 8; ++e)
                    tags[2 * in_rows<16>(row, i, chunk * COPY_WORDS<PACKED>) + e] =
                        (8 * chunk + e) * 1024 + row + 16 * i;
}
// As weight_tiles.cu writes a stage, by rows and by panels of columns.
void weight_rows(std::int64_t* tags, int rows) {
    for (int row = 0; row < rows; ++row)
        for (unsigned j = 0; j < ROW_CHUNKS; ++j)
            for (int e = 0; e < 8; ++e) tags[8 * swizzled(row, j) + e] = (8 * j + e) * 1024 + row;
}
void weight_columns(std::int64_t* tags, int columns) {
    for (int panel = 0; panel < columns / 64; ++panel)
        for (int k = 0; k < 64; ++k)
            for (unsigned j = 0; j < ROW_CHUNKS; ++j)
                for (int e = 0; e < 8; ++e)
                    tags[8 * (panel * 512 + swizzled(k, j)) + e] = k * 1024 + 64 * panel + 8 * j + e;
}
void panels(std::int64_t* tags, int width) {
    width == 256 ? place_panels<256>(tags) : width == 192 ? place_panels<192>(tags) : place_panels<128>(tags);
}
}
"""


def piece(text: str, head: str) -> str:
    """A function or struct of a source: from `head` to the end of its braces."""
    begin, depth = text.index(head), 0
    for at in range(text.index("{", begin), len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin : at + 1] + (";\n" if "struct" in head else "\n")
    raise AssertionError(f"{head} has no end")


def compiled(folder: Path, changes: Mapping[str, str] | None = None) -> ctypes.CDLL:
    """The pieces as a library, with these changes of their text."""
    text = "".join(
        piece((SOURCES / name).read_text(encoding="utf-8"), head) for name, heads in PIECES.items() for head in heads
    )
    for right, wrong in (changes or {}).items():
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    source, library = folder / "pieces.cpp", folder / "pieces.so"
    source.write_text(BEFORE + text + BEHIND, encoding="utf-8")
    subprocess.run([CXX, "-std=c++17", "-O1", "-w", "-shared", "-fPIC", source, "-o", library], check=True)
    found = ctypes.CDLL(str(library))
    for name in ("rows_of_128", "rows_of_64", "columns"):
        getattr(found, name).restype = ctypes.c_uint64
    return found


class Descriptor:
    """What a GPU reads of the 64 bits, and where elements are by it: byte addresses in shared memory."""

    def __init__(self, bits: int):
        self.start, self.leading, self.stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
        base_offset, self.swizzle = bits >> 49 & 7, bits >> 62
        known = 0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62
        assert not bits & ~known and base_offset == 0 and self.swizzle in (1, 2)
        self.row_bytes = {1: 128, 2: 64}[self.swizzle]

    def swizzled(self, address: Ints) -> Ints:
        """128 bytes: bits 4 to 6 by bits 7 to 9; 64 bytes: bits 4 and 5 by bits 7 and 8."""
        mask = {1: 7, 2: 3}[self.swizzle]
        found: Ints = address ^ ((address >> 7 & mask) << 4)
        return found

    def k_major(self, mn: Ints, byte: Ints) -> Ints:
        """Rows of eight, `stride` bytes from one eight to the next; k's along a row."""
        return self.swizzled(self.start + mn // 8 * self.stride + mn % 8 * self.row_bytes + byte)

    def mn_major(self, mn: Ints, k: Ints) -> Ints:
        """m's or n's along a row of a k, `leading` bytes from a row's worth of them to the next one; k's in eights,
        `stride` bytes from one to the next."""
        each = self.row_bytes // 2
        return self.swizzled(
            self.start + mn // each * self.leading + k // 8 * self.stride + k % 8 * self.row_bytes + mn % each * 2
        )


class SharedMemory:
    """Tags of elements by address; where nothing was placed it is -1."""

    def __init__(self, element_bytes: int = 2):
        self.element_bytes = element_bytes
        self.tags = np.full(SHARED_BYTES // element_bytes, -1, np.int64)
        self.checked = 0

    def place(self, address: int, tags: npt.NDArray[np.generic]) -> None:
        begin = address // self.element_bytes
        self.tags[begin : begin + tags.size] = tags

    def expect(self, address: Ints, tags: Ints) -> None:
        np.testing.assert_array_equal(self.tags[address // self.element_bytes], tags)
        self.checked += tags.size


def grid(*sizes: int) -> list[Ints]:
    return list(np.meshgrid(*map(np.arange, sizes), indexing="ij"))


def check_rounded(pieces: ctypes.CDLL, width: int, stages: range, stage_bytes: int, before: int, bf16: bool) -> int:
    """B of blobs in fp32, rounded to tf32 or bfloat16, `before` bytes behind the begin of each stage."""
    size, k_of_product = (2, K_OF_16_BITS) if bf16 else (4, 8)
    tile = np.zeros(width * 32 * size, np.uint8)
    pieces.rounded(int(bf16), tile.ctypes.data_as(ctypes.c_void_p), width)
    memory = SharedMemory(size)
    n, k = grid(width, k_of_product)
    of_eight = PAIRED[k % 8] if bf16 else k % 8
    for stage in stages:
        begin = 3 * ATOM_BYTES + stage * stage_bytes + before
        memory.place(begin, tile.view(np.uint16 if bf16 else np.uint32))
        for product in range(32 // k_of_product):
            descriptor = Descriptor((pieces.rows_of_64 if bf16 else pieces.rows_of_128)(begin, product))
            tags = n * 32 + product * k_of_product + k // 8 * 8 + of_eight
            memory.expect(descriptor.k_major(n, k * size), tags % (1 << 8 * size))
    return memory.checked


def placed(pieces: ctypes.CDLL, name: str, width: int) -> Ints:
    """The tags of a stage of a packed operand of so many rows or columns: k * 1024 + row or column."""
    tags = np.full(width * STAGE_K, -1, np.int64)
    getattr(pieces, name)(tags.ctypes.data_as(ctypes.c_void_p), width)
    return tags


def check_packed(pieces: ctypes.CDLL, m: int, n: int, a: str, b: str, stages: int, halves_rows: bool) -> int:
    """Both operands of packed tiles, for both consumers: of half of the rows each, or half of the columns."""
    memory = SharedMemory()
    a_bytes, b_bytes = m * ROW_BYTES, n * ROW_BYTES
    rows, columns = (m // 2, n) if halves_rows else (m, n // 2)
    a_tags, b_tags = placed(pieces, a, m), placed(pieces, b, n)
    for stage in range(stages):
        begin = 5 * ATOM_BYTES + stage * (a_bytes + b_bytes)
        memory.place(begin, a_tags)
        memory.place(begin + a_bytes, b_tags)
        for part in range(STAGE_K // K_OF_16_BITS):
            for consumer in range(2):
                row, column = (consumer * rows, 0) if halves_rows else (0, consumer * columns)
                k_of_a = [
                    check_operand(pieces, memory, a, begin + (row + ROWS * i) * ROW_BYTES, part, row + ROWS * i, ROWS)
                    for i in range(rows // ROWS)
                ]
                of_b = begin + a_bytes + column * ROW_BYTES
                k_of_b = check_operand(pieces, memory, b, of_b, part, column, columns)
                assert all(each == k_of_b for each in k_of_a), "a product multiplies the same k's"
                assert sorted(k_of_b) == list(range(K_OF_16_BITS * part, K_OF_16_BITS * (part + 1)))
    return memory.checked


def check_operand(
    pieces: ctypes.CDLL, memory: SharedMemory, name: str, address: int, part: int, first: int, count: int
) -> list[int]:
    """A product reads rows or columns `first` on, each with the same k's; these in their order."""
    mn, k = grid(count, K_OF_16_BITS)
    if name.endswith("rows"):
        at = Descriptor(pieces.rows_of_128(address, part)).k_major(mn, 2 * k)
    else:
        at = Descriptor(pieces.columns(address, part)).mn_major(mn, k)
    its = memory.tags[at[0] // 2] // 1024
    memory.expect(at, its * 1024 + first + mn)
    return [int(each) for each in its]


def check_all(pieces: ctypes.CDLL) -> int:
    """All products that a kernel of warpgroup_gemm.cuh starts, in every stage of its ring."""
    header = (SOURCES / "warpgroup_gemm.cuh").read_text(encoding="utf-8")
    tiles = re.findall(r"^using W\w+ = (Packed)?WarpgroupTile<(\d+), (\d+),.*?(true)?>;", header, re.MULTILINE)
    assert len(tiles) == 5 and len([packed for packed, *_ in tiles if packed]) == 3
    checked = 0
    for packed, *sizes, halves_rows in tiles:
        m, n = map(int, sizes)
        if not packed:
            for bf16 in (False, True):
                before = 4 * m * 32
                checked += check_rounded(pieces, n, range(4), before + n * (64 if bf16 else 128), before, bf16)
        elif halves_rows:
            checked += check_packed(pieces, m, n, "panels", "panels", 3, halves_rows=True)
        else:
            for b in ("weight_rows", "weight_columns"):
                checked += check_packed(pieces, m, n, "packed_rows", b, 3, halves_rows=False)
    return checked


def test_every_element_of_every_product_lies_where_the_gpu_looks(tmp_path):
    rounded = 2 * 4 * 32 * (128 + 64)  # two precisions, four stages of 32 k's
    packed = 3 * 64 * 2 * (2 * (192 + 128) + (128 + 192) + (128 + 128))  # three stages of 64 k's, two consumers
    assert check_all(compiled(tmp_path)) == rounded + packed == 516_096


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("NEXT_PANEL = PANEL_BYTES / 16", "NEXT_PANEL = PANEL_BYTES / 32"),
        ("eight ^ (row / 2 & 3)", "eight ^ (row & 3)"),
        ("EIGHT_ROWS = 8 * ROW_BYTES / 16", "EIGHT_ROWS = 4 * ROW_BYTES / 16"),
        ("k / 8 * 8 + k % 4 * 2 + k / 4 % 2", "k / 8 * 8 + k % 4 * 2 + k / 2 % 2"),
        ("(j ^ (r & 7u))", "(j ^ (r / 2 & 7u))"),
    ],
)
def test_a_wrong_stride_swizzle_or_order_is_found(right, wrong, tmp_path):
    with pytest.raises(AssertionError):
        check_all(compiled(tmp_path, {right: wrong}))
