// Attention over a paged cache, each beside a reference measured in the same loop: decoding against
// a pure read of as many bytes (GB/s), prefill against the peak of the matrix or
// multiply-accumulate units (GFLOP/s, counting what causal attention needs). Times are medians of
// alternating runs.
//
//   attention_bench --benchmark_filter=decode
//   PENSTOCK_ISA=avx512 PENSTOCK_BENCH_THREADS=1 PENSTOCK_BENCH_RUNS=20 attention_bench
//   PENSTOCK_BENCH_MB=1 attention_bench --benchmark_filter=decode    # out of the cache
//   PENSTOCK_BENCH_INVARIANT=1 attention_bench    # in batch-invariant mode
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/probe_kernels.h"
#include "machine.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/kv_cache.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  std::string name;
  KvDType dtype;
  int head_dim, n_heads, n_kv_heads, n_seqs, depth, n_new;
};

// Sequences of `depth` tokens in shuffled blocks, the last n_new of them new, in as many layers as
// are asked for.
class Setup {
 public:
  Setup(const Case& c, int n_layers) : case_(c), n_layers_(n_layers) {
    CacheSpec spec;
    spec.dtype = c.dtype;
    spec.layers.assign(n_layers, KvLayerSpec{c.n_kv_heads, c.head_dim, 0, 0});
    const int per_seq = (c.depth + spec.block_size - 1) / spec.block_size,
              n_blocks[] = {per_seq * c.n_seqs};
    cache_ = std::move(CpuKvCache::make(spec, n_blocks).value());
    for (int b = 0; b < n_blocks[0]; ++b) blocks_.push_back(BlockId(b));
    std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937(7));
    fill();
    for (int s = 0; s < c.n_seqs; ++s) {
      table_offsets_.push_back(s * per_seq);
      offsets_.push_back(s * c.n_new);
      lens_.push_back(c.depth);
      for (int t = c.depth - c.n_new; t < c.depth; ++t) positions_.push_back(t);
    }
    table_offsets_.push_back(c.n_seqs * per_seq);
    offsets_.push_back(c.n_seqs * c.n_new);
    tokens_.resize(positions_.size());
    const size_t n = positions_.size() * c.n_heads * c.head_dim;
    q_ = tensors_.allocate_array<float>(n);
    out_ = tensors_.allocate_array<float>(n);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::generate_n(q_, n, [&] { return normal(random); });
  }

  void attend() {
    const KvView view = {positions_, blocks_, table_offsets_, {}};
    const Batch batch = {tokens_, positions_, offsets_, lens_, {&view, 1}, {}, {}};
    const int rows = batch.n_tokens(), cols = case_.n_heads * case_.head_dim;
    const Tensor q = {q_, DType::kF32, rows, cols, cols},
                 out = {out_, DType::kF32, rows, cols, cols};
    const AttentionContext context = {pool(), scratch_, *table().attention,
                                      std::getenv("PENSTOCK_BENCH_INVARIANT") != nullptr};
    const float scale = 1.0f / std::sqrt(static_cast<float>(case_.head_dim));
    for (int layer = 0; layer < n_layers_; ++layer)
      cpu_attend(context, q, batch, *cache_, {layer, case_.n_heads, scale, 0.0f}, out);
  }

  // What is read of the cache.
  int64_t bytes() const {
    return cache_->layout(0).bytes * case_.n_kv_heads * static_cast<int64_t>(blocks_.size()) *
           n_layers_;
  }
  const std::byte* data() const { return cache_->units(0, 0); }

 private:
  // Every unit holds the tokens of one of 64 that are really random.
  void fill() {
    constexpr int kDifferent = 64;
    const KvUnitLayout& layout = cache_->layout(0);
    std::vector<std::byte> units(kDifferent * layout.bytes);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> k(case_.head_dim), v(case_.head_dim);
    for (int i = 0; i < kDifferent * kUnitTokens; ++i) {
      for (float& x : k) x = normal(random);
      for (float& x : v) x = normal(random);
      table().attention->store[static_cast<int>(layout.format)](
          layout, k.data(), v.data(), &units[i / kUnitTokens * layout.bytes], i % kUnitTokens);
    }
    for (int layer = 0; layer < n_layers_; ++layer) {
      int64_t u = 0;
      for (int slot = 0; slot < static_cast<int>(blocks_.size()) * kUnitTokens;
           slot += kUnitTokens) {
        for (int head = 0; head < case_.n_kv_heads; ++head, ++u) {
          std::memcpy(cache_->unit_of_slot(layer, head, slot),
                      &units[u % kDifferent * layout.bytes], static_cast<size_t>(layout.bytes));
        }
      }
    }
  }

  Case case_;
  int n_layers_;
  std::unique_ptr<CpuKvCache> cache_;
  std::vector<BlockId> blocks_;
  std::vector<int32_t> positions_, offsets_, lens_, table_offsets_;
  std::vector<TokenId> tokens_;
  float *q_, *out_;
  Arena tensors_, scratch_;  // as those of a model
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

// Medians of the times of two functions run in turn, and of their ratios (g over f).
template <class F, class G>
std::array<double, 3> alternate(benchmark::State& state, F f, G g) {
  std::vector<double> of_f, of_g, ratios;
  f();
  for (auto _ : state) {
    const auto start = Clock::now();
    f();
    const auto middle = Clock::now();
    g();
    of_f.push_back(std::chrono::duration<double>(middle - start).count());
    of_g.push_back(std::chrono::duration<double>(Clock::now() - middle).count());
    ratios.push_back(of_g.back() / of_f.back());
  }
  return {median(of_f), median(of_g), median(ratios)};
}

void decode(benchmark::State& state, const Case& c) {
  const int64_t bytes = int64_t{setting("PENSTOCK_BENCH_MB", 512)} << 20;
  const KvFormat format = c.dtype == KvDType::kI4 ? KvFormat::kI4 : static_cast<KvFormat>(c.dtype);
  const KvUnitLayout layout = KvUnitLayout::make(format, c.head_dim);
  const int64_t of_layer = int64_t{c.n_seqs} * c.depth / kUnitTokens * c.n_kv_heads * layout.bytes;
  Setup setup(c, static_cast<int>(std::max<int64_t>(1, bytes / of_layer)));
  uint64_t sink = 0;
  const auto read = [&] {
    pool().run([&](int worker, int n_workers) {
      const auto part = static_cast<size_t>(setup.bytes()) / n_workers / 2048 * 2048;
      const uint64_t sum = probe_read(setup.data() + part * worker, part);
      if (worker == 0) sink += sum;
    });
  };
  const auto [seconds, read_seconds, share] = alternate(state, [&] { setup.attend(); }, read);
  benchmark::DoNotOptimize(sink);
  state.counters["GB/s"] = static_cast<double>(setup.bytes()) / seconds * 1e-9;
  state.counters["read"] = static_cast<double>(setup.bytes()) / read_seconds * 1e-9;
  state.counters["%read"] = 100 * share;
}

void prefill(benchmark::State& state, const Case& c) {
  Setup setup(c, 1);
  constexpr int64_t kRounds = 500000;
  float sink = 0;
  const ComputeProbe probe = probe_unit(ComputeProbe::Operand::kFloats);
  const auto compute = [&] {
    pool().run([&](int worker, int) {
      const float result = probe.run(kRounds);
      if (worker == 0) sink += result;
    });
  };
  const auto [seconds, peak_seconds, ratio] = alternate(state, [&] { setup.attend(); }, compute);
  benchmark::DoNotOptimize(sink);
  const double seen =
      static_cast<double>(c.n_new) * (c.depth - c.n_new) + c.n_new * (c.n_new + 1.0) / 2;
  const double flops = 4.0 * c.head_dim * seen * c.n_heads * c.n_seqs;
  const double peak_flops = probe.operations_per_iteration * kRounds * pool().size();
  state.counters["GFLOP/s"] = flops / seconds * 1e-9;
  state.counters["peak"] = peak_flops / peak_seconds * 1e-9;
  state.counters["%peak"] = 100 * ratio * flops / peak_flops;
}

void register_all() {
  const int runs = setting("PENSTOCK_BENCH_RUNS", 9);
  const std::pair<const char*, KvDType> types[] = {{"bf16", KvDType::kBF16},
                                                   {"i8", KvDType::kI8},
                                                   {"i4", KvDType::kI4},
                                                   {"f16", KvDType::kF16},
                                                   {"f32", KvDType::kF32}};
  for (const auto& [type, dtype] : types) {
    for (const int dim : {64, 128}) {
      const std::string shape = std::string("/") + type + "/head:" + std::to_string(dim);
      for (const auto& [n_seqs, depth] : {std::pair{1, 1024}, {1, 4096}, {1, 16384}, {8, 1024}}) {
        const std::string name = "decode" + shape + "/seqs:" + std::to_string(n_seqs) +
                                 "/depth:" + std::to_string(depth);
        const Case c = {name, dtype, dim, 32, 8, n_seqs, depth, 1};
        benchmark::RegisterBenchmark(name.c_str(), decode, c)
            ->Iterations(runs)
            ->Unit(benchmark::kMillisecond);
      }
      for (const auto& [depth, n_new] : {std::pair{512, 512}, {2048, 2048}, {8192, 2048}}) {
        const std::string name =
            "prefill" + shape + "/new:" + std::to_string(n_new) + "/depth:" + std::to_string(depth);
        const Case c = {name, dtype, dim, 32, 8, 1, depth, n_new};
        benchmark::RegisterBenchmark(name.c_str(), prefill, c)
            ->Iterations(runs)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  return penstock::run_benchmarks(argc, argv, penstock::register_all);
}
