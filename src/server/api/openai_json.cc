#include "server/api/openai_json.h"

#include <algorithm>
#include <ctime>
#include <functional>

#include "base/ordered_json.h"
#include "base/text_hash.h"
#include "server/api/api_request.h"
#include "server/api/llamacpp.h"
#include "server/services/config.h"
#include "server/services/services.h"

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

// Replaces -inf, which JSON cannot represent; clients expect a number.
double finite(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

}  // namespace

int64_t unix_time() { return std::time(nullptr); }

Status read_openai_call(const Services& services, const json& body, const char* id_prefix,
                        OpenAiCall& call) {
  const std::string asked = get_string(body, "request_id");
  call.id = asked.empty() ? random_id(id_prefix) : id_prefix + asked;
  call.created = unix_time();
  call.stream = get_bool(body, "stream");
  call.token_ids = get_bool(body, "return_token_ids");
  call.tokens_as_ids = get_bool(body, "return_tokens_as_token_ids");
  call.prompt_text = get_bool(body, "return_prompt_text");
  call.timings_per_token = get_bool(body, "timings_per_token");
  call.progress = call.stream && get_bool(body, "return_progress");
  call.generation.watches_prompts = call.progress;
  call.timings = get_bool(body, "timings", call.timings_per_token);
  const json& options = get_field(body, "stream_options");
  if (options.is_object() && !call.stream)
    return errorf(ErrorCode::kInvalidArgument, "stream_options: only with stream: true");
  const bool forced = services.config.force_include_usage;
  call.include_usage = forced || (options.is_object() && get_bool(options, "include_usage"));
  const bool wanted = options.is_object() ? get_bool(options, "continuous_usage_stats") : forced;
  call.continuous_usage = call.include_usage && wanted;
  return {};
}

json envelope(const OpenAiCall& call, const char* object) {
  return {{"id", call.id},
          {"object", object},
          {"created", call.created},
          {"model", call.generation.name()},
          {"system_fingerprint", call.generation.model->fingerprint()}};
}

json usage_json(const Generation& generation, int n_reasoning_tokens) {
  json completion = {{"reasoning_tokens", n_reasoning_tokens}};
  if (generation.n_draft_tokens() > 0) {
    completion["accepted_prediction_tokens"] = generation.n_accepted_tokens();
    completion["rejected_prediction_tokens"] =
        generation.n_draft_tokens() - generation.n_accepted_tokens();
  }
  json prompt = {{"cached_tokens", generation.n_cached_tokens()}};
  add_cache_miss(generation, prompt);
  json usage = {{"prompt_tokens", generation.n_prompt_tokens()},
                {"completion_tokens", generation.n_completion_tokens()},
                {"total_tokens", generation.n_prompt_tokens() + generation.n_completion_tokens()},
                {"prompt_tokens_details", std::move(prompt)},
                {"completion_tokens_details", completion}};
  mark_kept(generation, usage);
  return usage;
}

json response_usage(const Generation& generation, int n_reasoning_tokens) {
  json input = {{"cached_tokens", generation.n_cached_tokens()}};
  add_cache_miss(generation, input);
  json usage = {{"input_tokens", generation.n_prompt_tokens()},
                {"input_tokens_details", std::move(input)},
                {"output_tokens", generation.n_completion_tokens()},
                {"output_tokens_details", {{"reasoning_tokens", n_reasoning_tokens}}},
                {"total_tokens", generation.n_prompt_tokens() + generation.n_completion_tokens()}};
  mark_kept(generation, usage);
  return usage;
}

void mark_kept(const Generation& generation, json& usage) {
  if (generation.call().kept_by != nullptr) usage["reply_cache"] = generation.call().kept_by;
}

std::string json_text(const std::string& text) {
  const bool plain = std::ranges::all_of(text, [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\' && c != 0x7f;
  });
  return plain ? '"' + text + '"' : dump(json(text));
}

StreamEvents::StreamEvents(const OpenAiCall& call, const char* object)
    : usage_(call.continuous_usage) {
  const std::string rest = dump(envelope(call, object));
  common_ = "]," + rest.substr(1, rest.size() - 2);
}

std::string StreamEvents::event(std::span<const std::string_view> choice,
                                const Generation& generation, int n_tokens,
                                std::string_view more) const {
  size_t size = common_.size() + 32;
  for (const std::string_view piece : choice) size += piece.size();
  std::string text;
  text.reserve(size);
  text.append("data: {\"choices\":[");
  for (const std::string_view piece : choice) text.append(piece);
  text.append(common_);
  if (usage_) {
    const int n_prompt = generation.n_prompt_tokens();
    text +=
        fmt::format(R"(,"usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}})",
                    n_prompt, n_tokens, n_prompt + n_tokens);
  }
  return text.append(more).append("}\n\n");
}

json timings_json(const Generation& generation) {
  double queued = 0, gap = 0;
  int preemptions = 0;
  RequestStats slowest;
  for (const RequestOutput& output : generation.outputs()) {
    for (const CompletionOutput& one : output.outputs) {
      queued = std::max(queued, one.stats.queued_seconds);
      slowest.prefill_seconds = std::max(slowest.prefill_seconds, one.stats.prefill_seconds);
      slowest.decode_seconds = std::max(slowest.decode_seconds, one.stats.decode_seconds);
      gap = std::max(gap, one.stats.max_inter_token_seconds);
      preemptions += one.stats.preemptions;
    }
  }
  slowest.cached_tokens = generation.n_cached_tokens();
  slowest.draft_tokens = generation.n_draft_tokens();
  slowest.accepted_tokens = generation.n_accepted_tokens();
  json timings = {{"queued_ms", queued * 1000},
                  {"prefill_ms", slowest.prefill_seconds * 1000},
                  {"decode_ms", slowest.decode_seconds * 1000},
                  {"max_inter_token_ms", gap * 1000},
                  {"preemptions", preemptions}};
  timings.update(
      llamacpp_timings(slowest, generation.n_prompt_tokens(), generation.n_completion_tokens()));
  return timings;
}

void add_totals(const OpenAiCall& call, const Generation& generation, json& body,
                int n_reasoning_tokens) {
  body["usage"] = usage_json(generation, n_reasoning_tokens);
  if (call.timings) body["timings"] = timings_json(generation);
}

std::string stream_tail(const OpenAiCall& call, const Generation& generation, const char* object,
                        int n_reasoning_tokens) {
  std::string tail;
  if (call.include_usage || call.timings) {
    json chunk = envelope(call, object);
    chunk["choices"] = json::array();
    add_totals(call, generation, chunk, n_reasoning_tokens);
    tail = sse(chunk);
  }
  return tail + "data: [DONE]\n\n";
}

json stop_reason_json(const StopReason& reason) {
  if (const auto* token = std::get_if<TokenId>(&reason)) return *token;
  if (const auto* text = std::get_if<std::string>(&reason)) return *text;
  return nullptr;
}

json prompt_logprobs_json(const Tokenizer& tokenizer, const RequestOutput& output) {
  const TokenNames names(tokenizer, false);
  json list = json::array();
  for (const auto& row : output.prompt_logprobs) {
    if (row.empty()) {
      list.push_back(nullptr);
      continue;
    }
    json one = json::object();
    for (const TokenLogprob& value : row) {
      add_member(one, std::to_string(value.token),
                 {{"logprob", finite(value.logprob)},
                  {"rank", value.rank},
                  {"decoded_token", names(value.token)}});
    }
    drop_repeated_members(one);
    list.push_back(std::move(one));
  }
  return list;
}

std::string TokenNames::operator()(TokenId token) const {
  if (as_ids_) return fmt::format("token_id:{}", token);
  const std::string bytes(tokenizer_->token_bytes(token, false));
  if (is_utf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

// The offset of a token that begins inside a character is that of the character.
void LegacyLogprobs::add_offset(std::string_view bytes) {
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  const bool inside = !bytes.empty() && continues(bytes[0]) && n_characters_ > 0;
  offsets_.push_back(n_characters_ - (inside ? 1 : 0));
  n_characters_ += static_cast<size_t>(std::ranges::count_if(bytes, std::not_fn(continues)));
}

void LegacyLogprobs::add_row(const std::vector<TokenLogprob>& row) {
  tokens_.push_back(names_(row[0].token));
  logprobs_.push_back(finite(row[0].logprob));
  json top = json::object();
  TextSet texts;
  const auto add = [&](const TokenLogprob& value) {
    std::string text = names_(value.token);
    if (texts.insert(text).second) add_member(top, std::move(text), finite(value.logprob));
  };
  const size_t n = std::min(row.size() - 1, static_cast<size_t>(std::max(n_top_, 0)));
  for (size_t i = 1; i <= n; ++i) add(row[i]);
  add(row[0]);  // the chosen token must always be included
  top_.push_back(std::move(top));
}

void LegacyLogprobs::add(const std::vector<TokenLogprob>& row) {
  if (row.empty()) return;
  const TokenId token = row[0].token;
  const bool hidden = !shows_special_ && names_.tokenizer().is_special(token);
  add_offset(hidden ? std::string_view() : names_.tokenizer().token_bytes(token));
  add_row(row);
}

void LegacyLogprobs::add_prompt(const std::vector<TokenId>& prompt,
                                const std::vector<std::vector<TokenLogprob>>& rows,
                                std::string_view text) {
  const Tokenizer& tokenizer = names_.tokenizer();
  const size_t n_whole = static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  bool first = true;
  for (size_t i = 0; i < prompt.size(); ++i) {
    std::string_view bytes = tokenizer.token_bytes(prompt[i], first);
    // Special tokens that the tokenizer added are not part of the text: the following token starts
    // at offset 0.
    const bool around = tokenizer.is_special(prompt[i]) && !text.starts_with(bytes);
    if (around) bytes = {};
    first = first && around;
    add_offset(bytes);
    text.remove_prefix(std::min(bytes.size(), text.size()));
    if (i > 0 && i < rows.size() && !rows[i].empty()) {
      add_row(rows[i]);
      continue;
    }
    tokens_.push_back(names_(prompt[i]));
    logprobs_.push_back(nullptr);
    top_.push_back(nullptr);
  }
  n_characters_ = n_whole;
}

json LegacyLogprobs::take() {
  json result = {{"tokens", std::move(tokens_)},
                 {"token_logprobs", std::move(logprobs_)},
                 {"top_logprobs", std::move(top_)},
                 {"text_offset", std::move(offsets_)}};
  tokens_ = logprobs_ = top_ = offsets_ = json::array();
  return result;
}

json chat_logprob_json(const TokenNames& names, const std::vector<TokenLogprob>& row) {
  const auto one = [&](const TokenLogprob& value) {
    const std::string_view bytes = names.tokenizer().token_bytes(value.token);
    json list = json::array();
    for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
    return json{{"token", names(value.token)}, {"logprob", finite(value.logprob)}, {"bytes", list}};
  };
  json result = one(row[0]);
  result["top_logprobs"] = json::array();
  for (size_t i = 1; i < row.size(); ++i) result["top_logprobs"].push_back(one(row[i]));
  return result;
}

}  // namespace penstock
