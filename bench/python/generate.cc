// The work of throughput.py in C++: LLM::generate on the lines of a file. Prints seconds.
// Usage: bench_generate MODEL PROMPTS MAX_TOKENS MAX_NUM_SEQS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "penstock/llm.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  penstock::EngineConfig config;
  config.model = argv[1];
  config.max_num_seqs = std::atoi(argv[4]);
  std::vector<penstock::Prompt> prompts;
  std::ifstream file(argv[2]);
  for (std::string line; std::getline(file, line);) prompts.emplace_back(line);
  auto llm = penstock::LLM::open(config);
  if (!llm) {
    std::fprintf(stderr, "%s\n", llm.error().message.c_str());
    return 1;
  }
  penstock::SamplingParams params;
  params.max_tokens = std::atoi(argv[3]);
  params.temperature = 0;
  params.ignore_eos = true;
  if (!(*llm)->generate(prompts, params)) return 1;  // warm
  (*llm)->engine().reset_prefix_cache();
  const auto start = std::chrono::steady_clock::now();
  if (!(*llm)->generate(prompts, params)) return 1;
  std::printf("%.6f\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return 0;
}
