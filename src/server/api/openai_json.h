// Parts of OpenAI's reply objects.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "server/api/generation.h"
#include "server/services/services.h"

namespace penstock {

int64_t unix_time();

// The fields shared by completions and chat completions.
struct OpenAiCall {
  GenerationCall generation;
  std::string id;
  int64_t created = 0;  // Unix seconds, the same in every event
  bool stream = false, include_usage = false, continuous_usage = false;
  bool token_ids = false;  // add the token ids of prompt and reply
  // log-probabilities name tokens "token_id:N"
  bool tokens_as_ids = false;
  bool prompt_text = false;  // add the prompt's text
  bool timings = false;
  bool timings_per_token = false;  // timings in every event too
  bool progress = false;           // events report the progress of prefill
};
// Reads the fields of a checked body other than prompt and sampling. Errors: kInvalidArgument
// (stream options without a stream).
Status read_openai_call(const Services& services, const nlohmann::ordered_json& body,
                        const char* id_prefix, OpenAiCall& call);

// {id, object, created, model, system_fingerprint}
nlohmann::ordered_json envelope(const OpenAiCall& call, const char* object);
nlohmann::ordered_json usage_json(const Generation& generation, int n_reasoning_tokens = 0);
// As usage_json(), in the form of responses.
nlohmann::ordered_json response_usage(const Generation& generation, int n_reasoning_tokens);
// Adds "reply_cache" to the usage of any API if the reply came from the reply cache: how it was
// found.
void mark_kept(const Generation& generation, nlohmann::ordered_json& usage);
// Returns the durations of the slowest choice: {queued_ms, prefill_ms, decode_ms, …} and
// llama.cpp's names.
nlohmann::ordered_json timings_json(const Generation& generation);
// Returns the text as a JSON string with quotation marks.
std::string json_text(const std::string& text);

// Formats the events of a stream; their common fields are formatted once.
class StreamEvents {
 public:
  StreamEvents(const OpenAiCall& call, const char* object);
  // choice: an object as JSON text. n_tokens: tokens of the choice so far, for continuous usage.
  // more: further fields of the event as JSON text, each preceded by a comma.
  std::string event(std::string_view choice, const Generation& generation, int n_tokens,
                    std::string_view more = {}) const {
    return event({&choice, 1}, generation, n_tokens, more);
  }
  // As above, for a choice in pieces.
  std::string event(std::span<const std::string_view> choice, const Generation& generation,
                    int n_tokens, std::string_view more = {}) const;

 private:
  // what follows the choices, without the closing brace
  std::string common_;
  bool usage_;
};

// Adds usage and, if requested, timings to a reply.
void add_totals(const OpenAiCall& call, const Generation& generation, nlohmann::ordered_json& body,
                int n_reasoning_tokens = 0);
// Returns the last events of a stream.
std::string stream_tail(const OpenAiCall& call, const Generation& generation, const char* object,
                        int n_reasoning_tokens = 0);

// Returns null, the stop token's id, or the stop string.
nlohmann::ordered_json stop_reason_json(const StopReason& reason);
// Returns [null, {"<id>": {logprob, rank, decoded_token}}, …], in vLLM's form.
nlohmann::ordered_json prompt_logprobs_json(const Tokenizer& tokenizer,
                                            const RequestOutput& output);

// Names tokens in log-probabilities.
class TokenNames {
 public:
  TokenNames(const Tokenizer& tokenizer, bool as_ids) : tokenizer_(&tokenizer), as_ids_(as_ids) {}
  // Returns the token's text; incomplete characters are written as "bytes:\xe2\x82".
  std::string operator()(TokenId token) const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  const Tokenizer* tokenizer_;
  bool as_ids_;
};

// Collects {tokens, token_logprobs, top_logprobs, text_offset} of the completions API.
class LegacyLogprobs {
 public:
  // n_top: number of alternatives to show. shows_special: the reply's text includes special tokens.
  // REQUIRES: the tokenizer outlives this object.
  LegacyLogprobs(TokenNames names, int n_top, bool shows_special)
      : names_(names), n_top_(n_top), shows_special_(shows_special) {}
  // row: the token, then the alternatives in descending order of probability.
  void add(const std::vector<TokenLogprob>& row);
  // Adds the prompt's rows; the first token has no probability. text: the prompt as echoed before
  // the reply.
  void add_prompt(const std::vector<TokenId>& prompt,
                  const std::vector<std::vector<TokenLogprob>>& rows, std::string_view text);
  // returns and removes what was added since the last take()
  nlohmann::ordered_json take();

 private:
  void add_row(const std::vector<TokenLogprob>& row);
  void add_offset(std::string_view bytes);
  TokenNames names_;
  int n_top_;
  bool shows_special_;
  // number of characters begun so far; offsets count characters
  size_t n_characters_ = 0;
  nlohmann::ordered_json tokens_ = nlohmann::ordered_json::array(),
                         logprobs_ = nlohmann::ordered_json::array(),
                         top_ = nlohmann::ordered_json::array(),
                         offsets_ = nlohmann::ordered_json::array();
};

// Returns {token, logprob, bytes, top_logprobs} of the chat API.
nlohmann::ordered_json chat_logprob_json(const TokenNames& names,
                                         const std::vector<TokenLogprob>& row);

}  // namespace penstock
