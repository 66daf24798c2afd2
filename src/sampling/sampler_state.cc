#include "sampling/sampler_state.h"

#include <algorithm>

#include "kernels/philox.h"

namespace penstock {

namespace {

using Biases = std::vector<std::pair<TokenId, float>>;

// Merges and clamps biases: those of a token that is named twice are added.
Biases one_bias_each(Biases biases) {
  std::ranges::stable_sort(biases, {}, &Biases::value_type::first);
  Biases result;
  for (const auto& [token, bias] : biases) {
    if (result.empty() || result.back().first != token) result.emplace_back(token, 0.0f);
    result.back().second += std::clamp(bias, -100.0f, 100.0f);
  }
  return result;
}

// Returns a mask of the tokens that are not banned; empty if they are few, which become one edit
// each per draw.
std::vector<uint32_t> mask_without(const std::vector<TokenId>& banned, int vocab_size) {
  constexpr size_t kMostEdits = 64;
  std::vector<uint32_t> mask;
  if (banned.size() <= kMostEdits) return mask;
  mask.assign(static_cast<size_t>(vocab_size + 31) / 32, ~0u);
  for (const TokenId token : banned) mask[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
  return mask;
}

}  // namespace

std::shared_ptr<const SamplingSpec> SamplingSpec::make(SamplingParams wanted, TokenForms forms,
                                                       uint64_t seed, int vocab_size) {
  auto spec = std::make_shared<SamplingSpec>();
  static_cast<TokenForms&>(*spec) = std::move(forms);
  spec->params = std::move(wanted);
  SamplingParams& params = spec->params;
  spec->vocab_size = vocab_size;
  if (params.top_p == 0 && params.mirostat == 0) params.top_p = 1, params.temperature = 0;
  params.logit_bias = one_bias_each(std::move(params.logit_bias));
  std::erase_if(spec->bad_words, [](const std::vector<TokenId>& word) { return word.empty(); });
  std::ranges::sort(spec->dry_breakers);
  if (!params.allowed_token_ids.empty()) {
    spec->allowed.assign((vocab_size + 31) / 32, 0);
    for (const TokenId token : params.allowed_token_ids)
      spec->allowed[token / 32] |= 1u << (token % 32);
  }
  spec->not_banned = mask_without(params.banned_token_ids, vocab_size);
  spec->seed = seed;
  spec->penalizes = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                    params.frequency_penalty != 0.0f;
  spec->needs_counts = spec->penalizes && params.penalty_last_n < 0;
  return spec;
}

uint64_t seed_of_request(uint64_t engine_seed, RequestId request) {
  return mix_seed(engine_seed, static_cast<uint64_t>(request));
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
  if (spec->matcher) matcher = spec->matcher->fork();
  if (matcher) matcher->reserve(max_output);
  if (matcher && spec->completes()) matcher->limit(max_output);
}

SamplerState SamplerState::fork(uint32_t which) const {
  SamplerState other;
  other.spec = spec;
  other.index = which;
  other.counts = counts;
  other.mirostat_mu = mirostat_mu;
  if (matcher) other.matcher = matcher->fork();
  return other;
}

bool SamplerState::append(TokenId token) {
  if (matcher && !matcher->append(token)) return false;
  if (spec->needs_counts) counts.add(token, false);
  return true;
}

void SamplerState::remove(TokenId token) {
  if (matcher) matcher->rollback(1);
  if (spec->needs_counts) counts.remove_output(token);
}

}  // namespace penstock
