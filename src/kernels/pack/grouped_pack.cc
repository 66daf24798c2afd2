// Packs grouped matrices into panels.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/pack/panel_pack.h"
#include "kernels/pack/panel_planes.h"

namespace penstock {
namespace {

// --- Choice of the layout ---

// Columns for which integer sums of a row fit: 127 * 255 * kMaxRowSum is below 2^31.
constexpr int kMaxRowSum = 65536;

bool groups_fit(const GroupedMatrix& m, int size) {
  return m.group_size % size == 0 || m.n_groups() == 1;
}

// Finds integer levels nearest to the codebook, and their unit, by search: with the right unit, FP4
// levels are integers.
void fit_levels(const GroupedMatrix& m, GroupedShape& shape) {
  float largest = 0;
  for (const float level : m.codebook) largest = std::max(largest, std::fabs(level));
  shape.level_scale = 1.0f;
  std::fill_n(shape.levels, 16, uint8_t{128});
  if (!(largest > 0) || !std::isfinite(largest)) return;
  double best_error = INFINITY;
  for (int i = 0; i <= 2048; ++i) {
    // integer level of the largest codebook entry
    const float steps = 127.0f - 63.0f * static_cast<float>(i) / 2048.0f;
    double error = 0;
    for (const float level : m.codebook) {
      const double exact = static_cast<double>(level) / largest * steps,
                   off = exact - std::nearbyint(exact);
      error += off * off;
    }
    error /= static_cast<double>(steps) * steps;
    if (error >= best_error) continue;
    best_error = error;
    shape.level_scale = largest / steps;
  }
  for (size_t c = 0; c < m.codebook.size(); ++c) {
    shape.levels[c] = static_cast<uint8_t>(std::nearbyint(m.codebook[c] / shape.level_scale) + 128);
  }
}

bool is_e2m1(const std::vector<float>& codebook) {
  for (size_t c = 0; c < codebook.size(); ++c) {
    if (codebook[c] * 2 != static_cast<float>(quant::kE2M1Levels[c])) return false;
  }
  return true;
}

bool is_f8(const GroupedMatrix& m) {
  if (m.codebook.size() != 256 || m.layout != CodeLayout::kBytes) return false;
  for (size_t c = 0; c < 256; ++c) {
    const float level = quant::decode_f8e4m3(static_cast<uint8_t>(c));
    if (std::isfinite(level) && level != m.codebook[c]) return false;
  }
  // NaN
  return std::none_of(m.packed.begin(), m.packed.end(),
                      [](std::byte b) { return (b & std::byte{0x7f}) == std::byte{0x7f}; });
}

bool zeros_fit(const GroupedMatrix& m, int offset) {
  const auto fits = [&](int zero) { return zero + offset >= -128 && zero + offset <= 127; };
  return m.zeros.empty() ? fits(m.uniform_zero) : std::ranges::all_of(m.zeros, fits);
}

// Chooses the smallest of the layouts that can hold the matrix.
class Chooser {
 public:
  explicit Chooser(const GroupedMatrix& m) : m_(m) {}

  template <class Q>
  void offer(PanelType type, int code_offset = 0, bool levels = false) {
    using L = PanelLayout<Q>;
    if (L::kWholeRow ? m_.n_groups() != 1 || m_.cols > kMaxRowSum
                     : !groups_fit(m_, L::kWholeRow ? 1 : Q::kGroupSize))
      return;
    const int padded = round_up(m_.cols, L::kUnitK);
    const size_t bytes = static_cast<size_t>(padded / L::kUnitK) * L::kUnitBytes;
    if (found_ && bytes >= best_.panels.panel_bytes) return;
    best_ = {};
    best_.panels = {type, padded, bytes, true};
    best_.code_offset = code_offset;
    found_ = true;
    if (levels) fit_levels(m_, best_);
  }

  bool found() const { return found_; }
  GroupedShape& best() { return best_; }

 private:
  const GroupedMatrix& m_;
  GroupedShape best_;
  bool found_ = false;
};

void offer_codebook(const GroupedMatrix& m, Chooser& chooser) {
  if (m.bits != 4) return;
  if (is_e2m1(m.codebook)) {
    chooser.offer<quant::MXFP4>(panel_type(QuantType::kMXFP4));
    if (chooser.found()) chooser.best().level_scale = 0.5f;
  }
  chooser.offer<panel::Levels<64>>(PanelType::kLevels64, 0, true);
  chooser.offer<panel::Levels<16>>(PanelType::kLevels16, 0, true);
}

void offer_symmetric(const GroupedMatrix& m, Chooser& chooser) {
  switch (m.bits) {
    case 4:
      chooser.offer<panel::Scaled<4, 8, 128>>(PanelType::kI4G128);
      chooser.offer<quant::Q4_0>(panel_type(QuantType::kQ4_0));
      chooser.offer<panel::Levels<16>>(PanelType::kLevels16);
      if (chooser.found()) {
        for (int c = 0; c < 16; ++c) chooser.best().levels[c] = static_cast<uint8_t>(c + 120);
      }
      break;
    case 5: chooser.offer<quant::Q5_0>(panel_type(QuantType::kQ5_0)); break;
    case 6:
    case 7:
    case 8: {
      const int offset = 128 - (1 << (m.bits - 1));
      chooser.offer<panel::Scaled<8, 128, panel::kWholeRow>>(PanelType::kI8Row, offset);
      chooser.offer<quant::Q8_0>(panel_type(QuantType::kQ8_0), offset);
      break;
    }
    default: break;
  }
}

void offer_zeros(const GroupedMatrix& m, Chooser& chooser) {
  if (m.bits <= 4 ? !zeros_fit(m, 0) : !zeros_fit(m, -(1 << (m.bits - 1)))) return;
  switch (m.bits) {
    case 2:
      chooser.offer<panel::WithZeros<2, 128>>(PanelType::kI2Z128);
      chooser.offer<panel::WithZeros<2, 32>>(PanelType::kI2Z32);
      break;
    case 3:
      chooser.offer<panel::WithZeros<3, 128>>(PanelType::kI3Z128);
      chooser.offer<panel::WithZeros<3, 32>>(PanelType::kI3Z32);
      break;
    case 4:
      chooser.offer<panel::WithZeros<4, 128>>(PanelType::kI4Z128);
      chooser.offer<panel::WithZeros<4, 32>>(PanelType::kI4Z32);
      break;
    default:
      chooser.offer<panel::WithZeros<8, 32>>(PanelType::kI8Z32, 128 - (1 << (m.bits - 1)));
      break;
  }
}

// --- Packing ---

struct Rows {
  const GroupedMatrix& from;
  const GroupedShape& shape;
  int first, n;          // rows of `from`; n <= 16
  const uint8_t* codes;  // [n, cols]
  uint8_t* panel;
  float* factors;  // [n]

  const float* scales(int r) const {
    return &from.scales[static_cast<size_t>(first + r) * from.n_groups()];
  }
};

float largest_scale(const Rows& rows, int r) {
  float largest = 0;
  for (int g = 0; g < rows.from.n_groups(); ++g)
    largest = std::max(largest, std::fabs(rows.scales(r)[g]));
  return largest;
}

template <class Q>
void store_scales(const Rows& rows, int r, float factor) {
  using L = PanelLayout<Q>;
  constexpr int kGroup = L::kWholeRow ? 1 : Q::kGroupSize;
  const GroupedMatrix& m = rows.from;
  for (int k = 0; k < m.cols; k += kGroup) {
    uint8_t* unit = rows.panel + static_cast<size_t>(k / L::kUnitK) * L::kUnitBytes;
    const int from = std::min(k / m.group_size, m.n_groups() - 1), to = k % L::kUnitK / kGroup;
    put_half(unit + L::kScales + 32 * to, r,
             rows.scales(r)[from] * (rows.shape.level_scale / factor));
    if constexpr (L::kZeros) {
      const int zero = m.zeros.empty()
                           ? m.uniform_zero
                           : m.zeros[static_cast<size_t>(rows.first + r) * m.n_groups() + from];
      unit[L::kOffsets + 16 * to + r] =
          static_cast<uint8_t>(zero + rows.shape.code_offset - L::kBias);
    }
  }
}

template <class Q>
void pack_codes(const Rows& rows) {
  using L = PanelLayout<Q>;
  const int cols = rows.from.cols;
  for (int r = 0; r < rows.n; ++r) {
    const uint8_t* codes = rows.codes + static_cast<size_t>(r) * cols;
    for (int k = 0; k < cols; k += 32) {
      uint8_t* unit = rows.panel + static_cast<size_t>(k / L::kUnitK) * L::kUnitBytes;
      uint8_t step[32] = {};
      for (int i = 0; i < 32 && k + i < cols; ++i) {
        step[i] = static_cast<uint8_t>(codes[k + i] + rows.shape.code_offset);
      }
      store_codes<Q>(unit + k % L::kUnitK / 32 * L::kStepBytes, r, step);
    }
    if constexpr (L::kWholeRow) {
      rows.factors[r] = rows.scales(r)[0];
    } else {
      rows.factors[r] = power_for_half(largest_scale(rows, r) * rows.shape.level_scale);
      store_scales<Q>(rows, r, rows.factors[r]);
    }
  }
}

void pack_f8(const Rows& rows) {
  for (int r = 0; r < rows.n; ++r) {
    const uint8_t* codes = rows.codes + static_cast<size_t>(r) * rows.from.cols;
    for (int k = 0; k < rows.from.cols; ++k) rows.panel[16 * k + r] = codes[k];
    rows.factors[r] = rows.scales(r)[0] * 0x1p8f;
  }
}

void pack_f8_groups(const Rows& rows) {
  using Q = panel::F8Groups;
  const GroupedMatrix& m = rows.from;
  for (int r = 0; r < rows.n; ++r) {
    const uint8_t* codes = rows.codes + static_cast<size_t>(r) * m.cols;
    for (int k = 0; k < m.cols; ++k) {
      uint8_t* unit = rows.panel + static_cast<size_t>(k / Q::kUnitK) * Q::kUnitBytes;
      unit[16 * (k % Q::kUnitK) + r] = codes[k];
      const float scale = rows.scales(r)[k / m.group_size] * 0x1p8f;
      if (k % Q::kUnitK == 0) std::memcpy(unit + Q::kScales + 4 * r, &scale, sizeof scale);
    }
  }
}

void pack_decoded(const Rows& rows) {
  std::vector<float> row(static_cast<size_t>(rows.from.cols));
  for (int r = 0; r < rows.n; ++r) {
    rows.from.dequantize(rows.first + r, 1, row.data());
    float largest = 0;
    for (const float x : row) largest = std::max(largest, std::fabs(x));
    const float factor = power_for_half(largest);
    for (int k = 0; k < rows.from.cols; ++k) {
      put_half(rows.panel + 32 * static_cast<size_t>(k), r, row[static_cast<size_t>(k)] / factor);
    }
    rows.factors[r] = factor;
  }
}

}  // namespace

GroupedShape grouped_shape(const GroupedMatrix& m) {
  Chooser chooser(m);
  const bool ternary = m.codebook.empty() && m.bits == 2 && m.zeros.empty() && m.uniform_zero == 1;
  if (ternary) chooser.offer<panel::Scaled<2, 1, panel::kWholeRow>>(PanelType::kTernaryRow);
  if (!m.codebook.empty()) {
    offer_codebook(m, chooser);
  } else if (m.is_symmetric()) {
    offer_symmetric(m, chooser);
  }
  if (m.codebook.empty() && !chooser.found()) offer_zeros(m, chooser);
  if (chooser.found()) return chooser.best();
  GroupedShape shape;
  const int padded = round_up(m.cols, 32);
  if (m.n_groups() > 1 && groups_fit(m, panel::F8Groups::kUnitK) && is_f8(m)) {
    const PanelSize size = panel_size(PanelType::kF8G64, m.cols);
    shape.panels = {PanelType::kF8G64, size.padded_cols, size.bytes, true};
  } else if (m.n_groups() == 1 && is_f8(m)) {
    shape.panels = {PanelType::kF8Row, padded, static_cast<size_t>(padded) * 16, true};
  } else {
    shape.panels = {panel_type(QuantType::kF16), padded, static_cast<size_t>(padded) * 32, true};
    shape.decoded = true;
  }
  return shape;
}

void pack_grouped(const GroupedMatrix& from, int first_row, const GroupedShape& shape,
                  const PanelMatrix& to, float* row_scales, int panel_begin, int panel_end) {
  std::vector<uint8_t> codes(shape.decoded ? 0 : static_cast<size_t>(from.cols) * kPanelRows);
  for (int panel = panel_begin; panel < panel_end; ++panel) {
    const int first = panel * kPanelRows, n = std::min(kPanelRows, to.rows - first);
    uint8_t* bytes = const_cast<uint8_t*>(to.data) + static_cast<size_t>(panel) * to.panel_bytes;
    std::fill_n(bytes, to.panel_bytes, uint8_t{0});
    std::fill_n(row_scales + first, kPanelRows, 1.0f);
    const Rows rows{from, shape, first_row + first, n, codes.data(), bytes, row_scales + first};
    if (shape.decoded) {
      pack_decoded(rows);
      continue;
    }
    from.codes(rows.first, n, codes.data());
    panel::visit(to.type, [&](auto q) {
      using Q = decltype(q);
      if constexpr (std::is_same_v<Q, panel::F8Row>) {
        pack_f8(rows);
      } else if constexpr (std::is_same_v<Q, panel::F8Groups>) {
        pack_f8_groups(rows);
      } else if constexpr (panel::Codes<Q>) {
        if constexpr (!Q::kHasSuperScales) pack_codes<Q>(rows);
      }
    });
  }
}

}  // namespace penstock
