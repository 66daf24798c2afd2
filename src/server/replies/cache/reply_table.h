// The cached replies on disk: a separate SQLite database, which may be deleted while no server
// runs.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "server/store/database.h"

namespace penstock {

struct CachedReply {
  // hash of everything that determined the reply
  std::string key;
  // model that made it, by the name that forget() takes
  std::string model;
  std::string record;  // bytes of a ReplyRecorder
  // hash of everything but the question; "": the reply is found by its key only
  std::string scope;
  // question whose embedding the reply is found by
  std::string question;
  int64_t created = 0, expires = 0;  // unix time, seconds
};
using CachedReplyRef = std::shared_ptr<const CachedReply>;

// Not thread-safe.
class ReplyTable {
 public:
  // Errors: those of Database::open.
  static Result<std::unique_ptr<ReplyTable>> open(const std::filesystem::path& file);

  // Closes the table and deletes its files. Errors are ignored.
  static void remove(std::unique_ptr<ReplyTable> table);

  struct Changes {
    // applied first: models whose replies are removed; "": all
    std::vector<std::string> forgotten;
    std::vector<std::string> removed;  // applied second: keys of removed replies
    struct Added {
      CachedReplyRef reply;
      std::vector<float> meaning;
    };
    std::vector<Added> added;  // applied last
    bool empty() const { return added.empty() && removed.empty() && forgotten.empty(); }
  };
  // Applies all changes or none; they are on disk when it returns. Errors: kIo (a full disk, …),
  // kCorruptFile.
  Status write(const Changes& changes);
  // Removes the replies that expired before `now` and calls `take` for all others, oldest first.
  Status read(int64_t now,
              const std::function<void(CachedReply, std::vector<float> meaning)>& take);

 private:
  ReplyTable(std::filesystem::path file, std::unique_ptr<Database> database)
      : file_(std::move(file)), database_(std::move(database)) {}

  std::filesystem::path file_;
  std::unique_ptr<Database> database_;
};

}  // namespace penstock
