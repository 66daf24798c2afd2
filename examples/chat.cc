// Answers one message with the model's chat template, or with a plain one where the model has none.
// Usage: chat MODEL MESSAGE
#include <cstdio>

#include "penstock/llm.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: chat MODEL MESSAGE\n");
    return 2;
  }
  auto llm = penstock::LLM::open({.model = argv[1]});
  if (!llm) {
    std::fprintf(stderr, "%s\n", llm.error().message.c_str());
    return 1;
  }
  penstock::SamplingParams params = (*llm)->default_sampling_params();
  params.max_tokens = 40;
  params.seed = 1;  // the same answer every time
  penstock::ChatOptions chat;
  if (!(*llm)->has_chat_template())
    chat.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}";
  const std::vector<penstock::ChatMessage> messages = {{"user", argv[2]}};
  const auto answer = (*llm)->chat(messages, params, {}, chat);
  if (!answer) {
    std::fprintf(stderr, "%s\n", answer.error().message.c_str());
    return 1;
  }
  const penstock::CompletionOutput& output = answer->outputs[0];
  std::printf("%s\n[%zu tokens, %s]\n", output.text.c_str(), output.token_ids.size(),
              penstock::finish_reason_name(output.finish_reason));
  return 0;
}
