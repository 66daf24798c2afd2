// The models that Ollama keeps: manifests/HOST/NAMESPACE/MODEL/TAG is a JSON file that names blobs by their SHA-256.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/model_name.h"

namespace penstock {

struct OllamaModel {
  ModelName name;
  std::filesystem::path manifest;
};

// Every manifest in the folder, by name. What a name of three parts has as host is left out when it is Ollama's own or the
// Hugging Face hub's; models of other registries are not listed.
std::vector<OllamaModel> list_ollama(const std::filesystem::path& folder);

// The GGUF blob of that model. Errors: kNotFound; kCorruptFile for a manifest that is no manifest; kUnsupported for a model
// that is more than one GGUF file (an adapter on it, tensors one by one).
Result<std::filesystem::path> find_ollama(const std::filesystem::path& folder, const ModelName& name);

// The blob of a manifest's model; `where` names it in messages. Exposed for the fuzzer.
Result<std::filesystem::path> ollama_blob(const std::filesystem::path& folder, std::string_view manifest,
                                          std::string_view where);

}  // namespace penstock
