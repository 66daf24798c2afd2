// The cache of the Hugging Face hub's tools, read and written in the layout of their package huggingface_hub:
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
  std::filesystem::path repo_folder(const std::string& repo) const { return root_ / folder_name(repo); }
  std::filesystem::path snapshot_folder(const std::string& repo, const std::string& commit) const;

  // The repositories that are there.
  std::vector<std::string> repos() const;
  // Revision and commit of each ref, main first; then the commits without one, with themselves as revision.
  struct Revision {
    std::string name, commit;
  };
  std::vector<Revision> revisions(const std::string& repo) const;

  // The commit of which there is a snapshot. Error: kNotFound.
  Result<std::string> commit_of(const std::string& repo, const std::string& revision) const;

  // The files of a snapshot; links out of the cache are refused.
  FilesBelow snapshot(const std::string& repo, const std::string& commit) const;

  // The listing that was kept with a commit, if there is one that can be read.
  std::optional<std::vector<RepoFile>> tree(const std::string& repo, const std::string& commit) const;

 private:
  std::filesystem::path root_;
};

}  // namespace penstock
