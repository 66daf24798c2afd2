// The list of drafters, and how one is made from the engine's configuration.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "draft/drafter.h"
#include "penstock/engine_config.h"

namespace penstock {

struct DrafterConfig {
  // a resolved config; engine.spec is the drafter's name
  EngineConfig engine;
  // weights of engine.draft_model if they are open already; or null
  std::unique_ptr<WeightSource> draft_source;
  std::vector<TokenId> corpus;  // tokens of engine.spec_corpus
  KvDType kv_dtype = KvDType::kF16;
  std::filesystem::path packed_cache;  // folder of packed weights; empty = none
};

// Makes the drafter of config.engine.spec, a row of THE list in drafters.cc. Errors:
// kInvalidArgument with the known names, kNotFound, kCorruptFile, kUnsupported (it does not fit the
// target).
Result<std::unique_ptr<Drafter>> make_drafter(DrafterConfig config, const DraftTarget& target);

// "draft, ngram, …"
std::string drafter_names();

}  // namespace penstock
