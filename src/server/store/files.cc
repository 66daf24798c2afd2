#include "server/store/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <set>

#include "base/regular_file.h"
#include "frontend/random_id.h"

namespace penstock {
namespace {

constexpr const char* kColumns = "SELECT id, name, purpose, bytes, created FROM files";

StoredFile file_of(const DatabaseRow& row) {
  return {row.text(0), row.text(1), row.text(2), row.integer(3), row.integer(4)};
}

tl::unexpected<Error> disk_error(const std::string& path) {
  return errorf(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
}

FileDescriptor descriptor_of(const std::string& path, int flags) {
  return FileDescriptor(::open(path.c_str(), flags | O_CLOEXEC, 0600));
}

Status sync_names(const std::string& folder) {
  const FileDescriptor names = descriptor_of(folder, O_RDONLY | O_DIRECTORY);
  if (names.number() < 0 || fsync(names.number()) != 0) return disk_error(folder);
  return {};
}

// Writes and syncs a file and its folder entry.
Status write_synced(const std::string& path, std::string_view content) {
  const FileDescriptor file = descriptor_of(path, O_WRONLY | O_CREAT | O_EXCL);
  if (file.number() < 0) return disk_error(path);
  while (!content.empty()) {
    const ssize_t n = ::write(file.number(), content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return disk_error(path);
    content.remove_prefix(static_cast<size_t>(n));
  }
  if (fsync(file.number()) != 0) return disk_error(path);
  return sync_names(std::filesystem::path(path).parent_path());
}

}  // namespace

Result<std::unique_ptr<StoredFiles>> StoredFiles::open(std::shared_ptr<Store> store,
                                                       FileLimits limits) {
  std::unique_ptr<StoredFiles> files(new StoredFiles(std::move(store), limits));
  RETURN_IF_ERROR(files->put_leftovers_aside());
  return files;
}

Status StoredFiles::put_leftovers_aside() {
  std::set<std::string> known;
  RETURN_IF_ERROR(store_->database().run(
      "SELECT id FROM files", {}, [&](const DatabaseRow& row) { known.insert(row.text(0)); }));
  std::error_code error;
  std::vector<std::filesystem::path> leftovers;
  const std::filesystem::path folder = store_->folder() / "files";
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with("file-") && !known.contains(name)) leftovers.push_back(entry->path());
  }
  if (error) return errorf(ErrorCode::kIo, "{}: {}", folder.string(), error.message());
  return store_->put_aside(leftovers);
}

Result<StoredFiles::Kept> StoredFiles::kept_of(const std::string& owner) {
  Kept kept;
  RETURN_IF_ERROR(store_->database().run(
      "SELECT count(*), coalesce(sum(bytes), 0) FROM files WHERE owner = ?1", {owner},
      [&](const DatabaseRow& row) { kept = {row.integer(0), row.integer(1)}; }));
  return kept;
}

Result<int64_t> StoredFiles::left_of(const std::string& owner) {
  ASSIGN_OR_RETURN(const Kept kept, kept_of(owner));
  return std::max<int64_t>(0, limits_.bytes - kept.bytes);
}

Status StoredFiles::check_room(const std::string& owner, int64_t bytes) {
  ASSIGN_OR_RETURN(const Kept kept, kept_of(owner));
  const auto [n_files, n_bytes] = kept;
  if (n_files >= limits_.files) {
    return errorf(ErrorCode::kInvalidArgument,
                  "file: {} files are kept for this API key, the most there may be: delete some",
                  n_files);
  }
  if (bytes > limits_.bytes - n_bytes) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "file: expected at most {} bytes, which is what is left of {} for this API key, got {}",
        std::max<int64_t>(0, limits_.bytes - n_bytes), limits_.bytes, bytes);
  }
  return {};
}

Result<StoredFile> StoredFiles::add(const std::string& owner, std::string_view name,
                                    std::string_view purpose, std::string_view content) {
  StoredFile file{random_id("file-"), std::string(name), std::string(purpose),
                  static_cast<int64_t>(content.size()), std::time(nullptr)};
  RETURN_IF_ERROR(check_room(owner, file.bytes));  // before the disk is used
  const std::string path = path_of(file.id);
  Status kept = write_synced(path, content);
  if (kept) {
    kept = store_->database().transact([&]() -> Status {
      // again: concurrent uploads may have used the room
      RETURN_IF_ERROR(check_room(owner, file.bytes));
      return insert(owner, file);
    });
  }
  if (kept) return file;
  ::unlink(path.c_str());
  return tl::unexpected(kept.error());
}

Result<StoredFile> StoredFiles::link(std::string_view name, std::string_view purpose,
                                     const std::filesystem::path& content) {
  std::error_code error;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(content, error));
  StoredFile file{random_id("file-"), std::string(name), std::string(purpose), bytes,
                  std::time(nullptr)};
  const std::string path = path_of(file.id);
  if (error || ::link(content.c_str(), path.c_str()) != 0) return disk_error(path);
  RETURN_IF_ERROR(sync_names(std::filesystem::path(path).parent_path()));
  return file;
}

Status StoredFiles::insert(const std::string& owner, const StoredFile& file) {
  return store_->database().run(
      "INSERT INTO files (id, owner, name, purpose, bytes, created) VALUES (?1, ?2, ?3, ?4, ?5, "
      "?6)",
      {file.id, owner, file.name, file.purpose, file.bytes, file.created});
}

Result<StoredFile> StoredFiles::find(const std::string& owner, const std::string& id) {
  std::vector<StoredFile> found;
  RETURN_IF_ERROR(store_->database().run(
      fmt::format("{} WHERE owner = ?1 AND id = ?2", kColumns).c_str(), {owner, id},
      [&](const DatabaseRow& row) { found.push_back(file_of(row)); }));
  if (found.empty()) return errorf(ErrorCode::kNotFound, "no such file: {}", id);
  return found.front();
}

Result<std::vector<StoredFile>> StoredFiles::list(const std::string& owner, const FileQuery& query,
                                                  bool& more) {
  int64_t edge = query.oldest_first ? 0 : INT64_MAX;
  if (!query.after.empty()) {
    RETURN_IF_ERROR(find(owner, query.after));
    RETURN_IF_ERROR(store_->database().run("SELECT number FROM files WHERE id = ?1", {query.after},
                                           [&](const DatabaseRow& row) { edge = row.integer(0); }));
  }
  const std::string sql = fmt::format(
      "{} WHERE owner = ?1 AND (?2 = '' OR purpose = ?2) AND number {} ?3 ORDER BY number {} LIMIT "
      "?4",
      kColumns, query.oldest_first ? ">" : "<", query.oldest_first ? "ASC" : "DESC");
  std::vector<StoredFile> found;
  RETURN_IF_ERROR(
      store_->database().run(sql.c_str(), {owner, query.purpose, edge, query.limit + 1},
                             [&](const DatabaseRow& row) { found.push_back(file_of(row)); }));
  more = static_cast<int64_t>(found.size()) > query.limit;
  if (more) found.pop_back();
  return found;
}

Status StoredFiles::remove(const std::string& owner, const std::string& id) {
  RETURN_IF_ERROR(find(owner, id));
  RETURN_IF_ERROR(store_->database().transact_removal([&] {
    return store_->database().run("DELETE FROM files WHERE owner = ?1 AND id = ?2", {owner, id});
  }));
  // a leftover is moved to the quarantine at the next start
  ::unlink(path_of(id).c_str());
  return {};
}

Result<std::string> StoredFiles::read(const StoredFile& file, int64_t offset, int64_t most) const {
  const std::string path = path_of(file.id);
  ASSIGN_OR_RETURN(const FileDescriptor content, open_regular_file(path));
  std::string bytes(static_cast<size_t>(std::clamp<int64_t>(file.bytes - offset, 0, most)), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pread(content.number(), bytes.data() + done, bytes.size() - done,
                              offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return disk_error(path);
    if (n == 0) {
      return errorf(ErrorCode::kCorruptFile, "{}: expected {} bytes, got {}", path, file.bytes,
                    offset + static_cast<int64_t>(done));
    }
    done += static_cast<size_t>(n);
  }
  return bytes;
}

}  // namespace penstock
