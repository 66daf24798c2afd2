// State of the sampler for one sequence, and the specification that the n sequences of a request
// share.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "grammar/token_matcher.h"
#include "penstock/logits_processor.h"
#include "penstock/sampling_params.h"
#include "penstock/thinking_budget.h"
#include "penstock/types.h"

namespace penstock {

// Token forms of a request's text parameters, made by the owner of the tokenizer.
struct TokenForms {
  // end-of-sequence and stop ids: impossible before min_tokens
  std::vector<TokenId> end_ids;
  std::vector<std::vector<TokenId>> bad_words;  // in a SamplingSpec none is empty
  std::vector<TokenId> dry_breakers;            // in a SamplingSpec ascending
  // at the start of the output; null: no grammar
  std::shared_ptr<const TokenMatcher> matcher;
  std::optional<ThinkingBudget> thinking = std::nullopt;
  // null: the model's logits are not changed
  std::shared_ptr<LogitsProcessor> logits_processor = nullptr;
};

// Immutable after creation; shared by the n sequences of a request.
struct SamplingSpec : TokenForms {
  // logit_bias has at most one entry per token; greedy where top_p was 0
  SamplingParams params;
  std::vector<uint32_t> allowed;  // bit per token id; empty = all
  // the same of banned ones where these are many; else empty
  std::vector<uint32_t> not_banned;
  uint64_t seed = 0;
  int vocab_size = 0;
  // a repetition, presence or frequency penalty is on
  bool penalizes = false;
  // and it looks at all tokens (params.penalty_last_n)
  bool needs_counts = false;

  static std::shared_ptr<const SamplingSpec> make(SamplingParams params, TokenForms forms,
                                                  uint64_t seed, int vocab_size);
  // Whether the text has to end within max_tokens.
  bool completes() const {
    return params.structured_outputs && params.structured_outputs->complete_within_max_tokens;
  }
  bool greedy() const { return params.temperature < 1e-5f && params.mirostat == 0; }
};

// Returns the seed of a request that brings none.
uint64_t seed_of_request(uint64_t engine_seed, RequestId request);

// Distinct tokens of a sequence with how often each occurs in prompt and output. Open addressing;
// grows by doubling.
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

// The sampler's state of one sequence. append() is called for every output token in order.
struct SamplerState {
  std::shared_ptr<const SamplingSpec> spec;
  uint32_t index = 0;  // which of the n sequences
  TokenCounts counts;
  float mirostat_mu = 0;
  // null: no grammar, or the output does not match it any more
  std::unique_ptr<TokenMatcher> matcher;

  SamplerState() = default;
  SamplerState(std::shared_ptr<const SamplingSpec> spec, uint32_t index,
               std::span<const TokenId> prompt, int max_output);
  // Returns the state of another sequence of the same request with the same tokens.
  SamplerState fork(uint32_t index) const;
  // Appends a token. False: the grammar does not allow it here, and the state is not changed.
  bool append(TokenId token);
  void remove(TokenId token);  // undoes the last append(token)
  // Whether the grammar allows nothing but the end of the output.
  bool must_end() const { return matcher != nullptr && matcher->must_end(); }
};

// Appends tokens to a state tentatively: they are removed when this is destroyed.
class Hypothesis {
 public:
  explicit Hypothesis(SamplerState& state) : state_(state), mirostat_mu_(state.mirostat_mu) {}
  ~Hypothesis() {
    while (!appended_.empty()) {
      state_.remove(appended_.back());
      appended_.pop_back();
    }
    state_.mirostat_mu = mirostat_mu_;
  }
  Hypothesis(const Hypothesis&) = delete;
  Hypothesis& operator=(const Hypothesis&) = delete;
  // False: the grammar does not allow the token here.
  bool append(TokenId token) {
    appended_.reserve(appended_.size() + 1);
    if (!state_.append(token)) return false;
    appended_.push_back(token);
    return true;
  }
  SamplerState& state() { return state_; }

 private:
  SamplerState& state_;
  float mirostat_mu_;
  std::vector<TokenId> appended_;
};

}  // namespace penstock
