// Opening an engine on weights that are open already (whoever made the tokenizer has them).
#pragma once
#include <functional>
#include <memory>

#include "cache/cache_spec.h"
#include "engine/schedule/policies.h"
#include "formats/weight_source.h"
#include "penstock/engine.h"

namespace penstock {

using LoadProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// What an engine needs of files beside its own model, in token form or opened already.
struct SpeculationInputs {
  std::unique_ptr<WeightSource> draft_source;  // of config.draft_model; null = opened when needed
  std::vector<TokenId> corpus;                 // of config.spec_corpus
  double acceptance = -1;                      // >= 0: the drafter's guesses are replaced (draft/synthetic.h)
};

// config.model is not read. Errors: as Engine::open.
Result<std::unique_ptr<Engine>> open_engine(std::unique_ptr<WeightSource> source, const EngineConfig& config,
                                            const LoadProgress& progress = {}, SpeculationInputs inputs = {});

// Whether the model makes text; encoders give vectors only. Errors: those of reading a configuration.
Result<bool> gives_text(const WeightSource& source);

// The name of the backend that a configuration wants. Each of several ranks wants a GPU of its own, and engines side by side share
// weights in the host's memory: "auto" is the CPU to them, and they get what they are told.
std::string backend_of(const EngineConfig& config);

// Every 0 and "" that means "automatic" or "the preset's" replaced by its number, apart from those that
// depend on the model.
Result<EngineConfig> resolve_preset(EngineConfig config);

// What `spec_length` means: 0 for auto, -1 for what is no length.
int spec_length(const std::string& text);

// REQUIRES: a resolved config.
PolicyConfig policy_config(const EngineConfig& config);

struct SchedulerConfig;
// Without a swap space. REQUIRES: a resolved config.
SchedulerConfig scheduler_config(const EngineConfig& config, int max_model_len);

struct CachePlan {
  std::vector<int> n_blocks;  // per group
  std::vector<int> windows;   // per group, 0 = all tokens, kStateWindow = states
  int64_t bytes = 0;
  int64_t max_tokens = 0;  // that group 0 holds
};
// How many blocks of each group fit into `budget` bytes, never more than max_num_seqs sequences of max_len
// need.
CachePlan plan_cache(const CacheSpec& spec, int64_t budget, int max_num_seqs, int max_len, int max_chunk);

}  // namespace penstock
