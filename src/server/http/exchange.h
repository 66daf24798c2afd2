// One HTTP request and the means to answer it: a whole reply, or a stream of chunks.
//
// Everything runs on the connection's executor (one of the io threads); a handler is a coroutine that must
// not block.
#pragma once
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/trace_context.h"

namespace penstock {

namespace net = boost::asio;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // decoded, without the query
  std::map<std::string, std::string> query;
  std::map<std::string, std::string> headers;  // names in lower case; repeated ones joined by ", "
  std::string body;
  std::string id;     // x-request-id of the client, or a fresh one
  std::string peer;   // address of the client
  std::string key;    // id of its API key; empty where there are none, and of one that may do everything
  std::string payer;  // id of its API key; empty where there are none
  std::string
      tenant;  // whose cached prompts and replies it shares (ApiKey::tenant); empty where there are none
  std::string model;  // that answers, whatever the body says; "": the one that it names

  // Whose turn it is where requests take turns.
  const std::string& asker() const { return payer.empty() ? peer : payer; }
  std::string_view header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : found->second;
  }
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
};

// Why a request is not carried out. The API that was asked puts it into its own words (error_reply).
struct HttpRefusal {
  int status = 403;
  std::string message;
  std::vector<std::pair<std::string, std::string>> headers =
      {};  // instead of what such a reply says by itself
};

class Spending;

class Exchange {
 public:
  virtual ~Exchange() = default;

  const HttpRequest& request() const { return request_; }
  // A path may have several names; handlers see its route's.
  void set_path(std::string path) { request_.path = std::move(path); }
  void set_key(std::string id) { request_.key = std::move(id); }
  void set_payer(std::string id, std::string tenant) {
    request_.payer = std::move(id);
    request_.tenant = std::move(tenant);
  }
  void set_model(std::string name) { request_.model = std::move(name); }
  virtual net::any_io_executor executor() = 0;

  // Exactly one of reply() or begin_stream() … end_stream() per exchange.
  virtual net::awaitable<void> reply(HttpReply reply) = 0;
  // Headers of a chunked reply. False (here and below): the client is gone, nothing more can be sent.
  virtual net::awaitable<bool> begin_stream(HttpReply head) = 0;
  // Gives the socket the chunk, or as much of it as it takes at once; what it leaves waits for flush().
  virtual void put(std::string_view chunk) = 0;
  // Whether nothing waits for flush(), or the client is gone.
  virtual bool all_sent() const = 0;
  // Waits until the socket took it all; a client that takes none for the write timeout counts as gone.
  virtual net::awaitable<bool> flush() = 0;
  // Both.
  net::awaitable<bool> write(std::string_view chunk) {
    put(chunk);
    return flush();
  }
  virtual net::awaitable<void> end_stream() = 0;
  // Instead of end_stream(), of a stream that cannot go on: the connection closes, so that the client sees that something is
  // missing.
  virtual void break_off() = 0;

  // Called once, on the executor, when the client closes the connection before the exchange is over.
  std::function<void()> on_disconnect;
  // Called once with the status of the answer, before its first byte is written.
  std::function<void(int status)> before_reply;
  // Who pays for it; null: nobody counts. It is told of every token as it is computed, prompt tokens at the start.
  std::shared_ptr<Spending> spending;
  bool over_budget = false;  // it was refused, and would be again until a budget is renewed
  // Which trace this is a part of, if any.
  std::optional<RequestTrace> trace;
  // Gathered where it is there before the answer is made: how sure the model was of what it said.
  struct Confidence {
    double sum_logprob = 0;  // of tokens, of all choices
    int n_tokens = 0;
    std::string text;  // of the first choice
  };
  std::optional<Confidence> confidence;
  // Headers that go with whatever the answer is.
  std::vector<std::pair<std::string, std::string>> reply_headers;

  void count_tokens(int prompt, int completion);
  // Of the prompt tokens: those that were not computed again.
  void count_cached(int n) { cached_tokens_ += n; }
  // Which model computes for it, as replies call it.
  void note_model(std::string name) { model_ = std::move(name); }
  const std::string& model() const { return model_; }  // "": none
  int cached_tokens() const { return cached_tokens_; }
  // Those of an exchange that stood in this one's place, and has charged them.
  void take_counts(const Exchange& other) {
    prompt_tokens_ += other.prompt_tokens_;
    completion_tokens_ += other.completion_tokens_;
    cached_tokens_ += other.cached_tokens_;
    model_ = other.model_;
  }
  int prompt_tokens() const { return prompt_tokens_; }
  int completion_tokens() const { return completion_tokens_; }
  bool replied() const { return replied_; }
  bool gone() const { return gone_; }     // the client has left
  int status() const { return status_; }  // of the answer; 0 before there is one

 protected:
  HttpRequest request_;
  bool replied_ = false, gone_ = false;
  int status_ = 0, prompt_tokens_ = 0, completion_tokens_ = 0, cached_tokens_ = 0;
  std::string model_;
};

}  // namespace penstock
