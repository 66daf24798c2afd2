// What the endpoints read: one JSON schema each. It checks the request (json_check.h), lists the
// fields in /openapi.json and is the policy for the rest: a field that no schema lists is refused
// by name. A field that allows nothing but null (or its default) is known and not supported; its
// description says so.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace penstock {

// The error of a message that is to begin or continue a conversation that the server keeps.
inline constexpr const char* kNoThreads = "thread: conversations are not kept, send all messages";

const nlohmann::json& generate_request();
const nlohmann::json& completion_request();
const nlohmann::json& chat_request();
const nlohmann::json& chat_batch_request();  // vLLM's: several conversations
const nlohmann::json& responses_request();
const nlohmann::json& messages_request();
const nlohmann::json& count_tokens_request();
const nlohmann::json& tokenize_request();
const nlohmann::json& apply_template_request();
const nlohmann::json& detokenize_request();
const nlohmann::json& grammar_check_request();
const nlohmann::json& ollama_chat_request();
const nlohmann::json& ollama_generate_request();

// What a 200 reply looks like.
const nlohmann::json& status_reply();
const nlohmann::json& load_reply();
const nlohmann::json& version_reply();
// totals and averages, null before the first request, and more
const nlohmann::json& numbers_reply();
const nlohmann::json& models_reply();
const nlohmann::json& model_reply();
const nlohmann::json& generate_reply();
const nlohmann::json& completion_reply();
const nlohmann::json& chat_reply();
const nlohmann::json& responses_reply();
const nlohmann::json& messages_reply();
const nlohmann::json& count_tokens_reply();
const nlohmann::json& tokenize_reply();
const nlohmann::json& detokenize_reply();
const nlohmann::json& grammar_check_reply();
const nlohmann::json& tokenizer_info_reply();
const nlohmann::json& error_reply_schema();

}  // namespace penstock
