// Turns a generation into a reply: the loop behind every generating endpoint.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "frontend/chat/chat_reader.h"
#include "server/api/generation.h"
#include "server/routing/errors.h"
#include "server/services/services.h"

namespace penstock {

// The comment line of an event stream that has nothing to say.
inline constexpr const char* kKeepAlive = ": keep-alive\n\n";

// How one API presents a generation. An object answers one request.
class ReplyShape {
 public:
  virtual ~ReplyShape() = default;

  // Called with every delta in order, for streamed and whole replies. Returns the events for a
  // stream (whole "data: …\n\n" blocks); ignored for a whole reply.
  virtual std::string add(const ChoiceDelta& delta, Generation& generation) = 0;

  // Streams: what precedes the first delta and follows the last one.
  virtual std::string begin(const Generation& generation);
  virtual std::string end(const Generation& generation) = 0;

  // Streams: the content type, and the comment sent while idle; "": none.
  virtual const char* content_type() const { return "text/event-stream; charset=utf-8"; }
  virtual const char* keep_alive() const { return kKeepAlive; }

  // Streams: interval at which look() is polled for events beside the deltas; 0: never.
  virtual std::chrono::milliseconds look_every() const { return std::chrono::milliseconds(0); }
  virtual std::string look(const Generation&) { return {}; }

  // Called before the end of the reply, which waits for it: to store what was generated. error: set
  // if the generation failed.
  virtual net::awaitable<void> keep(const Generation& generation, const Error* error);

  // Whole replies: the body.
  virtual nlohmann::ordered_json whole(const Generation& generation) = 0;
  // whole() as text. Overridden by APIs whose calls are objects, to keep numbers as the model wrote
  // them.
  virtual std::string whole_text(const Generation& generation);
  // About the bytes that it has beside what was generated: of what it repeats of the request.
  virtual size_t bytes_beside() const { return 0; }

  // Returns an error reply; OpenAI's shape unless overridden.
  virtual HttpReply error(const Error& error);
  virtual std::string error_event(const Error& error);
};

// Returns the head of a streamed reply.
HttpReply stream_head(const char* content_type);

// Returns what a delta adds to a chat reply. A call that must be the only one ends the choice.
std::vector<ReplySegment> read_delta(ChatReader& reader, const ChoiceDelta& delta,
                                     Generation& generation);

// Runs the call and answers the exchange with events (and keep-alive comments while idle) or one
// JSON body; errors in the shape's form. Consumes the call's prompts. A model of role prefill has its
// prompts computed only, and answers how many of their tokens are in its store.
net::awaitable<void> answer(Services& services, Exchange& exchange, GenerationCall& call,
                            bool stream, ReplyShape& shape);

// As answer(), for a call made by `read`. Call has the members `generation` and `stream`, and Shape
// is constructible from it. error: makes the reply if reading fails.
template <class Shape, class Call>
net::awaitable<void> answer_call(
    Services& services, Exchange& exchange, Result<Call> (*read)(Services&, const HttpRequest&),
    HttpReply (*error)(const Error&) = [](const Error& e) { return error_reply(e); }) {
  Result<Call> call;
  co_await services.run_apart(exchange, [&] { call = read(services, exchange.request()); });
  if (!call) co_return co_await exchange.reply(error(call.error()));
  Shape shape(*call);
  co_await answer(services, exchange, call->generation, call->stream, shape);
}

}  // namespace penstock
