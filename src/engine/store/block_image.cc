#include "engine/store/block_image.h"

#include <cstring>

#include "base/check.h"
#include "base/checksum.h"

namespace penstock {
namespace {

constexpr uint64_t kMagic = 0x31424B5453534E50ull;  // "PNSSTKB1"

uint64_t sum_of(std::span<const std::byte> image) {
  return checksum64(image.first(image.size() - sizeof(uint64_t)));
}

}  // namespace

BlockImages::BlockImages(const BlockHash& fingerprint, int block_size,
                         std::span<const int64_t> block_bytes)
    : fingerprint_(fingerprint),
      block_size_(block_size),
      content_bytes_(block_bytes.begin(), block_bytes.end()) {}

void BlockImages::write_head(const BlockKey& key, std::span<const TokenId> tokens,
                             std::byte* to) const {
  PENSTOCK_CHECK(static_cast<int>(tokens.size()) == block_size_);
  const uint64_t words[kWords] = {kMagic,
                                  fingerprint_.low,
                                  fingerprint_.high,
                                  key.hash.low,
                                  key.hash.high,
                                  static_cast<uint64_t>(key.group),
                                  static_cast<uint64_t>(block_size_),
                                  static_cast<uint64_t>(content_bytes_[key.group])};
  std::memcpy(to, words, sizeof words);
  std::memcpy(to + sizeof words, tokens.data(), tokens.size_bytes());
}

BlockImage BlockImages::make(const BlockKey& key, std::span<const TokenId> tokens) const {
  BlockImage image(static_cast<size_t>(bytes(key.group)));
  write_head(key, tokens, image.data());
  return image;
}

void BlockImages::seal(BlockImage& image) const {
  const uint64_t sum = sum_of(image);
  std::memcpy(image.data() + image.size() - sizeof sum, &sum, sizeof sum);
}

bool BlockImages::holds(const BlockImage& image, const BlockKey& key,
                        std::span<const TokenId> tokens) const {
  if (static_cast<int64_t>(image.size()) != bytes(key.group)) return false;
  std::vector<std::byte> head(static_cast<size_t>(head_bytes()));
  write_head(key, tokens, head.data());
  if (std::memcmp(image.data(), head.data(), head.size()) != 0) return false;
  uint64_t sum = 0;
  std::memcpy(&sum, image.data() + image.size() - sizeof sum, sizeof sum);
  return sum == sum_of(image);
}

std::string BlockImages::fault_of(std::span<const std::byte> image, const BlockHash& fingerprint,
                                  const BlockKey& key) {
  uint64_t words[kWords], sum = 0;
  if (image.size() < sizeof words + sizeof sum) return "the block is cut off";
  std::memcpy(words, image.data(), sizeof words);
  std::memcpy(&sum, image.data() + image.size() - sizeof sum, sizeof sum);
  if (words[0] != kMagic) return "it is no block, or one of another version or kind of machine";
  if (words[1] != fingerprint.low || words[2] != fingerprint.high)
    return "the block is of another model than its folder";
  if (words[3] != key.hash.low || words[4] != key.hash.high ||
      words[5] != static_cast<uint64_t>(key.group))
    return "the block is another than its name says";
  const uint64_t size = image.size() - sizeof words - sizeof sum, n_tokens = words[6];
  if (n_tokens > size / sizeof(TokenId) || size - n_tokens * sizeof(TokenId) != words[7])
    return "the block has another size";
  if (sum != sum_of(image)) return "the block is damaged";
  return {};
}

}  // namespace penstock
