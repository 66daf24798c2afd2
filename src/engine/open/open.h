// Opens an engine on weights that are open already (the caller has opened them for the tokenizer).
#pragma once
#include <functional>
#include <memory>

#include "engine/schedule/policies.h"
#include "formats/weight_source.h"
#include "ops/cache_spec.h"
#include "penstock/engine.h"

namespace penstock {

using LoadProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// Inputs of drafters from files other than the model's, opened or tokenized by the caller.
struct SpeculationInputs {
  // weights of config.draft_model; null = opened when needed
  std::unique_ptr<WeightSource> draft_source;
  std::vector<TokenId> corpus;  // tokens of config.spec_corpus
  // >= 0: acceptance rate of a synthetic drafter (draft/synthetic.h)
  double acceptance = -1;
};

// Opens an engine on `source`; config.model is not read. Errors: as Engine::open.
Result<std::unique_ptr<Engine>> open_engine(std::unique_ptr<WeightSource> source,
                                            const EngineConfig& config,
                                            const LoadProgress& progress = {},
                                            SpeculationInputs inputs = {});

// Whether the model generates text; encoders give vectors only. Errors: those of reading a
// configuration.
Result<bool> gives_text(const WeightSource& source);

// Returns the name of the backend for config.backend. With several ranks or engines "auto" is the
// CPU, since each rank would need its own GPU, and engines share the weights in host memory; a
// backend that is named is used.
std::string backend_of(const EngineConfig& config);

// Resolves a config: replaces every 0 and "" that means "automatic" or "the preset's" by its value,
// except those that depend on the model. Errors: kInvalidArgument.
Result<EngineConfig> resolve_preset(EngineConfig config);

// Parses the value of `spec_length`: 0 for "auto", -1 for an invalid length.
int spec_length(const std::string& text);

// REQUIRES: a resolved config.
PolicyConfig policy_config(const EngineConfig& config);

struct SchedulerConfig;
// REQUIRES: a resolved config.
SchedulerConfig scheduler_config(const EngineConfig& config, int max_model_len);

struct CachePlan {
  std::vector<int> n_blocks;  // per group
  // per group, 0 = all tokens, kStateWindow = states
  std::vector<int> windows;
  int64_t bytes = 0;
  int64_t max_tokens = 0;  // tokens that group 0 holds
};
// Returns how many blocks of each group fit into `budget` bytes, at most what max_num_seqs
// sequences of max_len need.
CachePlan plan_cache(const CacheSpec& spec, int64_t budget, int max_num_seqs, int max_len,
                     int max_chunk);

}  // namespace penstock
