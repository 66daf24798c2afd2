#include "cli/bench/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "cli/console/terminal.h"
#include "model/batch_builder.h"
#include "model/model.h"

namespace penstock {
namespace {

constexpr int kTokensPerChunk = 5;

// Runs steps of one sequence with its own KV cache.
class Steps {
 public:
  Steps(Model& model, Ops& ops, KvCache& cache, int most_tokens)
      : model_(model),
        ops_(ops),
        cache_(cache),
        kv_(static_cast<size_t>(std::max(1, cache.spec().n_groups())),
            consecutive_blocks(0, most_tokens, cache.spec().block_size)),
        builder_(cache.spec()) {
    if (const int states = cache.spec().state_group(); states >= 0)
      kv_[static_cast<size_t>(states)].blocks.resize(1);
  }

  // Runs a step of `rows` tokens behind `depth` cached ones and returns its seconds.
  double run(int depth, int rows, BatchPart::Rows outputs = BatchPart::Rows::kAll) {
    tokens_.clear();
    for (int i = 0; i < rows; ++i)
      tokens_.push_back((depth + i) * 131 % model_.config().vocab_size);
    builder_.clear();
    builder_.add({.tokens = tokens_, .first = depth, .kv = kv_, .rows = outputs});
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
  std::vector<GroupBlocks> kv_;  // of each cache group
  BatchBuilder builder_;
  std::vector<TokenId> tokens_;
};

// Number of blocks of each cache group for one sequence.
std::vector<int> blocks_of_a_sequence(const CacheSpec& spec, int n_tokens) {
  std::vector<int> counts(static_cast<size_t>(std::max(1, spec.n_groups())),
                          (n_tokens + spec.block_size - 1) / spec.block_size);
  if (spec.has_states()) counts[static_cast<size_t>(spec.state_group())] = 1;
  return counts;
}

// Makes up what the cache holds. Memory that nobody wrote is one page of zeros for all, which a step
// would not read from memory. 0x3c in each byte is a number near 1, or near 0.01, in every type.
void fill(KvCache& cache) {
  const CacheSpec& spec = cache.spec();
  for (int group = 0; group < spec.n_token_groups(); ++group) {
    const std::vector<std::byte> bytes(static_cast<size_t>(cache.block_bytes(group)),
                                       std::byte{0x3c});
    for (int block = 0; block < cache.n_blocks(group); ++block)
      cache.write_block(group, BlockId(static_cast<uint32_t>(block)), bytes);
  }
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

Result<std::vector<double>> measure_step_times(const WeightSource& source,
                                               const StepTimesConfig& config) {
  ASSIGN_OR_RETURN(const auto ops, make_ops("auto", config.ops));
  ASSIGN_OR_RETURN(const auto model, Model::load(source, *ops));
  const CacheSpec spec = model->cache_spec(KvDType::kF16, 16);
  const int max_rows = std::clamp(config.max_rows, 1, std::max(1, model->config().max_seq_len - 1));
  const int context = std::clamp(config.context, 1, model->config().max_seq_len - max_rows);
  ASSIGN_OR_RETURN(const auto cache,
                   ops->make_cache(spec, blocks_of_a_sequence(spec, context + max_rows)));
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

Result<DepthMeasurement> measure_depth_times(const WeightSource& source,
                                             const DepthTimesConfig& config) {
  ASSIGN_OR_RETURN(const auto ops, make_ops("auto", config.ops));
  ASSIGN_OR_RETURN(const auto model, Model::load(source, *ops));
  const CacheSpec spec = model->cache_spec(config.cache, config.block_size);
  const int most_tokens = config.depths.back() + config.chunk;
  ASSIGN_OR_RETURN(const auto cache,
                   ops->make_cache(spec, blocks_of_a_sequence(spec, most_tokens)));
  fill(*cache);
  Steps steps(*model, *ops, *cache, most_tokens);
  steps.run(0, config.chunk, BatchPart::Rows::kLast);
  for (int i = 0; i < kPackingSteps; ++i) steps.run(0, 1);
  const size_t n = config.depths.size();
  std::vector<std::vector<double>> chunks(n), tokens(n);
  ProgressBar progress("measuring");
  double seconds = 0;
  // In turn, so that other load is shared by all.
  for (int i = 0; i < config.repetitions && seconds < config.enough_seconds; ++i) {
    for (size_t d = 0; d < n; ++d) {
      progress.update(static_cast<int64_t>(i * n + d), static_cast<int64_t>(config.repetitions * n),
                      fmt::format("behind {} tokens", config.depths[d]));
      chunks[d].push_back(steps.run(config.depths[d], config.chunk, BatchPart::Rows::kLast));
      seconds += chunks[d].back();
      for (int j = 0; j < kTokensPerChunk; ++j) tokens[d].push_back(steps.run(config.depths[d], 1));
    }
  }
  DepthMeasurement result{.active_weight_bytes = model->active_weight_bytes(),
                          .limits = ops->limits(0)};
  for (size_t d = 0; d < n; ++d)
    result.times.push_back({config.depths[d], median(chunks[d]), median(tokens[d])});
  return result;
}

}  // namespace penstock
