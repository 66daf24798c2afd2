#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace penstock {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = std::exchange(row[0], static_cast<int>(i) + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known) {
  if (known.empty()) return {};
  const std::string_view begin = name.substr(0, 64);
  return std::ranges::min(known, {},
                          [&](std::string_view one) { return edit_distance(begin, one); });
}

}  // namespace penstock
