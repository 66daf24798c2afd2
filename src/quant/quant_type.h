// Encodings of the elements of a weight, and their sizes in bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace penstock {

// Encoding of a tensor, in the order of THE list in all.h. Plain element types are encodings with
// blocks of one element.
enum class QuantType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI8,
  kI16,
  kI32,
  kI64,
  kF64,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kNVFP4,
  kQ1_0,
  kQ2_0,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
};

struct QuantTypeInfo {
  QuantType type;
  std::string_view name;  // "q4_k"
  int block_size;         // elements per block, along a row
  int block_bytes;
  int ggml_id;  // type number in a GGUF file, or -1
  // general.file_type of GGUF files whose matrices have it, or -1
  int ftype;
};

// Every known type, in enum order.
std::span<const QuantTypeInfo> quant_types();
const QuantTypeInfo& quant_info(QuantType type);
// Return null if no type has that name (case-insensitive) or GGUF number.
const QuantTypeInfo* find_quant_type(std::string_view name);
const QuantTypeInfo* find_ggml_type(uint32_t ggml_id);

// Bytes of n elements; n must be a multiple of the block size.
inline size_t quant_bytes(QuantType type, int64_t n) {
  const QuantTypeInfo& info = quant_info(type);
  return static_cast<size_t>(n / info.block_size) * static_cast<size_t>(info.block_bytes);
}

// A matrix in the layout of its file, rows of cols elements, or a part of one.
struct QuantizedMatrix {
  QuantType type = QuantType::kF32;
  int rows = 0;
  int cols = 0;
  std::span<const std::byte> bytes;  // [size_bytes()]
  // bytes between the starts of rows; 0: rows are adjacent
  size_t row_stride = 0;

  size_t row_bytes() const { return quant_bytes(type, cols); }
  size_t stride() const { return row_stride != 0 ? row_stride : row_bytes(); }
  size_t size_bytes() const {
    return rows > 0 ? stride() * static_cast<size_t>(rows - 1) + row_bytes() : 0;
  }
  // Rows [first, first + count).
  QuantizedMatrix row_range(int first, int count) const {
    QuantizedMatrix part = *this;
    part.rows = count;
    part.bytes = bytes.subspan(static_cast<size_t>(first) * stride(), part.size_bytes());
    return part;
  }
  // Columns [first, first + count) of all rows. REQUIRES: both are multiples of the type's block.
  QuantizedMatrix column_range(int first, int count) const {
    QuantizedMatrix part = *this;
    part.cols = count;
    part.row_stride = stride();
    part.bytes = bytes.subspan(quant_bytes(type, first), part.size_bytes());
    return part;
  }
};

// Convert n elements to floats and back: the scalar specification of every encoding. REQUIRES: n is
// a multiple of the block size.
void dequantize_row(QuantType type, const std::byte* in, float* out, int64_t n);
// Rounds to nearest. importance: weights of the n squared errors, or null. REQUIRES:
// can_quantize(type).
void quantize_row(QuantType type, const float* in, std::byte* out, int64_t n,
                  const float* importance = nullptr);
bool can_quantize(QuantType type);

}  // namespace penstock
