// A user of the installed library: opens a model and prints a greedy completion.
#include <cstdio>

#include "penstock/llm.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  penstock::EngineConfig config;
  config.model = argv[1];
  auto llm = penstock::LLM::open(config);
  if (!llm) {
    std::fprintf(stderr, "%s\n", llm.error().message.c_str());
    return 1;
  }
  penstock::SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 20;
  auto result = (*llm)->generate("Once upon a time", params);
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    return 1;
  }
  std::printf("%s\n", result->outputs[0].text.c_str());
  return 0;
}
