// Philox4x32-10 (Salmon et al. 2011), a counter-based random number generator: a number is a pure
// function of (seed, counter), so that the draws of one sequence do not depend on those of others.
#pragma once
#include <array>
#include <cstdint>

namespace penstock {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, uint64_t seed) {
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// Purpose of a draw. Draws for one position have different counters.
enum class Draw : uint32_t { kToken = 0, kXtc = 1, kAccept = 2, kResidual = 3, kDraft = 4 };

// Returns a number uniform in [0, 1) with 53 random bits. position: number of output tokens before
// this one. index: which of the n sequences.
inline double uniform_draw(uint64_t seed, uint64_t position, uint32_t index, Draw draw) {
  const auto bits =
      philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), index,
                  static_cast<uint32_t>(draw)},
                 seed);
  return static_cast<double>((uint64_t{bits[0]} << 21) ^ (bits[1] >> 11)) * 0x1p-53;
}

// Returns a well-mixed 64-bit value of two, for seeds of requests that have none.
inline uint64_t mix_seed(uint64_t a, uint64_t b) {
  const auto bits =
      philox4x32({static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32), 0x5eed, 0}, a);
  return uint64_t{bits[0]} << 32 | bits[1];
}

}  // namespace penstock
