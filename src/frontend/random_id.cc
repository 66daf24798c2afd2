#include "frontend/random_id.h"

#include <fmt/format.h>

#include <random>

namespace penstock {

std::string random_id(const std::string& prefix) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}{:08x}", prefix, random(), static_cast<uint32_t>(random()));
}

}  // namespace penstock
