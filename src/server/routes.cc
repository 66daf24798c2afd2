#include "server/endpoints.h"

namespace penstock {
namespace {

constexpr const char* kGenerateSchema =
    R"({"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"},"stream":{"type":["boolean","null"]}}})";
constexpr const char* kCompletionSchema =
    R"({"type":"object","required":["prompt"],"properties":{"model":{"type":["string","null"]},"prompt":{"oneOf":[{"type":"string"},{"type":"array"}]},"stream":{"type":["boolean","null"]},"echo":{"type":["boolean","null"]}}})";
constexpr const char* kChatSchema =
    R"({"type":"object","required":["messages"],"properties":{"model":{"type":["string","null"]},"messages":{"type":"array","minItems":1,"items":{"type":"object","required":["role"],"properties":{"role":{"type":"string"},"content":{}}}},"stream":{"type":["boolean","null"]}}})";
constexpr const char* kTokenizeSchema =
    R"({"type":"object","properties":{"prompt":{"type":"string"},"messages":{"type":"array"},"add_special_tokens":{"type":["boolean","null"]}}})";
constexpr const char* kDetokenizeSchema =
    R"({"type":"object","required":["tokens"],"properties":{"tokens":{"type":"array","items":{"type":"integer"}}}})";

constexpr Route kRoutes[] = {
    {"GET", "/", Access::kOpen, get_page, "the web page", nullptr},
    {"GET", "/dashboard", Access::kOpen, get_page, "the web page, opened at its live charts", nullptr},
    {"GET", "/ui/{id}", Access::kOpen, get_page_file, "a file of the web page", nullptr},
    {"GET", "/health", Access::kOpen, get_health, "the process is alive", nullptr},
    {"GET", "/ready", Access::kOpen, get_ready, "requests are accepted", nullptr},
    {"GET", "/version", Access::kKey, get_version, "version of the server", nullptr},
    {"GET", "/metrics", Access::kKey, get_metrics, "Prometheus metrics", nullptr},
    {"GET", "/v1/metrics", Access::kKey, get_metrics_json, "totals and averages as JSON", nullptr},
    {"GET", "/v1/models", Access::kKey, get_models, "served models", nullptr},
    {"GET", "/v1/models/{id}", Access::kKey, get_model, "one served model", nullptr},
    {"POST", "/v1/generate", Access::kKey, post_generate, "one prompt, one text", kGenerateSchema},
    {"POST", "/v1/completions", Access::kKey, post_completions, "OpenAI completions", kCompletionSchema},
    {"POST", "/v1/chat/completions", Access::kKey, post_chat_completions, "OpenAI chat completions", kChatSchema},
    {"POST", "/tokenize", Access::kKey, post_tokenize, "text or messages to token ids", kTokenizeSchema},
    {"POST", "/detokenize", Access::kKey, post_detokenize, "token ids to text", kDetokenizeSchema},
    {"GET", "/tokenizer_info", Access::kKey, get_tokenizer_info, "special tokens and chat template", nullptr},
    {"GET", "/openapi.json", Access::kKey, get_openapi, "this list as OpenAPI 3.1", nullptr},
};

}  // namespace

std::span<const Route> routes() { return kRoutes; }

}  // namespace penstock
