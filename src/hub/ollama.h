// The models of Ollama: manifests/HOST/NAMESPACE/MODEL/TAG is a JSON file that names blobs by their
// SHA-256.
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

// Returns all manifests in the folder, sorted by name. Names omit the host, which is Ollama's
// registry or the Hugging Face hub; models of other registries are not listed.
std::vector<OllamaModel> list_ollama(const std::filesystem::path& folder);

// Returns the path of the model's GGUF blob. Errors: kNotFound; kCorruptFile, for a malformed
// manifest; kUnsupported, for a model that is not a single GGUF file (with an adapter, or with
// separate tensors).
Result<std::filesystem::path> find_ollama(const std::filesystem::path& folder,
                                          const ModelName& name);

// Returns the path of the GGUF blob of a manifest. where: name of the manifest in messages. Exposed
// for the fuzzer.
Result<std::filesystem::path> ollama_blob(const std::filesystem::path& folder,
                                          std::string_view manifest, std::string_view where);

}  // namespace penstock
