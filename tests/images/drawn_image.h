// Pictures that tests draw, the same as draw() of tools/make_image_vectors.py.
#pragma once
#include <array>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "images/image.h"
#include "support/test_data.h"

namespace penstock {

inline Image drawn_image(int width, int height, uint32_t seed) {
  Image image{width, height, std::vector<uint8_t>(size_t{3} * width * height)};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (uint32_t c = 0; c < 3; ++c) {
        const auto column = static_cast<uint32_t>(x), line = static_cast<uint32_t>(y);
        uint32_t h =
            (column * 73856093u) ^ (line * 19349663u) ^ (c * 83492791u) ^ (seed * 2654435761u);
        h ^= h >> 13;
        h *= 0x5bd1e995u;
        h ^= h >> 15;
        uint32_t ramp = column * 5 + line * 3 + c * 85;
        ramp = (ramp & 256) != 0 ? 255 - (ramp & 255) : ramp & 255;
        const uint32_t value = (h & 7) != 0 ? ramp + (h >> 24 & 31) : h >> 8;
        image.row(y)[3 * x + c] = static_cast<uint8_t>(value);
      }
  return image;
}

// CRC-32 of zlib, eight bytes at a time.
inline uint32_t crc32_of(const void* data, size_t n) {
  static const auto tables = [] {
    std::array<std::array<uint32_t, 256>, 8> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? 0xedb88320u ^ (crc >> 1) : crc >> 1;
      made[0][i] = crc;
    }
    for (size_t t = 1; t < 8; ++t)
      for (size_t i = 0; i < 256; ++i)
        made[t][i] = made[0][made[t - 1][i] & 255] ^ (made[t - 1][i] >> 8);
    return made;
  }();
  const uint32_t(*table)[256] = reinterpret_cast<const uint32_t(*)[256]>(tables.data());
  uint32_t crc = ~0u;
  const auto* bytes = static_cast<const uint8_t*>(data);
  for (; n >= 8; n -= 8, bytes += 8) {
    uint32_t low, high;
    std::memcpy(&low, bytes, 4);
    std::memcpy(&high, bytes + 4, 4);
    low ^= crc;
    crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^
          table[4][low >> 24] ^ table[3][high & 255] ^ table[2][high >> 8 & 255] ^
          table[1][high >> 16 & 255] ^ table[0][high >> 24];
  }
  for (size_t i = 0; i < n; ++i) crc = table[0][(crc ^ bytes[i]) & 255] ^ (crc >> 8);
  return ~crc;
}

inline std::string read_golden(const std::string& name) {
  std::ifstream stream(tests_dir() / "golden/images" / name, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}
inline nlohmann::json golden_json(const std::string& name) {
  return nlohmann::json::parse(read_golden(name));
}
inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace penstock
