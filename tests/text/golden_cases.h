// The strings of make_tokenizer_golden.py, made by the same steps, and the hashes it compares them
// by.
#pragma once
#include <unicode/uchar.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "penstock/types.h"
#include "support/test_data.h"
#include "text/unicode/unicode.h"

namespace penstock::golden {

inline constexpr size_t kChunk = 100;  // strings per hash

inline std::filesystem::path folder() { return tests_dir() / "text" / "golden"; }

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline const nlohmann::json& pools() {
  static const nlohmann::json json = nlohmann::json::parse(read_file(folder() / "pools.json"));
  return json;
}

// SplitMix64.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t below(uint64_t n) {
    state_ += 0x9E3779B97F4A7C15;
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    z ^= z >> 31;
    return (z >> 32) * n >> 32;
  }

 private:
  uint64_t state_;
};

// Whether every Unicode version since 14 gives this code point the same properties.
inline bool stable(uint32_t c) {
  if (c >= 0x40000) return c < 0x110000;
  if ((c >= 0xD800 && c < 0xE000) || c == 0x111C9 ||
      u_charType(static_cast<UChar32>(c)) == U_UNASSIGNED)
    return false;
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] <= 14;
}

class Cases {
 public:
  explicit Cases(uint64_t seed) : rng_(seed) {}

  std::string next(bool invalid) {
    std::string text;
    switch (rng_.below(invalid ? 12 : 11)) {
      case 0: return repeat(1 + rng_.below(30), [&] { return code_point(0, 0x10FFFF); });
      case 1: {
        const uint64_t pool = rng_.below(n_ranges() + 1);
        return repeat(1 + rng_.below(40), [&] { return pool_char(pool); });
      }
      case 2: {
        const std::string c = pooled();
        return repeat(1 + rng_.below(200), [&] { return c; });
      }
      case 3: return repeat(1 + rng_.below(40), [&] { return pooled(); });
      case 4: return join(1 + rng_.below(20));
      case 5:
      case 6: return repeat(1 + rng_.below(25), [&] { return soup(); });
      case 7:
        return repeat(1 + rng_.below(12), [&] {
          const std::string c = pooled();
          return repeat(1 + rng_.below(6), [&] { return c; });
        });
      case 8: {
        const std::string c = pick("emoji");
        text = repeat(1 + rng_.below(4), [&] { return c; });
        return text + pick("words");
      }
      case 9: return capitals();
      case 10: return repeat(1 + rng_.below(30), [&] { return code_point(0, 0x3000); });
      default:
        return repeat(1 + rng_.below(20), [&] {
          return rng_.below(3) == 0 ? std::string(1, static_cast<char>(rng_.below(256))) : soup();
        });
    }
  }

 private:
  template <class F>
  static std::string repeat(uint64_t n, F&& f) {
    std::string text;
    for (uint64_t i = 0; i < n; ++i) text += f();
    return text;
  }
  static uint64_t n_ranges() { return pools()["ranges"].size(); }
  std::string code_point(uint32_t low, uint32_t high) {
    while (true) {
      const auto c = static_cast<uint32_t>(low + rng_.below(high - low + 1));
      if (!stable(c)) continue;
      std::string text;
      unicode::append(text, c);
      return text;
    }
  }
  std::string pick(const char* name) {
    const auto& list = pools()[name];
    return list[rng_.below(list.size())].get<std::string>();
  }
  std::string pool_char(uint64_t pool) {
    if (pool == n_ranges()) return pick("chars");
    const auto& range = pools()["ranges"][pool];
    return code_point(range[0].get<uint32_t>(), range[1].get<uint32_t>());
  }
  std::string pooled() { return pool_char(rng_.below(n_ranges() + 1)); }
  std::string soup() {
    const uint64_t kind = rng_.below(8);
    if (kind < 3) return pick("words");
    if (kind == 3) return pick("specials");
    if (kind == 4) return std::to_string(rng_.below(1000000));
    return kind == 5 ? " " : pick("chars");
  }
  std::string join(uint64_t n) {
    std::string text;
    for (uint64_t i = 0; i < n; ++i) text += (i == 0 ? "" : " ") + pick("words");
    return text;
  }
  std::string capitals() {
    std::string text;
    const std::string words = join(6);
    for (size_t i = 0; i < words.size();) {
      const size_t length = static_cast<size_t>(unicode::decode(words, i).length);
      std::string c = words.substr(i, length);
      if (rng_.below(5) < 2 && length == 1 && c[0] >= 'a' && c[0] <= 'z')
        c[0] = static_cast<char>(c[0] - 32);
      text += c;
      i += length;
    }
    return text;
  }

  Rng rng_;
};

// FNV-1a over blobs, each with its length in front.
class Hash {
 public:
  void add(std::string_view blob) {
    const auto size = static_cast<uint32_t>(blob.size());
    add_bytes({reinterpret_cast<const char*>(&size), sizeof size});
    add_bytes(blob);
  }
  void add(std::span<const TokenId> ids) {
    add(std::string_view(reinterpret_cast<const char*>(ids.data()), ids.size_bytes()));
  }
  std::string hex() const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(state_));
    return text;
  }

 private:
  void add_bytes(std::string_view bytes) {
    for (const char c : bytes) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  }
  uint64_t state_ = 0xCBF29CE484222325;
};

}  // namespace penstock::golden
