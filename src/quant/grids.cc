#include "quant/grids.h"

namespace penstock::quant {

namespace {

#include "quant/grid_points.inc"

// Packs the levels of a point's columns, Bits bits each, as grids.h specifies.
template <int Bits>
constexpr uint32_t spread(uint16_t point) {
  constexpr int kColumns = 16 / Bits;
  uint32_t word = 0;
  for (int i = 0; i < kColumns; ++i) {
    word |= static_cast<uint32_t>(point >> (Bits * i) & ((1 << Bits) - 1))
            << (8 * (i % 4) + i / 4 * 4);
  }
  return word;
}

template <int Bits, int Size>
constexpr Grid<Size> make_grid(const uint16_t (&points)[Size]) {
  Grid<Size> grid = {};
  for (int i = 0; i < Size; ++i) {
    grid.points[i] = spread<Bits>(points[i]);
    grid.halves[0][i] = static_cast<uint8_t>(points[i]);
    grid.halves[1][i] = static_cast<uint8_t>(points[i] >> 8);
  }
  return grid;
}

constexpr Grid<4096> make_iq1_grid() {
  constexpr uint32_t kLowered = 0x44444444;  // selects the second half of kIQ1Levels
  Grid<4096> grid = {};
  for (int i = 0; i < 2048; ++i) {
    grid.points[i] = spread<2>(kIQ1SPoints[i]);
    grid.points[i + 2048] = grid.points[i] | kLowered;
  }
  return grid;
}

}  // namespace

constinit const Grid<4096> kIQ1Grid = make_iq1_grid();
constinit const Grid<256> kIQ2XXSGrid = make_grid<2>(kIQ2XXSPoints);
constinit const Grid<512> kIQ2XSGrid = make_grid<2>(kIQ2XSPoints);
constinit const Grid<1024> kIQ2SGrid = make_grid<2>(kIQ2SPoints);
constinit const Grid<256> kIQ3XXSGrid = make_grid<4>(kIQ3XXSPoints);
constinit const Grid<512> kIQ3SGrid = make_grid<4>(kIQ3SPoints);

}  // namespace penstock::quant
