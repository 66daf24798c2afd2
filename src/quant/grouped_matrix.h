// A linear layer's weight as other quantizers store it: small codes, and a scale (and zero point)
// per group of inputs.
//
//   value[row][input_order[j]] = scales[row][j / group_size] * (level(code[row][j]) - zero[row][j /
//   group_size])
//
// Codes stay in the file as they lie there; CodeLayout says how. Packers take codes, scales and
// zeros from here and need to know nothing of the layout. Act-order is a permutation of the inputs:
// the codes come in an order in which the groups are contiguous, and whoever multiplies permutes
// the activations once.
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
  kNibblesLowFirst,  // [rows, cols / 2] bytes, the even column in the low half
  // [ceil(rows * cols / 2)] bytes, row after row, the first of two codes in the high half
  kNibblesHighFirst,
  // [rows, ceil(cols / (32 / bits))] int32, lowest bits first, no code across words
  kWordsByRow,
  // [cols * bits / 32, rows] int32: column by column of words a stream of bits, lowest first
  kStreamByColumn,
  kAwq,  // [cols, rows / 8] int32: eight rows in a word, in the order 0 2 4 6 1 3 5 7
  // [rows / 4, cols] bytes: row r in bits 2 * (r / (rows / 4)) of byte row r % (rows / 4)
  kCrumbsAcrossRows,
  kNvfp4Blocks,  // [rows, cols / 64] blocks of quant::NVFP4, whose scales are not looked at
};
// where row 8 * i + j lies in word i
inline constexpr int kAwqShift[8] = {0, 16, 4, 20, 8, 24, 12, 28};

// How the activations of a layer are rounded before the product, when the checkpoint was made for
// that.
struct ActivationCoding {
  enum class Kind : uint8_t { kNone, kInt8PerToken, kInt8Static, kF8E4M3PerToken, kF8E4M3Static };
  Kind kind = Kind::kNone;
  float static_scale = 0;  // of the static kinds: value = scale * code
  // > 0: inputs with an activation beyond it stay in floating point (LLM.int8)
  float outlier_threshold = 0;
};

struct GroupedMatrix {
  int rows = 0;                 // outputs
  int cols = 0;                 // inputs
  int bits = 0;                 // of a code, 2 to 8
  int group_size = 0;           // inputs that share a scale; divides cols
  std::vector<float> codebook;  // level of each code; empty: level = code
  std::vector<float> scales;    // [rows, n_groups()]
  // [rows, n_groups()], or empty: uniform_zero everywhere
  std::vector<int16_t> zeros;
  int16_t uniform_zero = 0;
  std::vector<int32_t> input_order;  // [cols], or empty: as they are
  ActivationCoding activations;
  CodeLayout layout = CodeLayout::kBytes;
  std::span<const std::byte> packed;  // belongs to the weight source

  int n_groups() const { return cols / group_size; }
  bool is_symmetric() const {
    return codebook.empty() && zeros.empty() && uniform_zero == 1 << (bits - 1);
  }

  // Bytes that `packed` must have for the layout.
  static uint64_t packed_bytes(CodeLayout layout, int64_t rows, int64_t cols, int bits);
  // Errors: kCorruptFile when sizes do not agree or the order is no permutation; `where` names the
  // layer.
  Status check(const std::string& where) const;
  // Where the codes of rows, or of inputs, [first, first + count) lie, with those that share their
  // bytes.
  ByteLines lines_of_rows(int first, int count) const;
  ByteLines lines_of_inputs(int first, int count) const;
  // Inputs [first, first + count); where their codes lie apart, with copies in `storage`. Reads no
  // others where these begin and end with a unit of the layout. REQUIRES: no input_order; whole
  // groups, or one group of all inputs.
  GroupedMatrix columns(int first, int count, std::vector<std::byte>& storage) const;
  void copy_codes(int first, int count, GroupedMatrix& part, std::vector<std::byte>& storage) const;
  // Row r is row order[r] of this one; its codes, in kWordsByRow, are in `storage`.
  GroupedMatrix ordered(std::span<const int> order, std::vector<std::byte>& storage) const;
  // Moves equal zeros into uniform_zero.
  void simplify_zeros();

  // Codes of rows [first_row, first_row + n_rows), row after row, inputs in input_order.
  void codes(int first_row, int n_rows, uint8_t* out) const;
  // Values of the same rows, inputs in their own order.
  void dequantize(int first_row, int n_rows, float* out) const;
};

}  // namespace penstock
