// Finding a model by what the user typed.
#pragma once
#include <filesystem>
#include <string>

#include "base/result.h"
#include "penstock/engine_config.h"

namespace penstock {

// Path of the model to use: `name` as a path, else as a file of the models folder (with or without ".gguf"); the built-in
// story model when empty. The models folder is PENSTOCK_MODELS, or beside the installed program, or in the source tree.
// Error: kNotFound with the places searched.
Result<std::filesystem::path> find_model(const std::string& name);

// Replaces config.model and config.draft_model by their paths. Speculation with the built-in model and without a
// draft_model gets the built-in draft.
Status find_models(EngineConfig& config);

// Prompt of the built-in story model.
inline constexpr const char* kStoryPrompt = "Once upon a time";

}  // namespace penstock
