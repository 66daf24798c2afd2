#include "quantize/tensor_map.h"

#include <algorithm>
#include <numeric>

#include "model/arch/archs.h"
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

// Heads of `each` rows behind `before` other rows, to where `groups` are in turn: row r is row result[r] of those that lie
// group by group.
std::vector<int> in_turn(int before, int n_heads, int each, int groups) {
  std::vector<int> rows(static_cast<size_t>(before));
  std::iota(rows.begin(), rows.end(), 0);
  for (int h = 0; h < n_heads; ++h) {
    const int from = h % groups * (n_heads / groups) + h / groups;
    for (int r = 0; r < each; ++r) rows.push_back(before + from * each + r);
  }
  return rows;
}

class Mapper : ExpertMapper {
 public:
  using ExpertMapper::ExpertMapper;
  Result<TensorMap> map();
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
  void short_conv(std::vector<MappedTensor>& list, int layer);
  bool has_conv_bias() const;
  bool has_delta_in_one() const;
  std::vector<int> value_heads(int before, int each) const;
  void delta_projections(std::vector<MappedTensor>& list, int layer);
  void delta_by_head(std::vector<MappedTensor>& list, int layer);
  void delta_by_key(std::vector<MappedTensor>& list, int layer);
  void delta_net(std::vector<MappedTensor>& list, int layer);
  void state_space(std::vector<MappedTensor>& list, int layer);
  void mixer(std::vector<MappedTensor>& list, int layer);
  void attention(std::vector<MappedTensor>& list, int layer);
  void feed_forward(std::vector<MappedTensor>& list, int layer);
  void multiply(TensorMap& map) const;

  int n_values_ = 0;  // projections of values so far
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
  if (crossing_ && !config_.rope_interleaved) {
    for (size_t i = query; i < list.size(); ++i)
      list[i].rows_from = i < latent ? pair_tails(config_.n_heads, l.plain_dim, l.rope_dim)
                                     : pair_tails(1, l.kv_rank, l.rope_dim);
  }
  norm(list, layer, in_.latent_a_norm, out_.latent_a_norm, l.kv_rank);
  const bool separate = !in_.latent_keys.empty();
  heads(list, layer,
        {separate ? in_.latent_keys : in_.latent_b, out_.latent_keys, role, l.kv_rank, l.plain_dim},
        separate ? -1 : 0);
  heads(list, layer,
        {separate ? in_.latent_values : in_.latent_b, out_.latent_values, role, l.value_dim, l.kv_rank},
        separate ? -1 : l.plain_dim);
}

// Layers of attention lie between: any may be the first of a convolution.
bool Mapper::has_conv_bias() const {
  for (int i = 0; config_.has_states() && i < config_.n_layers; ++i) {
    if (has(in_name(in_.conv_in, i) + ".bias") || has(in_name(in_.conv, i) + ".bias")) return true;
  }
  return false;
}

void Mapper::short_conv(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim;
  linear(list, layer, {in_.conv_in, out_.conv_in, WeightRole::kQ, 3 * dim, dim, Site::kAttention});
  matrix(list, layer, {in_.conv, out_.conv, WeightRole::kRouter, dim, config_.conv_taps}).out_deep =
      out_naming_ == Naming::kHuggingFace;
  if (has(in_name(in_.conv, layer) + ".bias"))
    vector(list, layer, std::string(in_.conv) + ".bias", std::string(out_.conv) + ".bias", dim);
  linear(list, layer, {in_.conv_out, out_.conv_out, WeightRole::kO, dim, dim, Site::kAttentionOut});
}

bool Mapper::has_delta_in_one() const {
  for (int i = 0; !in_.delta_qkvz.empty() && i < config_.n_layers; ++i) {
    if (has_linear(in_name(in_.delta_qkvz, i))) return true;
  }
  return false;
}

// Where value heads lie otherwise in the output: its rows' order.
std::vector<int> Mapper::value_heads(int before, int each) const {
  if (in_.key_heads_in_turn == out_.key_heads_in_turn) return {};
  const DeltaConfig& delta = config_.delta;
  std::vector<int> rows = in_turn(before, delta.n_value_heads, each, delta.n_key_heads);
  return out_.key_heads_in_turn ? rows : inverse_order(rows);
}

void Mapper::delta_projections(std::vector<MappedTensor>& list, int layer) {
  const DeltaConfig& delta = config_.delta;
  const int dim = config_.model_dim, channels = delta.channels(), values = delta.values();
  const int heads = delta.n_value_heads;
  const auto add = [&](std::string_view in, std::string_view out, WeightRole role, int rows,
                       std::vector<int> order) {
    linear(list, layer, {in, out, role, rows, dim, Site::kAttention});
    list.back().rows_from = std::move(order);
  };
  const bool fused = !in_.delta_qkvz.empty() && has_linear(in_name(in_.delta_qkvz, layer));
  const bool apart = crossing_ && !out_.delta_qkv.empty();
  if (fused && !apart) {
    add(in_.delta_qkvz, out_.delta_qkvz, WeightRole::kQkv, channels + values, {});
  } else {
    const std::string_view z = fused ? in_.delta_qkvz : in_.delta_z;
    add(fused ? in_.delta_qkvz : in_.delta_qkv, out_.delta_qkv, WeightRole::kQkv, channels,
        value_heads(2 * delta.keys(), delta.value_dim));
    add(z, out_.delta_z, WeightRole::kLatent, values, value_heads(0, delta.value_dim));
  }
  if (fused && apart) {
    const std::vector<int> rows = qkvz_rows(delta);
    list[list.size() - 2].picked.assign(rows.begin(), rows.begin() + channels);
    list.back().picked.assign(rows.begin() + channels, rows.end());
    list[list.size() - 2].in_rows = list.back().in_rows = channels + values;
  }
  if (!in_.delta_ba.empty()) return add(in_.delta_ba, out_.delta_ba, WeightRole::kLatent, 2 * heads, {});
  add(in_.delta_a, out_.delta_a, WeightRole::kLatent, heads, value_heads(0, 1));
  add(in_.delta_b, out_.delta_b, WeightRole::kLatent, heads, value_heads(0, 1));
}

// Projections, convolutions and rates of Kimi Delta Attention. GGUF files have the rates in a column.
void Mapper::delta_by_key(std::vector<MappedTensor>& list, int layer) {
  const DeltaConfig& delta = config_.delta;
  const int dim = config_.model_dim, keys = delta.keys(), values = delta.values(), inner = delta.key_dim;
  const auto add = [&](std::string_view in, std::string_view out, WeightRole role, int rows) {
    linear(list, layer, {in, out, role, rows, dim, Site::kAttention});
  };
  add(in_.q, out_.q, WeightRole::kQ, keys);
  add(in_.k, out_.k, WeightRole::kK, keys);
  add(in_.v, out_.v, WeightRole::kV, values);
  list.back().nth = n_values_++;
  add(in_.delta_a_in, out_.delta_a_in, WeightRole::kLatent, inner);
  add(in_.delta_z_in, out_.delta_z_in, WeightRole::kLatent, inner);
  add(in_.delta_b, out_.delta_b, WeightRole::kLatent, delta.n_value_heads);
  linear(list, layer, {in_.delta_a, out_.delta_a, WeightRole::kLatent, delta.decays(), inner});
  linear(list, layer, {in_.delta_z, out_.delta_z, WeightRole::kLatent, values, inner});
  for (const char letter : {'q', 'k', 'v'}) {
    const std::string in = with_letter(in_.delta_conv, letter), out = with_letter(out_.delta_conv, letter);
    const int rows = letter == 'v' ? values : keys;
    matrix(list, layer, {in, out, WeightRole::kRouter, rows, config_.conv_taps}).out_deep = true;
  }
  MappedTensor& rate =
      matrix(list, layer, {in_.delta_rate, out_.delta_rate, WeightRole::kRouter, delta.n_value_heads, 1});
  rate.in = in_name(in_.delta_rate, layer), rate.out = out_name(out_.delta_rate, layer);
}

void Mapper::delta_by_head(std::vector<MappedTensor>& list, int layer) {
  const DeltaConfig& delta = config_.delta;
  delta_projections(list, layer);
  MappedTensor& conv =
      matrix(list, layer,
             {in_.delta_conv, out_.delta_conv, WeightRole::kRouter, delta.channels(), config_.conv_taps});
  conv.out_deep = out_naming_ != Naming::kGguf;
  conv.rows_from = value_heads(2 * delta.keys(), delta.value_dim);
  layer_vector(list, layer, in_.delta_rate, out_.delta_rate, delta.n_value_heads);
  list.back().rows_from = value_heads(0, 1);
}

void Mapper::delta_net(std::vector<MappedTensor>& list, int layer) {
  using Function = MappedTensor::Function;
  const DeltaConfig& delta = config_.delta;
  if (delta.decay_by_key) {
    delta_by_key(list, layer);
  } else {
    delta_by_head(list, layer);
  }
  if (crossing_)
    list.back().function = out_naming_ == Naming::kGguf ? Function::kMinusExp : Function::kLogOfMinus;
  layer_vector(list, layer, in_.delta_bias, out_.delta_bias, delta.decays());
  if (!delta.decay_by_key) list.back().rows_from = value_heads(0, 1);
  layer_vector(list, layer, std::string(in_.delta_norm) + ".weight", std::string(out_.delta_norm) + ".weight",
               delta.value_dim);
  linear(list, layer,
         {in_.delta_out, out_.delta_out, WeightRole::kLatent, config_.model_dim, delta.values(),
          Site::kAttentionOut});
  list.back().cols_from = value_heads(0, delta.value_dim);
}

// GGUF files have columns of what is one number for each head, and of the norm a row for each group.
void Mapper::state_space(std::vector<MappedTensor>& list, int layer) {
  using Function = MappedTensor::Function;
  const DeltaConfig& ssm = config_.delta;
  const int dim = config_.model_dim, heads = ssm.n_value_heads, values = ssm.values();
  const bool into_gguf = out_naming_ == Naming::kGguf;
  linear(list, layer,
         {in_.ssm_in, out_.ssm_in, WeightRole::kQkv, values + ssm.channels() + heads, dim, Site::kAttention,
          Part::kScanIn});
  matrix(list, layer, {in_.ssm_conv, out_.ssm_conv, WeightRole::kRouter, ssm.channels(), config_.conv_taps})
      .out_deep = !into_gguf;
  if (has(in_name(in_.ssm_conv, layer) + ".bias"))
    vector(list, layer, std::string(in_.ssm_conv) + ".bias", std::string(out_.ssm_conv) + ".bias",
           ssm.channels());
  const auto numbers = [&](std::string_view in, std::string_view out, int rows, int cols) {
    if (!into_gguf) return layer_vector(list, layer, in, out, rows * cols);
    MappedTensor& tensor = matrix(list, layer, {in, out, WeightRole::kRouter, rows, cols});
    tensor.in = in_name(in, layer), tensor.out = out_name(out, layer);
  };
  numbers(in_.ssm_rate, out_.ssm_rate, heads, 1);
  if (crossing_) list.back().function = into_gguf ? Function::kMinusExp : Function::kLogOfMinus;
  numbers(in_.ssm_skip, out_.ssm_skip, heads, 1);
  layer_vector(list, layer, in_.ssm_bias, out_.ssm_bias, heads);
  if (config_.scan_norm)
    numbers(std::string(in_.ssm_norm) + ".weight", std::string(out_.ssm_norm) + ".weight", ssm.n_key_heads,
            values / ssm.n_key_heads);
  linear(list, layer,
         {in_.ssm_out, out_.ssm_out, WeightRole::kLatent, dim, values, Site::kAttentionOut, Part::kScanOut});
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
  if (config_.head_gates)
    linear(list, layer,
           {in_.head_gate, out_.head_gate, WeightRole::kRouter, config_.n_heads, dim, Site::kAttention});
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
      (config_.latent.kv_rank > 0 && out_.latent_keys.empty());
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
  if (config_.learned_positions)
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
