// Log-likelihoods of given tokens, by the engine's prompt_logprobs. Shared by `score` and
// `perplexity`.
#pragma once
#include <functional>
#include <vector>

#include "penstock/llm.h"

namespace penstock {

// Returns for each sequence [size - 1] values: the natural log-probability of token i given tokens
// 0 … i - 1, for i >= 1. progress(done, total) counts sequences. Errors: kCancelled after Ctrl-C.
Result<std::vector<std::vector<float>>> log_likelihoods(
    LLM& llm, std::span<const std::vector<TokenId>> sequences,
    const std::function<void(size_t done, size_t total)>& progress = {});

}  // namespace penstock
