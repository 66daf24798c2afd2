// Receiving the files of a commit into the cache: several at once, large ones in several ranges.
//
// Per file: ask what it is (HEAD), take the lock of its blob, receive what is missing, check it, give it its name and its place
// in the snapshot. A connection that is cut goes on where it was; a signed address that has expired is asked for again; a
// server without ranges sends the whole file; a lock that another process holds is waited for.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/download/hf_cache_writer.h"
#include "hub/download/hub_api.h"

namespace penstock {

struct FetchProgress {
  int64_t done = 0, total = 0;  // bytes of all files, also of those that were there
  std::string note;             // what is waited for, if anything
};
// False stops: kCancelled, and what was received is kept.
using FetchObserver = std::function<bool(const FetchProgress&)>;

// Where the files come from and go to. Lives as long as the fetch.
struct FetchContext {
  const HubSettings& settings;
  HttpClient& client;
  HubApi& api;
  const HfCacheWriter& writer;
  std::string repo, commit;
};

// Returns when all files are in the snapshot. Errors: the first one; the other files are kept as far as they came.
Status fetch_files(FetchContext& context, const std::vector<RepoFile>& files, const FetchObserver& observer);

}  // namespace penstock
