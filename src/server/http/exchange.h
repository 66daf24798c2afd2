// The coroutines run on the connection's executor (one of the io threads) and must not block.
#pragma once
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/free_memory.h"

namespace penstock {

namespace net = boost::asio;

struct RequestRecord;  // services/request_record.h

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // decoded, without the query
  std::map<std::string, std::string> query;
  // names in lower case; repeated ones joined by ", "
  std::map<std::string, std::string> headers;
  std::string body;
  std::string id;    // x-request-id of the client, or a fresh one
  std::string peer;  // address of the client
  // The client, if the layers above identify it: requests of one client take turns and share
  // limits. "": unknown.
  std::string client;
  // owned by the layers above
  std::shared_ptr<RequestRecord> record;

  // The identity under which requests take turns.
  const std::string& asker() const { return client.empty() ? peer : client; }
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

// A refusal of a request; error_reply() renders it in the form of the requested API.
struct HttpRefusal {
  int status = 403;
  std::string message;
  // headers in addition to the API's
  std::vector<std::pair<std::string, std::string>> headers = {};
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  const HttpRequest& request() const { return request_; }
  // Sets the path to that of the route, since a path may have several names.
  void set_path(std::string path) { request_.path = std::move(path); }
  void set_body(std::string body) { request_.body = std::move(body); }
  // Counts so many bytes more as the body's, as long as that is held; false: bodies under way hold
  // all that they may.
  virtual bool hold_more(size_t) { return true; }
  // Frees the body and its share of the budget, when an answer needs it no more but takes long.
  virtual void drop_body() { free_memory(request_.body); }
  void set_client(std::string id) { request_.client = std::move(id); }
  std::shared_ptr<RequestRecord>& record() { return request_.record; }
  virtual net::any_io_executor executor() = 0;

  // Each exchange calls either reply() or begin_stream() … end_stream(), once.
  virtual net::awaitable<void> reply(HttpReply reply) = 0;
  // Sends the head of a chunked reply. Returns false (here and below) if the client has left.
  virtual net::awaitable<bool> begin_stream(HttpReply head) = 0;
  // Writes as much of the chunk as the socket takes without blocking; the rest waits for flush().
  virtual void put(std::string_view chunk) = 0;
  // Whether nothing waits for flush(), or the client has left.
  virtual bool all_sent() const = 0;
  // Waits until the socket has taken everything. A client that takes nothing for the write timeout
  // counts as gone.
  virtual net::awaitable<bool> flush() = 0;
  // put() and flush().
  net::awaitable<bool> write(std::string_view chunk) {
    put(chunk);
    return flush();
  }
  virtual net::awaitable<void> end_stream() = 0;
  // Instead of end_stream(), for a stream that cannot continue: closes the connection, so that the
  // client notices the truncation.
  virtual void break_off() = 0;
  // Ends the exchange at once, as if the client had left. REQUIRES: called on the executor.
  virtual void cut() = 0;

  // Called once, on the executor, when the client disconnects before the exchange is over.
  std::function<void()> on_disconnect;
  // Called once with the status of the answer, before its first byte is written.
  std::function<void(int status)> before_reply;
  // Headers added to any reply.
  std::vector<std::pair<std::string, std::string>> reply_headers;

  bool replied() const { return replied_; }
  bool gone() const { return gone_; }     // the client has left
  int status() const { return status_; }  // status of the reply; 0: none yet

 protected:
  HttpRequest request_;
  bool replied_ = false, gone_ = false;
  int status_ = 0;
};

}  // namespace penstock
