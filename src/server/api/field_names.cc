#include "server/api/field_names.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/ascii.h"
#include "base/nearest_name.h"

namespace penstock {
namespace {

constexpr size_t kLongest = 64;

std::string letters_of(std::string_view name) {
  std::string letters = ascii_lower(name);
  std::erase_if(letters, [](char c) { return c == '_' || c == '-'; });
  return letters;
}

std::string sorted(std::string text) {
  std::ranges::sort(text);
  return text;
}

}  // namespace

bool misspells(std::string_view name, std::string_view listed) {
  if (name.size() > kLongest || name == listed) return false;
  const size_t longer = std::max(name.size(), listed.size());
  const size_t shorter = std::min(name.size(), listed.size());
  constexpr size_t kMostDifference = 8;  // maximum number of underscores that may differ
  if (longer - shorter > kMostDifference) return false;
  const std::string letters = letters_of(name), wanted = letters_of(listed);
  if (letters == wanted) return true;
  const int most = longer >= 12 ? 2 : longer >= 6 ? 1 : 0;
  if (static_cast<int>(longer - shorter) > most) return false;
  const int distance = edit_distance(name, listed);
  const bool swapped = distance == 2 && longer >= 6 && sorted(letters) == sorted(wanted);
  return distance <= most || swapped;
}

std::string_view meant_name(const nlohmann::json& properties, std::string_view name) {
  for (auto one = properties.begin(); one != properties.end(); ++one) {
    if (misspells(name, one.key())) return one.key();
  }
  return {};
}

}  // namespace penstock
