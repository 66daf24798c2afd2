// Weights to small codes with a scale (and zero point) per group of inputs: the way back of
// GroupedMatrix.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "quant/grouped_matrix.h"
#include "quant/quant_type.h"

namespace penstock {

// How the codes of a matrix are made.
struct GroupCoding {
  int bits = 4;           // 2 to 8
  int group_size = 128;   // inputs that share a scale; 0 = all of a row
  bool symmetric = true;  // zero point 2^(bits - 1) everywhere
  // levels of the codes, ascending magnitude irrelevant; empty: whole numbers
  std::vector<float> codebook;
  // scales are rounded to it before codes are chosen
  QuantType scale_type = QuantType::kF16;
  // of asymmetric codes; 1 for files that store zero - 1
  int lowest_zero = 0;

  int group_of(int cols) const { return group_size > 0 ? group_size : cols; }
  int top() const { return (1 << bits) - 1; }
};

// The 16 levels of NF4 and FP4 as bitsandbytes stores them; all 256 of E4M3.
std::span<const float> nf4_levels();
std::span<const float> fp4_levels();
std::vector<float> f8e4m3_levels();

struct GroupScale {
  float scale = 1.0f;
  int zero = 0;
};

// Codes of a whole matrix, inputs in their own order.
struct GroupedCodes {
  int rows = 0, cols = 0;
  GroupCoding coding;
  std::vector<uint8_t> codes;      // [rows, cols]
  std::vector<GroupScale> scales;  // [rows, n_groups()]
  // [cols], or empty: input j is in group j / group_size
  std::vector<int32_t> group_of_input;

  int n_groups() const { return cols / coding.group_of(cols); }
  int group(int input) const {
    return group_of_input.empty() ? input / coding.group_of(cols)
                                  : group_of_input[static_cast<size_t>(input)];
  }
  const GroupScale& scale(int row, int input) const {
    return scales[static_cast<size_t>(row) * static_cast<size_t>(n_groups()) +
                  static_cast<size_t>(group(input))];
  }
  void dequantize_row(int row, float* out) const;
};

// Scale and zero point of one group by its extremes: round to nearest. weights (may be null) is the
// importance of each element's squared error; with `search` the extremes are also shrunk in steps
// to where that error is least.
GroupScale fit_group(const GroupCoding& coding, const float* x, const float* weights, int n,
                     bool search);

inline float decode_level(const GroupCoding& coding, const GroupScale& scale, uint8_t code) {
  const float level = coding.codebook.empty()
                          ? static_cast<float>(static_cast<int>(code) - scale.zero)
                          : coding.codebook[code];
  return scale.scale * level;
}
// The code whose value is nearest.
uint8_t nearest_code(const GroupCoding& coding, const GroupScale& scale, float value);

// Round to nearest of one row; importance: [cols] or null (then the extremes decide).
void encode_grouped_row(const GroupCoding& coding, const float* x, const float* importance,
                        int cols, bool search, uint8_t* codes, GroupScale* scales);

// The codes as a file of this layout has them. REQUIRES: what GroupedMatrix::check() asks of the
// layout.
std::vector<std::byte> pack_codes(CodeLayout layout, std::span<const uint8_t> codes, int rows,
                                  int cols, int bits);

}  // namespace penstock
