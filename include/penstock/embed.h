// Texts to vectors, by encoders (BERT, RoBERTa, ModernBERT, ...) and by decoders whose states are wanted.
//
//   auto model = penstock::EmbeddingModel::open({.model = "bge-small-en-v1.5"});
//   if (!model) return fail(model.error());
//   auto vectors = (*model)->embed({"a text", "another one"});
//
// Pooling, normalisation, dense layers and prompts are those of sentence-transformers' files (modules.json), or of a GGUF
// file's metadata. Where nothing is said: encoders' states are averaged, of decoders the last is taken, vectors stay as
// they are (of GGUF files they are normalised, as llama.cpp does).
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
  kCls,           // the first token's
  kLast,          // the last token's
  kMax,           // of every feature
  kMeanBySqrt,    // the sum by the root of their number
  kWeightedMean,  // the i-th token weighs i
};

class Adapter;  // a LoRA adapter that was opened

struct EmbedOptions {
  std::optional<Pooling> pooling;  // instead of the checkpoint's
  std::optional<bool> normalize;   // to length 1; instead of what the checkpoint says
  int dimensions = 0;              // the first so many (Matryoshka); 0 = all
  std::optional<std::string>
      prompt_name;        // of the checkpoint's prompts, put before every text; nothing = its default one
  bool truncate = false;  // texts that are too long are cut; otherwise they are an error
  int truncate_to = 0;    // > 0: inputs, ids too, are cut to so many tokens, special ones included
  std::shared_ptr<const Adapter> adapter;  // of the model's open_adapter(); null: the model as it is
  std::function<bool(size_t n_done, size_t n_total)> on_progress;  // false: stop
};

struct ClassifyOptions {
  bool use_activation = true;  // probabilities, as the checkpoint says; false: logits
  bool truncate = false;       // texts that are too long are cut; otherwise they are an error
  int truncate_to = 0;         // > 0: inputs, ids too, are cut to so many tokens, special ones included
  std::shared_ptr<const Adapter> adapter;  // of the model's open_adapter(); null: the model as it is
  std::function<bool(size_t n_done, size_t n_total)> on_progress;  // false: stop
};

struct EmbeddingInfo {
  std::string architecture;
  int dimensions = 0;  // of a vector
  int max_tokens = 0;  // of an input, special tokens included
  std::vector<std::string> prompt_names;
  std::vector<std::string> labels;  // of a classifier's classes; empty: the model has no classification head
  bool labels_tokens = false;       // the classes are those of every token: classify_tokens()
};

class EmbeddingModel {
 public:
  // Of `config`: model, backend, threads, batch_invariant, enforce_eager, quantize, max_num_batched_tokens (of a step; default 2048),
  // max_loras, max_lora_rank.
  // Errors: as Engine::open; kUnsupported for modules that are not known.
  static Result<std::unique_ptr<EmbeddingModel>> open(const EngineConfig& config);
  virtual ~EmbeddingModel() = default;

  virtual EmbeddingInfo info() const = 0;
  // The tokens that embed() reads of each input (prompt_name, truncate and truncate_to of the options count), and score() of each
  // pair. Inputs' may be given back as ids and are read the same. May be called while another thread computes. Errors: as embed().
  virtual Result<std::vector<std::vector<TokenId>>> encode(std::span<const Prompt> inputs,
                                                           const EmbedOptions& options = {}) const = 0;
  virtual Result<std::vector<std::vector<TokenId>>> encode_pairs(
      std::span<const std::pair<std::string, std::string>> pairs,
      const ClassifyOptions& options = {}) const = 0;
  // Texts get the checkpoint's special tokens; ids are taken as they are. Errors name the input by its index:
  // kInvalidArgument, kContextOverflow. One call at a time.
  virtual Result<std::vector<std::vector<float>>> embed(std::span<const Prompt> inputs,
                                                        const EmbedOptions& options = {}) = 0;
  // For each input a vector of every token, [n_tokens * dimensions], made from its state as embed() makes one of what is pooled.
  // Errors: as embed().
  virtual Result<std::vector<std::vector<float>>> embed_tokens(std::span<const Prompt> inputs,
                                                               const EmbedOptions& options = {}) = 0;
  // For each input a number per class (EmbeddingInfo::labels). Errors: as embed(); kInvalidArgument of a model without a
  // classification head, kUnsupported and kCorruptFile of one whose head cannot be read.
  virtual Result<std::vector<std::vector<float>>> classify(std::span<const Prompt> inputs,
                                                           const ClassifyOptions& options = {}) = 0;
  // For each input a number per class of every token, [n_tokens * classes]. Errors: as classify(); kInvalidArgument of a head that
  // reads what is pooled.
  virtual Result<std::vector<std::vector<float>>> classify_tokens(std::span<const Prompt> inputs,
                                                                  const ClassifyOptions& options = {}) = 0;
  // How well the texts of each pair go together, by a cross-encoder: a model whose head has one class reads both as one. Errors:
  // as classify(); kInvalidArgument of a head with several classes.
  virtual Result<std::vector<float>> score(std::span<const std::pair<std::string, std::string>> pairs,
                                           const ClassifyOptions& options = {}) = 0;
  // A LoRA adapter of this model, for options: a PEFT directory or a GGUF file. It comes into memory with the first call that
  // has it; max_loras are there at once. As long as somebody holds it, its files must stay as they are. May be called while
  // another thread computes. Errors: those of the files, kInvalidArgument (of another model, a rank above max_lora_rank),
  // kUnsupported (of a model that several processes share).
  virtual Result<std::shared_ptr<const Adapter>> open_adapter(const std::string& path);
};

}  // namespace penstock
