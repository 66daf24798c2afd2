// What the sampler knows of one sequence, and what its n sequences share.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "penstock/sampling_params.h"
#include "penstock/types.h"

namespace penstock {

// Immutable after creation; shared by the n sequences of a request.
struct SamplingSpec {
  SamplingParams params;
  std::vector<TokenId> end_ids;                 // end-of-sequence and stop ids: kept out before min_tokens
  std::vector<std::vector<TokenId>> bad_words;  // none empty
  std::vector<TokenId> dry_breakers;            // ascending
  std::vector<uint32_t> allowed;                // bit per token id; empty = all
  uint64_t seed = 0;
  bool needs_counts = false;  // a penalty over seen tokens is on

  // breakers and words in token form come from the owner of the tokenizer.
  static std::shared_ptr<const SamplingSpec> make(const SamplingParams& params, std::vector<TokenId> end_ids,
                                                  std::vector<std::vector<TokenId>> bad_words,
                                                  std::vector<TokenId> dry_breakers, uint64_t seed,
                                                  int vocab_size);
  bool greedy() const { return params.temperature < 1e-5f && params.mirostat == 0; }
};

// Distinct tokens of a sequence with how often each occurs in prompt and output. Open addressing; grows by
// doubling.
class TokenCounts {
 public:
  struct Entry {
    TokenId token = kNoToken;
    bool in_prompt = false;
    int32_t n_output = 0;
  };
  void reserve(int n_distinct);
  void add(TokenId token, bool prompt);
  void remove_output(TokenId token);                       // undoes one add(token, false)
  std::span<const Entry> slots() const { return slots_; }  // unused ones have kNoToken

 private:
  Entry& slot(TokenId token);
  std::vector<Entry> slots_;
  int used_ = 0;
};

// Belongs to one sequence. append() follows every token of the sequence in order.
struct SamplerState {
  std::shared_ptr<const SamplingSpec> spec;
  uint32_t index = 0;  // which of the n sequences
  TokenCounts counts;
  float mirostat_mu = 0;

  SamplerState() = default;
  SamplerState(std::shared_ptr<const SamplingSpec> spec, uint32_t index, std::span<const TokenId> prompt,
               int max_output);
  void append(TokenId token) {
    if (spec->needs_counts) counts.add(token, false);
  }
  void remove(TokenId token) {  // undoes one append(token)
    if (spec->needs_counts) counts.remove_output(token);
  }
};

// Tokens that may follow, appended to a state for as long as this lives.
class Hypothesis {
 public:
  explicit Hypothesis(SamplerState& state) : state_(state), mirostat_mu_(state.mirostat_mu) {}
  ~Hypothesis() {
    for (const TokenId token : appended_) state_.remove(token);
    state_.mirostat_mu = mirostat_mu_;
  }
  Hypothesis(const Hypothesis&) = delete;
  Hypothesis& operator=(const Hypothesis&) = delete;
  void append(TokenId token) {
    state_.append(token);
    appended_.push_back(token);
  }
  SamplerState& state() { return state_; }

 private:
  SamplerState& state_;
  float mirostat_mu_;
  std::vector<TokenId> appended_;
};

}  // namespace penstock
