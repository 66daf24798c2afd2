// POST /v1/responses: OpenAI's responses, plain and as typed stream events, at once or in the
// background.
#include "base/json_text.h"
#include "base/work.h"
#include "server/api/schemas.h"
#include "server/endpoints/response_rounds.h"
#include "server/endpoints/response_shape.h"
#include "server/handlers/background_stream.h"
#include "server/http/apart_threads.h"
#include "server/keys/accounts.h"
#include "server/routing/errors.h"
#include "server/services/background_runs.h"
#include "server/services/config.h"
#include "server/services/data_folder.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

using SharedCall = std::shared_ptr<Result<ResponseCall>>;

net::awaitable<void> generate(Services& services, Exchange& exchange, ResponseCall& call,
                              ResponseShape& shape) {
  if (call.mcp) return answer_in_rounds(services, exchange, call, shape);
  return answer(services, exchange, call.generation, call.stream, shape);
}

// Generates; returns whether that ended by an exception, which is logged.
net::awaitable<bool> fails(Services& services, Exchange& exchange, ResponseCall& call,
                           ResponseShape& shape) {
  std::string failure;
  try {
    co_await generate(services, exchange, call, shape);
  } catch (const WorkEnded&) {  // the run was cancelled
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (!failure.empty()) services.log.error(fmt::format("{}: {}", call.id, failure));
  co_return !failure.empty();
}

// Returns why a run did not finish.
std::string reason_of(const BackgroundRun& run, const UnattendedExchange& exchange) {
  if (run.cancelled()) return "";
  if (exchange.replied() && exchange.status() != 200) {
    const json body = bounded_json<json>(exchange.body());
    return get_string(get_field(body, "error"), "message", "it could not be generated");
  }
  if (run.overflowed()) return "its events are more than the server keeps";
  return kStopped;
}

BackgroundRuns::Work background_work(Services& services, const SharedCall& call) {
  return
      [&services, call](BackgroundRun& run, UnattendedExchange& exchange) -> net::awaitable<void> {
        const auto start = std::chrono::steady_clock::now();
        // The call's own lease is that of an exchange which has ended: a model that has to go ends this one.
        const ModelLease lease = (*call)->generation.model->lease_again(record_of(exchange).cut);
        // Rounds modify the call, so that a retry needs a copy.
        std::optional<ResponseCall> own;
        if ((*call)->mcp) own = **call;
        ResponseCall& tried = own ? *own : **call;
        ResponseShape shape(services, tried, &run);
        const bool failed = co_await fails(services, exchange, tried, shape);
        services.accounts.note_use(exchange, start);
        const bool again =
            exchange.status() == 429 && !exchange.gone() && !record_of(exchange).over_budget;
        if (shape.kept() || again) co_return;
        const std::string reason = failed ? "internal error" : reason_of(run, exchange);
        exchange.put(co_await shape.keep_unfinished(reason));
      };
}

// Refuses what goes on behind a first reply where prompts only are computed.
Status check_role(const ResponseCall& call) {
  if (call.generation.model->config().role != "prefill") return {};
  const char* refused = call.background ? "background" : call.mcp ? "tools" : nullptr;
  if (refused == nullptr) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "{}: not with role prefill{}: ask a server of role decode or both", refused,
                call.background ? "" : ", which calls no MCP server");
}

HttpReply queued_reply(Services& services, const ResponseCall& call) {
  HttpReply reply;
  reply.body = ResponseShape(services, call, nullptr).begun("queued");
  return reply;
}

net::awaitable<void> answer_in_background(Services& services, Exchange& exchange,
                                          const SharedCall& call) {
  // Of the fields that repeat the request: two copies beside those of the events.
  const size_t n_echoed = (*call)->echoed.size(), n_held = (*call)->items.size() + 2 * n_echoed;
  constexpr size_t kRepeating = 3;  // events that have them
  auto room = services.background.room_for(exchange.request().asker(), n_held,
                                           (*call)->stream ? kRepeating * n_echoed : 0);
  if (room == nullptr)
    co_return co_await exchange.reply(error_reply(429, "background: too much is waiting already"));
  HttpReply queued = queued_reply(services, **call);
  Result<bool> kept;
  co_await services.run_chore(exchange, [&] {
    StoredResponse stored;
    stored.id = (*call)->id, stored.owner = (*call)->owner;
    stored.input = (*call)->items, stored.reply = queued.body;
    stored.ended = false;
    kept = (*services.data.stores())->responses->add(std::move(stored));
  });
  if (!kept) co_return co_await exchange.reply(error_reply(kept.error()));
  if (!*kept) {
    co_return co_await exchange.reply(
        error_reply(400, "input: it is more than what an API key may keep", "input"));
  }
  const bool keeps_events =
      // streaming always: the first event shows that the run has begun
      std::exchange((*call)->stream, true);
  const auto run = services.background.start((*call)->id, keeps_events, exchange, std::move(room),
                                             background_work(services, call));
  if (services.accounts.is_revoked(record_of(exchange).payer, (*call)->owner))
    services.background.cancel(run->id());
  if (keeps_events) co_return co_await stream_run(services, exchange, run, 0);
  co_await exchange.reply(std::move(queued));
}

}  // namespace

net::awaitable<void> post_responses(Services& services, Exchange& exchange) {
  const auto call = std::make_shared<Result<ResponseCall>>();
  const auto read = [&] {
    *call = read_response_call(services, exchange.request(), {.schema = responses_request()});
  };
  // An earlier conversation of unknown size may be read from the store.
  const size_t n_bytes = exchange.request().body.size();
  const bool may_read = !services.config.data_dir.empty();
  co_await services.run_apart(exchange,
                              may_read ? std::max(n_bytes, ApartThreads::kSmall) : n_bytes, read);
  if (!*call) co_return co_await exchange.reply(error_reply(call->error()));
  if (const Status may = check_role(**call); !may)
    co_return co_await exchange.reply(error_reply(may.error()));
  if ((*call)->background) co_return co_await answer_in_background(services, exchange, call);
  ResponseShape shape(services, **call, nullptr);
  co_await generate(services, exchange, **call, shape);
}

}  // namespace penstock
