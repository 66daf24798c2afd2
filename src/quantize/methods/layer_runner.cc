#include "quantize/methods/layer_runner.h"

#include <algorithm>
#include <cstring>

#include "model/arch/archs.h"
#include "model/arch/read_config.h"
#include "model/batch_builder.h"
#include "model/forward/decoder.h"
#include "ops/cpu/host_tensor.h"

namespace penstock {

namespace {

constexpr int kRunnerBlock = 16;
// maximum tokens of sequences that run together; a longer sequence runs alone
constexpr int kBatchTokens = 1024;

}  // namespace

Result<std::unique_ptr<LayerRunner>> LayerRunner::open(
    const WeightSource& source, const RunnerOptions& options,
    const std::vector<std::vector<TokenId>>& sequences) {
  std::unique_ptr<LayerRunner> runner(new LayerRunner);
  runner->source_ = &source;
  ASSIGN_OR_RETURN(runner->config_, read_config(source));
  if (runner->config_.latent.kv_rank > 0 || runner->config_.compressed.query_rank > 0) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: calibration does not know attention over latents: use --method rtn",
                  source.path().string());
  }
  const bool lacks = std::ranges::any_of(runner->config_.layers, [](const LayerConfig& layer) {
    return !layer.feed_forward || layer.has_no_mixer();
  });
  if (lacks || runner->config_.layers_differ() || runner->config_.per_layer.dim > 0 ||
      runner->config_.experts.beside_dense || runner->config_.experts.routes_early ||
      runner->config_.experts.reads_early || runner->config_.experts.group_size > 0 ||
      runner->config_.residual.one_mixer ||
      runner->config_.residual.weighing != ResidualWeighing::kNone ||
      runner->config_.attention.differential || runner->config_.attention.heads_in_turn ||
      runner->config_.residual.recalls) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: calibration does not know architecture {} with layers that differ or read "
                  "from others: use --method rtn",
                  source.path().string(), runner->config_.arch);
  }
  if (runner->config_.has_states()) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: calibration does not know layers that carry a state: use --method rtn",
                  source.path().string());
  }
  ASSIGN_OR_RETURN(runner->inner_, make_ops("cpu", {options.threads, options.exact}));
  runner->ops_ = std::make_unique<ObservingOps>(*runner->inner_);
  ASSIGN_OR_RETURN(runner->frame_, load_frame(source, runner->config_, *runner->inner_));
  int longest = kBatchTokens;
  runner->starts_ = {0};
  for (const auto& sequence : sequences) {
    const int length = static_cast<int>(sequence.size());
    if (length > runner->config_.max_seq_len) {
      return errorf(ErrorCode::kInvalidArgument, "{}: a sequence of {} tokens: expected at most {}",
                    source.path().string(), length, runner->config_.max_seq_len);
    }
    for (const TokenId id : sequence) {
      if (id < 0 || id >= runner->config_.vocab_size) {
        return errorf(ErrorCode::kInvalidArgument, "{}: token {}: expected 0 to {}",
                      source.path().string(), id, runner->config_.vocab_size - 1);
      }
    }
    longest = std::max(longest, length);
    runner->tokens_.insert(runner->tokens_.end(), sequence.begin(), sequence.end());
    runner->starts_.push_back(static_cast<int32_t>(runner->tokens_.size()));
  }
  const CacheSpec spec = runner->config_.cache_spec(KvDType::kF32, kRunnerBlock);
  runner->blocks_per_batch_ = (longest + kRunnerBlock - 1) / kRunnerBlock;
  const std::vector<int> blocks(static_cast<size_t>(std::max(1, spec.n_groups())),
                                runner->blocks_per_batch_);
  ASSIGN_OR_RETURN(runner->cache_, runner->inner_->make_cache(spec, blocks));
  runner->embed();
  return runner;
}

void LayerRunner::embed() {
  const auto dim = static_cast<size_t>(config_.model_dim);
  stream_.resize(tokens_.size() * dim);
  BatchBuilder builder(cache_->spec());
  for (size_t s = 0; s + 1 < starts_.size(); ++s) {
    const std::span<const TokenId> tokens(tokens_.data() + starts_[s],
                                          tokens_.data() + starts_[s + 1]);
    const GroupBlocks kv = consecutive_blocks(0, static_cast<int>(tokens.size()), kRunnerBlock);
    builder.clear();
    builder.add({.tokens = tokens, .kv = {&kv, 1}, .rows = BatchPart::Rows::kNone});
    const StepShape shape = inner_->begin_step(&builder.build());
    const Tensor x = inner_->new_tensor(shape.tokens, config_.model_dim, TensorRole::kStream);
    embed_input(config_, *frame_, shape, x, *inner_);
    std::copy_n(f32(x), tokens.size() * dim,
                stream_.data() + static_cast<size_t>(starts_[s]) * dim);
  }
}

Status LayerRunner::load(int layer) {
  if (layer_ >= 0) frame_->layers[static_cast<size_t>(layer_)] = {};
  layer_ = layer;
  ASSIGN_OR_RETURN(frame_->layers[static_cast<size_t>(layer)],
                   load_layer(*source_, config_, *inner_, layer));
  return {};
}

std::vector<std::unique_ptr<Weight>*> LayerRunner::weights_of(const MappedTensor& tensor) {
  LayerWeights& w = weights();
  if (tensor.expert >= 0) {
    const auto e = static_cast<size_t>(tensor.expert);
    if (tensor.part == Part::kGate) return {&w.experts.gate.weights[e]};
    if (tensor.part == Part::kUp) return {&w.experts.up.weights[e]};
    return {&w.experts.down.weights[e]};
  }
  switch (tensor.part) {
    case Part::kQ: return {&w.attention.q.weight};
    case Part::kK: return {&w.attention.k.weight};
    case Part::kV: return {&w.attention.v.weight};
    case Part::kQkv: return {&w.attention.q.weight, &w.attention.k.weight, &w.attention.v.weight};
    case Part::kO: return {config_.latent.kv_rank > 0 ? &w.latent.o.weight : &w.attention.o.weight};
    case Part::kRouter: return {&w.experts.router.weight};
    case Part::kGate: return {&w.dense.gate.weight};
    case Part::kUp: return {&w.dense.up.weight};
    case Part::kGateUp: return {&w.dense.gate.weight, &w.dense.up.weight};
    case Part::kDown: return {&w.dense.down.weight};
    default: return {};
  }
}

Status LayerRunner::replace(const MappedTensor& tensor, const std::vector<float>& values) {
  LayerWeights& w = weights();
  if (!tensor.is_matrix) {
    NormWeights* norm = tensor.part == Part::kAttentionNorm     ? &w.attn_norm
                        : tensor.part == Part::kFeedForwardNorm ? &w.ffn_norm
                                                                : nullptr;
    std::unique_ptr<Vector>* to = nullptr;
    std::vector<float> used = values;
    if (norm != nullptr) {
      to = tensor.is_bias ? &norm->bias : &norm->weight;
      for (float& value : used) value += tensor.is_bias ? 0.0f : config_.norm.offset;
    }
    if (tensor.part == Part::kV) to = &w.attention.v.bias;
    if (tensor.part == Part::kUp) to = &w.dense.up.bias;
    if (to == nullptr) return {};
    ASSIGN_OR_RETURN(*to, inner_->pack_vector(used));
    return {};
  }
  int first = 0;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  for (std::unique_ptr<Weight>* weight : weights_of(tensor)) {
    const QuantizedMatrix whole{QuantType::kF32, tensor.rows, tensor.cols, bytes};
    const int rows = (*weight)->rows();
    ASSIGN_OR_RETURN(*weight, inner_->pack(whole.row_range(first, rows)));
    first += rows;
  }
  return {};
}

Status LayerRunner::run(bool keep, const ObservingOps::Pass& pass) {
  ops_->begin_pass(pass);
  size_t first = 0;
  const size_t n = starts_.size() - 1;
  while (first < n) {
    size_t last = first + 1;
    int blocks = (starts_[last] - starts_[first] + kRunnerBlock - 1) / kRunnerBlock;
    while (last < n && starts_[last + 1] - starts_[first] <= kBatchTokens) {
      const int more = (starts_[last + 1] - starts_[last] + kRunnerBlock - 1) / kRunnerBlock;
      if (blocks + more > blocks_per_batch_) break;
      blocks += more;
      ++last;
    }
    run_batch(first, last, keep);
    first = last;
  }
  return {};
}

void LayerRunner::run_batch(size_t first, size_t last, bool keep) {
  const int dim = config_.model_dim, begin = starts_[first], n = starts_[last] - begin;
  BatchBuilder builder(cache_->spec());
  int next_block = 0;
  for (size_t s = first; s < last; ++s) {
    const std::span<const TokenId> tokens(tokens_.data() + starts_[s],
                                          tokens_.data() + starts_[s + 1]);
    const GroupBlocks kv =
        consecutive_blocks(next_block, static_cast<int>(tokens.size()), kRunnerBlock);
    next_block += static_cast<int>(kv.blocks.size());
    builder.add({.tokens = tokens,
                 .kv = {&kv, 1},
                 .rows = BatchPart::Rows::kNone,
                 .long_rope = frame_->takes_long_rope(static_cast<int64_t>(tokens.size()))});
  }
  const Batch& batch = builder.build();
  const StepShape shape = ops_->begin_step(&batch);
  Tensor x = ops_->new_tensor(shape.tokens, dim, TensorRole::kStream);
  const size_t at = static_cast<size_t>(begin) * static_cast<size_t>(dim),
               bytes = static_cast<size_t>(n) * static_cast<size_t>(dim) * sizeof(float);
  std::memcpy(f32(x), stream_.data() + at, bytes);
  ForwardOptions options;
  options.stream = &x;
  options.first_layer = layer_;
  options.n_layers = layer_ + 1;
  find_architecture(config_.arch)->forward(config_, *frame_, shape, *cache_, *ops_, options);
  if (keep) std::memcpy(stream_.data() + at, f32(x), bytes);
}

}  // namespace penstock
