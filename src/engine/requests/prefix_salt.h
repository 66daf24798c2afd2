// What keeps requests apart whose prompts begin alike.
#pragma once
#include <string>
#include <vector>

#include "penstock/engine.h"

namespace penstock {

// Most tokens of a sequence, prompt included, with so many to come.
int reach_of(size_t n_prompt, int max_tokens, const EngineInfo& info);
// Whether it is rotated by the model's long frequencies (Batch::long_ropes).
bool takes_long_rope(int reach, const EngineInfo& info);

// Requests share cached blocks only when theirs is the same (root_hash() of it): it says the salt they bring, their adapter, and which
// kind they are of where the model has two.
std::string prefix_salt(const Request& request, int reach, const EngineInfo& info);
// Of requests without adapters that bring this salt: of each kind that there is.
std::vector<std::string> prefix_salts(const std::string& cache_salt, const EngineInfo& info);

}  // namespace penstock
