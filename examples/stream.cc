// Prints text while it is generated, and stops by itself after so many characters.
// Usage: stream MODEL PROMPT CHARACTERS
#include <cstdio>
#include <cstdlib>

#include "penstock/llm.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: stream MODEL PROMPT CHARACTERS\n");
    return 2;
  }
  auto llm = penstock::LLM::open({.model = argv[1]});
  if (!llm) {
    std::fprintf(stderr, "%s\n", llm.error().message.c_str());
    return 1;
  }
  const size_t wanted = std::strtoul(argv[3], nullptr, 10);
  size_t shown = 0;
  penstock::GenerateOptions options;
  options.on_text = [&](const penstock::TextDelta& delta) {
    std::fwrite(delta.text.data(), 1, delta.text.size(), stdout);
    std::fflush(stdout);
    shown += delta.text.size();
    return shown < wanted;  // false cancels what is left
  };
  penstock::SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 200;
  const auto result = (*llm)->generate(penstock::Prompt(argv[2]), params, options);
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    return 1;
  }
  std::printf("\n[%s]\n", penstock::finish_reason_name(result->outputs[0].finish_reason));
  return 0;
}
