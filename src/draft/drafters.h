// Which drafters there are, and how one is made from the engine's configuration.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "draft/drafter.h"

namespace penstock {

struct DrafterConfig {
  std::string kind;                            // its row in the list: draft, ngram, …
  std::string draft_model;                     // draft: GGUF file or Hugging Face directory
  std::unique_ptr<WeightSource> draft_source;  // the same, opened already; or null
  std::vector<TokenId> corpus;                 // ngram: searched after the sequence's own tokens
  std::string heads;   // medusa: directory or file with the trained heads; "" = the target's own
  int exit_layer = 0;  // early-exit: layers that draft; 0 = automatic
  int max_num_seqs = 1;
  int max_num_batched_tokens = 2048;
  int max_model_len = 0;
  int block_size = 16;
  KvDType kv_dtype = KvDType::kF16;
  std::filesystem::path packed_cache;  // draft: folder of packed weights; empty = none
};

// Errors: kInvalidArgument with the names, kNotFound, kCorruptFile, kUnsupported (does not fit the target).
Result<std::unique_ptr<Drafter>> make_drafter(DrafterConfig config, const DraftTarget& target);

// "draft, ngram, …"
std::string drafter_names();

}  // namespace penstock
