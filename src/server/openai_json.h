// Pieces of OpenAI's reply objects.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/generation.h"

namespace penstock {

int64_t unix_time();
nlohmann::json usage_json(const Generation& generation);
// null, the stop token id, or the stop string.
nlohmann::json stop_reason_json(const CompletionOutput& output);
Status read_stream_options(const nlohmann::json& body, bool& include_usage, bool& continuous_usage);

// The text of one token; what is part of a character is written as "bytes:\xe2\x82".
std::string token_text(const Tokenizer& tokenizer, TokenId token, bool first = false);

// {tokens, token_logprobs, top_logprobs, text_offset} of the completions API, gathered token by token.
class LegacyLogprobs {
 public:
  // n_top: alternatives to show; the tokenizer outlives this.
  LegacyLogprobs(const Tokenizer& tokenizer, int n_top) : tokenizer_(&tokenizer), n_top_(n_top) {}
  // row: the token first, then the alternatives, most likely first.
  void add(const std::vector<TokenLogprob>& row);
  // The prompt's rows; the first token has no probability.
  void add_prompt(const std::vector<TokenId>& prompt, const std::vector<std::vector<TokenLogprob>>& rows);
  nlohmann::json take();  // what was added since the last take

 private:
  void add_token(TokenId token);
  const Tokenizer* tokenizer_;
  int n_top_;
  size_t offset_ = 0;
  nlohmann::json tokens_ = nlohmann::json::array(), logprobs_ = nlohmann::json::array(),
                 top_ = nlohmann::json::array(), offsets_ = nlohmann::json::array();
};

// {token, logprob, bytes, top_logprobs} of the chat API.
nlohmann::json chat_logprob_json(const Tokenizer& tokenizer, const std::vector<TokenLogprob>& row);

}  // namespace penstock
