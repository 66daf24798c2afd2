#include "engine/files/session_file.h"

#include <array>
#include <memory>

#include "base/regular_file.h"
#include "engine/files/block_file.h"

namespace penstock {
namespace {

constexpr uint64_t kSessionMagic = 0x31534E4553534E50ull;  // "PNSSENS1"
enum HeadWord {
  kMagicWord,
  kFingerprint,
  kRootLow,
  kRootHigh,
  kTokens,
  kBlocks,
  kChecksum,
  kHeadWords
};
using Head = std::array<uint64_t, kHeadWords>;

uint64_t head_checksum(const Head& head, std::span<const TokenId> tokens) {
  const std::span<const uint64_t> words(head.data(), kChecksum);
  return checksum(std::as_bytes(tokens), checksum(std::as_bytes(words), kSessionMagic));
}

std::vector<BlockHash> hashes_of(BlockHash parent, std::span<const TokenId> tokens,
                                 int block_size) {
  std::vector<BlockHash> hashes;
  for (size_t i = 0; i + block_size <= tokens.size(); i += block_size) {
    parent = chain_hash(parent, tokens.subspan(i, block_size));
    hashes.push_back(parent);
  }
  return hashes;
}

template <class F>  // calls f(group, block index) for every published block of the session
void for_each_block(const Scheduler& scheduler, std::span<const BlockHash> hashes, F&& f) {
  size_t found = 0;
  while (found < hashes.size() && scheduler.allocator(0).contains(hashes[found])) ++found;
  for (int g = 0; g < scheduler.n_groups(); ++g) {
    for (size_t i = 0; i < found; ++i) {
      if (scheduler.allocator(g).contains(hashes[i])) f(g, i);
    }
  }
}

struct OpenFile {
  explicit OpenFile(FileDescriptor opened) : in(std::move(opened)) {}
  FileStream in;
  Head head{};
  std::vector<TokenId> tokens;
};

Result<std::unique_ptr<OpenFile>> open_session(const std::filesystem::path& path,
                                               uint64_t fingerprint, int vocab_size) {
  const auto damaged = [&](const char* what) {
    return errorf(ErrorCode::kCorruptFile, "{}: not a session that was saved whole: {}",
                  path.string(), what);
  };
  ASSIGN_OR_RETURN(FileDescriptor opened, open_regular_file(path));
  auto owned = std::make_unique<OpenFile>(std::move(opened));
  OpenFile& file = *owned;
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error || !get(file.in, file.head) || file.head[kMagicWord] != kSessionMagic)
    return damaged("no session's head");
  if (file.head[kTokens] > (size - sizeof(Head)) / sizeof(TokenId)) return damaged("it is cut off");
  file.tokens.resize(file.head[kTokens]);
  file.in.read(reinterpret_cast<char*>(file.tokens.data()),
               static_cast<std::streamsize>(file.tokens.size() * sizeof(TokenId)));
  if (!file.in) return damaged("it is cut off");
  if (file.head[kChecksum] != head_checksum(file.head, file.tokens))
    return damaged("checksum of the tokens");
  if (file.head[kFingerprint] != fingerprint) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: the session is of another model or configuration", path.string());
  }
  for (const TokenId token : file.tokens) {
    if (token < 0 || token >= vocab_size) return damaged("a token is not in the vocabulary");
  }
  return owned;
}

// Calls f(group, entry) for every block. Returns false if one is truncated or damaged.
template <class F>
bool read_blocks(OpenFile& file, uint64_t fingerprint, std::vector<BlockEntry>& entries, F&& f) {
  for (uint64_t i = 0; i < file.head[kBlocks]; ++i) {
    uint64_t group = 0;
    if (!get(file.in, group) || group >= entries.size()) return false;
    if (!entries[group].read_rest(file.in, group, fingerprint)) return false;
    f(static_cast<int>(group), entries[group]);
  }
  return file.in.peek() == std::istream::traits_type::eof();
}

}  // namespace

Result<int> save_session_file(const std::filesystem::path& path, uint64_t fingerprint,
                              std::span<const TokenId> tokens, std::span<const std::string> salts,
                              Scheduler& scheduler, const StepModel& model) {
  const int block_size = scheduler.block_size();
  BlockHash root;
  std::vector<BlockHash> hashes;
  int n_saved = -1;
  for (const std::string& salt : salts) {
    const BlockHash other_root = root_hash(salt);
    std::vector<BlockHash> others = hashes_of(other_root, tokens, block_size);
    int n_known = 0;
    for_each_block(scheduler, others,
                   [&](int group, size_t) { n_known += group == 0 ? block_size : 0; });
    if (n_known > n_saved) root = other_root, hashes = std::move(others), n_saved = n_known;
  }
  Head head = {kSessionMagic, fingerprint, root.low, root.high, tokens.size()};
  for_each_block(scheduler, hashes, [&](int, size_t) { ++head[kBlocks]; });
  head[kChecksum] = head_checksum(head, tokens);
  RETURN_IF_ERROR(write_whole_file(path, "session", [&](std::ostream& out) {
    put(out, head);
    out.write(reinterpret_cast<const char*>(tokens.data()),
              static_cast<std::streamsize>(tokens.size_bytes()));
    for_each_block(scheduler, hashes, [&](int group, size_t i) {
      BlockEntry entry(model.block_bytes(group), block_size);
      const std::span<const TokenId> part = tokens.subspan(i * block_size, block_size);
      const std::optional<BlockId> block = scheduler.allocator(group).acquire(hashes[i], part);
      if (!block) return;
      entry.set_head(static_cast<uint64_t>(group), hashes[i], part);
      model.read_block(group, *block, entry.content());
      entry.write(out, fingerprint);
      scheduler.allocator(group).release(*block);
    });
  }));
  return n_saved;
}

Result<SessionTokens> load_session_file(const std::filesystem::path& path, uint64_t fingerprint,
                                        int vocab_size, Scheduler& scheduler, StepModel& model) {
  ASSIGN_OR_RETURN(const auto opened, open_session(path, fingerprint, vocab_size));
  OpenFile& file = *opened;
  std::vector<BlockEntry> entries;
  for (int g = 0; g < scheduler.n_groups(); ++g)
    entries.emplace_back(model.block_bytes(g), scheduler.block_size());
  const auto first_block = file.in.tellg();
  if (!read_blocks(file, fingerprint, entries, [](int, BlockEntry&) {})) {
    return errorf(ErrorCode::kCorruptFile, "{}: a block of the session is cut off or damaged",
                  path.string());
  }
  file.in.clear();
  file.in.seekg(first_block);
  // All blocks are held until the last is restored: if there is no room for all, the first ones
  // stay.
  std::vector<std::pair<int, BlockId>> held;
  SessionTokens session;
  const auto restore = [&](int group, BlockEntry& entry) {
    BlockAllocator& allocator = scheduler.allocator(group);
    std::optional<BlockId> block = allocator.acquire(entry.hash(), entry.tokens());
    if (!block && (block = allocator.allocate())) {
      model.write_block(group, *block, entry.content());
      allocator.publish(*block, entry.hash(), entry.tokens());
    }
    if (!block) return;
    held.emplace_back(group, *block);
    session.n_restored += group == 0 ? scheduler.block_size() : 0;
  };
  read_blocks(file, fingerprint, entries, restore);
  for (size_t i = held.size(); i-- > 0;) scheduler.allocator(held[i].first).release(held[i].second);
  session.tokens = std::move(file.tokens);
  return session;
}

}  // namespace penstock
