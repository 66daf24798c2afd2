// Models by name: found in the folders that this and other tools filled, else downloaded.
//
// The narrow way in: everything else in this room serves these functions. They may be called from any thread; two processes
// may fetch the same model at once.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/settings.h"

namespace penstock {

struct FoundModel {
  std::filesystem::path path;  // a GGUF file (the first of its shards), or a folder with a checkpoint
  std::string name;            // as it would be typed: "org/name:model-Q4_K_M.gguf"
  std::string source;          // "Hugging Face cache", "LM Studio", "Ollama"
  int64_t bytes = 0;           // of all its files
  std::string
      missing;  // what it may lack, in words: a vocabulary, or files that its repository has; "" is nothing
};

// Looks on disk only. Errors: kNotFound with the places searched and what was wrong there; kInvalidArgument for a name that
// is none.
Result<FoundModel> find_on_disk(const HubSettings& settings, std::string_view name);

// Every model on disk that can be typed as a name.
std::vector<FoundModel> models_on_disk(const HubSettings& settings);

}  // namespace penstock
