// POST /v1/responses/compact (OpenAI's): replaces a conversation by its user messages and a summary
// written by the model, from which it can be continued.
#include <algorithm>

#include "server/api/api_request.h"
#include "server/api/compaction.h"
#include "server/api/openai_json.h"
#include "server/api/response_call.h"
#include "server/api/schema_parts.h"
#include "server/api/schemas.h"
#include "server/handlers/answer.h"
#include "server/http/apart_threads.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/config.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema compact_request, compact_reply;

namespace {

constexpr const char* kLastTurn =
    "Summarize the conversation so far, so that it can be continued from your summary alone. Keep "
    "the user's goals and constraints, what was decided and found, names, numbers, paths and code "
    "that are still needed, and what remains to be done. Write only the summary.";

class CompactShape final : public ReplyShape {
 public:
  explicit CompactShape(ResponseCall& call) : call_(call), reader_(call.task, "call_") {}

  std::string add(const ChoiceDelta& delta, Generation& generation) override {
    read_delta(reader_, delta, generation);
    return {};
  }
  std::string end(const Generation&) override { return {}; }
  json whole(const Generation& generation) override {
    json output = std::move(call_.retained);
    output.push_back(compaction_item(reader_.text_of(ReplySegment::Kind::kText)));
    return {{"id", call_.id},
            {"object", "response.compaction"},
            {"created_at", unix_time()},
            {"output", std::move(output)},
            {"usage", response_usage(generation, reader_.n_reasoning_tokens())}};
  }
  size_t bytes_beside() const override { return call_.retained_bytes; }
  HttpReply error(const Error& error) override { return error_reply(error, "input"); }

 private:
  ResponseCall& call_;
  ChatReader reader_;
};

}  // namespace

const nlohmann::json& compact_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    const Json& all = responses_request()["properties"];
    Json fields = Json::object();
    for (const char* name : {"model", "input", "instructions", "previous_response_id",
                             "chat_template_kwargs", "reasoning", "prompt_cache_key"}) {
      fields[name] = all[name];
    }
    return closed(std::move(fields), {"input"});
  }();
  return value;
}

const nlohmann::json& compact_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = open({{"id", plain("string")},
                                  {"object", {{"enum", {"response.compaction"}}}},
                                  {"created_at", plain("integer")},
                                  {"output", {{"type", "array"}, {"items", plain("object")}}}},
                                 {"id", "object", "created_at", "output", "usage"});
  return value;
}

net::awaitable<void> post_compact(Services& services, Exchange& exchange) {
  Result<ResponseCall> call;
  const auto read = [&] {
    call = read_response_call(services, exchange.request(),
                              {.schema = compact_request(), .last_turn = kLastTurn});
  };
  // An earlier conversation of unknown size may be read from the store.
  const size_t n_bytes = exchange.request().body.size();
  const bool may_read = !services.config.data_dir.empty();
  co_await services.run_apart(exchange,
                              may_read ? std::max(n_bytes, ApartThreads::kSmall) : n_bytes, read);
  if (!call) co_return co_await exchange.reply(error_reply(call.error()));
  CompactShape shape(*call);
  co_await answer(services, exchange, call->generation, false, shape);
}

}  // namespace penstock
