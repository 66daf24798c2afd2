#include "engine/prefix_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

namespace penstock {
namespace {

constexpr uint64_t kMagic = 0x3158464B54534E50ull;  // "PNSTKFX1"

uint64_t checksum(std::span<const std::byte> bytes, uint64_t seed) {
  uint64_t hash = seed ^ (bytes.size() * 0x9E3779B97F4A7C15ull);
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
    hash = (hash ^ word) * 0xD6E8FEB86659FD93ull;
    hash ^= hash >> 32;
  }
  return hash;
}

// One entry in memory: everything but the checksum.
class Entry {
 public:
  Entry(int64_t content_bytes, int block_size)
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
  std::span<std::byte> content() { return std::span(bytes_).subspan(kHead + block_size_ * sizeof(TokenId)); }
  std::span<std::byte> all() { return bytes_; }

 private:
  static constexpr size_t kHead = 3 * sizeof(uint64_t);
  std::vector<std::byte> bytes_;
  int block_size_;
};

template <class T>
void put(std::ostream& out, const T& value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
bool get(std::istream& in, T& value) {
  return static_cast<bool>(in.read(reinterpret_cast<char*>(&value), sizeof value));
}

void write_entries(std::ostream& out, uint64_t fingerprint, const Scheduler& scheduler,
                   const StepModel& model) {
  uint64_t n_entries = 0;
  for (int g = 0; g < scheduler.n_groups(); ++g) {
    scheduler.allocator(g).for_each_published(
        [&](BlockId, const BlockHash&, std::span<const TokenId>) { ++n_entries; });
  }
  put(out, kMagic);
  put(out, fingerprint);
  put(out, n_entries);
  for (int g = 0; g < scheduler.n_groups(); ++g) {
    Entry entry(model.block_bytes(g), scheduler.block_size());
    scheduler.allocator(g).for_each_published(
        [&](BlockId block, const BlockHash& hash, std::span<const TokenId> tokens) {
          entry.set_head(static_cast<uint64_t>(g), hash, tokens);
          model.read_block(g, block, entry.content());
          out.write(reinterpret_cast<const char*>(entry.all().data()),
                    static_cast<std::streamsize>(entry.all().size()));
          put(out, checksum(entry.all(), fingerprint));
        });
  }
}

}  // namespace

Status save_prefix_cache(const std::filesystem::path& path, uint64_t fingerprint, const Scheduler& scheduler,
                         const StepModel& model) {
  std::filesystem::path temporary = path;
  temporary += ".part";
  std::error_code error;
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    if (out) write_entries(out, fingerprint, scheduler, model);
    out.flush();
    if (!out) {
      const int code = errno;
      std::filesystem::remove(temporary, error);
      return errorf(ErrorCode::kIo, "{}: cannot write the prefix cache: {}", path.string(),
                    std::strerror(code));
    }
  }
  std::filesystem::rename(temporary, path, error);
  if (error) return errorf(ErrorCode::kIo, "{}: {}", path.string(), error.message());
  return {};
}

Result<int> restore_prefix_cache(const std::filesystem::path& path, uint64_t fingerprint,
                                 Scheduler& scheduler, StepModel& model) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return errorf(ErrorCode::kNotFound, "{}: no prefix cache", path.string());
  uint64_t magic = 0, found = 0, n_entries = 0;
  if (!get(in, magic) || !get(in, found) || !get(in, n_entries) || magic != kMagic) {
    return errorf(ErrorCode::kCorruptFile, "{}: not a prefix cache", path.string());
  }
  if (found != fingerprint) {
    return errorf(ErrorCode::kInvalidArgument, "{}: the prefix cache is of another model or configuration",
                  path.string());
  }
  std::vector<Entry> entries;
  for (int g = 0; g < scheduler.n_groups(); ++g)
    entries.emplace_back(model.block_bytes(g), scheduler.block_size());
  int n_restored = 0;
  for (uint64_t i = 0; i < n_entries; ++i) {
    uint64_t group = 0, sum = 0;
    if (!get(in, group) || group >= entries.size()) {
      return errorf(ErrorCode::kCorruptFile, "{}: entry {} of {} is damaged", path.string(), i, n_entries);
    }
    Entry& entry = entries[group];
    const std::span<std::byte> all = entry.all();
    std::memcpy(all.data(), &group, sizeof group);
    in.read(reinterpret_cast<char*>(all.data()) + sizeof group,
            static_cast<std::streamsize>(all.size() - sizeof group));
    if (!in || !get(in, sum) || sum != checksum(all, fingerprint)) {
      return errorf(ErrorCode::kCorruptFile, "{}: entry {} of {} is damaged", path.string(), i, n_entries);
    }
    const int g = static_cast<int>(group);
    BlockAllocator& allocator = scheduler.allocator(g);
    const std::optional<BlockId> block = allocator.allocate();  // when full, the oldest of the restored ones
    if (!block) continue;
    model.write_block(g, *block, entry.content());
    n_restored += allocator.publish(*block, entry.hash(), entry.tokens());
    allocator.release(*block);
  }
  return n_restored;
}

}  // namespace penstock
