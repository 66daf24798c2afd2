#include "hub/download/range_set.h"

#include <algorithm>
#include <iterator>

namespace penstock {

void RangeSet::add(ByteRange range) {
  if (range.size() <= 0) return;
  auto next = ranges_.upper_bound(range.begin);
  if (next != ranges_.begin() && std::prev(next)->second >= range.begin) --next;
  while (next != ranges_.end() && next->first <= range.end) {
    range = {std::min(range.begin, next->first), std::max(range.end, next->second)};
    total_ -= next->second - next->first;
    next = ranges_.erase(next);
  }
  ranges_.emplace(range.begin, range.end);
  total_ += range.size();
}

int64_t RangeSet::prefix() const {
  return ranges_.empty() || ranges_.begin()->first > 0 ? 0 : ranges_.begin()->second;
}

std::vector<ByteRange> RangeSet::ranges() const {
  std::vector<ByteRange> list;
  for (const auto& [begin, end] : ranges_) list.push_back({begin, end});
  return list;
}

std::vector<ByteRange> RangeSet::gaps(int64_t size) const {
  std::vector<ByteRange> list;
  int64_t at = 0;
  for (const auto& [begin, end] : ranges_) {
    if (begin > at) list.push_back({at, std::min(begin, size)});
    at = end;
  }
  if (at < size) list.push_back({at, size});
  return list;
}

}  // namespace penstock
