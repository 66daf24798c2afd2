#include "sampling/sampler_state.h"

#include <algorithm>

namespace penstock {

std::shared_ptr<const SamplingSpec> SamplingSpec::make(const SamplingParams& params,
                                                       std::vector<TokenId> end_ids,
                                                       std::vector<std::vector<TokenId>> bad_words,
                                                       std::vector<TokenId> dry_breakers, uint64_t seed,
                                                       int vocab_size) {
  auto spec = std::make_shared<SamplingSpec>();
  spec->params = params;
  spec->params.logit_bias.clear();
  for (auto [token, bias] : params.logit_bias) {
    spec->params.logit_bias.emplace_back(token, std::clamp(bias, -100.0f, 100.0f));
  }
  spec->end_ids = std::move(end_ids);
  spec->bad_words = std::move(bad_words);
  std::erase_if(spec->bad_words, [](const std::vector<TokenId>& word) { return word.empty(); });
  std::sort(dry_breakers.begin(), dry_breakers.end());
  spec->dry_breakers = std::move(dry_breakers);
  if (!params.allowed_token_ids.empty()) {
    spec->allowed.assign((vocab_size + 31) / 32, 0);
    for (const TokenId token : params.allowed_token_ids) spec->allowed[token / 32] |= 1u << (token % 32);
  }
  spec->seed = seed;
  spec->needs_counts = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                       params.frequency_penalty != 0.0f;
  return spec;
}

TokenCounts::Entry& TokenCounts::slot(TokenId token) {
  const size_t mask = slots_.size() - 1;
  size_t i = (static_cast<uint32_t>(token) * 0x9E3779B9u) & mask;
  while (slots_[i].token != token && slots_[i].token != kNoToken) i = (i + 1) & mask;
  return slots_[i];
}

void TokenCounts::reserve(int n_distinct) {
  size_t size = 16;
  while (size < static_cast<size_t>(n_distinct) * 2) size *= 2;
  if (size <= slots_.size()) return;
  std::vector<Entry> old(size);
  old.swap(slots_);
  for (const Entry& entry : old) {
    if (entry.token != kNoToken) slot(entry.token) = entry;
  }
}

void TokenCounts::add(TokenId token, bool prompt) {
  if (slots_.size() < static_cast<size_t>(used_ + 1) * 2) reserve(std::max(8, used_ * 2));
  Entry& entry = slot(token);
  if (entry.token == kNoToken) {
    entry.token = token;
    ++used_;
  }
  if (prompt) {
    entry.in_prompt = true;
  } else {
    ++entry.n_output;
  }
}

void TokenCounts::remove_output(TokenId token) {
  Entry& entry = slot(token);
  if (entry.token == token && entry.n_output > 0) --entry.n_output;
}

SamplerState::SamplerState(std::shared_ptr<const SamplingSpec> shared, uint32_t which,
                           std::span<const TokenId> prompt, int max_output)
    : spec(std::move(shared)), index(which), mirostat_mu(2 * spec->params.mirostat_tau) {
  if (spec->needs_counts) {
    counts.reserve(static_cast<int>(prompt.size()) + std::min(max_output, 4096) + 1);
    for (const TokenId token : prompt) counts.add(token, true);
  }
}

}  // namespace penstock
