// Finds models by path or name.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "penstock/engine_config.h"

namespace penstock {

class Tokenizer;

// Returns the path of a model. `name` is a path, else a file of a models folder (with or without
// ".gguf"), else a model's name (hub/hub.h), which may be downloaded; empty: the built-in story
// model. The models folder is PENSTOCK_MODELS, or next to the installed program, or in the source
// tree. Errors: kNotFound, with the searched places.
Result<std::filesystem::path> find_model(const std::string& name);

// Adds a models folder, which is searched after PENSTOCK_MODELS and before the others.
void add_model_folder(std::string folder);

// Returns the existing models folders in search order.
std::vector<std::filesystem::path> model_folders();

// Whether the text is a model's name on a hub or in another tool, and neither a path nor a file of
// a models folder.
bool is_hub_name(const std::string& name);

// Returns the label of the model at `path`: `name` if is_hub_name(name), else the name of the file.
std::string model_label(const std::string& name, const std::filesystem::path& path);

// Replaces config.model and config.draft_model by their paths. If speculation uses the built-in
// model and draft_model is empty, sets the built-in draft model. Errors: those of find_model().
Status find_models(EngineConfig& config);

// Opens the tokenizer of a model, or a tokenizer file: tokenizer.json, tokenizer.model or a
// tiktoken file.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& name);

// The default prompt of the built-in story model.
inline constexpr const char* kStoryPrompt = "Once upon a time";

}  // namespace penstock
