#include "model/blocks/counts.h"

#include "model/blocks/cuts.h"
#include "model/blocks/layer_tensors.h"

namespace penstock {
namespace {

// Sums the bytes of a layer's weights.
class ByteCounter final : public TensorVisitor {
 public:
  ByteCounter(const ModelConfig& config, Shard shard) : config_(config), cuts_(config, shard) {}
  WeightCounts counts;

  // share: fraction of tokens that read the weight.
  void add(const Weight* weight, double share = 1.0) {
    if (weight == nullptr) return;
    const int64_t bytes = weight->packed_bytes(), n = int64_t{weight->rows()} * weight->cols();
    counts.bytes += again_ ? 0 : bytes;
    counts.active_bytes += static_cast<int64_t>(static_cast<double>(bytes) * share);
    if (bytes >= 2 * n)
      counts.active_floats += static_cast<int64_t>(static_cast<double>(n) * share);
  }
  void add(const std::vector<std::unique_ptr<Weight>>& weights, double share = 1.0) {
    for (const auto& weight : weights) add(weight.get(), share);
  }
  // again: its weights were counted, and are read once more.
  void begin(int layer, bool again = false) { layer_ = layer, again_ = again; }

  const ModelConfig& config() const override { return config_; }
  const ModelCuts& cuts() const override { return cuts_; }
  int layer() const override { return layer_; }
  void linear(const LinearSpec&, LinearWeights& w) override { add(w.weight.get()); }
  void joined(const JoinedSpec&, std::initializer_list<JoinedPart> parts) override {
    for (const JoinedPart& part : parts) add(part.weights->weight.get());
  }
  void experts(const ExpertsSpec& spec, ExpertWeights& gate, ExpertWeights& up,
               ExpertWeights& down) override {
    const int64_t before = counts.bytes;
    for (const ExpertWeights* own : {&gate, &up, &down})
      add(own->weights, static_cast<double>(spec.n_active) / spec.n_experts);
    if (down.mapped) counts.mapped_experts += counts.bytes - before;
  }
  void heads(const HeadsSpec&, ByHead& keys, ByHead& values) override { add(keys), add(values); }
  void diagonal(const LinearSpec&, int, ByHead& w) override { add(w); }
  void norm(const NormSpec&, NormWeights&) override {}
  void head_norm(const HeadNormSpec&, NormWeights&) override {}
  void vector(const VectorSpec&, std::unique_ptr<Vector>&) override {}
  void conv(const ConvSpec&, std::unique_ptr<Vector>&, std::unique_ptr<Vector>*) override {}
  void number(const TensorName*, float&) override {}
  void table(const TableSpec& spec, RowTable& w) override {
    counts.bytes += w.bytes(), counts.tables += w.bytes();
    if (w.n_rows() > 0) counts.active_bytes += w.bytes() / w.n_rows() * spec.n_read;
  }

 private:
  const ModelConfig& config_;
  const ModelCuts cuts_;
  int layer_ = 0;
  bool again_ = false;
};

// Counts the parameters of a layer from its configuration.
class ParameterCounter final : public TensorVisitor {
 public:
  explicit ParameterCounter(const ModelConfig& config, bool active)
      : config_(config), cuts_(config), active_(active) {}
  int64_t count = 0;

  void begin(int layer) { layer_ = layer; }
  const ModelConfig& config() const override { return config_; }
  const ModelCuts& cuts() const override { return cuts_; }
  int layer() const override { return layer_; }
  void norm(const NormSpec& spec, NormWeights&) override {
    count += config_.norm.bare ? 0 : spec.size;
  }
  void head_norm(const HeadNormSpec& spec, NormWeights&) override {
    count += int64_t{spec.n_heads} * config_.head_dim;
  }
  void linear(const LinearSpec& spec, LinearWeights&) override {
    count += int64_t{spec.rows - spec.zeros} * spec.cols;
  }
  void joined(const JoinedSpec&, std::initializer_list<JoinedPart> parts) override {
    for (const JoinedPart& part : parts) linear(part.spec, *part.weights);
  }
  void vector(const VectorSpec& spec, std::unique_ptr<Vector>&) override {
    count += spec.is_bias ? 0 : spec.size - spec.n_more;
  }
  void conv(const ConvSpec& spec, std::unique_ptr<Vector>&, std::unique_ptr<Vector>*) override {
    for (const int channels : spec.channels) count += int64_t{channels} * spec.taps;
  }
  void experts(const ExpertsSpec& spec, ExpertWeights&, ExpertWeights&, ExpertWeights&) override {
    count += int64_t{spec.gated ? 3 : 2} * (active_ ? spec.n_active : spec.n_experts) * spec.dim *
             spec.width;
  }
  void heads(const HeadsSpec& spec, ByHead&, ByHead&) override {
    count += int64_t{spec.n_heads} * spec.kv_rank * (spec.plain_dim + spec.value_dim);
  }
  void number(const TensorName*, float&) override {}
  void table(const TableSpec& spec, RowTable&) override {
    count += (active_ ? spec.n_read : spec.rows) * spec.cols;
  }

 private:
  const ModelConfig& config_;
  const ModelCuts cuts_;
  bool active_;
  int layer_ = 0;
};

int64_t frame_parameters(const ModelConfig& c, bool active) {
  const int64_t dim = c.model_dim, beside = c.per_layer.dim, streams = c.altup.n_streams;
  const int64_t width = c.embedding.width > 0 ? c.embedding.width : dim;
  int64_t total = dim + width * c.vocab_size + (c.embedding.tied ? 0 : dim) * c.output_rows();
  if (c.embedding.width > 0) total += width * dim;
  // an embedding lookup reads one row
  if (active && !c.embedding.tied) total -= dim * c.vocab_size;
  if (beside > 0) total += beside * c.n_layers * (dim + (active ? 0 : c.per_layer_rows())) + beside;
  if (streams > 0) total += 2 * (streams - 1) * dim * dim;
  if (c.positions.learned && !c.positions.computed && !active) total += width * c.max_seq_len;
  return total;
}

int64_t count_parameters(const ModelConfig& config, bool active) {
  ParameterCounter counter(config, active);
  for (int i = 0; i < config.n_layers; ++i) {
    if (!active && config.repeats(i)) continue;
    LayerWeights none;
    counter.begin(i);
    visit_layer(counter, none);
  }
  StreamGateWeights none;
  if (config.streams.count > 0) visit_last(counter, none);
  StreamMixWeights no_shares;
  if (config.mixed_streams.ends_by_shares) visit_last(counter, no_shares);
  return frame_parameters(config, active) + counter.count;
}

}  // namespace

int64_t ModelConfig::n_parameters() const { return count_parameters(*this, false); }
int64_t ModelConfig::n_active_parameters() const { return count_parameters(*this, true); }

WeightCounts count_weights(const ModelConfig& config, ModelWeights& weights, Shard shard) {
  ByteCounter counter(config, shard);
  const Shard::Range layers = weights.layers_of(config);
  const bool makes_logits = layers.first + layers.count == config.n_layers;
  counter.add(weights.embedding.get(), weights.lm_head || !makes_logits ? 0.0 : 1.0);
  for (const auto* table : {&weights.positions, &weights.token_types, &weights.per_layer.table})
    counter.add(table->get(), 0.0);
  counter.add(weights.lm_head.get()), counter.add(weights.last_block_query.get());
  counter.add(weights.embedding_projection.weight.get());
  counter.add(weights.per_layer.projection.weight.get());
  counter.add(weights.streams_in), counter.add(weights.streams_out);
  for (int i = 0; i < static_cast<int>(weights.layers.size()); ++i) {
    LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    counter.begin(i, config.repeats(i));
    visit_layer(counter, layer);
    counter.add(layer.attention.query_terms), counter.add(layer.attention.key_terms);
    counter.add(layer.block_queries.attention);
    counter.add(layer.block_queries.feed_forward.get());
  }
  counter.begin(0);
  if (config.streams.count > 0 && makes_logits) visit_last(counter, weights.last_gates);
  if (config.mixed_streams.ends_by_shares && makes_logits) visit_last(counter, weights.last_shares);
  return counter.counts;
}

}  // namespace penstock
