// The experts of a layer beside a dense gated feed-forward of the same operations: as many features
// as a token's experts have together. Both by the ways of a step (cpu_moe; cpu_gated_linear and
// cpu_linear), in the same loop; times are minima over alternating runs. Tokens choose evenly, by
// random router logits.
//
//   experts_bench --benchmark_filter=q4_0/.*tokens:512
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/pack/panel_pack.h"
#include "machine.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/weight.h"
#include "quant/all.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

struct Layer {
  const char* name;
  int n_experts, top_k, dim, ffn_dim;
};

constexpr Layer kLayers[] = {
    {"gpt-oss-20b", 32, 4, 2880, 2880},      {"granite-4-tiny", 64, 6, 1536, 512},
    {"deepseek-v2-lite", 64, 6, 2048, 1408}, {"qwen3-30b-a3b", 128, 8, 2048, 768},
    {"qwen3.5-35b-a3b", 256, 8, 2048, 512},  {"qwen3-next-80b-a3b", 512, 10, 2048, 512},
};

std::vector<float> random_floats(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

// The same 32 rows over and over.
std::unique_ptr<Weight> random_weight(QuantType type, int rows, int cols) {
  constexpr int kRows = 32;
  const size_t row_bytes = quant_bytes(type, cols);
  const auto values = random_floats(static_cast<size_t>(kRows) * static_cast<size_t>(cols), 1);
  std::vector<std::byte> all(static_cast<size_t>(rows) * row_bytes);
  for (int r = 0; r < rows; ++r) {
    std::byte* row = &all[static_cast<size_t>(r) * row_bytes];
    if (r < kRows) {
      quantize_row(type, &values[static_cast<size_t>(r) * static_cast<size_t>(cols)], row, cols);
    } else {
      std::copy_n(row - kRows * row_bytes, row_bytes, row);
    }
  }
  return WeightPacker(pool()).pack({type, rows, cols, all}).value();
}

// In huge pages, as a step's tensors are.
struct OwnTensor {
  WeightMemory memory;
  Tensor tensor;
  OwnTensor(int rows, int cols)
      : memory(WeightPages().allocate(static_cast<size_t>(rows) * static_cast<size_t>(cols) *
                                      sizeof(float))),
        tensor{memory.data(), DType::kF32, rows, cols, cols} {}
};

void experts(benchmark::State& state, QuantType type, const Layer& layer, int n_tokens) {
  using Weights = std::vector<std::unique_ptr<Weight>>;
  Weights gates, ups, downs;
  for (int e = 0; e < layer.n_experts; ++e) {
    gates.push_back(random_weight(type, layer.ffn_dim, layer.dim));
    ups.push_back(random_weight(type, layer.ffn_dim, layer.dim));
    downs.push_back(random_weight(type, layer.dim, layer.ffn_dim));
  }
  const int dense_dim = layer.ffn_dim * layer.top_k;
  const auto gate = random_weight(type, dense_dim, layer.dim),
             up = random_weight(type, dense_dim, layer.dim),
             down = random_weight(type, layer.dim, dense_dim);
  MoeParams params;
  params.gate = gates, params.up = ups, params.down = downs;
  params.routing.n_active = layer.top_k;

  auto x = random_floats(static_cast<size_t>(n_tokens) * static_cast<size_t>(layer.dim), 2);
  auto logits =
      random_floats(static_cast<size_t>(n_tokens) * static_cast<size_t>(layer.n_experts), 3);
  const Tensor input{x.data(), DType::kF32, n_tokens, layer.dim, layer.dim};
  const Tensor router{logits.data(), DType::kF32, n_tokens, layer.n_experts, layer.n_experts};
  const OwnTensor gated(n_tokens, dense_dim), widened(n_tokens, dense_dim),
      out(n_tokens, layer.dim);
  LinearScratch scratch;
  const LinearContext context{pool(), scratch, table(), gemm_traits(table(), false)};
  double moe_seconds = 1e30, dense_seconds = 1e30;
  const auto timed = [](double& least, auto&& f) {
    const auto start = Clock::now();
    f();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
  };
  for (auto _ : state) {
    timed(moe_seconds, [&] { cpu_moe(context, input, router, params, out.tensor); });
    timed(dense_seconds, [&] {
      cpu_gated_linear(context, input, {gate.get(), nullptr, gated.tensor},
                       {up.get(), nullptr, widened.tensor}, params.activation, gated.tensor);
      const LinearTarget target{down.get(), nullptr, out.tensor};
      cpu_linear(context, gated.tensor, {&target, 1});
    });
  }
  const double operations = 6.0 * n_tokens * layer.dim * dense_dim;
  state.counters["GFLOP/s"] = operations / moe_seconds * 1e-9;
  state.counters["dense"] = operations / dense_seconds * 1e-9;
  state.counters["%dense"] = 100 * dense_seconds / moe_seconds;
}

void register_all() {
  for (const QuantTypeInfo& info : quant_types()) {
    if (info.type >= QuantType::kI8 && info.type <= QuantType::kF8E5M2) continue;
    if (!can_quantize(info.type)) continue;
    for (const Layer& layer : kLayers) {
      for (const int n_tokens : {1, 16, 128, 512, 2048}) {
        if (layer.dim % info.block_size != 0 || layer.ffn_dim % info.block_size != 0) continue;
        benchmark::RegisterBenchmark(
            (std::string(info.name) + "/" + layer.name + "/tokens:" + std::to_string(n_tokens))
                .c_str(),
            [=](benchmark::State& state) { experts(state, info.type, layer, n_tokens); })
            ->Iterations(setting("PENSTOCK_BENCH_RUNS", 5))
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
