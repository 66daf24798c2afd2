#include "server/api/llamacpp_chat.h"

#include "base/ordered_json.h"
#include "frontend/random_id.h"
#include "server/api/api_request.h"
#include "server/api/llamacpp.h"
#include "server/api/schema_parts.h"

namespace penstock {
namespace {

struct ChatName {
  const char* name;   // llama.cpp's name
  const char* field;  // this server's name
};
constexpr ChatName kChatNames[] = {{"repeat_penalty", "repetition_penalty"},
                                   {"repeat_last_n", "penalty_last_n"},
                                   {"typ_p", "typical_p"},
                                   {"n_predict", "max_tokens"},
                                   {"thinking_budget_tokens", "thinking_token_budget"}};

Status rename_fields(json& body) {
  for (const ChatName& one : kChatNames) {
    const json value = take_field(body, one.name);
    if (value.is_null()) continue;
    if (!get_field(body, one.field).is_null())
      return errorf(ErrorCode::kInvalidArgument, "{}: cannot stand beside {}", one.name, one.field);
    body[one.field] = value;
  }
  return {};
}

// Removes negative values, which mean that the field is unset.
void drop_unset(json& body) {
  for (const char* name : {"max_tokens", "max_completion_tokens", "seed", "top_k"}) {
    const json& value = get_field(body, name);
    if (value.is_number_integer() && value < 0) body[name] = nullptr;
  }
}

Status take_probabilities(json& body) {
  const int64_t n = get_int(body, "n_probs", 0);
  if (n <= 0) return {};
  for (const char* name : {"logprobs", "top_logprobs"}) {
    if (!get_field(body, name).is_null())
      return errorf(ErrorCode::kInvalidArgument, "n_probs: cannot stand beside {}", name);
  }
  body["logprobs"] = true;
  body["top_logprobs"] = n;
  return {};
}

}  // namespace

Status take_llamacpp_chat_fields(json& body, const ServedModel& model) {
  constexpr size_t kMostNew = 24;
  reserve_members(body, body.size() + kMostNew);
  RETURN_IF_ERROR(rename_fields(body));
  drop_unset(body);
  read_samplers(body, body);
  RETURN_IF_ERROR(take_probabilities(body));
  if (!get_field(body, "logit_bias").is_null()) {
    json biases = json::object();
    RETURN_IF_ERROR(read_bias(body, model.tokenizer(), biases));
    take_field(body, "logit_bias");
    for (auto& [name, value] : biases.items()) {
      json& list = body[name];
      if (list.is_array())
        list.insert(list.end(), value.begin(), value.end());
      else
        list = value;
    }
  }
  // A prompt that must not be read from the cache must not be stored for others either.
  if (!get_bool(body, "cache_prompt", true)) body["cache_salt"] = random_id("once-");
  return {};
}

nlohmann::json llamacpp_chat_fields() {
  using namespace schema;  // NOLINT: a schema
  Json fields = Json::object();
  const Json all = llamacpp_fields();
  for (const char* name : {"repeat_penalty",
                           "repeat_last_n",
                           "n_predict",
                           "n_probs",
                           "samplers",
                           "logit_bias",
                           "cache_prompt",
                           "timings_per_token",
                           "return_progress",
                           "id_slot",
                           "n_keep",
                           "n_discard",
                           "n_cache_reuse",
                           "t_max_prompt_ms",
                           "dynatemp_exponent",
                           "dynatemp_range",
                           "min_keep",
                           "top_n_sigma",
                           "post_sampling_probs",
                           "lora"}) {
    fields[name] = all[name];
  }
  fields["typ_p"] = all["typical_p"];
  fields["n_predict"] = integer(-2, INT32_MAX, "max_tokens; below 0: what fits the context");
  fields["n_probs"] = integer(0, INT32_MAX, "logprobs: true with so many top_logprobs");
  fields["max_tokens"] =
      integer(-1, INT32_MAX, "most tokens to generate; -1, or absent: what fits the context");
  fields["thinking_budget_tokens"] = integer(-1, INT32_MAX, "thinking_token_budget");
  fields["t_max_predict_ms"] = only(0, "of /completion");
  fields["n_indent"] = only(0, "of /completion");
  fields["parse_tool_calls"] = only(true, "calls are always told apart");
  fields["reasoning_format"] =
      one_of({"auto", "deepseek", "none"}, "none: reasoning stays in the text, with its marks");
  return fields;
}

}  // namespace penstock
