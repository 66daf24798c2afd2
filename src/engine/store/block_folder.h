// A folder of cached blocks on a local disk, which several processes and models share: a file for
// each block, named by its key. Bounded: the files that were used least recently are removed.
//
// Files appear whole (they are renamed into place) and are never changed, so readers and writers
// need no locks. A process that is killed leaves at most a file with a temporary name, which is
// removed later. Nothing is flushed to the device: what a power failure tears is found by its
// checksum. No index is kept in memory: the file system is the index.
//
// Below PATH: penstock-kv/FINGERPRINT/HH/HASH.GROUP in hexadecimal digits; HH are two of the hash's.
//
// read(), contains() and touch(): any thread. write(): one thread at a time.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"
#include "engine/store/block_files.h"
#include "engine/store/block_store.h"

namespace penstock {

class BlockFolder final : public BlockStore {
 public:
  // Makes the folder if need be; only its owner may read it. max_bytes: bytes of all files, those of
  // other models included, at least 16 blocks of each group; several processes may exceed it by 1/64
  // each. Errors: kInvalidArgument, kIo, kResourceExhausted.
  static Result<BlockFolder> open(const std::filesystem::path& path, int64_t max_bytes,
                                  BlockImages images);

  const BlockImages& images() const override { return images_; }
  const std::filesystem::path& path() const { return root_; }

  bool contains(const BlockKey& key) const override;
  bool touch(const BlockKey& key) const override;
  void expect(const BlockKey& key) const override;
  // A damaged file is removed.
  Status read(const BlockKey& key, std::span<const TokenId> tokens,
              BlockImage& image) const override;
  // Removes other files when there is no room.
  Status write(const BlockKey& key, const BlockImage& image) override;

 private:
  BlockFolder(std::filesystem::path root, int64_t max_bytes, BlockImages images);
  std::filesystem::path folder_of(const BlockKey& key) const;
  std::string path_of(const BlockKey& key) const;
  Status write_file(const BlockKey& key, const BlockImage& image);
  void make_room(int64_t bytes);

  std::filesystem::path root_, own_;  // own_: of this model
  int64_t max_bytes_;
  BlockImages images_;
  // bytes of all files when they were last counted (-1: never), and written since by this process
  int64_t counted_ = -1, written_ = 0;
};

}  // namespace penstock
