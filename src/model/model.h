// A decoder: its configuration, its weights in the layout of one backend, and a forward over a
// ragged batch.
//
// Immutable after load. forward() must be called on the thread that owns the backend and the cache.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/background_read.h"
#include "base/result.h"
#include "formats/weight_source.h"
#include "model/blocks/config.h"
#include "model/forward/step.h"
#include "model/load/progress.h"
#include "ops/batch.h"
#include "ops/cache_spec.h"
#include "ops/ops.h"
#include "ops/tensor.h"
#include "parallel/shard.h"

namespace penstock {

struct ModelWeights;   // weights.h
struct LoraAdapter;    // formats/lora.h
class AdapterSlots;    // adapter_slots.h
class PackedCache;     // packed_cache.h
struct PackedWeights;  // load/load_weights.h
struct ShardOptions;   // cuts.h

// Cache of packed weights (sources/packed_cache.h) and files of experts that a load uses.
struct PackedUse {
  const PackedCache* cache = nullptr;  // null: weights are packed and not kept
  // encoding that the source applies at load, "" = none
  std::string_view recoding;
  // Folder for a nameless file from which experts are mapped if the cache has none; empty: experts
  // are kept in memory.
  std::filesystem::path experts_folder;
  // Layers whose experts Ops::host() computes; beyond its end none. With an experts_folder the
  // experts of all layers are there if the backend has a host beside it.
  std::vector<bool> host_experts = {};
};

struct ShardLoad {
  bool cuts_vocabulary = true;
  Stage stage;
  PackedUse packed;
};

class Model {
 public:
  using Progress = LoadProgress;

  // Packs every weight for `ops`. REQUIRES: `ops` outlives the model, and so does `source` if the
  // backend keeps views into it.
  static Result<std::unique_ptr<Model>> load(const WeightSource& source, Ops& ops,
                                             const Progress& progress = {});
  // Loads one rank's share of a model (ModelCuts). `ops` belongs to that rank (OpsConfig::ranks),
  // and all ranks load and compute the same model. A pipeline stage has only its layers
  // (cut_stages()) and their part of the cache.
  static Result<std::unique_ptr<Model>> load_shard(const WeightSource& source, Ops& ops,
                                                   const Progress& progress = {},
                                                   const ShardLoad& how = {});
  // Loads a model without its output layer, which the source may lack; forward() returns states
  // only. A rank loads its share and a stage its layers, as load_shard() does.
  static Result<std::unique_ptr<Model>> load_states(const WeightSource& source, Ops& ops,
                                                    Stage stage = {});
  // As load(), but reads packed weights from the cache, or packs them and keeps them there.
  // recoding: encoding that `source` applies at load, "" = none.
  static Result<std::unique_ptr<Model>> load(const WeightSource& source, Ops& ops,
                                             const Progress& progress, const PackedCache& cache,
                                             std::string_view recoding);
  // Loads the first n_layers, with the final norm and the output matrix of the whole model, for an
  // early exit. The result runs on the cache of the whole model. shard: which of several ranks that
  // compute the same; a single rank loads everything.
  static Result<std::unique_ptr<Model>> load_first_layers(const WeightSource& source, Ops& ops,
                                                          int n_layers, Shard shard = {});
  ~Model();

  const ModelConfig& config() const { return config_; }  // of the whole model
  CacheSpec cache_spec(CacheTypes types, int block_size) const;
  // Returns the spec of the caches of all pipeline stages together.
  CacheSpec pipeline_cache_spec(CacheTypes types, int block_size) const {
    return rank_config_.cache_spec(types, block_size);
  }
  Shard::Range layers() const;  // layers that this process computes
  // Number of values per token that the previous pipeline stage hands to this one, and that this
  // one hands to the next; 0: there is no such stage.
  int stage_input_dim() const;
  int stage_output_dim() const;
  int64_t weight_bytes() const { return weight_bytes_; }  // in the backend's layout
  int64_t mapped_bytes() const { return mapped_bytes_; }  // the part of them in a mapped file
  // The part of weight_bytes() that is in mapped files and need not be in memory: experts, tables of
  // n-grams.
  int64_t offloaded_bytes() const { return offloaded_bytes_; }
  int64_t table_bytes() const { return table_bytes_; }  // the part of those that are tables
  // Layers whose experts Ops::host() computes, as describe() names them (load/expert_places.h); "":
  // none.
  const std::string& host_experts() const { return host_experts_; }
  // The part of the host's memory that holds them in the device's form (Weight::twin()).
  int64_t twin_bytes() const { return twin_bytes_; }
  // Packed bytes read for one decoded token: the chosen share of the experts, no embedding lookup.
  int64_t active_weight_bytes() const { return active_weight_bytes_; }
  // Number of weights of 16 or 32 bits among them.
  int64_t active_float_weights() const { return active_float_weights_; }

  // Computes one step of `ops`: stores K and V of every token of the batch and returns the output
  // rows. REQUIRES: token ids < vocab_size; positions < max_seq_len with learned positions; no
  // options.stream.
  StepOutputs forward(const Batch& batch, KvCache& cache, Ops& ops,
                      const ForwardOptions& options = {}) const;

  // LoRA adapters; Batch::adapters selects one for each sequence. REQUIRES: the model comes from
  // load() and is whole.
  // Checks that the adapter fits this model and returns its bytes. Any thread. Errors:
  // kInvalidArgument, kUnsupported.
  Result<int64_t> check_adapter(const LoraAdapter& adapter) const;
  // Loads an adapter into a slot, between steps. REQUIRES: `ops` is the model's. Errors: those of
  // check_adapter(), kResourceExhausted; the slot is then free.
  Status put_adapter(int slot, const LoraAdapter& adapter, Ops& ops);
  void drop_adapter(int slot);
  // Reserves slots, before any engine computes. Engines that share the model use different slots
  // below n_slots, so that loading and dropping adapters does not disturb the steps of the others.
  void reserve_adapter_slots(int n_slots);

  // Whether the architecture supports ForwardOptions::taps.
  bool taps_layers() const;
  // Longrope: sequences that can reach more than short_rope_len() tokens use the long factors all
  // the time (Batch::long_ropes). 0: the model has one set of factors.
  int short_rope_len() const;
  bool takes_long_rope(int64_t reach) const;
  // x [n_tokens, model_dim] = input of the first layer for the step's tokens.
  void embed(Tensor x, Ops& ops) const;
  // logits [n, vocab_size] = output layer of states [n, model_dim] after the final norm, as
  // forward() computes it.
  void project(Tensor states, Tensor logits, Ops& ops) const;

 private:
  Model();
  void set_weights(std::unique_ptr<ModelWeights> weights, Naming naming, Shard shard = {});
  Status load_packed(const WeightSource& source, Ops& ops, const Progress& progress,
                     const PackedUse& use, const ShardOptions& shard);
  Status load_mapped(const WeightSource& source, Ops& ops, const Progress& progress,
                     PackedWeights& packed, const ShardOptions& shard);
  ModelConfig config_;
  ModelConfig rank_config_;  // the part of it that this process computes
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<AdapterSlots> adapters_;
  std::string host_experts_;
  int64_t twin_bytes_ = 0;
  int64_t weight_bytes_ = 0;
  int64_t mapped_bytes_ = 0;
  int64_t offloaded_bytes_ = 0;
  int64_t table_bytes_ = 0;
  int64_t active_weight_bytes_ = 0;
  int64_t active_float_weights_ = 0;
  BackgroundRead reading_;  // reads the files of the weights ahead
};

}  // namespace penstock
