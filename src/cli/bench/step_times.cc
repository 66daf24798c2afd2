#include "cli/bench/step_times.h"

#include <algorithm>
#include <chrono>

#include "model/batch_builder.h"
#include "model/model.h"

namespace penstock {
namespace {

// Runs steps of one sequence with its own KV cache.
class Steps {
 public:
  Steps(Model& model, Ops& ops, KvCache& cache, int most_tokens)
      : model_(model),
        ops_(ops),
        cache_(cache),
        kv_(consecutive_blocks(0, most_tokens, cache.spec().block_size)),
        builder_(cache.spec()) {}

  // Runs a step of `rows` tokens behind `depth` cached ones and returns its seconds.
  double run(int depth, int rows) {
    tokens_.clear();
    for (int i = 0; i < rows; ++i)
      tokens_.push_back((depth + i) * 131 % model_.config().vocab_size);
    builder_.clear();
    builder_.add(
        {.tokens = tokens_, .first = depth, .kv = {&kv_, 1}, .rows = BatchPart::Rows::kAll});
    const Batch& batch = builder_.build();
    const auto begin = std::chrono::steady_clock::now();
    model_.forward(batch, cache_, ops_);
    ops_.wait(ops_.submit());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  Model& model_;
  Ops& ops_;
  KvCache& cache_;
  const GroupBlocks kv_;
  BatchBuilder builder_;
  std::vector<TokenId> tokens_;
};

}  // namespace

Result<std::vector<double>> measure_step_times(const WeightSource& source,
                                               const StepTimesConfig& config) {
  ASSIGN_OR_RETURN(const auto ops, make_ops("auto", config.ops));
  ASSIGN_OR_RETURN(const auto model, Model::load(source, *ops));
  const CacheSpec spec = model->cache_spec(KvDType::kF16, 16);
  const int max_rows = std::clamp(config.max_rows, 1, std::max(1, model->config().max_seq_len - 1));
  const int context = std::clamp(config.context, 1, model->config().max_seq_len - max_rows);
  const int n_blocks = (context + max_rows + 15) / 16;
  const std::vector<int> counts(static_cast<size_t>(std::max(1, spec.n_groups())), n_blocks);
  ASSIGN_OR_RETURN(const auto cache, ops->make_cache(spec, counts));
  Steps steps(*model, *ops, *cache, context + max_rows);
  steps.run(0, context);
  std::vector<std::vector<double>> times(static_cast<size_t>(max_rows));
  for (int i = 0; i <= config.repetitions; ++i) {
    for (int rows = 1; rows <= max_rows; ++rows) {
      const double seconds = steps.run(context, rows);
      // the first repetition is a warm-up
      if (i > 0) times[static_cast<size_t>(rows) - 1].push_back(seconds);
    }
  }
  std::vector<double> result;
  for (std::vector<double>& each : times) {
    const size_t quarter = each.size() / 4;
    std::ranges::nth_element(each, each.begin() + static_cast<std::ptrdiff_t>(quarter));
    result.push_back(each[quarter]);
  }
  return result;
}

}  // namespace penstock
