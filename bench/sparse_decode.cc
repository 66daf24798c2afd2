// Times of a decode step behind contexts of several lengths, for one layer of DeepSeek V3.2 with
// random weights and a random cache: sparse attention beside the same layer with dense attention.
// Usage: bench_sparse_decode [threads] [experts] [encoding]; experts: of the layer, at least 16
// (8 are active, as published).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "model/batch_builder.h"
#include "model/group_blocks.h"
#include "model/model.h"
#include "model/sources/synthetic.h"

namespace penstock {
namespace {

constexpr int kRepetitions = 15;
constexpr int kContexts[] = {2048, 4096, 8192, 16384, 32768};

ModelConfig one_layer(int n_experts, bool sparse) {
  ModelConfig config = config_from_shape(sparse ? "deepseek-v3.2" : "deepseek-v3").value();
  config.layers = {config.layers.back()};
  config.n_layers = 1;
  config.vocab_size = 1024;
  config.experts.count = n_experts;
  if (sparse) config.layers[0].selecting_layer = 0;
  return config;
}

// Half-precision numbers around zero, as keys are.
void fill(KvCache& cache) {
  std::minstd_rand random(1);
  std::vector<std::byte> bytes(static_cast<size_t>(cache.block_bytes(0)));
  for (int block = 0; block < cache.n_blocks(0); ++block) {
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
      const Half value = to_half(static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
      std::copy_n(reinterpret_cast<const std::byte*>(&value), 2, bytes.begin() + i);
    }
    cache.write_block(0, BlockId(static_cast<uint32_t>(block)), bytes);
  }
}

// Prints the median of the steps behind each context.
int measure(int threads, int n_experts, const char* type, bool sparse) {
  const auto source = make_synthetic_source(one_layer(n_experts, sparse), type);
  if (!source) return std::fprintf(stderr, "%s\n", source.error().message.c_str()), 1;
  const auto ops = make_ops("cpu", {.n_threads = threads}).value();
  const auto model = Model::load(**source, *ops);
  if (!model) return std::fprintf(stderr, "%s\n", model.error().message.c_str()), 1;
  const CacheSpec spec = (*model)->cache_spec(KvDType::kF16, 16);
  const int longest = *std::ranges::max_element(kContexts);
  const int n_blocks[] = {longest / 16 + 1};
  const auto cache = ops->make_cache(spec, n_blocks).value();
  fill(*cache);
  const GroupBlocks blocks = consecutive_blocks(0, longest + 1, 16);
  const auto step = [&](int context) {
    BatchBuilder builder(spec);
    const std::vector<TokenId> token = {5};
    builder.add({.tokens = token, .first = context, .kv = {&blocks, 1}});
    const Batch& batch = builder.build();
    const auto begin = std::chrono::steady_clock::now();
    (*model)->forward(batch, *cache, *ops);
    ops->wait(ops->submit());
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  };
  std::vector<std::vector<double>> times(std::size(kContexts));
  for (int i = 0; i < kPackingSteps; ++i) step(kContexts[0]);
  for (int i = 0; i < kRepetitions; ++i)  // in turn, so that other load is shared by all
    for (size_t c = 0; c < std::size(kContexts); ++c) times[c].push_back(step(kContexts[c]));
  double first = 0;
  for (size_t c = 0; c < std::size(kContexts); ++c) {
    std::ranges::nth_element(times[c], times[c].begin() + kRepetitions / 2);
    const double median = times[c][kRepetitions / 2];
    if (c == 0) first = median;
    std::printf("%s, behind %5d tokens: %7.2f ms, %.2f times the first\n",
                sparse ? "sparse" : "dense ", kContexts[c], median, median / first);
  }
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const int n_experts = std::max(16, argc > 2 ? std::atoi(argv[2]) : 16);
  const char* type = argc > 3 ? argv[3] : "q8_0";
  const int failed = penstock::measure(threads, n_experts, type, true);
  return failed != 0 ? failed : penstock::measure(threads, n_experts, type, false);
}
