#include "engine/files/prefix_file.h"

#include "base/regular_file.h"
#include "engine/files/block_file.h"

namespace penstock {
namespace {

constexpr uint64_t kPrefixMagic = 0x3158464B54534E50ull;  // "PNSTKFX1"

void write_entries(std::ostream& out, uint64_t fingerprint, const Scheduler& scheduler,
                   const StepModel& model) {
  uint64_t n_entries = 0;
  for (int g = 0; g < scheduler.n_groups(); ++g) {
    scheduler.allocator(g).for_each_published(
        [&](BlockId, const BlockHash&, std::span<const TokenId>) { ++n_entries; });
  }
  put(out, kPrefixMagic);
  put(out, fingerprint);
  put(out, n_entries);
  for (int g = 0; g < scheduler.n_groups(); ++g) {
    BlockEntry entry(model.block_bytes(g), scheduler.block_size());
    scheduler.allocator(g).for_each_published(
        [&](BlockId block, const BlockHash& hash, std::span<const TokenId> tokens) {
          entry.set_head(static_cast<uint64_t>(g), hash, tokens);
          model.read_block(g, block, entry.content());
          entry.write(out, fingerprint);
        });
  }
}

}  // namespace

Status save_prefix_cache(const std::filesystem::path& path, uint64_t fingerprint,
                         const Scheduler& scheduler, const StepModel& model) {
  return write_whole_file(path, "prefix cache", [&](std::ostream& out) {
    write_entries(out, fingerprint, scheduler, model);
  });
}

Result<int> restore_prefix_cache(const std::filesystem::path& path, uint64_t fingerprint,
                                 Scheduler& scheduler, StepModel& model) {
  ASSIGN_OR_RETURN(FileDescriptor file, open_regular_file(path));
  FileStream in(std::move(file));
  uint64_t magic = 0, found = 0, n_entries = 0;
  if (!get(in, magic) || !get(in, found) || !get(in, n_entries) || magic != kPrefixMagic) {
    return errorf(ErrorCode::kCorruptFile, "{}: not a prefix cache", path.string());
  }
  if (found != fingerprint) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: the prefix cache is of another model or configuration", path.string());
  }
  std::vector<BlockEntry> entries;
  for (int g = 0; g < scheduler.n_groups(); ++g)
    entries.emplace_back(model.block_bytes(g), scheduler.block_size());
  int n_restored = 0;
  for (uint64_t i = 0; i < n_entries; ++i) {
    uint64_t group = 0;
    if (!get(in, group) || group >= entries.size()) {
      return errorf(ErrorCode::kCorruptFile, "{}: entry {} of {} is damaged", path.string(), i,
                    n_entries);
    }
    BlockEntry& entry = entries[group];
    if (!entry.read_rest(in, group, fingerprint)) {
      return errorf(ErrorCode::kCorruptFile, "{}: entry {} of {} is damaged", path.string(), i,
                    n_entries);
    }
    const int g = static_cast<int>(group);
    BlockAllocator& allocator = scheduler.allocator(g);
    // if the cache is full, this evicts the oldest of the restored blocks
    const std::optional<BlockId> block = allocator.allocate();
    if (!block) continue;
    model.write_block(g, *block, entry.content());
    n_restored += allocator.publish(*block, entry.hash(), entry.tokens());
    allocator.release(*block);
  }
  return n_restored;
}

}  // namespace penstock
