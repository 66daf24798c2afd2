#include "engine/store/kv_store.h"

#include <charconv>

#include "engine/store/block_folder.h"

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

}  // namespace

Result<KvStoreSpec> parse_kv_store(const std::string& text) {
  const auto refuse = [&] {
    return errorf(ErrorCode::kInvalidArgument,
                  "kv_store: expected PATH or PATH:SIZE with a size of at least 1M, as /cache:20G, "
                  "got '{}'",
                  text);
  };
  const size_t colon = text.rfind(':');
  if (text.empty() || colon == 0) return refuse();
  if (colon == std::string::npos) return KvStoreSpec{text, kDefaultBytes};
  const std::string_view size = std::string_view(text).substr(colon + 1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), number);
  const int shift = shift_of(size.substr(static_cast<size_t>(end - size.data())));
  if (error != std::errc() || shift < 0 || number < 0 || number > (INT64_MAX >> shift) ||
      (number << shift) < kLeastBytes)
    return refuse();
  return KvStoreSpec{text.substr(0, colon), number << shift};
}

KvStore::KvStore(std::shared_ptr<BlockStore> blocks, int block_size,
                 std::chrono::milliseconds longest_answer)
    : blocks_(std::move(blocks)),
      writer_(blocks_, kMostWaiting, longest_answer),
      loader_(blocks_, block_size, kMostWaiting, longest_answer) {}

Result<std::unique_ptr<KvStore>> KvStore::open(const KvStoreSpec& spec, BlockImages images,
                                               int block_size) {
  ASSIGN_OR_RETURN(BlockFolder folder,
                   BlockFolder::open(spec.path, spec.max_bytes, std::move(images)));
  return std::make_unique<KvStore>(std::make_shared<BlockFolder>(std::move(folder)), block_size);
}

}  // namespace penstock
