// The last prompts and their completions, with which a new prompt is compared: where it leaves what
// its tenant has had before.
//
// Texts are compared only with those of the same tenant, salt, adapter and kind of rotation. Bounded
// in tokens and sequences; the tenant that has most gives up its oldest first. Engine thread only.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/requests/request_state.h"

namespace penstock {

class PromptHistory {
 public:
  // max_tokens: of all that is kept, 4 bytes each; 0: nothing is kept or compared.
  explicit PromptHistory(int64_t max_tokens) : max_tokens_(max_tokens) {}

  // Fills in what a new sequence's prompt has in common with an earlier one, and keeps its prompt.
  // Throws std::bad_alloc and has then kept nothing.
  void begin(Running& sequence);
  // Keeps of a sequence that ends the tokens that were computed: its completion too, or less than its
  // prompt. Keeps the prompt alone where memory is short.
  void end(const Running& sequence) noexcept;

  int64_t n_tokens() const { return n_tokens_; }

 private:
  static constexpr size_t kMostEntries = 256;
  struct Entry {
    SeqId id{};
    std::string tenant;
    BlockHash root;
    std::vector<TokenId> tokens;
    // Given rows: where they begin, and a hash of them and of their number.
    std::vector<std::pair<int, BlockHash>> rows;
  };
  static Entry entry_of(const Running& sequence);
  static int common_tokens(const Entry& earlier, const Entry& entry);
  void make_room(int64_t n_tokens);

  int64_t max_tokens_, n_tokens_ = 0;
  std::deque<Entry> entries_;  // oldest first
};

}  // namespace penstock
