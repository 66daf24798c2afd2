#include "frontend/pictures/stitch.h"

#include "base/check.h"

namespace penstock {

EmbeddingRows stitched(const EmbeddingRows& views, const ImagePlan& plan,
                       std::span<const float> newline) {
  const StitchedGrid& grid = plan.stitched;
  PENSTOCK_CHECK(grid.shrunk_rows == grid.n_rows && grid.shrunk_cols == grid.n_cols &&
                 views.levels == 1);
  const size_t dim = newline.size();
  const int rows = grid.rows / plan.tile_rows, cols = grid.cols / plan.tile_cols;  // of a tile
  const int n_base = views.n_rows - grid.rows * grid.cols;
  EmbeddingRows result;
  result.n_rows = n_base + grid.n_rows * (grid.n_cols + 1);
  result.values.reserve(static_cast<size_t>(result.n_rows) * dim);
  const auto add = [&](int first, int count) {
    const auto from = views.values.begin() + int64_t{first} * static_cast<int64_t>(dim);
    result.values.insert(result.values.end(), from,
                         from + int64_t{count} * static_cast<int64_t>(dim));
  };
  add(0, n_base);
  for (int r = grid.first_row; r < grid.first_row + grid.n_rows; ++r) {
    for (int c = grid.first_col; c < grid.first_col + grid.n_cols; ++c) {
      const int tile = r / rows * plan.tile_cols + c / cols;
      add(n_base + (tile * rows + r % rows) * cols + c % cols, 1);
    }
    result.values.insert(result.values.end(), newline.begin(), newline.end());
  }
  return result;
}

}  // namespace penstock
