// penstock inspect: prints the metadata and tensors of a model file.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"
#include "cli/options/models.h"
#include "engine/open/tower_file.h"
#include "formats/weight_source.h"
#include "model/arch/read_config.h"

namespace penstock {
namespace {

struct InspectCommand {
  explicit InspectCommand(CLI::App& app) {
    app.add_option("-m,--model,model", model,
                   "GGUF file, Hugging Face directory or name; none is the built-in model");
    app.add_flag("--tensors", tensors, "list every tensor");
    app.add_flag(
        "--json", json,
        "print one JSON object {path, format, metadata, config, tower, tensors, types, bytes}");
  }
  int run() const;

  std::string model;
  bool tensors = false, json = false;
};

std::string shape_text(const TensorInfo& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

// Number of tensors, elements and bytes of one encoding.
struct Share {
  int64_t n_tensors = 0, n_elements = 0, bytes = 0;
};
std::map<std::string, Share> shares(const WeightSource& source) {
  std::map<std::string, Share> result;
  for (const TensorInfo& tensor : source.tensors()) {
    Share& share = result[std::string(quant_info(tensor.type).name)];
    ++share.n_tensors;
    share.n_elements += tensor.n_elements();
    share.bytes += static_cast<int64_t>(tensor.bytes.size());
  }
  return result;
}

nlohmann::json config_json(const ModelConfig& config) {
  const CacheSpec spec = config.cache_spec(KvDType::kF16, 16);
  int64_t token_bytes = 0;
  for (const KvLayerSpec& layer : spec.layers)
    token_bytes += CacheSpec::token_bytes(layer, spec.dtype);
  return {{"architecture", config.arch},
          {"name", config.name},
          {"n_layers", config.n_layers},
          {"n_heads", config.n_heads},
          {"n_kv_heads", config.n_kv_heads},
          {"head_dim", config.head_dim},
          {"model_dim", config.model_dim},
          {"ffn_dim", config.ffn_dim},
          {"vocab_size", config.vocab_size},
          {"max_seq_len", config.max_seq_len},
          {"n_experts", config.experts.count},
          {"n_active_experts", config.experts.count > 0 ? config.experts.routing.n_active : 0},
          {"parameters", config.n_parameters()},
          {"kv_bytes_per_token_f16", token_bytes}};
}

// Replaces long arrays (such as vocabularies) by their length.
nlohmann::json short_metadata(const nlohmann::json& metadata) {
  nlohmann::json result = nlohmann::json::object();
  for (const auto& [key, value] : metadata.items()) {
    if (value.is_array() && value.size() > 16) {
      result[key] = fmt::format("[{} values]", value.size());
    } else {
      result[key] = value;
    }
  }
  return result;
}

nlohmann::json tower_json(const TowerMemory& tower) {
  return {{"family", tower.family}, {"path", tower.path.string()}, {"bytes", tower.weight_bytes}};
}

void print_tower(const WeightSource& source, const Result<std::optional<TowerMemory>>& tower) {
  if (!tower) {
    fmt::print("  {:24} not used: {}\n", "tower", tower.error().message);
  } else if (*tower) {
    fmt::print("  {:24} {}, {}{}\n", "tower", (*tower)->family,
               format_bytes(static_cast<double>((*tower)->weight_bytes)),
               (*tower)->path == source.path() ? "" : ", " + (*tower)->path.string());
  }
}

void print_text(const WeightSource& source, const Result<ModelConfig>& config,
                const Result<std::optional<TowerMemory>>& tower, bool all_tensors) {
  fmt::print("{} ({})\n", source.path().string(),
             source.naming() == Naming::kGguf ? "GGUF" : "Hugging Face");
  if (config) {
    const nlohmann::json fields = config_json(*config);
    for (const auto& [key, value] : fields.items())
      fmt::print("  {:24} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
    const double per_token = fields["kv_bytes_per_token_f16"].get<double>();
    fmt::print("  {:24} {} (F16, {} tokens)\n", "KV cache of one sequence",
               format_bytes(per_token * config->max_seq_len), config->max_seq_len);
    print_tower(source, tower);
  } else {
    fmt::print("  not a model this program runs: {}\n", config.error().message);
  }
  fmt::print("metadata\n");
  const nlohmann::json metadata = short_metadata(source.config());
  for (const auto& [key, value] : metadata.items()) {
    std::string text = value.is_string()
                           ? value.get<std::string>()
                           : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (text.size() > 100) text = text.substr(0, 97) + "...";
    for (char& c : text) c = c == '\n' ? ' ' : c;
    fmt::print("  {:44} {}\n", key, text);
  }
  int64_t total = 0;
  fmt::print("tensors\n");
  for (const auto& [type, share] : shares(source)) {
    fmt::print("  {:8} {:5} tensors {:14} elements {:>10}\n", type, share.n_tensors,
               share.n_elements, format_bytes(static_cast<double>(share.bytes)));
    total += share.bytes;
  }
  fmt::print("  {:8} {:5} tensors {:>36}\n", "all", source.tensors().size(),
             format_bytes(static_cast<double>(total)));
  if (!all_tensors) return;
  for (const TensorInfo& tensor : source.tensors()) {
    fmt::print("  {:56} {:8} {:20} {:>10}\n", tensor.name, quant_info(tensor.type).name,
               shape_text(tensor), format_bytes(static_cast<double>(tensor.bytes.size())));
  }
}

int InspectCommand::run() const {
  auto path = find_model(model);
  if (!path) return fail(path.error());
  auto source = open_weights(*path);
  if (!source) return fail(source.error());
  const auto config = read_config(**source);
  const auto tower = tower_memory(**source, "");
  if (!json) {
    print_text(**source, config, tower, tensors);
    return kExitOk;
  }
  nlohmann::json object = {
      {"path", path->string()},
      {"format", (*source)->naming() == Naming::kGguf ? "gguf" : "huggingface"},
      {"metadata", short_metadata((*source)->config())}};
  object["config"] =
      config ? config_json(*config) : nlohmann::json{{"error", config.error().message}};
  if (tower && *tower) object["tower"] = tower_json(**tower);
  int64_t total = 0;
  object["types"] = nlohmann::json::object();
  for (const auto& [type, share] : shares(**source)) {
    object["types"][type] = {
        {"tensors", share.n_tensors}, {"elements", share.n_elements}, {"bytes", share.bytes}};
    total += share.bytes;
  }
  object["bytes"] = total;
  object["tensors"] = nlohmann::json::array();
  for (const TensorInfo& tensor : (*source)->tensors()) {
    object["tensors"].push_back({{"name", tensor.name},
                                 {"type", quant_info(tensor.type).name},
                                 {"shape", tensor.shape},
                                 {"bytes", tensor.bytes.size()}});
  }
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return kExitOk;
}

}  // namespace

Action add_inspect(CLI::App& app) {
  auto command = std::make_shared<InspectCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
