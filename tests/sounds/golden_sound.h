// Golden sounds of tools/make_sound_vectors.py.
#pragma once
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/test_data.h"

namespace penstock {

inline std::string golden_sound(const std::string& name) {
  std::ifstream file(tests_dir() / "golden" / "sounds" / name, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline nlohmann::json golden_sound_json(const std::string& name) {
  return nlohmann::json::parse(golden_sound(name));
}

template <typename T>
std::vector<T> golden_numbers(const std::string& name) {
  const std::string bytes = golden_sound(name);
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

inline std::span<const std::byte> sound_bytes(const std::string& file) {
  return std::as_bytes(std::span(file));
}

}  // namespace penstock
