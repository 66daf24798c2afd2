// The models of `penstock serve`: several --model flags, or a file with a section for each model.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/services/config.h"

namespace penstock {

struct RunnerRow {
  std::string_view name;
  Runner runner;
};
std::span<const RunnerRow> runners();

// Returns the settings of the models given by --model: paths or names, optionally preceded by
// "NAME=", the name in requests. A single one may be "", the built-in model. common: settings by
// the other flags, for all models. Errors: kInvalidArgument.
Result<std::vector<ModelSettings>> models_of_flags(const std::vector<std::string>& models,
                                                   const ModelSettings& common);

// Returns the settings of adapters that are given as "NAME=PATH". Errors: kInvalidArgument.
Result<std::vector<AdapterSettings>> adapters_of_flags(const std::vector<std::string>& adapters);

// Reads a JSON file, in which comments are allowed:
//   {"memory": "16GiB", "models": [{"name": "small", "model": "stories", …}, …]}
// A section has `model`, and may have `name`, `aliases` (a list), every field of EngineConfig,
// `runner`, `chat_template`, `system_prompt`, `tool_call_parser`, `reasoning_parser`, `sampling`
// (an object with fields of SamplingParams), `lora_modules` (an object: path by name), `keys` (a
// list of ids of API keys), `load` ("start" or "first use"), `pinned`, `idle_timeout` (seconds),
// `price` (of a million tokens: `input`, `output`) and `memory`. `routes`: routes_config.h. Sizes
// are numbers of bytes or texts such as "512MiB". Fields that a section does not have are taken
// from `common`. Errors: kNotFound, kIo; kInvalidArgument, with file, place, expected and given
// value.
struct ModelsConfig {
  std::vector<ModelSettings> models;
  std::vector<RouteConfig> routes;
  int64_t memory = 0;
};
Result<ModelsConfig> read_models_config(const std::string& file, const ModelSettings& common);

}  // namespace penstock
