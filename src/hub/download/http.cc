#include "hub/download/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/ascii.h"
#include "base/check.h"
#include "base/system_certificates.h"
#include "hub/small_json.h"
#include "penstock/version.h"

namespace penstock {
namespace {

constexpr int kMaxRedirects = 20;
constexpr long kBufferBytes = 256 * 1024;
constexpr size_t kMaxHeaders = 200;

// Origins that get the token besides the endpoint: the hub's own, to which mirrors redirect.
constexpr const char* kHubOrigins[] = {"https://huggingface.co:443", "https://hf.co:443"};

void set_up_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

std::string url_part(CURLU* url, CURLUPart part, unsigned flags) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return {};
  std::string result = text;
  curl_free(text);
  return result;
}

using Url = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

Url parse_url(const std::string& text) {
  Url url(curl_url(), &curl_url_cleanup);
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK)
    return {nullptr, &curl_url_cleanup};
  return url;
}

HttpAnswer::Failure failure_of(CURLcode code) {
  using Failure = HttpAnswer::Failure;
  switch (code) {
    case CURLE_OK: return Failure::kNone;
    case CURLE_WRITE_ERROR: return Failure::kStopped;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT: return Failure::kConnect;
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING: return Failure::kBroken;
    default: return Failure::kFatal;
  }
}

// Returns the headers of the last answer; the first of several with one name.
std::map<std::string, std::string, std::less<>> headers_of(CURL* curl) {
  std::map<std::string, std::string, std::less<>> headers;
  for (curl_header* h = nullptr;
       (h = curl_easy_nextheader(curl, CURLH_HEADER, -1, h)) != nullptr;) {
    std::string name = h->name;
    name = ascii_lower(name);
    headers.emplace(std::move(name), h->value);
    if (headers.size() >= kMaxHeaders) break;
  }
  return headers;
}

// Parses the draft of rate limit headers: "api";r=0;t=55 means none remaining for 55 seconds.
int64_t rate_limit_seconds(std::string_view header) {
  const auto number = [&](std::string_view key) -> int64_t {
    const size_t at = header.find(key);
    const size_t begin = at == std::string_view::npos ? at : at + key.size();
    if (begin >= header.size() || !is_ascii_digit(header[begin])) return -1;
    return std::atoll(std::string(header.substr(begin, 9)).c_str());
  };
  return number(";r=") == 0 ? std::max<int64_t>(number(";t="), 0) : 0;
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

std::string_view HttpAnswer::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::string origin_of(const std::string& text) {
  const Url url = parse_url(text);
  if (!url) return {};
  std::string origin = fmt::format("{}://{}:{}", url_part(url.get(), CURLUPART_SCHEME, 0),
                                   url_part(url.get(), CURLUPART_HOST, 0),
                                   url_part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT));
  origin = ascii_lower(origin);
  return origin;
}

std::string shown_url(const std::string& text) {
  const Url url = parse_url(text);
  if (!url) return printable(text.substr(0, text.find_first_of("?#@")));
  for (const CURLUPart part :
       {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY, CURLUPART_FRAGMENT})
    curl_url_set(url.get(), part, nullptr, 0);
  return printable(url_part(url.get(), CURLUPART_URL, 0), 400);
}

std::string redirect_target(const std::string& from, const std::string& location) {
  const Url url = parse_url(from);
  // Setting a URL on an existing one resolves it as a relative URL.
  if (!url || curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK) return {};
  return url_part(url.get(), CURLUPART_URL, 0);
}

std::string escape_url(std::string_view text, bool keep_slashes) {
  std::string result;
  for (const char c : text) {
    const bool plain =
        is_ascii_alnum(c) || std::string_view("-._~").find(c) != std::string_view::npos;
    if (plain || (c == '/' && keep_slashes)) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

// One request, including its redirects.
struct HttpClient::Impl {
  struct Transfer {
    Transfer(Impl& c, Id i, HubRequest r, HttpReceiver& to)
        : client(&c), id(i), request(std::move(r)), receiver(&to) {}
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    ~Transfer() {
      curl_easy_cleanup(curl);
      curl_slist_free_all(header_list);
    }

    Impl* client;
    Id id;
    HubRequest request;
    HttpReceiver* receiver;
    CURL* curl = curl_easy_init();
    curl_slist* header_list = nullptr;
    int n_redirects = 0;
    HttpAnswer answer;
    bool answered = false;  // on_answer() was called

    void set_options();
    void set_headers();
    void read_answer();
    bool announce();
    std::string next_url() const;
    static size_t receive(char* data, size_t size, size_t n, void* self);
  };

  explicit Impl(const HubSettings& s)
      : settings(s),
        multi(curl_multi_init()),
        endpoint_origin(origin_of(s.endpoint)),
        only_encrypted(endpoint_origin.starts_with("https:")) {
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, 32L);
  }
  ~Impl() {
    for (const auto& transfer : transfers) curl_multi_remove_handle(multi, transfer->curl);
    transfers.clear();
    curl_multi_cleanup(multi);
  }

  bool may_have_token(const std::string& url) const {
    const std::string origin = origin_of(url);
    return origin == endpoint_origin ||
           std::ranges::find(kHubOrigins, origin) != std::end(kHubOrigins);
  }
  void submit(Transfer& transfer);
  void finish(CURL* curl, CURLcode code);

  const HubSettings& settings;
  CURLM* multi;
  std::string endpoint_origin;
  const bool only_encrypted;  // allows https only, for everything that the hub names
  Id next_id = 1;
  std::vector<std::unique_ptr<Transfer>> transfers;
};

void HttpClient::Impl::Transfer::set_headers() {
  curl_slist_free_all(header_list);
  // Sizes and ranges refer to the content itself, so it must not be compressed.
  header_list = curl_slist_append(nullptr, "Accept-Encoding: identity");
  if (!client->settings.token.empty() && client->may_have_token(request.url)) {
    header_list = curl_slist_append(
        header_list, fmt::format("Authorization: Bearer {}", client->settings.token).c_str());
  }
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, header_list);
}

void HttpClient::Impl::Transfer::set_options() {
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(curl, option, value); };
  curl_easy_reset(curl);
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PRIVATE, this);
  set(CURLOPT_NOBODY, request.head ? 1L : 0L);
  set(CURLOPT_PROTOCOLS_STR, client->only_encrypted ? "https" : "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  // HTTP/1.1, for several connections instead of streams of one, which make ranges faster.
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_USERAGENT, fmt::format("penstock/{}", kVersion).c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(client->settings.metadata_timeout.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.silence.count()));
  set(CURLOPT_BUFFERSIZE, kBufferBytes);
  set(CURLOPT_WRITEFUNCTION, receive);
  set(CURLOPT_WRITEDATA, this);
  const std::string certificates =
      client->settings.certificates.empty() ? system_certificates() : client->settings.certificates;
  if (!certificates.empty()) set(CURLOPT_CAINFO, certificates.c_str());
  if (request.begin >= 0)
    set(CURLOPT_RANGE, fmt::format("{}-{}", request.begin, request.end - 1).c_str());
  set_headers();
}

void HttpClient::Impl::Transfer::read_answer() {
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_off_t retry_after = 0;
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &retry_after);
  answer = {.status = static_cast<int>(status), .url = request.url, .headers = headers_of(curl)};
  answer.retry_after =
      std::max<int64_t>(retry_after, rate_limit_seconds(answer.header("ratelimit")));
}

// Returns the target of the answer's redirect; "": none that may be followed.
std::string HttpClient::Impl::Transfer::next_url() const {
  if (!is_redirect(answer.status)) return {};
  const std::string target = redirect_target(request.url, std::string(answer.header("location")));
  const bool stays = origin_of(target) == origin_of(request.url) || client->may_have_token(target);
  return stays || request.leave_origin ? target : std::string();
}

// Passes the answer to the receiver, once. Returns false if the receiver ends the transfer.
bool HttpClient::Impl::Transfer::announce() {
  if (answered) return true;
  read_answer();
  if (!next_url().empty()) return true;  // a redirect: its content is not for the receiver
  answered = true;
  return receiver->on_answer(answer);
}

size_t HttpClient::Impl::Transfer::receive(char* data, size_t size, size_t n, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  const size_t bytes = size * n;
  if (!transfer.announce()) return CURL_WRITEFUNC_ERROR;
  if (!transfer.answered) return bytes;
  return transfer.receiver->on_data(std::as_bytes(std::span(data, bytes))) ? bytes
                                                                           : CURL_WRITEFUNC_ERROR;
}

void HttpClient::Impl::submit(Transfer& transfer) {
  transfer.set_options();
  const CURLMcode code = curl_multi_add_handle(multi, transfer.curl);
  PENSTOCK_CHECK(code == CURLM_OK);
}

void HttpClient::Impl::finish(CURL* curl, CURLcode code) {
  const auto found =
      std::ranges::find_if(transfers, [&](const auto& transfer) { return transfer->curl == curl; });
  PENSTOCK_CHECK(found != transfers.end());
  Transfer& transfer = **found;
  curl_multi_remove_handle(multi, curl);
  const bool stopped = code == CURLE_OK && !transfer.announce();
  if (code != CURLE_OK && !transfer.answered) transfer.read_answer();
  if (const std::string target = code == CURLE_OK ? transfer.next_url() : std::string();
      !target.empty()) {
    const bool downgrade =
        transfer.request.url.starts_with("https:") && !target.starts_with("https:");
    if (!downgrade && ++transfer.n_redirects <= kMaxRedirects) {
      transfer.request.url = target;
      submit(transfer);
      return;
    }
    transfer.answer.failure = HttpAnswer::Failure::kFatal;
    transfer.answer.problem = downgrade ? "redirected from https to http" : "redirected too often";
  } else {
    transfer.answer.failure = stopped ? HttpAnswer::Failure::kStopped : failure_of(code);
    if (code != CURLE_OK) transfer.answer.problem = curl_easy_strerror(code);
  }
  const std::unique_ptr<Transfer> owned = std::move(*found);
  transfers.erase(found);
  owned->receiver->on_end(owned->answer);
}

HttpClient::HttpClient(const HubSettings& settings) {
  set_up_curl();
  impl_ = std::make_unique<Impl>(settings);
}
HttpClient::~HttpClient() = default;

HttpClient::Id HttpClient::start(HubRequest request, HttpReceiver& receiver) {
  impl_->transfers.push_back(
      std::make_unique<Impl::Transfer>(*impl_, impl_->next_id++, std::move(request), receiver));
  impl_->submit(*impl_->transfers.back());
  return impl_->transfers.back()->id;
}

void HttpClient::cancel(Id id) {
  const auto found = std::ranges::find_if(impl_->transfers,
                                          [&](const auto& transfer) { return transfer->id == id; });
  if (found == impl_->transfers.end()) return;
  curl_multi_remove_handle(impl_->multi, (*found)->curl);
  impl_->transfers.erase(found);
}

size_t HttpClient::n_running() const { return impl_->transfers.size(); }

void HttpClient::poll(std::chrono::milliseconds wait) {
  int n_running = 0, n_left = 0;
  curl_multi_perform(impl_->multi, &n_running);
  if (n_running > 0 || wait.count() > 0)
    curl_multi_poll(impl_->multi, nullptr, 0, static_cast<int>(wait.count()), nullptr);
  curl_multi_perform(impl_->multi, &n_running);
  while (const CURLMsg* message = curl_multi_info_read(impl_->multi, &n_left)) {
    if (message->msg == CURLMSG_DONE) impl_->finish(message->easy_handle, message->data.result);
  }
}

}  // namespace penstock
