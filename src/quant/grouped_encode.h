// Encoding of weights as small codes with a scale (and zero point) per group of inputs; the inverse
// of GroupedMatrix.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "quant/grouped_matrix.h"
#include "quant/quant_type.h"

namespace penstock {

// Parameters of the codes of a matrix.
struct GroupCoding {
  int bits = 4;           // 2 to 8
  int group_size = 128;   // inputs that share a scale; 0: a whole row
  bool symmetric = true;  // the zero point is always 2^(bits - 1)
  // level of each code, in any order; empty: integers
  std::vector<float> codebook;
  // type to which scales are rounded before codes are chosen
  QuantType scale_type = QuantType::kF16;
  // least zero point of asymmetric codes; 1 for files that store zero - 1
  int lowest_zero = 0;

  int group_of(int cols) const { return group_size > 0 ? group_size : cols; }
  int top() const { return (1 << bits) - 1; }
};

// Levels of NF4 and FP4 in the order of bitsandbytes (16 each), and of E4M3 (256).
std::span<const float> nf4_levels();
std::span<const float> fp4_levels();
std::vector<float> f8e4m3_levels();

struct GroupScale {
  float scale = 1.0f;
  int zero = 0;
};

// Codes of a whole matrix, inputs in their original order.
struct GroupedCodes {
  int rows = 0, cols = 0;
  GroupCoding coding;
  std::vector<uint8_t> codes;      // [rows, cols]
  std::vector<GroupScale> scales;  // [rows, n_groups()]
  // [cols], or empty: the group of input j is j / group_size
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

// Returns scale and zero point of a group from its extremes (round to nearest). weights: importance
// of each element's squared error, or null. search: also tries ranges that are smaller in steps,
// and takes the one of least error.
GroupScale fit_group(const GroupCoding& coding, const float* x, const float* weights, int n,
                     bool search);

inline float decode_level(const GroupCoding& coding, const GroupScale& scale, uint8_t code) {
  const float level = coding.codebook.empty()
                          ? static_cast<float>(static_cast<int>(code) - scale.zero)
                          : coding.codebook[code];
  return scale.scale * level;
}
// Returns the code whose value is nearest.
uint8_t nearest_code(const GroupCoding& coding, const GroupScale& scale, float value);

// Rounds one row to nearest. importance: [cols], or null: all errors count alike.
void encode_grouped_row(const GroupCoding& coding, const float* x, const float* importance,
                        int cols, bool search, uint8_t* codes, GroupScale* scales);

// Packs codes for a file of this layout. REQUIRES: the shape passes GroupedMatrix::check() for the
// layout.
std::vector<std::byte> pack_codes(CodeLayout layout, std::span<const uint8_t> codes, int rows,
                                  int cols, int bits);

}  // namespace penstock
