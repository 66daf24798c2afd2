// Opens a model and prints greedy completions of several prompts, which run as one batch.
// Usage: complete MODEL PROMPT...
#include <cstdio>

#include "penstock/llm.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: complete MODEL PROMPT...\n");
    return 2;
  }
  auto llm = penstock::LLM::open({.model = argv[1]});
  if (!llm) {
    std::fprintf(stderr, "%s\n", llm.error().message.c_str());
    return 1;
  }
  penstock::SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 20;
  const std::vector<penstock::Prompt> prompts(argv + 2, argv + argc);
  const auto results = (*llm)->generate(prompts, params);
  if (!results) {
    std::fprintf(stderr, "%s\n", results.error().message.c_str());
    return 1;
  }
  for (const penstock::RequestOutput& result : *results)
    std::printf("%s\n", result.outputs[0].text.c_str());
  return 0;
}
