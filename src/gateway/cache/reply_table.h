// Cached replies on disk: a SQLite database of their own, which may be deleted while no server runs.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "gateway/store/database.h"

namespace penstock {

struct CachedReply {
  std::string key;                   // hash of all that made it
  std::string model;                 // whose it is, as forget() knows it
  std::string record;                // ReplyRecord's bytes
  std::string scope;                 // hash of all but the question; "": it is found by its key only
  std::string question;              // whose meaning it is found by
  int64_t created = 0, expires = 0;  // unix time, seconds
};
using CachedReplyRef = std::shared_ptr<const CachedReply>;

// One thread.
class ReplyTable {
 public:
  // Errors: those of Database::open.
  static Result<std::unique_ptr<ReplyTable>> open(const std::filesystem::path& file);

  struct Changes {
    std::vector<std::string> forgotten;  // models, "" = all: those come first
    std::vector<std::string> removed;    // keys, then
    struct Added {
      CachedReplyRef reply;
      std::vector<float> meaning;
    };
    std::vector<Added> added;  // and at last
    bool empty() const { return added.empty() && removed.empty() && forgotten.empty(); }
  };
  // All of it or nothing, and on the disk when it returns. Errors: kIo (a full disk, …), kCorruptFile.
  Status write(const Changes& changes);
  // Removes what expired before `now`, and gives all others, oldest first.
  Status read(int64_t now, const std::function<void(CachedReply, std::vector<float> meaning)>& take);

 private:
  explicit ReplyTable(std::unique_ptr<Database> database) : database_(std::move(database)) {}
  std::unique_ptr<Database> database_;
};

}  // namespace penstock
