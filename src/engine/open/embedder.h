// States instead of tokens: sequences go through a model, and of each its states are pooled into vectors.
//
// Encoders need a whole sequence in one step; decoders take it in pieces. One thread at a time.
//
// With data_parallel_size above 1 there are as many behind the first, each with CPUs of its own; whoever is free takes the next step.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/compute/step_model.h"
#include "formats/weight_source.h"
#include "penstock/embed.h"
#include "penstock/engine_config.h"
#include "penstock/metrics.h"

namespace penstock {

class Adapter;
class AdapterPool;
class BatchBuilder;
class StateRanks;
struct EnginePlace;

// What is read as one: a text, or a pair of texts.
struct EmbedderInput {
  std::vector<TokenId> tokens;
  size_t n_first_type = SIZE_MAX;  // tokens from here on are of the second type (models with token types)
};

class Embedder {
 public:
  using Inputs = std::span<const EmbedderInput>;
  using Progress = std::function<bool(size_t n_done, size_t n_total)>;  // false: stop
  using AdapterRef = std::shared_ptr<const Adapter>;                    // of open_adapter(); null: none

  // Of `config`: backend, threads, batch_invariant, quantize, max_num_batched_tokens, tensor_parallel_size,
  // pipeline_parallel_size, data_parallel_size, rank_wire_dtype, max_loras, max_lora_rank. K and V are kept in F32. Errors: as Engine::open.
  static Result<std::unique_ptr<Embedder>> open(std::unique_ptr<WeightSource> source,
                                                const EngineConfig& config);
  ~Embedder();

  const std::string& architecture() const { return shape().arch; }
  const WeightSource& source() const { return *source_; }
  int dim() const { return shape().model_dim; }
  int vocab_size() const { return shape().vocab_size; }
  int max_tokens() const { return shape().max_seq_len; }  // of a sequence
  int n_token_types() const { return shape().embedding.n_token_types; }
  bool causal() const { return shape().attention.causal; }

  // Ok, or why nothing can be computed any more: one of several ranks has ended. Any thread.
  Status status() const;
  // As EmbeddingModel's. Any thread.
  Result<std::shared_ptr<const Adapter>> open_adapter(const std::string& path) const;
  // The ranks' part of them, one engine's behind the other's; any thread.
  void set_ranks(Metrics& metrics) const;
  // Errors: those of embed() that the inputs alone make.
  Status check(Inputs inputs) const;
  // For each sequence the poolings' vectors [dim] one after the other. Errors: kInvalidArgument for an empty sequence or an
  // id outside the vocabulary, kContextOverflow for a sequence that is too long, both with its index; kResourceExhausted
  // when its K and V have no room; kCancelled; with an adapter kInvalidArgument, of another model, and those of reading it.
  Result<std::vector<std::vector<float>>> embed(Inputs inputs, std::span<const Pooling> poolings,
                                                const Progress& progress = {}, AdapterRef adapter = nullptr);
  // For each sequence the states of all its tokens, [n_tokens * dim]. Errors: the same.
  Result<std::vector<std::vector<float>>> states(Inputs inputs, const Progress& progress = {},
                                                 AdapterRef adapter = nullptr);

 private:
  // Of sequences begin to end the tokens from the first-th on; count: so many, 0 = all.
  struct Step {
    size_t begin, end;
    int first, count;
  };
  using Vectors = std::vector<std::vector<float>>;
  using Work = std::function<Result<Vectors>(Embedder& engine, Inputs part, const Progress& progress)>;

  Embedder(std::shared_ptr<WeightSource> source, std::unique_ptr<LoadedModel> model,
           std::unique_ptr<StateRanks> ranks, const EngineConfig& config);
  // Engine `index` of the configuration's. model: of an engine on the same node, or null and then this one's.
  static Result<std::unique_ptr<Embedder>> open_one(const std::shared_ptr<WeightSource>& source,
                                                    EngineConfig config, int index, const EnginePlace& place,
                                                    std::shared_ptr<Model>& model);
  const ModelConfig& shape() const { return model_->model().config(); }
  // Gives `take` the states in the order of sequences and tokens: of all tokens, or of each sequence at least of the last.
  Status run(Inputs inputs, bool all_rows, const Progress& progress,
             const std::function<void(size_t sequence, std::span<const float> state)>& take);
  // What `work` gives for each sequence: by this one, or by all a few steps at a time.
  Result<Vectors> shared_out(Inputs inputs, const Progress& progress, const Work& work);
  // By this one, whose model has the adapters.
  Result<Vectors> adapted(Inputs inputs, const Progress& progress, const Work& work,
                          const AdapterRef& adapter);
  Result<Vectors> pooled(Inputs inputs, std::span<const Pooling> poolings, const Progress& progress);
  Result<Vectors> all_states(Inputs inputs, const Progress& progress);
  size_t batch_end(Inputs inputs, size_t first) const;
  std::vector<Step> steps_of(Inputs inputs) const;
  Status make_room(Inputs inputs);
  // Valid until the next.
  Batch batch_of(Inputs inputs, const Step& step, bool all_rows);
  Status compute(const Batch& batch);
  void add(const std::vector<TokenId>& tokens, int first, int count, int first_block, int index,
           bool all_rows);
  Batch with_positions(const Batch& batch);
  // `inputs`: of the step, whose tokens begin with the first-th of each.
  void add_token_types(Inputs inputs, int first, Batch& batch);

  std::shared_ptr<WeightSource> source_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<StateRanks> ranks_;  // null: there is this one only
  std::unique_ptr<BatchBuilder> builder_;
  std::vector<int> cpus_;      // where its steps are computed; none: anywhere
  std::vector<int> n_blocks_;  // of the cache; empty: there is none
  std::vector<int32_t> positions_, token_types_;
  std::vector<std::unique_ptr<Embedder>> beside_;  // the other engines
  int most_tokens_;                                // of a step, unless an encoder's sequence is longer
  const int max_lora_rank_;
  std::unique_ptr<AdapterPool> adapters_;
  int adapter_slot_ = -1;  // of the sequences of the call under way
};

}  // namespace penstock
