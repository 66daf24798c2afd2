// The code of docs/guide/library.md as one program.
// Usage: guide MODEL [CHAT_MODEL]
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

#include "penstock/llm.h"

using namespace penstock;

void fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  std::exit(1);
}

std::unique_ptr<LLM> open(const char* model) {
  EngineConfig config;
  config.model = model;  // a GGUF file, or a directory with config.json and safetensors
  config.max_model_len = 512;
  Result<std::unique_ptr<LLM>> opened = LLM::open(config);
  if (!opened) fail(opened.error());
  std::unique_ptr<LLM> llm = std::move(*opened);
  return llm;
}

void errors(LLM& llm) {
  SamplingParams params;
  params.top_p = 2;
  const Result<RequestOutput> refused = llm.generate("Once", params);
  // top_p: expected a number in [0, 1], got 2
  if (!refused) std::cout << refused.error().message << "\n";
}

void generate(LLM& llm) {
  SamplingParams params = llm.default_sampling_params();  // what the model's makers recommend
  params.temperature = 0;                                 // the most likely token every time
  params.max_tokens = 30;
  params.stop = {"\n"};
  const Result<RequestOutput> result = llm.generate("Once upon a time", params);
  if (!result) fail(result.error());
  const CompletionOutput& output = result->outputs[0];
  std::cout << output.text << " [" << finish_reason_name(output.finish_reason) << "]\n";
}

void batches(LLM& llm) {
  SamplingParams params;
  params.n = 2;
  params.seed = 7;
  const std::vector<Prompt> prompts = {"A small dog", "The tide rose",
                                       std::vector<TokenId>{1, 403, 407}};
  const auto results = llm.generate(prompts, params);  // six sequences, computed together
  if (!results) fail(results.error());
  for (const RequestOutput& result : *results) {
    for (const CompletionOutput& output : result.outputs)
      std::cout << output.index << output.text << "\n";
  }
}

void streaming(LLM& llm) {
  GenerateOptions options;
  options.on_text = [](const TextDelta& delta) {
    std::cout << delta.text << std::flush;
    return true;  // false ends the request
  };
  options.timeout = std::chrono::seconds(30);
  const auto result = llm.generate(Prompt("It was late"), SamplingParams(), options);
  if (!result) fail(result.error());
  std::cout << "\n";
}

std::string answer_of(const std::string& function, const std::string& arguments) {
  std::cout << function << " " << arguments << "\n";
  return "sunny";
}

void tools(LLM& llm) {
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 60;
  ChatOptions chat;
  chat.tools_json =
      R"([{"type": "function", "function": {"name": "get_weather", "description": "the weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])";
  std::vector<ChatMessage> messages = {{"user", "What is the weather in Paris?"}};
  for (int turn = 0; turn < 4; ++turn) {
    const Result<RequestOutput> result = llm.chat(messages, params, {}, chat);
    if (!result) fail(result.error());
    const ChatMessage& reply = *result->outputs[0].message;
    messages.push_back(reply);
    if (reply.tool_calls.empty()) break;  // reply.content is the answer
    for (const ToolCall& call : reply.tool_calls) {
      messages.push_back(
          {"tool", answer_of(call.name, call.arguments), {}, {}, call.id, call.name});
    }
  }
  std::cout << messages.back().content << "\n";
}

void logprobs(LLM& llm) {
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 3;
  params.logprobs = 2;  // the two most likely alternatives of every token
  const auto result = llm.generate("The cat sat on the", params);
  if (!result) fail(result.error());
  for (const std::vector<TokenLogprob>& row : result->outputs[0].logprobs) {
    const TokenLogprob& chosen = row[0];
    std::cout << llm.decode({&chosen.token, 1}) << " " << chosen.logprob << "\n";
  }
}

void threads(LLM& llm) {
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&llm, i] {
      SamplingParams params;
      params.seed = static_cast<uint64_t>(i);
      const auto result = llm.generate("One day", params);
      if (!result) fail(result.error());
    });
  }
  for (std::thread& caller : callers) caller.join();
}

void sessions(LLM& llm) {
  const std::vector<TokenId> tokens =
      llm.encode("A long introduction that many requests begin with. They all know it.");
  SamplingParams params;
  params.max_tokens = 1;
  if (const auto computed = llm.generate(Prompt(tokens), params); !computed) fail(computed.error());
  const Result<int> saved = llm.engine().save_session(tokens, "introduction.session");
  if (!saved) fail(saved.error());
  const Result<SessionTokens> back = llm.engine().load_session("introduction.session");
  if (!back) fail(back.error());
  std::cout << back->n_restored << " tokens need not be computed again\n";
}

void counters(LLM& llm) {
  const Metrics metrics = llm.engine().metrics();
  std::cout << metrics.generation_tokens.value << " tokens in " << metrics.steps.value
            << " steps\n";
}

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: guide MODEL [CHAT_MODEL]\n";
    return 2;
  }
  const std::unique_ptr<LLM> llm = open(argv[1]);
  errors(*llm);
  generate(*llm);
  batches(*llm);
  streaming(*llm);
  logprobs(*llm);
  threads(*llm);
  sessions(*llm);
  counters(*llm);
  if (argc == 3) tools(*open(argv[2]));
  return 0;
}
