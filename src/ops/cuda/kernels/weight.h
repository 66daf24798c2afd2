// Weights as they lie on the device, and one element of them.
//
// Codes lie as fragments of mma A, so that one packing serves any number of rows. Output rows are
// M: a tile is 16 of them, a unit 64 inputs of a tile. With g = lane / 4 and t = lane % 4, register
// i of k step s (16 inputs) of a lane is two codes, of row g + 8 (i & 1) and the inputs 16 s + 8 (i
// >> 1) + 2 t and + 1, in the lower and in the upper half of a word. A unit has
//   a plane of 4 bits, 4 words per lane: word s, shifted by 4 i and masked with 0x000f000f;
//   a plane of 2 bits, 2 words per lane: word s / 2, shifted by 8 (s % 2) + 2 i, masked with
//   0x00030003; a plane of 1 bit, 1 word per lane: shifted by 4 s + i, masked with 0x00010001;
// of 8 bits = 4 + 4, 6 = 4 + 2, 5 = 4 + 1, 4, 3 = 2 + 1, 2, 1 those that it needs, the lowest bits
// first; then its scales, in the order [g][row g, row g + 8][group], and behind all scales offsets,
// zeros or sub-mins, if any. A tile is its units one after the other, behind which are FP16 factors
// of 256 inputs and a row each ([256 inputs][row][1 or 2]) where scales are whole numbers. Rows are
// padded to 16, inputs to 64 (256 where there are such factors). Floats lie row by row, padded the
// same way.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/cuda/kernels/launch.h"

namespace penstock::cuda {

enum class WeightForm : uint8_t { kF32, kF16, kBF16, kCodes };
enum class ScaleForm : uint8_t { kHalf, kFloat, kSuper };

struct WeightOnDevice {
  static constexpr int kTileRows = 16, kUnitCols = 64, kSuperCols = 256;

  const std::byte* data = nullptr;
  const float* levels = nullptr;  // [1 << bits] value of each code
  // [cols] column k multiplies input order[k]; null: input k
  const int32_t* input_order = nullptr;
  int rows = 0, cols = 0, padded_cols = 0;
  WeightForm form = WeightForm::kF32;
  // Codes: value = scale * level + offset, or scale * (level - zero).
  ScaleForm scales = ScaleForm::kHalf;
  bool offsets = false, zeros = false;
  // group: number of inputs with one scale: 16, 32 or 64
  int bits = 0, group = 0;
  float unit = 1.0f;  // factor of super scales
  // Whether levels are consecutive integers (of 8 bits, with a first level that is a multiple of
  // 16), which kernels compute without the table.
  bool in_steps = false;
  // Whether levels are doubled numbers of E2M1 in the order of their bits (MXFP4).
  bool is_e2m1 = false;
  float first_level = 0.0f;
  int unit_bytes = 0;
  int64_t tile_bytes = 0;

  PENSTOCK_DEVICE int n_units() const { return padded_cols / kUnitCols; }
  PENSTOCK_DEVICE int groups_per_unit() const { return kUnitCols / group; }
  PENSTOCK_DEVICE int code_bytes() const { return bits * kTileRows * kUnitCols / 8; }
  PENSTOCK_DEVICE int scale_bytes() const {
    return scales == ScaleForm::kSuper ? 1 : scales == ScaleForm::kHalf ? 2 : 4;
  }
  PENSTOCK_DEVICE int extra_bytes() const {
    return scales == ScaleForm::kSuper ? 1 : 2;
  }  // of an offset or a zero
  PENSTOCK_DEVICE const std::byte* unit_at(int tile, int unit_index) const {
    return data + tile * tile_bytes + static_cast<int64_t>(unit_index) * unit_bytes;
  }
  // Super scales (integers) have FP16 factors.
  PENSTOCK_DEVICE int factor_bytes() const {  // per 256 inputs
    return scales == ScaleForm::kSuper ? kTileRows * (offsets ? 4 : 2) : 0;
  }
  PENSTOCK_DEVICE const std::byte* factors_of(int tile, int unit_index) const {
    return unit_at(tile, n_units()) + unit_index / 4 * factor_bytes();
  }
};

// Codings for which streaming kernels are compiled (kernels/weight_stream.h, wide_product.h), by
// bits and group: those of most files.
enum class StreamCoding : uint8_t {
  kNone,
  kBF16,
  kF16,         // WideProduct only
  kHalf8,       // 8 bits, 32 inputs per scale: Q8_0
  kHalf4,       // 4 bits, 32 inputs per scale: Q4_0
  kWide4,       // 4 bits, 64 inputs per scale: GPTQ
  kWide4Zeros,  // with zeros: AWQ
  kSuper4,      // 4 bits, 32 inputs, integer scales and offsets: Q4_K
  kSuper5,      // Q5_K
  kSuper6,      // 6 bits, 16 inputs, integer scales: Q6_K
  kE2M1,        // doubled numbers of E2M1, 32 inputs, F32 scales: MXFP4; WideProduct takes kNone
};
PENSTOCK_DEVICE StreamCoding stream_coding(const WeightOnDevice& w) {
  using enum StreamCoding;
  if (w.form == WeightForm::kBF16) return kBF16;
  if (w.form == WeightForm::kF16) return kF16;
  if (w.is_e2m1 && w.scales == ScaleForm::kFloat && w.group == 32 && !w.offsets && !w.zeros)
    return kE2M1;
  if (w.form != WeightForm::kCodes || !w.in_steps || w.scales == ScaleForm::kFloat) return kNone;
  if (w.scales == ScaleForm::kSuper) {
    if (w.group == 16) return w.bits == 6 && !w.offsets ? kSuper6 : kNone;
    if (w.group != 32 || !w.offsets) return kNone;
    return w.bits == 4 ? kSuper4 : w.bits == 5 ? kSuper5 : kNone;
  }
  if (w.offsets || (w.zeros && w.first_level != 0.0f)) return kNone;
  if (w.group == 64) return w.bits != 4 ? kNone : w.zeros ? kWide4Zeros : kWide4;
  if (w.group != 32 || w.zeros) return kNone;
  return w.bits == 8 ? kHalf8 : w.bits == 4 ? kHalf4 : kNone;
}

// Position of a code's bits in a plane of `plane_bits` bits: the word in the plane, and the shift
// in the word.
struct CodePlace {
  int word, shift;
};
PENSTOCK_DEVICE CodePlace code_place(int plane_bits, int row, int k) {
  const int g = row % 8, t = k % 8 / 2, lane = 4 * g + t, i = row / 8 + 2 * (k % 16 / 8),
            s = k / 16;
  const int high = k % 2 * 16;
  if (plane_bits == 4) return {lane * 4 + s, 4 * i + high};
  if (plane_bits == 2) return {lane * 2 + s / 2, 8 * (s % 2) + 2 * i + high};
  return {lane, 4 * s + i + high};
}
// Returns the bits of the next plane, after planes with `done` of a code's `bits` bits.
PENSTOCK_DEVICE int plane_bits(int bits, int done) {
  const int left = bits - done;
  return left >= 4 ? 4 : left >= 2 ? 2 : left;
}
// Returns the index of a scale in its unit.
PENSTOCK_DEVICE int scale_place(int groups, int row, int group) {
  return (row % 8 * 2 + row / 8) * groups + group;
}

}  // namespace penstock::cuda
