#include "engine/store/kv_store.h"

#include <charconv>

#include "engine/store/block_folder.h"
#include "engine/store/block_redis.h"
#include "engine/store/block_tiers.h"

namespace penstock {
namespace {

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

// Parses PATH[:SIZE].
Status parse_folder(const std::string& text, KvStoreSpec& spec) {
  const auto refuse = [&] {
    return errorf(ErrorCode::kInvalidArgument,
                  "kv_store: expected PATH or PATH:SIZE with a size of at least 1M, as /cache:20G, "
                  "redis://HOST:PORT, or both with a comma between them, got '{}'",
                  text.find("://") == std::string::npos ? text : "another URL");  // with a password
  };
  if (text.find("://") != std::string::npos) return refuse();
  const size_t colon = text.rfind(':');
  spec = {text.substr(0, colon), kDefaultBytes, {}};
  if (spec.path.empty()) return refuse();
  if (colon == std::string::npos) return {};
  const std::string_view size = std::string_view(text).substr(colon + 1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), number);
  const int shift = shift_of(size.substr(static_cast<size_t>(end - size.data())));
  if (error != std::errc() || shift < 0 || number < 0 || number > (INT64_MAX >> shift) ||
      (number << shift) < kLeastBytes)
    return refuse();
  spec.max_bytes = number << shift;
  return {};
}

}  // namespace

Result<KvStoreSpec> parse_kv_store(const std::string& text) {
  KvStoreSpec spec;
  const size_t url = text.find("redis://"), secure = text.find("rediss://");
  if (secure == 0 || (secure != std::string::npos && text[secure - 1] == ','))
    return make_error(ErrorCode::kInvalidArgument,
                      "kv_store: rediss:// (TLS) is not supported: expected redis://, through a "
                      "tunnel where the network is not trusted");
  const bool has_url = url == 0 || (url != std::string::npos && text[url - 1] == ',');
  if (!has_url || url > 0)
    RETURN_IF_ERROR(parse_folder(has_url ? text.substr(0, url - 1) : text, spec));
  if (!has_url) return spec;
  ASSIGN_OR_RETURN(spec.redis, parse_redis(text.substr(url)));
  return spec;
}

KvStore::KvStore(std::shared_ptr<BlockStore> blocks, int block_size,
                 std::chrono::milliseconds longest_answer)
    : blocks_(std::move(blocks)),
      writer_(blocks_, kMostWaiting, longest_answer),
      loader_(blocks_, block_size, kMostWaiting, longest_answer) {}

Result<std::unique_ptr<KvStore>> KvStore::open(const KvStoreSpec& spec, BlockImages images,
                                               int block_size) {
  std::shared_ptr<BlockStore> folder, shared;
  if (!spec.path.empty()) {
    ASSIGN_OR_RETURN(BlockFolder opened, BlockFolder::open(spec.path, spec.max_bytes, images));
    folder = std::make_shared<BlockFolder>(std::move(opened));
  }
  if (spec.redis) {
    auto redis = std::make_shared<BlockRedis>(*spec.redis, std::move(images));
    redis->ping().map([] {});  // warns
    shared = std::move(redis);
  }
  if (folder && shared) folder = std::make_shared<BlockTiers>(std::move(folder), shared);
  return std::make_unique<KvStore>(folder ? std::move(folder) : std::move(shared), block_size);
}

}  // namespace penstock
