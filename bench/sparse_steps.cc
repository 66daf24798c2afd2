// Times of a step behind contexts of several lengths, for one layer of DeepSeek V3.2 with random
// weights and a random cache: sparse attention beside the same layer with dense attention.
// Usage: bench_sparse_steps [threads] [experts] [encoding] [tokens]; experts: of the layer, at least
// 16 (8 are active, as published); tokens: of a step, 1 = decoding. More are a chunk of a prompt, and
// the time of a prompt as long as the longest context is added up from them.
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

struct Asked {
  int threads = 0, n_experts = 16, n_tokens = 1;
  const char* type = "q8_0";
};

// Seconds of a prompt as long as the longest context, in chunks, whose times between the measured ones
// lie on straight lines. milliseconds: [size(kContexts)] of a chunk behind each context.
double prompt_seconds(int n_tokens, const std::vector<double>& milliseconds) {
  double sum = 0;
  for (int at = 0; at < kContexts[std::size(kContexts) - 1]; at += n_tokens) {
    size_t c = 1;
    while (c + 1 < std::size(kContexts) && kContexts[c] < at) ++c;
    const double share = double(at - kContexts[c - 1]) / (kContexts[c] - kContexts[c - 1]);
    sum += milliseconds[c - 1] + share * (milliseconds[c] - milliseconds[c - 1]);
  }
  return sum / 1000;
}

// Prints the median of the steps behind each context.
int measure(const Asked& asked, bool sparse) {
  const int n_repetitions = asked.n_tokens > 1 ? 3 : 15;
  const auto source = make_synthetic_source(one_layer(asked.n_experts, sparse), asked.type);
  if (!source) return std::fprintf(stderr, "%s\n", source.error().message.c_str()), 1;
  const auto ops = make_ops("cpu", {.n_threads = asked.threads}).value();
  const auto model = Model::load(**source, *ops);
  if (!model) return std::fprintf(stderr, "%s\n", model.error().message.c_str()), 1;
  const CacheSpec spec = (*model)->cache_spec(KvDType::kF16, 16);
  const int longest = *std::ranges::max_element(kContexts);
  const int n_blocks[] = {(longest + asked.n_tokens) / 16 + 1};
  const auto cache = ops->make_cache(spec, n_blocks).value();
  fill(*cache);
  const GroupBlocks blocks = consecutive_blocks(0, longest + asked.n_tokens, 16);
  const auto step = [&](int context) {
    BatchBuilder builder(spec);
    const std::vector<TokenId> tokens(static_cast<size_t>(asked.n_tokens), 5);
    builder.add({.tokens = tokens, .first = context, .kv = {&blocks, 1}});
    const Batch& batch = builder.build();
    const auto begin = std::chrono::steady_clock::now();
    (*model)->forward(batch, *cache, *ops);
    ops->wait(ops->submit());
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  };
  std::vector<std::vector<double>> times(std::size(kContexts));
  for (int i = 0; i < (asked.n_tokens > 1 ? 1 : kPackingSteps); ++i) step(kContexts[0]);
  for (int i = 0; i < n_repetitions; ++i)  // in turn, so that other load is shared by all
    for (size_t c = 0; c < std::size(kContexts); ++c) times[c].push_back(step(kContexts[c]));
  std::vector<double> medians;
  for (size_t c = 0; c < std::size(kContexts); ++c) {
    std::ranges::nth_element(times[c], times[c].begin() + n_repetitions / 2);
    medians.push_back(times[c][static_cast<size_t>(n_repetitions) / 2]);
    std::printf("%s, %d tokens behind %5d: %7.2f ms, %.2f times the first\n",
                sparse ? "sparse" : "dense ", asked.n_tokens, kContexts[c], medians[c],
                medians[c] / medians[0]);
  }
  if (asked.n_tokens > 1)
    std::printf("%s, a prompt of %d tokens: %.1f s a layer\n", sparse ? "sparse" : "dense ",
                longest, prompt_seconds(asked.n_tokens, medians));
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  penstock::Asked asked;
  if (argc > 1) asked.threads = std::atoi(argv[1]);
  if (argc > 2) asked.n_experts = std::max(16, std::atoi(argv[2]));
  if (argc > 3) asked.type = argv[3];
  if (argc > 4) asked.n_tokens = std::max(1, std::atoi(argv[4]));
  const int failed = penstock::measure(asked, true);
  return failed != 0 ? failed : penstock::measure(asked, false);
}
