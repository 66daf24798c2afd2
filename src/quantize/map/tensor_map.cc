#include "quantize/map/tensor_map.h"

#include <algorithm>

#include "model/arch/archs.h"
#include "model/blocks/layer_tensors.h"
#include "model/blocks/rwkv.h"
#include "model/next_token_layer.h"
#include "model/sources/synthetic.h"
#include "quantize/map/tensor_mapper.h"

namespace penstock {

namespace {

class Mapper {
 public:
  Mapper(const WeightSource& source, const ModelConfig& config, Naming out)
      : source_(source), config_(config), out_naming_(out), layers_(source, config, out) {}
  Result<TensorMap> map();
  // Maps the next-token prediction (MTP) layer `index`. Returns whether the file has it, and of a
  // known kind.
  bool map_next_token(int index, TensorMap& map);
  Status check_unused(const TensorMap& map) const { return layers_.check_unused(map); }

 private:
  Status check_writable() const;
  void map_frame(TensorMap& map);
  void output_bias(TensorMap& map);
  void per_layer_frame();
  void streams(std::string_view in, std::string_view out);
  void multiply(TensorMap& map) const;
  void own_table(TensorMap& map, const std::string& in, const std::string& out,
                 const std::string& models, WeightRole role);

  const WeightSource& source_;
  const ModelConfig& config_;
  const Naming out_naming_;
  TensorMapper layers_;
};

void Mapper::output_bias(TensorMap& map) {
  const std::string name = std::string(layers_.in().lm_head) + ".bias";
  if (!layers_.has(name)) return;
  layers_.vector(name, std::string(layers_.out().lm_head) + ".bias", config_.vocab_size);
  map.outside.back().in = name;
  map.outside.back().out = std::string(layers_.out().lm_head) + ".bias";
}

void Mapper::per_layer_frame() {
  const int dim = config_.model_dim, own = config_.per_layer.dim, all = config_.n_layers * own;
  layers_.matrix({layers_.in()[tensor::kPerLayerTable], layers_.out()[tensor::kPerLayerTable],
                  WeightRole::kEmbedding, config_.per_layer_rows(), all});
  layers_.matrix({layers_.in()[tensor::kPerLayerFrame], layers_.out()[tensor::kPerLayerFrame],
                  WeightRole::kRouter, all, dim, Site::kNone, Part::kRouter});
  layers_.norm(layers_.in()[tensor::kPerLayerFrameNorm], layers_.out()[tensor::kPerLayerFrameNorm],
               own);
}

// Maps one matrix for every stream but the first: a tensor each, or one tensor of all.
void Mapper::streams(std::string_view in, std::string_view out) {
  const int others = config_.altup.n_streams - 1, dim = config_.model_dim;
  for (int s = 0; s < others; ++s) {
    const std::string from = with_index(in, s), to = with_index(out, s);
    MappedTensor& tensor =
        layers_.matrix({from, to, WeightRole::kRouter, dim, dim, Site::kNone, Part::kRouter});
    tensor.expert = s;
    if (in.find("{}") == std::string_view::npos) tensor.in_expert = s;
    if (out.find("{}") == std::string_view::npos) tensor.out_experts = others;
  }
}

// Multiplies factors that are applied outside of the layers at run time into the weights.
void Mapper::multiply(TensorMap& map) const {
  for (MappedTensor& tensor : map.outside) {
    const float factor = tensor.role == WeightRole::kEmbedding ? config_.embedding.scale
                         : tensor.role == WeightRole::kOutput  ? config_.output.scale
                                                               : 1.0f;
    const int count = tensor.is_matrix ? tensor.rows : tensor.cols;
    if (factor != 1.0f) tensor.factors.assign(static_cast<size_t>(count), factor);
  }
}

// Errors: kUnsupported for models that can be read but not rewritten.
Status Mapper::check_writable() const {
  const NameTable &in = layers_.in(), &out = layers_.out();
  if (!config_.output.has_head) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: architecture {} is an encoder, which is read from both formats and not rewritten",
        source_.path().string(), config_.arch);
  }
  if (rwkv_config(config_) != nullptr) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: architecture {} is read from both formats and not rewritten",
                  source_.path().string(), config_.arch);
  }
  if (config_.compressed.query_rank > 0 || config_.convolved.taps > 0 ||
      config_.profiles.width > 0 || config_.residual.recalls) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: architecture {} is read from directories as published, and not rewritten",
                  source_.path().string(), config_.arch);
  }
  const bool fused_out = out.experts_transposed || out.experts_interleaved || out.experts_flat ||
                         (!out[tensor::kSharedGateUp].empty() &&
                          (out_naming_ != Naming::kGguf || in[tensor::kSharedGateUp].empty())) ||
                         (config_.latent.kv_rank > 0 && out[tensor::kLatentKeys].empty() &&
                          !in[tensor::kLatentKeys].empty());
  const auto attending = std::ranges::find(config_.layers, true, &LayerConfig::attention);
  if (config_.latent.kv_rank > 0 && !in[tensor::kLatentKeys].empty() &&
      attending != config_.layers.end() &&
      !layers_.has(layers_.in_name(in[tensor::kLatentKeys],
                                   static_cast<int>(attending - config_.layers.begin())) +
                   ".weight")) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: the file was converted before keys and values of latents had tensors of "
                  "their own, and is only read: convert the model again",
                  source_.path().string());
  }
  const bool fused_in = in.fused_expert_biases;
  if (fused_out) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: a directory of architecture {} holds several matrices in one tensor, which "
                  "is not written: write a GGUF file",
                  source_.path().string(), config_.arch);
  }
  if (fused_in) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: experts of architecture {} are read from a directory, not rewritten: {}",
                  source_.path().string(), config_.arch, "only its GGUF files can be quantized");
  }
  return {};
}

// Maps tensors outside of the layers.
void Mapper::map_frame(TensorMap& map) {
  const NameTable &in = layers_.in(), &out = layers_.out();
  layers_.into(map.outside, -1);
  const ModelConfig written = layers_.crossing() ? config_in(config_, out_naming_) : config_;
  map.model = MixedModel::of(written);
  const int dim = config_.model_dim;
  layers_.matrix({in.embedding, out.embedding, WeightRole::kEmbedding, config_.vocab_size, dim});
  if (config_.positions.learned && !config_.positions.computed)
    layers_.matrix({in.positions, out.positions, WeightRole::kRouter,
                    config_.positions.skipped + config_.max_seq_len, dim});
  for (const RopeConfig& rope : config_.ropes) {
    if (!rope.learned) continue;
    layers_.vector(std::string(in[tensor::kRopeLogs]), std::string(out[tensor::kRopeLogs]),
                   rope.rotary_dim / 2);
    break;  // all layers have the same
  }
  if (config_.embedding.norm) layers_.norm(in.embedding_norm, out.embedding_norm, dim);
  if (!in.final_norm.empty()) layers_.norm(in.final_norm, out.final_norm, dim);
  if (config_.norm.plain_final) map.outside.back().add = 0;
  StreamGateWeights none;
  if (config_.streams.count > 0) visit_last(layers_, none);
  StreamMixWeights no_shares;
  if (config_.mixed_streams.ends_by_shares) visit_last(layers_, no_shares);
  if (config_.per_layer.dim > 0) per_layer_frame();
  if (config_.altup.n_streams > 0) {
    streams(in[tensor::kStreamsIn], out[tensor::kStreamsIn]);
    streams(in[tensor::kStreamsOut], out[tensor::kStreamsOut]);
  }
  output_bias(map);
  if (!map.model.tied) {
    MappedTensor& head =
        layers_.matrix({config_.embedding.tied ? in.embedding : in.lm_head, out.lm_head,
                        WeightRole::kOutput, config_.output_rows(), dim});
    if (!config_.embedding.tied) head.in = std::string(in.lm_head) + ".weight";
    head.out = std::string(out.lm_head) + ".weight";
    if (layers_.crossing() && config_.output.unit_rows)
      head.function = MappedTensor::Function::kUnitRows;
  }
}

Result<TensorMap> Mapper::map() {
  RETURN_IF_ERROR(check_writable());
  TensorMap map;
  map_frame(map);
  map.layers.resize(static_cast<size_t>(config_.n_layers));
  for (int i = 0; i < config_.n_layers; ++i) {
    if (config_.repeats(i)) continue;
    LayerWeights none;
    layers_.into(map.layers[static_cast<size_t>(i)], i);
    visit_layer(layers_, none);
  }
  RETURN_IF_ERROR(layers_.status());
  std::ranges::move(layers_.tables(), std::back_inserter(map.outside));
  if (layers_.crossing() && out_naming_ == Naming::kGguf &&
      find_architecture(config_.arch)->gguf_multiplied)
    multiply(map);
  return map;
}

// Maps a table of the MTP layer, unless it is a copy of the model's own.
void Mapper::own_table(TensorMap& map, const std::string& in, const std::string& out,
                       const std::string& models, WeightRole role) {
  const TensorInfo *own = source_.find(in + ".weight"), *other = source_.find(models + ".weight");
  if (own == nullptr) return;
  const bool same = other != nullptr && own->type == other->type && own->shape == other->shape &&
                    std::ranges::equal(own->bytes, other->bytes);
  if (same) return map.copies.push_back(in + ".weight");
  layers_.into(map.outside, -1);
  MappedTensor& table = layers_.matrix({in, out, role, config_.vocab_size, config_.model_dim});
  table.in = in + ".weight", table.out = out + ".weight";
}

bool Mapper::map_next_token(int index, TensorMap& map) {
  const auto layer_config = next_token_config(config_, index, source_.path().string());
  if (!layer_config) return false;
  const auto at = [&](const std::string& prefix, const NameTable& names, int n) {
    return prefix + with_index(names.layer, config_.n_layers + n);
  };
  const auto in_stems = [&](int n) {
    return next_token_stems(source_, at(layers_.in_prefix(), layers_.in(), n), n);
  };
  const NextTokenStems in = in_stems(index);
  if (!layers_.has_linear(in.projection)) return false;
  // Several layers that share a projection would each need a copy of it.
  if (index > 0 && in.projection == in_stems(0).projection) return false;
  const NextTokenStems out =
      layers_.crossing()
          ? next_token_stems(out_naming_, at(layers_.out_prefix(), layers_.out(), index),
                             layers_.out().next_token, index)
          : in;
  const std::string embedding = layers_.in_name(layers_.in().embedding, -1),
                    final_norm = layers_.in_name(layers_.in().final_norm, -1);
  const std::string head = config_.embedding.tied ? embedding : std::string(layers_.in().lm_head);

  Mapper one(source_, *layer_config, out_naming_);
  one.layers_.begin_names_with(in.layer, out.layer);
  one.layers_.into(map.outside, -1);
  const size_t first = map.outside.size(), n_copies = map.copies.size();
  const int dim = config_.model_dim;
  one.layers_.linear({in.projection, out.projection, WeightRole::kOther, dim, 2 * dim});
  one.layers_.norm(in.embedding_norm, out.embedding_norm, dim);
  one.layers_.norm(in.state_norm, out.state_norm, dim);
  // Files may omit the final norm if it is the model's.
  one.layers_.norm(layers_.has(in.final_norm + ".weight") ? in.final_norm : final_norm,
                   out.final_norm, dim);
  one.own_table(map, in.embedding, out.embedding, embedding, WeightRole::kEmbedding);
  one.own_table(map, in.head, out.head, head, WeightRole::kOutput);
  LayerWeights none;
  one.layers_.into(map.outside, 0);
  visit_layer(one.layers_, none);
  const auto own = std::span(map.outside).subspan(first);
  const bool known = std::ranges::all_of(own, [&](const MappedTensor& tensor) {
    const size_t stem = tensor.in.size() - std::string_view(".weight").size();
    return layers_.has(tensor.in) ||
           (tensor.in.ends_with(".weight") && layers_.has_linear(tensor.in.substr(0, stem)));
  });
  if (!known) {  // an unknown kind of layer
    map.outside.resize(first), map.copies.resize(n_copies);
    return false;
  }
  // Tensors get the types of the last layer.
  for (MappedTensor& tensor : own) {
    if (tensor.layer == 0) tensor.layer = config_.n_layers - 1;
    if (tensor.nth == 0) tensor.nth = std::max(layers_.n_values() - 1, 0);
  }
  ++map.n_next_tokens;
  return true;
}

}  // namespace

ModelConfig config_in(const ModelConfig& config, Naming naming) {
  const Architecture* row = find_architecture(config.arch);
  ModelConfig there = config;
  if (naming == Naming::kGguf) there.output.unit_rows = false;  // the map makes them so
  if (naming != Naming::kGguf || row == nullptr || !row->gguf_multiplied) return there;
  if (config.embedding.scale != config.output.scale) there.embedding.tied = false;
  there.attention.in_factor = there.attention.out_factor = there.attention.key_factor = 1.0f;
  there.ffn.gate_factor = there.ffn.down_factor = 1.0f;
  there.replace_mixers([](const Mixer& mixer) { return mixer.unmultiplied(); });
  there.embedding.scale = there.output.scale = 1.0f;
  return there;
}

std::string arch_in(const ModelConfig& config, Naming naming) {
  if (naming == Naming::kGguf) {
    return gguf_arch(config);
  }
  if (config.arch == "bitnet") return "bitnet-b1.58";  // one class for all models
  const bool windows =
      std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return layer.window > 0; });
  if (config.arch == "olmo2" && windows) return "olmo3";
  if (config.arch != "llama") return config.arch;
  if (config.experts.count > 0) return "mixtral";
  return windows ? "mistral" : "llama";
}

// Returns a setting of config.json that GGUF cannot express ("alibi: true"), or "".
static std::string_view unsaid_in_gguf(const ModelConfig& config) {
  if (config.residual.adds_to_norm) return "apply_residual_connection_post_layernorm: true";
  if (config.attention.alibi_scaled) return "alibi: true";
  if (config.attention.qk_norm == QkNorm::kBare) return "qk_scale_factor";
  // Layers with latents of their own have a factor of these.
  const auto same = [](const LayerConfig& layer) {
    return layer.score_factor == 1.0f || layer.latent != nullptr;
  };
  return std::ranges::all_of(config.layers, same) ? "" : "scale_attn_by_inverse_layer_idx: true";
}

Result<TensorMap> map_tensors(const WeightSource& source, const ModelConfig& config, Naming out) {
  if (const std::string_view unsaid = unsaid_in_gguf(config);
      out == Naming::kGguf && !unsaid.empty()) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: config.json: {}: no GGUF file of architecture {} can say it: write a directory",
        source.path().string(), unsaid, config.arch);
  }
  Mapper mapper(source, config, out);
  ASSIGN_OR_RETURN(TensorMap map, mapper.map());
  while (map.n_next_tokens < kMostNextTokenLayers &&
         mapper.map_next_token(map.n_next_tokens, map)) {
  }
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
