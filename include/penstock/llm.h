// The blocking facade: text in, text out. A thin layer over Engine: every call is one or more
// engine requests.
//
//   auto llm = penstock::LLM::open({.model = "model.gguf"});
//   if (!llm) return fail(llm.error().message);
//   auto out = (*llm)->generate("Once upon a time", {.max_tokens = 100, .temperature = 0.8f});
//   std::puts(out->outputs[0].text.c_str());
//
// Threads: all methods may be called from several threads at once; the requests then share the
// engine's batch. Callbacks run on the calling thread.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "penstock/chat.h"
#include "penstock/engine.h"

namespace penstock {

// Text (tokenized with the model's special tokens parsed and BOS where the model wants one) or
// token ids as they are.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

// Stop token id or stop string that ended a text; empty for EOS and length.
using StopReason = std::variant<std::monostate, TokenId, std::string>;

struct CompletionOutput {
  int index = 0;  // [0, n)
  std::string text;
  // Tokens of the output, with the stop token that ended it, without what a stop string cut off.
  std::vector<TokenId> token_ids;
  // sum of the tokens' log-probabilities; with SamplingParams::logprobs
  double cumulative_logprob = 0;
  // [token_ids.size()] for each token its own log-probability first, then the alternatives'.
  std::vector<std::vector<TokenLogprob>> logprobs;
  FinishReason finish_reason = FinishReason::kNone;
  StopReason stop_reason;
  RequestStats stats;
  // with kError, and with kAbort when there is a reason
  std::optional<Error> error;
  // Set by LLM::chat: the reply as a message of the assistant, with reasoning and calls parsed out
  // of the text. It can be appended to the messages that it answers. The ids of its calls are
  // generated.
  std::optional<ChatMessage> message;
};

struct RequestOutput {
  std::string prompt;  // empty when token ids were given
  std::vector<TokenId> prompt_token_ids;
  // [n_prompt], the first one empty: for each prompt token its own log-probability first, then the
  // alternatives'.
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  std::vector<CompletionOutput> outputs;  // [n]
};

// A piece of text that is ready: whole UTF-8, no part of a stop string. May be empty with finish !=
// kNone.
struct TextDelta {
  size_t prompt = 0;      // index in the list given to generate()
  int index = 0;          // which of the prompt's n sequences, [0, n)
  std::string_view text;  // valid during the call
  // new since the last delta; valid during the call
  std::span<const TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
};

struct GenerateOptions {
  // Called for every piece of text in order. Returning false cancels all that is still running.
  std::function<bool(const TextDelta&)> on_text;
  // Called when a prompt has finished.
  std::function<void(size_t n_done, size_t n_total)> on_progress;
  // Asked about every 50 ms (from the calling thread); true cancels all that is still running.
  std::function<bool()> should_stop;
  Priority priority = Priority::kNormal;
  std::string cache_salt;
  std::optional<Clock::duration> timeout;
  bool add_bos = true;  // BOS is added when the model wants one
  // "<|im_end|>" in the text is the special token
  bool parse_special = true;
};

class LLM {
 public:
  // Opens the model, its tokenizer and an engine with its thread running. Errors: as Engine::open.
  static Result<std::unique_ptr<LLM>> open(const EngineConfig& config);
  virtual ~LLM() = default;

  // Generates one output per prompt, in the order given. An error of the call as a whole (an
  // invalid parameter, a prompt that is too long) is returned before anything runs; a sequence that
  // fails later has finish_reason kError or kAbort.
  virtual Result<std::vector<RequestOutput>> generate(std::span<const Prompt> prompts,
                                                      const SamplingParams& params,
                                                      const GenerateOptions& options = {}) = 0;
  Result<RequestOutput> generate(const Prompt& prompt, const SamplingParams& params,
                                 const GenerateOptions& options = {});

  // Renders the messages with the chat template, generates, and parses the replies into
  // CompletionOutput::message (`text` and GenerateOptions::on_text have the unparsed text, with the
  // marks of reasoning and calls). Errors: those of generate(); kInvalidArgument when the template
  // raises an error or has no place for tools or images, for images of a model that does not see, and
  // for invalid options; kUnsupported for images of a kind that is not
  // read, kInvalidArgument for damaged ones and ones over a limit.
  virtual Result<RequestOutput> chat(std::span<const ChatMessage> messages,
                                     const SamplingParams& params,
                                     const GenerateOptions& options = {},
                                     const ChatOptions& chat = {}) = 0;
  // The prompt that chat() would use.
  virtual Result<std::string> render_chat(std::span<const ChatMessage> messages,
                                          const ChatOptions& chat = {}) = 0;

  // The model's generation_config on top of the library's defaults.
  virtual SamplingParams default_sampling_params() const = 0;

  virtual std::vector<TokenId> encode(std::string_view text, bool add_bos = true,
                                      bool parse_special = true) const = 0;
  virtual std::string decode(std::span<const TokenId> tokens, bool skip_special = false) const = 0;

  virtual Engine& engine() = 0;
  virtual bool has_chat_template() const = 0;
};

}  // namespace penstock
