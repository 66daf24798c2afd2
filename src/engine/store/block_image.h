// A block of a cache as it is kept outside: what it is, its content, and a checksum of both.
//
// Layout: magic, fingerprint (2 words), hash (2 words), group, block size, bytes of the content;
// tokens, content, checksum; in the byte order of the machine, which the magic tells. A reader knows
// the block that it wants, so an image is compared with what it has to be and never parsed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "draft/block_allocator.h"

namespace penstock {

// Which block: the content of `group` for the tokens that the hash stands for.
struct BlockKey {
  int group = 0;
  BlockHash hash;
};

using BlockImage = std::vector<std::byte>;

// The images of one model's blocks. Immutable: any thread.
class BlockImages {
 public:
  // fingerprint: equal for engines whose blocks are equal to the bit, and for no others.
  // block_bytes: [n_groups] bytes of a block's content.
  BlockImages(const BlockHash& fingerprint, int block_size, std::span<const int64_t> block_bytes);

  const BlockHash& fingerprint() const { return fingerprint_; }
  int n_groups() const { return static_cast<int>(content_bytes_.size()); }
  int64_t bytes(int group) const { return head_bytes() + content_bytes_[group] + kSumBytes; }

  // Returns an image whose content is still to be filled in. Throws std::bad_alloc.
  BlockImage make(const BlockKey& key, std::span<const TokenId> tokens) const;
  std::span<std::byte> content(int group, BlockImage& image) const {
    return std::span(image).subspan(static_cast<size_t>(head_bytes()),
                                    static_cast<size_t>(content_bytes_[group]));
  }
  // Fills in the checksum of a complete image.
  void seal(BlockImage& image) const;
  // Whether the image is of this key and these tokens, and its checksum is right.
  bool holds(const BlockImage& image, const BlockKey& key, std::span<const TokenId> tokens) const;
  // Returns what is wrong with an image of this model and key, whose tokens and sizes are not known;
  // empty: nothing.
  static std::string fault_of(std::span<const std::byte> image, const BlockHash& fingerprint,
                              const BlockKey& key);

 private:
  static constexpr int64_t kWords = 8, kSumBytes = sizeof(uint64_t);
  int64_t head_bytes() const {
    return kWords * static_cast<int64_t>(sizeof(uint64_t)) +
           block_size_ * static_cast<int64_t>(sizeof(TokenId));
  }
  void write_head(const BlockKey& key, std::span<const TokenId> tokens, std::byte* to) const;

  BlockHash fingerprint_;
  int block_size_;
  std::vector<int64_t> content_bytes_;
};

}  // namespace penstock
