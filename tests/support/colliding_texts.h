// Texts that all have one hash by libstdc++'s std::hash, which is the same in every process.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace penstock {

// Returns n texts of 16 visible characters, without quotes and backslashes. Of two words the first is
// anything, and the second undoes the difference that the first makes.
inline std::vector<std::string> colliding_texts(size_t n) {
  constexpr uint64_t kMul = (uint64_t{0xc6a4a793} << 32) + 0x5bd1e995, kSeed = 0xc70f6907;
  constexpr uint64_t kInverse = [] {
    uint64_t x = kMul;
    for (int i = 0; i < 6; ++i) x *= 2 - kMul * x;
    return x;
  }();
  const auto fold = [](uint64_t v) { return v ^ v >> 47; };  // its own inverse
  const auto is_plain = [](char c) { return c > 0x20 && c < 0x7f && c != '"' && c != '\\'; };
  std::mt19937_64 random(1);
  std::set<std::string> texts;
  std::array<char, 16> text{};
  while (texts.size() < n) {
    uint64_t bits = random();
    for (size_t i = 0; i < 8; ++i, bits >>= 8) text[i] = static_cast<char>('a' + bits % 26);
    uint64_t first = 0;
    std::memcpy(&first, text.data(), 8);
    const uint64_t after = ((kSeed ^ 16 * kMul) ^ fold(first * kMul) * kMul) * kMul;
    const uint64_t second = fold((after ^ 0x1234567) * kInverse) * kInverse;
    std::memcpy(text.data() + 8, &second, 8);
    if (std::all_of(text.begin(), text.end(), is_plain)) texts.emplace(text.data(), 16);
  }
  return {texts.begin(), texts.end()};
}

}  // namespace penstock
