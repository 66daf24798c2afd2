// Salts of prefix hashes: they separate requests that must not share cached blocks although their
// prompts start alike.
#pragma once
#include <string>
#include <vector>

#include "penstock/engine.h"

namespace penstock {

// Returns the most tokens that a sequence can come to have, prompt included, with max_tokens to
// generate.
int reach_of(size_t n_prompt, int max_tokens, const EngineInfo& info);
// Whether a sequence of this reach is rotated by the model's long RoPE frequencies
// (Batch::long_ropes).
bool takes_long_rope(int reach, const EngineInfo& info);

// Returns the salt for root_hash(). Requests share cached blocks only when it is equal: it combines
// cache_salt, the adapter and, for models with two sets of RoPE frequencies, which of them the
// request uses.
std::string prefix_salt(const Request& request, int reach, const EngineInfo& info);
// Returns the salts of requests without adapters that bring cache_salt: one, or one for each set of
// RoPE frequencies.
std::vector<std::string> prefix_salts(const std::string& cache_salt, const EngineInfo& info);

}  // namespace penstock
