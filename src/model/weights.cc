#include "model/weights.h"

#include <spdlog/spdlog.h>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/log.h"
#include "model/names.h"
#include "model/rope.h"
#include "model/stages.h"
#include "model/weight_loader.h"

namespace penstock {
namespace {}  // namespace

// Of one head a query, or a query and its gate.
TensorLoader::Range WeightLoader::query_rows(int layer) const {
  const int width = config_.head_dim_of(layer) * (config_.attention_gate ? 2 : 1);
  return times(cuts_.heads(), width);
}

Status WeightLoader::load_qkv(int i, const std::string& at, LayerWeights& layer) {
  const int q = config_.q_dim_of(i), kv = config_.kv_dim_of(i), dim = config_.model_dim;
  const Range own_q = query_rows(i), own_kv = times(cuts_.kv_heads(i), config_.head_dim_of(i));
  const LayerConfig& kind = config_.layers[static_cast<size_t>(i)];
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  if (kind.kv_layer >= 0) {
    pass_over_shared(at);
    return linear_rows(name(names_.q), q, dim, own_q, layer.q);
  }
  if (!names_.qkv.empty() && !config_.attention_gate && has_matrix(name(names_.qkv) + ".weight")) {
    const int rows[] = {q, kv, kv};
    LinearWeights* const parts[] = {&layer.q, &layer.k, &layer.v};
    const std::vector<int> order = config_.qkv_by_group ? rows_by_group(config_) : std::vector<int>();
    const Range own[] = {own_q, own_kv, own_kv};
    return fused(name(names_.qkv), rows, dim, parts, order, own);
  }
  RETURN_IF_ERROR(linear_rows(name(names_.q), config_.attention_gate ? 2 * q : q, dim, own_q, layer.q));
  RETURN_IF_ERROR(linear_rows(name(names_.k), kv, dim, own_kv, layer.k));
  return kind.keys_as_values ? Status() : linear_rows(name(names_.v), kv, dim, own_kv, layer.v);
}

// Published checkpoints hold keys' and values' tensors of layers that use those of an earlier one.
void WeightLoader::pass_over_shared(const std::string& at) {
  for (const std::string_view part : {names_.k, names_.v, names_.k_norm})
    pass_over(at + std::string(part) + ".");
}

Status WeightLoader::load_dense(int i, const std::string& at, LayerWeights& layer) {
  const int width = config_.ffn_dim_of(i);
  const Range own = cuts_.ffn(i);
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const bool separate = !names_.gate.empty() && has_matrix(name(names_.gate) + ".weight");
  const bool both = !names_.gate_up.empty() && has_matrix(name(names_.gate_up) + ".weight");
  if (!config_.gated_ffn) {
    RETURN_IF_ERROR(linear_rows(name(names_.up), width, config_.model_dim, own, layer.up));
  } else if (!separate && both) {
    const int rows[] = {width, width};
    LinearWeights* parts[] = {&layer.gate, &layer.up};
    if (names_.up_before_gate) std::swap(parts[0], parts[1]);
    const Range owns[] = {own, own};
    RETURN_IF_ERROR(fused(name(names_.gate_up), rows, config_.model_dim, parts, {}, owns));
  } else {
    RETURN_IF_ERROR(linear_rows(name(names_.gate), width, config_.model_dim, own, layer.gate));
    RETURN_IF_ERROR(linear_rows(name(names_.up), width, config_.model_dim, own, layer.up));
  }
  if (config_.sub_norms) RETURN_IF_ERROR(norm(name(names_.ffn_sub_norm), width, layer.ffn_sub_norm));
  return linear_columns(name(names_.down), config_.model_dim, width, own, layer.down);
}

Status WeightLoader::load_qk_norms(int i, const std::string& at, LayerWeights& layer) {
  const bool stores = config_.layers[static_cast<size_t>(i)].kv_layer < 0;
  const std::string q = at + std::string(names_.q_norm), k = at + std::string(names_.k_norm);
  switch (config_.qk_norm) {
    case QkNorm::kNone:
    case QkNorm::kPlain: return {};
    case QkNorm::kHead:
      RETURN_IF_ERROR(norm(q, config_.head_dim_of(i), layer.q_norm));
      return stores ? norm(k, config_.head_dim_of(i), layer.k_norm) : Status();
    case QkNorm::kHeads:
      RETURN_IF_ERROR(head_norm(q, config_.n_heads, cuts_.heads(), layer.q_norm));
      return head_norm(k, config_.n_kv_heads, cuts_.kv_heads(i), layer.k_norm);
    case QkNorm::kRow:
      RETURN_IF_ERROR(norm(q, config_.q_dim_of(i), layer.q_norm));
      return norm(k, config_.kv_dim_of(i), layer.k_norm);
  }
  return {};
}

Status WeightLoader::load_attention(int i, const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  RETURN_IF_ERROR(config_.latent.kv_rank > 0 ? load_latent(at, layer) : load_qkv(i, at, layer));
  RETURN_IF_ERROR(load_qk_norms(i, at, layer));
  if (const int n_gates = config_.n_gates_of(i); n_gates > 0) {
    const Range own = times(cuts_.heads(), n_gates / config_.n_heads);
    RETURN_IF_ERROR(linear_rows(name(names_.gates), n_gates, config_.model_dim, own, layer.gates));
  }
  if (config_.attention_sinks) {
    ASSIGN_OR_RETURN(const std::vector<float> sinks, vector(name(names_.sinks), config_.n_heads));
    ASSIGN_OR_RETURN(layer.sinks, ops_.pack_vector(part_of(sinks, cuts_.heads())));
  }
  if (config_.sub_norms)
    RETURN_IF_ERROR(norm(name(names_.attn_sub_norm), config_.q_dim_of(i), layer.attn_sub_norm));
  const int head = config_.latent.kv_rank > 0 ? config_.latent.value_dim : config_.head_dim_of(i);
  return linear_columns(name(names_.o), config_.model_dim, config_.attended_dim_of(i),
                        times(cuts_.heads(), head), layer.o);
}

namespace {
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }
}  // namespace

// xIELU's parameters are tensors of Hugging Face checkpoints, before the functions that keep them positive.
Status WeightLoader::load_activation(int i, const std::string& at, LayerWeights& layer) {
  layer.activation = config_.layers[i].activation;
  if (layer.activation.kind != Activation::kXielu) return {};
  float* const stored = layer.activation.parameters;
  if (source_.naming() == Naming::kHuggingFace) {
    constexpr std::string_view kParts[] = {"alpha_p", "alpha_n", "beta", "eps"};
    for (int p = 0; p < 4; ++p) {
      const std::string name = at + std::string(names_.activation) + std::string(kParts[p]);
      const int64_t one = 1;
      const TensorInfo* found = find(name);
      const bool scalar = found != nullptr && found->shape.empty();
      ASSIGN_OR_RETURN(const std::vector<float> value, vector(name, std::span(&one, scalar ? 0 : 1)));
      stored[p] = value[0];
    }
  }
  stored[0] = softplus(stored[0]);
  stored[1] = stored[2] + softplus(stored[1]);
  return {};
}

Status WeightLoader::load_ffn_norm(const std::string& name, LayerWeights& layer) {
  if (!names_.bare_ffn_norm) return norm(name, config_.model_dim, layer.ffn_norm);
  ASSIGN_OR_RETURN(const std::vector<float> weights, vector(name, config_.model_dim));
  ASSIGN_OR_RETURN(layer.ffn_norm.weight, ops_.pack_vector(weights));
  return {};
}

Status WeightLoader::load_layer(int i, LayerWeights& layer) {
  return load_layer_at(i, prefix_ + with_index(names_.layer, i), layer);
}

// `at`: what the names of its tensors begin with.
Status WeightLoader::load_layer_at(int i, const std::string& at, LayerWeights& layer) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  const int dim = config_.model_dim;
  const bool post = config_.norms == NormPlacement::kPost || config_.norms == NormPlacement::kBoth;
  const bool pre = config_.norms != NormPlacement::kPost;
  if (pre && (i > 0 || config_.first_norm))
    RETURN_IF_ERROR(norm(name(names_.attn_norm), dim, layer.attn_norm));
  if (config_.layers[i].attention) RETURN_IF_ERROR(load_attention(i, at, layer));
  if (config_.layers[i].recurrence == Recurrence::kShortConv)
    RETURN_IF_ERROR(load_short_conv(at, layer.conv));
  if (config_.layers[i].recurrence == Recurrence::kDeltaNet) RETURN_IF_ERROR(load_delta_net(at, layer.delta));
  if (config_.layers[i].recurrence == Recurrence::kStateSpace)
    RETURN_IF_ERROR(load_state_space(at, layer.delta));
  if (post) RETURN_IF_ERROR(norm(name(names_.attn_post_norm), dim, layer.attn_post_norm));
  if (pre && (!config_.parallel || config_.parallel_norms) && !config_.one_mixer)
    RETURN_IF_ERROR(load_ffn_norm(name(names_.ffn_norm), layer));
  if (config_.has_feed_forward(i)) {
    RETURN_IF_ERROR(load_activation(i, at, layer));
    RETURN_IF_ERROR(load_feed_forward(i, at, layer));
  }
  if (post) RETURN_IF_ERROR(norm(name(names_.ffn_post_norm), dim, layer.ffn_post_norm));
  if (config_.per_layer_dim > 0) RETURN_IF_ERROR(load_per_layer(at, layer.per_layer));
  if (config_.altup.n_streams > 0) RETURN_IF_ERROR(load_altup(at, layer.altup));
  if (!config_.output_scales) return {};
  ASSIGN_OR_RETURN(const std::vector<float> scale, vector(name(names_.output_scale), 1));
  layer.output_scale = scale[0];
  return {};
}

Status WeightLoader::load_feed_forward(int i, const std::string& at, LayerWeights& layer) {
  if (!config_.layers[static_cast<size_t>(i)].moe) return load_dense(i, at, layer);
  if (config_.experts_beside_dense) {
    RETURN_IF_ERROR(load_dense(i, at, layer));
    RETURN_IF_ERROR(load_beside(at, layer.beside));
  }
  return load_experts(at, layer);
}

Status WeightLoader::check_unused() const {
  if (restores()) return {};  // whoever packed them has checked
  const std::string layer = prefix_ + std::string(names_.layer);
  const auto n_others = std::ranges::count_if(source_.tensors(), [&](const TensorInfo& tensor) {
    return is_of_another_modality(tensor.name, prefix_);
  });
  if (n_others > 0) {
    log().warn("{}: the text part is read, {} tensors of other modalities are passed over",
               source_.path().string(), n_others);
  }
  const auto n_further = std::ranges::count_if(source_.tensors(), [&](const TensorInfo& tensor) {
    return is_of_further_tokens(tensor.name) || is_of_later_layer(config_, layer, tensor.name);
  });
  if (n_further > 0) {
    log().info(
        "{}: {} tensors of layers that predict further tokens are passed over here (--spec mtp drafts with "
        "them)",
        source_.path().string(), n_further);
  }
  return penstock::check_unused(source_, config_, prefix_, layer, used_);
}

Status WeightLoader::open() {
  if (config_.int8_activations) return {};
  ASSIGN_OR_RETURN(opened_, open_prequantized(source_));
  prequantized_ = opened_ != nullptr ? opened_.get() : source_.grouped_layers();
  return {};
}

Result<std::unique_ptr<ModelWeights>> WeightLoader::load(int max_seq_len) {
  keeps_sites_ = true;
  ASSIGN_OR_RETURN(auto weights, load_some(max_seq_len));
  RETURN_IF_ERROR(check_unused());
  weights->sites = std::move(sites_);
  if (restores() && progress_) progress_(total_bytes_, total_bytes_);
  return weights;
}

Result<std::unique_ptr<ModelWeights>> WeightLoader::load_some(int max_seq_len) {
  auto weights = std::make_unique<ModelWeights>();
  RETURN_IF_ERROR(open());
  RETURN_IF_ERROR(load_frame(*weights, max_seq_len));
  RETURN_IF_ERROR(load_layers(*weights));
  weights->padding = padding_;
  return weights;
}

// All, or those of this stage; then the others are empty.
Status WeightLoader::load_layers(ModelWeights& weights) {
  Range own{0, config_.n_layers};
  if (stage_.count > 1) {
    ASSIGN_OR_RETURN(const auto stages, cut_stages(config_, layer_bytes(source_, config_), stage_.count));
    weights.own_layers = own = stages[static_cast<size_t>(stage_.index)];
    pass_over_other_stages(own);
  }
  weights.layers.resize(static_cast<size_t>(config_.n_layers));
  for (int i = own.first; i < own.first + own.count; ++i)
    RETURN_IF_ERROR(load_layer(i, weights.layers[static_cast<size_t>(i)]));
  return {};
}

Result<std::unique_ptr<ModelWeights>> load_weights(const WeightSource& source, const ModelConfig& config,
                                                   Ops& ops, const Model::Progress& progress, int max_seq_len,
                                                   PackedWeights* packed, const ShardOptions& shard) {
  return WeightLoader(source, config, ops, progress, packed, shard).load(max_seq_len);
}

Result<std::unique_ptr<ModelWeights>> load_frame(const WeightSource& source, const ModelConfig& config,
                                                 Ops& ops, int max_seq_len, const ShardOptions& shard) {
  const Model::Progress none;
  WeightLoader loader(source, config, ops, none, nullptr, shard);
  auto weights = std::make_unique<ModelWeights>();
  RETURN_IF_ERROR(loader.open());
  RETURN_IF_ERROR(loader.load_frame(*weights, max_seq_len));
  weights->layers.resize(static_cast<size_t>(config.n_layers));
  return weights;
}

Result<LayerWeights> load_layer(const WeightSource& source, const ModelConfig& config, Ops& ops, int layer,
                                const ShardOptions& shard) {
  const Model::Progress none;
  WeightLoader loader(source, config, ops, none, nullptr, shard);
  LayerWeights weights;
  RETURN_IF_ERROR(loader.open());
  RETURN_IF_ERROR(loader.load_layer(layer, weights));
  return weights;
}

}  // namespace penstock
