// One HTTP POST to an MCP server, whose answer may be an event stream.
#pragma once
#include <curl/curl.h>

#include <exception>
#include <functional>
#include <string>
#include <string_view>

#include "server/mcp/connection.h"

namespace penstock {

// Parser of an event stream (text/event-stream): extracts the data of each message, which is an
// event of no other name.
class EventData {
 public:
  // Calls `take` with the data of each event that is completed by the piece.
  template <class Take>
  void add(std::string_view piece, Take&& take) {
    for (const char c : piece) {
      if (c == '\n' || c == '\r') {
        if (c == '\n' && after_return_) {
          after_return_ = false;
          continue;
        }
        end_line(take);
      } else {
        line_ += c;
      }
      after_return_ = c == '\r';
    }
  }
  size_t n_held() const { return line_.size() + data_.size(); }

 private:
  template <class Take>
  void end_line(Take&& take) {
    if (line_.empty()) {
      if (!data_.empty() && is_message_) take(std::string_view(data_));
      data_.clear();
      is_message_ = true;
    } else if (line_.starts_with("event:")) {
      is_message_ = line_ == "event:message" || line_ == "event: message";
    } else if (line_.starts_with("data:")) {
      if (!data_.empty()) data_ += '\n';
      data_ += std::string_view(line_).substr(line_.starts_with("data: ") ? 6 : 5);
    }
    line_.clear();
  }

  std::string line_, data_;
  bool after_return_ = false, is_message_ = true;
};

class HttpTransfer {
 public:
  // session, version: from initialize(); "": not initialized yet. REQUIRES: the configuration
  // outlives this object.
  HttpTransfer(const McpServerConfig& config, const std::string& session,
               const std::string& version);
  ~HttpTransfer();
  HttpTransfer(const HttpTransfer&) = delete;
  HttpTransfer& operator=(const HttpTransfer&) = delete;

  // Calls `take` with each message of the answer until it returns false. Answers with a status
  // other than 2xx have no messages. Errors: kIo, kDeadlineExceeded, kCancelled; kNotFound for 404.
  Status post(const std::string& body, const McpWait& wait,
              std::function<bool(std::string_view message)> take);
  // Ends the session.
  void remove(std::chrono::milliseconds timeout);

  // The session id in the answer's header; "": none.
  const std::string& new_session() const { return new_session_; }

 private:
  template <class T>
  void set(CURLoption option, T value) {
    curl_easy_setopt(curl_, option, value);
  }
  void add_header(const std::string& line) { headers_ = curl_slist_append(headers_, line.c_str()); }
  void set_timeout(const McpWait& wait);
  Status result_of(CURLcode done, const McpWait& wait);
  bool take_bytes(std::string_view bytes);
  void take_header(std::string_view line);
  template <class Take>
  size_t guarded(size_t n, Take&& take);
  static size_t on_bytes(char* data, size_t, size_t n, void* self);
  static size_t on_header(char* data, size_t, size_t n, void* self);
  static int gives_up(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t);

  CURL* curl_;
  curl_slist* headers_ = nullptr;
  const McpWait* wait_ = nullptr;
  std::function<bool(std::string_view)> take_;
  EventData events_;
  std::string body_, new_session_;
  std::exception_ptr thrown_;  // by a function that curl has called
  size_t n_bytes_ = 0;
  bool is_stream_ = false, satisfied_ = false, too_much_ = false;
};

}  // namespace penstock
