#include "model/model.h"
#include "model/arch/read_config.h"

#include <spdlog/spdlog.h>
#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "model/adapters/adapter_slots.h"
#include "model/arch/archs.h"
#include "model/arch/names.h"
#include "model/blocks/counts.h"
#include "model/blocks/cuts.h"
#include "model/forward/decoder.h"
#include "model/load/expert_places.h"
#include "model/load/load_weights.h"
#include "model/load/stages.h"
#include "model/sources/packed_cache.h"

namespace penstock {

Model::Model() = default;
Model::~Model() = default;

namespace {

// Returns the tensors to prefetch: norms, biases, and tensors that are joined or permuted at load.
// The others are read in the first step.
std::vector<std::span<const std::byte>> tensors_of(const WeightSource& source,
                                                   const ModelConfig& config) {
  std::vector<std::span<const std::byte>> parts;
  const NameTable names = tensor_names(config, source.naming());
  for (const TensorInfo& tensor : source.tensors())
    if (!is_of_table(tensor.name, config, names)) parts.push_back(tensor.bytes);
  std::ranges::stable_sort(parts, {}, [](const auto& part) { return part.size(); });
  return parts;
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(const WeightSource& source, Ops& ops,
                                           const Progress& progress) {
  std::unique_ptr<Model> model(new Model);
  ASSIGN_OR_RETURN(model->config_, read_config(source));
  model->reading_ = BackgroundRead(tensors_of(source, model->config_));
  ASSIGN_OR_RETURN(auto weights, load_weights(source, model->config_, ops, progress));
  model->set_weights(std::move(weights), source.naming());
  return model;
}

Result<std::unique_ptr<Model>> Model::load_shard(const WeightSource& source, Ops& ops,
                                                 const Progress& progress, const ShardLoad& how) {
  std::unique_ptr<Model> model(new Model);
  const ShardOptions shard{ops.shard(), how.cuts_vocabulary, how.stage};
  if (shard.is_part()) source.expect_parts();
  ASSIGN_OR_RETURN(model->config_, read_config(source));
  if (how.packed.cache != nullptr || !how.packed.experts_folder.empty() ||
      !how.packed.host_experts.empty()) {
    RETURN_IF_ERROR(model->load_packed(source, ops, progress, how.packed, shard));
  } else {
    if (!shard.is_part()) model->reading_ = BackgroundRead(tensors_of(source, model->config_));
    ASSIGN_OR_RETURN(auto weights,
                     load_weights(source, model->config_, ops, progress, nullptr, shard));
    model->set_weights(std::move(weights), source.naming(), shard.shard);
  }
  model->rank_config_ = ModelCuts(model->config_, shard.shard).rank_config();
  return model;
}

Result<std::unique_ptr<Model>> Model::load_states(const WeightSource& source, Ops& ops,
                                                  Stage stage) {
  std::unique_ptr<Model> model(new Model);
  const ShardOptions shard{ops.shard(), true, stage};
  if (shard.is_part()) source.expect_parts();
  ASSIGN_OR_RETURN(model->config_, read_config(source));
  if (model->config_.encoder_rows > 0) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: architecture {} has no states of text: it attends to what an encoder hears",
                  source.path().string(), model->config_.arch);
  }
  model->config_.output.has_head = false;
  ASSIGN_OR_RETURN(auto weights, load_weights(source, model->config_, ops, {}, nullptr, shard));
  model->set_weights(std::move(weights), source.naming(), shard.shard);
  model->rank_config_ = ModelCuts(model->config_, shard.shard).rank_config();
  return model;
}

Result<std::unique_ptr<Model>> Model::load_first_layers(const WeightSource& source, Ops& ops,
                                                        int n_layers, Shard of_layers) {
  std::unique_ptr<Model> model(new Model);
  ASSIGN_OR_RETURN(model->config_, read_config(source));
  PENSTOCK_CHECK(n_layers >= 0 && n_layers <= model->config_.n_layers);
  model->config_.n_layers = n_layers;
  model->config_.layers.resize(static_cast<size_t>(n_layers));
  const ShardOptions shard{of_layers};
  ASSIGN_OR_RETURN(auto weights, load_some_layers(source, model->config_, ops, shard));
  model->set_weights(std::move(weights), source.naming(), shard.shard);
  model->rank_config_ = ModelCuts(model->config_, shard.shard).rank_config();
  return model;
}

Result<std::unique_ptr<Model>> Model::load(const WeightSource& source, Ops& ops,
                                           const Progress& progress, const PackedCache& cache,
                                           std::string_view recoding) {
  std::unique_ptr<Model> model(new Model);
  ASSIGN_OR_RETURN(model->config_, read_config(source));
  RETURN_IF_ERROR(model->load_packed(source, ops, progress, {&cache, recoding}, {}));
  return model;
}

namespace {

// Returns the name of the packed form: the encoding, the layers whose experts the host has, and for
// a part of a model its rank and stage.
std::string packed_form(std::string_view recoding, const std::vector<bool>& host_experts, Ops& ops,
                        const ShardOptions& how) {
  if (std::ranges::find(host_experts, true) != host_experts.end()) {
    std::string layers;
    for (const bool on_host : host_experts) layers += on_host ? '1' : '0';
    return fmt::format("{}, experts of layers {} as {}", recoding, layers,
                       ops.host()->stored_form());
  }
  if (!how.is_part()) return std::string(recoding);
  return fmt::format("{}, rank {} of {}{}, stage {} of {}", recoding, how.shard.rank,
                     how.shard.n_ranks, how.cuts_vocabulary ? "" : " with all of the vocabulary",
                     how.stage.index, how.stage.count);
}

int64_t twin_bytes_of(const ModelWeights& weights) {
  int64_t bytes = 0;
  for (const LayerWeights& layer : weights.layers) {
    for (const ExpertWeights* own : {&layer.experts.gate, &layer.experts.up, &layer.experts.down})
      for (const auto& weight : own->weights)
        if (weight->twin() != nullptr) bytes += weight->twin()->packed_bytes();
  }
  return bytes;
}

Status check_maps_experts(const WeightSource& source, const ModelConfig& config, const Ops& ops) {
  if (config.experts.count == 0) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "experts_offload: {}: expected a mixture of experts, got architecture {} without any",
        source.path().string(), config.arch);
  }
  if (!ops.restores_in_place()) {
    return errorf(
        ErrorCode::kUnsupported,
        "experts_offload: expected backend cpu, or one rank of a GPU's, got {}, which has "
        "weights in its own memory only",
        ops.name());
  }
  return {};
}

Status check_host_experts(const WeightSource& source, const ModelConfig& config, Ops& ops,
                          const ShardOptions& shard) {
  if (config.experts.count == 0) {
    return errorf(ErrorCode::kInvalidArgument,
                  "experts on the host: {}: expected a mixture of experts, got architecture {} "
                  "without any",
                  source.path().string(), config.arch);
  }
  if (shard.is_part() || ops.host() == nullptr) {
    return errorf(ErrorCode::kUnsupported,
                  "experts on the host: expected one rank of a GPU's backend, got {}", ops.name());
  }
  return {};
}

}  // namespace

Status Model::load_packed(const WeightSource& source, Ops& ops, const Progress& progress,
                          const PackedUse& use, const ShardOptions& shard) {
  PackedWeights packed;
  packed.maps_experts = !use.experts_folder.empty();
  packed.on_host = use.host_experts;
  if (packed.maps_experts && !shard.is_part() && ops.host() != nullptr)
    packed.on_host.assign(static_cast<size_t>(config_.n_layers), true);
  Ops& keeper = packed.on_host.empty() || ops.host() == nullptr ? ops : *ops.host();
  if (packed.maps_experts) RETURN_IF_ERROR(check_maps_experts(source, config_, keeper));
  if (!packed.on_host.empty()) RETURN_IF_ERROR(check_host_experts(source, config_, ops, shard));
  const std::string form = packed_form(use.recoding, packed.on_host, ops, shard);
  if (use.cache != nullptr) packed.from = use.cache->find(source, form, ops);
  if (packed.from != nullptr) {
    const Status mapped = load_mapped(source, ops, progress, packed, shard);
    if (mapped) return {};
    log().warn("packed weights are made anew: {}", mapped.error().message);
    packed.from = nullptr;
  }
  if (!packed.maps_experts && !shard.is_part())
    reading_ = BackgroundRead(tensors_of(source, config_));
  std::unique_ptr<ExpertFile> experts;
  if (packed.maps_experts) {
    ASSIGN_OR_RETURN(experts, ExpertFile::create(use.experts_folder));
    packed.experts = experts.get();
  }
  ASSIGN_OR_RETURN(auto weights, load_weights(source, config_, ops, progress, &packed, shard));
  if (experts != nullptr) RETURN_IF_ERROR(experts->finish());
  if (use.cache != nullptr) use.cache->save(source, form, ops, packed.made);
  set_weights(std::move(weights), source.naming(), shard.shard);
  // The packed file also maps the experts, which need no second copy.
  if (experts != nullptr && use.cache != nullptr) {
    packed.from = use.cache->find(source, form, ops), packed.made.clear();
    if (packed.from != nullptr) (void)load_mapped(source, ops, {}, packed, shard);
  }
  if (packed.maps_experts)
    log().info("experts: {} MiB are mapped from a file in {}, {} MiB of weights are in memory",
               offloaded_bytes_ >> 20, use.experts_folder.string(),
               (weight_bytes_ - offloaded_bytes_) >> 20);
  return {};
}

// Loads the weights of packed.from. Errors: kCorruptFile (it does not match; nothing is changed).
Status Model::load_mapped(const WeightSource& source, Ops& ops, const Progress& progress,
                          PackedWeights& packed, const ShardOptions& shard) {
  ASSIGN_OR_RETURN(auto weights, load_weights(source, config_, ops, progress, &packed, shard));
  set_weights(std::move(weights), source.naming(), shard.shard);
  mapped_bytes_ = weight_bytes_;
  return {};
}

void Model::set_weights(std::unique_ptr<ModelWeights> weights, Naming naming, Shard shard) {
  weights_ = std::move(weights);
  rank_config_ = config_;
  adapters_ = std::make_unique<AdapterSlots>(config_, naming, weights_->sites, layers());
  ExpertPlaces places;
  for (const LayerWeights& layer : weights_->layers) places.push_back(layer.experts.down.on_host);
  twin_bytes_ = twin_bytes_of(*weights_);
  host_experts_ = std::ranges::find(places, true) == places.end() ? "" : describe(places);
  const WeightCounts counts = count_weights(config_, *weights_, shard);
  weight_bytes_ = counts.bytes;
  table_bytes_ = counts.tables;
  offloaded_bytes_ = counts.mapped_experts + counts.tables;
  active_weight_bytes_ = counts.active_bytes;
  active_float_weights_ = counts.active_floats;
}

StepOutputs Model::forward(const Batch& batch, KvCache& cache, Ops& ops,
                           const ForwardOptions& options) const {
  const Architecture* architecture = find_architecture(config_.arch);
  PENSTOCK_CHECK(architecture != nullptr && options.n_layers <= config_.n_layers &&
                 options.stream == nullptr);
  const StepShape shape = ops.begin_step(&batch);
  PENSTOCK_CHECK(options.taps.empty() || (options.states && taps_layers()));
  return ops.run(
      {this, &cache, shape, options.n_layers, options.logits, options.states, options.taps.data(),
       !batch.adapters.empty()},
      [&] { return architecture->forward(rank_config_, *weights_, shape, cache, ops, options); });
}

Shard::Range Model::layers() const { return weights_->layers_of(config_); }

int Model::stage_input_dim() const {
  return layers().first > 0 ? config_.stage_dim(layers().first) : 0;
}

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
    for (const int first : {spec.first_index_layer, spec.first_entry_layer})
      if (first > 0) spec.layers[static_cast<size_t>(first + i)].n_kv_heads = 0;
    if (spec.has_states()) spec.state_values[static_cast<size_t>(i)] = 0;
  }
  return spec;
}

Result<int64_t> Model::check_adapter(const LoraAdapter& adapter) const {
  return adapters_->check(adapter);
}

Status Model::put_adapter(int slot, const LoraAdapter& adapter, Ops& ops) {
  return adapters_->put(slot, adapter, ops);
}

void Model::drop_adapter(int slot) { adapters_->drop(slot); }

void Model::reserve_adapter_slots(int n_slots) { adapters_->reserve(n_slots); }

int Model::short_rope_len() const { return weights_->short_rope_len; }

bool Model::takes_long_rope(int64_t reach) const { return weights_->takes_long_rope(reach); }

bool Model::taps_layers() const {
  return find_architecture(config_.arch)->forward == decoder_forward;
}

void Model::embed(Tensor x, Ops& ops) const { embed_input(rank_config_, *weights_, {}, x, ops); }

void Model::project(Tensor states, Tensor logits, Ops& ops) const {
  project_output(rank_config_, *weights_, states, logits, ops);
}

}  // namespace penstock
