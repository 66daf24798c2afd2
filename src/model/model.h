// A decoder: its configuration, its weights in one backend's layout, and a forward over a ragged batch.
//
// Immutable after load. forward() belongs to the thread that owns the backend and the cache.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/background_read.h"
#include "base/result.h"
#include "cache/cache_spec.h"
#include "formats/weight_source.h"
#include "model/blocks/config.h"
#include "model/forward/step.h"
#include "model/load/progress.h"
#include "ops/batch.h"
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

// Where weights that were packed before are looked for, and kept otherwise.
struct PackedUse {
  const PackedCache* cache = nullptr;  // null: nowhere
  std::string_view recoding;           // how the source encodes at load, "" = not
  // Experts' weights are mapped from a file: from the cache's, or from one without a name in this folder. Empty: they are in memory.
  std::filesystem::path experts_folder;
};

struct ShardLoad {
  bool cuts_vocabulary = true;
  Stage stage;
  PackedUse packed;
};

class Model {
 public:
  using Progress = LoadProgress;

  // Packs every weight for `ops`, which must outlive the model; `source` may go afterwards unless a backend
  // keeps views (keep it as long as the model).
  static Result<std::unique_ptr<Model>> load(const WeightSource& source, Ops& ops,
                                             const Progress& progress = {});
  // The share of one of several ranks (ModelCuts); `ops` is one of theirs (OpsConfig::ranks), and all load and compute the same. Of a
  // stage only its layers (cut_stages()), and their part of the cache.
  static Result<std::unique_ptr<Model>> load_shard(const WeightSource& source, Ops& ops,
                                                   const Progress& progress = {}, const ShardLoad& how = {});
  // Without what makes logits of states, which the source need not have either: forward() gives states only. Of one of several ranks
  // its share, of a stage its layers, as load_shard().
  static Result<std::unique_ptr<Model>> load_states(const WeightSource& source, Ops& ops, Stage stage = {});
  // The same with weights packed before, where the cache has them, and kept there otherwise. recoding: how `source`
  // encodes at load, "" = not.
  static Result<std::unique_ptr<Model>> load(const WeightSource& source, Ops& ops, const Progress& progress,
                                             const PackedCache& cache, std::string_view recoding);
  // Only the first n_layers, with the final norm and the output matrix of the whole: for an early exit. It
  // runs on the whole model's cache. shard: of several ranks that all compute it; one alone has all of it.
  static Result<std::unique_ptr<Model>> load_first_layers(const WeightSource& source, Ops& ops, int n_layers,
                                                          Shard shard = {});
  ~Model();

  const ModelConfig& config() const { return config_; }  // of the whole model
  CacheSpec cache_spec(CacheTypes types, int block_size) const;
  // Of all stages of a pipeline together.
  CacheSpec pipeline_cache_spec(CacheTypes types, int block_size) const {
    return rank_config_.cache_spec(types, block_size);
  }
  Shard::Range layers() const;  // that are computed here
  // Values of a token that the stage before gives, and that this one gives to the next; 0: there is none.
  int stage_input_dim() const;
  int stage_output_dim() const;
  int64_t weight_bytes() const { return weight_bytes_; }  // packed, as the backend holds them
  int64_t mapped_bytes() const { return mapped_bytes_; }  // of those, in a mapped file
  // Of weight_bytes(), experts that are in a mapped file and need not be in memory.
  int64_t offloaded_bytes() const { return offloaded_bytes_; }
  // Packed bytes that one decoded token reads (all experts counted by the chosen share, no embedding lookup).
  int64_t active_weight_bytes() const { return active_weight_bytes_; }
  // Of the same matrices, how many weights are kept in 16 or 32 bits.
  int64_t active_float_weights() const { return active_float_weights_; }

  // A step of `ops`: stores K and V of every token of the batch and returns the rows that are wanted. REQUIRES: token
  // ids < vocab_size; positions < max_seq_len with learned positions; no options.stream.
  StepOutputs forward(const Batch& batch, KvCache& cache, Ops& ops, const ForwardOptions& options = {}) const;

  // LoRA adapters beside the weights: Batch::adapters says which sequence has which. Of a model of load(), not of its parts.
  // Whether the adapter is one of this model, and how many bytes it takes. Any thread. Errors: kInvalidArgument, kUnsupported.
  Result<int64_t> check_adapter(const LoraAdapter& adapter) const;
  // Between steps. `ops` is the model's. Errors: those of check_adapter(), kResourceExhausted; then the slot is free.
  Status put_adapter(int slot, const LoraAdapter& adapter, Ops& ops);
  void drop_adapter(int slot);
  // Engines that share the model each have slots of their own below n_slots: who puts and drops there does not disturb the others'
  // steps. Before any of them computes.
  void reserve_adapter_slots(int n_slots);

  // Whether ForwardOptions::taps is known to the architecture.
  bool taps_layers() const;
  // Longrope's two kinds of sequences: a sequence is of the long one (Batch::long_ropes) all its life where it can reach more tokens
  // than this. 0: there is one kind.
  int short_rope_len() const;
  bool takes_long_rope(int64_t reach) const;
  // x [n_tokens, model_dim] = what the first layer reads of the step's tokens.
  void embed(Tensor x, Ops& ops) const;
  // logits [n, vocab_size] = the output matrix applied to states [n, model_dim] after the final norm, as
  // forward() does it.
  void project(Tensor states, Tensor logits, Ops& ops) const;

 private:
  Model();
  void set_weights(std::unique_ptr<ModelWeights> weights, Naming naming, Shard shard = {});
  Status load_packed(const WeightSource& source, Ops& ops, const Progress& progress, const PackedUse& use,
                     const ShardOptions& shard);
  Status load_mapped(const WeightSource& source, Ops& ops, const Progress& progress, PackedWeights& packed,
                     const ShardOptions& shard);
  ModelConfig config_;
  ModelConfig rank_config_;  // what is computed here: of a shard its part
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<AdapterSlots> adapters_;
  int64_t weight_bytes_ = 0;
  int64_t mapped_bytes_ = 0;
  int64_t offloaded_bytes_ = 0;
  int64_t active_weight_bytes_ = 0;
  int64_t active_float_weights_ = 0;
  BackgroundRead reading_;  // of the files that the weights come from
};

}  // namespace penstock
