#include "engine/store/block_redis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace penstock {
namespace {

using Words = std::initializer_list<std::string_view>;
constexpr int64_t kShort = 4096;  // bytes of an answer without a block

Result<RedisReply> call(RedisCluster& servers, Words words, int64_t most = kShort) {
  return servers.call(std::span(words.begin(), words.size()), most);
}

// The writer's thread may wait: a block that is not written is lost.
RedisTimes patient(RedisTimes times) {
  times.longest_connecting = std::max(times.longest_connecting, times.longest_answer);
  return times;
}

}  // namespace

BlockRedis::BlockRedis(const RedisAddress& address, BlockImages images, RedisTimes times)
    : images_(std::move(images)),
      reads_{{}, RedisCluster(address, times)},
      writes_{{}, RedisCluster(address, patient(times))} {}

std::string BlockRedis::name_of(const BlockKey& key) const {
  const BlockHash& print = images_.fingerprint();
  return fmt::format("penstock-kv:{:016x}{:016x}:{:016x}{:016x}.{}", print.high, print.low,
                     key.hash.high, key.hash.low, key.group);
}

Status BlockRedis::ping() const {
  const std::lock_guard lock(reads_.mutex);
  return call(reads_.servers, {"PING"}).map([](const RedisReply&) {});
}

// Whether the command, which counts keys, finds one.
bool BlockRedis::counts(Line& line, const char* command, const BlockKey& key) const {
  const std::lock_guard lock(line.mutex);
  const auto reply = call(line.servers, {command, name_of(key)});
  return reply && reply->number == 1;
}

bool BlockRedis::contains(const BlockKey& key) const { return counts(reads_, "EXISTS", key); }

bool BlockRedis::touch(const BlockKey& key) const { return counts(writes_, "TOUCH", key); }

Status BlockRedis::read(const BlockKey& key, std::span<const TokenId> tokens,
                        BlockImage& image) const {
  const std::lock_guard lock(reads_.mutex);
  const std::string name = name_of(key);
  const int64_t bytes = images_.bytes(key.group);
  // A byte more than a block has, so that a longer value is seen and not received.
  ASSIGN_OR_RETURN(
      const RedisReply reply,
      call(reads_.servers, {"GETRANGE", name, "0", std::to_string(bytes)}, bytes + kShort));
  if (reply.text.empty()) return errorf(ErrorCode::kNotFound, "{} is not there", name);
  image.resize(reply.text.size());
  std::memcpy(image.data(), reply.text.data(), reply.text.size());
  if (std::ssize(image) == bytes && images_.holds(image, key, tokens)) return {};
  call(reads_.servers, {"DEL", name}).map([](const RedisReply&) {});
  return errorf(ErrorCode::kCorruptFile, "{}: {}: the block is damaged: it was removed",
                reads_.servers.name(), name);
}

Status BlockRedis::write(const BlockKey& key, const BlockImage& image) {
  if (touch(key)) return {};
  const std::lock_guard lock(writes_.mutex);
  const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
  return call(writes_.servers, {"SET", name_of(key), bytes}).map([](const RedisReply&) {});
}

}  // namespace penstock
