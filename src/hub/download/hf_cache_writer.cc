#include "hub/download/hf_cache_writer.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/regular_file.h"
#include "hub/small_json.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// First line of the tag file by which backup programs recognize folders with reproducible content
// (cache directory tagging convention).
constexpr const char* kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n# Models that Penstock downloaded.\n";

tl::unexpected<Error> io_error(const fs::path& path, const std::error_code& error) {
  const bool full = error == std::errc::no_space_on_device;
  return errorf(full ? ErrorCode::kResourceExhausted : ErrorCode::kIo, "{}: {}", path.string(),
                error.message());
}

// Creates the folders from `top` down to `folder`. Error: one of them is a link.
Status make_folders(const fs::path& top, const fs::path& folder) {
  fs::path at = top;
  for (const fs::path& part : folder.lexically_relative(top)) {
    if (part == ".") continue;
    at /= part;
    std::error_code error;
    fs::create_directory(at, error);
    const fs::file_status status = fs::symlink_status(at, error);
    if (status.type() != fs::file_type::directory)
      return errorf(ErrorCode::kIo, "{}: expected a folder, got a link or a file", at.string());
  }
  return {};
}

// Writes the text atomically, so that no reader sees a part of it.
Status write_file(const fs::path& path, const std::string& text) {
  fs::path temporary = path;
  temporary += fmt::format(".{}.tmp", getpid());
  std::error_code error;
  fs::remove(temporary, error);
  std::ofstream file(temporary, std::ios::binary);
  file << text;
  file.close();
  if (!file) return io_error(temporary, std::make_error_code(std::errc::io_error));
  fs::rename(temporary, path, error);
  if (error) return io_error(path, error);
  return {};
}

}  // namespace

HfCacheWriter::HfCacheWriter(const HfCache& cache, std::string repo, std::string commit,
                             bool symlinks)
    : cache_(cache),
      repo_(std::move(repo)),
      commit_(std::move(commit)),
      folder_(cache.repo_folder(repo_)),
      symlinks_(symlinks) {}

Status HfCacheWriter::prepare() const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return io_error(folder_, error);
  RETURN_IF_ERROR(make_folders(folder_, folder_ / "blobs"));
  RETURN_IF_ERROR(make_folders(folder_, folder_ / "snapshots" / commit_));
  RETURN_IF_ERROR(make_folders(cache_.root(), lock_path("x").parent_path()));
  const fs::path tag = cache_.root() / "CACHEDIR.TAG";
  if (!fs::exists(fs::symlink_status(tag, error))) RETURN_IF_ERROR(write_file(tag, kCacheTag));
  return {};
}

fs::path HfCacheWriter::blob_path(const std::string& etag) const {
  return folder_ / "blobs" / etag;
}

fs::path HfCacheWriter::lock_path(const std::string& etag) const {
  return cache_.root() / ".locks" / HfCache::folder_name(repo_) / (etag + ".lock");
}

bool HfCacheWriter::has_blob(const std::string& etag, int64_t size) const {
  std::error_code error;
  const fs::path path = blob_path(etag);
  return fs::is_regular_file(path, error) &&
         static_cast<int64_t>(fs::file_size(path, error)) == size;
}

Status HfCacheWriter::link(const std::string& path, const std::string& etag) const {
  const fs::path snapshot = folder_ / "snapshots" / commit_;
  const fs::path link = snapshot / path, blob = blob_path(etag);
  RETURN_IF_ERROR(make_folders(snapshot, link.parent_path()));
  const fs::path target = blob.lexically_relative(link.parent_path());
  std::error_code error;
  if (fs::read_symlink(link, error) == target) return {};
  fs::path temporary = link;
  temporary += fmt::format(".{}.tmp", getpid());
  fs::remove(temporary, error);
  error.clear();
  if (symlinks_) fs::create_symlink(target, temporary, error);
  // Without links, the content moves to the snapshot; other revisions download it again.
  if (!symlinks_ || error) {
    error.clear();
    fs::rename(blob, temporary, error);
  }
  if (!error) fs::rename(temporary, link, error);
  if (error) return io_error(link, error);
  return {};
}

void HfCacheWriter::write_tree(const std::vector<RepoFile>& files) const {
  nlohmann::ordered_json listed = nlohmann::ordered_json::object();
  std::vector<RepoFile> in_order = files;
  std::ranges::sort(in_order, {}, &RepoFile::path);
  for (const RepoFile& file : in_order) {
    nlohmann::ordered_json info = {{"size", file.size}, {"blob_id", file.blob_id}};
    if (!file.lfs_sha256.empty()) {
      info["lfs_sha256"] = file.lfs_sha256;
      info["lfs_size"] = file.lfs_size;
    }
    if (!file.xet_hash.empty()) info["xet_hash"] = file.xet_hash;
    listed[file.path] = std::move(info);
  }
  const nlohmann::ordered_json tree = {{"format_version", 1}, {"files", listed}};
  if (!make_folders(folder_, folder_ / "trees")) return;
  (void)write_file(folder_ / "trees" / (commit_ + ".json"),
                   tree.dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace));
}

Status HfCacheWriter::write_ref(const std::string& revision) const {
  const std::string name = revision.empty() ? "main" : revision;
  if (name == commit_) return {};
  const fs::path ref = folder_ / "refs" / name;
  if (const auto text = read_regular_file(ref, 256); text && *text == commit_) return {};
  RETURN_IF_ERROR(make_folders(folder_, ref.parent_path()));
  return write_file(ref, commit_);
}

}  // namespace penstock
