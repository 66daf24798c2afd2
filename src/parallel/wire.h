// What numbers of a sum are between ranks: F32, or BF16, which are half the bytes.
//
// In BF16 every rank's share is rounded (to nearest even), its own too, the shares are added in F32 in the order of the ranks, and the sum is
// rounded where it goes over the wire again: whatever the way, the bits are the same. Against F32 a sum is off by at most
// 2^-7 of the shares' magnitudes together.
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

// [x.size() * wire_bytes(type)], aligned for its numbers.
void to_wire(std::span<const float> x, WireType type, std::byte* out);
void from_wire(const std::byte* in, WireType type, std::span<float> x);
void add_from_wire(const std::byte* in, WireType type, std::span<float> x);
// As it is for others.
void round_to_wire(WireType type, std::span<float> x);

}  // namespace penstock
