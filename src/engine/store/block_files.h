// The files of a folder of cached blocks, whatever models they are of: listing, checking, pruning.
//
// Any process may do so at any time, beside others that read and write blocks there.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/result.h"

namespace penstock {

inline constexpr const char* kBlockFolder = "penstock-kv";  // below the path of a store
inline constexpr const char* kUnfinishedBlock = ".part";    // end of the name of an unfinished file

// Bytes of the disk that a file of `size` bytes takes.
int64_t disk_bytes(int64_t size);

struct BlockFile {
  std::filesystem::path path;
  int64_t bytes;   // of the disk
  int64_t age_ns;  // since its last use; >= 0
  bool is_unfinished() const { return path.native().ends_with(kUnfinishedBlock); }
  // The fingerprint of its model, 32 hexadecimal digits.
  std::string model() const { return path.parent_path().parent_path().filename(); }
};

// Calls f for every block file and every unfinished one below `root`, a kBlockFolder. Files of other
// names are not touched, and what cannot be read is left out.
void for_each_block_file(const std::filesystem::path& root,
                         const std::function<void(const BlockFile&)>& f);

// When all files take more than `most` bytes, removes those that were used least recently until
// `target` remain; also removes what killed processes left. Returns the bytes that remain.
int64_t prune_block_files(const std::filesystem::path& root, int64_t most, int64_t target);

// The blocks of one model in a store.
struct StoredModel {
  int64_t n_blocks = 0, bytes = 0;                 // bytes: of the disk
  int64_t youngest_ns = INT64_MAX, oldest_ns = 0;  // ages: since the last use
};

// Returns the models of the store at `path` by fingerprint. Errors: kNotFound (there is no store).
Result<std::map<std::string, StoredModel>> list_store(const std::filesystem::path& path);

struct StoreCheck {
  int64_t n_blocks = 0, bytes = 0;  // read
  int64_t n_damaged = 0, n_unread = 0;
};

// A fault of a block. was_read: its content is wrong; else the file could not be read, and the block
// may be whole.
struct BlockFault {
  std::filesystem::path file;
  std::string what;
  bool was_read;
};

// Reads every block of the store at `path`; `tell` is called for each with a fault. Errors: kNotFound
// (there is no store).
Result<StoreCheck> check_store(const std::filesystem::path& path,
                               const std::function<void(const BlockFault&)>& tell);

}  // namespace penstock
