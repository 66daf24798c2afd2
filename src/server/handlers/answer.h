// From a generation to its reply: the one loop behind every endpoint that generates.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <type_traits>

#include "frontend/chat/chat_reader.h"
#include "server/api/generation.h"
#include "server/routing/errors.h"
#include "server/services/services.h"

namespace penstock {

// What an API makes of a generation's news. An object answers one request.
class ReplyShape {
 public:
  virtual ~ReplyShape() = default;

  // Every delta, in order, whether the reply is streamed or whole: the events it becomes (whole
  // "data: …\n\n" blocks), not used for a whole reply.
  virtual std::string add(const ChoiceDelta& delta, Generation& generation) = 0;

  // Of a stream: what comes before the first delta and after the last one.
  virtual std::string begin(const Generation& generation);
  virtual std::string end(const Generation& generation) = 0;

  // Of a stream: what it is, and what it holds while nothing happens (a comment; "" where there are
  // none).
  virtual const char* content_type() const { return "text/event-stream; charset=utf-8"; }
  virtual const char* keep_alive() const { return ": keep-alive\n\n"; }

  // Of a stream: how often look() is asked for what happened beside the deltas; 0: never.
  virtual std::chrono::milliseconds look_every() const { return std::chrono::milliseconds(0); }
  virtual std::string look(const Generation&) { return {}; }

  // Before the end of a reply is made, which waits for it: a place to keep what was generated.
  // error: instead of an end.
  virtual net::awaitable<void> keep(const Generation& generation, const Error* error);

  // Of a whole reply: its body.
  virtual nlohmann::ordered_json whole(const Generation& generation) = 0;
  // The same as text. An API whose calls have objects writes their numbers as the model did.
  virtual std::string whole_text(const Generation& generation);

  // OpenAI's error shape unless the API has its own.
  virtual HttpReply error(const Error& error);
  virtual std::string error_event(const Error& error);
};

// How the reply of a stream begins.
HttpReply stream_head(const char* content_type);

// What a delta adds to a chat's reply. A call that must be the only one ends the choice.
std::vector<ReplySegment> read_delta(ChatReader& reader, const ChoiceDelta& delta,
                                     Generation& generation);

// Runs the call and answers the exchange: the events of a stream with keep-alive comments while
// nothing happens, or one JSON body; errors as the shape has them. The call's prompts are taken.
net::awaitable<void> answer(Services& services, Exchange& exchange, GenerationCall& call,
                            bool stream, ReplyShape& shape);

// The same for a request that `read` makes a call of: Result<Call> read(Services&, const
// HttpRequest&), where a Call has the members `generation` and `stream` and Shape is made of one.
// error: the reply when it cannot be read.
template <class Shape, class Read>
net::awaitable<void> answer_call(
    Services& services, Exchange& exchange, Read read,
    HttpReply (*error)(const Error&) = [](const Error& e) { return error_reply(e); }) {
  std::invoke_result_t<Read, Services&, const HttpRequest&> call;
  co_await services.run_apart(exchange, [&] { call = read(services, exchange.request()); });
  if (!call) co_return co_await exchange.reply(error(call.error()));
  Shape shape(*call);
  co_await answer(services, exchange, call->generation, call->stream, shape);
}

}  // namespace penstock
