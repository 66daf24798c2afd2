// The handlers that routes.cc lists; each is defined in the file of its endpoint.
#pragma once
#include "server/server.h"

namespace penstock {

net::awaitable<void> get_health(Server& server, Exchange& exchange);
net::awaitable<void> get_ready(Server& server, Exchange& exchange);
net::awaitable<void> get_load(Server& server, Exchange& exchange);
net::awaitable<void> get_version(Server& server, Exchange& exchange);
net::awaitable<void> get_metrics(Server& server, Exchange& exchange);
net::awaitable<void> get_metrics_json(Server& server, Exchange& exchange);
net::awaitable<void> post_reset_prefix_cache(Server& server, Exchange& exchange);
net::awaitable<void> get_models(Server& server, Exchange& exchange);
net::awaitable<void> get_model(Server& server, Exchange& exchange);
net::awaitable<void> post_generate(Server& server, Exchange& exchange);
net::awaitable<void> post_completions(Server& server, Exchange& exchange);
net::awaitable<void> post_chat_completions(Server& server, Exchange& exchange);
net::awaitable<void> post_responses(Server& server, Exchange& exchange);
net::awaitable<void> post_messages(Server& server, Exchange& exchange);
net::awaitable<void> post_count_tokens(Server& server, Exchange& exchange);
net::awaitable<void> post_tokenize(Server& server, Exchange& exchange);
net::awaitable<void> post_detokenize(Server& server, Exchange& exchange);
net::awaitable<void> get_tokenizer_info(Server& server, Exchange& exchange);
net::awaitable<void> get_openapi(Server& server, Exchange& exchange);
net::awaitable<void> get_page(Server& server, Exchange& exchange);
net::awaitable<void> get_page_file(Server& server, Exchange& exchange);

}  // namespace penstock
