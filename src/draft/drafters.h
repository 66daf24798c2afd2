// Which drafters there are, and how one is made from the engine's configuration.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "draft/drafter.h"
#include "penstock/engine_config.h"

namespace penstock {

struct DrafterConfig {
  EngineConfig engine;  // spec is the drafter's row in the list; all numbers are settled
  std::unique_ptr<WeightSource> draft_source;  // engine.draft_model, opened already; or null
  std::vector<TokenId> corpus;                 // of engine.spec_corpus
  KvDType kv_dtype = KvDType::kF16;
  std::filesystem::path packed_cache;  // folder of packed weights; empty = none
};

// Errors: kInvalidArgument with the names, kNotFound, kCorruptFile, kUnsupported (does not fit the target).
Result<std::unique_ptr<Drafter>> make_drafter(DrafterConfig config, const DraftTarget& target);

// "draft, ngram, …"
std::string drafter_names();

}  // namespace penstock
