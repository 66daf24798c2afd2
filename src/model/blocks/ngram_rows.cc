#include "model/blocks/ngram_rows.h"

#include <cmath>

#include "model/blocks/cuts.h"
#include "model/blocks/weights.h"

namespace penstock {

void visit(TensorVisitor& v, NgramWeights& w) {
  const auto& c = v.config();
  const NgramConfig& ngrams = c.ngrams;
  const int all = c.streams.count * c.model_dim;
  const NgramHashes& hashes =
      ngrams.hashes[static_cast<size_t>(c.layers[static_cast<size_t>(v.layer())].ngrams)];
  v.table({&tensor::kNgramTable, hashes.n_rows(), ngrams.dim / ngrams.n_rows(), ngrams.n_rows()},
          w.table);
  v.unused(&tensor::kNgramConstants);
  v.linear({&tensor::kNgramKey, WeightRole::kLatent, all, ngrams.dim}, w.key);
  v.linear({&tensor::kNgramValue, WeightRole::kLatent, c.model_dim, ngrams.dim}, w.value);
  v.norm({&tensor::kNgramKeyNorm, all}, w.key_norm);
  v.norm({&tensor::kNgramQueryNorm, all}, w.query_norm);
  v.norm({&tensor::kNgramConvNorm, all}, w.conv_norm);
  ConvSpec conv{.name = &tensor::kNgramConv, .channels = {all}, .taps = ngrams.taps};
  conv.own = {{0, all}}, conv.dilation = ngrams.ngram_size;
  v.conv(conv, w.conv, nullptr);
}

NgramRows::NgramRows(const ModelConfig& config, const ModelWeights& weights, int n, Ops& ops)
    : config_(config), weights_(weights), ops_(ops) {
  const int all = config.streams.count * config.model_dim;
  rows_ = ops.new_tensor(n, config.ngrams.dim);
  for (Tensor* each : {&keys_, &values_, &convolved_}) *each = ops.new_tensor(n, all);
  value_ = ops.new_tensor(n, config.model_dim);
  gates_ = ops.new_tensor(n, config.streams.count, TensorRole::kLogits);
}

void NgramRows::add(int i, KvCache& cache, Tensor streams) {
  const LayerConfig& kind = config_.layers[static_cast<size_t>(i)];
  const NgramWeights& w = weights_.layers[static_cast<size_t>(i)].ngrams;
  const NgramConfig& ngrams = config_.ngrams;
  const NgramHashes& hashes = ngrams.hashes[static_cast<size_t>(kind.ngrams)];
  const int dim = config_.model_dim, reach = ngrams.reach();
  const int64_t state = kind.mixer != nullptr ? kind.mixer->state_values(config_) : 0;
  ops_.embed_ngrams(
      {&w.table, ngrams.ngram_size, ngrams.heads_per_ngram, hashes.multipliers, hashes.sizes,
       hashes.offsets, ngrams.end_token, i, state + int64_t{reach} * streams.cols},
      cache, rows_);
  const LinearTarget products[] = {w.key.into(keys_), w.value.into(value_)};
  ops_.linear(rows_, products);
  const auto norm = [&](Tensor x, const NormWeights& norm, Tensor out) {
    ops_.norm(x.reshaped(dim), norm_params(config_, norm), out.reshaped(dim));
  };
  norm(keys_, w.key_norm, keys_);
  norm(streams, w.query_norm, values_);
  ops_.root_gates(keys_.reshaped(dim), values_.reshaped(dim),
                  1.0f / std::sqrt(static_cast<float>(dim)), gates_.reshaped(1));
  ops_.clear(values_);
  ops_.add_mixed(value_, gates_, dim, values_);
  norm(values_, w.conv_norm, keys_);
  ops_.causal_conv(keys_, {w.conv.get(), nullptr, reach + 1, i, state}, cache, convolved_);
  ops_.activate(convolved_, Activation::kSilu);
  ops_.add(streams, values_, 1.0f);
  ops_.add(streams, convolved_, 1.0f);
}

}  // namespace penstock
