#include "engine/requests/prompt_history.h"

#include <algorithm>
#include <map>
#include <new>
#include <span>
#include <string_view>

namespace penstock {

PromptHistory::Entry PromptHistory::entry_of(const Running& sequence) {
  const auto prompt_end = sequence.tokens.begin() + sequence.n_prompt;
  Entry entry{.id = sequence.id,
              .tenant = sequence.request->request.tenant,
              .root = sequence.root,
              .tokens = {sequence.tokens.begin(), prompt_end},
              .rows = {}};
  if (sequence.input == nullptr) return entry;
  for (const GivenRows& rows : sequence.input->rows)
    entry.rows.emplace_back(rows.first,
                            sequence.input->with_rows({}, rows.first, rows.first + rows.count));
  return entry;
}

// Returns the number of leading tokens that are equal, given rows included.
int PromptHistory::common_tokens(const Entry& earlier, const Entry& entry) {
  const auto differs =
      std::ranges::mismatch(earlier.tokens, entry.tokens).in2 - entry.tokens.begin();
  const auto rows = std::ranges::mismatch(earlier.rows, entry.rows);
  int common = static_cast<int>(differs);
  if (rows.in1 != earlier.rows.end()) common = std::min(common, rows.in1->first);
  if (rows.in2 != entry.rows.end()) common = std::min(common, rows.in2->first);
  return common;
}

void PromptHistory::begin(Running& sequence) {
  if (max_tokens_ == 0) return;
  Entry entry = entry_of(sequence);
  PrefixUse& use = sequence.stats.prefix;
  use.known_tokens = 0;
  const Entry* longest = nullptr;  // of equally long ones the last
  for (const Entry& earlier : entries_) {
    if (earlier.root != entry.root || earlier.tenant != entry.tenant) continue;
    const int common = common_tokens(earlier, entry);
    if (common >= use.known_tokens) use.known_tokens = common, longest = &earlier;
  }
  if (longest != nullptr) {
    const auto rest = std::span(longest->tokens).subspan(static_cast<size_t>(use.known_tokens));
    use.n_had = static_cast<int>(std::min(rest.size(), use.had.size()));
    std::ranges::copy(rest.first(static_cast<size_t>(use.n_had)), use.had.begin());
  }
  const auto n = std::ssize(entry.tokens);
  if (n > max_tokens_) return;
  make_room(n);
  entries_.push_back(std::move(entry));
  n_tokens_ += n;
}

void PromptHistory::end(const Running& sequence) noexcept {
  const auto entry = std::ranges::find(entries_, sequence.id, &Entry::id);
  if (entry == entries_.end()) return;
  const int64_t n_had = std::ssize(entry->tokens),
                n = std::min(sequence.n_known(), sequence.n_computed);
  if (n_tokens_ - n_had + n > max_tokens_) return;
  try {
    const auto first = sequence.tokens.begin();
    if (n > n_had) entry->tokens.insert(entry->tokens.end(), first + n_had, first + n);
    if (n < n_had) entry->tokens.resize(static_cast<size_t>(n));
  } catch (const std::bad_alloc&) {
  }
  n_tokens_ += std::ssize(entry->tokens) - n_had;
}

void PromptHistory::make_room(int64_t n_tokens) {
  while (n_tokens_ + n_tokens > max_tokens_ || entries_.size() >= kMostEntries) {
    std::map<std::string_view, int64_t> tokens_of;
    for (const Entry& entry : entries_) tokens_of[entry.tenant] += 1 + std::ssize(entry.tokens);
    const auto largest =
        std::ranges::max_element(tokens_of, {}, [](const auto& tenant) { return tenant.second; });
    const auto oldest = std::ranges::find(entries_, largest->first, &Entry::tenant);
    n_tokens_ -= std::ssize(oldest->tokens);
    entries_.erase(oldest);
  }
}

}  // namespace penstock
