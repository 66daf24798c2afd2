// Shared parts of the files of cached blocks (prefix cache, sessions).
#pragma once
#include <cstring>
#include <filesystem>
#include <functional>
#include <istream>
#include <ostream>
#include <span>
#include <vector>

#include "base/result.h"
#include "draft/block_allocator.h"

namespace penstock {

uint64_t checksum(std::span<const std::byte> bytes, uint64_t seed);

// Calls `write` with a temporary file beside `path`, then renames that to `path`, so that a failure
// leaves an older file as it was. what: names the file in an error. Errors: kIo, kResourceExhausted
// (the disk is full).
Status write_whole_file(const std::filesystem::path& path, const char* what,
                        const std::function<void(std::ostream&)>& write);

template <class T>
void put(std::ostream& out, const T& value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
bool get(std::istream& in, T& value) {
  return static_cast<bool>(in.read(reinterpret_cast<char*>(&value), sizeof value));
}

// One block in a file: group, hash, tokens, content, checksum. The sizes come from the open engine.
class BlockEntry {
 public:
  BlockEntry(int64_t content_bytes, int block_size)
      : bytes_(kHead + block_size * sizeof(TokenId) + static_cast<size_t>(content_bytes)),
        block_size_(block_size) {}

  void set_head(uint64_t group, const BlockHash& hash, std::span<const TokenId> tokens) {
    const uint64_t head[3] = {group, hash.low, hash.high};
    std::memcpy(bytes_.data(), head, sizeof head);
    std::memcpy(bytes_.data() + kHead, tokens.data(), tokens.size_bytes());
  }
  BlockHash hash() const {
    uint64_t head[3];
    std::memcpy(head, bytes_.data(), sizeof head);
    return {head[1], head[2]};
  }
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> tokens(block_size_);
    std::memcpy(tokens.data(), bytes_.data() + kHead, tokens.size() * sizeof(TokenId));
    return tokens;
  }
  std::span<std::byte> content() {
    return std::span(bytes_).subspan(kHead + block_size_ * sizeof(TokenId));
  }
  int64_t file_bytes() const { return static_cast<int64_t>(bytes_.size() + sizeof(uint64_t)); }

  void write(std::ostream& out, uint64_t seed) const {
    out.write(reinterpret_cast<const char*>(bytes_.data()),
              static_cast<std::streamsize>(bytes_.size()));
    put(out, checksum(bytes_, seed));
  }
  // Reads an entry whose group number was read already. False when the entry is cut off or damaged.
  bool read_rest(std::istream& in, uint64_t group, uint64_t seed) {
    std::memcpy(bytes_.data(), &group, sizeof group);
    uint64_t sum = 0;
    in.read(reinterpret_cast<char*>(bytes_.data()) + sizeof group,
            static_cast<std::streamsize>(bytes_.size() - sizeof group));
    return in && get(in, sum) && sum == checksum(bytes_, seed);
  }

 private:
  static constexpr size_t kHead = 3 * sizeof(uint64_t);
  std::vector<std::byte> bytes_;
  int block_size_;
};

}  // namespace penstock
