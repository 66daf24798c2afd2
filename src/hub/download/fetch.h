// Downloads the files of a commit to the cache: several at once, large ones in several ranges.
//
// Steps for each file: request its metadata (HEAD), take the lock of its blob, download the missing
// bytes, verify the checksum, rename the blob and link it into the snapshot. A broken connection is
// resumed; an expired signed URL is requested again; a server without ranges sends the whole file;
// a lock that another process holds is waited for.
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
  // bytes of all files, including those that were in the cache
  int64_t done = 0, total = 0;
  std::string note;  // what is being waited for; "": nothing
};
// Returns false to stop: the fetch ends with kCancelled and the received bytes are kept.
using FetchObserver = std::function<bool(const FetchProgress&)>;

// Source and destination of the files. REQUIRES: lives as long as the fetch.
struct FetchContext {
  const HubSettings& settings;
  HttpClient& client;
  HubApi& api;
  const HfCacheWriter& writer;
  std::string repo, commit;
};

// Returns when all files are in the snapshot. Errors: the first one of any file; the received bytes
// of the other files are kept.
Status fetch_files(FetchContext& context, const std::vector<RepoFile>& files,
                   const FetchObserver& observer);

}  // namespace penstock
