// A linear layer's weight in the formats of other quantizers: small codes, and a scale (and zero
// point) per group of inputs.
//
//   value[row][input_order[j]] = scales[row][j / group_size] * (level(code[row][j]) - zero[row][j /
//   group_size])
//
// Codes stay in the file in its layout (CodeLayout). Packers read codes, scales and
// zeros here and need not know the layout. Act-order is a permutation of the inputs:
// codes are in an order in which groups are contiguous, and products permute the
// activations once.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/byte_lines.h"
#include "base/result.h"

namespace penstock {

enum class CodeLayout : uint8_t {
  kBytes,            // [rows, cols] bytes
  kSignedBytes,      // [rows, cols] int8: code = value + 128
  kNibblesLowFirst,  // [rows, cols / 2] bytes, even columns in low nibbles
  // [ceil(rows * cols / 2)] bytes, row after row, the first of two codes in the high nibble
  kNibblesHighFirst,
  // [rows, ceil(cols / (32 / bits))] int32, lowest bits first, no code across words
  kWordsByRow,
  // [cols * bits / 32, rows] int32: each column of words is a stream of bits, lowest first
  kStreamByColumn,
  kAwq,  // [cols, rows / 8] int32: eight rows per word, in the order 0 2 4 6 1 3 5 7
  // [rows / 4, cols] bytes: row r in bits 2 * (r / (rows / 4)) of byte row r % (rows / 4)
  kCrumbsAcrossRows,
  kNvfp4Blocks,  // [rows, cols / 64] blocks of quant::NVFP4, whose scales are ignored
};
// bit position of row 8 * i + j in word i
inline constexpr int kAwqShift[8] = {0, 16, 4, 20, 8, 24, 12, 28};

// Rounding of a layer's activations before the product, for checkpoints made for
// it.
struct ActivationCoding {
  enum class Kind : uint8_t { kNone, kInt8PerToken, kInt8Static, kF8E4M3PerToken, kF8E4M3Static };
  Kind kind = Kind::kNone;
  float static_scale = 0;  // static kinds: value = scale * code
  // > 0: inputs with an activation beyond it stay in floating point (LLM.int8)
  float outlier_threshold = 0;
};

struct GroupedMatrix {
  int rows = 0;                 // outputs
  int cols = 0;                 // inputs
  int bits = 0;                 // bits per code, 2 to 8
  int group_size = 0;           // inputs that share a scale; divides cols
  std::vector<float> codebook;  // level of each code; empty: level = code
  std::vector<float> scales;    // [rows, n_groups()]
  // [rows, n_groups()], or empty: uniform_zero everywhere
  std::vector<int16_t> zeros;
  int16_t uniform_zero = 0;
  std::vector<int32_t> input_order;  // [cols], or empty: original order
  ActivationCoding activations;
  CodeLayout layout = CodeLayout::kBytes;
  std::span<const std::byte> packed;  // belongs to the weight source

  int n_groups() const { return cols / group_size; }
  bool is_symmetric() const {
    return codebook.empty() && zeros.empty() && uniform_zero == 1 << (bits - 1);
  }

  // Returns the size in bytes of `packed` for the layout.
  static uint64_t packed_bytes(CodeLayout layout, int64_t rows, int64_t cols, int bits);
  // Errors: kCorruptFile if sizes disagree or input_order is no permutation; `where` names the
  // layer.
  Status check(const std::string& where) const;
  // Returns the location of the codes of rows, or of inputs, [first, first + count), including
  // codes that share their bytes.
  ByteLines lines_of_rows(int first, int count) const;
  ByteLines lines_of_inputs(int first, int count) const;
  // Returns inputs [first, first + count); if their codes are not contiguous, `storage` holds
  // copies. Reads no other codes if the range begins and ends with a unit of the layout. REQUIRES:
  // no input_order; whole groups, or one group of all inputs.
  GroupedMatrix columns(int first, int count, std::vector<std::byte>& storage) const;
  void copy_codes(int first, int count, GroupedMatrix& part, std::vector<std::byte>& storage) const;
  // Returns the rows order[r] as rows r; `storage` holds the codes (kWordsByRow).
  GroupedMatrix ordered(std::span<const int> order, std::vector<std::byte>& storage) const;
  // Replaces equal zeros by uniform_zero.
  void simplify_zeros();

  // Writes codes of rows [first_row, first_row + n_rows), row after row, inputs in input_order.
  void codes(int first_row, int n_rows, uint8_t* out) const;
  // Writes values of these rows, inputs in their original order.
  void dequantize(int first_row, int n_rows, float* out) const;
};

}  // namespace penstock
