// The JSON schemas of all endpoints. A schema checks the request (json_check.h), lists its fields
// in /openapi.json and defines the policy for others: unlisted fields are refused by name. A field
// that accepts only null (or its default) is known but not supported; its description says so.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace penstock {

// Error for a message that starts or continues a server-side thread.
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

// The schemas of 200 replies.
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
