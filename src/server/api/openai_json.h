// Pieces of OpenAI's reply objects.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "server/api/generation.h"
#include "server/services/services.h"

namespace penstock {

int64_t unix_time();

// What completions and chat completions have in common.
struct OpenAiCall {
  GenerationCall generation;
  std::string id;
  int64_t created = 0;  // Unix seconds, the same in every event
  bool stream = false, include_usage = false, continuous_usage = false;
  bool token_ids = false;  // add the ids of prompt and reply
  // "token_id:N" where log-probabilities name a token
  bool tokens_as_ids = false;
  bool prompt_text = false;  // add the prompt's text
  bool timings = false;
  bool timings_per_token = false;  // in every event too
  bool progress = false;           // events tell how far the prompts are computed
};
// The fields of a checked body besides prompt and sampling. Error: options of a stream without one.
Status read_openai_call(const Services& services, const nlohmann::ordered_json& body,
                        const char* id_prefix, OpenAiCall& call);

// {id, object, created, model, system_fingerprint}
nlohmann::ordered_json envelope(const OpenAiCall& call, const char* object);
nlohmann::ordered_json usage_json(const Generation& generation, int n_reasoning_tokens = 0);
// The same of responses.
nlohmann::ordered_json response_usage(const Generation& generation, int n_reasoning_tokens);
// Adds how a reply that was kept was found: "reply_cache", of any API's usage.
void mark_kept(const Generation& generation, nlohmann::ordered_json& usage);
// Of the slowest choice by part: {queued_ms, prefill_ms, decode_ms, …}, and llama.cpp's names.
nlohmann::ordered_json timings_json(const Generation& generation);
// The text as a JSON string, with its quotes.
std::string json_text(const std::string& text);

// The events of a stream: what all have in common is written once.
class StreamEvents {
 public:
  StreamEvents(const OpenAiCall& call, const char* object);
  // choice: an object as JSON text. n_tokens: of the choice so far, for calls that want the usage
  // continuously. more: further fields of the event as JSON text, with a comma before each.
  std::string event(std::string_view choice, const Generation& generation, int n_tokens,
                    std::string_view more = {}) const {
    return event({&choice, 1}, generation, n_tokens, more);
  }
  // The same of an object in pieces.
  std::string event(std::span<const std::string_view> choice, const Generation& generation,
                    int n_tokens, std::string_view more = {}) const;

 private:
  // what follows the choices, without the closing brace
  std::string common_;
  bool usage_;
};

// What the end of a reply has besides the choices: usage and, when asked for, timings.
void add_totals(const OpenAiCall& call, const Generation& generation, nlohmann::ordered_json& body,
                int n_reasoning_tokens = 0);
// The last events of a stream.
std::string stream_tail(const OpenAiCall& call, const Generation& generation, const char* object,
                        int n_reasoning_tokens = 0);

// null, the stop token id, or the stop string.
nlohmann::ordered_json stop_reason_json(const StopReason& reason);
// [null, {"<id>": {logprob, rank, decoded_token}}, …] as vLLM has it.
nlohmann::ordered_json prompt_logprobs_json(const Tokenizer& tokenizer,
                                            const RequestOutput& output);

// How log-probabilities name a token.
class TokenNames {
 public:
  TokenNames(const Tokenizer& tokenizer, bool as_ids) : tokenizer_(&tokenizer), as_ids_(as_ids) {}
  // Its text; what is part of a character is written as "bytes:\xe2\x82".
  std::string operator()(TokenId token) const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  const Tokenizer* tokenizer_;
  bool as_ids_;
};

// {tokens, token_logprobs, top_logprobs, text_offset} of the completions API, gathered token by
// token.
class LegacyLogprobs {
 public:
  // n_top: alternatives to show; the tokenizer outlives this. shows_special: the reply's text holds
  // special tokens.
  LegacyLogprobs(TokenNames names, int n_top, bool shows_special)
      : names_(names), n_top_(n_top), shows_special_(shows_special) {}
  // row: the token first, then the alternatives, most likely first.
  void add(const std::vector<TokenLogprob>& row);
  // The prompt's rows; the first token has no probability. text: the prompt's as it is echoed,
  // before the reply.
  void add_prompt(const std::vector<TokenId>& prompt,
                  const std::vector<std::vector<TokenLogprob>>& rows, std::string_view text);
  nlohmann::ordered_json take();  // what was added since the last take

 private:
  void add_row(const std::vector<TokenLogprob>& row);
  void add_offset(std::string_view bytes);
  TokenNames names_;
  int n_top_;
  bool shows_special_;
  // begun so far; offsets index the text by characters
  size_t n_characters_ = 0;
  nlohmann::ordered_json tokens_ = nlohmann::ordered_json::array(),
                         logprobs_ = nlohmann::ordered_json::array(),
                         top_ = nlohmann::ordered_json::array(),
                         offsets_ = nlohmann::ordered_json::array();
};

// {token, logprob, bytes, top_logprobs} of the chat API.
nlohmann::ordered_json chat_logprob_json(const TokenNames& names,
                                         const std::vector<TokenLogprob>& row);

}  // namespace penstock
