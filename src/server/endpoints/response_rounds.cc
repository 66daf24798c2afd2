#include "server/endpoints/response_rounds.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/json_text.h"
#include "server/api/conversations.h"
#include "server/handlers/answer.h"
#include "server/handlers/round_exchange.h"
#include "server/keys/ledger/spending.h"
#include "server/routing/errors.h"
#include "server/services/config.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

using Steady = std::chrono::steady_clock;

// What a generation makes of one response's next part.
class RoundShape final : public ReplyShape {
 public:
  // open: makes what comes before the round.
  RoundShape(ResponseShape& whole, std::function<std::string()> open)
      : whole_(whole), open_(std::move(open)) {}

  std::string begin(const Generation&) override {
    std::string events = open_();
    whole_.begin_round();
    return events;
  }
  std::string add(const ChoiceDelta& delta, Generation& generation) override {
    return whole_.add(delta, generation);
  }
  net::awaitable<void> keep(const Generation& generation, const Error* error) override {
    whole_.add_use(generation);
    if (error != nullptr)
      failure = *error;
    else if (generation.error())
      failure = {ErrorCode::kCancelled, kStopped};
    co_return;
  }
  std::string end(const Generation&) override { return {}; }
  json whole(const Generation&) override { return {}; }
  HttpReply error(const Error& error) override { return whole_.error(error); }
  std::string error_event(const Error&) override { return {}; }

  std::optional<Error> failure;

 private:
  ResponseShape& whole_;
  const std::function<std::string()> open_;
};

constexpr const char* kTimeIsUp = "max_tool_time";

// Errors: kInvalidArgument, for the model.
Result<json> arguments_of(const McpCallItem& call) {
  if (const size_t n_bytes = call.arguments.size(); n_bytes > kMostMcpArguments) {
    return errorf(ErrorCode::kInvalidArgument,
                  "not called: its arguments have {} bytes, expected at most {}", n_bytes,
                  kMostMcpArguments);
  }
  json arguments = bounded_json<json>(call.arguments.empty() ? "{}" : call.arguments);
  if (arguments.is_object()) return arguments;
  return errorf(ErrorCode::kInvalidArgument, "not called: its arguments are no JSON object");
}

class Rounds {
 public:
  Rounds(Services& services, Exchange& exchange, ResponseCall& call, ResponseShape& shape)
      : services_(services),
        servers_(*services.mcp),
        exchange_(exchange),
        call_(call),
        mcp_(*call.mcp),
        shape_(shape),
        deadline_(Steady::now() + servers_.config().max_time) {}

  net::awaitable<void> run();

 private:
  // A step that returns false is the last: the client has left, or has got its answer.
  net::awaitable<bool> list_tools();
  net::awaitable<bool> list(McpUse& use);
  net::awaitable<bool> run_approved();
  net::awaitable<bool> generate();
  bool may_wait(const HttpReply& refusal) const;
  net::awaitable<bool> wait_for_queue();
  net::awaitable<bool> run_calls();
  net::awaitable<bool> run_call(size_t place);
  net::awaitable<bool> begin();
  std::string opening();
  net::awaitable<bool> tell(const std::string& events);
  void keep_alive();
  net::awaitable<void> end(std::string reason);
  net::awaitable<bool> fail(HttpReply reply);
  net::awaitable<Status> wait_for(const McpServer& server, McpServers::WorkOnServer work);

  McpWait until(const std::stop_token& stop) const { return {deadline_, stop}; }
  // Nothing has been sent, generated or called.
  bool nothing_done() const { return !begun_ && n_rounds_ == 0 && n_calls_ == 0; }
  int tokens_left() const;
  Status check_bounds();

  Services& services_;
  McpServers& servers_;
  Exchange& exchange_;
  ResponseCall& call_;
  McpRequest& mcp_;
  ResponseShape& shape_;
  Steady::time_point deadline_;
  Steady::time_point told_ = Steady::now();  // when a comment kept the stream alive
  bool begun_ = false, told_begin_ = false;
  int n_rounds_ = 0;
  int64_t n_calls_ = 0;
  size_t n_added_bytes_ = 0;  // to the conversation
  size_t n_result_bytes_ = 0;
  std::string reason_;  // why the response is incomplete
};

// The beginning, once, with the lists that are known.
std::string Rounds::opening() {
  if (std::exchange(told_begin_, true)) return {};
  std::string events = shape_.begin();
  for (McpUse& use : mcp_.uses()) {
    if (use.tools == nullptr || std::exchange(use.told, true)) continue;
    events += shape_.begin_list(use.label);
    events += shape_.end_list(McpRequest::listed(use));
  }
  return events;
}

net::awaitable<bool> Rounds::begin() {
  if (call_.stream && !std::exchange(begun_, true)) {
    HttpReply head = stream_head("text/event-stream; charset=utf-8");
    if (!co_await exchange_.begin_stream(std::move(head))) co_return false;
  }
  co_return co_await tell(opening());
}

net::awaitable<bool> Rounds::tell(const std::string& events) {
  if (call_.stream && !events.empty()) co_return co_await exchange_.write(events);
  co_return !exchange_.gone();
}

void Rounds::keep_alive() {
  if (begun_ && !exchange_.gone() && exchange_.all_sent()) exchange_.put(kKeepAlive);
  told_ = Steady::now();
}

// Keeps a stream alive meanwhile.
net::awaitable<Status> Rounds::wait_for(const McpServer& server, McpServers::WorkOnServer work) {
  McpServers::Tick tick{services_.config.keep_alive_interval, [this] { keep_alive(); }};
  co_return co_await servers_.run(server, exchange_, tick, std::move(work));
}

// error: its HTTP status, where nothing has been sent.
net::awaitable<bool> Rounds::fail(HttpReply reply) {
  if (exchange_.gone()) co_return false;
  if (nothing_done()) {
    co_await exchange_.reply(std::move(reply));
    co_return false;
  }
  const json body = bounded_json<json>(reply.body);
  co_await shape_.fail(get_string(get_field(body, "error"), "message", "it could not be made"));
  co_await end("");
  co_return false;
}

net::awaitable<void> Rounds::end(std::string reason) {
  if (exchange_.gone()) co_return;
  if (!shape_.kept()) co_await shape_.finish(std::move(reason));
  // Arguments and results of calls may be megabytes.
  co_await services_.run_apart(exchange_, call_.echoed.size() + n_added_bytes_ + n_result_bytes_,
                               [this] { shape_.last_text(); });
  if (!call_.stream) {
    HttpReply reply;
    reply.body = shape_.last_text();
    co_return co_await exchange_.reply(std::move(reply));
  }
  if (co_await tell(shape_.last_event())) co_await exchange_.end_stream();
}

net::awaitable<bool> Rounds::list_tools() {
  for (McpUse& use : mcp_.uses()) use.tools = use.server->known_tools();
  for (McpUse& use : mcp_.uses()) {
    // The client hears of it while they are asked for.
    if (use.tools != nullptr) continue;
    if (!co_await begin()) co_return false;
    if (!co_await list(use)) co_return false;
  }
  const Status shown = mcp_.show(call_.conversation.tools, call_.conversation.tool_choice);
  if (!shown) co_return co_await fail(error_reply(shown.error(), "tools"));
  co_return true;
}

net::awaitable<bool> Rounds::list(McpUse& use) {
  const bool told = std::exchange(use.told, true);
  const std::string begun = told ? std::string() : shape_.begin_list(use.label);
  if (!co_await tell(begun)) co_return false;
  Result<McpTools> tools;
  const Status waited = co_await wait_for(
      *use.server, [&](const std::stop_token& stop) { tools = use.server->tools(until(stop)); });
  if (!waited) tools = tl::unexpected(waited.error());
  Result<json> listed = json::array();
  if (tools)
    use.tools = *tools, listed = McpRequest::listed(use);
  else
    listed = tl::unexpected(tools.error());
  const std::string ended = told ? std::string() : shape_.end_list(listed);
  if (!co_await tell(ended)) co_return false;
  if (tools) co_return true;
  constexpr int kFailedDependency = 424;
  co_return co_await fail(
      error_reply(kFailedDependency,
                  fmt::format("{}: the tools of the MCP server {} cannot be listed: {}", use.where,
                              use.label, tools.error().message),
                  "tools", "mcp_list_tools_failed"));
}

net::awaitable<bool> Rounds::run_approved() {
  for (const ApprovedCall& approved : call_.approved) {
    if (!co_await begin()) co_return false;
    shape_.begin_round();
    if (!co_await tell(shape_.begin_approved(approved))) co_return false;
    if (!co_await run_call(shape_.last_place())) co_return false;
    if (const Status added = add_response_items(shape_.round_items(), call_.conversation.messages);
        !added)
      co_return co_await fail(error_reply(added.error(), "input"));
  }
  if (reason_ != kTimeIsUp) co_return true;
  co_await end(reason_);
  co_return false;
}

// Whether one more call may be made; an error is why not, and the reason why the response ends.
Status Rounds::check_bounds() {
  const auto bound = [this](int64_t most, const char* of) -> Status {
    if (most < 0 || n_calls_ < most) return {};
    reason_ = "max_tool_calls";
    return errorf(ErrorCode::kResourceExhausted, "not called: {} {}", of, most);
  };
  if (Steady::now() >= deadline_) {
    reason_ = kTimeIsUp;
    return errorf(ErrorCode::kDeadlineExceeded, "not called: the response's time for tools is up");
  }
  RETURN_IF_ERROR(bound(call_.max_tool_calls, "max_tool_calls is"));
  RETURN_IF_ERROR(bound(kMostMcpCalls, "the most calls of a response are"));
  if (n_result_bytes_ < kMostMcpResults) return {};
  reason_ = "max_tool_calls";
  return errorf(ErrorCode::kResourceExhausted,
                "not called: the results of the response have {} "
                "bytes already",
                n_result_bytes_);
}

net::awaitable<bool> Rounds::run_call(size_t place) {
  const McpCallItem& call = shape_.call_at(place);
  const McpCallee* const callee = mcp_.find(call.name);
  Result<McpResult> result =
      errorf(ErrorCode::kNotFound, "{} has no tool {} that may be called", call.label, call.name);
  const Status may = check_bounds();
  const auto arguments = arguments_of(call);
  if (!may) {
    result = tl::unexpected(may.error());
  } else if (!arguments) {
    result = tl::unexpected(arguments.error());
  } else if (callee != nullptr && callee->use->label == call.label) {
    ++n_calls_;
    McpServer& server = *callee->use->server;
    const Status waited = co_await wait_for(server, [&](const std::stop_token& stop) {
      result = server.call(call.name, *arguments, until(stop));
    });
    if (!waited) result = tl::unexpected(waited.error());
    if (result) n_result_bytes_ += result->text.size();
  }
  co_return co_await tell(shape_.end_call(place, result));
}

int Rounds::tokens_left() const {
  const int most = call_.first.params.max_tokens;
  return most < 0 ? most : most - shape_.n_used_tokens();
}

net::awaitable<bool> Rounds::generate() {
  Status read;
  co_await services_.run_apart(exchange_, exchange_.request().body.size() + n_added_bytes_,
                               [&] { read = begin_round(call_, tokens_left()); });
  if (!read) co_return co_await fail(shape_.error(read.error()));
  RoundShape round(shape_, [this] { return opening(); });
  const int most = call_.generation.params.max_tokens;
  for (;;) {
    // A try that was refused may have been shortened to what the key's budget had then.
    call_.generation.params.max_tokens = most;
    std::optional<HttpReply> refusal;
    {
      RoundExchange exchange(exchange_, call_.stream, begun_);
      co_await answer(services_, exchange, call_.generation, true, round);
      if (exchange_.gone() || exchange.gone()) co_return false;
      if (exchange.status() != 200) refusal = std::move(exchange.refusal());
    }
    if (!refusal) break;
    if (!may_wait(*refusal)) co_return co_await fail(*std::move(refusal));
    if (!co_await wait_for_queue()) co_return false;
  }
  ++n_rounds_;
  if (round.failure) co_return co_await fail(shape_.error(*round.failure));
  co_return true;
}

// Whether a round that is refused is tried again: a full queue is, once the client cannot send its
// request anew without losing what has been done.
bool Rounds::may_wait(const HttpReply& refusal) const {
  if (refusal.status != 429 || record_of(exchange_).over_budget || nothing_done()) return false;
  return call_.background || Steady::now() < deadline_;
}

// Waits until the round may be tried again. A run in the background has nobody who waits for it:
// this is no part of its time.
net::awaitable<bool> Rounds::wait_for_queue() {
  constexpr auto kPause = std::chrono::milliseconds(500);
  if (const auto& spending = record_of(exchange_).spending) spending->settle();
  const auto begin = Steady::now();
  net::steady_timer timer(exchange_.executor(), kPause);
  exchange_.on_disconnect = [&timer] { timer.cancel(); };
  if (!exchange_.gone()) co_await timer.async_wait(net::as_tuple(net::use_awaitable));
  exchange_.on_disconnect = nullptr;
  if (begin - told_ >= services_.config.keep_alive_interval) keep_alive();
  if (call_.background) deadline_ += Steady::now() - begin;
  co_return !exchange_.gone();
}

// False: the response has come to its end.
net::awaitable<bool> Rounds::run_calls() {
  const std::vector<size_t> places = shape_.calls_to_run();
  const bool ends = shape_.waits_for_client();
  for (const size_t place : places) {
    if (!co_await run_call(place)) co_return false;
  }
  if (places.empty() || ends || !reason_.empty()) {
    co_await end(reason_);
    co_return false;
  }
  if (n_rounds_ >= servers_.config().max_rounds) reason_ = "max_tool_calls";
  if (Steady::now() >= deadline_) reason_ = kTimeIsUp;
  if (tokens_left() == 0) reason_ = "max_output_tokens";
  if (!reason_.empty()) {
    co_await end(reason_);
    co_return false;
  }
  json items = shape_.round_items();
  n_added_bytes_ += dump(items).size();
  // It has called what it had to.
  call_.conversation.tool_choice = {};
  const Status added = add_response_items(std::move(items), call_.conversation.messages);
  if (!added) co_return co_await fail(error_reply(added.error(), "input"));
  co_return true;
}

net::awaitable<void> Rounds::run() {
  // (g++ 12 destroys what is awaited on the left of && and || too early.)
  if (!co_await list_tools()) co_return;
  if (!co_await run_approved()) co_return;
  for (bool more = true; more;) {
    if (!co_await generate()) co_return;
    more = co_await run_calls();
  }
}

}  // namespace

net::awaitable<void> answer_in_rounds(Services& services, Exchange& exchange, ResponseCall& call,
                                      ResponseShape& shape) {
  Rounds rounds(services, exchange, call, shape);
  co_await rounds.run();
}

}  // namespace penstock
