#include "server/mcp/http_transfer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/ascii.h"

namespace penstock {
namespace {

using Steady = std::chrono::steady_clock;

}  // namespace

HttpTransfer::HttpTransfer(const McpServerConfig& config, const std::string& session,
                           const std::string& version) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  curl_ = curl_easy_init();
  add_header("Content-Type: application/json");
  add_header("Accept: application/json, text/event-stream");
  add_header("Expect:");
  if (!version.empty()) add_header("MCP-Protocol-Version: " + version);
  if (!session.empty()) add_header("Mcp-Session-Id: " + session);
  for (const auto& [name, value] : config.headers) add_header(name + ": " + value);
  set(CURLOPT_URL, config.url.c_str());
  set(CURLOPT_HTTPHEADER, headers_);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_USERAGENT, "penstock");
  set(CURLOPT_WRITEFUNCTION, on_bytes);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_HEADERFUNCTION, on_header);
  set(CURLOPT_HEADERDATA, this);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFODATA, this);
  set(CURLOPT_XFERINFOFUNCTION, gives_up);
}

HttpTransfer::~HttpTransfer() {
  curl_slist_free_all(headers_);
  curl_easy_cleanup(curl_);
}

int HttpTransfer::gives_up(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const McpWait* const wait = static_cast<HttpTransfer*>(self)->wait_;
  return wait != nullptr && wait->stop.stop_requested() ? 1 : 0;
}

// No exception passes through curl: 0 ends the transfer, and post() throws it again.
template <class Take>
size_t HttpTransfer::guarded(size_t n, Take&& take) {
  try {
    return take() ? n : 0;
  } catch (...) {
    thrown_ = std::current_exception();
    return 0;
  }
}

size_t HttpTransfer::on_header(char* data, size_t, size_t n, void* self) {
  auto& transfer = *static_cast<HttpTransfer*>(self);
  return transfer.guarded(n, [&] {
    transfer.take_header({data, n});
    return true;
  });
}

size_t HttpTransfer::on_bytes(char* data, size_t, size_t n, void* self) {
  auto& transfer = *static_cast<HttpTransfer*>(self);
  return transfer.guarded(n, [&] { return transfer.take_bytes({data, n}); });
}

void HttpTransfer::take_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = ascii_lower(std::string(line.substr(0, colon)));
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && (value.back() == '\n' || value.back() == '\r')) value.remove_suffix(1);
  value = trim_blanks(value);
  const bool plain = std::ranges::all_of(value, [](char c) { return c > ' ' && c < 0x7f; });
  if (name == "mcp-session-id" && plain) new_session_ = value;
  if (name == "content-type") is_stream_ = value.starts_with("text/event-stream");
}

// false: enough was received, or too much.
bool HttpTransfer::take_bytes(std::string_view bytes) {
  long status = 0;
  curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
  n_bytes_ += bytes.size();
  constexpr size_t kMostOfStream = 4 * kMostMcpMessage;
  too_much_ = n_bytes_ > (is_stream_ ? kMostOfStream : kMostMcpMessage) ||
              events_.n_held() > kMostMcpMessage;
  if (too_much_) return false;
  if (status < 200 || status > 299) return true;
  if (!is_stream_) {
    body_ += bytes;
    return true;
  }
  events_.add(bytes, [this](std::string_view message) {
    if (!satisfied_) satisfied_ = !take_(message);
  });
  return !satisfied_;
}

void HttpTransfer::set_timeout(const McpWait& wait) {
  wait_ = &wait;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(wait.deadline - Steady::now());
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(std::max<int64_t>(left.count(), 1)));
}

Status HttpTransfer::result_of(CURLcode done, const McpWait& wait) {
  long status = 0;
  curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
  if (satisfied_) return {};
  if (too_much_) return errorf(ErrorCode::kIo, "the answer is more than {} bytes", kMostMcpMessage);
  if (wait.stop.stop_requested()) return errorf(ErrorCode::kCancelled, "cancelled");
  if (done == CURLE_OPERATION_TIMEDOUT)
    return errorf(ErrorCode::kDeadlineExceeded, "no answer in time");
  if (done != CURLE_OK) return errorf(ErrorCode::kIo, "{}", curl_easy_strerror(done));
  if (status == 404) return errorf(ErrorCode::kNotFound, "status 404");
  if (status < 200 || status > 299) return errorf(ErrorCode::kIo, "status {}", status);
  return {};
}

Status HttpTransfer::post(const std::string& body, const McpWait& wait,
                          std::function<bool(std::string_view message)> take) {
  take_ = std::move(take);
  set_timeout(wait);
  set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  set(CURLOPT_POSTFIELDS, body.c_str());
  const CURLcode done = curl_easy_perform(curl_);
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  RETURN_IF_ERROR(result_of(done, wait));
  if (!is_stream_ && !body_.empty()) take_(body_);
  return {};
}

void HttpTransfer::remove(std::chrono::milliseconds timeout) {
  set(CURLOPT_CUSTOMREQUEST, "DELETE");
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
  (void)curl_easy_perform(curl_);
}

}  // namespace penstock
