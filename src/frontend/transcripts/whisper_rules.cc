#include "frontend/transcripts/whisper_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

double log_sum_of(std::span<const float> logits) {
  if (logits.empty()) return kNever;
  const float most = *std::ranges::max_element(logits);
  if (most == kNever) return kNever;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - most));
  return static_cast<double>(most) + std::log(sum);
}

void forbid(std::span<float> logits, std::span<const TokenId> ids) {
  for (const TokenId id : ids)
    if (static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] = kNever;
}

// The logits of tokens [first, end).
std::span<float> range(std::span<float> logits, TokenId first, TokenId end) {
  const auto size = static_cast<TokenId>(logits.size());
  first = std::clamp(first, 0, size), end = std::clamp(end, first, size);
  return logits.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
}

}  // namespace

void WhisperRules::force(TokenId wanted, std::span<float> logits) const {
  if (wanted == kAnyLanguage) {
    float most = kNever;
    for (const auto& [code, id] : tokens_.languages) {
      const float logit = logits[static_cast<size_t>(id)];
      if (wanted == kAnyLanguage || logit > most) wanted = id, most = logit;
    }
  }
  std::ranges::fill(logits, kNever);
  logits[static_cast<size_t>(wanted)] = 0.0f;
}

void WhisperRules::order_timestamps(std::span<const TokenId> text, std::span<float> logits) const {
  const TokenId first = tokens_.first_timestamp();
  const auto size = static_cast<TokenId>(logits.size());
  const auto is_time = [&](size_t behind) { return text[text.size() - behind] >= first; };
  logits[static_cast<size_t>(tokens_.no_timestamps)] = kNever;
  const bool last = !text.empty() && is_time(1), before = text.size() < 2 || is_time(2);
  if (last && before) std::ranges::fill(range(logits, first, size), kNever);
  if (last && !before) std::ranges::fill(range(logits, 0, tokens_.end), kNever);
  TokenId least = first;
  for (const TokenId token : text)
    if (token >= first) least = last && !before ? token : token + 1;
  std::ranges::fill(range(logits, first, least), kNever);
  if (!text.empty()) return;
  std::ranges::fill(range(logits, 0, first), kNever);
  if (tokens_.max_initial_timestamp >= 0)
    std::ranges::fill(range(logits, first + tokens_.max_initial_timestamp + 1, size), kNever);
}

// A timestamp is written if all of them together are more likely than any other token.
void WhisperRules::prefer_timestamps(std::span<float> logits) const {
  const TokenId first = tokens_.first_timestamp();
  const auto others = range(logits, 0, first);
  const double times = log_sum_of(range(logits, first, static_cast<TokenId>(logits.size())));
  if (times > static_cast<double>(*std::ranges::max_element(others)))
    std::ranges::fill(others, kNever);
}

void WhisperRules::process(std::span<const TokenId> tokens, int n_prompt, std::span<float> logits) {
  const auto written = tokens.subspan(static_cast<size_t>(n_prompt));
  if (written.empty()) {
    no_speech_ = std::exp(static_cast<double>(logits[static_cast<size_t>(tokens_.no_speech())]) -
                          log_sum_of(logits));
  }
  if (written.size() < forced_.size()) return force(forced_[written.size()], logits);
  const auto text = written.subspan(forced_.size());
  if (text.empty()) forbid(logits, tokens_.suppressed_first);
  forbid(logits, tokens_.suppressed);
  if (timestamps_) {
    order_timestamps(text, logits);
    prefer_timestamps(logits);
  }
  const bool follows = n_tokens_ > 0 && tokens.size() == n_tokens_ + 1;
  if (follows) sum_ += static_cast<double>(logits_[static_cast<size_t>(tokens.back())]) - log_sum_;
  logits_.assign(logits.begin(), logits.end());
  log_sum_ = log_sum_of(logits);
  n_tokens_ = tokens.size();
}

double WhisperRules::sum_logprob(TokenId last) const {
  if (n_tokens_ == 0 || static_cast<size_t>(last) >= logits_.size()) return sum_;
  return sum_ + static_cast<double>(logits_[static_cast<size_t>(last)]) - log_sum_;
}

}  // namespace penstock
