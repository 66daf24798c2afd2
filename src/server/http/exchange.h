// One HTTP request and the means to answer it: a whole reply, or a stream of chunks.
//
// Everything runs on the connection's executor (one of the io threads); a handler is a coroutine
// that must not block.
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
  // Who asks, where the layers above know that: requests of one client take turns and share room.
  // "": unknown.
  std::string client;
  // Of the layers above.
  std::shared_ptr<RequestRecord> record;

  // Whose turn it is where requests take turns.
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

// Why a request is not carried out. The API that was asked puts it into its own words
// (error_reply).
struct HttpRefusal {
  int status = 403;
  std::string message;
  // Instead of what such a reply says by itself.
  std::vector<std::pair<std::string, std::string>> headers = {};
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  const HttpRequest& request() const { return request_; }
  // A path may have several names; handlers see its route's.
  void set_path(std::string path) { request_.path = std::move(path); }
  void set_client(std::string id) { request_.client = std::move(id); }
  std::shared_ptr<RequestRecord>& record() { return request_.record; }
  virtual net::any_io_executor executor() = 0;

  // Exactly one of reply() or begin_stream() … end_stream() per exchange.
  virtual net::awaitable<void> reply(HttpReply reply) = 0;
  // Headers of a chunked reply. False (here and below): the client is gone, nothing more can be
  // sent.
  virtual net::awaitable<bool> begin_stream(HttpReply head) = 0;
  // Gives the socket the chunk, or as much of it as it takes at once; what it leaves waits for
  // flush().
  virtual void put(std::string_view chunk) = 0;
  // Whether nothing waits for flush(), or the client is gone.
  virtual bool all_sent() const = 0;
  // Waits until the socket took it all; a client that takes none for the write timeout counts as
  // gone.
  virtual net::awaitable<bool> flush() = 0;
  // Both.
  net::awaitable<bool> write(std::string_view chunk) {
    put(chunk);
    return flush();
  }
  virtual net::awaitable<void> end_stream() = 0;
  // Instead of end_stream(), of a stream that cannot go on: the connection closes, so that the
  // client sees that something is missing.
  virtual void break_off() = 0;

  // Called once, on the executor, when the client closes the connection before the exchange is
  // over.
  std::function<void()> on_disconnect;
  // Called once with the status of the answer, before its first byte is written.
  std::function<void(int status)> before_reply;
  // Headers that go with whatever the answer is.
  std::vector<std::pair<std::string, std::string>> reply_headers;

  bool replied() const { return replied_; }
  bool gone() const { return gone_; }     // the client has left
  int status() const { return status_; }  // of the answer; 0 before there is one

 protected:
  HttpRequest request_;
  bool replied_ = false, gone_ = false;
  int status_ = 0;
};

}  // namespace penstock
