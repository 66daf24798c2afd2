// A layer's recurrence over the tokens of one sequence (Ops::state_space, Ops::gated_delta) in
// shapes of models: in chunks, and token by token, as a batch-invariant run computes it. Items are
// tokens times value heads.
//
//   [PENSTOCK_BENCH_THREADS=2] scan_bench [--benchmark_filter=qwen] [--benchmark_repetitions=5]
#include <random>
#include <string>
#include <vector>

#include "machine.h"
#include "ops/cpu/cpu_ops.h"

namespace penstock {
namespace {

struct ScanShape {
  const char* name;
  enum { kStateSpace, kDelta, kDeltaByKey } rule;
  int n_key_heads, n_value_heads, key_dim, value_dim;

  int values() const { return n_value_heads * value_dim; }
  int channels() const { return 2 * n_key_heads * key_dim + values(); }
  int decays() const { return rule == kDeltaByKey ? n_value_heads * key_dim : n_value_heads; }
};

constexpr ScanShape kShapes[] = {
    {"granite-4-tiny", ScanShape::kStateSpace, 1, 48, 128, 64},
    {"qwen3.5-0.8b", ScanShape::kDelta, 16, 16, 128, 128},
    {"qwen3.5-4b", ScanShape::kDelta, 16, 32, 128, 128},
    {"kimi-linear", ScanShape::kDeltaByKey, 32, 32, 128, 128},
};

Tensor random_tensor(Ops& ops, int rows, int cols, unsigned seed) {
  std::minstd_rand generator(seed);
  std::normal_distribution<float> normal;
  const Tensor x = ops.new_tensor(rows, cols);
  for (int64_t i = 0; i < int64_t{rows} * cols; ++i)
    static_cast<float*>(x.data)[i] = normal(generator);
  return x;
}

void scan(benchmark::State& state, const ScanShape& shape, int n_tokens, bool in_chunks) {
  CpuOps cpu(table(), {.n_threads = pool().size(), .batch_invariant = !in_chunks});
  Ops& ops = cpu;
  CacheSpec spec;
  spec.layers.assign(1, KvLayerSpec{1, 16, 0, 0});
  spec.state_values = {
      DeltaParams::state_values(shape.n_value_heads, shape.key_dim, shape.value_dim)};
  const int n_blocks[] = {1, 1};
  const auto cache = ops.make_cache(spec, n_blocks).value();
  const std::vector<float> rates(static_cast<size_t>(shape.n_value_heads), -1.0f);
  const std::vector<float> zeros(static_cast<size_t>(shape.decays()), 0.0f);
  const auto rate = ops.pack_vector(rates).value(), bias = ops.pack_vector(zeros).value();
  const std::vector<TokenId> tokens(static_cast<size_t>(n_tokens), 0);
  std::vector<int32_t> positions(tokens.size());
  const int32_t offsets[] = {0, n_tokens}, lens[] = {n_tokens}, table_offsets[] = {0, 1};
  const BlockId blocks[] = {BlockId(0)};
  const KvView views[] = {{}, {{}, blocks, table_offsets, {}}};
  const Batch batch{tokens, positions, offsets, lens, views, {}, {}};
  ops.begin_step(&batch);
  const Tensor x = random_tensor(ops, n_tokens, shape.channels(), 1);
  const Tensor a = random_tensor(ops, n_tokens, shape.decays(), 2);
  const Tensor b = random_tensor(ops, n_tokens, shape.n_value_heads, 3);
  const Tensor kept_a = random_tensor(ops, n_tokens, shape.decays(), 2);
  const Tensor kept_b = random_tensor(ops, n_tokens, shape.n_value_heads, 3);
  const Tensor out = ops.new_tensor(n_tokens, shape.values());
  const bool by_key = shape.rule == ScanShape::kDeltaByKey;
  const DeltaParams delta{rate.get(),
                          bias.get(),
                          shape.n_key_heads,
                          shape.n_value_heads,
                          shape.key_dim,
                          shape.value_dim,
                          false,
                          by_key};
  StateSpaceParams space;
  space.rate = rate.get(), space.bias = bias.get(), space.skip = bias.get();
  space.n_groups = shape.n_key_heads, space.n_heads = shape.n_value_heads;
  space.state_dim = shape.key_dim, space.head_dim = shape.value_dim, space.max_step = 1e9f;
  for (auto _ : state) {
    ops.copy(kept_a, a), ops.copy(kept_b, b);  // both are overwritten
    if (shape.rule == ScanShape::kStateSpace) {
      ops.state_space(x, b, a, space, *cache, out);
    } else {
      ops.gated_delta(x, a, b, delta, *cache, out);
    }
  }
  state.SetItemsProcessed(state.iterations() * n_tokens * shape.n_value_heads);
}

void register_all() {
  for (const ScanShape& shape : kShapes) {
    for (const int n_tokens : {16, 64, 512}) {
      for (const bool in_chunks : {false, true}) {
        const std::string name = std::string(shape.name) + "/tokens:" + std::to_string(n_tokens) +
                                 (in_chunks ? "/chunks" : "/token by token");
        benchmark::RegisterBenchmark(name.c_str(), scan, shape, n_tokens, in_chunks)->UseRealTime();
      }
    }
  }
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run_benchmarks(argc, argv, penstock::register_all);
}
