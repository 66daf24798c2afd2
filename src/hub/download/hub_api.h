// The API of a hub's server, besides the files' contents (docs/guide/models.md lists the requests).
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/download/http.h"
#include "hub/repo_files.h"

namespace penstock {

// Called several times a second while waiting for a server. note: what is being waited for; "": the
// answer. Returns false to cancel (kCancelled).
using KeepWaiting = std::function<bool(const std::string& note)>;

// The metadata of a file, from the answer to a HEAD request.
struct RemoteFile {
  std::string etag;      // name of the blob
  int64_t size = -1;     // bytes; -1 is unknown
  std::string commit;    // "" when the server does not say
  std::string location;  // URL of the content, which may be signed
};

class HubApi {
 public:
  HubApi(const HubSettings& settings, HttpClient& client) : settings_(settings), client_(client) {}

  // Returns the commit of a revision (branch, tag or commit); "": main.
  Result<std::string> commit(const std::string& repo, const std::string& revision,
                             const KeepWaiting& keep_waiting);

  // Returns all files of a commit; requests the list page by page.
  Result<std::vector<RepoFile>> tree(const std::string& repo, const std::string& commit,
                                     const KeepWaiting& keep_waiting);

  std::string file_url(const std::string& repo, const std::string& commit,
                       const std::string& path) const;

  // Returns the error for an unsuccessful answer, with advice for the user. what: name of the
  // requested object.
  Error error_of(const HttpAnswer& answer, const std::string& repo, const std::string& what) const;

 private:
  struct Page {
    std::string text, next;
  };
  Result<Page> get(const std::string& url, const std::string& repo, const std::string& what,
                   const KeepWaiting& keep_waiting);
  std::string what_about_token(const std::string& repo) const;

  const HubSettings& settings_;
  HttpClient& client_;
};

// Reads the answer to a HEAD request. Errors: kCorruptFile, when it is not the answer of a hub.
Result<RemoteFile> read_remote_file(const HttpAnswer& answer);

// Parsers of the server's answers; exposed for tests and the fuzzer.
Result<std::vector<RepoFile>> parse_tree(std::string_view text, std::string_view where);
Result<std::string> parse_commit(std::string_view text, std::string_view where);
// the URL in <https://...>; rel="next"; "": none
std::string next_link(std::string_view link_header);

// Returns the delay before retry n (from 1) of a request that failed this way; nullopt: no retry.
std::optional<std::chrono::milliseconds> retry_delay(const HttpAnswer& answer, int n);

}  // namespace penstock
