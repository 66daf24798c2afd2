// The files of /v1/files: a database row and a file on disk for each. The row is written after the
// content is synced, so that a crash at any moment leaves either both or a file without a row,
// which is not visible.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/store/store.h"

namespace penstock {

struct StoredFile {
  std::string id, name, purpose;
  int64_t bytes = 0;
  int64_t created = 0;  // unix time, seconds
};

// Maximum number and total bytes of one owner's files.
struct FileLimits {
  int64_t files = 1000;
  int64_t bytes = int64_t{1} << 30;
};

// Selects a page of a list.
struct FileQuery {
  std::string purpose;  // "" = any
  // id of the file before the first one to list; "" = from the start
  std::string after;
  int64_t limit = 10000;
  bool oldest_first = false;
};

// Thread-safe. Another owner's file is kNotFound, like one that does not exist.
class StoredFiles {
 public:
  // Moves files that have no row to the quarantine (Store::put_aside). Errors: those of the store.
  static Result<std::unique_ptr<StoredFiles>> open(std::shared_ptr<Store> store, FileLimits limits);

  Store& store() { return *store_; }
  // Adds a file. Errors: kInvalidArgument (the owner's limits), kIo (a full disk, …). On errors
  // nothing is kept.
  Result<StoredFile> add(const std::string& owner, std::string_view name, std::string_view purpose,
                         std::string_view content);
  // Adds a file that is on disk already, in two steps: link() makes a hard link to the content, and
  // insert() adds its row, inside a transaction of the caller. A link without a row is moved to the
  // quarantine at the next start. The owner's limits do not apply, since the server made the
  // content.
  Result<StoredFile> link(std::string_view name, std::string_view purpose,
                          const std::filesystem::path& content);
  Status insert(const std::string& owner, const StoredFile& file);
  // Whether the owner may keep one more file of so many bytes. Errors: kInvalidArgument (the owner's
  // limits), those of the store.
  Status check_room(const std::string& owner, int64_t bytes);
  // Bytes that are left of the owner's limit, 0 at least.
  Result<int64_t> left_of(const std::string& owner);
  Result<StoredFile> find(const std::string& owner, const std::string& id);
  // Returns at most query.limit files; `more`: there are further ones. Errors: kNotFound
  // (query.after).
  Result<std::vector<StoredFile>> list(const std::string& owner, const FileQuery& query,
                                       bool& more);
  Status remove(const std::string& owner, const std::string& id);
  // Returns `most` bytes from `offset` on; fewer only at the end. Errors: kIo, kCorruptFile (the
  // file is shorter than its row says).
  Result<std::string> read(const StoredFile& file, int64_t offset, int64_t most) const;

 private:
  StoredFiles(std::shared_ptr<Store> store, FileLimits limits)
      : store_(std::move(store)), limits_(limits) {}
  struct Kept {
    int64_t files = 0, bytes = 0;
  };
  Status put_leftovers_aside();
  Result<Kept> kept_of(const std::string& owner);
  std::string path_of(const std::string& id) const { return store_->folder() / "files" / id; }

  std::shared_ptr<Store> store_;
  const FileLimits limits_;
};

}  // namespace penstock
