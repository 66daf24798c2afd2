// POST /v1/chat/completions/input_tokens (llama.cpp's) and /v1/responses/input_tokens (OpenAI's):
// count the tokens of a request's prompt.
#include <algorithm>

#include "server/api/api_request.h"
#include "server/api/conversations.h"
#include "server/api/counted_text.h"
#include "server/api/response_call.h"
#include "server/api/schema_parts.h"
#include "server/api/schemas.h"
#include "server/handlers/answer.h"
#include "server/http/apart_threads.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/client_warnings.h"
#include "server/services/config.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema response_tokens_request, input_tokens_reply;

namespace {

Result<size_t> count_chat(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(services, request, chat_request()));
  RETURN_IF_ERROR(check_read_text(services, request, asked.fields));
  ASSIGN_OR_RETURN(AskedConversation conversation, conversation_of_chat(asked.fields));
  warn_client(request, conversation.warnings);
  conversation.any_length = true;
  ASSIGN_OR_RETURN(ChatTask task, asked.model->chat().read(std::move(conversation)));
  truncate_prompt(*asked.model, asked.fields, task.prompt);
  return task.prompt.size();
}

Result<size_t> count_response(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const ResponseCall call,
                   read_response_call(services, request,
                                      {.schema = response_tokens_request(), .any_length = true}));
  return call.generation.prompts.front().size();
}

json count_json(size_t n) { return {{"object", "response.input_tokens"}, {"input_tokens", n}}; }

using Count = Result<size_t> (*)(Services& services, const HttpRequest& request);

// n_bytes: approximate bytes that `count` reads.
net::awaitable<void> answer_count(Services& services, Exchange& exchange, size_t n_bytes,
                                  Count count) {
  Result<size_t> n;
  const auto work = [&] { n = count(services, exchange.request()); };
  if (!co_await run_on_text(services, exchange, n_bytes, work)) co_return;
  if (!n) co_return co_await exchange.reply(error_reply(n.error()));
  co_await exchange.reply(json_reply(count_json(*n)));
}

}  // namespace

const nlohmann::json& response_tokens_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    const Json& all = responses_request()["properties"];
    Json fields = Json::object();
    for (const char* name : {"model", "input", "instructions", "tools", "tool_choice",
                             "parallel_tool_calls", "text", "reasoning", "chat_template_kwargs",
                             "truncation", "previous_response_id", "conversation"}) {
      fields[name] = all[name];
    }
    return closed(std::move(fields), {"input"});
  }();
  return value;
}

const nlohmann::json& input_tokens_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value =
      open({{"object", {{"enum", {"response.input_tokens"}}}}, {"input_tokens", plain("integer")}},
           {"object", "input_tokens"});
  return value;
}

net::awaitable<void> post_chat_tokens(Services& services, Exchange& exchange) {
  return answer_count(services, exchange, exchange.request().body.size(), count_chat);
}

net::awaitable<void> post_response_tokens(Services& services, Exchange& exchange) {
  // An earlier conversation of unknown size may be read from the store.
  const size_t n_bytes = exchange.request().body.size();
  const bool may_read = !services.config.data_dir.empty();
  return answer_count(services, exchange,
                      may_read ? std::max(n_bytes, ApartThreads::kSmall) : n_bytes, count_response);
}

}  // namespace penstock
