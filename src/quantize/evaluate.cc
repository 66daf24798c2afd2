#include "quantize/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "formats/weight_source.h"
#include "model/batch_builder.h"
#include "model/model.h"
#include "ops/cpu/host_tensor.h"
#include "quantize/methods/layer_runner.h"

namespace penstock {

namespace fs = std::filesystem;

double Agreement::perplexity() const { return std::exp(nll); }
double Agreement::perplexity_error() const { return perplexity() * nll_error; }

namespace {

constexpr int kScoreBlock = 16, kTop = 5;

// A whole model that computes the logits of every token of one sequence.
class Scorer {
 public:
  static Result<std::unique_ptr<Scorer>> open(const fs::path& path, int threads, int longest) {
    auto scorer = std::make_unique<Scorer>();
    ASSIGN_OR_RETURN(scorer->source_, open_weights(path));
    ASSIGN_OR_RETURN(scorer->ops_, make_ops("cpu", {threads, false}));
    ASSIGN_OR_RETURN(scorer->model_, Model::load(*scorer->source_, *scorer->ops_));
    const CacheSpec spec = scorer->model_->cache_spec(KvDType::kF16, kScoreBlock);
    const std::vector<int> blocks(static_cast<size_t>(std::max(1, spec.n_groups())),
                                  (longest + kScoreBlock - 1) / kScoreBlock);
    ASSIGN_OR_RETURN(scorer->cache_, scorer->ops_->make_cache(spec, blocks));
    return scorer;
  }

  int vocab_size() const { return model_->config().vocab_size; }

  // Returns the logits, valid until the next call.
  Tensor logits(const std::vector<TokenId>& tokens) {
    const GroupBlocks kv = consecutive_blocks(0, static_cast<int>(tokens.size()), kScoreBlock);
    BatchBuilder builder(cache_->spec());
    builder.add({.tokens = tokens,
                 .kv = {&kv, 1},
                 .rows = BatchPart::Rows::kAll,
                 .long_rope = model_->takes_long_rope(static_cast<int64_t>(tokens.size()))});
    const Batch& batch = builder.build();
    return model_->forward(batch, *cache_, *ops_).logits;
  }

 private:
  std::unique_ptr<WeightSource> source_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
};

double log_sum(const float* row, int n) {
  const float most = *std::max_element(row, row + n);
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += std::exp(static_cast<double>(row[i] - most));
  return most + std::log(sum);
}

std::array<int, kTop> best_tokens(const float* row, int n) {
  std::array<int, kTop> best;
  best.fill(-1);
  for (int i = 0; i < n; ++i) {
    int place = kTop;
    while (place > 0 && (best[static_cast<size_t>(place - 1)] < 0 ||
                         row[i] > row[best[static_cast<size_t>(place - 1)]]))
      --place;
    if (place == kTop) continue;
    for (int k = kTop - 1; k > place; --k)
      best[static_cast<size_t>(k)] = best[static_cast<size_t>(k - 1)];
    best[static_cast<size_t>(place)] = i;
  }
  return best;
}

struct Sums {
  double sum = 0, squares = 0;
  void add(double value) { sum += value, squares += value * value; }
  double mean(double n) const { return sum / n; }
  double error(double n) const {
    return n > 1 ? std::sqrt(std::max(0.0, squares / n - mean(n) * mean(n)) / (n - 1)) : 0;
  }
};

class Comparison {
 public:
  // Adds one position: logits of both models, and the token that follows.
  void add(const float* original, const float* variant, int vocab, TokenId next) {
    const double a = log_sum(original, vocab), b = log_sum(variant, vocab);
    const double nll_original = a - original[next], nll_variant = b - variant[next];
    nll_.add(nll_variant);
    difference_.add(nll_variant - nll_original);
    double divergence = 0;
    for (int i = 0; i < vocab; ++i) {
      const double log_p = original[i] - a;
      divergence += std::exp(log_p) * (log_p - (variant[i] - b));
    }
    kl_.add(std::max(0.0, divergence));
    const auto p = best_tokens(original, vocab), q = best_tokens(variant, vocab);
    n_top1_ += p[0] == q[0] ? 1 : 0;
    int common = 0, known = 0;
    for (const int token : p) {
      if (token < 0) continue;
      ++known;
      common += std::ranges::find(q, token) != q.end() ? 1 : 0;
    }
    top5_ += static_cast<double>(common) / std::max(known, 1);
    ++n_;
  }

  Agreement result() const {
    const double n = std::max<double>(1, static_cast<double>(n_));
    return {n_,          nll_.mean(n), nll_.error(n), difference_.error(n),
            kl_.mean(n), kl_.error(n), n_top1_ / n,   top5_ / n};
  }

 private:
  Sums nll_, difference_, kl_;
  double n_top1_ = 0, top5_ = 0;
  int64_t n_ = 0;
};

// Factors between the inputs and outputs of the variant's layers and the original's: AWQ and
// SmoothQuant fold scales into norms, v and up.
struct FoldedScales {
  // per input channel of the site's matrices; empty: all 1
  std::map<Site, std::vector<float>> input;
  std::map<Part, std::vector<float>> output;  // per output of v and up
};

struct Opened {
  std::unique_ptr<WeightSource> source;
  std::unique_ptr<LayerRunner> runner;
  TensorMap map;
  TensorReader reader;

  static Result<Opened> open(const fs::path& path, int threads,
                             const std::vector<std::vector<TokenId>>& sequences,
                             std::optional<Naming> there = {}) {
    Opened opened;
    ASSIGN_OR_RETURN(opened.source, open_weights(path));
    ASSIGN_OR_RETURN(opened.runner, LayerRunner::open(*opened.source, {threads, false}, sequences));
    ASSIGN_OR_RETURN(opened.map, map_tensors(*opened.source, opened.runner->config(),
                                             there.value_or(opened.source->naming())));
    ASSIGN_OR_RETURN(opened.reader, TensorReader::open(*opened.source));
    return opened;
  }
  Result<std::vector<float>> read(int layer, Part part) const {
    for (const MappedTensor& t : map.layers[static_cast<size_t>(layer)]) {
      if (t.part == part && !t.is_bias && t.expert < 0) return reader.read(t);
    }
    return std::vector<float>();
  }
};

// Clears factors near 1: quantization alone changes norms of rows by a few percent, while folded
// scales differ by far more.
void drop_if_plain(std::vector<float>& factors) {
  const bool folded =
      std::ranges::any_of(factors, [](float f) { return !(std::fabs(std::log(f)) < 0.2f); });
  if (!folded) factors.clear();
  for (float& f : factors) {
    if (!(f > 0) || !std::isfinite(f)) f = 1.0f;
  }
}

Result<FoldedScales> folded_scales(const Opened& a, const Opened& b, int layer) {
  FoldedScales scales;
  for (const auto& [site, part] : {std::pair(Site::kAttention, Part::kAttentionNorm),
                                   std::pair(Site::kFeedForward, Part::kFeedForwardNorm)}) {
    ASSIGN_OR_RETURN(const std::vector<float> norm_a, a.read(layer, part));
    ASSIGN_OR_RETURN(std::vector<float> norm_b, b.read(layer, part));
    if (norm_a.size() != norm_b.size() || norm_a.empty()) continue;
    for (size_t j = 0; j < norm_a.size(); ++j) {
      norm_b[j] = (norm_b[j] + b.runner->config().norm.offset) /
                  (norm_a[j] + a.runner->config().norm.offset);
    }
    for (float& f : norm_b) {
      if (!std::isfinite(f) || f == 0) f = 1.0f;
    }
    scales.input[site] = std::move(norm_b);
  }
  const ModelConfig& config = a.runner->config();
  for (const auto& [from, part, to] : {std::tuple(Site::kAttention, Part::kV, Site::kAttentionOut),
                                       std::tuple(Site::kFeedForward, Part::kUp, Site::kDown)}) {
    ASSIGN_OR_RETURN(const std::vector<float> w_a, a.read(layer, part));
    ASSIGN_OR_RETURN(const std::vector<float> w_b, b.read(layer, part));
    const auto cols = static_cast<size_t>(config.model_dim);
    if (w_a.size() != w_b.size() || w_a.empty()) continue;
    const std::vector<float>& in = scales.input[from];
    std::vector<float> factors;
    for (size_t first = 0; first < w_a.size(); first += cols) {
      double sum_a = 0, sum_b = 0;
      for (size_t j = 0; j < cols; ++j) {
        const double x = w_a[first + j], y = w_b[first + j] * (in.empty() ? 1.0f : in[j]);
        sum_a += x * x;
        sum_b += y * y;
      }
      factors.push_back(static_cast<float>(std::sqrt(sum_b / sum_a)));
    }
    drop_if_plain(factors);
    if (factors.empty()) continue;
    scales.output[part] = factors;
    if (part == Part::kV) {
      const auto dim = static_cast<size_t>(config.value_dim_of(layer));
      const auto repeat =
          static_cast<size_t>(config.n_heads_of(layer) / config.n_kv_heads_of(layer));
      std::vector<float> repeated(static_cast<size_t>(config.attended_dim_of(layer)));
      for (size_t i = 0; i < repeated.size(); ++i)
        repeated[i] = factors[i / (dim * repeat) * dim + i % dim];
      factors = std::move(repeated);
    }
    scales.input[to] = std::move(factors);
  }
  return scales;
}

struct MatrixPair {
  const Weight* other = nullptr;
  std::string name;
  const std::vector<float>* input = nullptr;  // null: all 1
  const std::vector<float>* output = nullptr;
  std::vector<float> order;  // the original's output at each of the variant's; empty: same order
  std::vector<float> bias;   // of the original, included in its outputs; empty: none
  double difference = 0, norm = 0;

  // Adds the error of the variant's matrix on the original's input x; out: the original's output.
  void add(Ops& ops, Tensor x, Tensor out) {
    ops.begin_step(nullptr);
    if (input != nullptr && !input->empty()) {
      const Tensor scaled = ops.new_tensor(x.rows, x.cols);
      for (int t = 0; t < x.rows; ++t) {
        for (int c = 0; c < x.cols; ++c)
          f32(scaled, t)[c] = f32(x, t)[c] * (*input)[static_cast<size_t>(c)];
      }
      x = scaled;
    }
    const Tensor result = ops.new_tensor(out.rows, out.cols);
    const LinearTarget target{other, nullptr, result};
    ops.linear(x, {&target, 1});
    for (int t = 0; t < out.rows; ++t) {
      for (int c = 0; c < out.cols; ++c) {
        const auto column = order.empty() ? static_cast<size_t>(c)
                                          : static_cast<size_t>(order[static_cast<size_t>(c)]);
        const double factor = output != nullptr ? (*output)[static_cast<size_t>(c)] : 1.0f;
        const double wanted = f32(out, t)[column] - (bias.empty() ? 0.0f : bias[column]);
        const double d = f32(result, t)[c] / factor - wanted;
        difference += d * d;
        norm += wanted * wanted;
      }
    }
  }
};

// Measures every matrix of the variant on the original's activations, layer by layer. The
// original's outputs include biases, which are equal in both and are subtracted.
Status layer_errors_of(Opened& a, Opened& b, int layer, std::vector<LayerError>& errors) {
  RETURN_IF_ERROR(a.runner->load(layer));
  RETURN_IF_ERROR(b.runner->load(layer));
  ASSIGN_OR_RETURN(const FoldedScales scales, folded_scales(a, b, layer));
  const LayerWeights& weights = a.runner->weights();
  std::unordered_map<const Weight*, MatrixPair> pairs;
  for (const MappedTensor& t : a.map.layers[static_cast<size_t>(layer)]) {
    const auto& others = b.map.layers[static_cast<size_t>(layer)];
    const auto same = std::ranges::find_if(others, [&](const MappedTensor& u) {
      return u.is_linear && u.part == t.part && u.expert == t.expert;
    });
    if (!t.is_linear || same == others.end()) continue;
    const auto weights_a = a.runner->weights_of(t), weights_b = b.runner->weights_of(*same);
    const auto input = scales.input.find(t.site);
    const auto output = scales.output.find(t.part);
    std::vector<float> order;
    if (!t.rows_from.empty()) {
      for (int r = 0; r < t.rows; ++r) order.push_back(static_cast<float>(r));
      to_output_rows(t, 1, order);
    }
    for (size_t k = 0; k < weights_a.size(); ++k) {
      MatrixPair& pair = pairs[weights_a[k]->get()];
      pair.other = weights_b[k]->get();
      pair.order = order;
      for (const LinearWeights* linear :
           {&weights.attention.q, &weights.attention.k, &weights.attention.v, &weights.attention.o,
            &weights.dense.up, &weights.dense.down}) {
        if (&linear->weight == weights_a[k] && linear->bias != nullptr)
          std::ranges::copy(values_of(*linear->bias), std::back_inserter(pair.bias));
      }
      pair.name = t.expert < 0 ? t.in : fmt::format("{} [{}]", t.in, t.expert);
      if (input != scales.input.end() && t.expert < 0) pair.input = &input->second;
      if (input != scales.input.end() && t.site == Site::kFeedForward) pair.input = &input->second;
      if (output != scales.output.end()) pair.output = &output->second;
    }
  }
  a.runner->ops().listen([&](const Weight& weight, Tensor x, Tensor out) {
    if (const auto found = pairs.find(&weight); found != pairs.end())
      found->second.add(b.runner->ops(), x, out);
  });
  RETURN_IF_ERROR(a.runner->run(true));
  a.runner->ops().listen({});
  for (const auto& [weight, pair] : pairs)
    errors.push_back({pair.name, pair.norm > 0 ? std::sqrt(pair.difference / pair.norm) : 0});
  return {};
}

Result<std::vector<LayerError>> layer_errors(const fs::path& original, const fs::path& variant,
                                             const std::vector<std::vector<TokenId>>& sequences,
                                             const EvaluateOptions& options) {
  ASSIGN_OR_RETURN(Opened b, Opened::open(variant, options.threads, {}));
  ASSIGN_OR_RETURN(Opened a,
                   Opened::open(original, options.threads, sequences, b.source->naming()));
  std::vector<LayerError> errors;
  for (int i = 0; i < a.runner->config().n_layers; ++i) {
    if (options.should_stop && options.should_stop())
      return make_error(ErrorCode::kCancelled, "interrupted");
    RETURN_IF_ERROR(layer_errors_of(a, b, i, errors));
  }
  std::ranges::sort(errors, [](const LayerError& x, const LayerError& y) {
    return x.relative != y.relative ? x.relative > y.relative : x.tensor < y.tensor;
  });
  return errors;
}

Result<Agreement> compare(Scorer& original, const fs::path& path,
                          const std::vector<std::vector<TokenId>>& sequences, int longest,
                          const EvaluateOptions& options, const std::function<void()>& step) {
  ASSIGN_OR_RETURN(const auto variant, Scorer::open(path, options.threads, longest));
  if (variant->vocab_size() != original.vocab_size()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: expected the original's vocabulary of {} tokens, got {}", path.string(),
                  original.vocab_size(), variant->vocab_size());
  }
  Comparison comparison;
  for (const std::vector<TokenId>& sequence : sequences) {
    if (options.should_stop && options.should_stop())
      return make_error(ErrorCode::kCancelled, "interrupted");
    const Tensor a = original.logits(sequence), b = variant->logits(sequence);
    for (size_t t = 0; t + 1 < sequence.size(); ++t)
      comparison.add(f32(a, static_cast<int>(t)), f32(b, static_cast<int>(t)), a.cols,
                     sequence[t + 1]);
    step();
  }
  return comparison.result();
}

}  // namespace

Result<Evaluation> evaluate(const fs::path& original, const std::vector<fs::path>& variants,
                            const std::vector<std::vector<TokenId>>& sequences,
                            const EvaluateOptions& options) {
  size_t longest = 1;
  for (const auto& sequence : sequences) longest = std::max(longest, sequence.size());
  ASSIGN_OR_RETURN(const auto scorer,
                   Scorer::open(original, options.threads, static_cast<int>(longest)));
  for (const auto& sequence : sequences) {
    for (const TokenId id : sequence) {
      if (id < 0 || id >= scorer->vocab_size())
        return errorf(ErrorCode::kInvalidArgument, "{}: token {} is not in its vocabulary",
                      original.string(), id);
    }
  }
  Evaluation result;
  int64_t done = 0;
  const auto total = static_cast<int64_t>(sequences.size() * (variants.size() + 1));
  const auto step = [&] {
    if (options.progress) options.progress(++done, total);
  };
  Comparison self;
  for (const auto& sequence : sequences) {
    const Tensor a = scorer->logits(sequence);
    for (size_t t = 0; t + 1 < sequence.size(); ++t)
      self.add(f32(a, static_cast<int>(t)), f32(a, static_cast<int>(t)), a.cols, sequence[t + 1]);
    step();
  }
  result.reference = self.result();
  for (const fs::path& variant : variants) {
    ASSIGN_OR_RETURN(Agreement agreement, compare(*scorer, variant, sequences,
                                                  static_cast<int>(longest), options, step));
    result.variants.push_back(agreement);
    std::vector<LayerError> errors;
    if (options.layers) {
      // A few sequences suffice to find the worst layers.
      const std::vector<std::vector<TokenId>> some(
          sequences.begin(),
          sequences.begin() + static_cast<ptrdiff_t>(std::min<size_t>(sequences.size(), 8)));
      ASSIGN_OR_RETURN(errors, layer_errors(original, variant, some, options));
    }
    result.layer_errors.push_back(std::move(errors));
  }
  return result;
}

}  // namespace penstock
