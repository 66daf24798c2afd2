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

// Rows at other places of a block or of their picture are other content.
BlockHash PromptInput::with_rows(BlockHash ids, int first, int end) const {
  for (size_t i = first_behind(first); i < rows.size() && rows[i].first < end; ++i) {
    const int from = std::max(rows[i].first, first),
              to = std::min(rows[i].first + rows[i].count, end);
    const BlockHash& of = identities[i].whole;
    const int row = identities[i].first_row + from - rows[i].first;
    const auto word = [](uint64_t value, int shift) { return static_cast<TokenId>(value >> shift); };
    ids = chain_hash(ids, std::array{word(of.low, 0), word(of.low, 32), word(of.high, 0),
                                     word(of.high, 32), TokenId{from - first}, TokenId{to - first},
                                     TokenId{row}});
  }
  return ids;
}

}  // namespace penstock
