// The files of /v1/files: a row of the database and a file on disk each. A row is written when its content is on disk and
// synced, so that a process that is killed at any moment leaves either both or nothing that is seen.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gateway/store/store.h"

namespace penstock {

struct StoredFile {
  std::string id, name, purpose;
  int64_t bytes = 0;
  int64_t created = 0;  // unix time, seconds
};

// What one owner may keep.
struct FileLimits {
  int64_t files = 1000;
  int64_t bytes = int64_t{1} << 30;
};

// A page of a list.
struct FileQuery {
  std::string purpose;  // "" = any
  std::string after;    // id: the files behind it
  int64_t limit = 10000;
  bool oldest_first = false;
};

// Any thread. Another owner's file is kNotFound like one that never was.
class StoredFiles {
 public:
  // Puts aside what has no row (Store::put_aside). Errors: of the store.
  static Result<std::unique_ptr<StoredFiles>> open(std::shared_ptr<Store> store, FileLimits limits);

  Store& store() { return *store_; }
  // Errors: kInvalidArgument (the owner has as much as it may), kIo (a full disk, …: nothing is kept).
  Result<StoredFile> add(const std::string& owner, std::string_view name, std::string_view purpose,
                         std::string_view content);
  // The same of a content that is on disk already, in two steps: the content gets a second name, which is put aside at the
  // next start unless a transaction of the caller's has inserted its row. What an owner may keep does not bound it: it is what
  // the server made.
  Result<StoredFile> link(std::string_view name, std::string_view purpose,
                          const std::filesystem::path& content);
  Status insert(const std::string& owner, const StoredFile& file);
  Result<StoredFile> find(const std::string& owner, const std::string& id);
  // At most query.limit files; `more`: there are further ones. Error: kNotFound, query.after.
  Result<std::vector<StoredFile>> list(const std::string& owner, const FileQuery& query, bool& more);
  Status remove(const std::string& owner, const std::string& id);
  // Bytes from `offset` on, at most `most`: fewer only at the end. Errors: kIo, kCorruptFile (shorter than its row says).
  Result<std::string> read(const StoredFile& file, int64_t offset, int64_t most) const;

 private:
  StoredFiles(std::shared_ptr<Store> store, FileLimits limits) : store_(std::move(store)), limits_(limits) {}
  Status put_leftovers_aside();
  Status check_room(const std::string& owner, int64_t bytes);
  std::string path_of(const std::string& id) const { return store_->folder() / "files" / id; }

  std::shared_ptr<Store> store_;
  const FileLimits limits_;
};

}  // namespace penstock
