#include "hub/gguf_name.h"

#include <algorithm>

#include "base/ascii.h"

namespace penstock {
namespace {

bool ends_with_ignoring_case(std::string_view text, std::string_view end) {
  return text.size() >= end.size() &&
         equal_ignoring_case(text.substr(text.size() - end.size()), end);
}

// Returns the number of five digits at position `at`, or -1.
int five_digits(std::string_view text, size_t at) {
  const std::string_view digits = text.substr(at, 5);
  const bool good = digits.size() == 5 && std::ranges::all_of(digits, is_ascii_digit);
  return good ? std::stoi(std::string(digits)) : -1;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return ascii_lower(x) == ascii_lower(y); });
}

GgufName parse_gguf_name(std::string_view path) {
  constexpr std::string_view kSuffix = ".gguf";
  constexpr size_t kShardChars = 15;  // -00001-of-00003
  if (!ends_with_ignoring_case(path, kSuffix) || path.size() == kSuffix.size()) return {};
  const std::string_view stem = path.substr(0, path.size() - kSuffix.size());
  if (stem.size() > kShardChars) {
    const std::string_view tail = stem.substr(stem.size() - kShardChars);
    const int shard = five_digits(tail, 1), n_shards = five_digits(tail, 10);
    if (tail[0] == '-' && tail.substr(6, 4) == "-of-" && shard >= 1 && shard <= n_shards)
      return {std::string(stem.substr(0, stem.size() - kShardChars)), shard, n_shards};
  }
  return {std::string(stem), 1, 1};
}

bool is_companion(std::string_view path) {
  std::string name(path.substr(path.rfind('/') + 1));
  name = ascii_lower(name);
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  return name.find("mmproj") != std::string::npos || name.find("imatrix") != std::string::npos ||
         begins("mtp-") || begins("eagle3-") || begins("dflash-") || begins("dspark-");
}

bool has_quantization(std::string_view path, std::string_view quantization) {
  const auto is_border = [](char c) { return c == '-' || c == '.' || c == '/' || c == '_'; };
  for (size_t at = 0; at + quantization.size() < path.size(); ++at) {
    if (!equal_ignoring_case(path.substr(at, quantization.size()), quantization)) continue;
    const char after = path[at + quantization.size()];
    if ((at == 0 || is_border(path[at - 1])) && is_border(after) && after != '_') return true;
  }
  return false;
}

}  // namespace penstock
