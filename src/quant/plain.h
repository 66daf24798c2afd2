// Plain elements: floats of 8 to 64 bits, integers, booleans.
#pragma once
#include "quant/block.h"

namespace penstock::quant {

// E4M3: no infinities, NaN is 0x7f and 0xff, the largest value is 448.
float decode_f8e4m3(uint8_t bits);
float decode_f8e5m2(uint8_t bits);  // E5M2, like IEEE formats
// Round to nearest even; values beyond the largest finite one saturate, NaN stays NaN.
uint8_t encode_f8e4m3(float value);
uint8_t encode_f8e5m2(float value);

template <class T, QuantType Type, int GgmlId>
struct PlainNumber {
  static constexpr QuantType kType = Type;
  static constexpr int kGgmlId = GgmlId;
  static constexpr int kBlockSize = 1;
  struct Block {
    T value;
  };
  static void decode(const Block& block, float* out) { *out = static_cast<float>(block.value); }
};

struct F32 : PlainNumber<float, QuantType::kF32, 0> {
  static constexpr std::string_view kName = "f32";
  static constexpr int kFtype = 0;
  static void encode(const float* in, const float*, Block& block) { block.value = *in; }
};
struct F16 : PlainNumber<Half, QuantType::kF16, 1> {
  static constexpr std::string_view kName = "f16";
  static constexpr int kFtype = 1;
  static void decode(const Block& block, float* out) { *out = to_float(block.value); }
  static void encode(const float* in, const float*, Block& block) { block.value = to_half(*in); }
};
struct BF16 : PlainNumber<BFloat16, QuantType::kBF16, 30> {
  static constexpr std::string_view kName = "bf16";
  static constexpr int kFtype = 32;
  static void decode(const Block& block, float* out) { *out = to_float(block.value); }
  static void encode(const float* in, const float*, Block& block) {
    block.value = to_bfloat16(*in);
  }
};
struct I8 : PlainNumber<int8_t, QuantType::kI8, 24> {
  static constexpr std::string_view kName = "i8";
};
struct I16 : PlainNumber<int16_t, QuantType::kI16, 25> {
  static constexpr std::string_view kName = "i16";
};
struct I32 : PlainNumber<int32_t, QuantType::kI32, 26> {
  static constexpr std::string_view kName = "i32";
};
struct I64 : PlainNumber<int64_t, QuantType::kI64, 27> {
  static constexpr std::string_view kName = "i64";
};
struct F64 : PlainNumber<double, QuantType::kF64, 28> {
  static constexpr std::string_view kName = "f64";
};
struct U8 : PlainNumber<uint8_t, QuantType::kU8, -1> {
  static constexpr std::string_view kName = "u8";
};
struct Bool : PlainNumber<uint8_t, QuantType::kBool, -1> {
  static constexpr std::string_view kName = "bool";
  static void decode(const Block& block, float* out) { *out = block.value != 0 ? 1.0f : 0.0f; }
};
struct F8E4M3 : PlainNumber<uint8_t, QuantType::kF8E4M3, -1> {
  static constexpr std::string_view kName = "f8_e4m3";
  static void decode(const Block& block, float* out) { *out = decode_f8e4m3(block.value); }
  static void encode(const float* in, const float*, Block& block) {
    block.value = encode_f8e4m3(*in);
  }
};
struct F8E5M2 : PlainNumber<uint8_t, QuantType::kF8E5M2, -1> {
  static constexpr std::string_view kName = "f8_e5m2";
  static void decode(const Block& block, float* out) { *out = decode_f8e5m2(block.value); }
  static void encode(const float* in, const float*, Block& block) {
    block.value = encode_f8e5m2(*in);
  }
};

}  // namespace penstock::quant
