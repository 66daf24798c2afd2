#include "model/next_token_layer.h"

#include <algorithm>

#include "model/arch/archs.h"
#include "model/arch/names.h"
#include "model/blocks/counts.h"
#include "model/load/frame_loader.h"
#include "model/load/load_weights.h"
#include "model/load/tensor_loader.h"

namespace penstock {

Result<ModelConfig> next_token_config(const ModelConfig& target, const std::string& where) {
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
  if (std::ranges::any_of(target.layers,
                          [](const LayerConfig& layer) { return layer.n_heads > 0; })) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: spec mtp: further tokens are not predicted where layers have different "
                  "numbers of heads",
                  where);
  }
  ModelConfig config = target;
  config.layers = {*last};
  config.layers[0].group = 0;
  config.layers[0].moe = target.experts.count > 0;
  // It has an indexer of its own.
  if (config.layers[0].selecting_layer >= 0) config.layers[0].selecting_layer = 0;
  config.n_layers = 1;
  config.n_next_token_layers = 0;
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
  Status load(int layer, NextTokenWeights& out);

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

Status NextTokenLoader::load(int layer, NextTokenWeights& out) {
  const auto is_there = [&](std::string_view apart) {
    return tensors_.has_matrix(std::string(apart) + "fc.weight");
  };
  const auto* const apart = std::ranges::find_if(kNextTokenApart, is_there);
  const NextTokenStems stems =
      next_token_stems(source_.naming(), tensors_.at_layer(layer),
                       apart != std::end(kNextTokenApart) ? *apart : std::string_view());
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
                                                             const Model& target, Ops& ops) {
  ASSIGN_OR_RETURN(ModelConfig config, next_token_config(target.config(), source.path().string()));
  std::unique_ptr<NextTokenLayer> layer(new NextTokenLayer(target, std::move(config)));
  const Model::Progress none;
  TensorLoader tensors(source, layer->config_, ops, none);
  RETURN_IF_ERROR(tensors.open());
  RETURN_IF_ERROR(NextTokenLoader(tensors).load(target.config().n_layers, *layer->weights_));
  layer->weight_bytes_ = count_weights(layer->config_, layer->weights_->decoder).bytes +
                         layer->weights_->projection.weight->packed_bytes();
  return layer;
}

bool NextTokenLayer::takes_long_rope(int64_t reach) const {
  return weights_->decoder.takes_long_rope(reach);
}

StepOutputs NextTokenLayer::forward(const Batch& batch, std::span<const float> states, bool /*own*/,
                                    KvCache& cache, Ops& ops) const {
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
  if (shape.outputs == 0) return result;
  result.hidden = ops.new_tensor(shape.outputs, dim);
  ops.gather_outputs(x, result.hidden);
  ops.norm(result.hidden, norm_params(config_, w.decoder.final_norm), result.hidden);
  result.logits = ops.new_tensor(shape.outputs, config_.vocab_size, TensorRole::kLogits);
  if (w.decoder.lm_head) {
    project_output(config_, w.decoder, result.hidden, result.logits, ops);
  } else {
    target_.project(result.hidden, result.logits, ops);
  }
  return result;
}

}  // namespace penstock
