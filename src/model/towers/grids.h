// What a tower needs to know of a grid of patches: in which order it reads them, where they are, and
// what is added to them.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/towers/tower_config.h"
#include "ops/batch.h"

namespace penstock {

// Of one frame. Rows of the tower are patches, window after window, unit after unit, row after row
// in the unit; and then the class token, if the tower has one.
struct PreparedGrid {
  int rows = 0, cols = 0;
  int n_patches = 0, n_rows = 0;
  std::vector<int32_t> source;  // [n_patches] index among the patches that the tower is given
  std::vector<float> base;      // [n_rows, dim] positions and class; empty: zeros
  std::vector<AxisPosition> positions;  // [n_rows]; empty without rotation
  std::vector<int32_t> windows;         // patches of every window; empty without windows
  std::vector<int32_t> tokens;  // [n_tokens] place of each unit in the picture, row after row
};

// Taps of one axis of an interpolated table: target i is the sum of weights[j] * table[index[j]].
struct AxisTap {
  int index;
  float weight;
};
std::vector<std::vector<AxisTap>> axis_taps(TowerPositions::Kind kind, int size, int side);

// table: [rows * cols (+ 1 of the class), dim], of TowerPositions; class_row: [dim] or empty.
PreparedGrid prepare_grid(const TowerConfig& config, std::span<const float> table,
                          std::span<const float> class_row, int rows, int cols);

}  // namespace penstock
