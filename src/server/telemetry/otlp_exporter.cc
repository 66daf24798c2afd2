#include "server/telemetry/otlp_exporter.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_text.h"
#include "base/system_certificates.h"

namespace penstock {
namespace {

using Steady = std::chrono::steady_clock;

constexpr int kMostTries = 5;
constexpr std::chrono::milliseconds kFirstPause{500}, kLongestPause{8000};
constexpr size_t kMostReply = 64 * 1024;  // bytes of a receiver's answer that are read

size_t keep_reply(char* data, size_t, size_t n, void* to) {
  auto& reply = *static_cast<std::string*>(to);
  reply.append(data, std::min(n, kMostReply - reply.size()));
  return n;
}

// Returns the number of spans that the receiver reports as rejected.
size_t rejected_spans(const std::string& reply) {
  const auto body = bounded_json(reply);
  const nlohmann::json::json_pointer place("/partialSuccess/rejectedSpans");
  if (!body.is_object() || !body.contains(place)) return 0;
  const nlohmann::json& value = body[place];
  if (value.is_string())
    return std::strtoull(value.get_ref<const std::string&>().c_str(), nullptr, 10);
  return value.is_number_unsigned() ? value.get<size_t>() : 0;
}

}  // namespace

// The persistent HTTP connection.
class OtlpExporter::Post {
 public:
  explicit Post(OtlpExporter& exporter) : exporter_(exporter), curl_(curl_easy_init()) {
    const OtlpConfig& config = exporter.config_;
    add_header("Content-Type: application/json");
    add_header("Expect:");
    for (const auto& [name, value] : config.headers) add_header(name + ": " + value);
    set(CURLOPT_URL, config.url.c_str());
    set(CURLOPT_HTTPHEADER, headers_);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(config.timeout.count()));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_USERAGENT, "penstock");
    const std::string certificates =
        config.certificate.empty() ? system_certificates() : config.certificate;
    if (!certificates.empty()) set(CURLOPT_CAINFO, certificates.c_str());
    set(CURLOPT_WRITEFUNCTION, keep_reply);
    set(CURLOPT_WRITEDATA, &reply_);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFODATA, &exporter_);
    set(CURLOPT_XFERINFOFUNCTION, gives_up);
  }
  ~Post() {
    curl_slist_free_all(headers_);
    curl_easy_cleanup(curl_);
  }
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;

  // 0: no answer; `problem` says why.
  int status_of(const std::string& body) {
    reply_.clear();
    problem_.clear();
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    set(CURLOPT_POSTFIELDS, body.c_str());
    const CURLcode done = curl_easy_perform(curl_);
    if (done != CURLE_OK) problem_ = curl_easy_strerror(done);
    long status = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
    if (done == CURLE_OK && status != 200) problem_ = fmt::format("status {}", status);
    return done == CURLE_OK ? static_cast<int>(status) : 0;
  }
  std::chrono::seconds retry_after() const {
    curl_off_t seconds = 0;
    curl_easy_getinfo(curl_, CURLINFO_RETRY_AFTER, &seconds);
    return std::chrono::seconds(std::max<curl_off_t>(seconds, 0));
  }
  const std::string& reply() const { return reply_; }
  const std::string& problem() const { return problem_; }

 private:
  template <class T>
  void set(CURLoption option, T value) {
    curl_easy_setopt(curl_, option, value);
  }
  void add_header(const std::string& line) { headers_ = curl_slist_append(headers_, line.c_str()); }
  static int gives_up(void* exporter, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto& self = *static_cast<OtlpExporter*>(exporter);
    const std::lock_guard lock(self.mutex_);
    return self.stopping_ && Steady::now() > self.stop_at_ ? 1 : 0;
  }

  OtlpExporter& exporter_;
  CURL* curl_;
  curl_slist* headers_ = nullptr;
  std::string reply_, problem_;
};

OtlpExporter::OtlpExporter(OtlpConfig config, std::function<void(std::string_view)> warn)
    : config_(std::move(config)), warn_(std::move(warn)) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  thread_ = std::thread([this] { run(); });
}

OtlpExporter::~OtlpExporter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_at_ = Steady::now() +
               std::min<std::chrono::milliseconds>(config_.timeout, std::chrono::seconds(5));
  }
  news_.notify_all();
  thread_.join();
}

void OtlpExporter::add(std::vector<Span> spans) {
  size_t n_waiting = 0;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() + spans.size() > config_.most_waiting) {
      counts_.dropped.fetch_add(static_cast<int64_t>(spans.size()));
      return;
    }
    std::ranges::move(spans, std::back_inserter(waiting_));
    n_waiting = waiting_.size();
  }
  if (n_waiting >= config_.most_at_once) news_.notify_one();
}

// Waits for enough spans or a timeout and returns them; empty: the exporter stops.
std::vector<Span> OtlpExporter::take() {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, config_.delay,
                 [&] { return stopping_ || waiting_.size() >= config_.most_at_once; });
  const size_t n = std::min(waiting_.size(), config_.most_at_once);
  std::vector<Span> spans(std::make_move_iterator(waiting_.begin()),
                          std::make_move_iterator(waiting_.begin() + static_cast<ptrdiff_t>(n)));
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(n));
  return spans;
}

bool OtlpExporter::wait_before_retry(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, time, [&] { return stopping_; });
  return !stopping_;
}

void OtlpExporter::drop(size_t n, const std::string& why) {
  counts_.dropped.fetch_add(static_cast<int64_t>(n));
  if (!std::exchange(failing_, true))
    warn_(fmt::format("{}: spans are lost ({}); counted in penstock:otlp_spans_total", config_.url,
                      why));
}

void OtlpExporter::run() {
  std::optional<Post> post;
  for (;;) {
    std::vector<Span> spans;
    try {
      if (!post) post.emplace(*this);
      spans = take();
      if (spans.empty()) {
        const std::lock_guard lock(mutex_);
        if (stopping_ && waiting_.empty()) return;
        continue;
      }
      send(*post, spans);
    } catch (const std::bad_alloc&) {
      if (!drop_without_memory(spans.size())) return;
    }
  }
}

// Drops spans after bad_alloc; false: the exporter stops.
bool OtlpExporter::drop_without_memory(size_t n) {
  counts_.dropped.fetch_add(static_cast<int64_t>(n));
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, config_.delay, [&] { return stopping_; });
  return !stopping_;
}

void OtlpExporter::send(Post& post, const std::vector<Span>& spans) {
  const std::string body = otlp_json(config_.resource, spans);
  std::chrono::milliseconds pause = kFirstPause;
  for (int i = 1;; ++i) {
    const int status = post.status_of(body);
    if (status == 200) {
      const size_t rejected = std::min(rejected_spans(post.reply()), spans.size());
      counts_.exported.fetch_add(static_cast<int64_t>(spans.size() - rejected));
      if (rejected > 0) return drop(rejected, "the receiver rejected some");
      failing_ = false;
      return;
    }
    // Statuses that the protocol defines as retryable.
    const bool passing = status == 0 || status == 429 || (status >= 502 && status <= 504);
    const std::chrono::milliseconds asked =
        status == 0 ? std::chrono::seconds(0) : post.retry_after();
    if (!passing || i == kMostTries || !wait_before_retry(std::clamp(asked, pause, kLongestPause)))
      return drop(spans.size(), post.problem());
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace penstock
