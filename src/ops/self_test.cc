#include "ops/self_test.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <vector>

#include "kernels/philox.h"

namespace penstock {
namespace {

constexpr int kDim = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kWidth = 128, kVocab = 64,
              kExperts = 4;
constexpr int kKvDim = kKvHeads * kHeadDim, kBlocks = 8, kBlockSize = 16;
// Far above what other orders of sums and 16 bits of a mantissa do, far below what a wrong index
// does.
constexpr double kMostError = 2e-3;

// Results by name, rows of real tokens only.
struct TrialStage {
  const char* what;
  std::vector<float> values;
};

std::vector<float> random_values(size_t n, uint64_t seed, float scale) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = scale * (2 * static_cast<float>(uniform_draw(seed, i, 0, Draw::kToken)) - 1);
  return values;
}

// Returns the batch of a step: each sequence has this many new tokens after `before` old ones.
class TrialBatch {
 public:
  TrialBatch(std::array<int, 2> before, std::array<int, 2> n_new) {
    for (int s = 0; s < 2; ++s) {
      const auto i = static_cast<size_t>(s);
      for (int t = before[i]; t < before[i] + n_new[i]; ++t) {
        tokens_.push_back((t * 13 + s * 5 + 3) % kVocab);
        positions_.push_back(t);
        slots_.push_back((kFirstBlock[i] + t / kBlockSize) * kBlockSize + t % kBlockSize);
      }
      offsets_.push_back(static_cast<int32_t>(tokens_.size()));
      lens_.push_back(before[i] + n_new[i]);
      outputs_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
      for (int b = 0; b < kBlocks / 2; ++b)
        tables_.push_back(static_cast<BlockId>(kFirstBlock[i] + b));
      table_offsets_.push_back(static_cast<int32_t>(tables_.size()));
    }
    view_ = {slots_, tables_, table_offsets_, {}};
    batch_.tokens = tokens_, batch_.positions = positions_, batch_.seq_offsets = offsets_;
    batch_.seq_lens = lens_, batch_.kv = {&view_, 1}, batch_.output_rows = outputs_;
  }
  TrialBatch(const TrialBatch&) = delete;
  TrialBatch& operator=(const TrialBatch&) = delete;
  const Batch& get() const { return batch_; }

 private:
  static constexpr int kFirstBlock[] = {4, 0};
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, slots_, offsets_ = {0}, lens_, outputs_, table_offsets_ = {0};
  std::vector<BlockId> tables_;
  KvView view_;
  Batch batch_;
};

class Trial {
 public:
  // plain: all matrices in F32, with the values that they have in their own types.
  Trial(Ops& ops, bool plain) : ops_(ops), plain_(plain) {}

  Result<std::vector<TrialStage>> run() {
    RETURN_IF_ERROR(load());
    const TrialBatch prompts({0, 0}, {5, 20});
    step(prompts.get());
    for (int i = 0; i < 3; ++i) {  // computed, recorded, played
      const TrialBatch next({5 + i, 20 + i}, {1, 1});
      step(next.get());
    }
    RETURN_IF_ERROR(ops_.status());
    return std::move(stages_);
  }
  // Tokens that the backend drew greedily from the rows of logits; empty if it does not sample.
  const std::vector<TokenId>& drawn() const { return drawn_; }

 private:
  using Weights = std::vector<std::unique_ptr<Weight>>;
  struct Named {
    const char* what;
    Tensor tensor;
  };

  Status add(Weights& to, QuantType type, int rows, int cols) {
    const size_t n = static_cast<size_t>(rows) * static_cast<size_t>(cols);
    std::vector<float> values = random_values(n, ++seed_, 0.25f);
    std::vector<std::byte>& bytes = bytes_.emplace_back(quant_bytes(type, static_cast<int64_t>(n)));
    quantize_row(type, values.data(), bytes.data(), static_cast<int64_t>(n));
    if (plain_) {
      dequantize_row(type, bytes.data(), values.data(), static_cast<int64_t>(n));
      const auto plain = std::as_bytes(std::span(values));
      bytes.assign(plain.begin(), plain.end());
      type = QuantType::kF32;
    }
    ASSIGN_OR_RETURN(auto weight, ops_.pack({type, rows, cols, bytes}));
    to.push_back(std::move(weight));
    return {};
  }

  Status load() {
    using enum QuantType;
    RETURN_IF_ERROR(add(layer_, kQ8_0, kVocab, kDim));             // 0: tokens
    RETURN_IF_ERROR(add(layer_, kQ4_0, kHeads * kHeadDim, kDim));  // 1: q
    RETURN_IF_ERROR(add(layer_, kBF16, kKvDim, kDim));             // 2: k
    RETURN_IF_ERROR(add(layer_, kF16, kKvDim, kDim));              // 3: v
    RETURN_IF_ERROR(add(layer_, kF32, kDim, kHeads * kHeadDim));   // 4: o
    RETURN_IF_ERROR(add(layer_, kF32, kExperts, kDim));            // 5: router
    RETURN_IF_ERROR(add(layer_, kQ5_1, kVocab, kDim));             // 6: logits
    for (int e = 0; e < kExperts; ++e) RETURN_IF_ERROR(add(gates_, kQ8_0, kWidth, kDim));
    for (int e = 0; e < kExperts; ++e) RETURN_IF_ERROR(add(ups_, kQ8_0, kWidth, kDim));
    for (int e = 0; e < kExperts; ++e) RETURN_IF_ERROR(add(downs_, kQ4_1, kDim, kWidth));
    ASSIGN_OR_RETURN(norm_, ops_.pack_vector(random_values(kDim, 90, 1.0f)));
    ASSIGN_OR_RETURN(bias_, ops_.pack_vector(random_values(kHeads * kHeadDim, 91, 0.5f)));
    std::vector<float> frequencies;
    for (int i = 0; i < kHeadDim / 2; ++i)
      frequencies.push_back(std::pow(100.0f, -static_cast<float>(i) / 8));
    ASSIGN_OR_RETURN(frequencies_, ops_.pack_vector(frequencies));
    CacheSpec spec;
    spec.layers.assign(1, {kKvHeads, kHeadDim, 0, 0});
    const int n_blocks[] = {kBlocks};
    ASSIGN_OR_RETURN(cache_, ops_.make_cache(spec, n_blocks));
    return {};
  }

  void product(Tensor x, size_t weight, const Vector* bias, Tensor out) {
    const LinearTarget target{layer_[weight].get(), bias, out};
    ops_.linear(x, {&target, 1});
  }

  StepOutputs layer(StepShape shape) {
    const auto tensor = [&](int cols) { return ops_.new_tensor(shape.tokens, cols); };
    const Tensor x = tensor(kDim), h = tensor(kDim), q = tensor(kHeads * kHeadDim),
                 k = tensor(kKvDim), v = tensor(kKvDim), attended = tensor(kHeads * kHeadDim),
                 delta = tensor(kDim), h2 = tensor(kDim), routed = tensor(kExperts),
                 mixed = tensor(kDim);
    NormParams norm;
    norm.weight = norm_.get();
    ops_.embed_tokens(*layer_[0], 2.0f, x);
    ops_.norm(x, norm, h);
    product(h, 1, bias_.get(), q), product(h, 2, nullptr, k), product(h, 3, nullptr, v);
    const RopeParams rope{frequencies_.get(), 1.0f, false};
    AttentionParams attention;
    attention.n_heads = kHeads, attention.scale = 0.25f;
    ops_.store_and_attend(q, k, v, &rope, *cache_, attention, attended);
    product(attended, 4, nullptr, delta);
    ops_.add_norm(x, delta, 1.0f, norm, h2);
    product(h2, 5, nullptr, routed);
    MoeParams experts;
    experts.gate = gates_, experts.up = ups_, experts.down = downs_;
    ops_.moe(h2, routed, experts, mixed);
    ops_.add(x, mixed, 1.0f);
    const Tensor last = ops_.new_tensor(shape.outputs, kDim),
                 out = ops_.new_tensor(shape.outputs, kDim);
    ops_.gather_outputs(x, last);
    ops_.norm(last, norm, out);
    const Tensor logits = ops_.new_tensor(shape.outputs, kVocab, TensorRole::kLogits);
    product(out, 6, nullptr, logits);
    named_ = {
        {"a norm", h}, {"attention", attended}, {"a sum's norm", h2}, {"what experts give", mixed}};
    return {.logits = logits, .hidden = out};
  }

  void step(const Batch& batch) {
    const auto n_outputs = static_cast<int>(batch.output_rows.size());
    std::vector<SampleRow> rows(static_cast<size_t>(n_outputs));
    std::vector<SampleResult> results(rows.size());
    for (int i = 0; i < n_outputs; ++i) rows[static_cast<size_t>(i)].row = i;
    Batch with_draws = batch;
    if (ops_.samples()) with_draws.draws = rows, with_draws.drawn = results;
    const StepShape shape = ops_.begin_step(&with_draws);
    const StepKey key{.model = this, .cache = cache_.get(), .shape = shape, .n_layers = 1};
    const Tensor logits = ops_.run(key, [&] { return layer(shape); }).logits;
    ops_.wait(ops_.submit());
    if (ops_.samples())
      for (const SampleResult& result : results)
        drawn_.push_back(result.drawn ? result.token : kNoToken);
    for (const Named& named : named_) read(named.what, named.tensor, batch.n_tokens());
    read(kLogits, logits, n_outputs);
  }

  void read(const char* what, Tensor x, int n) {
    stages_.push_back(
        {what, std::vector<float>(static_cast<size_t>(n) * static_cast<size_t>(x.cols))});
    ops_.read_rows(x.row_range(0, n), stages_.back().values);
  }

 public:
  static constexpr const char* kLogits = "logits";

 private:
  Ops& ops_;
  const bool plain_;
  uint64_t seed_ = 0;
  std::list<std::vector<std::byte>> bytes_;  // weights may refer to them
  Weights layer_, gates_, ups_, downs_;
  std::unique_ptr<Vector> norm_, bias_, frequencies_;
  std::unique_ptr<KvCache> cache_;
  std::vector<Named> named_;
  std::vector<TrialStage> stages_;
  std::vector<TokenId> drawn_;
};

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i)
    error += std::pow(double{got[i]} - want[i], 2), size += std::pow(want[i], 2);
  return std::sqrt(error / size);
}

std::vector<TokenId> likeliest(const std::vector<TrialStage>& stages) {
  std::vector<TokenId> tokens;
  for (const TrialStage& stage : stages) {
    if (stage.what != Trial::kLogits) continue;
    for (auto row = stage.values.begin(); row != stage.values.end(); row += kVocab)
      tokens.push_back(static_cast<TokenId>(std::max_element(row, row + kVocab) - row));
  }
  return tokens;
}

}  // namespace

Status self_test(Ops& ops, Ops& reference) {
  Trial own(ops, false), other(reference, true);
  ASSIGN_OR_RETURN(const std::vector<TrialStage> got, own.run());
  ASSIGN_OR_RETURN(const std::vector<TrialStage> want, other.run());
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = relative_error(got[i].values, want[i].values);
    if (error <= kMostError) continue;
    return errorf(ErrorCode::kInternal,
                  "{} computes {} with an error of {:.2g}, expected {} at most", ops.name(),
                  want[i].what, error, kMostError);
  }
  if (!own.drawn().empty() && own.drawn() != likeliest(want))
    return errorf(ErrorCode::kInternal, "{} draws other tokens than the likeliest", ops.name());
  return {};
}

BackendChoice choose_among(std::span<const std::string_view> names) {
  BackendChoice choice;
  for (const std::string_view name : names) {
    choice.name = name;
    if (name == names.back()) break;
    const auto ops = make_ops(name, {.n_threads = 1}),
               cpu = make_ops("cpu", {.n_threads = 1, .batch_invariant = true});
    const Status passed = !ops  ? Status(tl::unexpected(ops.error()))
                          : cpu ? self_test(**ops, **cpu)
                                : Status();
    if (passed) break;
    choice.why += (choice.why.empty() ? "" : "; ") + passed.error().message;
    choice.faulty |= ops.has_value();
  }
  return choice;
}

}  // namespace penstock
