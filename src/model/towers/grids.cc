#include "model/towers/grids.h"

#include <algorithm>
#include <cmath>

namespace penstock {

namespace {

using Kind = TowerPositions::Kind;

// A tap at the nearest cell for targets outside of the table.
void add_tap(std::vector<AxisTap>& taps, int index, int side, float weight) {
  taps.push_back({std::clamp(index, 0, side - 1), weight});
}

float cubic(float distance) {
  constexpr float a = -0.75f;
  const float d = std::abs(distance);
  return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

// Weights of a triangle as wide as the cells that become one.
void add_antialiased(std::vector<AxisTap>& taps, int i, int size, int side) {
  const float scale = static_cast<float>(side) / static_cast<float>(size);
  const float support = std::max(scale, 1.0f), centre = scale * (static_cast<float>(i) + 0.5f);
  const int first = std::max(static_cast<int>(centre - support + 0.5f), 0),
            end = std::min(static_cast<int>(centre + support + 0.5f), side);
  float sum = 0;
  for (int j = first; j < end; ++j) {
    const float at = (static_cast<float>(j) - centre + 0.5f) / support;
    taps.push_back({j, std::max(0.0f, 1.0f - std::abs(at))});
    sum += taps.back().weight;
  }
  for (AxisTap& tap : taps) tap.weight /= sum;
}

// The number of boundaries 1/side, 2/side, ... that are not above the fraction of the axis before
// patch i.
int fraction_bucket(int i, int size, int side) {
  const float at = std::min(static_cast<float>(i) / static_cast<float>(size), 1.0f - 1e-6f);
  int bucket = 0;
  while (bucket + 1 < side &&
         static_cast<float>(static_cast<double>(bucket + 1) / static_cast<double>(side)) <= at)
    ++bucket;
  return bucket;
}

}  // namespace

std::vector<std::vector<AxisTap>> axis_taps(Kind kind, int size, int side) {
  std::vector<std::vector<AxisTap>> result(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) {
    std::vector<AxisTap>& taps = result[static_cast<size_t>(i)];
    const float half =
        (static_cast<float>(i) + 0.5f) * static_cast<float>(side) / static_cast<float>(size) - 0.5f;
    switch (kind) {
      case Kind::kBilinear: {
        const float at = static_cast<float>(i) * static_cast<float>(side - 1) /
                         static_cast<float>(std::max(size - 1, 1));
        const float low = std::floor(at);
        add_tap(taps, static_cast<int>(low), side, 1.0f - (at - low));
        add_tap(taps, static_cast<int>(low) + 1, side, at - low);
        break;
      }
      case Kind::kBicubic: {
        const float low = std::floor(half);
        for (int k = -1; k <= 2; ++k)
          add_tap(taps, static_cast<int>(low) + k, side, cubic(half - low - static_cast<float>(k)));
        break;
      }
      case Kind::kAntialiased: add_antialiased(taps, i, size, side); break;
      case Kind::kFractions: taps.push_back({fraction_bucket(i, size, side), 1.0f}); break;
      case Kind::kSines: taps.push_back({i % side, 1.0f}); break;
      default: taps.push_back({i, 1.0f});
    }
  }
  return result;
}

namespace {

struct PatchPlace {
  int row, col;
};

// Places of all patches in the tower's order; fills windows.
std::vector<PatchPlace> places_of(const TowerConfig& config, PreparedGrid& grid) {
  const int unit = config.unit, unit_rows = grid.rows / config.unit_rows(),
            unit_cols = grid.cols / unit;
  const int window_rows = config.window > 0 ? config.window : unit_rows,
            window_cols = config.window > 0 ? config.window : unit_cols;
  std::vector<PatchPlace> places;
  for (int wr = 0; wr < unit_rows; wr += window_rows) {
    for (int wc = 0; wc < unit_cols; wc += window_cols) {
      const size_t before = places.size();
      for (int ur = wr; ur < std::min(wr + window_rows, unit_rows); ++ur) {
        for (int uc = wc; uc < std::min(wc + window_cols, unit_cols); ++uc) {
          grid.tokens.push_back(ur * unit_cols + uc);
          for (int k = 0; k < config.unit_places(); ++k)
            places.push_back({ur * config.unit_rows() + k / unit, uc * unit + k % unit});
        }
      }
      if (config.window > 0) grid.windows.push_back(static_cast<int32_t>(places.size() - before));
    }
  }
  if (config.unit_in_row)
    for (int col = unit_cols * unit; col < grid.cols; ++col) places.push_back({0, col});
  if (config.units_in(grid.cols) > unit_cols) grid.tokens.push_back(unit_cols);
  return places;
}

int given_index(const TowerConfig& config, const PreparedGrid& grid, PatchPlace at) {
  const int unit = config.unit;
  if (!config.patches_by_unit) return at.row * grid.cols + at.col;
  const int block = at.row / unit * (grid.cols / unit) + at.col / unit;
  return block * unit * unit + at.row % unit * unit + at.col % unit;
}

void add_row(std::span<const float> from, float weight, std::span<float> to) {
  for (size_t d = 0; d < to.size(); ++d) to[d] += weight * from[d];
}

void add_positions(const TowerConfig& config, std::span<const float> table,
                   const std::vector<PatchPlace>& places, PreparedGrid& grid) {
  const TowerPositions& positions = config.positions;
  if (positions.kind == Kind::kNone) return;
  const auto dim = static_cast<size_t>(config.model_dim());
  const auto row_of = [&](std::span<const float> rows, int r) {
    return rows.subspan(static_cast<size_t>(r) * dim, dim);
  };
  const int n_class = positions.has_class ? 1 : 0;
  const auto cells = table.subspan(positions.class_first ? static_cast<size_t>(n_class) * dim : 0);
  const bool sums = positions.kind == Kind::kSums;
  const auto down = axis_taps(positions.kind, grid.rows, positions.rows),
             across = axis_taps(positions.kind, grid.cols, positions.cols);
  for (size_t i = 0; i < places.size(); ++i) {
    const auto out = std::span(grid.base).subspan(i * dim, dim);
    const PatchPlace at = places[i];
    if (sums) {
      add_row(row_of(cells, at.col), 1.0f, out);
      add_row(row_of(cells, positions.cols + at.row), 1.0f, out);
      continue;
    }
    for (const AxisTap& r : down[static_cast<size_t>(at.row)])
      for (const AxisTap& c : across[static_cast<size_t>(at.col)])
        add_row(row_of(cells, r.index * positions.cols + c.index), r.weight * c.weight, out);
  }
  if (n_class == 0) return;
  const int at = positions.class_first ? 0 : positions.rows * positions.cols;
  add_row(row_of(table, at), 1.0f, std::span(grid.base).last(dim));
}

}  // namespace

PreparedGrid prepare_grid(const TowerConfig& config, std::span<const float> table,
                          std::span<const float> class_row, int rows, int cols) {
  PreparedGrid grid;
  grid.rows = rows, grid.cols = cols;
  grid.n_patches = rows * cols;
  grid.n_rows = grid.n_patches + (class_row.empty() ? 0 : 1);
  const std::vector<PatchPlace> places = places_of(config, grid);
  for (const PatchPlace& at : places) grid.source.push_back(given_index(config, grid, at));
  const auto dim = static_cast<size_t>(config.model_dim());
  if (config.positions.kind != Kind::kNone || !class_row.empty())
    grid.base.resize(static_cast<size_t>(grid.n_rows) * dim);
  add_positions(config, table, places, grid);
  if (!class_row.empty()) add_row(class_row, 1.0f, std::span(grid.base).last(dim));
  if (config.ropes.empty()) return grid;
  const int first = config.ropes[0].first_position;
  for (const PatchPlace& at : places) grid.positions.push_back({0, at.row + first, at.col + first});
  if (!class_row.empty()) grid.positions.push_back({0, 0, 0});
  return grid;
}

}  // namespace penstock
