// Readers of the configuration of experts and of their routing.
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"

namespace penstock {

void read_experts(ConfigReader& reader, ModelConfig& config) {
  Key count{"expert_count", "num_experts"};
  for (const std::string_view other : {"num_local_experts", "n_routed_experts", "moe_num_experts"})
    if (!reader.has(count) && reader.has({"", other})) count.hf = other;
  config.experts.count = reader.integer(count, 1, 4096);
  Key active{"expert_used_count", "num_experts_per_tok"};
  for (const std::string_view other : {"top_k_experts", "moe_k"})
    if (!reader.has(active) && reader.has({"", other})) active.hf = other;
  config.experts.routing.n_active = reader.integer(active, 1, config.experts.count);
  config.experts.ffn_dim = reader.integer({"expert_feed_forward_length", "moe_intermediate_size"},
                                          1, 1 << 20, std::max(config.ffn_dim, 1));
  config.experts.routing.normalize = reader.flag({"expert_weights_norm", ""}, true);
  for (LayerConfig& layer : config.layers) layer.moe = true;
}

void read_mlp_layer_types(ConfigReader& reader, ModelConfig& config) {
  const nlohmann::json* types = reader.find({"", "mlp_layer_types"});
  if (types == nullptr) return;
  if (!types->is_array() || types->size() != config.layers.size()) {
    return reader.fail(
        ErrorCode::kCorruptFile,
        fmt::format("mlp_layer_types: expected a list of {} layers", config.layers.size()));
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const nlohmann::json& type = (*types)[i];
    if (type != "sparse" && type != "dense") {
      return reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("mlp_layer_types: expected sparse or dense, got {}", type.dump()));
    }
    config.layers[i].moe = type == "sparse";
  }
}

void describe_mlp_layer_types(ConfigWriter& writer, const ModelConfig& config) {
  nlohmann::json types = nlohmann::json::array();
  for (const LayerConfig& layer : config.layers) types.push_back(layer.moe ? "sparse" : "dense");
  writer.set({"", "mlp_layer_types"}, types);
}

int leading_dense_layers(const ModelConfig& config) {
  const auto first = std::ranges::find(config.layers, true, &LayerConfig::moe);
  return static_cast<int>(first - config.layers.begin());
}

void read_sigmoid_routing(ConfigReader& reader, ModelConfig& config) {
  ExpertRouting& routing = config.experts.routing;
  routing.score = RouterScore::kSigmoid;
  if (reader.integer({"expert_gating_func", ""}, 0, 16, 2) != 2)
    reader.fail(ErrorCode::kUnsupported, "expert_gating_func: expected 2 (sigmoid)");
  routing.normalize = reader.flag({"expert_weights_norm", "norm_topk_prob"}, true);
  routing.sum_eps = 1e-20f;
  routing.scale =
      reader.number({"expert_weights_scale", "routed_scaling_factor"}, -1e6f, 1e6f, 1.0f);
  routing.n_groups = reader.integer({"expert_group_count", "n_group"}, 1, kMaxExpertGroups, 1);
  // With several groups, a GGUF file must state how many are active.
  const bool said = reader.gguf() && routing.n_groups > 1;
  routing.n_active_groups =
      reader.integer({"expert_group_used_count", "topk_group"}, 1, routing.n_groups,
                     said ? std::nullopt : std::optional(1));
  routing.group_top = 2;
  config.experts.selection_bias = true;
  check_expert_groups(reader, config);
}

void check_expert_groups(ConfigReader& reader, const ModelConfig& config) {
  const ExpertRouting& routing = config.experts.routing;
  const int per_group = config.experts.count / routing.n_groups;
  if (config.experts.count % routing.n_groups != 0 ||
      per_group * routing.n_active_groups < routing.n_active) {
    reader.fail(ErrorCode::kCorruptFile, fmt::format("{} of {} groups of experts: expected equal "
                                                     "groups of {} experts with {} to choose from",
                                                     routing.n_active_groups, routing.n_groups,
                                                     config.experts.count, routing.n_active));
  }
}

void describe_sigmoid_routing(ConfigWriter& writer, const ModelConfig& config) {
  const ExpertRouting& routing = config.experts.routing;
  writer.set({"expert_gating_func", ""}, 2);
  writer.set({"expert_weights_norm", "norm_topk_prob"}, routing.normalize);
  writer.set({"expert_weights_scale", "routed_scaling_factor"}, routing.scale);
  writer.set({"expert_group_count", "n_group"}, routing.n_groups);
  writer.set({"expert_group_used_count", "topk_group"}, routing.n_active_groups);
}

}  // namespace penstock
