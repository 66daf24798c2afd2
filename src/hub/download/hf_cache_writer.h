// Writing into the cache of the Hugging Face hub's tools (hf_cache.h has its layout), as they would.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/hf_cache.h"

namespace penstock {

// One commit of one repository. Folders are made as they are needed; links among them are refused, since what is written would
// land elsewhere. Errors: kIo.
class HfCacheWriter {
 public:
  // `symlinks` false: a snapshot holds the files themselves.
  HfCacheWriter(const HfCache& cache, std::string repo, std::string commit, bool symlinks);

  // The repository's folders and the mark that lets backups skip the cache.
  Status prepare() const;

  std::filesystem::path blob_path(const std::string& etag) const;
  std::filesystem::path lock_path(const std::string& etag) const;

  // Whether a blob of that size is there.
  bool has_blob(const std::string& etag, int64_t size) const;

  // Makes the file of the snapshot that shows the blob.
  Status link(const std::string& path, const std::string& etag) const;

  // Keeps the listing of the commit. A failure is none: it is only asked for again.
  void write_tree(const std::vector<RepoFile>& files) const;

  // Remembers which commit the revision is at; nothing to do when it is the commit itself.
  Status write_ref(const std::string& revision) const;

 private:
  const HfCache& cache_;
  std::string repo_, commit_;
  std::filesystem::path folder_;
  bool symlinks_;
};

}  // namespace penstock
