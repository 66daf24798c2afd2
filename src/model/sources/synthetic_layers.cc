#include "model/sources/synthetic_layers.h"

#include <algorithm>
#include <random>

#include "quant/plain.h"

namespace penstock {
namespace {

using Kind = ActivationCoding::Kind;
using Levels = LayerCoding::Levels;
using enum QuantType;

constexpr LayerCoding kCodings[] = {
    {"int8", 8, 0, false, kQ8_0},
    {"w8a8", 8, 0, false, kQ8_0, Kind::kInt8PerToken},
    {"fp8", 8, 0, false, kQ8_0, Kind::kNone, Levels::kF8},
    {"int4", 4, 128, false, kQ6_K},
    {"int4-zeros", 4, 128, true, kQ6_K},
    {"int3", 3, 128, true, kQ6_K},
    {"int2", 2, 128, true, kQ6_K},
    {"nf4", 4, 64, false, kQ6_K, Kind::kNone, Levels::kNf4},
    {"ternary", 2, 0, false, kQ6_K, Kind::kInt8PerToken, Levels::kTernary},
};

// Quantiles of the normal distribution, the largest 1, with a zero.
constexpr float kNf4[16] = {-1.0f,        -0.69619280f, -0.52507305f, -0.39491749f,
                            -0.28444138f, -0.18477343f, -0.09105004f, 0.0f,
                            0.07958030f,  0.16093020f,  0.24611230f,  0.33791524f,
                            0.44070983f,  0.56261700f,  0.72295684f,  1.0f};

CodeLayout layout_of(const LayerCoding& coding) {
  return coding.bits == 8 ? CodeLayout::kBytes : CodeLayout::kWordsByRow;
}

}  // namespace

std::span<const LayerCoding> layer_codings() { return kCodings; }

const LayerCoding* find_layer_coding(std::string_view name) {
  const auto* found = std::ranges::find(kCodings, name, &LayerCoding::name);
  return found == std::end(kCodings) ? nullptr : found;
}

void SyntheticLayers::add(std::string name, int rows, int cols) {
  layers_.emplace(std::move(name), Size{rows, cols});
}

int SyntheticLayers::group_size(int cols) const {
  return coding_.group_size > 0 && cols % coding_.group_size == 0 ? coding_.group_size : cols;
}

void SyntheticLayers::fill() {
  uint64_t most = 0;
  for (const auto& [name, size] : layers_) {
    most = std::max(
        most, GroupedMatrix::packed_bytes(layout_of(coding_), size.rows, size.cols, coding_.bits));
  }
  codes_.resize(most);
  std::minstd_rand random(1);
  for (uint8_t& byte : codes_) {
    byte = static_cast<uint8_t>(random() >> 8);
    if (coding_.levels == Levels::kF8) byte = static_cast<uint8_t>((byte & 0x87) | 0x28);
    if (coding_.levels == Levels::kTernary) {  // 3 becomes 1
      byte = static_cast<uint8_t>(byte & ~((byte & byte >> 1 & 0x55) << 1));
    }
  }
}

Result<std::optional<GroupedMatrix>> SyntheticLayers::find_linear(std::string_view layer) const {
  const auto found = layers_.find(layer);
  if (found == layers_.end()) return std::nullopt;
  const auto [rows, cols] = found->second;
  GroupedMatrix m;
  m.rows = rows, m.cols = cols, m.bits = coding_.bits, m.group_size = group_size(cols);
  m.layout = layout_of(coding_);
  m.packed = std::as_bytes(std::span(codes_))
                 .first(GroupedMatrix::packed_bytes(m.layout, rows, cols, m.bits));
  m.activations.kind = coding_.activations;
  const size_t n = static_cast<size_t>(rows) * static_cast<size_t>(m.n_groups());
  float spread = 0.3f * static_cast<float>(1 << m.bits);  // of the levels
  m.uniform_zero = static_cast<int16_t>(1 << (m.bits - 1));
  if (coding_.levels == Levels::kTernary) m.uniform_zero = 1, spread = 0.8f;
  if (coding_.levels == Levels::kNf4)
    m.codebook.assign(kNf4, kNf4 + 16), m.uniform_zero = 0, spread = 0.5f;
  for (int c = 0; coding_.levels == Levels::kF8 && c < 256; ++c) {
    m.codebook.push_back(quant::decode_f8e4m3(static_cast<uint8_t>(c)));
    m.uniform_zero = 0, spread = 0.5f;
  }
  m.scales.assign(n, 0.02f / spread);
  if (coding_.zeros) {
    for (size_t i = 0; i < n; ++i)
      m.zeros.push_back(static_cast<int16_t>(m.uniform_zero - static_cast<int>(i % 2)));
  }
  RETURN_IF_ERROR(m.check(std::string(layer)));
  return m;
}

}  // namespace penstock
