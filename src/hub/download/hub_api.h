// What a hub's server is asked, besides the files themselves (docs/models.md lists the requests).
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

// Called several times a second while a server is waited for, with what is waited for in words ("" for the answer itself).
// False ends it: kCancelled.
using KeepWaiting = std::function<bool(const std::string& note)>;

// What the answer about a file says, before its content is asked for.
struct RemoteFile {
  std::string etag;      // names the blob
  int64_t size = -1;     // bytes; -1 is unknown
  std::string commit;    // "" when the server does not say
  std::string location;  // where the content is; a signed address, perhaps
};

class HubApi {
 public:
  HubApi(const HubSettings& settings, HttpClient& client) : settings_(settings), client_(client) {}

  // The commit that a branch, tag or commit is at; "" is main.
  Result<std::string> commit(const std::string& repo, const std::string& revision,
                             const KeepWaiting& keep_waiting);

  // All files of a commit, page by page.
  Result<std::vector<RepoFile>> tree(const std::string& repo, const std::string& commit,
                                     const KeepWaiting& keep_waiting);

  std::string file_url(const std::string& repo, const std::string& commit, const std::string& path) const;

  // An answer that is no success, as an error that says what can be done. `what` names what was asked for.
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

// Of an answer to HEAD. Errors: kCorruptFile when it cannot be a hub's.
Result<RemoteFile> read_remote_file(const HttpAnswer& answer);

// Parts of the protocol that read what a server sends; exposed for tests and the fuzzer.
Result<std::vector<RepoFile>> parse_tree(std::string_view text, std::string_view where);
Result<std::string> parse_commit(std::string_view text, std::string_view where);
std::string next_link(std::string_view link_header);  // <https://...>; rel="next"; "" is none

// How long to wait before try n (from 1) of a request that failed this way; nothing: not again.
std::optional<std::chrono::milliseconds> retry_delay(const HttpAnswer& answer, int n);

}  // namespace penstock
