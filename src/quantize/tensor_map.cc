#include "quantize/tensor_map.h"

#include <algorithm>
#include <numeric>

#include "model/arch/archs.h"
#include "model/names.h"
#include "model/sources/synthetic.h"

namespace penstock {

namespace {

// Row r of a GGUF file's heads of adjacent pairs is row pair_rows()[r] of Hugging Face's heads of halves.
std::vector<int> pair_rows(const ModelConfig& config, int n_rows) {
  const int rotary_dim = config.ropes.empty() ? config.head_dim : config.ropes[0].rotary_dim;
  std::vector<int> rows;
  for (int row = 0; row < n_rows; ++row) {
    const int place = row % config.head_dim;
    const int half = place < rotary_dim ? place / 2 + place % 2 * (rotary_dim / 2) : place;
    rows.push_back(row - place + half);
  }
  return rows;
}

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

std::vector<int> inverse(const std::vector<int>& rows) {
  std::vector<int> result(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) result[static_cast<size_t>(rows[r])] = static_cast<int>(r);
  return result;
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

class Mapper {
 public:
  Mapper(const WeightSource& source, const ModelConfig& config, Naming out)
      : source_(source), config_(config), out_naming_(out), in_(tensor_names(config, source.naming())) {
    ModelConfig there = config;
    there.arch = arch_in(config, out);
    out_ = out == source.naming() ? in_ : tensor_names(there, out);
    in_prefix_ = prefix_of(in_);
    if (!out_.fused_expert_down.empty()) out_.expert_gate_up = "";  // written one by one
    choose_expert_names(in_, source, in_prefix_, config.n_layers);
    out_prefix_ = out == source.naming() ? in_prefix_ : std::string(out_.prefixes[0]);
    crossing_ = out != source.naming();
  }

  Result<TensorMap> map();

 private:
  std::string prefix_of(const NameTable& names) const {
    for (const std::string_view prefix : names.prefixes) {
      if (has(std::string(prefix) + std::string(names.embedding) + ".weight")) return std::string(prefix);
    }
    return std::string(names.prefixes[0]);
  }
  bool has(const std::string& name) const { return source_.find(name) != nullptr; }
  // Also when another tool quantized it.
  bool has_linear(const std::string& stem) const {
    for (const char* suffix : {".weight", ".qweight", ".weight_packed"}) {
      if (has(stem + suffix)) return true;
    }
    return false;
  }
  std::string in_name(std::string_view part, int layer) const {
    return in_prefix_ + (layer < 0 ? "" : with_index(in_.layer, layer)) + std::string(part);
  }
  std::string out_name(std::string_view part, int layer) const {
    return out_prefix_ + (layer < 0 ? "" : with_index(out_.layer, layer)) + std::string(part);
  }

  MappedTensor base(std::string_view in, std::string_view out, int layer) const;
  void vector(std::vector<MappedTensor>& list, int layer, std::string in, std::string out, int size);
  void norm(std::vector<MappedTensor>& list, int layer, std::string_view in, std::string_view out, int size,
            Part part = Part::kOther);
  struct Spec {
    std::string_view in, out;
    WeightRole role;
    int rows, cols;
    Site site = Site::kNone;
    Part part = Part::kOther;
    int in_first_row = 0, in_rows = 0;
  };
  MappedTensor& matrix(std::vector<MappedTensor>& list, int layer, const Spec& spec);
  void linear(std::vector<MappedTensor>& list, int layer, const Spec& spec);
  void reorder(MappedTensor& tensor, int n_rows) const;
  void head_norms(std::vector<MappedTensor>& list, int layer, std::string_view in, std::string_view out,
                  int n_heads);
  void qk_norms(std::vector<MappedTensor>& list, int layer);
  void output_bias(TensorMap& map);
  void layer_vector(std::vector<MappedTensor>& list, int layer, std::string_view in, std::string_view out,
                    int size);
  void expert_biases(std::vector<MappedTensor>& list, int layer, std::string_view in, std::string_view out,
                     int rows);
  void shared_experts(std::vector<MappedTensor>& list, int layer);
  void experts(std::vector<MappedTensor>& list, int layer, Spec spec);
  void routed_experts(std::vector<MappedTensor>& list, int layer);
  void heads(std::vector<MappedTensor>& list, int layer, const Spec& spec, int first_row);
  void latent(std::vector<MappedTensor>& list, int layer);
  void short_conv(std::vector<MappedTensor>& list, int layer);
  bool has_conv_bias() const;
  bool has_delta_in_one() const;
  std::vector<int> value_heads(int before, int each) const;
  void delta_projections(std::vector<MappedTensor>& list, int layer);
  void delta_net(std::vector<MappedTensor>& list, int layer);
  // Whole names of fused experts.
  static bool is_whole(const NameTable& names, std::string_view name) {
    return !names.expert_gate_up.empty() && (name == names.expert_gate_up || name == names.expert_down);
  }
  void mixer(std::vector<MappedTensor>& list, int layer);
  void attention(std::vector<MappedTensor>& list, int layer);
  void feed_forward(std::vector<MappedTensor>& list, int layer);

  const WeightSource& source_;
  const ModelConfig& config_;
  Naming out_naming_;
  NameTable in_, out_;
  std::string in_prefix_, out_prefix_;
  bool crossing_ = false;
};

MappedTensor Mapper::base(std::string_view in, std::string_view out, int layer) const {
  MappedTensor tensor;
  tensor.in = in_name(in, layer);
  tensor.out = out_name(out, layer);
  tensor.layer = layer;
  return tensor;
}

void Mapper::vector(std::vector<MappedTensor>& list, int layer, std::string in, std::string out, int size) {
  MappedTensor tensor = base(in, out, layer);
  tensor.rows = 1;
  tensor.cols = size;
  list.push_back(std::move(tensor));
}

void Mapper::norm(std::vector<MappedTensor>& list, int layer, std::string_view in, std::string_view out,
                  int size, Part part) {
  vector(list, layer, std::string(in) + ".weight", std::string(out) + ".weight", size);
  list.back().part = part;
  if (crossing_ && find_architecture(config_.arch)->hf_norms_less_one)
    list.back().add = out_naming_ == Naming::kGguf ? 1.0f : -1.0f;
  if (!config_.layer_norm || !config_.norm_bias) return;
  vector(list, layer, std::string(in) + ".bias", std::string(out) + ".bias", size);
  list.back().part = part;
  list.back().is_bias = true;
}

MappedTensor& Mapper::matrix(std::vector<MappedTensor>& list, int layer, const Spec& spec) {
  MappedTensor tensor = base(std::string(spec.in) + ".weight", std::string(spec.out) + ".weight", layer);
  tensor.is_matrix = true;
  tensor.role = spec.role;
  tensor.rows = spec.rows;
  tensor.cols = spec.cols;
  tensor.site = spec.site;
  tensor.part = spec.part;
  tensor.in_first_row = spec.in_first_row;
  tensor.in_rows = spec.in_rows;
  list.push_back(std::move(tensor));
  return list.back();
}

void Mapper::linear(std::vector<MappedTensor>& list, int layer, const Spec& spec) {
  MappedTensor& weight = matrix(list, layer, spec);
  weight.is_linear = spec.part != Part::kRouter;
  weight.in_transposed = in_.transposed;
  weight.out_transposed = out_.transposed;
  reorder(weight, spec.rows);
  if (!has(in_name(std::string(spec.in) + ".bias", layer))) return;
  vector(list, layer, std::string(spec.in) + ".bias", std::string(spec.out) + ".bias", spec.rows);
  list.back().part = spec.part;
  list.back().is_bias = true;
  reorder(list.back(), spec.rows);
}

void Mapper::reorder(MappedTensor& tensor, int n_rows) const {
  if (!crossing_) return;
  const Architecture& row = *find_architecture(config_.arch);
  std::vector<int> rows;
  const bool rotated = tensor.part == Part::kQ || tensor.part == Part::kK;
  if (rotated && row.gguf_pairs) rows = pair_rows(config_, n_rows);
  if (tensor.part == Part::kQkv && row.hf_qkv_by_group) rows = rows_by_group(config_);
  tensor.rows_from = out_naming_ == Naming::kGguf ? std::move(rows) : inverse(rows);
}

void Mapper::output_bias(TensorMap& map) {
  const std::string name = std::string(in_.lm_head) + ".bias";
  if (!has(name)) return;
  vector(map.outside, -1, name, std::string(out_.lm_head) + ".bias", config_.vocab_size);
  map.outside.back().in = name;
  map.outside.back().out = std::string(out_.lm_head) + ".bias";
}

// A vector by its whole name.
void Mapper::layer_vector(std::vector<MappedTensor>& list, int layer, std::string_view in,
                          std::string_view out, int size) {
  vector(list, layer, std::string(in), std::string(out), size);
}

// [n_experts, rows], where there is one.
void Mapper::expert_biases(std::vector<MappedTensor>& list, int layer, std::string_view in,
                           std::string_view out, int rows) {
  const std::string bias = std::string(in) + ".bias";
  if (bias.find("{}") != std::string::npos || !has(in_name(bias, layer))) return;
  for (int e = 0; e < config_.n_experts; ++e) {
    vector(list, layer, bias, std::string(out) + ".bias", rows);
    list.back().in_expert = list.back().expert = e;
    list.back().out_experts = config_.n_experts;
    list.back().is_bias = true;
  }
}

void Mapper::shared_experts(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim, ffn = config_.shared_ffn_dim;
  const WeightRole wide = WeightRole::kGateUp;
  const bool fused = !in_.shared_gate_up.empty();
  const std::string_view gate = fused ? in_.shared_gate_up : in_.shared_gate;
  const std::string_view up = fused ? in_.shared_gate_up : in_.shared_up;
  const int all = fused ? 2 * ffn : 0, second = fused ? ffn : 0;
  linear(list, layer, {gate, out_.shared_gate, wide, ffn, dim, Site::kFeedForward, Part::kOther, 0, all});
  linear(list, layer, {up, out_.shared_up, wide, ffn, dim, Site::kFeedForward, Part::kOther, second, all});
  linear(list, layer, {in_.shared_down, out_.shared_down, WeightRole::kDown, dim, ffn});
  if (!config_.shared_expert_gate) return;
  linear(list, layer,
         {in_.shared_router, out_.shared_router, WeightRole::kRouter, 1, dim, Site::kFeedForward,
          Part::kRouter});
}

// Norms with weights of their own for every head: one tensor, or one for each.
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
    norm(list, layer, in_.k_norm, out_.k_norm, k);
  };
  switch (config_.qk_norm) {
    case QkNorm::kNone: return;
    case QkNorm::kHead: return both(config_.head_dim, config_.head_dim);
    case QkNorm::kRow: return both(config_.q_dim(), config_.kv_dim());
    case QkNorm::kHeads:
      head_norms(list, layer, in_.q_norm, out_.q_norm, config_.n_heads);
      return head_norms(list, layer, in_.k_norm, out_.k_norm, config_.n_kv_heads);
  }
}

void Mapper::experts(std::vector<MappedTensor>& list, int layer, Spec spec) {
  const std::string in(spec.in), out(spec.out);
  for (int e = 0; e < config_.n_experts; ++e) {
    const std::string in_e = with_index(in, e), out_e = with_index(out, e);
    spec.in = in_e;
    spec.out = out_e;
    MappedTensor& tensor = matrix(list, layer, spec);
    tensor.is_linear = true;
    tensor.expert = e;
    if (is_whole(in_, in)) tensor.in = in_name(in, layer);
    if (in.find("{}") == std::string::npos) tensor.in_expert = e;
    if (out.find("{}") == std::string::npos) tensor.out_experts = config_.n_experts;
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
  return out_.key_heads_in_turn ? rows : inverse(rows);
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

void Mapper::delta_net(std::vector<MappedTensor>& list, int layer) {
  using Function = MappedTensor::Function;
  const DeltaConfig& delta = config_.delta;
  const bool into_gguf = out_naming_ == Naming::kGguf;
  delta_projections(list, layer);
  MappedTensor& conv =
      matrix(list, layer,
             {in_.delta_conv, out_.delta_conv, WeightRole::kRouter, delta.channels(), config_.conv_taps});
  conv.out_deep = !into_gguf;
  conv.rows_from = value_heads(2 * delta.keys(), delta.value_dim);
  layer_vector(list, layer, in_.delta_rate, out_.delta_rate, delta.n_value_heads);
  list.back().rows_from = value_heads(0, 1);
  if (crossing_) list.back().function = into_gguf ? Function::kMinusExp : Function::kLogOfMinus;
  layer_vector(list, layer, in_.delta_bias, out_.delta_bias, delta.n_value_heads);
  list.back().rows_from = value_heads(0, 1);
  layer_vector(list, layer, std::string(in_.delta_norm) + ".weight", std::string(out_.delta_norm) + ".weight",
               delta.value_dim);
  linear(list, layer,
         {in_.delta_out, out_.delta_out, WeightRole::kLatent, config_.model_dim, delta.values(),
          Site::kAttentionOut});
  list.back().cols_from = value_heads(0, delta.value_dim);
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
  if (post) norm(list, layer, in_.attn_post_norm, out_.attn_post_norm, dim);
}

void Mapper::attention(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim, q = config_.q_dim(), kv = config_.kv_dim();
  const int queries = config_.attention_gate ? 2 * q : q;
  if (config_.latent.kv_rank > 0) {
    latent(list, layer);
  } else if (!in_.qkv.empty() && !config_.attention_gate && has_linear(in_name(in_.qkv, layer))) {
    linear(list, layer, {in_.qkv, out_.qkv, WeightRole::kQkv, q + 2 * kv, dim, Site::kAttention, Part::kQkv});
  } else {
    linear(list, layer, {in_.q, out_.q, WeightRole::kQ, queries, dim, Site::kAttention, Part::kQ});
    linear(list, layer, {in_.k, out_.k, WeightRole::kK, kv, dim, Site::kAttention, Part::kK});
    linear(list, layer, {in_.v, out_.v, WeightRole::kV, kv, dim, Site::kAttention, Part::kV});
  }
  qk_norms(list, layer);
  if (config_.attention_sinks) layer_vector(list, layer, in_.sinks, out_.sinks, config_.n_heads);
  if (config_.sub_norms) norm(list, layer, in_.attn_sub_norm, out_.attn_sub_norm, q);
  linear(list, layer,
         {in_.o, out_.o, WeightRole::kO, dim, config_.attended_dim(), Site::kAttentionOut, Part::kO});
}

void Mapper::routed_experts(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim, width = config_.expert_ffn_dim;
  std::string_view gate = in_.expert_gate, up = in_.expert_up, down = in_.expert_down;
  if (source_.naming() == Naming::kGguf && !has(in_name(gate, layer) + ".weight"))
    gate = "ffn_gate.{}", up = "ffn_up.{}", down = "ffn_down.{}";
  const bool fused = !in_.expert_gate_up.empty(), keep = !crossing_ && !fused;
  if (fused) gate = up = in_.expert_gate_up;
  const int all = fused ? 2 * width : 0, second = fused ? width : 0;
  const WeightRole wide = WeightRole::kGateUp, narrow = WeightRole::kDown;
  linear(list, layer,
         {in_.router, out_.router, WeightRole::kRouter, config_.n_experts, dim, Site::kFeedForward,
          Part::kRouter});
  experts(list, layer,
          {gate, keep ? gate : out_.expert_gate, wide, width, dim, Site::kFeedForward, Part::kGate, 0, all});
  experts(list, layer,
          {up, keep ? up : out_.expert_up, wide, width, dim, Site::kFeedForward, Part::kUp, second, all});
  experts(list, layer, {down, keep ? down : out_.expert_down, narrow, dim, width, Site::kDown, Part::kDown});
  expert_biases(list, layer, gate, out_.expert_gate, width);
  expert_biases(list, layer, up, out_.expert_up, width);
  expert_biases(list, layer, down, out_.expert_down, dim);
  if (config_.expert_selection_bias)
    layer_vector(list, layer, in_.selection_bias, out_.selection_bias, config_.n_experts);
  if (config_.shared_ffn_dim > 0) shared_experts(list, layer);
}

void Mapper::feed_forward(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim, ffn = config_.ffn_dim;
  const bool pre = config_.norms != NormPlacement::kPost, post = config_.norms != NormPlacement::kPre;
  const WeightRole wide = WeightRole::kGateUp, narrow = WeightRole::kDown;
  const bool own_norm = !config_.parallel || config_.parallel_norms;
  if (pre && own_norm) norm(list, layer, in_.ffn_norm, out_.ffn_norm, dim, Part::kFeedForwardNorm);
  if (config_.layers[static_cast<size_t>(layer)].moe) {
    routed_experts(list, layer);
  } else {
    const bool gated = config_.gated_ffn;
    const bool separate = !in_.gate.empty() && has_linear(in_name(in_.gate, layer));
    if (gated && !separate) {
      linear(list, layer, {in_.gate_up, out_.gate_up, wide, 2 * ffn, dim, Site::kFeedForward, Part::kGateUp});
    } else {
      if (gated) linear(list, layer, {in_.gate, out_.gate, wide, ffn, dim, Site::kFeedForward, Part::kGate});
      linear(list, layer, {in_.up, out_.up, wide, ffn, dim, Site::kFeedForward, Part::kUp});
    }
    if (config_.sub_norms) norm(list, layer, in_.ffn_sub_norm, out_.ffn_sub_norm, ffn);
    linear(list, layer, {in_.down, out_.down, narrow, dim, ffn, Site::kDown, Part::kDown});
  }
  if (post) norm(list, layer, in_.ffn_post_norm, out_.ffn_post_norm, dim);
}

Result<TensorMap> Mapper::map() {
  TensorMap map;
  const bool fused_out =
      !out_.expert_gate_up.empty() || (config_.latent.kv_rank > 0 && out_.latent_keys.empty());
  if (crossing_ && has_conv_bias()) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: conv_bias: GGUF has no convolutions with biases in architecture {}",
                  source_.path().string(), config_.arch);
  }
  if (config_.latent.kv_rank > 0 && !in_.latent_keys.empty() &&
      !has(in_name(in_.latent_keys, 0) + ".weight")) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: the file was converted before keys and values of latents had tensors of their own, and "
        "is only read: convert the model again",
        source_.path().string());
  }
  const bool one_by_one = !in_.delta_qkv.empty() && out_.delta_qkv.empty() && !has_delta_in_one();
  const bool fused_in = in_.experts_transposed || in_.experts_interleaved;
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
  map.model = MixedModel::of(config_);
  const int dim = config_.model_dim;
  matrix(map.outside, -1, {in_.embedding, out_.embedding, WeightRole::kEmbedding, config_.vocab_size, dim});
  if (config_.learned_positions)
    matrix(map.outside, -1, {in_.positions, out_.positions, WeightRole::kRouter, config_.max_seq_len, dim});
  if (config_.embedding_norm) norm(map.outside, -1, in_.embedding_norm, out_.embedding_norm, dim);
  norm(map.outside, -1, in_.final_norm, out_.final_norm, dim);
  output_bias(map);
  if (!map.model.tied) {
    MappedTensor& head =
        matrix(map.outside, -1, {in_.lm_head, out_.lm_head, WeightRole::kOutput, config_.vocab_size, dim});
    head.in = std::string(in_.lm_head) + ".weight";
    head.out = std::string(out_.lm_head) + ".weight";
  }
  for (int i = 0; i < config_.n_layers; ++i) {
    std::vector<MappedTensor>& list = map.layers.emplace_back();
    mixer(list, i);
    feed_forward(list, i);
  }
  return map;
}

}  // namespace

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
  return Mapper(source, config, out).map();
}

const MappedTensor* TensorMap::find_linear(int layer, std::string_view in) const {
  for (const MappedTensor& tensor : layers[static_cast<size_t>(layer)]) {
    if (tensor.is_linear && tensor.in == in) return &tensor;
  }
  return nullptr;
}

}  // namespace penstock
