#include "engine/store/kv_store.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/store/block_folder.h"
#include "engine/store/block_memory.h"
#include "engine/store/block_redis.h"
#include "engine/store/block_tiers.h"

namespace penstock {
namespace {

constexpr std::string_view kMemoryPrefix = "memory:";
constexpr int64_t kDefaultBytes = int64_t{16} << 30;
constexpr int64_t kLeastBytes = int64_t{1} << 20;
constexpr int64_t kMostWaiting = int64_t{64} << 20;  // bytes of blocks on their way, each direction

// Bits by which a suffix shifts; -1: not a suffix.
int shift_of(std::string_view suffix) {
  if (suffix.empty()) return 0;
  for (const std::string_view unit : {"", "B", "iB"}) {
    if (suffix.substr(1) != unit) continue;
    const size_t at = std::string_view("KMGT").find(suffix[0]);
    return at == std::string_view::npos ? -1 : static_cast<int>(10 * (at + 1));
  }
  return -1;
}

tl::unexpected<Error> refused(const std::string& text) {
  return errorf(
      ErrorCode::kInvalidArgument,
      "kv_store: expected memory:SIZE, PATH or PATH:SIZE, redis://HOST:PORT, or several in this "
      "order with commas between them, each size at least 1M, as memory:4G,/cache:20G, got '{}'",
      text.find("://") == std::string::npos ? text : "another URL");  // with a password
}

// Parses SIZE. -1: it is none, or too small.
int64_t size_of(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const int shift = shift_of(text.substr(static_cast<size_t>(end - text.data())));
  const bool is_size =
      error == std::errc() && shift >= 0 && number >= 0 && number <= (INT64_MAX >> shift);
  return is_size && (number << shift) >= kLeastBytes ? number << shift : -1;
}

// Parses PATH[:SIZE].
Status parse_folder(const std::string& text, KvStoreSpec& spec) {
  if (text.find("://") != std::string::npos || text.find(",memory:") != std::string::npos)
    return refused(text);
  const size_t colon = text.rfind(':');
  spec.path = text.substr(0, colon);
  spec.max_bytes = kDefaultBytes;
  if (spec.path.empty()) return refused(text);
  if (colon == std::string::npos) return {};
  spec.max_bytes = size_of(std::string_view(text).substr(colon + 1));
  if (spec.max_bytes < 0) return refused(text);
  return {};
}

}  // namespace

Result<KvStoreSpec> parse_kv_store(const std::string& text) {
  KvStoreSpec spec;
  std::string rest = text;
  if (rest.starts_with(kMemoryPrefix)) {
    const size_t end = std::min(rest.find(','), rest.size());
    spec.memory_bytes =
        size_of(std::string_view(rest).substr(kMemoryPrefix.size(), end - kMemoryPrefix.size()));
    if (spec.memory_bytes < 0 || end + 1 == rest.size()) return refused(text);
    rest.erase(0, end + 1);
    if (rest.empty()) return spec;
  }
  const size_t url = find_redis(rest);
  const bool has_url = url != std::string::npos;
  if (!has_url || url > 0)
    RETURN_IF_ERROR(parse_folder(has_url ? rest.substr(0, url - 1) : rest, spec));
  if (!has_url) return spec;
  const char* const password =
      std::getenv("PENSTOCK_REDIS_PASSWORD");  // NOLINT(concurrency-mt-unsafe)
  ASSIGN_OR_RETURN(spec.redis, parse_redis(rest.substr(url), password == nullptr ? "" : password));
  return spec;
}

KvStore::KvStore(std::shared_ptr<BlockStore> blocks, int block_size,
                 std::chrono::milliseconds longest_answer)
    : blocks_(std::move(blocks)),
      writer_(blocks_, kMostWaiting, longest_answer),
      loader_(blocks_, block_size, kMostWaiting, longest_answer) {}

Result<std::unique_ptr<KvStore>> KvStore::open(const KvStoreSpec& spec, const BlockImages& images,
                                               int block_size, std::span<const int> shares) {
  std::vector<std::shared_ptr<BlockStore>> stores;  // the nearest first
  if (spec.memory_bytes > 0) {
    ASSIGN_OR_RETURN(stores.emplace_back(), BlockMemory::open(spec.memory_bytes, images, shares));
  }
  if (!spec.path.empty()) {
    ASSIGN_OR_RETURN(BlockFolder opened, BlockFolder::open(spec.path, spec.max_bytes, images));
    stores.push_back(std::make_shared<BlockFolder>(std::move(opened)));
  }
  if (spec.redis) {
    auto redis = std::make_shared<BlockRedis>(*spec.redis, images);
    redis->ping().map([] {});  // warns
    stores.push_back(std::move(redis));
  }
  if (stores.size() == 1) return std::make_unique<KvStore>(stores[0], block_size);
  return std::make_unique<KvStore>(std::make_shared<BlockTiers>(std::move(stores)), block_size);
}

}  // namespace penstock
