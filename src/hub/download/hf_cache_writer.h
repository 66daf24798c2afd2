// Writes to the cache of huggingface_hub (layout: hf_cache.h) as that package does.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/hf_cache.h"

namespace penstock {

// Writes one commit of one repository. Folders are created as needed; symbolic links among them are
// refused, since they could redirect the writes. Errors: kIo.
class HfCacheWriter {
 public:
  // symlinks = false: the snapshot has the files instead of links to blobs.
  HfCacheWriter(const HfCache& cache, std::string repo, std::string commit, bool symlinks);

  // Creates the repository's folders and the tag that makes backups skip the cache.
  Status prepare() const;

  std::filesystem::path blob_path(const std::string& etag) const;
  std::filesystem::path lock_path(const std::string& etag) const;

  // Whether the cache has the blob with this size.
  bool has_blob(const std::string& etag, int64_t size) const;

  // Creates the snapshot's file `path`, a link to the blob (without symlinks: the blob itself).
  Status link(const std::string& path, const std::string& etag) const;

  // Caches the list of the commit's files. Failures are ignored: the list will be requested again.
  void write_tree(const std::vector<RepoFile>& files) const;

  // Writes refs/REVISION with the commit; does nothing when the revision is the commit itself.
  Status write_ref(const std::string& revision) const;

 private:
  const HfCache& cache_;
  std::string repo_, commit_;
  std::filesystem::path folder_;
  bool symlinks_;
};

}  // namespace penstock
