// THE list of endpoints. A new one is a file of this folder, which may define its schemas too, its names here and its row.
#include "server/api/schemas.h"
#include "server/server.h"

namespace penstock {

Handler get_health, get_ready, get_load, get_version, get_metrics, get_metrics_json, post_reset_prefix_cache,
    get_models, get_model, post_generate, post_completions, post_chat_completions, post_responses,
    post_messages, post_count_tokens, post_tokenize, post_detokenize, post_apply_template, post_grammar_check,
    get_tokenizer_info, post_embeddings, post_pooling, post_classify, post_score, post_rerank, get_openapi,
    get_page, get_page_file, get_ollama_tags, get_ollama_ps, get_ollama_version, post_ollama_show,
    post_ollama_generate, post_ollama_chat, post_ollama_embed, post_ollama_embeddings, refuse_ollama;
RouteSchema embeddings_request, embeddings_reply, pooling_request, pooling_reply_schema, classify_request,
    classify_reply, score_request, score_reply, rerank_request, rerank_reply, ollama_show_request,
    ollama_embed_request, ollama_embeddings_request, ollama_models_reply, ollama_show_reply,
    ollama_chat_reply, ollama_generate_reply, ollama_embed_reply, ollama_embeddings_reply;

namespace {

constexpr Route kRoutes[] = {
    {"GET", "/", Access::kOpen, get_page, "the web page", nullptr, nullptr},
    {"GET", "/dashboard", Access::kOpen, get_page, "the web page, opened at its live charts", nullptr,
     nullptr},
    {"GET", "/ui/{id}", Access::kOpen, get_page_file, "a file of the web page", nullptr, nullptr},
    {"GET", "/health", Access::kOpen, get_health, "the process is alive", nullptr, status_reply},
    {"GET", "/ready", Access::kOpen, get_ready, "requests are accepted", nullptr, status_reply},
    {"GET", "/load", Access::kMetrics, get_load, "generating requests under way", nullptr, load_reply},
    {"GET", "/version", Access::kKey, get_version, "version of the server", nullptr, version_reply},
    {"GET", "/metrics", Access::kMetrics, get_metrics, "Prometheus metrics", nullptr, nullptr},
    {"GET", "/v1/metrics", Access::kMetrics, get_metrics_json, "totals and averages as JSON", nullptr,
     numbers_reply},
    {"POST", "/reset_prefix_cache", Access::kAdmin, post_reset_prefix_cache, "forget the cached prefixes",
     nullptr, nullptr},
    {"GET", "/v1/models", Access::kKey, get_models, "served models", nullptr, models_reply},
    {"GET", "/v1/models/{id}", Access::kKey, get_model, "one served model", nullptr, model_reply},
    {"POST", "/v1/generate", Access::kKey, post_generate, "one prompt, one text", generate_request,
     generate_reply, true},
    {"POST", "/v1/completions", Access::kKey, post_completions, "OpenAI completions", completion_request,
     completion_reply, true},
    {"POST", "/v1/chat/completions", Access::kKey, post_chat_completions, "OpenAI chat completions",
     chat_request, chat_reply, true},
    {"POST", "/v1/responses", Access::kKey, post_responses, "OpenAI responses", responses_request,
     responses_reply, true},
    {"POST", "/v1/messages", Access::kKey, post_messages, "Anthropic messages", messages_request,
     messages_reply, true},
    {"POST", "/v1/messages/count_tokens", Access::kKey, post_count_tokens, "tokens of such messages",
     count_tokens_request, count_tokens_reply},
    {"POST", "/v1/embeddings", Access::kKey, post_embeddings, "OpenAI embeddings", embeddings_request,
     embeddings_reply},
    {"POST", "/pooling", Access::kKey, post_pooling, "vectors of texts or of their tokens, or classes",
     pooling_request, pooling_reply_schema},
    {"POST", "/classify", Access::kKey, post_classify, "classes of texts", classify_request, classify_reply},
    {"POST", "/v1/score", Access::kKey, post_score, "how well pairs of texts go together", score_request,
     score_reply},
    {"POST", "/v1/rerank", Access::kKey, post_rerank, "documents by how well they fit a query (Jina's)",
     rerank_request, rerank_reply},
    {"POST", "/v2/rerank", Access::kKey, post_rerank, "the same (Cohere's)", rerank_request, rerank_reply},
    {"POST", "/tokenize", Access::kKey, post_tokenize, "text or messages to token ids", tokenize_request,
     tokenize_reply},
    {"POST", "/detokenize", Access::kKey, post_detokenize, "token ids to text", detokenize_request,
     detokenize_reply},
    {"POST", "/apply-template", Access::kKey, post_apply_template,
     "messages as the text that the model sees (llama.cpp's)", apply_template_request, detokenize_reply},
    {"POST", "/v1/grammar/check", Access::kKey, post_grammar_check,
     "whether texts can be held to a schema, regex, grammar or structural tag", grammar_check_request,
     grammar_check_reply},
    {"GET", "/tokenizer_info", Access::kKey, get_tokenizer_info, "special tokens and chat template", nullptr,
     tokenizer_info_reply},
    {"POST", "/api/generate", Access::kKey, post_ollama_generate, "Ollama's completions",
     ollama_generate_request, ollama_generate_reply, true},
    {"POST", "/api/chat", Access::kKey, post_ollama_chat, "Ollama's chats", ollama_chat_request,
     ollama_chat_reply, true},
    {"POST", "/api/embed", Access::kKey, post_ollama_embed, "Ollama's vectors of texts", ollama_embed_request,
     ollama_embed_reply},
    {"POST", "/api/embeddings", Access::kKey, post_ollama_embeddings, "the older one, of one text",
     ollama_embeddings_request, ollama_embeddings_reply},
    {"GET", "/api/tags", Access::kKey, get_ollama_tags, "served models as Ollama lists them", nullptr,
     ollama_models_reply},
    {"GET", "/api/ps", Access::kKey, get_ollama_ps, "the same: all of them are loaded", nullptr,
     ollama_models_reply},
    {"POST", "/api/show", Access::kKey, post_ollama_show, "one served model", ollama_show_request,
     ollama_show_reply},
    {"GET", "/api/version", Access::kKey, get_ollama_version, "version of the server", nullptr,
     version_reply},
    {"POST", "/api/pull", Access::kKey, refuse_ollama, "refused: models are chosen at the start", nullptr,
     nullptr},
    {"POST", "/api/push", Access::kKey, refuse_ollama, "refused likewise", nullptr, nullptr},
    {"POST", "/api/create", Access::kKey, refuse_ollama, "refused likewise", nullptr, nullptr},
    {"POST", "/api/copy", Access::kKey, refuse_ollama, "refused likewise", nullptr, nullptr},
    {"DELETE", "/api/delete", Access::kKey, refuse_ollama, "refused likewise", nullptr, nullptr},
    {"GET", "/openapi.json", Access::kKey, get_openapi, "this list as OpenAPI 3.1", nullptr, nullptr},
};

}  // namespace

std::span<const Route> routes() { return kRoutes; }

}  // namespace penstock
