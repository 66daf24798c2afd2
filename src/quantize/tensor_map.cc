#include "quantize/tensor_map.h"

#include <algorithm>
#include <cmath>

#include "model/arch/archs.h"
#include "model/names.h"
#include "model/sources/synthetic.h"
#include "quant/grouped_encode.h"

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

class Mapper {
 public:
  Mapper(const WeightSource& source, const ModelConfig& config, Naming out)
      : source_(source), config_(config), out_naming_(out), in_(tensor_names(config, source.naming())) {
    ModelConfig there = config;
    there.arch = arch_in(config, out);
    out_ = out == source.naming() ? in_ : tensor_names(there, out);
    in_prefix_ = prefix_of(in_);
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
  // Gemma's norms are stored less one in Hugging Face checkpoints and as they are in GGUF.
  if (crossing_ && config_.arch.starts_with("gemma"))
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

// Its norms, and attention or what is in its place.
void Mapper::mixer(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim;
  const bool pre = config_.norms != NormPlacement::kPost, post = config_.norms != NormPlacement::kPre;
  const LayerConfig& kind = config_.layers[static_cast<size_t>(layer)];
  if (pre) norm(list, layer, in_.attn_norm, out_.attn_norm, dim, Part::kAttentionNorm);
  if (kind.attention) attention(list, layer);
  if (kind.recurrence == Recurrence::kShortConv) short_conv(list, layer);
  if (post) norm(list, layer, in_.attn_post_norm, out_.attn_post_norm, dim);
}

void Mapper::attention(std::vector<MappedTensor>& list, int layer) {
  const int dim = config_.model_dim, q = config_.q_dim(), kv = config_.kv_dim();
  if (config_.latent.kv_rank > 0) {
    latent(list, layer);
  } else if (!in_.qkv.empty() && has_linear(in_name(in_.qkv, layer))) {
    linear(list, layer, {in_.qkv, out_.qkv, WeightRole::kQkv, q + 2 * kv, dim, Site::kAttention, Part::kQkv});
  } else {
    linear(list, layer, {in_.q, out_.q, WeightRole::kQ, q, dim, Site::kAttention, Part::kQ});
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
  const bool fused = !in_.expert_gate_up.empty(), keep = !crossing_;
  if (fused) {
    constexpr std::string_view kSuffix = ".weight";
    const auto stem = [&](std::string_view name) { return name.substr(0, name.size() - kSuffix.size()); };
    gate = up = stem(in_.expert_gate_up), down = stem(in_.expert_down);
  }
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
  const bool fused_in = in_.experts_transposed || in_.experts_interleaved;
  if (fused_out) {
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

Result<TensorReader> TensorReader::open(const WeightSource& source) {
  TensorReader reader;
  reader.source_ = &source;
  ASSIGN_OR_RETURN(std::unique_ptr<Prequantized> prequantized, open_prequantized(source));
  reader.prequantized_ = std::move(prequantized);
  return reader;
}

QuantType TensorReader::type(const MappedTensor& tensor) const {
  const TensorInfo* info = source_->find(tensor.in);
  if (info == nullptr || info->type == QuantType::kI8 || info->type == QuantType::kU8) return QuantType::kF16;
  return info->type;
}

namespace {

std::vector<float> transpose(const std::vector<float>& in, int rows, int cols) {
  std::vector<float> out(in.size());
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c)
      out[static_cast<size_t>(c) * static_cast<size_t>(rows) + static_cast<size_t>(r)] =
          in[static_cast<size_t>(r) * static_cast<size_t>(cols) + static_cast<size_t>(c)];
  }
  return out;
}

}  // namespace

Result<std::vector<float>> TensorReader::stored(const MappedTensor& tensor) const {
  const std::string where = fmt::format("{}: tensor {}", source_->path().string(), tensor.in);
  std::vector<float> values(static_cast<size_t>(tensor.rows) * static_cast<size_t>(tensor.cols));
  const int rows = tensor.in_transposed ? tensor.cols : tensor.rows,
            width = tensor.in_transposed ? tensor.rows : tensor.cols;
  const int all_rows = tensor.in_rows > 0 ? tensor.in_rows : rows;
  if (tensor.is_linear && prequantized_ != nullptr) {
    const std::string stem = tensor.in.substr(0, tensor.in.size() - std::string_view(".weight").size());
    ASSIGN_OR_RETURN(const std::optional<GroupedMatrix> layer, prequantized_->find_linear(stem));
    if (layer) {
      if (layer->rows != all_rows || layer->cols != width) {
        return errorf(ErrorCode::kCorruptFile, "{}: expected [{}, {}], got [{}, {}]", where, all_rows, width,
                      layer->rows, layer->cols);
      }
      layer->dequantize(tensor.in_first_row, rows, values.data());
      return values;
    }
  }
  const TensorInfo* info = source_->find(tensor.in);
  if (info == nullptr) return errorf(ErrorCode::kCorruptFile, "{} is missing", where);
  const int64_t n =
      tensor.in_expert >= 0 ? info->n_elements() / std::max<int64_t>(info->shape[0], 1) : info->n_elements();
  const int64_t wanted = int64_t{all_rows} * width;
  if (n != wanted || (tensor.in_expert >= 0 && tensor.in_expert >= info->shape[0])) {
    return errorf(ErrorCode::kCorruptFile, "{}: expected {} elements, got {}", where, wanted, n);
  }
  if (!can_quantize(info->type) && info->type != QuantType::kF64) {
    return errorf(ErrorCode::kUnsupported, "{}: expected an encoding of real numbers, got {}", where,
                  quant_info(info->type).name);
  }
  const size_t skip =
      tensor.in_expert >= 0 ? quant_bytes(info->type, n) * static_cast<size_t>(tensor.in_expert) : 0;
  const size_t first = quant_bytes(info->type, int64_t{tensor.in_first_row} * width);
  dequantize_row(info->type, info->bytes.data() + skip + first, values.data(), int64_t{rows} * width);
  source_->drop(*info);
  return values;
}

Result<std::vector<float>> TensorReader::read(const MappedTensor& tensor) const {
  ASSIGN_OR_RETURN(std::vector<float> values, stored(tensor));
  for (const float value : values) {
    if (!std::isfinite(value)) {
      return errorf(ErrorCode::kInvalidArgument, "{}: tensor {}: expected finite weights, got {}",
                    source_->path().string(), tensor.in, value);
    }
  }
  if (tensor.in_transposed && tensor.is_linear) values = transpose(values, tensor.cols, tensor.rows);
  return values;
}

template <class T>
void to_output_rows(const MappedTensor& tensor, size_t width, std::vector<T>& rows) {
  if (tensor.rows_from.empty()) return;
  const std::vector<T> in = rows;
  for (size_t r = 0; r < tensor.rows_from.size(); ++r) {
    const size_t from = static_cast<size_t>(tensor.rows_from[r]) * width;
    std::copy_n(in.begin() + static_cast<ptrdiff_t>(from), width,
                rows.begin() + static_cast<ptrdiff_t>(r * width));
  }
}
template void to_output_rows(const MappedTensor&, size_t, std::vector<float>&);
template void to_output_rows(const MappedTensor&, size_t, std::vector<uint8_t>&);
template void to_output_rows(const MappedTensor&, size_t, std::vector<GroupScale>&);

void to_output(const MappedTensor& tensor, std::vector<float>& values) {
  to_output_rows(tensor, tensor.is_matrix ? static_cast<size_t>(tensor.cols) : 1, values);
  for (float& value : values) value += tensor.add;
}

}  // namespace penstock
