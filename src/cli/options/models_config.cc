#include "cli/options/models_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/regular_file.h"
#include "cli/options/config_section.h"
#include "cli/options/flags.h"
#include "cli/options/models.h"
#include "cli/options/routes_config.h"
#include "frontend/params_json.h"

namespace penstock {
namespace {

void read_engine(Section& section, EngineConfig& config) {
  EngineConfig::visit(config, [&](const char* name, auto& value, const char*) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(value)>, int64_t>) {
      section.read_bytes(name, value);
    } else {
      section.read(name, value);
    }
  });
}

void read_chat(Section& section, ChatConfig& config) {
  section.read("chat_template", config.chat_template);
  section.read("system_prompt", config.system_prompt);
  section.read("tool_call_parser", config.tool_call_parser);
  section.read("reasoning_parser", config.reasoning_parser);
  section.read("trust_request_chat_template", config.trust_request_template);
  section.read("ignore_tools_without_place", config.ignore_tools_without_place);
}

void read_sampling(Section& section, SectionJson& sampling) {
  const SectionJson* given = section.find("sampling");
  if (given == nullptr) return;
  if (!given->is_object()) return section.fail("sampling", "an object", *given);
  SamplingParams probe;
  std::vector<std::string> known;
  SamplingParams::visit(probe, [&](const char* name, const auto&, const char*, const auto&) {
    known.emplace_back(name);
  });
  for (const auto& [name, value] : given->items()) {
    if (std::ranges::find(known, name) == known.end())
      return section.fail("sampling", fmt::format("fields of SamplingParams, not {}", name),
                          *given);
  }
  if (const Status read = params_from_json(*given, probe); !read)
    return section.fail("sampling", read.error().message, *given);
  sampling = *given;
}

void read_adapters(Section& section, std::vector<AdapterSettings>& adapters) {
  const SectionJson* given = section.find("lora_modules");
  if (given == nullptr) return;
  adapters.clear();
  if (!given->is_object()) return section.fail("lora_modules", "an object: path by name", *given);
  for (const auto& [name, path] : given->items()) {
    if (name.empty() || !path.is_string() || path.get<std::string>().empty())
      return section.fail("lora_modules", "an object: path by name", *given);
    adapters.push_back({name, path.get<std::string>()});
  }
}

void read_lifetime(Section& section, ModelSettings& model) {
  std::string load = model.at_start ? "start" : "first use";
  section.read("load", load);
  if (load != "start" && load != "first use")
    section.fail("load", "\"start\" or \"first use\"", load);
  model.at_start = load == "start";
  section.read("pinned", model.pinned);
  double idle = 0;
  section.read("idle_timeout", idle);
  if (!(idle >= 0 && idle <= 1e7))
    section.fail("idle_timeout", "0 to 1e7 seconds", idle);
  else
    model.idle_timeout = std::chrono::milliseconds(static_cast<int64_t>(idle * 1000));
  section.read_bytes("memory", model.memory);
}

// Reads the prices per million tokens.
Status read_price(Section& section, const std::string& place, TokenPrice& price) {
  const SectionJson* given = section.find("price");
  if (given == nullptr) return {};
  if (!given->is_object()) {
    section.fail("price", "an object with input, output, cached_input", *given);
    return {};
  }
  Section fields(*given, place + ".price");
  const std::pair<const char*, double*> all[] = {
      {"input", &price.input}, {"output", &price.output}, {"cached_input", &price.cached_input}};
  for (const auto& [name, value] : all) {
    fields.read(name, *value);
    if (given->contains(name) && !(*value >= 0 && *value <= 1e9))
      fields.fail(name, "0 to 1e9", (*given)[name]);
  }
  return fields.check();
}

Result<ModelSettings> read_model(const SectionJson& fields, const std::string& place,
                                 const ModelSettings& common) {
  ModelSettings model = common;
  Section section(fields, place);
  std::string name, runner = "auto";
  std::vector<std::string> aliases;
  section.read("name", name);
  section.read("aliases", aliases);
  section.read("keys", model.keys);
  section.read("runner", runner);
  read_engine(section, model.engine);
  read_chat(section, model.chat);
  read_sampling(section, model.sampling);
  read_adapters(section, model.adapters);
  read_lifetime(section, model);
  RETURN_IF_ERROR(read_price(section, place, model.price));
  const auto known = std::ranges::find(runners(), runner, &RunnerRow::name);
  if (known == runners().end())
    section.fail("runner", "auto, generate or pooling", runner);
  else
    model.runner = known->runner;
  if (model.engine.model.empty()) section.fail("model", "a path or a name", nullptr);
  RETURN_IF_ERROR(section.check());
  ASSIGN_OR_RETURN(
      auto one, models_of_flags(
                    {name.empty() ? model.engine.model : name + "=" + model.engine.model}, model));
  one.front().names.insert(one.front().names.end(), aliases.begin(), aliases.end());
  return std::move(one.front());
}

}  // namespace

std::span<const RunnerRow> runners() {
  static constexpr RunnerRow kRunners[] = {
      {"auto", Runner::kAuto}, {"generate", Runner::kGenerate}, {"pooling", Runner::kPooling}};
  return kRunners;
}

Result<std::vector<ModelSettings>> models_of_flags(const std::vector<std::string>& models,
                                                   const ModelSettings& common) {
  std::vector<ModelSettings> all;
  for (const std::string& text : models.empty() ? std::vector<std::string>{""} : models) {
    ModelSettings model = common;
    const size_t equals = text.find('=');
    std::error_code none;
    const bool named = equals != std::string::npos && !std::filesystem::exists(text, none) &&
                       text.substr(0, equals).find('/') == std::string::npos;
    const std::string given = named ? text.substr(equals + 1) : text;
    if (named && (equals == 0 || given.empty()))
      return errorf(ErrorCode::kInvalidArgument, "--model: expected NAME=MODEL, got {}", text);
    model.engine.model = given;
    RETURN_IF_ERROR(find_models(model.engine));
    if (named)
      model.names = {text.substr(0, equals)};
    else if (model.names.empty() && is_hub_name(given))
      model.names = {given};
    all.push_back(std::move(model));
  }
  return all;
}

Result<std::vector<AdapterSettings>> adapters_of_flags(const std::vector<std::string>& adapters) {
  std::vector<AdapterSettings> all;
  for (const std::string& text : adapters) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      return errorf(ErrorCode::kInvalidArgument, "--lora-modules: expected NAME=PATH, got {}",
                    text);
    all.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return all;
}

Result<ModelsConfig> read_models_config(const std::string& file, const ModelSettings& common) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  const auto text = read_regular_file(file, kMostBytes);
  if (!text) return errorf(text.error().code, "--models-config: {}", text.error().message);
  ASSIGN_OR_RETURN(SectionJson fields,
                   read_bounded_json<SectionJson>(*text, ErrorCode::kInvalidArgument, file,
                                                  kMaxJsonNesting, true));
  if (!fields.is_object() || !fields["models"].is_array() || fields["models"].empty())
    return errorf(ErrorCode::kInvalidArgument, "{}: expected an object with a list of models",
                  file);
  ModelsConfig config;
  Section top(fields, file);
  top.read_bytes("memory", config.memory);
  const SectionJson& models = *top.find("models");
  const SectionJson* const routes = top.find("routes");
  RETURN_IF_ERROR(top.check());
  for (size_t i = 0; i < models.size(); ++i) {
    ASSIGN_OR_RETURN(auto model,
                     read_model(models[i], fmt::format("{}: models[{}]", file, i), common));
    config.models.push_back(std::move(model));
  }
  if (routes != nullptr) {
    ASSIGN_OR_RETURN(config.routes, read_routes(*routes, file + ": routes"));
  }
  return config;
}

}  // namespace penstock
