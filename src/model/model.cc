#include "model/model.h"

#include <spdlog/spdlog.h>
#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "model/adapter_slots.h"
#include "model/arch/archs.h"
#include "model/cuts.h"
#include "model/decoder.h"
#include "model/sources/packed_cache.h"
#include "model/weight_loader.h"

namespace penstock {

Model::Model() = default;
Model::~Model() = default;

namespace {

struct Bytes {
  int64_t all = 0, active = 0, mapped_experts = 0;
  int64_t active_floats = 0;  // weights of 16 and 32 bits, one each
  void add(const Weight* weight, double share = 1.0) {
    if (weight == nullptr) return;
    const int64_t bytes = weight->packed_bytes(), n_weights = int64_t{weight->rows()} * weight->cols();
    all += bytes;
    active += static_cast<int64_t>(static_cast<double>(bytes) * share);
    if (bytes >= 2 * n_weights) active_floats += static_cast<int64_t>(static_cast<double>(n_weights) * share);
  }
};

Bytes count_bytes(const ModelConfig& config, const ModelWeights& weights) {
  Bytes bytes;
  const Shard::Range layers = weights.layers_of(config);
  const bool makes_logits = layers.first + layers.count == config.n_layers;
  bytes.add(weights.embedding.get(), weights.lm_head || !makes_logits ? 0.0 : 1.0);
  bytes.add(weights.positions.get(), 0.0);
  bytes.add(weights.lm_head.get());
  const double share =
      config.n_experts > 0 ? static_cast<double>(config.routing.n_active) / config.n_experts : 0.0;
  bytes.add(weights.per_layer.table.get(), 0.0);
  bytes.add(weights.per_layer.projection.weight.get());
  for (const auto* streams : {&weights.streams_in, &weights.streams_out}) {
    for (const auto& stream : *streams) bytes.add(stream.get());
  }
  for (const LayerWeights& layer : weights.layers) {
    for (const LinearWeights* linear : {&layer.q,
                                        &layer.k,
                                        &layer.v,
                                        &layer.o,
                                        &layer.gate,
                                        &layer.up,
                                        &layer.down,
                                        &layer.router,
                                        &layer.experts_in,
                                        &layer.experts_out,
                                        &layer.shared_gate,
                                        &layer.shared_up,
                                        &layer.shared_down,
                                        &layer.conv.in,
                                        &layer.conv.before,
                                        &layer.conv.behind,
                                        &layer.conv.values,
                                        &layer.conv.out,
                                        &layer.per_layer.gate,
                                        &layer.per_layer.projection,
                                        &layer.altup.router,
                                        &layer.altup.predict,
                                        &layer.altup.correct,
                                        &layer.altup.laurel_in,
                                        &layer.altup.laurel_out,
                                        &layer.delta.qkv,
                                        &layer.delta.q,
                                        &layer.delta.k,
                                        &layer.delta.v,
                                        &layer.delta.a_in,
                                        &layer.delta.z_in,
                                        &layer.delta.z,
                                        &layer.delta.a,
                                        &layer.delta.b,
                                        &layer.delta.out,
                                        &layer.latent.query,
                                        &layer.latent.latent,
                                        &layer.latent.rope}) {
      bytes.add(linear->weight.get());
    }
    for (const auto* by_head : {&layer.latent.absorb, &layer.latent.values}) {
      for (const auto& weight : *by_head) bytes.add(weight.get());
    }
    for (const auto* experts : {&layer.expert_gate, &layer.expert_up, &layer.expert_down}) {
      const int64_t before = bytes.all;
      for (const auto& expert : experts->weights) bytes.add(expert.get(), share);
      if (experts->mapped) bytes.mapped_experts += bytes.all - before;
    }
  }
  return bytes;
}

// Small ones first: norms, biases and what is packed at load because it is joined or permuted. The others wait for the first step.
std::vector<std::span<const std::byte>> tensors_of(const WeightSource& source) {
  std::vector<std::span<const std::byte>> parts;
  for (const TensorInfo& tensor : source.tensors()) parts.push_back(tensor.bytes);
  std::ranges::stable_sort(parts, {}, [](const auto& part) { return part.size(); });
  return parts;
}

}  // namespace

int64_t packed_bytes(const ModelConfig& config, const ModelWeights& weights) {
  return count_bytes(config, weights).all;
}

Result<std::unique_ptr<Model>> Model::load(const WeightSource& source, Ops& ops, const Progress& progress,
                                           int max_seq_len) {
  std::unique_ptr<Model> model(new Model);
  ASSIGN_OR_RETURN(model->config_, read_config(source));
  model->reading_ = BackgroundRead(tensors_of(source));
  ASSIGN_OR_RETURN(auto weights, load_weights(source, model->config_, ops, progress, max_seq_len));
  model->set_weights(std::move(weights), source.naming());
  return model;
}

Result<std::unique_ptr<Model>> Model::load_shard(const WeightSource& source, Ops& ops,
                                                 const Progress& progress, int max_seq_len,
                                                 const ShardLoad& how) {
  std::unique_ptr<Model> model(new Model);
  const ShardOptions shard{ops.shard(), how.cuts_vocabulary, how.stage};
  if (shard.is_part()) source.expect_parts();
  ASSIGN_OR_RETURN(model->config_, read_config(source));
  if (how.packed.cache != nullptr || !how.packed.experts_folder.empty()) {
    RETURN_IF_ERROR(model->load_packed(source, ops, progress, max_seq_len, how.packed, shard));
  } else {
    if (!shard.is_part()) model->reading_ = BackgroundRead(tensors_of(source));
    ASSIGN_OR_RETURN(auto weights,
                     load_weights(source, model->config_, ops, progress, max_seq_len, nullptr, shard));
    model->set_weights(std::move(weights), source.naming());
  }
  model->rank_config_ = ModelCuts(model->config_, shard.shard).rank_config();
  return model;
}

Result<std::unique_ptr<Model>> Model::load_states(const WeightSource& source, Ops& ops, Stage stage) {
  std::unique_ptr<Model> model(new Model);
  const ShardOptions shard{ops.shard(), true, stage};
  if (shard.is_part()) source.expect_parts();
  ASSIGN_OR_RETURN(model->config_, read_config(source));
  model->config_.output_head = false;
  ASSIGN_OR_RETURN(auto weights, load_weights(source, model->config_, ops, {}, 0, nullptr, shard));
  model->set_weights(std::move(weights), source.naming());
  model->rank_config_ = ModelCuts(model->config_, shard.shard).rank_config();
  return model;
}

Result<std::unique_ptr<Model>> Model::load_first_layers(const WeightSource& source, Ops& ops, int n_layers,
                                                        int max_seq_len, Shard of_layers) {
  std::unique_ptr<Model> model(new Model);
  ASSIGN_OR_RETURN(model->config_, read_config(source));
  PENSTOCK_CHECK(n_layers >= 0 && n_layers <= model->config_.n_layers);
  model->config_.n_layers = n_layers;
  model->config_.layers.resize(static_cast<size_t>(n_layers));
  const ShardOptions shard{of_layers};
  const Progress none;
  ASSIGN_OR_RETURN(model->weights_,
                   WeightLoader(source, model->config_, ops, none, nullptr, shard).load_some(max_seq_len));
  model->set_weights(std::move(model->weights_), source.naming());
  model->rank_config_ = ModelCuts(model->config_, shard.shard).rank_config();
  return model;
}

Result<std::unique_ptr<Model>> Model::load(const WeightSource& source, Ops& ops, const Progress& progress,
                                           int max_seq_len, const PackedCache& cache,
                                           std::string_view recoding) {
  std::unique_ptr<Model> model(new Model);
  ASSIGN_OR_RETURN(model->config_, read_config(source));
  RETURN_IF_ERROR(model->load_packed(source, ops, progress, max_seq_len, {&cache, recoding}, {}));
  return model;
}

namespace {

// What is packed: the whole is called by its encoding alone.
std::string packed_form(std::string_view recoding, const ShardOptions& how) {
  if (!how.is_part()) return std::string(recoding);
  return fmt::format("{}, rank {} of {}{}, stage {} of {}", recoding, how.shard.rank, how.shard.n_ranks,
                     how.cuts_vocabulary ? "" : " with all of the vocabulary", how.stage.index,
                     how.stage.count);
}

Status check_maps_experts(const WeightSource& source, const ModelConfig& config, const Ops& ops) {
  if (config.n_experts == 0) {
    return errorf(ErrorCode::kInvalidArgument,
                  "experts_offload: {}: expected a mixture of experts, got architecture {} without any",
                  source.path().string(), config.arch);
  }
  if (!ops.restores_in_place()) {
    return errorf(ErrorCode::kUnsupported,
                  "experts_offload: expected backend cpu, got {}, which has weights in its own memory",
                  ops.name());
  }
  return {};
}

}  // namespace

Status Model::load_packed(const WeightSource& source, Ops& ops, const Progress& progress, int max_seq_len,
                          const PackedUse& use, const ShardOptions& shard) {
  const std::string form = packed_form(use.recoding, shard);
  PackedWeights packed;
  packed.maps_experts = !use.experts_folder.empty();
  if (packed.maps_experts) RETURN_IF_ERROR(check_maps_experts(source, config_, ops));
  if (use.cache != nullptr) packed.from = use.cache->find(source, form, ops);
  if (packed.from != nullptr) {
    const Status mapped = load_mapped(source, ops, progress, max_seq_len, packed, shard);
    if (mapped) return {};
    log().warn("packed weights are made anew: {}", mapped.error().message);
    packed.from = nullptr;
  }
  if (!packed.maps_experts && !shard.is_part()) reading_ = BackgroundRead(tensors_of(source));
  std::unique_ptr<ExpertFile> experts;
  if (packed.maps_experts) {
    ASSIGN_OR_RETURN(experts, ExpertFile::create(use.experts_folder));
    packed.experts = experts.get();
  }
  ASSIGN_OR_RETURN(auto weights, load_weights(source, config_, ops, progress, max_seq_len, &packed, shard));
  if (experts != nullptr) RETURN_IF_ERROR(experts->finish());
  if (use.cache != nullptr) use.cache->save(source, form, ops, packed.made);
  set_weights(std::move(weights), source.naming());
  // Kept, they lie there too, and need not lie twice.
  if (experts != nullptr && use.cache != nullptr) {
    packed.from = use.cache->find(source, form, ops), packed.made.clear();
    if (packed.from != nullptr) (void)load_mapped(source, ops, {}, max_seq_len, packed, shard);
  }
  if (packed.maps_experts)
    log().info("experts: {} MiB are mapped from a file in {}, {} MiB of weights are in memory",
               offloaded_bytes_ >> 20, use.experts_folder.string(), (weight_bytes_ - offloaded_bytes_) >> 20);
  return {};
}

// From packed.from. Error: kCorruptFile, it does not fit; then nothing has changed.
Status Model::load_mapped(const WeightSource& source, Ops& ops, const Progress& progress, int max_seq_len,
                          PackedWeights& packed, const ShardOptions& shard) {
  ASSIGN_OR_RETURN(auto weights, load_weights(source, config_, ops, progress, max_seq_len, &packed, shard));
  set_weights(std::move(weights), source.naming());
  mapped_bytes_ = weight_bytes_;
  return {};
}

void Model::set_weights(std::unique_ptr<ModelWeights> weights, Naming naming) {
  weights_ = std::move(weights);
  rank_config_ = config_;
  adapters_ = std::make_unique<AdapterSlots>(config_, naming, weights_->sites, layers());
  const Bytes bytes = count_bytes(config_, *weights_);
  weight_bytes_ = bytes.all;
  offloaded_bytes_ = bytes.mapped_experts;
  active_weight_bytes_ = bytes.active;
  active_float_weights_ = bytes.active_floats;
}

StepOutputs Model::forward(const Batch& batch, KvCache& cache, Ops& ops,
                           const ForwardOptions& options) const {
  const Architecture* architecture = find_architecture(config_.arch);
  PENSTOCK_CHECK(architecture != nullptr && options.n_layers <= config_.n_layers &&
                 options.stream == nullptr);
  const StepShape shape = ops.begin_step(&batch);
  PENSTOCK_CHECK(options.taps.empty() || (options.states && taps_layers()));
  return ops.run({this, &cache, shape, options.n_layers, options.logits, options.states, options.taps.data(),
                  !batch.adapters.empty()},
                 [&] { return architecture->forward(rank_config_, *weights_, shape, cache, ops, options); });
}

Shard::Range Model::layers() const { return weights_->layers_of(config_); }

int Model::stage_input_dim() const { return layers().first > 0 ? config_.stage_dim(layers().first) : 0; }

int Model::stage_output_dim() const {
  const int end = layers().first + layers().count;
  return end < config_.n_layers ? config_.stage_dim(end) : 0;
}

CacheSpec Model::cache_spec(CacheTypes types, int block_size) const {
  CacheSpec spec = pipeline_cache_spec(types, block_size);
  const Shard::Range own = layers();
  for (int i = 0; i < config_.n_layers; ++i) {
    if (i >= own.first && i < own.first + own.count) continue;
    spec.layers[static_cast<size_t>(i)].n_kv_heads = 0;
    if (spec.has_states()) spec.state_values[static_cast<size_t>(i)] = 0;
  }
  return spec;
}

Result<int64_t> Model::check_adapter(const LoraAdapter& adapter) const { return adapters_->check(adapter); }

Status Model::put_adapter(int slot, const LoraAdapter& adapter, Ops& ops) {
  return adapters_->put(slot, adapter, ops);
}

void Model::drop_adapter(int slot) { adapters_->drop(slot); }

void Model::reserve_adapter_slots(int n_slots) { adapters_->reserve(n_slots); }

bool Model::taps_layers() const { return find_architecture(config_.arch)->forward == decoder_forward; }

void Model::embed(Tensor x, Ops& ops) const { embed_input(rank_config_, *weights_, x, ops); }

void Model::project(Tensor states, Tensor logits, Ops& ops) const {
  project_output(rank_config_, *weights_, states, logits, ops);
}

}  // namespace penstock
