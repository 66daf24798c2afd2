// One token drawn from a vocabulary of 151,936, the copy of the logits left out. "peaked" logits
// are like a trained model's (a few tokens hold most of the mass), "flat" ones nearly equal: the
// worst case of top-p.
//
//   sampling_bench [--benchmark_repetitions=5]
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "sampling/sampler.h"

namespace penstock {
namespace {

constexpr int kVocabSize = 151936;

// Normal with the given deviation; 4 leaves a few hundred tokens with nearly all the mass.
std::vector<float> random_logits(float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> value(0, deviation);
  std::vector<float> logits(kVocabSize);
  for (float& logit : logits) logit = value(random);
  return logits;
}

void sample(benchmark::State& state, const SamplingParams& params, float deviation) {
  const std::vector<float> original = random_logits(deviation);
  const std::vector<TokenId> tokens = {1, 2, 3};
  Sampler sampler;
  sampler.reserve(kVocabSize, 1024);
  SamplerState sequence(SamplingSpec::make(params, {}, {}, {}, 1, kVocabSize), 0, tokens, 1024);
  std::vector<float> logits(kVocabSize);
  std::vector<TokenLogprob> alternatives;
  for (auto _ : state) {
    state.PauseTiming();
    logits = original;
    state.ResumeTiming();
    SampleInput input;
    input.logits = logits;
    input.tokens = tokens;
    input.n_prompt = 3;
    benchmark::DoNotOptimize(sampler.sample(sequence, input, alternatives));
  }
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

SamplingParams with(int top_k, float top_p, float min_p = 0) {
  SamplingParams params;
  params.temperature = 0.8f;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  return params;
}

void register_all() {
  const std::pair<std::string, SamplingParams> kinds[] = {{"greedy", greedy()},
                                                          {"plain", with(0, 1)},
                                                          {"top_k 50", with(50, 1)},
                                                          {"top_p 0.9", with(0, 0.9f)},
                                                          {"top_k 50, top_p 0.9", with(50, 0.9f)},
                                                          {"min_p 0.05", with(0, 1, 0.05f)}};
  for (const auto& [name, params] : kinds) {
    for (const auto& [shape, deviation] : {std::pair{"peaked", 4.0f}, std::pair{"flat", 0.1f}}) {
      benchmark::RegisterBenchmark((name + ", " + shape).c_str(), [params = params,
                                                                   deviation = deviation](
                                                                      benchmark::State& state) {
        sample(state, params, deviation);
      })->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  penstock::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
