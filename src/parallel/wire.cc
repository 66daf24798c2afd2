#include "parallel/wire.h"

#include <cstring>

#include "base/half.h"

namespace penstock {
namespace {

uint16_t* halves(std::byte* bytes) { return reinterpret_cast<uint16_t*>(bytes); }
const uint16_t* halves(const std::byte* bytes) { return reinterpret_cast<const uint16_t*>(bytes); }

// out += part. Data of another CPU arrives by cache lines: vectors keep more of them in flight than
// single floats would.
void add(const float* __restrict part, float* __restrict out, size_t n) {
  typedef float Floats __attribute__((vector_size(32), aligned(4), may_alias));
  constexpr size_t kLine = 16, kEach = sizeof(Floats) / sizeof(float);
  size_t i = 0;
  for (; i + kLine <= n; i += kLine) {
    *reinterpret_cast<Floats*>(out + i) += *reinterpret_cast<const Floats*>(part + i);
    *reinterpret_cast<Floats*>(out + i + kEach) +=
        *reinterpret_cast<const Floats*>(part + i + kEach);
  }
  for (; i < n; ++i) out[i] += part[i];
}

}  // namespace

std::optional<WireType> wire_type(std::string_view name) {
  if (name == "f32") return WireType::kF32;
  if (name == "bf16") return WireType::kBf16;
  return std::nullopt;
}

void to_wire(std::span<const float> x, WireType type, std::byte* out) {
  if (x.empty()) return;
  if (type == WireType::kF32) {
    std::memcpy(out, x.data(), x.size_bytes());
    return;
  }
  uint16_t* __restrict to = halves(out);
  for (size_t i = 0; i < x.size(); ++i) to[i] = to_bfloat16(x[i]).bits;
}

void from_wire(const std::byte* in, WireType type, std::span<float> x) {
  if (x.empty()) return;
  if (type == WireType::kF32) {
    std::memcpy(x.data(), in, x.size_bytes());
    return;
  }
  const uint16_t* __restrict from = halves(in);
  for (size_t i = 0; i < x.size(); ++i) x[i] = to_float(BFloat16{from[i]});
}

void add_from_wire(const std::byte* in, WireType type, std::span<float> x) {
  float* const out = x.data();
  if (type == WireType::kF32) return add(reinterpret_cast<const float*>(in), out, x.size());
  const uint16_t* __restrict part = halves(in);
  for (size_t i = 0; i < x.size(); ++i) out[i] += to_float(BFloat16{part[i]});
}

void round_to_wire(WireType type, std::span<float> x) {
  if (type == WireType::kF32) return;
  for (float& value : x) value = to_float(to_bfloat16(value));
}

}  // namespace penstock
