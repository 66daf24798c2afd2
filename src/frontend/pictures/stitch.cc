#include "frontend/pictures/stitch.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/check.h"

namespace penstock {
namespace {

// Two neighbours, and the second's share.
struct Taps {
  int first, second;
  float share;
};

// Bilinear, centres of cells, not antialiased (torch's interpolate). Of equal sizes: each itself.
std::vector<Taps> taps(int from, int to) {
  std::vector<Taps> result;
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  for (int i = 0; i < to; ++i) {
    const float at = std::max(scale * (static_cast<float>(i) + 0.5f) - 0.5f, 0.0f);
    const int first = std::min(static_cast<int>(at), from - 1);
    result.push_back({first, std::min(first + 1, from - 1), at - static_cast<float>(first)});
  }
  return result;
}

// Adds a cell that is a mixture of four.
void add_mixed(const Taps& y, const Taps& x,
               const std::function<std::span<const float>(int, int)>& feature,
               std::vector<float>& values) {
  const auto a = feature(y.first, x.first), b = feature(y.first, x.second),
             c = feature(y.second, x.first), d = feature(y.second, x.second);
  for (size_t i = 0; i < a.size(); ++i)
    values.push_back((1 - y.share) * ((1 - x.share) * a[i] + x.share * b[i]) +
                     y.share * ((1 - x.share) * c[i] + x.share * d[i]));
}

}  // namespace

EmbeddingRows shrunk(const EmbeddingRows& frame, const StitchedGrid& grid) {
  PENSTOCK_CHECK(frame.levels == 1 && frame.n_rows == grid.rows * grid.cols);
  const size_t dim = frame.values.size() / static_cast<size_t>(frame.n_rows);
  const auto feature = [&](int r, int c) {
    return std::span(frame.values).subspan(static_cast<size_t>(r * grid.cols + c) * dim, dim);
  };
  EmbeddingRows result;
  result.n_rows = grid.shrunk_rows * grid.shrunk_cols;
  result.values.reserve(static_cast<size_t>(result.n_rows) * dim);
  for (const Taps& y : taps(grid.rows, grid.shrunk_rows))
    for (const Taps& x : taps(grid.cols, grid.shrunk_cols)) add_mixed(y, x, feature, result.values);
  return result;
}

EmbeddingRows stitched(const EmbeddingRows& views, const ImagePlan& plan,
                       std::span<const float> newline) {
  const StitchedGrid& grid = plan.stitched;
  PENSTOCK_CHECK(views.levels == 1);
  const size_t dim = newline.size();
  const int n_base = views.n_rows - grid.rows * grid.cols;
  EmbeddingRows result;
  result.n_rows = n_base + (grid.newline_behind ? 1 : grid.shrunk_rows * (grid.shrunk_cols + 1));
  result.values.reserve(static_cast<size_t>(result.n_rows) * dim);
  const auto add = [&](std::span<const float> values) {
    result.values.insert(result.values.end(), values.begin(), values.end());
  };
  add(std::span(views.values).first(static_cast<size_t>(n_base) * dim));
  if (grid.newline_behind) {
    add(newline);
    return result;
  }
  const int rows = grid.rows / plan.tile_rows, cols = grid.cols / plan.tile_cols;  // of a tile
  const auto feature = [&](int r, int c) {
    r += grid.first_row, c += grid.first_col;
    const int tile = r / rows * plan.tile_cols + c / cols;
    const int row = n_base + (tile * rows + r % rows) * cols + c % cols;
    return std::span(views.values).subspan(static_cast<size_t>(row) * dim, dim);
  };
  const std::vector<Taps> down = taps(grid.n_rows, grid.shrunk_rows),
                          across = taps(grid.n_cols, grid.shrunk_cols);
  for (const Taps& y : down) {
    for (const Taps& x : across) add_mixed(y, x, feature, result.values);
    add(newline);
  }
  return result;
}

}  // namespace penstock
