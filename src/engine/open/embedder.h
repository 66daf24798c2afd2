// Computes the states of whole sequences and pools them into vectors; nothing is generated.
//
// Encoders need a whole sequence in one step; decoders take it in pieces. One thread at a time.
//
// With data_parallel_size above 1 there are as many engines, each with CPUs of its own; the next
// free one takes the next step.
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

// One sequence: a text, or a pair of texts.
struct EmbedderInput {
  std::vector<TokenId> tokens;
  // leading tokens of token type 0; the others have type 1
  size_t n_first_type = SIZE_MAX;
};

class Embedder {
 public:
  using Inputs = std::span<const EmbedderInput>;
  using Progress = std::function<bool(size_t n_done, size_t n_total)>;  // false: stop
  // from open_adapter(); null: none
  using AdapterRef = std::shared_ptr<const Adapter>;

  // Reads these fields of `config`: backend, threads, batch_invariant, quantize,
  // max_num_batched_tokens, tensor_parallel_size, pipeline_parallel_size, data_parallel_size,
  // rank_wire_dtype, max_loras, max_lora_rank. K and V are kept in F32. Errors: as Engine::open.
  static Result<std::unique_ptr<Embedder>> open(std::unique_ptr<WeightSource> source,
                                                const EngineConfig& config);
  ~Embedder();

  const std::string& architecture() const { return shape().arch; }
  const WeightSource& source() const { return *source_; }
  int dim() const { return shape().model_dim; }
  int vocab_size() const { return shape().vocab_size; }
  int max_tokens() const { return shape().max_seq_len; }  // most tokens of a sequence
  int n_token_types() const { return shape().embedding.n_token_types; }
  bool causal() const { return shape().attention.causal; }

  // Ok, or the error for which nothing can be computed any more (one of several ranks has ended).
  // Any thread.
  Status status() const;
  // As EmbeddingModel::open_adapter(). Any thread.
  Result<std::shared_ptr<const Adapter>> open_adapter(const std::string& path) const;
  // Fills in the metrics per rank; with several engines the ranks of one follow those of the other.
  // Any thread.
  void set_ranks(Metrics& metrics) const;
  // Checks the inputs. Errors: those errors of embed() that depend on the inputs only.
  Status check(Inputs inputs) const;
  // Returns for each sequence the vectors [dim] of the poolings, one after the other. Errors:
  // kInvalidArgument for an empty sequence or an id outside the vocabulary, kContextOverflow for a
  // sequence that is too long, both with its index; kResourceExhausted when there is no memory for
  // its K and V; kCancelled; with an adapter also kInvalidArgument when it is of another model, and
  // those of reading its files.
  Result<std::vector<std::vector<float>>> embed(Inputs inputs, std::span<const Pooling> poolings,
                                                const Progress& progress = {},
                                                AdapterRef adapter = nullptr);
  // Returns for each sequence the states of all its tokens, [n_tokens * dim]. Errors: as embed().
  Result<std::vector<std::vector<float>>> states(Inputs inputs, const Progress& progress = {},
                                                 AdapterRef adapter = nullptr);

 private:
  // A step: tokens first to first + count - 1 of each of the sequences [begin, end); count 0 = all
  // tokens.
  struct Step {
    size_t begin, end;
    int first, count;
  };
  using Vectors = std::vector<std::vector<float>>;
  using Work =
      std::function<Result<Vectors>(Embedder& engine, Inputs part, const Progress& progress)>;

  Embedder(std::shared_ptr<WeightSource> source, std::unique_ptr<LoadedModel> model,
           std::unique_ptr<StateRanks> ranks, const EngineConfig& config);
  // Opens engine `index` of data_parallel_size. model: the weights that an engine on the same NUMA
  // node has loaded; when null, they are loaded and returned in it.
  static Result<std::unique_ptr<Embedder>> open_one(const std::shared_ptr<WeightSource>& source,
                                                    EngineConfig config, int index,
                                                    const EnginePlace& place,
                                                    std::shared_ptr<Model>& model);
  const ModelConfig& shape() const { return model_->model().config(); }
  // Calls `take` with the states in the order of sequences and tokens: all tokens' with all_rows,
  // else at least the last one's of each sequence.
  Status run(Inputs inputs, bool all_rows, const Progress& progress,
             const std::function<void(size_t sequence, std::span<const float> state)>& take);
  // Runs `work` on all inputs: on this engine, or divided among all engines, a few steps at a time.
  Result<Vectors> shared_out(Inputs inputs, const Progress& progress, const Work& work);
  // Runs `work` with an adapter, on this engine only, whose model holds the adapters.
  Result<Vectors> adapted(Inputs inputs, const Progress& progress, const Work& work,
                          const AdapterRef& adapter);
  Result<Vectors> pooled(Inputs inputs, std::span<const Pooling> poolings,
                         const Progress& progress);
  Result<Vectors> all_states(Inputs inputs, const Progress& progress);
  size_t batch_end(Inputs inputs, size_t first) const;
  std::vector<Step> steps_of(Inputs inputs) const;
  Status make_room(Inputs inputs);
  // Returns the batch of a step; valid until the next call.
  Batch batch_of(Inputs inputs, const Step& step, bool all_rows);
  Status compute(const Batch& batch);
  void add(const std::vector<TokenId>& tokens, int first, int count, int first_block, int index,
           bool all_rows);
  Batch with_positions(const Batch& batch);
  // inputs: those of the step, which computes their tokens from `first` on.
  void add_token_types(Inputs inputs, int first, Batch& batch);

  std::shared_ptr<WeightSource> source_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<StateRanks> ranks_;  // null: there is one rank
  std::unique_ptr<BatchBuilder> builder_;
  // CPUs that compute this engine's steps; empty: any
  std::vector<int> cpus_;
  // blocks of the cache, per group; empty: there is no cache
  std::vector<int> n_blocks_;
  std::vector<int32_t> positions_, token_types_;
  std::vector<std::unique_ptr<Embedder>> beside_;  // the other engines
  // most tokens of a step, unless one encoder sequence has more
  int most_tokens_;
  const int max_lora_rank_;
  std::unique_ptr<AdapterPool> adapters_;
  // adapter slot of the sequences of the current call; -1 = none
  int adapter_slot_ = -1;
};

}  // namespace penstock
