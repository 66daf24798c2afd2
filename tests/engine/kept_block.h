// A block as a store keeps it, of images that need no model, for tests of stores.
#pragma once
#include <chrono>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "engine/store/block_image.h"
#include "engine/store/redis_connection.h"

namespace penstock {

inline constexpr int kTokensOfBlock = 4;
inline constexpr RedisTimes kImpatient{.longest_answer = std::chrono::milliseconds(200),
                                       .rest = std::chrono::milliseconds(300)};

inline BlockImages redis_images(uint64_t fingerprint = 1) {
  const int64_t bytes[] = {100, 300000};
  return {{fingerprint, 7}, kTokensOfBlock, bytes};
}

struct Kept {
  explicit Kept(int n, int group = 0) : tokens(kTokensOfBlock), key{group, {}} {
    std::iota(tokens.begin(), tokens.end(), n);
    key.hash = chain_hash(root_hash("chain"), tokens);
    const BlockImages images = redis_images();
    image = images.make(key, tokens);
    std::ranges::fill(images.content(group, image), static_cast<std::byte>(n));
    images.seal(image);
  }
  std::vector<TokenId> tokens;
  BlockKey key;
  BlockImage image;
};

inline ErrorCode code_of(const Status& status) {
  return status ? ErrorCode::kInternal : status.error().code;
}

// Sends a command on a connection of its own.
inline Result<RedisReply> ask(const RedisAddress& address,
                              const std::vector<std::string_view>& words) {
  static thread_local std::string text;
  RedisConnection connection(address, {.longest_connecting = std::chrono::seconds(5)});
  auto reply = connection.call(words, 1 << 20);
  if (reply) reply->text = text = reply->text;
  return reply;
}

}  // namespace penstock
