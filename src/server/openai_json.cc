#include "server/openai_json.h"

#include <algorithm>
#include <ctime>

#include "server/api_request.h"

namespace penstock {
namespace {

bool is_utf8(const std::string& bytes) {
  try {
    json(bytes).dump();
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

// JSON has no -inf; the API's clients expect a number.
double finite(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

}  // namespace

int64_t unix_time() { return std::time(nullptr); }

json usage_json(const Generation& generation) {
  return {{"prompt_tokens", generation.n_prompt_tokens()},
          {"completion_tokens", generation.n_completion_tokens()},
          {"total_tokens", generation.n_prompt_tokens() + generation.n_completion_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", generation.n_cached_tokens()}}}};
}

json stop_reason_json(const CompletionOutput& output) {
  if (const auto* token = std::get_if<TokenId>(&output.stop_reason)) return *token;
  if (const auto* text = std::get_if<std::string>(&output.stop_reason)) return *text;
  return nullptr;
}

Status read_stream_options(const json& body, bool& include_usage, bool& continuous_usage) {
  const auto found = body.find("stream_options");
  if (found == body.end() || found->is_null()) return {};
  if (!found->is_object()) return errorf(ErrorCode::kInvalidArgument, "stream_options: expected an object");
  ASSIGN_OR_RETURN(include_usage, get_bool(*found, "include_usage", false));
  ASSIGN_OR_RETURN(continuous_usage, get_bool(*found, "continuous_usage_stats", false));
  return {};
}

std::string token_text(const Tokenizer& tokenizer, TokenId token, bool first) {
  const std::string bytes(tokenizer.token_bytes(token, first));
  if (is_utf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

void LegacyLogprobs::add_token(TokenId token) {
  const std::string text = token_text(*tokenizer_, token);
  tokens_.push_back(text);
  offsets_.push_back(offset_);
  offset_ += tokenizer_->token_bytes(token).size();
}

void LegacyLogprobs::add(const std::vector<TokenLogprob>& row) {
  if (row.empty()) return;
  add_token(row[0].token);
  logprobs_.push_back(finite(row[0].logprob));
  json top = json::object();
  const size_t n = std::min(row.size() - 1, static_cast<size_t>(std::max(n_top_, 0)));
  for (size_t i = 1; i <= n; ++i) {
    const std::string text = token_text(*tokenizer_, row[i].token);
    if (!top.contains(text)) top[text] = finite(row[i].logprob);
  }
  // The chosen token is always among them.
  const std::string own = token_text(*tokenizer_, row[0].token);
  if (!top.contains(own)) top[own] = finite(row[0].logprob);
  top_.push_back(std::move(top));
}

void LegacyLogprobs::add_prompt(const std::vector<TokenId>& prompt, const std::vector<std::vector<TokenLogprob>>& rows) {
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (i == 0 || i >= rows.size() || rows[i].empty()) {
      add_token(prompt[i]);
      logprobs_.push_back(nullptr);
      top_.push_back(nullptr);
    } else {
      add(rows[i]);
    }
  }
}

json LegacyLogprobs::take() {
  json result = {{"tokens", std::move(tokens_)},
                 {"token_logprobs", std::move(logprobs_)},
                 {"top_logprobs", std::move(top_)},
                 {"text_offset", std::move(offsets_)}};
  tokens_ = logprobs_ = top_ = offsets_ = json::array();
  return result;
}

json chat_logprob_json(const Tokenizer& tokenizer, const std::vector<TokenLogprob>& row) {
  const auto one = [&](const TokenLogprob& value) {
    const std::string_view bytes = tokenizer.token_bytes(value.token);
    json list = json::array();
    for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
    return json{{"token", token_text(tokenizer, value.token)}, {"logprob", finite(value.logprob)}, {"bytes", list}};
  };
  json result = one(row[0]);
  result["top_logprobs"] = json::array();
  for (size_t i = 1; i < row.size(); ++i) result["top_logprobs"].push_back(one(row[i]));
  return result;
}

}  // namespace penstock
