#include "engine/schedule/prompt_input.h"

#include <algorithm>
#include <array>

namespace penstock {

size_t PromptInput::first_behind(int token) const {
  const auto is_before = [&](const GivenRows& each) { return each.first + each.count <= token; };
  return static_cast<size_t>(std::ranges::partition_point(rows, is_before) - rows.begin());
}

int PromptInput::first_given(int first, int end) const {
  const size_t i = first_behind(first);
  return i < rows.size() ? std::clamp(rows[i].first, first, std::max(first, end)) : end;
}

int PromptInput::without_cut(int first, int count, int most) const {
  const size_t i = first_behind(first + count - 1);
  if (!parts_see || count < 1 || i == rows.size()) return count;
  const int begin = rows[i].first, end = begin + rows[i].count;
  if (begin >= first + count || end == first + count) return count;
  if (begin > first) return begin - first;
  return end - first <= most ? end - first : 0;
}

// Rows at other places of a block or of their picture are other content.
BlockHash PromptInput::with_rows(BlockHash ids, int first, int end) const {
  for (size_t i = first_behind(first); i < rows.size() && rows[i].first < end; ++i) {
    const int from = std::max(rows[i].first, first),
              to = std::min(rows[i].first + rows[i].count, end);
    const BlockHash& of = identities[i].whole;
    const int row = identities[i].first_row + from - rows[i].first;
    const auto word = [](uint64_t value, int shift) {
      return static_cast<TokenId>(value >> shift);
    };
    ids = chain_hash(
        ids, std::array{word(of.low, 0), word(of.low, 32), word(of.high, 0), word(of.high, 32),
                        TokenId{from - first}, TokenId{to - first}, TokenId{row}});
  }
  return ids;
}

}  // namespace penstock
