// The type in which ranks exchange the terms of sums: F32, or BF16 in half the bytes.
//
// With BF16 every rank's term is rounded (to nearest even), including the rank's own; terms are
// added in F32 in the order of the ranks; and the sum is rounded when it is sent again. The bits do
// not depend on the algorithm. The error against F32 is at most 2^-7 of the sum of the terms'
// magnitudes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace penstock {

enum class WireType : uint8_t { kF32, kBf16 };

std::optional<WireType> wire_type(std::string_view name);  // "f32", "bf16"
constexpr size_t wire_bytes(WireType type) { return type == WireType::kF32 ? 4 : 2; }

// Convert between x and its encoding of x.size() * wire_bytes(type) bytes, which is aligned for its
// numbers; add_from_wire() adds to x.
void to_wire(std::span<const float> x, WireType type, std::byte* out);
void from_wire(const std::byte* in, WireType type, std::span<float> x);
void add_from_wire(const std::byte* in, WireType type, std::span<float> x);
// Rounds x as to_wire() and from_wire() do.
void round_to_wire(WireType type, std::span<float> x);

}  // namespace penstock
