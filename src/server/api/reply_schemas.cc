#include "server/api/schema_parts.h"
#include "server/api/schemas.h"

namespace penstock {
namespace {

using namespace schema;  // NOLINT: this file is nothing but schemas

Json counts(std::initializer_list<const char*> names) {
  Json properties = Json::object(), required = Json::array();
  for (const char* name : names) {
    properties[name] = {{"type", "integer"}, {"minimum", 0}};
    required.push_back(name);
  }
  return open(std::move(properties), std::move(required));
}

Json exactly(const char* value) { return {{"enum", {value}}}; }
Json or_null(const char* type) { return {{"type", {type, "null"}}}; }
Json items(Json of) { return {{"type", "array"}, {"items", std::move(of)}}; }

Json choices(Json choice) {
  return {{"type", "array"}, {"items", std::move(choice)}, {"minItems", 1}};
}

// {id, object, created, model, choices, usage}
Json openai_reply(const char* object, Json choice) {
  return open({{"id", plain("string")},
               {"object", exactly(object)},
               {"created", plain("integer")},
               {"model", plain("string")},
               {"choices", choices(std::move(choice))},
               {"usage", counts({"prompt_tokens", "completion_tokens", "total_tokens"})}},
              {"id", "object", "created", "model", "choices", "usage"});
}

Json model_object() {
  return open({{"id", plain("string")},
               {"object", exactly("model")},
               {"created", plain("integer")},
               {"owned_by", plain("string")},
               {"max_model_len", {{"type", {"integer", "null"}}}},
               {"input_modalities", list(plain("string"), "text, image, audio")},
               {"state", plain("string")},
               {"type", exactly("model")},
               {"display_name", plain("string")},
               {"created_at", plain("string")}},
              {"id", "object", "created", "owned_by", "max_model_len", "state", "type",
               "display_name", "created_at"});
}

}  // namespace

const Json& status_reply() {
  static const Json value = open({{"status", plain("string")}}, {"status"});
  return value;
}

const Json& load_reply() {
  static const Json value = open({{"server_load", plain("integer")}}, {"server_load"});
  return value;
}

const Json& version_reply() {
  static const Json value = open({{"version", plain("string")}}, {"version"});
  return value;
}

const Json& numbers_reply() {
  static const Json value = [] {
    Json properties = Json::object(), required = Json::array();
    for (const char* name : {"total_requests", "total_tokens", "avg_latency_ms",
                             "avg_tokens_per_second", "avg_batch_size"}) {
      properties[name] = or_null("number");
      required.push_back(name);
    }
    return open(std::move(properties), std::move(required));
  }();
  return value;
}

const Json& models_reply() {
  static const Json value = open({{"object", exactly("list")},
                                  {"data", items(model_object())},
                                  {"has_more", plain("boolean")},
                                  {"first_id", or_null("string")},
                                  {"last_id", or_null("string")}},
                                 {"object", "data", "has_more", "first_id", "last_id"});
  return value;
}

const Json& model_reply() {
  static const Json value = model_object();
  return value;
}

const Json& generate_reply() {
  static const Json value = open({{"text", plain("string")},
                                  {"tokens_generated", plain("integer")},
                                  {"latency_ms", plain("number")},
                                  {"tokens_per_second", plain("number")},
                                  {"prompt_tokens", plain("integer")},
                                  {"finish_reason", plain("string")}},
                                 {"text", "tokens_generated", "latency_ms", "tokens_per_second"});
  return value;
}

const Json& completion_reply() {
  static const Json value = openai_reply(
      "text_completion", open({{"index", plain("integer")},
                               {"text", plain("string")},
                               {"logprobs", or_null("object")},
                               {"finish_reason", {{"enum", {"stop", "length", "abort", "error"}}}}},
                              {"index", "text", "logprobs", "finish_reason"}));
  return value;
}

const Json& chat_reply() {
  const Json call = open(
      {{"id", plain("string")},
       {"type", exactly("function")},
       {"function",
        open({{"name", plain("string")}, {"arguments", plain("string")}}, {"name", "arguments"})}},
      {"id", "type", "function"});
  static const Json value = openai_reply(
      "chat.completion",
      open({{"index", plain("integer")},
            {"message", open({{"role", exactly("assistant")},
                              {"content", or_null("string")},
                              {"reasoning", or_null("string")},
                              {"tool_calls", items(call)}},
                             {"role", "content"})},
            {"logprobs", or_null("object")},
            {"finish_reason", {{"enum", {"stop", "length", "tool_calls", "abort", "error"}}}}},
           {"index", "message", "logprobs", "finish_reason"}));
  return value;
}

const Json& responses_reply() {
  static const Json value = open(
      {{"id", plain("string")},
       {"object", exactly("response")},
       {"created_at", plain("number")},
       {"status",
        {{"enum", {"completed", "incomplete", "failed", "in_progress", "queued", "cancelled"}}}},
       {"model", plain("string")},
       {"output",
        items(open({{"type", plain("string")}, {"id", plain("string")}}, {"type", "id"}))},
       {"usage",
        {{"anyOf",
          {counts({"input_tokens", "output_tokens", "total_tokens"}), {{"type", "null"}}}}}}},
      {"id", "object", "created_at", "status", "model", "output", "usage"});
  return value;
}

const Json& messages_reply() {
  static const Json value =
      open({{"id", plain("string")},
            {"type", exactly("message")},
            {"role", exactly("assistant")},
            {"model", plain("string")},
            {"content", items(open({{"type", plain("string")}}, {"type"}))},
            {"stop_reason", {{"enum", {"end_turn", "max_tokens", "stop_sequence", "tool_use"}}}},
            {"stop_sequence", or_null("string")},
            {"usage", counts({"input_tokens", "output_tokens"})}},
           {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"});
  return value;
}

const Json& count_tokens_reply() {
  static const Json value = counts({"input_tokens"});
  return value;
}

const Json& tokenize_reply() {
  static const Json value =
      open({{"count", plain("integer")},
            {"max_model_len", plain("integer")},
            {"tokens", items({{"type", {"integer", "object"}}})},
            {"token_strs", {{"type", {"array", "null"}}, {"items", plain("string")}}}},
           {"count", "max_model_len", "tokens"});
  return value;
}

const Json& detokenize_reply() {
  static const Json value = open({{"prompt", plain("string")}}, {"prompt"});
  return value;
}

const Json& grammar_check_reply() {
  const Json note =
      open({{"where", plain("string")}, {"message", plain("string")}}, {"where", "message"});
  const Json error = open({{"kind", {{"enum", {"unsupported", "invalid", "too_large"}}}},
                           {"param", plain("string")},
                           {"where", plain("string")},
                           {"keyword", or_null("string")},
                           {"message", plain("string")}},
                          {"kind", "param", "where", "keyword", "message"});
  static const Json value = open({{"ok", plain("boolean")},
                                  {"error", error},
                                  {"notes", {{"type", "array"}, {"items", note}}},
                                  {"canonical", plain("string")},
                                  {"compile_us", plain("number")}},
                                 {"ok"});
  return value;
}

const Json& tokenizer_info_reply() {
  static const Json value = open({{"tokenizer_class", plain("string")},
                                  {"bos_token", or_null("string")},
                                  {"eos_token", or_null("string")},
                                  {"pad_token", or_null("string")},
                                  {"unk_token", or_null("string")},
                                  {"chat_template", or_null("string")}},
                                 {"tokenizer_class"});
  return value;
}

const Json& error_reply_schema() {
  const Json error = open({{"message", plain("string")},
                           {"type", plain("string")},
                           {"param", or_null("string")},
                           {"code", {{"type", {"integer", "string", "null"}}}}},
                          {"message", "type"});
  static const Json value = open({{"error", error}}, {"error"});
  return value;
}

}  // namespace penstock
