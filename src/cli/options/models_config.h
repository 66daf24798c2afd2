// The models of `penstock serve`: several --model, or a file with a section for each.
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

// One model per text, a path or a name as of --model, with "NAME=" in front where it shall be called otherwise. One
// alone may be "", the built-in model. `common`: what the other flags say, for all of them.
// Error: kInvalidArgument.
Result<std::vector<ModelSettings>> models_of_flags(const std::vector<std::string>& models,
                                                   const ModelSettings& common);

// One adapter per text, "NAME=PATH". Error: kInvalidArgument.
Result<std::vector<AdapterSettings>> adapters_of_flags(const std::vector<std::string>& adapters);

// A JSON file, comments allowed:
//   {"memory": "16GiB", "models": [{"name": "small", "model": "stories", …}, …]}
// A section has `model`, and may have `name`, `aliases` (a list), every field of EngineConfig, `runner`, `chat_template`,
// `system_prompt`, `tool_call_parser`, `reasoning_parser`, `sampling` (an object with fields of SamplingParams), `lora_modules` (an object: path by name), `keys` (a
// list of ids of API keys), `load` ("start" or "first use"), `pinned`, `idle_timeout` (seconds), `price` (of a million tokens: `input`, `output`) and `memory`. `routes`: routes_config.h. Sizes are
// numbers of bytes or texts such as "512MiB". What a section does not say is as in `common`.
// Errors: kNotFound, kIo, kInvalidArgument: file, place, expected, got.
struct ModelsConfig {
  std::vector<ModelSettings> models;
  std::vector<RouteConfig> routes;
  int64_t memory = 0;
};
Result<ModelsConfig> read_models_config(const std::string& file, const ModelSettings& common);

}  // namespace penstock
