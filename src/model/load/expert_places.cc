#include "model/load/expert_places.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <regex>

#include "model/arch/names.h"
#include "model/load/stages.h"

namespace penstock {
namespace {

struct Override {
  std::string text;
  std::regex pattern;
  bool on_host = false;
  bool found = false;  // a tensor
};

Error wrong_override(std::string_view text, const std::string& what) {
  return {ErrorCode::kInvalidArgument, fmt::format("override_tensor: {}: {}", text, what)};
}

Result<Override> parse_override(const std::string& text) {
  const size_t equals = text.rfind('=');
  const std::string place = equals == text.npos ? "" : text.substr(equals + 1);
  if (equals == 0 || (place != "CPU" && place != "CUDA0"))
    return tl::unexpected(
        wrong_override(text, "expected PATTERN=CPU or PATTERN=CUDA0, such as exps=CPU"));
  Override made{.text = text, .on_host = place == "CPU"};
  try {
    made.pattern = std::regex(text.substr(0, equals));
  } catch (const std::regex_error& error) {
    return tl::unexpected(
        wrong_override(text, fmt::format("expected a regular expression, got {}", error.what())));
  }
  return made;
}

Result<std::vector<Override>> parse_overrides(const std::string& list) {
  std::vector<Override> all;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    ASSIGN_OR_RETURN(all.emplace_back(), parse_override(list.substr(begin, end - begin)));
    begin = end + 1;
  }
  return all;
}

// Returns the first override whose pattern finds the name; null: none.
Override* find_override(std::vector<Override>& overrides, const std::string& name) {
  const auto found = std::ranges::find_if(overrides, [&](const Override& override_) {
    return std::regex_search(name, override_.pattern);
  });
  if (found == overrides.end()) return nullptr;
  found->found = true;
  return &*found;
}

// Names of llama.cpp for tensors that stay on the device, of a model and of a layer.
constexpr std::string_view kOthers[] = {"token_embd", "output", "output_norm"};
constexpr std::string_view kOthersOfLayer[] = {"attn_norm",   "attn_q",   "attn_k",      "attn_v",
                                               "attn_output", "ffn_norm", "ffn_gate_inp"};
constexpr std::string_view kDenseOfLayer[] = {"ffn_gate", "ffn_up", "ffn_down"};
constexpr std::string_view kSharedOfLayer[] = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};

// Refuses overrides to the CPU of what is no expert's.
Status check_others(std::vector<Override>& overrides, const ModelConfig& config) {
  const auto check = [&](const std::string& name) -> Status {
    const Override* const own = find_override(overrides, name);
    if (own == nullptr || !own->on_host) return {};
    return tl::unexpected(wrong_override(
        own->text, fmt::format("finds {} too: expected tensors of experts only (ffn_gate_exps, "
                               "ffn_up_exps, ffn_down_exps); the others are on the GPU",
                               name)));
  };
  for (const std::string_view name : kOthers)
    RETURN_IF_ERROR(check(fmt::format("{}.weight", name)));
  for (int layer = 0; layer < config.n_layers; ++layer) {
    const bool mixes = config.layers[static_cast<size_t>(layer)].moe;
    std::vector<std::string_view> names(std::begin(kOthersOfLayer), std::end(kOthersOfLayer));
    if (!mixes) names.insert(names.end(), std::begin(kDenseOfLayer), std::end(kDenseOfLayer));
    if (mixes && config.experts.shared_dim > 0)
      names.insert(names.end(), std::begin(kSharedOfLayer), std::end(kSharedOfLayer));
    for (const std::string_view name : names)
      RETURN_IF_ERROR(check(fmt::format("blk.{}.{}.weight", layer, name)));
  }
  return {};
}

// Returns where the overrides put a layer's experts; nullopt: they say nothing of it.
Result<std::optional<bool>> overridden(std::vector<Override>& overrides, const ModelConfig& config,
                                       int layer) {
  std::vector<std::string> names;
  for (const std::string_view part : {"gate", "up", "down"})
    if (part != "gate" || config.ffn.gated)
      names.push_back(fmt::format("blk.{}.ffn_{}_exps.weight", layer, part));
  const Override* const first = find_override(overrides, names[0]);
  for (const std::string& name : names) {
    const Override* const own = find_override(overrides, name);
    const bool differs = (own == nullptr) != (first == nullptr) ||
                         (own != nullptr && own->on_host != first->on_host);
    if (differs)
      return tl::unexpected(wrong_override(
          (own != nullptr ? own : first)->text,
          fmt::format("separates {} and {}: expected all of a layer's experts in one place",
                      names[0], name)));
  }
  if (first == nullptr) return std::optional<bool>();
  return std::optional<bool>(first->on_host);
}

}  // namespace

Result<ExpertPlaces> wished_places(const WeightSource& source, const ModelConfig& config,
                                   const ExpertWishes& wishes) {
  if (config.experts.count == 0) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: {}: expected a mixture of experts, got architecture {} without any",
                  !wishes.override_tensor.empty() ? "override_tensor"
                  : wishes.all                    ? "cpu_moe"
                                                  : "n_cpu_moe",
                  source.path().string(), config.arch);
  }
  ASSIGN_OR_RETURN(std::vector<Override> overrides, parse_overrides(wishes.override_tensor));
  RETURN_IF_ERROR(check_others(overrides, config));
  ExpertPlaces places(static_cast<size_t>(config.n_layers), false);
  for (int layer = 0; layer < config.n_layers; ++layer) {
    if (!config.layers[static_cast<size_t>(layer)].moe) continue;
    ASSIGN_OR_RETURN(const auto own, overridden(overrides, config, layer));
    places[static_cast<size_t>(layer)] = own.value_or(wishes.all || layer < wishes.n_first);
  }
  for (const Override& own : overrides)
    if (!own.found)
      return tl::unexpected(wrong_override(
          own.text,
          "finds no tensor of an expert, whose names are such as blk.0.ffn_up_exps.weight"));
  return places;
}

int64_t DeviceBytes::all() const { return std::accumulate(experts.begin(), experts.end(), others); }

// Codes get scales of 16 bits and whole tiles on a device, those of grids (IQ1 to IQ3) 4 bits each.
DeviceBytes device_bytes(const WeightSource& source, const ModelConfig& config) {
  constexpr double kMore = 1.03, kGridBits = 4.6875;
  const NameTable names = tensor_names(config, source.naming());
  const std::string embedding = std::string(names.embedding) + ".weight";
  DeviceBytes bytes{std::vector<int64_t>(static_cast<size_t>(config.n_layers), 0)};
  for (const TensorInfo& tensor : source.tensors()) {
    if (is_of_table(tensor.name, config, names)) continue;
    // What the loader passes over.
    if (is_of_further_tokens(tensor.name) || is_ignorable_tensor(tensor.name) ||
        layer_of(tensor.name, names.layer) >= config.n_layers)
      continue;
    const QuantTypeInfo& type = quant_info(tensor.type);
    const std::string_view name = type.name;
    double size = static_cast<double>(tensor.bytes.size());
    const double bits = 8.0 * type.block_bytes / type.block_size;
    if (name.starts_with("iq1") || name.starts_with("iq2") || name.starts_with("iq3"))
      size *= std::max(1.0, kGridBits / bits);
    const auto own = static_cast<int64_t>(size * kMore);
    const int layer = expert_layer_of(source, tensor, config, names);
    (layer >= 0 ? bytes.experts[static_cast<size_t>(layer)] : bytes.others) += own;
    if (layer < 0 && !config.embedding.tied && tensor.name.ends_with(embedding))
      bytes.looked_up += own;
  }
  return bytes;
}

ExpertPlaces fitting_places(const DeviceBytes& bytes, int64_t room) {
  ExpertPlaces places(bytes.experts.size(), false);
  int64_t left = bytes.all();
  for (size_t layer = 0; layer < places.size() && left > room; ++layer) {
    places[layer] = bytes.experts[layer] > 0;
    left -= bytes.experts[layer];
  }
  return places;
}

int64_t step_bytes(const ModelConfig& config, int n_tokens, int n_outputs) {
  const int64_t dim = config.model_dim, chosen = config.experts.routing.n_active;
  const int64_t of_token =
      8 * dim + 3 * (config.q_dim() + config.widest_ffn()) +
      3 * int64_t{config.experts.shared_dim} + config.experts.count +
      chosen * (2 * dim + 3 * int64_t{config.experts.ffn_dim + config.experts.group_dim}) +
      (config.profiles.width > 0 ? int64_t{config.most_heads()} * (config.profiles.extent + 1) : 0);
  const int64_t values = n_tokens * of_token + 2 * int64_t{n_outputs} * config.vocab_size;
  return static_cast<int64_t>(sizeof(float)) * values + (int64_t{64} << 20);
}

std::string describe(const ExpertPlaces& places) {
  std::string text;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i]) continue;
    size_t last = i;
    while (last + 1 < places.size() && places[last + 1]) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
    if (last > i) text += fmt::format("-{}", last);
    i = last;
  }
  return fmt::format("{} of {}", text.empty() ? "none" : text, places.size());
}

}  // namespace penstock
