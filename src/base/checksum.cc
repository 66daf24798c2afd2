#include "base/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace penstock {
namespace {

// Invertible for a given word, so that a difference in a lane persists.
uint64_t mix(uint64_t lane, uint64_t word) {
  return std::rotl((lane ^ word) * 0x9E3779B97F4A7C15u, 29);
}

uint64_t word_at(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

}  // namespace

uint64_t checksum64(std::span<const std::byte> bytes) {
  constexpr size_t kLanes = 8;  // independent lanes, so that multiplications overlap
  uint64_t lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = mix(bytes.size(), i);
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8 * kLanes; left -= 8 * kLanes, at += 8 * kLanes) {
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = mix(lanes[i], word_at(at + 8 * i));
  }
  if (left > 0) {
    std::byte rest[8 * kLanes] = {};
    std::memcpy(rest, at, left);
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = mix(lanes[i], word_at(rest + 8 * i));
  }
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) {
    sum = mix(sum, lane);
    sum ^= sum >> 32;
  }
  return sum;
}

}  // namespace penstock
