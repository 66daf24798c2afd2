// Finding a model by what the user typed.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "penstock/engine_config.h"

namespace penstock {

class Tokenizer;

// Path of the model to use: `name` as a path, else as a file of the models folder (with or without ".gguf"), else as a name
// (hub/hub.h), which may download it; the built-in story model when empty. The models folder is PENSTOCK_MODELS, or
// beside the installed program, or in the source tree.
// Error: kNotFound with the places searched.
Result<std::filesystem::path> find_model(const std::string& name);

// One more folder of models, behind PENSTOCK_MODELS and before the others.
void add_model_folder(std::string folder);

// Where models come with the program, in the order in which they are searched; those that exist.
std::vector<std::filesystem::path> model_folders();

// Whether the text is a repository's or another tool's name of a model, and no path and no file of the models folder.
bool is_hub_name(const std::string& name);

// How to call a model that was typed as `name` and found at `path`: by that name, else as the file is called.
std::string model_label(const std::string& name, const std::filesystem::path& path);

// Replaces config.model and config.draft_model by their paths. Speculation with the built-in model and without a
// draft_model gets the built-in draft.
Status find_models(EngineConfig& config);

// The tokenizer of a model, or of a tokenizer's own file: tokenizer.json, tokenizer.model or a tiktoken file.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& name);

// Prompt of the built-in story model.
inline constexpr const char* kStoryPrompt = "Once upon a time";

}  // namespace penstock
