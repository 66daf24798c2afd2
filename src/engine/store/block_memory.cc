#include "engine/store/block_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/memory.h"

namespace penstock {
namespace {

constexpr double kMostSlots = 1 << 30;

}  // namespace

Result<std::shared_ptr<BlockMemory>> BlockMemory::open(int64_t bytes, BlockImages images,
                                                       std::span<const int> shares) {
  if (bytes > total_memory()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "kv_store memory: expected at most the {} bytes of this machine, got {}",
                  total_memory(), bytes);
  }
  double all = 0;  // bytes of so many blocks
  int64_t one_of_each = 0;
  for (int g = 0; g < images.n_groups(); ++g) {
    all += static_cast<double>(images.bytes(g)) * std::max(1, shares[static_cast<size_t>(g)]);
    one_of_each += images.bytes(g);
  }
  std::vector<Group> groups(static_cast<size_t>(images.n_groups()));
  int64_t end = 0;
  for (int g = 0; g < images.n_groups(); ++g) {
    Group& group = groups[static_cast<size_t>(g)];
    // Beside one block of each group, whatever its share is.
    const double share = std::max(1, shares[static_cast<size_t>(g)]) / all;
    const double more = share * static_cast<double>(std::max<int64_t>(0, bytes - one_of_each));
    group.n_slots = 1 + static_cast<int>(std::min(kMostSlots, more));
    group.begin = end;
    end += group.n_slots * images.bytes(g);
  }
  if (bytes < one_of_each) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "kv_store memory: expected at least {} bytes, a block of each kind of this model, "
        "got {}",
        one_of_each, bytes);
  }
  void* memory = mmap(nullptr, static_cast<size_t>(end), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return errorf(ErrorCode::kResourceExhausted,
                  "kv_store memory: {} bytes of memory cannot be had: {}", end,
                  std::strerror(errno));
  }
  return std::shared_ptr<BlockMemory>(
      new BlockMemory(std::move(images), std::move(groups), static_cast<std::byte*>(memory), end));
}

BlockMemory::BlockMemory(BlockImages images, std::vector<Group> groups, std::byte* memory,
                         int64_t bytes)
    : images_(std::move(images)),
      groups_(std::move(groups)),
      memory_(memory),
      bytes_(bytes),
      promised_(memory, static_cast<size_t>(bytes)) {}

BlockMemory::~BlockMemory() {
  promised_ = {};
  munmap(memory_, static_cast<size_t>(bytes_));
}

std::span<std::byte> BlockMemory::slot(int group, int slot) const {
  const int64_t bytes = images_.bytes(group);
  return {memory_ + groups_[static_cast<size_t>(group)].begin + slot * bytes,
          static_cast<size_t>(bytes)};
}

const BlockMemory::Block* BlockMemory::use(const BlockKey& key) const {
  Group& group = groups_[static_cast<size_t>(key.group)];
  const auto found = group.by_hash.find(key.hash);
  if (found == group.by_hash.end()) return nullptr;
  group.blocks.splice(group.blocks.end(), group.blocks, found->second);
  return &*found->second;
}

// The block's slot is the next that is given to another.
void BlockMemory::forget(const BlockKey& key) const {
  const std::lock_guard lock(mutex_);
  Group& group = groups_[static_cast<size_t>(key.group)];
  const auto found = group.by_hash.find(key.hash);
  if (found == group.by_hash.end()) return;
  const Blocks::iterator block = found->second;
  group.by_hash.erase(found);
  block->hash = {};
  group.blocks.splice(group.blocks.begin(), group.blocks, block);
}

bool BlockMemory::contains(const BlockKey& key) const {
  const std::lock_guard lock(mutex_);
  return groups_[static_cast<size_t>(key.group)].by_hash.contains(key.hash);
}

bool BlockMemory::touch(const BlockKey& key) const {
  const std::lock_guard lock(mutex_);
  return use(key) != nullptr;
}

Status BlockMemory::read(const BlockKey& key, std::span<const TokenId> tokens,
                         BlockImage& image) const {
  {
    const std::lock_guard lock(mutex_);
    const Block* block = use(key);
    if (block == nullptr) return make_error(ErrorCode::kNotFound, "the block is not in memory");
    const std::span<const std::byte> from = slot(key.group, block->slot);
    image.assign(from.begin(), from.end());
  }
  if (images_.holds(image, key, tokens)) return {};
  forget(key);
  return make_error(ErrorCode::kCorruptFile, "a block in memory is not what was wanted of it");
}

Status BlockMemory::write(const BlockKey& key, const BlockImage& image) {
  const std::lock_guard lock(mutex_);
  if (use(key) != nullptr) return {};
  Group& group = groups_[static_cast<size_t>(key.group)];
  // A block without a hash stands for nothing: what was forgotten, or had no memory for its entry.
  const bool is_new = std::ssize(group.blocks) < group.n_slots &&
                      (group.blocks.empty() || group.blocks.front().hash != BlockHash{});
  if (is_new)
    group.blocks.insert(group.blocks.begin(), {{}, static_cast<int>(group.blocks.size())});
  const Blocks::iterator block = group.blocks.begin();
  if (block->hash != BlockHash{}) group.by_hash.erase(block->hash);
  block->hash = {};
  group.by_hash.emplace(key.hash, block);
  block->hash = key.hash;
  std::ranges::copy(image, slot(key.group, block->slot).begin());
  group.blocks.splice(group.blocks.end(), group.blocks, block);
  return {};
}

}  // namespace penstock
