#include "model/load/ternary.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

// Packs {-1, 0, 1} * scale in 2 bits, for activations with one scale per token. packed: codes, of
// which 0 means -1.
GroupedMatrix ternary_matrix(int rows, int cols, float scale, CodeLayout layout,
                             std::span<const std::byte> packed) {
  GroupedMatrix m;
  m.rows = rows, m.cols = m.group_size = cols, m.bits = 2, m.uniform_zero = 1;
  m.scales.assign(static_cast<size_t>(rows), scale);
  m.activations.kind = ActivationCoding::Kind::kInt8PerToken;
  m.layout = layout;
  m.packed = packed;
  return m;
}

void store_ternary(std::span<const uint8_t> codes, int rows, int cols, float scale,
                   FileMatrix& out) {
  const size_t row_bytes = (static_cast<size_t>(cols) + 15) / 16 * 4;
  out.storage.assign(static_cast<size_t>(rows) * row_bytes, std::byte{});
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      out.storage[static_cast<size_t>(r) * row_bytes + static_cast<size_t>(c / 4)] |=
          static_cast<std::byte>(codes[static_cast<size_t>(r) * cols + c] << (c % 4 * 2));
    }
  }
  out.grouped = ternary_matrix(rows, cols, scale, CodeLayout::kWordsByRow, out.storage);
}

}  // namespace

Status make_ternary(const std::string& where, FileMatrix& out) {
  const QuantizedMatrix& view = out.view;
  std::vector<float> values(static_cast<size_t>(view.rows) * view.cols);
  dequantize_row(view.type, view.bytes.data(), values.data(), static_cast<int64_t>(values.size()));
  double sum = 0;
  for (const float value : values) sum += std::abs(value);
  if (!std::isfinite(sum)) {
    return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected finite numbers", where,
                  out.tensor->name);
  }
  const float scale =
      1.0f / std::max(static_cast<float>(sum / static_cast<double>(values.size())), 1e-5f);
  std::vector<uint8_t> codes;
  codes.reserve(values.size());
  for (const float value : values) {
    codes.push_back(
        static_cast<uint8_t>(std::clamp(std::nearbyint(value * scale), -1.0f, 1.0f) + 1));
  }
  store_ternary(codes, view.rows, view.cols, 1.0f / scale, out);
  return {};
}

void unpack_codes(int rows, int cols, float scale, FileMatrix& out) {
  if (rows % 4 == 0) {
    out.grouped =
        ternary_matrix(rows, cols, scale, CodeLayout::kCrumbsAcrossRows, out.tensor->bytes);
    return;
  }
  const int64_t n_bytes = (rows + 3) / 4;  // per column
  std::vector<uint8_t> codes;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const auto byte =
          static_cast<uint8_t>(out.tensor->bytes[static_cast<size_t>(r % n_bytes * cols + c)]);
      codes.push_back(byte >> (2 * (r / n_bytes)) & 3);
    }
  }
  store_ternary(codes, rows, cols, scale, out);
}

}  // namespace penstock
