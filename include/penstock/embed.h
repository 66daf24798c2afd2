// Embedding of texts as vectors, by encoders (BERT, RoBERTa, ModernBERT, ...) or by the states of
// decoders.
//
//   auto model = penstock::EmbeddingModel::open({.model = "bge-small-en-v1.5"});
//   if (!model) return fail(model.error());
//   auto vectors = (*model)->embed({"a text", "another one"});
//
// Pooling, normalisation, dense layers and prompts are those of sentence-transformers' files
// (modules.json), or of a GGUF file's metadata. Defaults where neither says anything: mean pooling
// for encoders, the last token's state for decoders, and no normalisation, except for GGUF files,
// whose vectors are normalised as llama.cpp does.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "penstock/engine_config.h"
#include "penstock/llm.h"
#include "penstock/result.h"
#include "penstock/types.h"

namespace penstock {

enum class Pooling : uint8_t {
  kMean,
  kCls,           // state of the first token
  kLast,          // state of the last token
  kMax,           // maximum over the tokens, feature by feature
  kMeanBySqrt,    // sum over the tokens, divided by the square root of their number
  kWeightedMean,  // mean in which token i, counted from 1, has weight i
};

class Adapter;  // a LoRA adapter that was opened

struct EmbedOptions {
  std::optional<Pooling> pooling;  // overrides the checkpoint's pooling
  // whether vectors are scaled to length 1; overrides the checkpoint
  std::optional<bool> normalize;
  // leading dimensions to keep of each vector (Matryoshka); 0 = all
  int dimensions = 0;
  // Name of the checkpoint's prompt to put before every text; nothing = the checkpoint's default
  // prompt.
  std::optional<std::string> prompt_name;
  // true: texts that are too long are cut; false: they are an error
  bool truncate = false;
  // > 0: most tokens of an input, special ones included; texts and ids are cut
  int truncate_to = 0;
  // from the model's open_adapter(); null: no adapter
  std::shared_ptr<const Adapter> adapter;
  std::function<bool(size_t n_done, size_t n_total)> on_progress;  // false: stop
};

struct ClassifyOptions {
  // probabilities, as the checkpoint says; false: logits
  bool use_activation = true;
  // true: texts that are too long are cut; false: they are an error
  bool truncate = false;
  // > 0: most tokens of an input, special ones included; texts and ids are cut
  int truncate_to = 0;
  // from the model's open_adapter(); null: no adapter
  std::shared_ptr<const Adapter> adapter;
  std::function<bool(size_t n_done, size_t n_total)> on_progress;  // false: stop
};

struct EmbeddingInfo {
  std::string architecture;
  int dimensions = 0;  // length of a vector
  // most tokens of an input, special tokens included
  int max_tokens = 0;
  std::vector<std::string> prompt_names;
  // names of the classes; empty: the model has no classification head
  std::vector<std::string> labels;
  // the head classifies every token: use classify_tokens()
  bool labels_tokens = false;
};

// A pair of texts as a cross-encoder reads it.
struct PairTokens {
  std::vector<TokenId> tokens;
  // tokens from here on are of the second type (models with token types)
  size_t n_first_type = SIZE_MAX;
};

class EmbeddingModel {
 public:
  // Reads these fields of `config`: model, backend, threads, batch_invariant, enforce_eager,
  // quantize, max_num_batched_tokens (tokens of a step; default 2048), max_loras, max_lora_rank.
  // Errors: as Engine::open; kUnsupported for a checkpoint with sentence-transformers modules that
  // are not known.
  static Result<std::unique_ptr<EmbeddingModel>> open(const EngineConfig& config);
  virtual ~EmbeddingModel() = default;

  virtual EmbeddingInfo info() const = 0;
  // Token ids that embed() reads for each input; of the options prompt_name, truncate and
  // truncate_to apply. The ids may be passed to embed() in place of the text, with the same result.
  // encode_pairs() returns those that score() reads for each pair. May be called while another
  // thread computes. Errors: as embed().
  virtual Result<std::vector<std::vector<TokenId>>> encode(
      std::span<const Prompt> inputs, const EmbedOptions& options = {}) const = 0;
  virtual Result<std::vector<std::vector<TokenId>>> encode_pairs(
      std::span<const std::pair<std::string, std::string>> pairs,
      const ClassifyOptions& options = {}) const = 0;
  // Texts get the checkpoint's special tokens; ids are taken as they are. Errors name the input by
  // its index: kInvalidArgument, kContextOverflow. One call at a time.
  virtual Result<std::vector<std::vector<float>>> embed(std::span<const Prompt> inputs,
                                                        const EmbedOptions& options = {}) = 0;
  // Returns for each input one vector per token, [n_tokens * dimensions]: each token's state goes
  // through what follows the pooling in embed() (dense layers, normalisation). Errors: as embed().
  virtual Result<std::vector<std::vector<float>>> embed_tokens(
      std::span<const Prompt> inputs, const EmbedOptions& options = {}) = 0;
  // Returns for each input a score per class (EmbeddingInfo::labels). Errors: as embed();
  // kInvalidArgument when the model has no classification head, kUnsupported and kCorruptFile when
  // its head cannot be read.
  virtual Result<std::vector<std::vector<float>>> classify(std::span<const Prompt> inputs,
                                                           const ClassifyOptions& options = {}) = 0;
  // Returns for each input a score per class of every token, [n_tokens * classes]. Errors: as
  // classify(); kInvalidArgument when the head classifies the pooled state.
  virtual Result<std::vector<std::vector<float>>> classify_tokens(
      std::span<const Prompt> inputs, const ClassifyOptions& options = {}) = 0;
  // Returns a relevance score for each pair, by a cross-encoder: a model whose head has one class
  // reads both texts as one sequence. Errors: as classify(); kInvalidArgument when the head has
  // several classes.
  virtual Result<std::vector<float>> score(
      std::span<const std::pair<std::string, std::string>> pairs,
      const ClassifyOptions& options = {}) = 0;
  // Computes score() in two parts, of which the first may be called while another thread computes.
  // `first`: one text, which goes with each of `second` and becomes tokens once, or as many texts
  // as `second` has.
  virtual Result<std::vector<PairTokens>> pair_tokens(
      std::span<const std::string> first, std::span<const std::string> second,
      const ClassifyOptions& options = {}) const = 0;
  virtual Result<std::vector<float>> score_tokens(std::span<const PairTokens> pairs,
                                                  const ClassifyOptions& options = {}) = 0;
  // Opens a LoRA adapter of this model (a PEFT directory or a GGUF file) to pass in the options of
  // a call. The first call that uses the adapter loads its weights; at most max_loras adapters are
  // in memory at once. As long as somebody holds it, its files must stay as they are. May be called
  // while another thread computes. Errors: those of reading the files, kInvalidArgument (it is of
  // another model, or its rank is above max_lora_rank), kUnsupported (several processes share the
  // model).
  virtual Result<std::shared_ptr<const Adapter>> open_adapter(const std::string& path);
};

}  // namespace penstock
