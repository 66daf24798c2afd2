#include "server/api/ollama.h"

#include <fmt/chrono.h>
#include <charconv>
#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "base/ordered_json.h"
#include "server/api/api_request.h"
#include "server/api/conversation_parts.h"
#include "server/api/conversations.h"
#include "server/api/renamed_params.h"
#include "server/api/schema_parts.h"
#include "server/routing/errors.h"
#include "server/services/request_record.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {
namespace {

// Ollama's options and this server's fields.
constexpr RenamedParam kSamplingOptions[] = {{"temperature", "temperature"},
                                             {"top_k", "top_k"},
                                             {"top_p", "top_p"},
                                             {"min_p", "min_p"},
                                             {"typical_p", "typical_p"},
                                             {"repeat_penalty", "repetition_penalty"},
                                             {"presence_penalty", "presence_penalty"},
                                             {"frequency_penalty", "frequency_penalty"},
                                             {"repeat_last_n", "penalty_last_n"},
                                             {"mirostat", "mirostat"},
                                             {"mirostat_tau", "mirostat_tau"},
                                             {"mirostat_eta", "mirostat_eta"},
                                             {"stop", "stop"}};

// Ollama's default number of tokens for penalties.
constexpr int kRepeatLastN = 64;

// Options about loading a model, which do not apply to a running one.
constexpr const char* kLoadCounts[] = {"num_batch", "num_gpu", "main_gpu", "num_thread",
                                       "num_keep"};
constexpr const char* kLoadFlags[] = {"numa",           "low_vram",         "f16_kv",
                                      "vocab_only",     "use_mmap",         "use_mlock",
                                      "embedding_only", "penalize_newline", "logits_all"};

// Assigns ids: results match calls by name if given, else by order, since Ollama's messages have no
// ids.
class CallIds {
 public:
  std::string add(const std::string& name) {
    open_.insert(n_);
    by_name_[name].push_back(n_);
    return id_of(n_++);
  }
  std::string take(const std::string& name) {
    std::deque<int>& named = by_name_[name];
    while (!named.empty() && !open_.contains(named.front())) named.pop_front();
    if (open_.empty()) return id_of(n_++);
    const int n = named.empty() ? *open_.begin() : named.front();
    open_.erase(n);
    return id_of(n);
  }

 private:
  static std::string id_of(int n) { return fmt::format("call{:05}", n); }

  int n_ = 0;
  std::set<int> open_;                              // unanswered calls
  std::map<std::string, std::deque<int>> by_name_;  // calls, those that were open last time
};

json message_of_ollama(json& given, CallIds& ids) {
  const std::string role = get_string(given, "role");
  json message = {{"role", role}};
  reserve_members(message, 5);
  json content = take_field(given, "content");
  message["content"] = content.is_string() ? std::move(content) : json("");
  if (json text = take_field(given, "thinking");
      text.is_string() && !text.get_ref<const std::string&>().empty())
    message["reasoning_content"] = std::move(text);
  const json& calls = get_field(given, "tool_calls");
  for (size_t i = 0; calls.is_array() && i < calls.size(); ++i) {
    const json& function = calls[i]["function"];
    const std::string name = get_string(function, "name");
    const json& arguments = get_field(function, "arguments");
    message["tool_calls"].push_back(
        {{"id", ids.add(name)},
         {"type", "function"},
         {"function",
          {{"name", name}, {"arguments", arguments.is_null() ? json::object() : arguments}}}});
  }
  if (role == "tool") {
    const std::string name = get_string(given, "tool_name", get_string(given, "name"));
    message["tool_call_id"] = ids.take(name);
    if (!name.empty()) message["name"] = name;
  }
  return message;
}

Status check_options(const json& options, const ServedModel& model) {
  const int64_t n_ctx = get_int(options, "num_ctx", 0);
  if (n_ctx > model.max_model_len()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "options.num_ctx: expected at most {} (see --max-model-len), got {}",
                  model.max_model_len(), n_ctx);
  }
  return {};
}

}  // namespace

HttpReply ollama_error(const Error& error) {
  HttpReply reply = error_reply(error);
  reply.body = ollama_error_body(error.message);
  return reply;
}

std::string rfc3339(std::chrono::system_clock::time_point time) {
  using namespace std::chrono;  // NOLINT: durations
  const auto micros = duration_cast<microseconds>(time.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z",
                     fmt::gmtime(static_cast<std::time_t>(micros / 1000000)), micros % 1000000);
}

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

std::string ollama_name(const json& body, const ServedModel& model) {
  const std::string name = get_string(body, "model");
  return name.empty() ? model.name() : name;
}

json with_images(json images, std::string text, const std::string& where) {
  json parts = json::array();
  for (size_t i = 0; i < images.size(); ++i) {
    parts.push_back(image_part(data_url("", images[i].get_ref<const std::string&>()),
                               fmt::format("{}[{}]", where, i)));
  }
  parts.push_back(text_part(std::move(text)));
  return parts;
}

Result<Conversation> conversation_of_ollama(json& body) {
  json chat = {{"messages", json::array()}, {"tools", take_field(body, "tools")}};
  CallIds ids;
  json& messages = body["messages"];
  for (size_t i = 0; i < messages.size(); ++i) {
    json images = take_field(messages[i], "images");
    chat["messages"].push_back(message_of_ollama(messages[i], ids));
    if (!images.is_array() || images.empty()) continue;
    json& message = chat["messages"].back();
    message["content"] = with_images(std::move(images), take_string(message, "content"),
                                     fmt::format("messages[{}].images", i));
  }
  if (chat["tools"].is_array() && chat["tools"].empty()) chat["tools"] = nullptr;
  const json& last = chat["messages"].back();
  if (last["role"] == "assistant" && !last.contains("tool_calls"))
    chat["continue_final_message"] = true;
  return conversation_of_chat(chat);
}

Status read_think(const json& body, const ServedModel& model, Conversation& conversation) {
  const json& think = get_field(body, "think");
  if (think.is_null()) return {};
  const bool wants = think.is_string() || think.get<bool>();
  if (wants && !model.chat().thinking_budget(0, false)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "think: {} does not support thinking (see --reasoning-parser)", model.name());
  }
  if (!conversation.variables.is_object()) conversation.variables = json::object();
  conversation.variables["enable_thinking"] = wants;
  if (think.is_string()) conversation.variables["reasoning_effort"] = think;
  return {};
}

Result<json> params_of_ollama(const json& body, const ServedModel& model) {
  const json& options = get_field(body, "options");
  RETURN_IF_ERROR(check_options(options, model));
  json params = json::object();
  take_renamed(options, kSamplingOptions, params);
  if (!params.contains("penalty_last_n")) params["penalty_last_n"] = kRepeatLastN;
  if (const int64_t n = get_int(options, "num_predict", 0); n > 0) params["max_tokens"] = n;
  if (const json& seed = get_field(options, "seed"); seed.is_number() && seed >= 0)
    params["seed"] = seed;
  const json& format = get_field(body, "format");
  if (format == "json") params["response_format"] = {{"type", "json_object"}};
  if (format.is_object()) params["json_schema"] = format;
  const int64_t top = get_int(body, "top_logprobs", 0);
  if (top > 0 && !get_bool(body, "logprobs"))
    return errorf(ErrorCode::kInvalidArgument, "top_logprobs: needs logprobs: true");
  if (get_bool(body, "logprobs")) params["logprobs"] = top;
  return params;
}

namespace {

// Parses "1h30m", "300ms", "-1s", or seconds without a unit; nullopt: malformed.
std::optional<double> seconds_of_time(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
  double total = 0;
  const bool bare =
      !text.empty() && text.find_first_not_of("0123456789.") == std::string_view::npos;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    double number = 0;
    if (text[0] != '.' && (text[0] < '0' || text[0] > '9')) return std::nullopt;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    const std::string_view unit =
        text.substr(0, std::min(text.find_first_of("0123456789."), text.size()));
    const auto found = std::ranges::find(kUnits, unit, &std::pair<std::string_view, double>::first);
    if (found == std::end(kUnits) && !bare) return std::nullopt;
    total += number * (bare ? 1 : found->second);
    text.remove_prefix(unit.size());
  }
  return negative ? -total : total;
}

}  // namespace

Status read_keep_alive(Services& services, const HttpRequest& request, const json& body,
                       ServedModel& model) {
  const json& keep = get_field(body, "keep_alive");
  if (keep.is_null()) return {};
  std::optional<double> seconds;
  if (keep.is_number()) seconds = keep.get<double>();
  if (keep.is_string() && keep != "") seconds = seconds_of_time(keep.get_ref<const std::string&>());
  if (!seconds || !std::isfinite(*seconds)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "keep_alive: expected seconds or a time such as 5m, got {:.40}", dump(keep));
  }
  if (!record_of(request).key.empty()) return {};
  constexpr double kForever = 1e9;
  std::optional<std::chrono::milliseconds> time;
  if (*seconds >= 0 && *seconds < kForever) time.emplace(static_cast<int64_t>(*seconds * 1000));
  services.models.keep(model, time);
  return {};
}

nlohmann::json keep_alive_field() {
  return schema::field({"number", "string"},
                       "how long the model stays loaded after its last use, in seconds or as 5m; "
                       "below 0: for good. Of API keys only an admin's says so");
}

namespace {

nlohmann::json option_fields() {
  using namespace schema;  // NOLINT: a schema
  Json fields = schemas_of_renamed(kSamplingOptions);
  const Json some = {{"type", "string"}, {"minLength", 1}};
  fields["stop"] = any_of(
      {some,
       {{"type", "array"}, {"items", some}, {"maxItems", 1024}, {"title", "a list of strings"}}},
      "strings that end the text");
  fields["num_predict"] =
      integer(-2, INT32_MAX, "most tokens to generate; 0 and below: what fits the context");
  fields["seed"] = field({"integer"}, "random seed; below 0: any");
  fields["num_ctx"] = integer(-1, INT32_MAX,
                              "no effect: the context is the server's, and at most that may be "
                              "asked; 0 and -1: whatever it is");
  fields["repeat_last_n"] =
      integer(-1, INT32_MAX,
              "last tokens that the penalties look at, 64 where this is absent; -1: all; 0: none");
  fields["tfs_z"] = only(1.0, "not supported by this server");
  for (const char* name : kLoadCounts)
    fields[name] = field({"integer"}, "no effect: the model is loaded");
  for (const char* name : kLoadFlags) fields[name] = boolean("no effect: the model is loaded");
  return fields;
}

}  // namespace

nlohmann::json ollama_fields() {
  using namespace schema;  // NOLINT: a schema
  const Json empty = {{"enum", {""}}, {"title", "\"\""}},
             as_json = {{"enum", {"json"}}, {"title", "\"json\""}};
  const Json think = {{"enum", {"low", "medium", "high", "max"}},
                      {"title", "low, medium, high or max"}};
  return {{"model", text("the served model's name, with or without :latest")},
          {"stream", boolean("lines of JSON (also when absent) or one object")},
          {"options", any_of({closed(option_fields())},
                             "how to sample; what is absent is the model's default")},
          {"format", any_of({empty, as_json, plain("object")},
                            "\"json\", or a JSON schema that the text obeys")},
          {"keep_alive", keep_alive_field()},
          {"think", any_of({plain("boolean"), think}, "whether, or how much, to reason")},
          {"logprobs", boolean("return the log-probabilities of the tokens")},
          {"top_logprobs", integer(0, INT32_MAX, "and of this many most likely alternatives")},
          {"truncate", only(false, "a prompt that is too long is an error")},
          {"shift", only(false, "a text ends where the context does")}};
}

}  // namespace penstock
