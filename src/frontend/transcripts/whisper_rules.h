// Logits processor of Whisper: forced tokens at the beginning of a window, suppressed tokens, and the
// order of timestamps, as transformers' processors have them.
//
// One object for one sequence: process() is called by the engine's threads, the other functions when
// the sequence has ended.
#pragma once
#include <span>
#include <vector>

#include "frontend/transcripts/whisper_tokens.h"
#include "penstock/logits_processor.h"

namespace penstock {

class WhisperRules final : public LogitsProcessor {
 public:
  // Place in `forced` of the most likely language.
  static constexpr TokenId kAnyLanguage = -2;
  // forced: the first tokens behind the prompt. REQUIRES: `tokens` outlives this.
  WhisperRules(const WhisperTokens& tokens, std::vector<TokenId> forced, bool timestamps)
      : tokens_(tokens), forced_(std::move(forced)), timestamps_(timestamps) {}

  void process(std::span<const TokenId> tokens, int n_prompt, std::span<float> logits) override;

  size_t n_forced() const { return forced_.size(); }
  // Probability of <|nospeech|> behind the prompt.
  double no_speech() const { return no_speech_; }
  // Sum of the log-probabilities of all tokens behind the forced ones; `last` is the last of them.
  double sum_logprob(TokenId last) const;

 private:
  void force(TokenId wanted, std::span<float> logits) const;
  void order_timestamps(std::span<const TokenId> text, std::span<float> logits) const;
  void prefer_timestamps(std::span<float> logits) const;

  const WhisperTokens& tokens_;
  const std::vector<TokenId> forced_;
  const bool timestamps_;
  double no_speech_ = 0, sum_ = 0;
  // Processed logits, the logarithm of the sum of their exponentials, and the number of tokens, of the
  // last call of process() that forced no token.
  std::vector<float> logits_;
  double log_sum_ = 0;
  size_t n_tokens_ = 0;
};

}  // namespace penstock
