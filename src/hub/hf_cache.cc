#include "hub/hf_cache.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/regular_file.h"
#include "hub/small_json.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";
constexpr size_t kMaxRefBytes = 256;
constexpr size_t kMaxTreeBytes = size_t{64} << 20;
constexpr int kTreeFormat = 1;

// Returns the commit in the file; "" if it is missing or malformed.
std::string read_ref(const fs::path& path) {
  auto text = read_regular_file(path, kMaxRefBytes);
  if (!text) return {};
  text->erase(text->find_last_not_of(" \t\r\n") + 1);
  return is_object_name(*text) ? *text : std::string();
}

}  // namespace

std::string HfCache::folder_name(const std::string& repo) {
  const size_t slash = repo.find('/');
  if (slash == std::string::npos) return std::string(kPrefix) + repo;
  return fmt::format("{}{}--{}", kPrefix, repo.substr(0, slash), repo.substr(slash + 1));
}

fs::path HfCache::snapshot_folder(const std::string& repo, const std::string& commit) const {
  return repo_folder(repo) / "snapshots" / commit;
}

std::vector<std::string> HfCache::repos() const {
  std::vector<std::string> repos;
  for (const std::string& name : names_in(root_)) {
    if (!name.starts_with(kPrefix)) continue;
    const std::string parts = name.substr(kPrefix.size());
    const size_t dashes = parts.find("--");
    std::string repo = dashes == std::string::npos ? parts
                                                   : fmt::format("{}/{}", parts.substr(0, dashes),
                                                                 parts.substr(dashes + 2));
    if (is_repo_name(repo)) repos.push_back(std::move(repo));
  }
  return repos;
}

std::vector<HfCache::Revision> HfCache::revisions(const std::string& repo) const {
  std::vector<Revision> revisions;
  for (const RepoFile& file : files_below(repo_folder(repo) / "refs").files) {
    std::string commit = read_ref(repo_folder(repo) / "refs" / file.path);
    if (!commit.empty() && is_revision(file.path))
      revisions.push_back({file.path, std::move(commit)});
  }
  std::stable_partition(revisions.begin(), revisions.end(),
                        [](const Revision& revision) { return revision.name == "main"; });
  for (const std::string& commit : names_in(repo_folder(repo) / "snapshots")) {
    const auto has_commit = [&](const Revision& revision) { return revision.commit == commit; };
    if (is_object_name(commit) && std::ranges::none_of(revisions, has_commit))
      revisions.push_back({commit, commit});
  }
  return revisions;
}

Result<std::string> HfCache::commit_of(const std::string& repo, const std::string& revision) const {
  std::error_code error;
  const fs::path folder = repo_folder(repo);
  if (!fs::is_directory(folder, error))
    return errorf(ErrorCode::kNotFound, "{} has no {}", root_.string(), folder_name(repo));
  const std::string name = revision.empty() ? "main" : revision;
  std::string commit = read_ref(folder / "refs" / name);
  if (commit.empty() && is_object_name(name)) commit = name;
  if (!commit.empty() && fs::is_directory(folder / "snapshots" / commit, error)) return commit;
  return errorf(ErrorCode::kNotFound, "{} has no snapshot of {}", folder.string(), name);
}

FilesBelow HfCache::snapshot(const std::string& repo, const std::string& commit) const {
  return files_below(snapshot_folder(repo, commit), root_);
}

std::optional<std::vector<RepoFile>> HfCache::tree(const std::string& repo,
                                                   const std::string& commit) const {
  const fs::path path = repo_folder(repo) / "trees" / (commit + ".json");
  const auto text = read_regular_file(path, kMaxTreeBytes);
  if (!text) return std::nullopt;
  const auto json = parse_small_json(*text, path.string());
  if (!json || json_integer(*json, "format_version") != kTreeFormat) return std::nullopt;
  const auto listed = json->find("files");
  if (listed == json->end() || !listed->is_object()) return std::nullopt;
  std::vector<RepoFile> files;
  for (const auto& [name, info] : listed->items()) {
    if (!check_repo_path(name, "")) return std::nullopt;
    files.push_back({name, json_file_size(info, "size"), json_string(info, "blob_id"),
                     json_string(info, "lfs_sha256"), json_file_size(info, "lfs_size"),
                     json_string(info, "xet_hash")});
  }
  return files;
}

}  // namespace penstock
