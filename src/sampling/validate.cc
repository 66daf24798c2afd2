#include "sampling/validate.h"

#include <cmath>

namespace penstock {
namespace {

// The first failed expectation, kept.
class Expectations {
 public:
  template <class T>
  void expect(bool ok, const char* name, const char* expected, const T& got) {
    if (status_ && !ok) {
      status_ = errorf(ErrorCode::kInvalidArgument, "{}: expected {}, got {}", name, expected, got);
    }
  }
  void expect_ids(const std::vector<TokenId>& ids, const char* name, int vocab_size) {
    for (const TokenId id : ids) expect_id(id, name, vocab_size);
  }
  void expect_id(TokenId id, const char* name, int vocab_size) {
    if (status_ && (id < 0 || id >= vocab_size)) {
      status_ = errorf(ErrorCode::kInvalidArgument, "{}: expected token ids in [0, {}), got {}", name,
                       vocab_size, id);
    }
  }
  Status status() const { return status_; }

 private:
  Status status_;
};

bool in(double x, double low, double high) { return x >= low && x <= high; }  // false for NaN

void validate_counts(const SamplingParams& p, Expectations& e) {
  e.expect(p.n >= 1 && p.n <= 1024, "n", "1 to 1024", p.n);
  e.expect(p.max_tokens >= 0, "max_tokens", "a number >= 0", p.max_tokens);
  e.expect(p.max_tokens > 0 || p.prompt_logprobs, "max_tokens", "at least 1 (0 only with prompt_logprobs)",
           p.max_tokens);
  e.expect(p.min_tokens >= 0 && p.min_tokens <= p.max_tokens, "min_tokens", "0 to max_tokens", p.min_tokens);
  e.expect(p.stop.size() <= 16, "stop", "at most 16 strings", p.stop.size());
  for (const std::string& stop : p.stop)
    e.expect(!stop.empty(), "stop", "strings that are not empty", "\"\"");
  for (const std::string& word : p.bad_words) {
    e.expect(!word.empty(), "bad_words", "strings that are not empty", "\"\"");
  }
}

void validate_beams(const SamplingParams& p, Expectations& e) {
  if (!p.use_beam_search) return;
  e.expect(p.beam_width >= p.n && p.beam_width <= 256, "beam_width", "n to 256", p.beam_width);
  e.expect(in(p.length_penalty, -100, 100), "length_penalty", "a number in [-100, 100]", p.length_penalty);
  e.expect(p.max_tokens > 0, "max_tokens", "at least 1 with use_beam_search", p.max_tokens);
  e.expect(!p.prompt_logprobs, "prompt_logprobs", "nothing with use_beam_search",
           p.prompt_logprobs.value_or(0));
}

void validate_distribution(const SamplingParams& p, Expectations& e) {
  e.expect(in(p.temperature, 0, 1e6), "temperature", "a number >= 0", p.temperature);
  e.expect(p.top_k >= -1, "top_k", "-1, 0 or a positive number", p.top_k);
  e.expect(in(p.top_p, 0, 1) && p.top_p > 0, "top_p", "a number in (0, 1]", p.top_p);
  e.expect(in(p.min_p, 0, 1), "min_p", "a number in [0, 1]", p.min_p);
  e.expect(in(p.typical_p, 0, 1) && p.typical_p > 0, "typical_p", "a number in (0, 1]", p.typical_p);
  e.expect(in(p.repetition_penalty, 0, 1e6) && p.repetition_penalty > 0, "repetition_penalty", "a number > 0",
           p.repetition_penalty);
  e.expect(in(p.presence_penalty, -2, 2), "presence_penalty", "a number in [-2, 2]", p.presence_penalty);
  e.expect(in(p.frequency_penalty, -2, 2), "frequency_penalty", "a number in [-2, 2]", p.frequency_penalty);
  e.expect(in(p.dry_multiplier, 0, 1e6), "dry_multiplier", "a number >= 0", p.dry_multiplier);
  e.expect(in(p.dry_base, 1, 1e6), "dry_base", "a number >= 1", p.dry_base);
  e.expect(p.dry_allowed_length >= 0, "dry_allowed_length", "a number >= 0", p.dry_allowed_length);
  e.expect(p.dry_penalty_last_n >= -1, "dry_penalty_last_n", "-1 or a number >= 0", p.dry_penalty_last_n);
  e.expect(in(p.xtc_probability, 0, 1), "xtc_probability", "a number in [0, 1]", p.xtc_probability);
  e.expect(in(p.xtc_threshold, 0, 1), "xtc_threshold", "a number in [0, 1]", p.xtc_threshold);
  e.expect(p.mirostat >= 0 && p.mirostat <= 2, "mirostat", "0, 1 or 2", p.mirostat);
  e.expect(in(p.mirostat_tau, 0, 1e3), "mirostat_tau", "a number >= 0", p.mirostat_tau);
  e.expect(in(p.mirostat_eta, 0, 1e3), "mirostat_eta", "a number >= 0", p.mirostat_eta);
}

}  // namespace

Status validate(const SamplingParams& p, int vocab_size) {
  Expectations e;
  validate_counts(p, e);
  validate_beams(p, e);
  validate_distribution(p, e);
  e.expect_ids(p.stop_token_ids, "stop_token_ids", vocab_size);
  e.expect_ids(p.allowed_token_ids, "allowed_token_ids", vocab_size);
  e.expect_ids(p.banned_token_ids, "banned_token_ids", vocab_size);
  for (const auto& [token, bias] : p.logit_bias) {
    e.expect_id(token, "logit_bias", vocab_size);
    e.expect(!std::isnan(bias), "logit_bias", "a number", bias);
  }
  e.expect(!p.logprobs || *p.logprobs >= -1, "logprobs", "-1 or a number >= 0", p.logprobs.value_or(0));
  e.expect(!p.prompt_logprobs || *p.prompt_logprobs >= -1, "prompt_logprobs", "-1 or a number >= 0",
           p.prompt_logprobs.value_or(0));
  return e.status();
}

}  // namespace penstock
