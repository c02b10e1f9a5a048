// True boxes of grids of predictions: rows of label, x and y of the center, width and height.
#pragma once
#include "cpu/kernels/yolo_boxes.h"

namespace layermem::cpu {

constexpr int64_t kGridTruth = 5;  // floats of a row

inline CenterBox true_box(const float* row) { return {row[1], row[2], row[3], row[4]}; }

// The number of true boxes of an item: rows before the first one of width 0.
int64_t count_true_boxes(int64_t rows, const float* truth);

// std::invalid_argument where a box of truth [items][rows][5] is in no cell or of no class.
void check_true_boxes(int64_t items, int64_t rows, int64_t classes, const float* truth);

}  // namespace layermem::cpu
