#include "model/eagle_layer.h"
#include "model/arch/read_config.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "model/arch/archs.h"
#include "model/arch/config_reader.h"
#include "model/blocks/counts.h"
#include "model/blocks/layer_tensors.h"
#include "model/forward/decoder.h"
#include "model/load/frame_loader.h"
#include "model/load/layer_loader.h"

namespace penstock {
namespace {

constexpr size_t kMostStreams = 8;

// REQUIRES: no adapters, one rank.
Status load_eagle(TensorLoader& tensors, int n_taps, int draft_vocab, EagleWeights& out) {
  RETURN_IF_ERROR(tensors.open());
  const ModelConfig& config = tensors.config();
  const NameTable& names = tensors.names();
  const int dim = config.model_dim;
  const std::string at =
      tensors.has_matrix("midlayer.self_attn.q_proj.weight") ? "midlayer." : "layers.0.";
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  LayerWeights& layer = out.decoder.layers.emplace_back();
  AttentionWeights& attention = layer.attention;
  RETURN_IF_ERROR(FrameLoader(tensors, {}).load_ropes(out.decoder));
  RETURN_IF_ERROR(tensors.linear("fc", dim, n_taps * dim, out.projection));
  RETURN_IF_ERROR(tensors.norm(name(names[tensor::kAttnNorm]), dim, false, out.embedding_norm));
  RETURN_IF_ERROR(tensors.norm(name("hidden_norm"), dim, false, out.state_norm));
  RETURN_IF_ERROR(tensors.linear(name(names[tensor::kQ]), config.q_dim(), 2 * dim, attention.q));
  RETURN_IF_ERROR(tensors.linear(name(names[tensor::kK]), config.kv_dim(), 2 * dim, attention.k));
  RETURN_IF_ERROR(tensors.linear(name(names[tensor::kV]), config.kv_dim(), 2 * dim, attention.v));
  RETURN_IF_ERROR(tensors.linear(name(names[tensor::kO]), dim, config.q_dim(), attention.o));
  RETURN_IF_ERROR(tensors.norm(name(names[tensor::kFfnNorm]), dim, false, layer.ffn_norm));
  LayerLoader rest(tensors, at, 0);
  visit_feed_forward(rest, layer);
  RETURN_IF_ERROR(rest.status());
  RETURN_IF_ERROR(tensors.norm("norm", dim, false, out.decoder.final_norm));
  if (tensors.has_matrix("embed_tokens.weight")) {
    ASSIGN_OR_RETURN(out.decoder.embedding,
                     tensors.weight("embed_tokens", config.vocab_size, dim, WeightUse::kTable));
  }
  ASSIGN_OR_RETURN(out.decoder.lm_head,
                   tensors.weight("lm_head", draft_vocab, dim, WeightUse::kOutput));
  for (const TensorInfo& tensor : tensors.source().tensors()) {
    if (tensors.used().contains(tensor.name) || tensor.name == "d2t" || tensor.name == "t2d")
      continue;
    return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: not expected in a layer of EAGLE-3",
                  tensors.source().path().string(), tensor.name);
  }
  return {};
}

}  // namespace

EagleLayer::EagleLayer(std::unique_ptr<WeightSource> source, const Model& target,
                       ModelConfig config)
    : source_(std::move(source)),
      target_(target),
      config_(std::move(config)),
      weights_(std::make_unique<EagleWeights>()) {}
EagleLayer::~EagleLayer() = default;

Status EagleLayer::read_taps() {
  const std::string where = source_->path().string() + ": config.json";
  const int n = target_.config().n_layers;
  const nlohmann::json eagle = source_->config().value("eagle_config", nlohmann::json::object());
  const nlohmann::json* listed = nullptr;
  for (const nlohmann::json* object : {&eagle, &source_->config()}) {
    const auto found = object->find("eagle_aux_hidden_state_layer_ids");
    if (listed == nullptr && found != object->end() && !found->is_null()) listed = &*found;
  }
  taps_ = {2, n / 2, n - 3};
  if (listed != nullptr) {
    taps_.clear();
    if (!listed->is_array() || listed->empty() || listed->size() > kMostStreams) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: eagle_aux_hidden_state_layer_ids: expected a list of 1 to {} layers",
                    where, kMostStreams);
    }
    for (const nlohmann::json& id : *listed)
      taps_.push_back(id.is_number_integer() && id >= 0 && id < n ? id.get<int>() : -1);
  }
  for (const int tap : taps_) {
    if (tap >= 0 && tap < n) continue;
    return errorf(
        ErrorCode::kUnsupported,
        "{}: the streams before layers {} of the target are read, which has layers 0 to {}", where,
        listed != nullptr ? listed->dump() : "2, n / 2 and n - 3", n - 1);
  }
  return {};
}

// Reads d2t, which maps rows of the draft's output to the target's tokens.
Status EagleLayer::read_vocabulary() {
  const int vocab = target_.config().vocab_size;
  const TensorInfo* offsets = source_->find("d2t");
  if (offsets == nullptr) {
    if (draft_vocab_ == vocab) return {};
    return errorf(ErrorCode::kCorruptFile,
                  "{}: tensor d2t is missing, by which {} rows of the output are tokens of {}",
                  source_->path().string(), draft_vocab_, vocab);
  }
  if (offsets->type != QuantType::kI64 || offsets->n_elements() != draft_vocab_) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: tensor d2t: expected {} numbers of type I64, got {} of {}",
                  source_->path().string(), draft_vocab_, offsets->n_elements(),
                  quant_info(offsets->type).name);
  }
  for (int i = 0; i < draft_vocab_; ++i) {
    int64_t offset = 0;
    std::memcpy(&offset, offsets->bytes.data() + sizeof(offset) * static_cast<size_t>(i),
                sizeof(offset));
    if (offset < -i || offset >= vocab - i) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: tensor d2t: row {}: expected a token below {}, got {} + {}",
                    source_->path().string(), i, vocab, i, offset);
    }
    vocabulary_.push_back(static_cast<TokenId>(i + offset));
  }
  return {};
}

Result<std::unique_ptr<EagleLayer>> EagleLayer::load(std::unique_ptr<WeightSource> source,
                                                     const Model& target, Ops& ops) {
  const std::string where = source->path().string();
  if (source->naming() != Naming::kHuggingFace)
    return errorf(ErrorCode::kUnsupported, "{}: spec eagle3: expected a directory with config.json",
                  where);
  ASSIGN_OR_RETURN(const ModelConfig config, read_config(*source));
  if (config.arch != "llama" || config.n_layers != 1) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: spec eagle3: expected model_type llama with one layer, got {} with {}",
                  where, config.arch, config.n_layers);
  }
  if (!target.taps_layers()) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: spec eagle3: the streams between layers of architecture {} cannot be read",
                  where, target.config().arch);
  }
  if (config.model_dim != target.config().model_dim) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: spec eagle3: expected the target's width {}, got {}", where,
                  target.config().model_dim, config.model_dim);
  }
  ConfigReader reader(source->config(), Naming::kHuggingFace, "", where + ": config.json");
  const int draft_vocab =
      reader.integer({"", "draft_vocab_size"}, 1, target.config().vocab_size, config.vocab_size);
  const bool before_residual = reader.flag({"", "norm_before_residual"}, false);
  if (reader.flag({"", "norm_before_fc"}, false))
    reader.fail(ErrorCode::kUnsupported, "norm_before_fc: expected false");
  RETURN_IF_ERROR(reader.status());
  std::unique_ptr<EagleLayer> layer(new EagleLayer(std::move(source), target, config));
  layer->draft_vocab_ = draft_vocab;
  layer->norm_before_residual_ = before_residual;
  RETURN_IF_ERROR(layer->read_taps());
  RETURN_IF_ERROR(layer->read_vocabulary());
  const Model::Progress none;
  TensorLoader tensors(*layer->source_, layer->config_, ops, none);
  RETURN_IF_ERROR(
      load_eagle(tensors, static_cast<int>(layer->taps_.size()), draft_vocab, *layer->weights_));
  layer->weight_bytes_ = count_weights(layer->config_, layer->weights_->decoder).bytes +
                         layer->weights_->projection.weight->packed_bytes();
  return layer;
}

bool EagleLayer::takes_long_rope(int64_t reach) const {
  return weights_->decoder.takes_long_rope(reach);
}

StepOutputs EagleLayer::forward(const Batch& batch, std::span<const float> states,
                                GuessOptions options, KvCache& cache, Ops& ops) const {
  const EagleWeights& w = *weights_;
  const LayerWeights& layer = w.decoder.layers[0];
  const int dim = config_.model_dim;
  const StepShape shape = ops.begin_step(&batch);
  const Tensor embedded = ops.new_tensor(shape.tokens, dim),
               both = ops.new_tensor(shape.tokens, 2 * dim);
  const Tensor x = ops.new_tensor(shape.tokens, dim, TensorRole::kStream);
  if (options.own) {
    ops.write_rows(states, x);
  } else {
    const Tensor streams = ops.new_tensor(shape.tokens, static_cast<int>(taps_.size()) * dim);
    ops.write_rows(states, streams);
    const LinearTarget projected = w.projection.into(x);
    ops.linear(streams, {&projected, 1});
  }
  if (w.decoder.embedding) {
    ops.embed_tokens(*w.decoder.embedding, config_.embedding.scale, embedded);
  } else {
    target_.embed(embedded, ops);
  }
  ops.norm(embedded, norm_params(config_, w.embedding_norm), both.columns(0, dim));
  ops.norm(x, norm_params(config_, w.state_norm), both.columns(dim, dim));
  if (norm_before_residual_) ops.copy(both.columns(dim, dim), x);
  DecoderParts parts(config_, w.decoder, shape, cache, ops);
  const NormedInput between{x, norm_params(config_, layer.ffn_norm),
                            ops.new_tensor(shape.tokens, dim)};
  parts.attention(0, {both, {}, both}, x, &between);
  parts.feed_forward(0, between, x, nullptr);

  StepOutputs result;
  if (shape.outputs == 0) return result;
  result.hidden = ops.new_tensor(shape.outputs, dim);
  ops.gather_outputs(x, result.hidden);
  const Tensor normed = ops.new_tensor(shape.outputs, dim);
  ops.norm(result.hidden, norm_params(config_, w.decoder.final_norm), normed);
  result.logits = ops.new_tensor(shape.outputs, draft_vocab_, TensorRole::kLogits);
  const LinearTarget output{w.decoder.lm_head.get(), nullptr, result.logits};
  ops.linear(normed, {&output, 1});
  return result;
}

}  // namespace penstock
