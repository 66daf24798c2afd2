#include "model/next_token_layer.h"

#include <algorithm>

#include "model/arch/archs.h"
#include "model/arch/names.h"
#include "model/blocks/counts.h"
#include "model/load/frame_loader.h"
#include "model/load/load_weights.h"
#include "model/load/tensor_loader.h"

namespace penstock {

Result<ModelConfig> next_token_config(const ModelConfig& target, int index,
                                      const std::string& where) {
  const std::vector<LayerConfig>& told = target.next_token_layers;
  const auto attends = [](const LayerConfig& layer) {
    return layer.attention && !layer.carries_state() && layer.kv_layer < 0;
  };
  const auto last = std::find_if(target.layers.rbegin(), target.layers.rend(), attends);
  const Architecture* architecture = find_architecture(target.arch);
  if (last == target.layers.rend() || architecture == nullptr ||
      architecture->forward != decoder_forward) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: spec mtp: further tokens of architecture {} are not predicted: expected a layer that "
        "attends and then feeds forward",
        where, target.arch);
  }
  if (told.empty() && std::ranges::any_of(target.layers, [](const LayerConfig& layer) {
        return layer.n_heads > 0;
      })) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: spec mtp: further tokens are not predicted where layers have different "
                  "numbers of heads",
                  where);
  }
  ModelConfig config = target;
  const bool experts = target.experts.count > 0;
  config.layers = {*last};
  config.layers[0].moe = experts;
  if (!told.empty()) config.layers = {told[std::min(static_cast<size_t>(index), told.size() - 1)]};
  config.layers[0].group = 0;
  // It has an indexer of its own.
  if (config.layers[0].selecting_layer >= 0) config.layers[0].selecting_layer = 0;
  config.n_layers = 1;
  config.n_next_token_layers = 0;
  config.next_token_layers.clear();
  return config;
}

namespace {

// Loads the layer with index `layer` in the file, or with separate names. The configuration
// describes one layer.
class NextTokenLoader {
 public:
  explicit NextTokenLoader(TensorLoader& tensors)
      : tensors_(tensors),
        source_(tensors.source()),
        config_(tensors.config()),
        names_(tensors.names()) {}
  Status load(const NextTokenStems& stems, NextTokenWeights& out);

 private:
  Result<std::unique_ptr<Weight>> own_table(const std::string& stem, const std::string& targets,
                                            WeightUse use);

  TensorLoader& tensors_;
  const WeightSource& source_;
  const ModelConfig& config_;
  NameTable& names_;
};

// Returns null if the file has no table for this layer or a copy of the target's.
Result<std::unique_ptr<Weight>> NextTokenLoader::own_table(const std::string& stem,
                                                           const std::string& targets,
                                                           WeightUse use) {
  if (!tensors_.has_matrix(stem + ".weight")) return nullptr;
  const TensorInfo *own = tensors_.find(stem + ".weight"),
                   *other = tensors_.find(targets + ".weight");
  if (own != nullptr && other != nullptr && own->type == other->type &&
      own->shape == other->shape && std::ranges::equal(own->bytes, other->bytes))
    return nullptr;
  return tensors_.weight(stem, config_.vocab_size, config_.model_dim, use);
}

Status NextTokenLoader::load(const NextTokenStems& stems, NextTokenWeights& out) {
  if (!tensors_.has_matrix(stems.projection + ".weight")) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: spec mtp: the file has no layer that predicts further tokens: expected a "
                  "tensor {}.weight",
                  source_.path().string(), stems.projection);
  }
  const int dim = config_.model_dim;
  // Its experts may be stored differently from the target's layers.
  names_ = tensor_names(config_, source_.naming());
  if (!names_[tensor::kFusedExpertDown].empty()) {
    const bool fused = source_.WeightSource::find(
                           stems.layer + std::string(names_[tensor::kExpertGateUp])) != nullptr;
    if (fused) names_[tensor::kExpertDown] = names_[tensor::kFusedExpertDown];
    if (!fused) names_[tensor::kExpertGateUp] = "";
  }
  RETURN_IF_ERROR(FrameLoader(tensors_, {}).load_ropes(out.decoder));
  RETURN_IF_ERROR(tensors_.linear(stems.projection, dim, 2 * dim, out.projection));
  RETURN_IF_ERROR(tensors_.norm(stems.embedding_norm, dim, false, out.embedding_norm));
  RETURN_IF_ERROR(tensors_.norm(stems.state_norm, dim, false, out.state_norm));
  // GGUF files may omit the norm if it equals the target's.
  const bool has_norm =
      source_.naming() != Naming::kGguf || tensors_.find(stems.final_norm + ".weight") != nullptr;
  const std::string final_norm = has_norm ? stems.final_norm : tensors_.name(names_.final_norm);
  RETURN_IF_ERROR(tensors_.norm(final_norm, dim, false, out.decoder.final_norm));
  const std::string embedding = tensors_.name(names_.embedding);
  ASSIGN_OR_RETURN(out.decoder.embedding, own_table(stems.embedding, embedding, WeightUse::kTable));
  ASSIGN_OR_RETURN(
      out.decoder.lm_head,
      own_table(stems.head, config_.embedding.tied ? embedding : std::string(names_.lm_head),
                WeightUse::kOutput));
  return load_layer(tensors_, 0, stems.layer, out.decoder.layers.emplace_back());
}

}  // namespace

NextTokenLayer::NextTokenLayer(const Model& target, ModelConfig config)
    : target_(target), config_(std::move(config)), weights_(std::make_unique<NextTokenWeights>()) {}
NextTokenLayer::~NextTokenLayer() = default;

Result<std::unique_ptr<NextTokenLayer>> NextTokenLayer::load(const WeightSource& source,
                                                             const Model& target, Ops& ops,
                                                             int index) {
  ASSIGN_OR_RETURN(ModelConfig config,
                   next_token_config(target.config(), index, source.path().string()));
  std::unique_ptr<NextTokenLayer> layer(new NextTokenLayer(target, std::move(config)));
  if (target.config().next_token_streams) layer->taps_ = {target.config().n_layers};
  const Model::Progress none;
  TensorLoader tensors(source, layer->config_, ops, none);
  RETURN_IF_ERROR(tensors.open());
  const std::string at = tensors.at_layer(target.config().n_layers + index);
  RETURN_IF_ERROR(
      NextTokenLoader(tensors).load(next_token_stems(source, at, index), *layer->weights_));
  layer->weight_bytes_ = count_weights(layer->config_, layer->weights_->decoder).bytes +
                         layer->weights_->projection.weight->packed_bytes();
  return layer;
}

int NextTokenLayer::count(const WeightSource& source, const Model& target, Ops& ops) {
  const Model::Progress none;
  TensorLoader tensors(source, target.config(), ops, none);
  if (!tensors.open()) return 0;
  int n = 0;
  while (n < kMostNextTokenLayers) {
    const std::string at = tensors.at_layer(target.config().n_layers + n);
    if (!tensors.has_matrix(next_token_stems(source, at, n).projection + ".weight")) break;
    ++n;
  }
  return n;
}

bool NextTokenLayer::takes_long_rope(int64_t reach) const {
  return weights_->decoder.takes_long_rope(reach);
}

StepOutputs NextTokenLayer::forward(const Batch& batch, std::span<const float> states,
                                    GuessOptions options, KvCache& cache, Ops& ops) const {
  const NextTokenWeights& w = *weights_;
  const int dim = config_.model_dim;
  const StepShape shape = ops.begin_step(&batch);
  const Tensor embedded = ops.new_tensor(shape.tokens, dim),
               state = ops.new_tensor(shape.tokens, dim);
  const Tensor both = ops.new_tensor(shape.tokens, 2 * dim);
  const Tensor x = ops.new_tensor(shape.tokens, dim, TensorRole::kStream);
  if (w.decoder.embedding) {
    ops.embed_tokens(*w.decoder.embedding, config_.embedding.scale, embedded);
  } else {
    target_.embed(embedded, ops);
  }
  ops.write_rows(states, state);
  ops.norm(embedded, norm_params(config_, w.embedding_norm), both.columns(0, dim));
  ops.norm(state, norm_params(config_, w.state_norm), both.columns(dim, dim));
  const LinearTarget projected = w.projection.into(x);
  ops.linear(both, {&projected, 1});
  decoder_forward(config_, w.decoder, shape, cache, ops, {.stream = &x});

  StepOutputs result;
  const int rows = options.all_states ? shape.tokens : shape.outputs;
  if (rows == 0) return result;
  const NormParams norm = norm_params(config_, w.decoder.final_norm);
  result.hidden = ops.new_tensor(rows, dim);
  if (options.all_states) {
    ops.copy(x, result.hidden);
  } else {
    ops.gather_outputs(x, result.hidden);
  }
  Tensor normed = result.hidden;
  if (!taps_.empty()) normed = ops.new_tensor(rows, dim);
  ops.norm(result.hidden, norm, normed);
  if (shape.outputs == 0) return result;
  Tensor last = normed;
  if (options.all_states) {
    last = ops.new_tensor(shape.outputs, dim);
    ops.gather_outputs(normed, last);
  }
  result.logits = ops.new_tensor(shape.outputs, config_.vocab_size, TensorRole::kLogits);
  if (w.decoder.lm_head) {
    project_output(config_, w.decoder, last, result.logits, ops);
  } else {
    target_.project(last, result.logits, ops);
  }
  return result;
}

}  // namespace penstock
