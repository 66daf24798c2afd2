#include "hub/download/hub_api.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "hub/model_name.h"
#include "hub/small_json.h"

namespace penstock {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// per page, which has at most 1,000 files
constexpr size_t kMaxBodyBytes = size_t{32} << 20;
constexpr size_t kMaxFilesOfRepo = 100'000;
constexpr int kMaxPages = 200;
constexpr int kMaxTries = 5;
constexpr int64_t kMaxWaitSeconds = 600;

// Collects a body of bounded size.
class BodyReceiver : public HttpReceiver {
 public:
  bool on_answer(const HttpAnswer&) override { return true; }
  bool on_data(std::span<const std::byte> data) override {
    if (data.size() > kMaxBodyBytes - body.size()) return false;
    body.append(reinterpret_cast<const char*>(data.data()), data.size());
    return true;
  }
  void on_end(const HttpAnswer& a) override {
    answer = a;
    ended = true;
  }

  std::string body;
  HttpAnswer answer;
  bool ended = false;
};

// Polls until the request ends. Error: kCancelled.
Status wait_for(HttpClient& client, HttpClient::Id id, const BodyReceiver& receiver,
                const KeepWaiting& keep_waiting) {
  while (!receiver.ended) {
    client.poll(milliseconds(100));
    if (receiver.ended || keep_waiting("")) continue;
    client.cancel(id);
    return errorf(ErrorCode::kCancelled, "interrupted");
  }
  return {};
}

Status sleep(HttpClient& client, milliseconds time, const std::string& note,
             const KeepWaiting& keep_waiting) {
  for (const auto end = steady_clock::now() + time; steady_clock::now() < end;) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    client.poll(std::clamp(left, milliseconds(1), milliseconds(100)));
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(end - steady_clock::now());
    if (!keep_waiting(
            fmt::format("{}, next try in {} s", note, std::max<int64_t>(seconds.count(), 0))))
      return errorf(ErrorCode::kCancelled, "interrupted");
  }
  return {};
}

std::string in_words(const HttpAnswer& answer) {
  if (answer.failure == HttpAnswer::Failure::kNone)
    return fmt::format("the server answered {}", answer.status);
  return answer.problem;
}

// Returns the length that a header says; -1: none.
int64_t length_of(std::string_view text) {
  const bool digits =
      !text.empty() && text.size() < 19 && std::ranges::all_of(text, is_ascii_digit);
  const int64_t size = digits ? std::stoll(std::string(text)) : -1;
  return size <= kMostFileBytes ? size : -1;
}

// Strips quotes: W/"abc" and "abc" become abc.
std::string plain_etag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.starts_with('"')) etag.remove_prefix(1);
  if (etag.ends_with('"')) etag.remove_suffix(1);
  return std::string(etag);
}

Result<RepoFile> parse_file(const json& entry, std::string_view where) {
  RepoFile file{.path = json_string(entry, "path"),
                .size = json_file_size(entry, "size"),
                .blob_id = json_string(entry, "oid")};
  RETURN_IF_ERROR(check_repo_path(file.path, where));
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
    file.lfs_sha256 = json_string(*lfs, "oid");
    file.lfs_size = json_file_size(*lfs, "size");
    file.size = file.lfs_size >= 0 ? file.lfs_size : file.size;
  }
  file.xet_hash = json_string(entry, "xetHash");
  return file;
}

}  // namespace

std::optional<milliseconds> retry_delay(const HttpAnswer& answer, int n) {
  using Failure = HttpAnswer::Failure;
  const bool busy = answer.status == 408 || answer.status == 429 || answer.status >= 500;
  const bool again = answer.failure == Failure::kBroken ||
                     (answer.failure == Failure::kNone && busy) ||
                     (answer.failure == Failure::kConnect && n <= 2);
  if (!again || n >= kMaxTries || answer.retry_after > kMaxWaitSeconds) return std::nullopt;
  if (answer.retry_after > 0) return milliseconds(answer.retry_after * 1000);
  return milliseconds(250) * (1 << n);
}

Result<HubApi::Page> HubApi::get(const std::string& url, const std::string& repo,
                                 const std::string& what, const KeepWaiting& keep_waiting) {
  for (int n = 1;; ++n) {
    BodyReceiver receiver;
    const HttpClient::Id id =
        client_.start({.url = url, .silence = settings_.metadata_timeout}, receiver);
    RETURN_IF_ERROR(wait_for(client_, id, receiver, keep_waiting));
    const HttpAnswer& answer = receiver.answer;
    if (answer.failure == HttpAnswer::Failure::kStopped)
      return errorf(ErrorCode::kCorruptFile, "{}: expected at most {} bytes, got more",
                    shown_url(url), kMaxBodyBytes);
    if (answer.failure == HttpAnswer::Failure::kNone && answer.status == 200)
      return Page{std::move(receiver.body), next_link(answer.header("link"))};
    const auto delay = retry_delay(answer, n);
    if (!delay) return tl::unexpected(error_of(answer, repo, what));
    RETURN_IF_ERROR(sleep(client_, *delay, in_words(answer), keep_waiting));
  }
}

Result<std::string> HubApi::commit(const std::string& repo, const std::string& revision,
                                   const KeepWaiting& keep_waiting) {
  const std::string name = revision.empty() ? "main" : revision;
  const bool is_commit = name.size() == 40 && std::ranges::all_of(name, [](unsigned char c) {
                           return is_ascii_hex_digit(c);
                         });
  if (is_commit) return name;
  const std::string url = fmt::format("{}/api/models/{}/revision/{}", settings_.endpoint,
                                      escape_url(repo, true), escape_url(name, false));
  ASSIGN_OR_RETURN(const Page page, get(url, repo, "revision " + name, keep_waiting));
  return parse_commit(page.text, shown_url(url));
}

Result<std::vector<RepoFile>> HubApi::tree(const std::string& repo, const std::string& commit,
                                           const KeepWaiting& keep_waiting) {
  std::string url =
      fmt::format("{}/api/models/{}/tree/{}?recursive=True&expand=False", settings_.endpoint,
                  escape_url(repo, true), escape_url(commit, false));
  std::vector<RepoFile> files;
  for (int n = 0; !url.empty(); ++n) {
    ASSIGN_OR_RETURN(const Page page, get(url, repo, "list of files", keep_waiting));
    ASSIGN_OR_RETURN(std::vector<RepoFile> more, parse_tree(page.text, shown_url(url)));
    if (n == kMaxPages || files.size() + more.size() > kMaxFilesOfRepo)
      return errorf(ErrorCode::kCorruptFile, "{}: expected at most {} files, got more",
                    shown_url(url), kMaxFilesOfRepo);
    std::ranges::move(more, std::back_inserter(files));
    const std::string next = page.next.empty() ? std::string() : redirect_target(url, page.next);
    if (!next.empty() && origin_of(next) != origin_of(url))
      return errorf(ErrorCode::kCorruptFile, "{}: its next page is at another server, {}",
                    shown_url(url), shown_url(next));
    url = next;
  }
  return files;
}

std::string HubApi::file_url(const std::string& repo, const std::string& commit,
                             const std::string& path) const {
  return fmt::format("{}/{}/resolve/{}/{}", settings_.endpoint, escape_url(repo, true),
                     escape_url(commit, false), escape_url(path, true));
}

std::string HubApi::what_about_token(const std::string& repo) const {
  return settings_.token.empty()
             ? fmt::format("if {} is private, set HF_TOKEN", repo)
             : fmt::format("if {} is private, the token that is set may not read it", repo);
}

Error HubApi::error_of(const HttpAnswer& answer, const std::string& repo,
                       const std::string& what) const {
  const std::string url = shown_url(answer.url);
  if (answer.failure != HttpAnswer::Failure::kNone) {
    const auto code = answer.problem.find("imeout") != std::string::npos
                          ? ErrorCode::kDeadlineExceeded
                          : ErrorCode::kIo;
    return {code, fmt::format("{}: {}", url, answer.problem)};
  }
  const std::string code(answer.header("x-error-code"));
  std::string said = printable(answer.header("x-error-message"));
  if (!said.empty()) said = fmt::format(" ({})", said);
  if (code == "GatedRepo") {
    return {ErrorCode::kIo, fmt::format("{} is gated: accept its terms at {}/{} and set HF_TOKEN{}",
                                        repo, settings_.endpoint, repo, said)};
  }
  if (code == "RepoNotFound" || (answer.status == 401 && said.find("Invalid") == std::string::npos))
    return {ErrorCode::kNotFound, fmt::format("{} has no repository {}; {}{}", settings_.endpoint,
                                              repo, what_about_token(repo), said)};
  if (answer.status == 401)
    return {ErrorCode::kIo,
            fmt::format("{} refuses the token that is set{}", settings_.endpoint, said)};
  if (answer.status == 403)
    return {ErrorCode::kIo,
            fmt::format("{}: access is denied{}; {}", url, said, what_about_token(repo))};
  if (answer.status == 404 || answer.status == 410)
    return {ErrorCode::kNotFound,
            fmt::format("{} at {} has no {}{}", repo, settings_.endpoint, what, said)};
  if (answer.status == 429)
    return {ErrorCode::kIo, fmt::format("{}: too many requests; it asks to wait {} s{}", url,
                                        answer.retry_after, said)};
  return {ErrorCode::kIo, fmt::format("{}: expected the {} of {}, got status {}{}", url, what, repo,
                                      answer.status, said)};
}

Result<RemoteFile> read_remote_file(const HttpAnswer& answer) {
  const std::string where = shown_url(answer.url);
  const std::string_view linked = answer.header("x-linked-etag");
  RemoteFile file{.etag = plain_etag(linked.empty() ? answer.header("etag") : linked),
                  .commit = std::string(answer.header("x-repo-commit")),
                  .location = answer.url};
  if (!is_object_name(file.etag)) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: expected an etag that names content, got \"{}\"; is this a hub's server?",
                  where, printable(file.etag));
  }
  file.size = length_of(answer.header("x-linked-size"));
  const bool redirected = answer.status >= 300;
  if (redirected)
    file.location = redirect_target(answer.url, std::string(answer.header("location")));
  if (file.size < 0 && !redirected) file.size = length_of(answer.header("content-length"));
  if (file.location.empty())
    return errorf(ErrorCode::kCorruptFile, "{}: a redirect to nowhere", where);
  if (answer.url.starts_with("https:") && !file.location.starts_with("https:"))
    return errorf(ErrorCode::kIo, "{}: redirected from https to {}", where,
                  shown_url(file.location));
  return file;
}

Result<std::vector<RepoFile>> parse_tree(std::string_view text, std::string_view where) {
  ASSIGN_OR_RETURN(const json entries, parse_small_json(text, where));
  if (!entries.is_array())
    return errorf(ErrorCode::kCorruptFile, "{}: expected an array of files, got {}", where,
                  entries.type_name());
  std::vector<RepoFile> files;
  for (const json& entry : entries) {
    if (json_string(entry, "type") != "file") continue;
    ASSIGN_OR_RETURN(RepoFile file, parse_file(entry, where));
    files.push_back(std::move(file));
  }
  return files;
}

Result<std::string> parse_commit(std::string_view text, std::string_view where) {
  ASSIGN_OR_RETURN(const json info, parse_small_json(text, where));
  std::string commit = json_string(info, "sha");
  if (is_object_name(commit)) return commit;
  return errorf(ErrorCode::kCorruptFile, "{}: expected the name of a commit as sha, got \"{}\"",
                where, printable(commit));
}

std::string next_link(std::string_view header) {
  for (size_t open = header.find('<'); open != std::string_view::npos;
       open = header.find('<', open + 1)) {
    const size_t close = header.find('>', open);
    if (close == std::string_view::npos) return {};
    const std::string_view rest = header.substr(close, header.find('<', close) - close);
    if (rest.find("rel=\"next\"") != std::string_view::npos ||
        rest.find("rel=next") != std::string_view::npos)
      return std::string(header.substr(open + 1, close - open - 1));
  }
  return {};
}

}  // namespace penstock
