#include <algorithm>
#include <optional>
#include <set>

#include "hub/download/file_lock.h"
#include "hub/download/hf_cache_writer.h"
#include "hub/download/shared_blobs.h"
#include "hub/hub.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Removes models from one repository of the cache. Content that several revisions share is removed
// with the last of them.
class Removal {
 public:
  Removal(const HfCache& cache, std::string repo)
      : cache_(cache), repo_(std::move(repo)), folder_(cache.repo_folder(repo_)) {}

  Status check_idle() const;
  void remove_all();
  void remove_files(const std::string& commit, const std::vector<std::string>& paths);
  void tidy();  // removes blobs, snapshots and refs that nothing needs, after remove_files()

  int64_t bytes() const { return bytes_; }

 private:
  void remove_blob(const fs::path& blob);
  std::set<std::string> blobs_in_use() const;
  bool has_files(const std::string& commit) const {
    return !cache_.snapshot(repo_, commit).files.empty();
  }

  const HfCache& cache_;
  std::string repo_;
  fs::path folder_;
  std::set<std::string> unlinked_;  // names of blobs
  int64_t bytes_ = 0;
};

// Error: a process is downloading a blob, and holds its lock.
Status Removal::check_idle() const {
  constexpr std::string_view kSuffix = ".penstock.incomplete";
  const HfCacheWriter places(cache_, repo_, "", true);
  for (const std::string& name : names_in(folder_ / "blobs")) {
    if (!name.ends_with(kSuffix)) continue;
    ASSIGN_OR_RETURN(
        const auto lock,
        FileLock::try_lock(places.lock_path(name.substr(0, name.size() - kSuffix.size()))));
    if (!lock) return errorf(ErrorCode::kIo, "{}: another process is downloading it", repo_);
  }
  return {};
}

void Removal::remove_blob(const fs::path& blob) {
  std::error_code error;
  if (fs::is_symlink(blob, error)) {
    bytes_ += remove_shared_blob(cache_.root(), blob);
    return;
  }
  const auto size = static_cast<int64_t>(fs::file_size(blob, error));
  if (!error && fs::remove(blob, error)) bytes_ += size;
}

void Removal::remove_all() {
  for (const std::string& name : names_in(folder_ / "blobs")) remove_blob(folder_ / "blobs" / name);
  for (const HfCache::Revision& revision : cache_.revisions(repo_)) {
    // Without symlinks, snapshots hold the files themselves.
    std::error_code error;
    const fs::path snapshot = cache_.snapshot_folder(repo_, revision.commit);
    for (const RepoFile& file : files_below(snapshot).files)
      bytes_ += fs::is_symlink(snapshot / file.path, error) ? 0 : file.size;
  }
  std::error_code error;
  // Removes links, not their targets. Locks stay: waiting processes would lock different
  // files.
  fs::remove_all(folder_, error);
}

void Removal::remove_files(const std::string& commit, const std::vector<std::string>& paths) {
  const fs::path snapshot = cache_.snapshot_folder(repo_, commit);
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::path link = snapshot / path;
    if (fs::is_symlink(link, error)) {
      unlinked_.insert(fs::read_symlink(link, error).filename().string());
      fs::remove(link, error);
    } else {
      remove_blob(link);
    }
    for (fs::path parent = link.parent_path(); parent != snapshot && fs::is_empty(parent, error);
         parent = parent.parent_path())
      fs::remove(parent, error);
  }
}

std::set<std::string> Removal::blobs_in_use() const {
  std::set<std::string> names;
  for (const std::string& commit : names_in(folder_ / "snapshots")) {
    for (const RepoFile& file : files_below(folder_ / "snapshots" / commit).files) {
      std::error_code error;
      const fs::path target = fs::read_symlink(folder_ / "snapshots" / commit / file.path, error);
      if (!error) names.insert(target.filename().string());
    }
  }
  return names;
}

void Removal::tidy() {
  const std::set<std::string> in_use = blobs_in_use();
  for (const std::string& name : unlinked_) {
    if (in_use.count(name) == 0 && is_object_name(name)) remove_blob(folder_ / "blobs" / name);
  }
  bool any_left = false;
  for (const HfCache::Revision& revision : cache_.revisions(repo_)) {
    if (has_files(revision.commit)) {
      any_left = true;
      continue;
    }
    std::error_code error;
    fs::remove_all(cache_.snapshot_folder(repo_, revision.commit), error);
    fs::remove(folder_ / "trees" / (revision.commit + ".json"), error);
    if (revision.name != revision.commit) fs::remove(folder_ / "refs" / revision.name, error);
  }
  if (!any_left) remove_all();
}

// Returns the commits that the name may mean: that of its revision, or all.
Result<std::vector<std::string>> commits_of(const HfCache& cache, const ModelName& name) {
  if (!name.revision.empty()) {
    ASSIGN_OR_RETURN(std::string commit, cache.commit_of(name.repo, name.revision));
    return std::vector<std::string>{std::move(commit)};
  }
  std::vector<std::string> commits;
  for (const HfCache::Revision& revision : cache.revisions(name.repo)) {
    if (std::ranges::find(commits, revision.commit) == commits.end())
      commits.push_back(revision.commit);
  }
  return commits;
}

Result<std::vector<std::string>> paths_of(const HfCache& cache, const ModelName& name,
                                          const std::string& commit) {
  const fs::path folder = cache.snapshot_folder(name.repo, commit);
  const std::vector<RepoFile> files = cache.snapshot(name.repo, commit).files;
  if (!name.what.empty()) {
    ASSIGN_OR_RETURN(ModelFiles model,
                     choose_model_files(files, name.what, read_below(folder), folder.string()));
    return std::move(model.paths);
  }
  std::vector<std::string> paths;
  for (const RepoFile& file : files) paths.push_back(file.path);
  return paths;
}

// Returns the error for a model that is not in the cache; it may be in another place.
tl::unexpected<Error> not_in_cache(const HubSettings& settings, std::string_view name,
                                   const fs::path& cache) {
  const auto found = find_on_disk(settings, name);
  if (!found) return tl::unexpected(found.error());
  return errorf(ErrorCode::kUnsupported, "{} is not in {} but in {}: remove it there ({})", name,
                cache.string(), found->source, found->path.string());
}

}  // namespace

Result<RemovedModel> remove_model(const HubSettings& settings, std::string_view text) {
  ASSIGN_OR_RETURN(const ModelName name, parse_model_name(text, settings.endpoint));
  const HfCache cache(settings.cache);
  std::error_code error;
  if (!fs::is_directory(cache.repo_folder(name.repo), error))
    return not_in_cache(settings, text, settings.cache);
  Removal removal(cache, name.repo);
  RETURN_IF_ERROR(removal.check_idle());
  if (name.revision.empty() && name.what.empty()) {
    removal.remove_all();
    return RemovedModel{removal.bytes()};
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> commits, commits_of(cache, name));
  std::optional<Error> problem;
  bool any = false;
  for (const std::string& commit : commits) {
    const auto paths = paths_of(cache, name, commit);
    if (paths) removal.remove_files(commit, *paths);
    any |= paths.has_value();
    if (!paths) problem = paths.error();
  }
  if (!any)
    return tl::unexpected(problem.value_or(
        Error{ErrorCode::kNotFound, fmt::format("{} has no snapshot", name.repo)}));
  removal.tidy();
  return RemovedModel{removal.bytes()};
}

}  // namespace penstock
