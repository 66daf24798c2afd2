// The Hugging Face hub's cache, in the layout of the package huggingface_hub:
//
//   models--ORG--NAME/refs/REVISION            the commit that a branch or tag was at
//   models--ORG--NAME/snapshots/COMMIT/PATH    -> ../../blobs/ETAG
//   models--ORG--NAME/blobs/ETAG               content, under its SHA-256 or git's name of it
//   models--ORG--NAME/trees/COMMIT.json        the files that the commit has, with sizes and checksums
//   .locks/models--ORG--NAME/ETAG.lock         held by flock while a blob is written
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/files_below.h"
#include "hub/model_name.h"

namespace penstock {

class HfCache {
 public:
  explicit HfCache(std::filesystem::path root) : root_(std::move(root)) {}

  const std::filesystem::path& root() const { return root_; }
  static std::string folder_name(const std::string& repo);  // models--ORG--NAME
  std::filesystem::path repo_folder(const std::string& repo) const {
    return root_ / folder_name(repo);
  }
  std::filesystem::path snapshot_folder(const std::string& repo, const std::string& commit) const;

  // Returns the repositories in the cache.
  std::vector<std::string> repos() const;
  // A revision in the cache: a ref and its commit, or a commit without a ref under its own name.
  // revisions() lists refs first, main before the others.
  struct Revision {
    std::string name, commit;
  };
  std::vector<Revision> revisions(const std::string& repo) const;

  // Returns the commit of a revision that has a snapshot. Errors: kNotFound.
  Result<std::string> commit_of(const std::string& repo, const std::string& revision) const;

  // Returns the files of a snapshot; links that lead out of the cache are refused.
  FilesBelow snapshot(const std::string& repo, const std::string& commit) const;

  // Returns the cached list of a commit's files; nullopt when it is missing or malformed.
  std::optional<std::vector<RepoFile>> tree(const std::string& repo,
                                            const std::string& commit) const;

 private:
  std::filesystem::path root_;
};

}  // namespace penstock
