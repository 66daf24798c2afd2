#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/embedder.h"
#include "frontend/sentence_modules.h"
#include "penstock/embed.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

class EmbeddingModelImpl final : public EmbeddingModel {
 public:
  EmbeddingModelImpl(std::unique_ptr<Tokenizer> tokenizer, std::unique_ptr<Embedder> embedder,
                     SentenceModules modules)
      : tokenizer_(std::move(tokenizer)), embedder_(std::move(embedder)), modules_(std::move(modules)) {
    if (modules_.poolings.empty())
      modules_.poolings = {embedder_->causal() ? Pooling::kLast : Pooling::kMean};
  }

  EmbeddingInfo info() const override {
    EmbeddingInfo info;
    info.architecture = embedder_->architecture();
    info.dimensions = dimensions(modules_.poolings.size());
    info.max_tokens = max_tokens();
    for (const auto& [name, text] : modules_.prompts) info.prompt_names.push_back(name);
    return info;
  }

  Result<std::vector<std::vector<float>>> embed(std::span<const Prompt> inputs,
                                                const EmbedOptions& options) override {
    std::vector<Pooling> poolings = modules_.poolings;
    if (options.pooling) poolings = {*options.pooling};
    RETURN_IF_ERROR(check(options, poolings.size()));
    std::vector<std::vector<TokenId>> sequences;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ASSIGN_OR_RETURN(sequences.emplace_back(), tokens_of(inputs[i], i, options));
    }
    ASSIGN_OR_RETURN(auto vectors, embedder_->embed(sequences, poolings, options.on_progress));
    for (std::vector<float>& vector : vectors) finish(vector, options);
    return vectors;
  }

 private:
  int max_tokens() const {
    return modules_.max_tokens > 0 ? std::min(modules_.max_tokens, embedder_->max_tokens())
                                   : embedder_->max_tokens();
  }
  int dimensions(size_t n_poolings) const {
    return modules_.dense.empty() ? static_cast<int>(n_poolings) * embedder_->dim()
                                  : modules_.dense.back().rows;
  }

  Status check(const EmbedOptions& options, size_t n_poolings) const {
    const int all = dimensions(n_poolings);
    if (options.dimensions < 0 || options.dimensions > all) {
      return errorf(ErrorCode::kInvalidArgument, "dimensions: expected at most {}, got {}", all,
                    options.dimensions);
    }
    if (!modules_.dense.empty() &&
        modules_.dense[0].cols != static_cast<int>(n_poolings) * embedder_->dim()) {
      return errorf(ErrorCode::kInvalidArgument,
                    "pooling: the checkpoint's dense layers read {} features, this pooling has {}",
                    modules_.dense[0].cols, static_cast<int>(n_poolings) * embedder_->dim());
    }
    if (!options.prompt_name || options.prompt_name->empty() ||
        modules_.prompts.contains(*options.prompt_name))
      return {};
    std::string known;
    for (const auto& [name, text] : modules_.prompts) known += (known.empty() ? "" : ", ") + name;
    return errorf(ErrorCode::kInvalidArgument, "prompt_name: expected one of the checkpoint's ({}), got '{}'",
                  known.empty() ? "it has none" : known, *options.prompt_name);
  }

  Result<std::vector<TokenId>> tokens_of(const Prompt& input, size_t index,
                                         const EmbedOptions& options) const {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&input)) return *ids;
    if (tokenizer_ == nullptr) {
      return errorf(ErrorCode::kInvalidArgument,
                    "input {}: the checkpoint has no tokenizer: expected token ids", index);
    }
    const std::string name = options.prompt_name.value_or(modules_.default_prompt);
    const std::string prompt = name.empty() ? "" : modules_.prompts.at(name);
    if (!prompt.empty() && !modules_.with_prompt)
      return make_error(ErrorCode::kUnsupported, "include_prompt: poolings without the prompt are not known");
    std::vector<TokenId> tokens =
        tokenizer_->encode(prompt + std::get<std::string>(input), {.parse_special = true});
    const auto limit = static_cast<size_t>(max_tokens());
    if (tokens.size() <= limit) return tokens;
    if (!options.truncate) {
      return errorf(ErrorCode::kContextOverflow,
                    "input {}: expected at most {} tokens, got {} (truncate cuts it)", index, limit,
                    tokens.size());
    }
    // A special token at the end stays there.
    const TokenId last = tokens.back();
    tokens.resize(limit);
    if (tokenizer_->is_special(last)) tokens.back() = last;
    return tokens;
  }

  void finish(std::vector<float>& vector, const EmbedOptions& options) const {
    for (const DenseModule& dense : modules_.dense) vector = applied(dense, vector);
    if (options.dimensions > 0) vector.resize(static_cast<size_t>(options.dimensions));
    if (!options.normalize.value_or(modules_.normalize)) return;
    double sum = 0;
    for (const float value : vector) sum += double{value} * value;
    const double length = std::max(std::sqrt(sum), 1e-12);
    for (float& value : vector) value = static_cast<float>(value / length);
  }

  static std::vector<float> applied(const DenseModule& dense, const std::vector<float>& in) {
    std::vector<float> out(static_cast<size_t>(dense.rows));
    const auto cols = static_cast<size_t>(dense.cols);
    for (size_t r = 0; r < out.size(); ++r) {
      const float* const row = dense.weight.data() + r * cols;
      double sum = dense.bias.empty() ? 0.0 : dense.bias[r];
      for (size_t c = 0; c < cols; ++c) sum += double{row[c]} * in[c];
      out[r] = static_cast<float>(dense.tanh ? std::tanh(sum) : sum);
    }
    return out;
  }

  std::unique_ptr<Tokenizer> tokenizer_;  // null: the checkpoint has none
  std::unique_ptr<Embedder> embedder_;
  SentenceModules modules_;
};

}  // namespace

Result<std::unique_ptr<EmbeddingModel>> EmbeddingModel::open(const EngineConfig& config) {
  ASSIGN_OR_RETURN(auto source, open_weights(config.model));
  auto tokenizer = Tokenizer::load(*source);
  const bool gguf = source->naming() == Naming::kGguf;
  const bool none = !tokenizer && (tokenizer.error().code == ErrorCode::kNotFound ||
                                   (gguf && !source->config().contains("tokenizer.ggml.tokens")));
  if (!tokenizer && !none) return tl::unexpected(tokenizer.error());
  ASSIGN_OR_RETURN(auto embedder, Embedder::open(std::move(source), config));
  ASSIGN_OR_RETURN(SentenceModules modules, read_sentence_modules(embedder->source(), embedder->dim()));
  return std::make_unique<EmbeddingModelImpl>(none ? nullptr : std::move(*tokenizer), std::move(embedder),
                                              std::move(modules));
}

}  // namespace penstock
