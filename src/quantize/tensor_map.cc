#include "quantize/tensor_map.h"

#include <algorithm>

#include "model/arch/archs.h"
#include "model/next_token_layer.h"
#include "model/sources/synthetic.h"
#include "quantize/convert.h"
#include "quantize/tensor_mapper.h"

namespace penstock {

namespace {

// Heads of `plain` rows and then `rotated` ones in halves, to heads whose rotated rows are adjacent pairs.
std::vector<int> pair_tails(int n_heads, int plain, int rotated) {
  std::vector<int> rows;
  for (int h = 0; h < n_heads; ++h) {
    const int begin = h * (plain + rotated);
    for (int r = 0; r < plain; ++r) rows.push_back(begin + r);
    for (int r = 0; r < rotated; ++r) rows.push_back(begin + plain + r / 2 + r % 2 * (rotated / 2));
  }
  return rows;
}

class Mapper : RecurrenceMapper {
 public:
  using RecurrenceMapper::RecurrenceMapper;
  Result<TensorMap> map();
  // Adds the layer that predicts a token further, if the file has one and it is known.
  void map_next_token(TensorMap& map);
  using TensorMapper::check_unused;

 private:
  void head_norms(std::vector<MappedTensor>& list, int layer, std::string_view in, std::string_view out,
                  int n_heads);
  void qk_norms(std::vector<MappedTensor>& list, int layer);
  void output_bias(TensorMap& map);
  void values(std::vector<MappedTensor>& list, int layer, int rows);
  void per_layer(std::vector<MappedTensor>& list, int layer);
  void per_layer_frame(std::vector<MappedTensor>& list);
  void altup(std::vector<MappedTensor>& list, int layer);
  void streams(std::vector<MappedTensor>& list, std::string_view in, std::string_view out);
  void heads(std::vector<MappedTensor>& list, int layer, const Spec& spec, int first_row);
  void latent(std::vector<MappedTensor>& list, int layer);
  void mixer(std::vector<MappedTensor>& list, int layer);
  void attention(std::vector<MappedTensor>& list, int layer);
  void feed_forward(std::vector<MappedTensor>& list, int layer);
  void multiply(TensorMap& map) const;
  void own_table(TensorMap& map, const std::string& in, const std::string& out, const std::string& models,
                 WeightRole role);
};

void Mapper::output_bias(TensorMap& map) {
  const std::string name = std::string(in_.lm_head) + ".bias";
  if (!has(name)) return;
  vector(map.outside, -1, name, std::string(out_.lm_head) + ".bias", config_.vocab_size);
  map.outside.back().in = name;
  map.outside.back().out = std::string(out_.lm_head) + ".bias";
}

void Mapper::head_norms(std::vector<MappedTensor>& list, int layer, std::string_view in, std::string_view out,
                        int n_heads) {
  const bool separate = in.find("{}") != std::string_view::npos,
             separate_out = out.find("{}") != std::string_view::npos;
  for (int h = 0; h < n_heads; ++h) {
    vector(list, layer, with_index(in, h) + ".weight", with_index(out, h) + ".weight", config_.head_dim);
    if (!separate) list.back().in_expert = h;
    if (!separate_out) list.back().out_experts = n_heads;
    list.back().expert = h;
  }
}

void Mapper::qk_norms(std::vector<MappedTensor>& list, int layer) {
  const auto both = [&](int q, int k) {
    norm(list, layer, in_.q_norm, out_.q_norm, q);
    if (config_.layers[static_cast<size_t>(layer)].kv_layer < 0)
      norm(list, layer, in_.k_norm, out_.k_norm, k);
  };
  switch (config_.qk_norm) {
    case QkNorm::kNone:
    case QkNorm::kPlain: return;
    case QkNorm::kHead: return both(config_.head_dim_of(layer), config_.head_dim_of(layer));
    case QkNorm::kRow: return both(config_.q_dim_of(layer), config_.kv_dim_of(layer));
    case QkNorm::kHeads:
      head_norms(list, layer, in_.q_norm, out_.q_norm, config_.n_heads);
      return head_norms(list, layer, in_.k_norm, out_.k_norm, config_.n_kv_heads);
  }
}

// One matrix per head, in a tensor of all: stored so, or as rows of one matrix from first_row on.
void Mapper::heads(std::vector<MappedTensor>& list, int layer, const Spec& spec, int first_row) {
  const LatentConfig& l = config_.latent;
  const int each = l.plain_dim + l.value_dim;
  for (int h = 0; h < config_.n_heads; ++h) {
    MappedTensor& tensor = matrix(list, layer, spec);
    tensor.is_linear = true;
    tensor.expert = h;
    tensor.out_experts = config_.n_heads;
    if (first_row < 0) {
      tensor.in_expert = h;
    } else {
      tensor.in_first_row = h * each + first_row;
      tensor.in_rows = config_.n_heads * each;
      tensor.in_transposed = first_row == 0;  // keys are applied to queries
    }
  }
}

void Mapper::latent(std::vector<MappedTensor>& list, int layer) {
  const LatentConfig& l = config_.latent;
  const int dim = config_.model_dim, queries = config_.n_heads * (l.plain_dim + l.rope_dim);
  const WeightRole role = WeightRole::kLatent;
  const bool through = l.query_rank > 0;
  if (through) {
    linear(list, layer, {in_.query_a, out_.query_a, role, l.query_rank, dim, Site::kAttention});
    norm(list, layer, in_.query_a_norm, out_.query_a_norm, l.query_rank);
  }
  const size_t query = list.size();
  linear(list, layer,
         {through ? in_.query_b : in_.q, through ? out_.query_b : out_.q, through ? role : WeightRole::kQ,
          queries, through ? l.query_rank : dim, through ? Site::kNone : Site::kAttention});
  const size_t latent = list.size();
  linear(list, layer, {in_.latent_a, out_.latent_a, role, l.kv_rank + l.rope_dim, dim, Site::kAttention});
  const bool together = in_.latent_keys.empty() && out_.latent_keys.empty();
  if (crossing_ && !config_.rope_interleaved && !together) {
    for (size_t i = query; i < list.size(); ++i)
      list[i].rows_from = i < latent ? pair_tails(config_.n_heads, l.plain_dim, l.rope_dim)
                                     : pair_tails(1, l.kv_rank, l.rope_dim);
  }
  norm(list, layer, in_.latent_a_norm, out_.latent_a_norm, l.kv_rank);
  if (together) {
    const int rows = config_.n_heads * (l.plain_dim + l.value_dim);
    return linear(list, layer, {in_.latent_b, out_.latent_b, role, rows, l.kv_rank});
  }
  const bool separate = !in_.latent_keys.empty();
  heads(list, layer,
        {separate ? in_.latent_keys : in_.latent_b, out_.latent_keys, role, l.kv_rank, l.plain_dim},
        separate ? -1 : 0);
  heads(list, layer,
        {separate ? in_.latent_values : in_.latent_b, out_.latent_values, role, l.value_dim, l.kv_rank},
        separate ? -1 : l.plain_dim);
}

// Its norms, and attention or what is in its place.
void Mapper::mixer(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim;
  const bool pre = config_.norms != NormPlacement::kPost, post = config_.norms != NormPlacement::kPre;
  const LayerConfig& kind = config_.layers[static_cast<size_t>(layer)];
  if (pre) norm(list, layer, in_.attn_norm, out_.attn_norm, dim, Part::kAttentionNorm);
  if (kind.attention) attention(list, layer);
  if (kind.recurrence == Recurrence::kShortConv) short_conv(list, layer);
  if (kind.recurrence == Recurrence::kDeltaNet) delta_net(list, layer);
  if (kind.recurrence == Recurrence::kStateSpace) state_space(list, layer);
  if (post) norm(list, layer, in_.attn_post_norm, out_.attn_post_norm, dim);
}

void Mapper::attention(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim, q = config_.q_dim_of(layer), kv = config_.kv_dim_of(layer);
  const LayerConfig& kind = config_.layers[static_cast<size_t>(layer)];
  const int queries = config_.attention_gate ? 2 * q : q;
  if (config_.latent.kv_rank > 0) {
    latent(list, layer);
  } else if (!in_.qkv.empty() && !config_.attention_gate && has_linear(in_name(in_.qkv, layer))) {
    linear(list, layer, {in_.qkv, out_.qkv, WeightRole::kQkv, q + 2 * kv, dim, Site::kAttention, Part::kQkv});
  } else {
    linear(list, layer, {in_.q, out_.q, WeightRole::kQ, queries, dim, Site::kAttention, Part::kQ});
    if (kind.kv_layer < 0)
      linear(list, layer, {in_.k, out_.k, WeightRole::kK, kv, dim, Site::kAttention, Part::kK});
    if (kind.kv_layer < 0 && !kind.keys_as_values) values(list, layer, kv);
  }
  qk_norms(list, layer);
  if (const int n_gates = config_.n_gates_of(layer); n_gates > 0) {
    const WeightRole role = config_.head_gates ? WeightRole::kRouter : WeightRole::kLatent;
    linear(list, layer, {in_.gates, out_.gates, role, n_gates, dim, Site::kAttention});
  }
  if (config_.attention_sinks) layer_vector(list, layer, in_.sinks, out_.sinks, config_.n_heads);
  if (config_.sub_norms) norm(list, layer, in_.attn_sub_norm, out_.attn_sub_norm, q);
  linear(list, layer,
         {in_.o, out_.o, WeightRole::kO, dim, config_.attended_dim_of(layer), Site::kAttentionOut, Part::kO});
}

// Some layers may have none.
void Mapper::values(std::vector<MappedTensor>& list, int layer, int rows) {
  const size_t at = list.size();
  linear(list, layer, {in_.v, out_.v, WeightRole::kV, rows, config_.model_dim, Site::kAttention, Part::kV});
  list[at].nth = n_values_++;
}

void Mapper::per_layer(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim, own = config_.per_layer_dim;
  linear(list, layer, {in_.per_layer_gate, out_.per_layer_gate, WeightRole::kOther, own, dim});
  linear(list, layer, {in_.per_layer_projection, out_.per_layer_projection, WeightRole::kOther, dim, own});
  norm(list, layer, in_.per_layer_post_norm, out_.per_layer_post_norm, dim);
}

void Mapper::per_layer_frame(std::vector<MappedTensor>& list) {
  const int dim = config_.model_dim, own = config_.per_layer_dim, all = config_.n_layers * own;
  matrix(list, -1,
         {in_.per_layer_table, out_.per_layer_table, WeightRole::kEmbedding, config_.per_layer_rows(), all});
  matrix(
      list, -1,
      {in_.per_layer_frame, out_.per_layer_frame, WeightRole::kRouter, all, dim, Site::kNone, Part::kRouter});
  norm(list, -1, in_.per_layer_frame_norm, out_.per_layer_frame_norm, own);
}

void Mapper::altup(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim, n = config_.altup.n_streams, rank = config_.altup.laurel_rank;
  const WeightRole role = WeightRole::kRouter;  // they are small and stay as they are
  const Part small = Part::kRouter;
  norm(list, layer, in_.altup_router_norm, out_.altup_router_norm, dim);
  matrix(list, layer, {in_.altup_router, out_.altup_router, role, n, dim, Site::kNone, small});
  matrix(list, layer, {in_.altup_predict, out_.altup_predict, role, n * n, n, Site::kNone, small});
  matrix(list, layer, {in_.altup_correct, out_.altup_correct, role, n, n, Site::kNone, small});
  layer_vector(list, layer, in_.altup_scale, out_.altup_scale, dim);
  // GGUF cannot say that it is not used.
  if (crossing_ && !config_.altup.correct_scale) list.back().function = MappedTensor::Function::kOne;
  matrix(list, layer, {in_.laurel_in, out_.laurel_in, role, rank, dim, Site::kNone, small});
  matrix(list, layer, {in_.laurel_out, out_.laurel_out, role, dim, rank, Site::kNone, small});
  norm(list, layer, in_.laurel_norm, out_.laurel_norm, dim);
}

// One matrix for every stream but the first: a tensor for each, or one of all.
void Mapper::streams(std::vector<MappedTensor>& list, std::string_view in, std::string_view out) {
  const int others = config_.altup.n_streams - 1, dim = config_.model_dim;
  for (int s = 0; s < others; ++s) {
    const std::string from = with_index(in, s), to = with_index(out, s);
    MappedTensor& tensor =
        matrix(list, -1, {from, to, WeightRole::kRouter, dim, dim, Site::kNone, Part::kRouter});
    tensor.expert = s;
    if (in.find("{}") == std::string_view::npos) tensor.in_expert = s;
    if (out.find("{}") == std::string_view::npos) tensor.out_experts = others;
  }
}

void Mapper::feed_forward(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim, ffn = config_.ffn_dim_of(layer);
  const bool pre = config_.norms != NormPlacement::kPost, post = config_.norms != NormPlacement::kPre;
  const WeightRole wide = WeightRole::kGateUp, narrow = WeightRole::kDown;
  if (!config_.has_feed_forward(layer)) return;
  const bool own_norm = (!config_.parallel || config_.parallel_norms) && !config_.one_mixer;
  if (pre && own_norm) norm(list, layer, in_.ffn_norm, out_.ffn_norm, dim, Part::kFeedForwardNorm);
  if (in_.bare_ffn_norm) list.back().in = in_name(in_.ffn_norm, layer);
  if (out_.bare_ffn_norm) list.back().out = out_name(out_.ffn_norm, layer);
  const bool moe = config_.layers[static_cast<size_t>(layer)].moe;
  if (moe) routed_experts(list, layer);
  if (moe && config_.experts_beside_dense) beside(list, layer);
  if (!moe || config_.experts_beside_dense) {
    const bool gated = config_.gated_ffn;
    const bool separate = !in_.gate.empty() && has_linear(in_name(in_.gate, layer));
    if (gated && !separate && out_.gate_up.empty()) {
      const std::string_view both = in_.gate_up;
      linear(list, layer, {both, out_.gate, wide, ffn, dim, Site::kFeedForward, Part::kGate, 0, 2 * ffn});
      linear(list, layer, {both, out_.up, wide, ffn, dim, Site::kFeedForward, Part::kUp, ffn, 2 * ffn});
    } else if (gated && !separate) {
      linear(list, layer, {in_.gate_up, out_.gate_up, wide, 2 * ffn, dim, Site::kFeedForward, Part::kGateUp});
    } else {
      if (gated) linear(list, layer, {in_.gate, out_.gate, wide, ffn, dim, Site::kFeedForward, Part::kGate});
      linear(list, layer, {in_.up, out_.up, wide, ffn, dim, Site::kFeedForward, Part::kUp});
    }
    if (config_.sub_norms) norm(list, layer, in_.ffn_sub_norm, out_.ffn_sub_norm, ffn);
    linear(list, layer, {in_.down, out_.down, narrow, dim, ffn, Site::kDown, Part::kDown});
  }
  if (post) norm(list, layer, in_.ffn_post_norm, out_.ffn_post_norm, dim);
  if (config_.per_layer_dim > 0) per_layer(list, layer);
  if (config_.altup.n_streams > 0) altup(list, layer);
  if (config_.output_scales) layer_vector(list, layer, in_.output_scale, out_.output_scale, 1);
}

// Of the rows of a scan's projection.
std::vector<float> scan_factors(const ModelConfig& config) {
  const Multipliers& by = config.multipliers;
  const DeltaConfig& ssm = config.delta;
  std::vector<float> factors;
  for (const auto& [count, factor] : {std::pair(ssm.values(), by.z),
                                      {ssm.values(), by.x},
                                      {ssm.keys(), by.b},
                                      {ssm.keys(), by.c},
                                      {ssm.n_value_heads, by.step}})
    factors.insert(factors.end(), static_cast<size_t>(count), factor);
  return factors;
}

// What is multiplied when it is computed, into the weights: what multiplies inputs spares biases.
void Mapper::multiply(TensorMap& map) const {
  const Multipliers& by = config_.multipliers;
  const auto set = [](MappedTensor& tensor, float input, float output) {
    const float factor = tensor.is_bias ? output : input * output;
    const int count = tensor.is_matrix ? tensor.rows : tensor.cols;
    if (tensor.factors.empty()) tensor.factors.assign(static_cast<size_t>(count), 1.0f);
    for (float& each : tensor.factors) each *= factor;
  };
  for (MappedTensor& tensor : map.outside) {
    if (tensor.role == WeightRole::kEmbedding) set(tensor, 1.0f, config_.embedding_scale);
    if (tensor.role == WeightRole::kOutput) set(tensor, 1.0f, config_.logit_scale);
  }
  for (std::vector<MappedTensor>& list : map.layers) {
    for (MappedTensor& tensor : list) {
      switch (tensor.part) {
        case Part::kQ:
        case Part::kV: set(tensor, by.attention_in, 1.0f); break;
        case Part::kK: set(tensor, by.attention_in, by.key); break;
        case Part::kO: set(tensor, 1.0f, by.attention_out); break;
        case Part::kGate: set(tensor, 1.0f, by.gate); break;
        case Part::kDown: set(tensor, 1.0f, by.down); break;
        case Part::kScanIn:
          tensor.factors = scan_factors(config_);
          set(tensor, by.scan_in, 1.0f);
          break;
        case Part::kScanOut: set(tensor, 1.0f, by.scan_out); break;
        default: break;
      }
    }
  }
}

Result<TensorMap> Mapper::map() {
  TensorMap map;
  if (!config_.output_head) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: architecture {} is an encoder, which is read from both formats and not rewritten",
                  source_.path().string(), config_.arch);
  }
  const bool fused_out =
      out_.experts_transposed || out_.experts_interleaved ||
      (!out_.shared_gate_up.empty() && (out_naming_ != Naming::kGguf || in_.shared_gate_up.empty())) ||
      (config_.latent.kv_rank > 0 && out_.latent_keys.empty() && !in_.latent_keys.empty());
  if (crossing_ && has_conv_bias()) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: conv_bias: GGUF has no convolutions with biases in architecture {}",
                  source_.path().string(), config_.arch);
  }
  const auto attending = std::ranges::find(config_.layers, true, &LayerConfig::attention);
  if (config_.latent.kv_rank > 0 && !in_.latent_keys.empty() && attending != config_.layers.end() &&
      !has(in_name(in_.latent_keys, static_cast<int>(attending - config_.layers.begin())) + ".weight")) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: the file was converted before keys and values of latents had tensors of their own, and "
        "is only read: convert the model again",
        source_.path().string());
  }
  const bool one_by_one = !in_.delta_qkv.empty() && out_.delta_qkv.empty() && !has_delta_in_one();
  const bool fused_in = in_.fused_expert_biases;
  if (fused_out || one_by_one) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: a directory of architecture {} holds several matrices in one tensor, which is not written: "
        "write a GGUF file",
        source_.path().string(), config_.arch);
  }
  if (fused_in) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: experts of architecture {} are read from a directory, not rewritten: {}",
                  source_.path().string(), config_.arch, "only its GGUF files can be quantized");
  }
  const ModelConfig written = crossing_ ? config_in(config_, out_naming_) : config_;
  map.model = MixedModel::of(written);
  const int dim = config_.model_dim;
  matrix(map.outside, -1, {in_.embedding, out_.embedding, WeightRole::kEmbedding, config_.vocab_size, dim});
  if (config_.learned_positions && !config_.computed_positions)
    matrix(map.outside, -1,
           {in_.positions, out_.positions, WeightRole::kRouter,
            config_.skipped_positions + config_.max_seq_len, dim});
  if (config_.embedding_norm) norm(map.outside, -1, in_.embedding_norm, out_.embedding_norm, dim);
  norm(map.outside, -1, in_.final_norm, out_.final_norm, dim);
  if (config_.per_layer_dim > 0) per_layer_frame(map.outside);
  if (config_.altup.n_streams > 0) {
    streams(map.outside, in_.streams_in, out_.streams_in);
    streams(map.outside, in_.streams_out, out_.streams_out);
  }
  output_bias(map);
  if (!map.model.tied) {
    MappedTensor& head = matrix(map.outside, -1,
                                {config_.tied_embeddings ? in_.embedding : in_.lm_head, out_.lm_head,
                                 WeightRole::kOutput, config_.vocab_size, dim});
    if (!config_.tied_embeddings) head.in = std::string(in_.lm_head) + ".weight";
    head.out = std::string(out_.lm_head) + ".weight";
  }
  for (int i = 0; i < config_.n_layers; ++i) {
    std::vector<MappedTensor>& list = map.layers.emplace_back();
    mixer(list, i);
    feed_forward(list, i);
  }
  if (crossing_ && out_naming_ == Naming::kGguf && find_architecture(config_.arch)->gguf_multiplied)
    multiply(map);
  return map;
}

// Of the layer that predicts a token further, unless it is the model's own.
void Mapper::own_table(TensorMap& map, const std::string& in, const std::string& out,
                       const std::string& models, WeightRole role) {
  const TensorInfo *own = source_.find(in + ".weight"), *other = source_.find(models + ".weight");
  if (own == nullptr) return;
  const bool same = other != nullptr && own->type == other->type && own->shape == other->shape &&
                    std::ranges::equal(own->bytes, other->bytes);
  if (same) return map.copies.push_back(in + ".weight");
  MappedTensor& table = matrix(map.outside, -1, {in, out, role, config_.vocab_size, config_.model_dim});
  table.in = in + ".weight", table.out = out + ".weight";
}

void Mapper::map_next_token(TensorMap& map) {
  const auto layer_config = next_token_config(config_, source_.path().string());
  if (!layer_config) return;
  const auto stems = [&](Naming naming, const std::string& prefix, const NameTable& names,
                         std::string_view apart) {
    return next_token_stems(naming, prefix + with_index(names.layer, config_.n_layers), apart);
  };
  NextTokenStems in = stems(source_.naming(), in_prefix_, in_, "");
  for (const std::string_view apart : kNextTokenApart) {
    const NextTokenStems there = stems(source_.naming(), in_prefix_, in_, apart);
    if (has_linear(there.projection)) in = there;
  }
  if (!has_linear(in.projection)) return;
  const NextTokenStems out = crossing_ ? stems(out_naming_, out_prefix_, out_, out_.next_token) : in;
  const std::string embedding = in_name(in_.embedding, -1), final_norm = in_name(in_.final_norm, -1);
  const std::string head = config_.tied_embeddings ? embedding : std::string(in_.lm_head);

  Mapper one(source_, *layer_config, out_naming_);
  one.begin_names_with(in.layer, out.layer);
  const size_t first = map.outside.size();
  const int dim = config_.model_dim;
  one.linear(map.outside, -1, {in.projection, out.projection, WeightRole::kOther, dim, 2 * dim});
  one.norm(map.outside, -1, in.embedding_norm, out.embedding_norm, dim);
  one.norm(map.outside, -1, in.state_norm, out.state_norm, dim);
  // Files may leave the norm out where it is the model's.
  one.norm(map.outside, -1, has(in.final_norm + ".weight") ? in.final_norm : final_norm, out.final_norm, dim);
  one.own_table(map, in.embedding, out.embedding, embedding, WeightRole::kEmbedding);
  one.own_table(map, in.head, out.head, head, WeightRole::kOutput);
  one.mixer(map.outside, 0);
  one.feed_forward(map.outside, 0);
  const auto own = std::span(map.outside).subspan(first);
  map.has_next_token = std::ranges::all_of(own, [&](const MappedTensor& tensor) {
    const size_t stem = tensor.in.size() - std::string_view(".weight").size();
    return has(tensor.in) || (tensor.in.ends_with(".weight") && has_linear(tensor.in.substr(0, stem)));
  });
  if (!map.has_next_token) return map.outside.resize(first);  // a layer of another kind
  // Types are those of the last layer.
  for (MappedTensor& tensor : own) {
    if (tensor.layer == 0) tensor.layer = config_.n_layers - 1;
    if (tensor.nth == 0) tensor.nth = std::max(n_values_ - 1, 0);
  }
}

}  // namespace

ModelConfig config_in(const ModelConfig& config, Naming naming) {
  const Architecture* row = find_architecture(config.arch);
  ModelConfig there = config;
  if (naming != Naming::kGguf || row == nullptr || !row->gguf_multiplied) return there;
  if (config.embedding_scale != config.logit_scale) there.tied_embeddings = false;
  there.multipliers = {};
  there.embedding_scale = there.logit_scale = 1.0f;
  return there;
}

std::string arch_in(const ModelConfig& config, Naming naming) {
  if (naming == Naming::kGguf) {
    return gguf_arch(config);
  }
  if (config.arch == "bitnet") return "bitnet-b1.58";  // one class for both
  const bool windows =
      std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return layer.window > 0; });
  if (config.arch == "olmo2" && windows) return "olmo3";
  if (config.arch != "llama") return config.arch;
  if (config.n_experts > 0) return "mixtral";
  return windows ? "mistral" : "llama";
}

Result<TensorMap> map_tensors(const WeightSource& source, const ModelConfig& config, Naming out) {
  if (const std::string_view unsaid = unsaid_in_gguf(config); out == Naming::kGguf && !unsaid.empty()) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: config.json: {}: no GGUF file of architecture {} can say it: write a directory",
                  source.path().string(), unsaid, config.arch);
  }
  Mapper mapper(source, config, out);
  ASSIGN_OR_RETURN(TensorMap map, mapper.map());
  mapper.map_next_token(map);
  RETURN_IF_ERROR(mapper.check_unused(map));
  return map;
}

const MappedTensor* TensorMap::find_linear(int layer, std::string_view in) const {
  for (const MappedTensor& tensor : layers[static_cast<size_t>(layer)]) {
    if (tensor.is_linear && tensor.in == in) return &tensor;
  }
  return nullptr;
}

}  // namespace penstock
