#include "frontend/embedding_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/open/embedder.h"
#include "engine/open/open.h"
#include "frontend/class_head.h"
#include "frontend/sentence_modules.h"
#include "penstock/embed.h"
#include "text/tokenizer.h"

namespace penstock {

Result<std::shared_ptr<const Adapter>> EmbeddingModel::open_adapter(const std::string& path) {
  return errorf(ErrorCode::kUnsupported, "{}: this model takes no adapters", path);
}

namespace {

class EmbeddingModelImpl final : public EmbeddingModel {
 public:
  EmbeddingModelImpl(std::unique_ptr<Tokenizer> tokenizer, std::unique_ptr<Embedder> embedder,
                     SentenceModules modules, Result<std::optional<ClassHead>> head)
      : tokenizer_(std::move(tokenizer)),
        embedder_(std::move(embedder)),
        modules_(std::move(modules)),
        head_(std::move(head)) {
    if (modules_.poolings.empty())
      modules_.poolings = {embedder_->causal() ? Pooling::kLast : Pooling::kMean};
  }

  const Tokenizer* tokenizer() const { return tokenizer_.get(); }

  Status status() const { return embedder_->status(); }
  void set_ranks(Metrics& metrics) const { embedder_->set_ranks(metrics); }

  EmbeddingInfo info() const override {
    EmbeddingInfo info;
    info.architecture = embedder_->architecture();
    info.dimensions = dimensions(modules_.poolings.size());
    info.max_tokens = max_tokens();
    for (const auto& [name, text] : modules_.prompts) info.prompt_names.push_back(name);
    if (head_ && *head_) info.labels = (*head_)->labels, info.labels_tokens = (*head_)->of_tokens;
    return info;
  }

  Result<std::vector<std::vector<float>>> embed(std::span<const Prompt> inputs,
                                                const EmbedOptions& options) override {
    std::vector<Pooling> poolings = modules_.poolings;
    if (options.pooling) poolings = {*options.pooling};
    RETURN_IF_ERROR(check(options, poolings.size()));
    ASSIGN_OR_RETURN(const auto read, inputs_of(inputs, options));
    ASSIGN_OR_RETURN(auto vectors,
                     embedder_->embed(read, poolings, options.on_progress, options.adapter));
    for (std::vector<float>& vector : vectors) finish(vector, options);
    return vectors;
  }

  Result<std::vector<std::vector<TokenId>>> encode(std::span<const Prompt> inputs,
                                                   const EmbedOptions& options) const override {
    RETURN_IF_ERROR(check(options, modules_.poolings.size()));
    ASSIGN_OR_RETURN(auto read, inputs_of(inputs, options));
    RETURN_IF_ERROR(embedder_->check(read));
    return tokens_in(std::move(read));
  }

  Result<std::vector<std::vector<TokenId>>> encode_pairs(
      std::span<const std::pair<std::string, std::string>> pairs,
      const ClassifyOptions& options) const override {
    RETURN_IF_ERROR(check_pairs());
    ASSIGN_OR_RETURN(auto read, inputs_of_pairs(pairs, options));
    return tokens_in(std::move(read));
  }

  Result<std::vector<std::vector<float>>> embed_tokens(std::span<const Prompt> inputs,
                                                       const EmbedOptions& options) override {
    RETURN_IF_ERROR(check(options, 1));
    ASSIGN_OR_RETURN(const auto read, inputs_of(inputs, options));
    ASSIGN_OR_RETURN(auto sequences, embedder_->states(read, options.on_progress, options.adapter));
    for (std::vector<float>& states : sequences) {
      std::vector<float> vectors;
      for (auto state = states.begin(); state != states.end(); state += embedder_->dim()) {
        std::vector<float> vector(state, state + embedder_->dim());
        finish(vector, options);
        vectors.insert(vectors.end(), vector.begin(), vector.end());
      }
      states = std::move(vectors);
    }
    return sequences;
  }

  Result<std::vector<std::vector<float>>> classify(std::span<const Prompt> inputs,
                                                   const ClassifyOptions& options) override {
    RETURN_IF_ERROR(check_head());
    if ((*head_)->of_tokens) return wrong_head("classifies tokens, not texts");
    ASSIGN_OR_RETURN(const auto read, inputs_to_classify(inputs, options));
    return classes_of(read, options);
  }

  Result<std::vector<std::vector<float>>> classify_tokens(std::span<const Prompt> inputs,
                                                          const ClassifyOptions& options) override {
    RETURN_IF_ERROR(check_head());
    if (!(*head_)->reads_tokens())
      return wrong_head("reads what is pooled of a text, not each token");
    ASSIGN_OR_RETURN(const auto read, inputs_to_classify(inputs, options));
    ASSIGN_OR_RETURN(auto sequences, embedder_->states(read, options.on_progress, options.adapter));
    for (std::vector<float>& states : sequences) {
      std::vector<float> classes;
      for (auto state = states.begin(); state != states.end(); state += embedder_->dim()) {
        const auto row = logits_to_classes({state, state + embedder_->dim()}, options);
        classes.insert(classes.end(), row.begin(), row.end());
      }
      states = std::move(classes);
    }
    return sequences;
  }

  Result<std::vector<float>> score(std::span<const std::pair<std::string, std::string>> pairs,
                                   const ClassifyOptions& options) override {
    RETURN_IF_ERROR(check_pairs());
    ASSIGN_OR_RETURN(const auto read, inputs_of_pairs(pairs, options));
    return scores_of(read, options);
  }

  Result<std::vector<PairTokens>> pair_tokens(std::span<const std::string> first,
                                              std::span<const std::string> second,
                                              const ClassifyOptions& options) const override {
    RETURN_IF_ERROR(check_pairs());
    RETURN_IF_ERROR(check_truncation(options.truncate_to));
    const bool one = first.size() == 1;
    if (!one && first.size() != second.size()) {
      return errorf(ErrorCode::kInvalidArgument, "pairs: expected one first text or {}, got {}",
                    second.size(), first.size());
    }
    if (one) RETURN_IF_ERROR(check_query(first[0], second.size()));
    std::vector<PairTokens> pairs;
    std::optional<std::vector<TokenId>> known;  // tokens of the single first text
    for (size_t i = 0; i < second.size(); ++i) {
      if (!one) known.reset();
      ASSIGN_OR_RETURN(EmbedderInput input,
                       input_of_pair(first[one ? 0 : i], second[i], i, options, known));
      pairs.push_back({std::move(input.tokens), input.n_first_type});
    }
    return pairs;
  }

  Result<std::vector<float>> score_tokens(std::span<const PairTokens> pairs,
                                          const ClassifyOptions& options) override {
    RETURN_IF_ERROR(check_pairs());
    std::vector<EmbedderInput> read;
    for (const PairTokens& pair : pairs) read.push_back({pair.tokens, pair.n_first_type});
    return scores_of(read, options);
  }

  Result<std::shared_ptr<const Adapter>> open_adapter(const std::string& path) override {
    return embedder_->open_adapter(path);
  }

 private:
  Status check_head() const {
    if (!head_) return tl::unexpected(head_.error());
    if (*head_) return {};
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: the model has no classification head: its config.json names no "
                  "...ForSequenceClassification and no ...ForTokenClassification",
                  embedder_->source().path().string());
  }

  tl::unexpected<Error> wrong_head(const char* what) const {
    return errorf(ErrorCode::kInvalidArgument, "{}: the classification head {}",
                  embedder_->source().path().string(), what);
  }

  Result<std::vector<EmbedderInput>> inputs_to_classify(std::span<const Prompt> inputs,
                                                        const ClassifyOptions& options) const {
    RETURN_IF_ERROR(check_truncation(options.truncate_to));
    return inputs_of(inputs, {.prompt_name = std::string(),
                              .truncate = options.truncate,
                              .truncate_to = options.truncate_to});
  }

  std::vector<float> logits_to_classes(std::vector<float> state,
                                       const ClassifyOptions& options) const {
    for (const DenseModule& dense : (*head_)->dense) state = dense.apply(state);
    if (options.use_activation) activate(state, (*head_)->activation);
    return state;
  }

  Status check_pairs() const {
    RETURN_IF_ERROR(check_head());
    if ((*head_)->of_tokens) return wrong_head("classifies tokens, not texts");
    if ((*head_)->n_classes() == 1) return {};
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: a cross-encoder's head has one class, this one has {}",
                  embedder_->source().path().string(), (*head_)->n_classes());
  }

  Result<std::vector<std::vector<float>>> classes_of(Embedder::Inputs inputs,
                                                     const ClassifyOptions& options) {
    const ClassHead& head = **head_;
    ASSIGN_OR_RETURN(auto rows, embedder_->embed(inputs, {&head.pooling, 1}, options.on_progress,
                                                 options.adapter));
    for (std::vector<float>& row : rows) row = logits_to_classes(std::move(row), options);
    return rows;
  }

  Result<std::vector<float>> scores_of(Embedder::Inputs inputs, const ClassifyOptions& options) {
    ASSIGN_OR_RETURN(const auto rows, classes_of(inputs, options));
    std::vector<float> scores;
    for (const std::vector<float>& row : rows) scores.push_back(row[0]);
    return scores;
  }

  // Truncates a pair as transformers' "longest_first": the longer text is shortened until both have
  // half of the tokens. If `most` is odd, the longer text gets the extra token.
  static void cut_pair(std::vector<TokenId>& first, std::vector<TokenId>& second, size_t most) {
    if (first.size() + second.size() <= most) return;
    std::vector<TokenId>& shorter = first.size() > second.size() ? second : first;
    std::vector<TokenId>& longer = first.size() > second.size() ? first : second;
    if (shorter.size() > most / 2) shorter.resize(most / 2);
    longer.resize(most - shorter.size());
  }

  // known: tokens of `one`, if a previous call has computed them; set by this call.
  Result<EmbedderInput> input_of_pair(const std::string& one, const std::string& other,
                                      size_t index, const ClassifyOptions& options,
                                      std::optional<std::vector<TokenId>>& known) const {
    if (tokenizer_ == nullptr)
      return errorf(ErrorCode::kInvalidArgument, "pair {}: the checkpoint has no tokenizer", index);
    if (const std::string* form = rerank_template())
      return input_of_rerank(*form, one, other, index, options);
    const PairForm& form = tokenizer_->pair_form();
    const EncodeOptions plain{.add_special = false, .parse_special = true};
    const bool cuts = options.truncate || options.truncate_to > 0;
    for (const std::string* text : {&one, &other}) {
      if (text == &one && known) continue;
      const size_t most = limit_of(options.truncate_to);
      if (const size_t least = cuts ? 0 : tokenizer_->count_at_least(*text, most); least > most) {
        return errorf(ErrorCode::kContextOverflow,
                      "pair {}: expected at most {} tokens, got at least {} (truncate cuts it)",
                      index, most, least);
      }
    }
    if (!known) known = tokenizer_->encode(one, plain);
    std::vector<TokenId> first = *known, second = tokenizer_->encode(other, plain);
    const size_t around = form.before.size() + form.between.size() + form.after.size();
    const size_t limit = limit_of(options.truncate_to);
    if (!options.truncate && options.truncate_to == 0 &&
        first.size() + second.size() + around > limit) {
      return errorf(ErrorCode::kContextOverflow,
                    "pair {}: expected at most {} tokens, got {} (truncate cuts it)", index, limit,
                    first.size() + second.size() + around);
    }
    cut_pair(first, second, limit > around ? limit - around : 0);
    EmbedderInput input;
    input.tokens = tokenizer_->join(first, second);
    if (form.types) input.n_first_type = form.before.size() + first.size() + form.between.size();
    return input;
  }

  // In a template a query becomes tokens anew with each document.
  Status check_query(const std::string& query, size_t n_documents) const {
    constexpr size_t kMost = size_t{32} << 20;  // bytes
    const bool once = tokenizer_ == nullptr || rerank_template() == nullptr;
    const size_t most = kMost / std::max<size_t>(n_documents, 1);
    if (once || query.size() <= most) return {};
    return errorf(
        ErrorCode::kInvalidArgument,
        "pairs: the query is read with each of {} documents: expected at most {} bytes of "
        "it, got {}",
        n_documents, most, query.size());
  }

  // Returns the template of a GGUF reranker's pairs, with {query} and {document}; null: none.
  const std::string* rerank_template() const {
    const auto found = tokenizer_->chat_templates().find("rerank");
    return found == tokenizer_->chat_templates().end() ? nullptr : &found->second;
  }

  // Fills a reranker's template. Truncation removes the end of the document.
  Result<EmbedderInput> input_of_rerank(const std::string& form, const std::string& query,
                                        const std::string& whole, size_t index,
                                        const ClassifyOptions& options) const {
    const auto tokens_with = [&](const std::string& document) {
      std::string text;
      for (size_t at = 0; at < form.size();) {
        constexpr std::string_view kQuery = "{query}", kDocument = "{document}";
        if (form.compare(at, kQuery.size(), kQuery) == 0) {
          text += query, at += kQuery.size();
        } else if (form.compare(at, kDocument.size(), kDocument) == 0) {
          text += document, at += kDocument.size();
        } else {
          text += form[at++];
        }
      }
      return tokenizer_->encode(text, {.parse_special = true});
    };
    const size_t limit = limit_of(options.truncate_to);
    EmbedderInput input;
    input.tokens = tokens_with(whole);
    if (input.tokens.size() <= limit) return input;
    if (!options.truncate && options.truncate_to == 0) {
      return errorf(ErrorCode::kContextOverflow,
                    "pair {}: expected at most {} tokens, got {} (truncate cuts it)", index, limit,
                    input.tokens.size());
    }
    // Tokenizing the cut text again may give more tokens than were kept, so this repeats until it
    // fits.
    std::vector<TokenId> document = tokenizer_->encode(whole, {.add_special = false});
    while (input.tokens.size() > limit && !document.empty()) {
      document.resize(document.size() - std::min(document.size(), input.tokens.size() - limit));
      input.tokens = tokens_with(tokenizer_->decode(document, false));
    }
    if (input.tokens.size() <= limit) return input;
    return errorf(ErrorCode::kContextOverflow,
                  "pair {}: without its document expected at most {} tokens, got {}", index, limit,
                  input.tokens.size());
  }

  Result<std::vector<EmbedderInput>> inputs_of(std::span<const Prompt> inputs,
                                               const EmbedOptions& options) const {
    std::vector<EmbedderInput> read;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ASSIGN_OR_RETURN(read.emplace_back().tokens, tokens_of(inputs[i], i, options));
    }
    return read;
  }

  Result<std::vector<EmbedderInput>> inputs_of_pairs(
      std::span<const std::pair<std::string, std::string>> pairs,
      const ClassifyOptions& options) const {
    RETURN_IF_ERROR(check_truncation(options.truncate_to));
    std::vector<EmbedderInput> read;
    for (size_t i = 0; i < pairs.size(); ++i) {
      std::optional<std::vector<TokenId>> none;
      ASSIGN_OR_RETURN(read.emplace_back(),
                       input_of_pair(pairs[i].first, pairs[i].second, i, options, none));
    }
    return read;
  }

  static std::vector<std::vector<TokenId>> tokens_in(std::vector<EmbedderInput> read) {
    std::vector<std::vector<TokenId>> tokens;
    for (EmbedderInput& input : read) tokens.push_back(std::move(input.tokens));
    return tokens;
  }

  Status check_truncation(int to) const {
    if (to >= 0 && to <= max_tokens()) return {};
    return errorf(ErrorCode::kInvalidArgument, "truncate_to: expected at most {} tokens, got {}",
                  max_tokens(), to);
  }
  size_t limit_of(int truncate_to) const {
    return static_cast<size_t>(truncate_to > 0 ? truncate_to : max_tokens());
  }
  int max_tokens() const {
    return modules_.max_tokens > 0 ? std::min(modules_.max_tokens, embedder_->max_tokens())
                                   : embedder_->max_tokens();
  }
  int dimensions(size_t n_poolings) const {
    return modules_.dense.empty() ? static_cast<int>(n_poolings) * embedder_->dim()
                                  : modules_.dense.back().rows;
  }

  Status check(const EmbedOptions& options, size_t n_poolings) const {
    RETURN_IF_ERROR(check_truncation(options.truncate_to));
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
    return errorf(ErrorCode::kInvalidArgument,
                  "prompt_name: expected one of the checkpoint's ({}), got '{}'",
                  known.empty() ? "it has none" : known, *options.prompt_name);
  }

  Result<std::vector<TokenId>> tokens_of(const Prompt& input, size_t index,
                                         const EmbedOptions& options) const {
    const size_t limit = limit_of(options.truncate_to);
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&input)) {
      std::vector<TokenId> tokens = *ids;
      if (options.truncate_to > 0 && tokens.size() > limit) tokens.resize(limit);
      return tokens;
    }
    if (tokenizer_ == nullptr) {
      return errorf(ErrorCode::kInvalidArgument,
                    "input {}: the checkpoint has no tokenizer: expected token ids", index);
    }
    const std::string name = options.prompt_name.value_or(modules_.default_prompt);
    const std::string prompt = name.empty() ? "" : modules_.prompts.at(name);
    if (!prompt.empty() && !modules_.with_prompt)
      return make_error(ErrorCode::kUnsupported,
                        "include_prompt: poolings without the prompt are not known");
    const auto& text = std::get<std::string>(input);
    const bool cuts = options.truncate || options.truncate_to > 0;
    if (const size_t least = cuts ? 0 : tokenizer_->count_at_least(text, limit); least > limit) {
      return errorf(ErrorCode::kContextOverflow,
                    "input {}: expected at most {} tokens, got at least {} (truncate cuts it)",
                    index, limit, least);
    }
    std::vector<TokenId> tokens = tokenizer_->encode(prompt + text, {.parse_special = true});
    if (tokens.size() <= limit) return tokens;
    if (!options.truncate && options.truncate_to == 0) {
      return errorf(ErrorCode::kContextOverflow,
                    "input {}: expected at most {} tokens, got {} (truncate cuts it)", index, limit,
                    tokens.size());
    }
    // Keep a special token (such as [SEP]) at the end.
    const TokenId last = tokens.back();
    tokens.resize(limit);
    if (tokenizer_->is_special(last)) tokens.back() = last;
    return tokens;
  }

  void finish(std::vector<float>& vector, const EmbedOptions& options) const {
    for (const DenseModule& dense : modules_.dense) vector = dense.apply(vector);
    if (options.dimensions > 0) vector.resize(static_cast<size_t>(options.dimensions));
    if (!options.normalize.value_or(modules_.normalize)) return;
    double sum = 0;
    for (const float value : vector) sum += double{value} * value;
    const double length = std::max(std::sqrt(sum), 1e-12);
    for (float& value : vector) value = static_cast<float>(value / length);
  }

  static void activate(std::vector<float>& logits, ClassHead::Activation activation) {
    if (activation == ClassHead::Activation::kSigmoid) {
      for (float& x : logits) x = static_cast<float>(1 / (1 + std::exp(-double{x})));
    }
    if (activation != ClassHead::Activation::kSoftmax) return;
    const float most = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float x : logits) sum += std::exp(double{x} - most);
    for (float& x : logits) x = static_cast<float>(std::exp(double{x} - most) / sum);
  }

  std::unique_ptr<Tokenizer> tokenizer_;  // null: the checkpoint has no tokenizer
  std::unique_ptr<Embedder> embedder_;
  SentenceModules modules_;
  Result<std::optional<ClassHead>> head_;  // an error is returned by classify() only
};

}  // namespace

const Tokenizer* tokenizer_of(const EmbeddingModel& model) {
  return static_cast<const EmbeddingModelImpl&>(model).tokenizer();
}

Status status_of(const EmbeddingModel& model) {
  return static_cast<const EmbeddingModelImpl&>(model).status();
}

void set_ranks(const EmbeddingModel& model, Metrics& metrics) {
  static_cast<const EmbeddingModelImpl&>(model).set_ranks(metrics);
}

Result<bool> is_made_for_pooling(const std::string& model) {
  ASSIGN_OR_RETURN(const auto source, open_weights(model));
  ASSIGN_OR_RETURN(const bool text, gives_text(*source));
  if (!text || std::filesystem::exists(std::filesystem::path(model) / "modules.json")) return true;
  const nlohmann::json& config = source->config();
  if (source->naming() == Naming::kGguf) {
    const auto pooling =
        config.find(config.value("general.architecture", std::string()) + ".pooling_type");
    return pooling != config.end() && pooling->is_number_integer() && *pooling > 0;
  }
  const auto classes = config.find("architectures");
  return classes != config.end() && classes->is_array() &&
         std::ranges::any_of(*classes, [](const auto& name) {
           if (!name.is_string()) return false;
           const auto& text = name.template get_ref<const std::string&>();
           return text.ends_with("ForSequenceClassification") ||
                  text.ends_with("ForTokenClassification");
         });
}

Result<std::unique_ptr<EmbeddingModel>> EmbeddingModel::open(const EngineConfig& config) {
  ASSIGN_OR_RETURN(auto source, open_weights(config.model));
  auto tokenizer = Tokenizer::load(*source);
  const bool gguf = source->naming() == Naming::kGguf;
  const bool none = !tokenizer && (tokenizer.error().code == ErrorCode::kNotFound ||
                                   (gguf && !source->config().contains("tokenizer.ggml.tokens")));
  if (!tokenizer && !none) return tl::unexpected(tokenizer.error());
  ASSIGN_OR_RETURN(auto embedder, Embedder::open(std::move(source), config));
  ASSIGN_OR_RETURN(SentenceModules modules,
                   read_sentence_modules(embedder->source(), embedder->dim()));
  auto head = read_class_head(embedder->source(), embedder->dim(), embedder->causal(),
                              none ? nullptr : tokenizer->get());
  return std::make_unique<EmbeddingModelImpl>(none ? nullptr : std::move(*tokenizer),
                                              std::move(embedder), std::move(modules),
                                              std::move(head));
}

}  // namespace penstock
